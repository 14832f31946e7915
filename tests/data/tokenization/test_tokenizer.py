"""The tokenizer against the original's recorded tokens and a plain Python restatement of it."""

import json
import random
import unicodedata

import numpy as np
import pytest
import tensorflow as tf

from data.errors import DataError
from data.tokenization import Tokenizer
from tests.reference.plain_tokenizer import HAS_UNICODE_14, plain_pieces, plain_words

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
needs_unicode_14 = pytest.mark.skipif(
    not HAS_UNICODE_14, reason="the oracle needs Python 3.11's Unicode tables"
)


@pytest.fixture(scope="module")
def uncased(shared_data) -> Tokenizer:
    return Tokenizer(str(shared_data / "vocab/bert-uncased-en/vocab.txt"))


@pytest.fixture(scope="module")
def recorded(golden) -> list[dict]:
    data = json.loads((golden / "tokenization_400.json").read_text(encoding="utf-8"))
    newer = {case["id"]: case for case in data["py311_cases"]}
    return [newer.get(case["id"], case) for case in data["cases"]]


def texts_of(cases: list[dict]) -> list[str]:
    return [case["text"] for case in cases]


def test_recorded_strings_lower_case(recorded, uncased):
    texts = texts_of(recorded)
    assert len(texts) == 400
    ids = uncased.tokenize(texts)
    assert ids.dtype == tf.int32
    assert ids.to_list() == [case["lower_ids"] for case in recorded]
    assert uncased.ids_to_tokens(ids) == [case["lower"] for case in recorded]
    words = [[w.decode() for w in row] for row in uncased.split_words(texts).to_list()]
    assert words == [case["basic_lower"] for case in recorded]


def test_recorded_strings_cased(recorded, golden, shared_data):
    texts = texts_of(recorded)
    for path, key in (
        (shared_data / "vocab/bert-uncased-en/vocab.txt", "cased"),
        (golden / "vocab_cased_synth.txt", "cased_synth"),
    ):
        cased = Tokenizer(str(path), do_lower_case=False)
        assert cased.ids_to_tokens(cased.tokenize(texts)) == [case[key] for case in recorded]
    words = [[w.decode() for w in row] for row in cased.split_words(texts).to_list()]
    assert words == [case["basic_cased"] for case in recorded]


def differing_code_points(codes: list[int], golden, lower: bool) -> list[int]:
    """Code points whose class, between two letters, is not the recorded one."""
    table = json.loads((golden / "tokenization_codepoints_py311.json").read_text(encoding="utf-8"))
    bits = np.zeros(0x110000, np.int64)
    for first, last, value in table["runs"]:
        bits[first : last + 1] = value
    folded = {int(code, 16): text for code, text in table["lower_strip"].items()}

    def expected(code: int) -> list[str]:
        if code == 0xFFFD or bits[code] & 2:
            return ["yz"]
        if bits[code] & (1 | 32):
            return ["y", "z"]
        text = chr(code)
        if lower:
            text = folded.get(code, "" if bits[code] & 16 else text)
            if 0xAC00 <= code <= 0xD7A3:
                text = unicodedata.normalize("NFD", text)
        if bits[code] & 8 or (text and bits[ord(text[0])] & 4):
            return ["y", text, "z"]
        return [f"y{text}z"]

    tokenizer = Tokenizer.from_vocab([*SPECIAL, "y", "z", "##z"], lower)
    ids_of = {"y": [5], "z": [6], "yz": [5, 7]}
    differing = []
    for begin in range(0, len(codes), 100_000):
        part = codes[begin : begin + 100_000]
        texts = tf.constant([f"y{chr(code)}z" for code in part])
        words, ids = tokenizer.split_words(texts).to_list(), tokenizer.tokenize(texts).to_list()
        for code, got_words, got_ids in zip(part, words, ids, strict=True):
            wanted = expected(code)
            wanted_ids = [index for word in wanted for index in ids_of.get(word, [1])]
            if [word.decode() for word in got_words] != wanted or got_ids != wanted_ids:
                differing.append(code)
    return differing


def assigned(code: int) -> bool:
    return unicodedata.category(chr(code)) not in ("Cn", "Cs")


@needs_unicode_14
@pytest.mark.parametrize("lower", [True, False])
def test_code_points(golden, lower):
    """0 differences; of the long runs of ideographs and syllables, a sample."""
    long_runs = [(0x3400, 0x9FFF), (0xAC00, 0xD7A3), (0x17000, 0x18D08), (0x20000, 0x10FFFF)]
    codes = [
        code
        for code in range(0x110000)
        if assigned(code) and (code % 97 == 0 or not any(a <= code <= b for a, b in long_runs))
    ]
    assert len(codes) > 40_000
    # y and z fold into themselves, so they are not told from the letters around them.
    codes = [code for code in codes if not set(plain_words(chr(code), lower)) & {"y", "z"}]
    assert differing_code_points(codes, golden, lower) == []


@needs_unicode_14
@pytest.mark.slow
@pytest.mark.parametrize("lower", [True, False])
def test_every_code_point(golden, lower):
    """0 of the assigned differ; those that do are punctuation to ICU's newer tables."""
    codes = [code for code in range(0x110000) if not 0xD800 <= code < 0xE000]
    codes = [code for code in codes if not set(plain_words(chr(code), lower)) & {"y", "z"}]
    differing = differing_code_points(codes, golden, lower)
    print(f"{len(differing)} of {len(codes)} differ:", [f"{code:04X}" for code in differing])
    assert [code for code in differing if assigned(code)] == []
    assert len(differing) < 100


@needs_unicode_14
@pytest.mark.parametrize("lower", [True, False])
def test_random_texts_equal_oracle(uncased, lower):
    draw = random.Random(5)
    pool = [chr(code) for code in range(0x20, 0x600)] + [chr(c) for c in range(0x370, 0x3FF)] * 2
    pool += list(" \t\u00a0\u2028\u200b\u0301.,'ΣςσİẞßŒ가각漢字豈\ufffd\x85") * 30
    pool += list("etaoinshrdlu ") * 60
    texts = ["".join(draw.choices(pool, k=draw.randrange(60))) for _ in range(3000)]
    tokenizer = Tokenizer.from_vocab(uncased.vocab, lower)
    vocab = {token: index for index, token in enumerate(uncased.vocab)}
    wanted = [
        [vocab[piece] for word in plain_words(text, lower) for piece in plain_pieces(word, vocab)]
        for text in texts
    ]
    assert tokenizer.tokenize(texts).to_list() == wanted


def test_final_sigma(uncased):
    text = "ΟΔΥΣΣΕΥΣ ΑΣ.ΑΣ Σ ΑΣ\u0301\x01Α ΑΣ' ΑΣ"
    words = [word.decode() for word in uncased.split_words(text).numpy()]
    assert words == ["οδυσσευς", "ασ", ".", "ας", "σ", "ασα", "ας", "'", "ας"]


@pytest.mark.parametrize("char", ["a", "é", "漢", "\U00010330", "д"])
@pytest.mark.parametrize("length", [199, 200, 201, 400])
def test_word_limit_counts_characters(char, length):
    """Beyond 200 characters, not bytes, a word is one [UNK]; its neighbours are untouched."""
    tokenizer = Tokenizer.from_vocab([*SPECIAL, char, f"##{char}", "x", "."], False)
    texts = ["x", f"x {char * length}.x", char * length + f" {char}"]
    vocab = {token: index for index, token in enumerate(tokenizer.vocab)}
    wanted = [
        [vocab[p] for word in plain_words(text, False) for p in plain_pieces(word, vocab)]
        for text in texts
    ]
    assert tokenizer.tokenize(texts).to_list() == wanted
    if char != "漢":
        assert (vocab["[UNK]"] in wanted[1]) == (length > 200)


def test_broken_utf8_is_dropped(uncased):
    pieces = [b"\xff", b"\xc3", b"\xe4\xbd", b"\xf0\x90\x80", b"\xed\xa0\x80", b"\xc0\xaf", b"\x80"]
    for piece in pieces:
        text = b"run" + piece + b"ning fast"
        assert text.decode("utf-8", "ignore") == "running fast"
        assert uncased.ids_to_tokens(uncased.tokenize(text)) == ["running", "fast"]


def test_half_of_a_pair_of_surrogates_is_dropped(uncased):
    """As JSON may hold it, and no UTF-8."""
    wanted = uncased.tokenize(["the man", "a"]).to_list()
    for texts in (["the\ud800 man", "\udc00a"], np.array(["the\ud800 man", "\udc00a"], object)):
        assert uncased.tokenize(texts).to_list() == wanted


def test_shapes(uncased):
    ids = uncased.tokenize("hello world")
    assert isinstance(ids, tf.Tensor)
    assert ids.numpy().tolist() == [7592, 2088]
    nested = uncased.tokenize(tf.constant([["hello", ""], ["world", "hello world"]]))
    assert nested.to_list() == [[[7592], []], [[2088], [7592, 2088]]]
    ragged = uncased.tokenize(tf.ragged.constant([["hello"], [], ["world", "a"]]))
    assert ragged.to_list() == [[[7592]], [], [[2088], [1037]]]
    assert uncased.tokenize(tf.constant([], tf.string)).to_list() == []
    assert uncased.tokenize(["", " "]).to_list() == [[], []]


def test_in_a_data_pipeline(uncased):
    texts = ["Hello, world!", "", "a" * 300, "unaffable ΑΣ"]
    dataset = tf.data.Dataset.from_tensor_slices(texts).batch(2).map(uncased.tokenize)
    rows = [row for batch in dataset for row in batch.to_list()]
    assert rows == uncased.tokenize(texts).to_list()
    single = tf.data.Dataset.from_tensor_slices(texts).map(uncased.tokenize)
    assert [ids.numpy().tolist() for ids in single] == rows


def test_made_inside_a_traced_function():
    made = []

    @tf.function
    def trace(text):
        made.append(Tokenizer.from_vocab([*SPECIAL, "a"]))
        return made[0].tokenize(text)

    assert trace(tf.constant(["a b"])).to_list() == [[5, 1]]
    assert made[0].tokenize(["a"]).to_list() == [[5]]


def test_in_a_saved_model(uncased, tmp_path):
    class Server(tf.Module):
        def __init__(self):
            super().__init__()
            self.tokenizer = uncased

        @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
        def serve(self, texts):
            return self.tokenizer.tokenize(texts).to_tensor()

    texts = ["Hello, wörld! ΟΔΟΣ", "b" * 250 + " fine"]
    server = Server()
    tf.saved_model.save(server, str(tmp_path))
    loaded = tf.saved_model.load(str(tmp_path))
    assert loaded.serve(tf.constant(texts)).numpy().tolist() == (
        uncased.tokenize(texts).to_tensor().numpy().tolist()
    )
    graph = server.serve.get_concrete_function().graph.as_graph_def()
    ops = {node.op for node in graph.node}
    ops |= {node.op for function in graph.library.function for node in function.node_def}
    outside = {op for op in ops if op.startswith(("Fast", "TFText", "TfText", "Case", "Normalize"))}
    assert outside == {"FastBertNormalize", "FastWordpieceTokenizeWithOffsets"}


def test_duplicates_blanks_and_unreachable_tokens(tmp_path):
    lines = [*SPECIAL, "foo", " bar ", "", "baz\u00a0", "foo", "a b", "[x]", "##", "\u00a0", "##r"]
    path = tmp_path / "vocab.txt"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    tokenizer = Tokenizer(str(path))
    assert tokenizer.vocab[5:] == ["foo", "bar", "", "baz", "foo", "a b", "[x]", "##", "", "##r"]
    assert tokenizer.tokenize("foo bar baz a b [x] ## foor").numpy().tolist() == [
        9, 6, 8, *[1] * 7, 9, 14
    ]  # fmt: skip


def test_attributes(uncased):
    assert uncased.vocab_size == 30522 == len(uncased.vocab)
    ids = (uncased.pad_id, uncased.unk_id, uncased.cls_id, uncased.sep_id, uncased.mask_id)
    assert ids == (0, 100, 101, 102, 103)
    assert uncased.is_continuation.dtype == bool
    assert uncased.is_continuation.shape == (30522,)
    assert uncased.ids_to_tokens(np.flatnonzero(uncased.is_continuation)[:1])[0].startswith("##")
    assert uncased.ids_to_tokens(uncased.tokenize("[MASK]")) == ["[", "mask", "]"]


@pytest.mark.parametrize("missing", SPECIAL)
def test_missing_special_token_is_named(missing, tmp_path):
    path = tmp_path / "vocab.txt"
    path.write_text("\n".join(token for token in SPECIAL if token != missing), encoding="utf-8")
    with pytest.raises(DataError) as error:
        Tokenizer(str(path))
    assert missing in str(error.value)
    assert str(path) in str(error.value)


def test_missing_file_is_named(tmp_path):
    with pytest.raises(DataError, match=r"nothing\.txt"):
        Tokenizer(str(tmp_path / "nothing.txt"))
