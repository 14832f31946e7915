"""Where pieces stand in their source: bytes, characters, words; tokens kept whole."""

import random

import pytest
import tensorflow as tf

from data.errors import DataError
from data.tokenization import Tokenizer
from data.tokenization.offsets import bytes_to_characters, text_slices

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = ["cafe", "bar", "ab", "##b", "a", "漢", ".", "ᄀ", "##ᅡ", "ος", "##ος", "ο", "i", "##x", "x"]
VOCAB = [*SPECIAL, *WORDS, "[", "]", "mask", "é", "caf", "##é", "[unused1]"]


def slices(tokenizer: Tokenizer, text: str | bytes) -> list[tuple[str, str]]:
    """(piece, slice of the source); checks that every form of the call gives the same."""
    source = text.encode() if isinstance(text, str) else text
    ids, starts, ends = tokenizer.tokenize_with_offsets(source)
    assert ids.dtype == starts.dtype == ends.dtype == tf.int32
    assert ids.numpy().tolist() == tokenizer.tokenize(source).numpy().tolist()
    batch = tokenizer.tokenize_with_offsets(tf.constant([b"x \xcc\x81", source, b""]))
    for of_batch, alone in zip(batch, (ids, starts, ends), strict=True):
        assert of_batch.to_list()[1] == alone.numpy().tolist()
        assert of_batch.to_list()[2] == []
    spans = zip(starts.numpy(), ends.numpy(), strict=True)
    pieces = tokenizer.ids_to_tokens(ids)
    return [
        (piece, source[a:b].decode("utf-8", "ignore"))
        for piece, (a, b) in zip(pieces, spans, strict=True)
    ]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("", []),
        (" \u200b ", []),
        ("Café bar", [("cafe", "Café"), ("bar", "bar")]),
        ("cafe\u0301\u0301 bar", [("cafe", "cafe\u0301\u0301"), ("bar", "bar")]),
        ("cafe\u200b bar\u0301\u200b\u0301", [("cafe", "cafe"), ("bar", "bar\u0301")]),
        ("\u0301a\u200bb\x01", [("ab", "a\u200bb")]),
        ("ab\u00adb.", [("ab", "ab"), ("##b", "b"), (".", ".")]),
        ("a漢a", [("a", "a"), ("漢", "漢"), ("a", "a")]),
        ("가", [("ᄀ", "가"), ("##ᅡ", "가")]),
        ("ΟΣ ΟΟΣ", [("ος", "ΟΣ"), ("ο", "Ο"), ("##ος", "ΟΣ")]),
        ("İx\u2028İ", [("i", "İ"), ("##x", "x"), ("i", "İ")]),
        ("qq a", [("[UNK]", "qq"), ("a", "a")]),
        ("q\u0301" * 201 + " a", [("[UNK]", "q\u0301" * 201), ("a", "a")]),
        ("ab" * 101 + "\u0301.", [("[UNK]", "ab" * 101 + "\u0301"), (".", ".")]),
        (b"\xffa\xffb\xe4\xbd bar\xff", [("ab", "ab"), ("bar", "bar")]),
        (b"a\xcc\x81\xff\xcc\x81 bar", [("a", "a\u0301"), ("bar", "bar")]),
    ],
)
def test_slices_of_lower_cased_text(text, wanted):
    assert slices(Tokenizer.from_vocab(VOCAB), text) == wanted


def test_slices_of_cased_text():
    tokenizer = Tokenizer.from_vocab(VOCAB, do_lower_case=False)
    assert slices(tokenizer, "café bar\u0301\x07") == [
        ("caf", "caf"),
        ("##é", "é"),
        ("[UNK]", "bar\u0301"),
    ]


@pytest.mark.parametrize(
    ("lower", "text", "wanted"),
    [
        (True, "CAFÉ cafe\u0301", [("caf", "CAF"), ("##é", "É"), ("[UNK]", "cafe\u0301")]),
        (True, "İx i\u0307", [("i\u0307", "İ"), ("##x", "x"), ("i\u0307", "i\u0307")]),
        (True, "가 ΟΟΣ", [("[UNK]", "가"), ("ο", "Ο"), ("##ος", "ΟΣ")]),
        (False, "café CAFÉ", [("cafe", "café"), ("[UNK]", "CAFÉ")]),
        (False, "ab\u0301.", [("ab", "ab\u0301"), (".", ".")]),
        (False, "가 İx", [("ᄀ", "가"), ("##ᅡ", "가"), ("[UNK]", "İx")]),
    ],
)
def test_slices_where_accents_do_not_go_with_the_case(lower, text, wanted):
    tokenizer = Tokenizer.from_vocab([*VOCAB, "i\u0307"], lower, strip_accents=not lower)
    assert slices(tokenizer, text) == wanted


def test_offsets_keep_the_shape():
    tokenizer = Tokenizer.from_vocab(VOCAB)
    nested = tokenizer.tokenize_with_offsets(tf.ragged.constant([["a", "bar a"], [], ["é"]]))
    assert tokenizer.ids_to_tokens(nested.ids) == [[["a"], ["bar", "a"]], [], [["[UNK]"]]]
    assert nested.starts.to_list() == [[[0], [0, 4]], [], [[0]]]
    assert nested.ends.to_list() == [[[1], [3, 5]], [], [[2]]]
    empty = tokenizer.tokenize_with_offsets(tf.constant([], tf.string))
    assert [part.to_list() for part in empty] == [[], [], []]


def test_bytes_to_characters():
    texts = ["aé漢😀b", "", "ab"]
    offsets = tf.ragged.constant([[0, 1, 3, 6, 10, 11], [0], [2]])
    characters = bytes_to_characters(texts, offsets)
    assert characters.to_list() == [[0, 1, 2, 3, 4, 5], [0], [2]]
    assert characters.dtype == offsets.dtype
    assert bytes_to_characters("é!", tf.constant([0, 2, 3])).numpy().tolist() == [0, 1, 2]
    text = "Ein Café, ΟΔΟΣ"
    _, starts, ends = Tokenizer.from_vocab(VOCAB).tokenize_with_offsets(text)
    begin, end = bytes_to_characters(text, starts), bytes_to_characters(text, ends)
    words = [text[a:b] for a, b in zip(begin.numpy(), end.numpy(), strict=True)]
    assert words == ["Ein", "Café", ",", "ΟΔΟΣ"]


def test_words():
    tokenizer = Tokenizer.from_vocab(VOCAB)
    words = [["Café", "\u200b", "abb", "a.b"], [], ["qq"], ["", "x a"]]
    ids, index = tokenizer.tokenize_words(words)
    assert tokenizer.ids_to_tokens(ids) == [
        ["cafe", "ab", "##b", "a", ".", "[UNK]"],
        [],
        ["[UNK]"],
        ["x", "a"],
    ]
    assert index.to_list() == [[0, 2, 2, 3, 3, 3], [], [0], [1, 1]]
    assert ids.dtype == index.dtype == tf.int32
    ids, index = tokenizer.tokenize_words(words[0])
    assert index.numpy().tolist() == [0, 2, 2, 3, 3, 3]
    padded = tf.ragged.constant(words).to_tensor()
    assert tokenizer.tokenize_words(padded)[1].to_list()[3] == [1, 1]
    dataset = tf.data.Dataset.from_tensors(tf.ragged.constant(words)).map(tokenizer.tokenize_words)
    assert next(iter(dataset)).words.to_list() == [[0, 2, 2, 3, 3, 3], [], [0], [1, 1]]


def test_detokenize():
    tokenizer = Tokenizer.from_vocab(VOCAB)
    texts = ["abb  CAFÉ.", "", "qq"]
    assert tokenizer.detokenize(tokenizer.tokenize(texts)).numpy().tolist() == [
        b"abb cafe .",
        b"",
        b"[UNK]",
    ]
    assert tokenizer.detokenize([2, 7, 8, 3, 0, 0]).numpy() == b"[CLS] abb [SEP] [PAD] [PAD]"
    assert tokenizer.detokenize([[2, 7, 8, 3], [0]], True).numpy().tolist() == [b"abb", b""]
    assert tokenizer.detokenize(tf.constant([[2, 7, 8, 3]])).shape == [1]


@pytest.mark.parametrize("lower", [True, False])
def test_never_split(lower):
    plain = Tokenizer.from_vocab(VOCAB, lower)
    keeping = Tokenizer.from_vocab(VOCAB, lower, ["[MASK]", "[UNK]", "[unused1]"])
    text = "a[MASK]\u200bb [mask] x[unused1]\x01\x05. [UNK]"
    assert slices(keeping, text) == [
        ("a", "a"),
        ("[MASK]", "[MASK]"),
        ("[UNK]", "b"),
        ("[", "["),
        ("mask", "mask"),
        ("]", "]"),
        ("x", "x"),
        ("[unused1]", "[unused1]"),
        (".", "."),
        ("[UNK]", "[UNK]"),
    ]
    assert "[MASK]" not in [piece for piece, _ in slices(plain, text)]
    for other in ("", "ab\x01\x01b", "Café \x01 \x02", "bar" * 80):
        assert slices(keeping, other) == slices(plain, other)


def test_many_tokens_kept_whole():
    unused = [f"[unused{index}]" for index in range(400)]
    tokenizer = Tokenizer.from_vocab([*SPECIAL, "a", *unused], never_split=[*unused, "[MASK]"])
    text = "a[unused0][unused399] [MASK] a [unused17]"
    assert [piece for piece, _ in slices(tokenizer, text)] == [
        "a", "[unused0]", "[unused399]", "[MASK]", "a", "[unused17]",
    ]  # fmt: skip


@pytest.mark.parametrize("lower", [True, False])
def test_split_words_keeps_the_same_tokens(lower):
    kept = ["[MASK]", "[unused0]"]
    vocab = [*SPECIAL, "[unused0]", "a", "b", "[", "]", "mask", "MASK", "unused0"]
    tokenizer = Tokenizer.from_vocab(vocab, lower, never_split=kept)
    texts = ["a[MASK]b [unused0]", "", "[MASK][MASK]", "[mask] [CLS] \x01"]
    words = tokenizer.split_words(texts).to_list()
    assert words[:3] == [[b"a", b"[MASK]", b"b", b"[unused0]"], [], [b"[MASK]"] * 2]
    assert words[3] == [b"[", b"mask", b"]", b"[", b"cls" if lower else b"CLS", b"]"]
    ids = tokenizer.tokenize(texts[:3])
    assert tokenizer.ids_to_tokens(ids) == [[w.decode() for w in line] for line in words[:3]]


def test_never_split_refuses():
    with pytest.raises(DataError, match="brackets"):
        Tokenizer.from_vocab(VOCAB, never_split=["cafe"])
    with pytest.raises(DataError, match=r"\[unused7\].*lacks"):
        Tokenizer.from_vocab(VOCAB, never_split=["[MASK]", "[unused7]"])
    with pytest.raises(DataError, match="at most"):
        many = [f"[unused{index}]" for index in range(500)]
        Tokenizer.from_vocab([*VOCAB, *many], never_split=many)


def test_all_of_it_in_a_saved_model(tmp_path):
    """With core TensorFlow's ops and the two of TF Text's that TF Serving links."""

    class Server(tf.Module):
        def __init__(self):
            super().__init__()
            self.tokenizer = Tokenizer.from_vocab(VOCAB, never_split=["[MASK]"])

        @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
        def serve(self, texts):
            pieces = self.tokenizer.tokenize_with_offsets(texts)
            words = self.tokenizer.tokenize_words(tf.strings.split(texts))
            return {
                "ids": pieces.ids.to_tensor(),
                "starts": bytes_to_characters(texts, pieces.starts).to_tensor(),
                "ends": bytes_to_characters(texts, pieces.ends).to_tensor(),
                "words": words.words.to_tensor(-1),
                "text": self.tokenizer.detokenize(pieces.ids),
            }

    texts = tf.constant(["Cafe\u0301 [MASK] bar", "", "ab" * 101 + " ΟΣ"])
    server = Server()
    tf.saved_model.save(server, str(tmp_path))
    loaded = tf.saved_model.load(str(tmp_path)).serve(texts)
    for name, value in server.serve(texts).items():
        assert (loaded[name].numpy() == value.numpy()).all(), name
    assert loaded["text"].numpy().tolist() == [b"cafe [MASK] bar", b"", "[UNK] ος".encode()]
    graph = server.serve.get_concrete_function().graph.as_graph_def()
    nodes = [*graph.node, *(node for f in graph.library.function for node in f.node_def)]
    ops = {node.op for node in nodes}
    core = {op for op in ops if hasattr(tf.raw_ops, op)}
    functions = {function.signature.name for function in graph.library.function}
    assert {op for op in ops if op not in functions and op not in core} == {
        "FastBertNormalize",
        "FastWordpieceTokenizeWithOffsets",
    }


@pytest.mark.parametrize("length", [3, 200_000])
def test_slices_short_and_long(length):
    """Long texts go another way than short ones, bytes that are no text and empty slices too."""
    draw = random.Random(length)
    texts = [draw.randbytes(length), b"", bytes(range(256)), "漢字é".encode() * (length // 9)]
    rows, begins, ends = [], [], []
    for row, text in enumerate(texts):
        for _ in range(30):
            begin = draw.randint(0, len(text))
            rows.append(row)
            begins.append(begin)
            ends.append(min(begin + draw.randrange(9), len(text)))
    got = text_slices(tf.constant(texts), tf.constant(rows), tf.constant(begins), tf.constant(ends))
    wanted = [texts[r][b:e] for r, b, e in zip(rows, begins, ends, strict=True)]
    assert got.numpy().tolist() == wanted
    nothing = tf.zeros([0], tf.int64)
    assert text_slices(tf.constant([], tf.string), nothing, nothing, nothing).shape == [0]
