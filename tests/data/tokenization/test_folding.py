"""Case and accents, each folded or kept: the four tokenizers against the plain Python one."""

import random
import unicodedata

import pytest
import tensorflow as tf

from data.tokenization import Tokenizer
from tests.reference.plain_tokenizer import HAS_UNICODE_14, plain_spans, plain_words

NEW = [(True, False), (False, True)]
FOLDINGS = [(True, True), (False, False), *NEW]
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
LONG_RUNS = [(0x3400, 0x9FFF), (0xAC00, 0xD7A3), (0x17000, 0x18D08), (0x20000, 0x10FFFF)]
needs_unicode_14 = pytest.mark.skipif(
    not HAS_UNICODE_14, reason="the oracle needs Python 3.11's Unicode tables"
)


def differing(tokenizer: Tokenizer, texts: list[str], *folding: bool | None) -> list[str]:
    """Texts whose words, pieces or places aren't those of the plain tokenizer."""
    vocab = {token: index for index, token in enumerate(tokenizer.vocab)}
    words = tokenizer.split_words(texts).to_list()
    pieces = [part.to_list() for part in tokenizer.tokenize_with_offsets(texts)]
    assert tokenizer.tokenize(texts).to_list() == pieces[0]
    found = []
    for text, of_text, *row in zip(texts, words, *pieces, strict=True):
        spans = list(zip(tokenizer.ids_to_tokens(row[0]), row[1], row[2], strict=True))
        same = [word.decode() for word in of_text] == plain_words(text, *folding)
        if not same or spans != plain_spans(text, vocab, *folding):
            found.append(text)
    return found


def code_points(every: bool) -> list[str]:
    """Each assigned one between letters; of the long runs a sample, unless `every`."""
    codes = [c for c in range(0x110000) if unicodedata.category(chr(c)) not in ("Cn", "Cs")]
    if not every:
        codes = [c for c in codes if c % 97 == 0 or not any(a <= c <= b for a, b in LONG_RUNS)]
    return [f"y{chr(code)}z" for code in codes]


def vocabulary_of(texts: list[str]) -> list[str]:
    """Every character of the words of texts, however folded, as a piece of its own."""
    words = {word for text in texts for folding in FOLDINGS for word in plain_words(text, *folding)}
    characters = sorted(set("".join(words)))
    return [*SPECIAL, *characters, *(f"##{char}" for char in characters)]


@needs_unicode_14
@pytest.mark.parametrize(("lower", "strip"), NEW)
def test_code_points(lower, strip):
    texts = code_points(every=False)
    assert len(texts) > 40_000
    tokenizer = Tokenizer.from_vocab(vocabulary_of(texts), lower, strip_accents=strip)
    assert differing(tokenizer, texts, lower, strip) == []


@needs_unicode_14
@pytest.mark.slow
@pytest.mark.parametrize(
    ("lower", "strip"),
    [
        NEW[0],
        *(pytest.param(*both, marks=pytest.mark.hours) for both in FOLDINGS if both != NEW[0]),
    ],
)
def test_every_code_point(lower, strip):
    texts = code_points(every=True)
    assert len(texts) == 282_230
    tokenizer = Tokenizer.from_vocab(vocabulary_of(texts), lower, strip_accents=strip)
    assert differing(tokenizer, texts, lower, strip) == []


@needs_unicode_14
@pytest.mark.parametrize(("lower", "strip"), FOLDINGS)
def test_random_texts(shared_data, lower, strip):
    draw = random.Random(6)
    pool = [chr(code) for code in range(0x20, 0x600)] + [chr(c) for c in range(0x370, 0x3FF)] * 2
    pool += list(" \t\u00a0\u2028\u200b\u0301\u0307.,'ΣςσİẞßŒé가각漢字豈\ufffd\x85") * 30
    pool += list("etaoinshrdlu ") * 60
    texts = ["".join(draw.choices(pool, k=draw.randrange(60))) for _ in range(3000)]
    vocab_file = str(shared_data / "vocab/bert-multilingual-cased/vocab.txt")
    tokenizer = Tokenizer(vocab_file, lower, strip_accents=strip)
    assert differing(tokenizer, texts, lower, strip) == []


def test_accents_go_with_the_case_unless_told():
    for lower in (True, False):
        tokenizer = Tokenizer.from_vocab([*SPECIAL, "É", "é", "E", "e"], lower)
        assert tokenizer.strip_accents is lower
        assert tokenizer.split_words("É").numpy().tolist() == [b"e" if lower else "É".encode()]


@pytest.mark.slow
@pytest.mark.parametrize(("lower", "words"), [(True, ["é", "é"]), (False, ["E", "e"])])
def test_words_kept_tokens_and_an_export(tmp_path, lower, words):
    class Server(tf.Module):
        def __init__(self):
            super().__init__()
            self.tokenizer = Tokenizer.from_vocab(
                [*SPECIAL, "É", "é", "E", "e"], lower, ["[MASK]"], not lower
            )

        @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
        def serve(self, texts):
            return self.tokenizer.tokenize_words(tf.strings.split(texts)).ids.to_tensor()

    server = Server()
    texts = tf.constant(["É [MASK] é"])
    wanted = [[words[0], "[MASK]", words[1]]]
    assert server.tokenizer.ids_to_tokens(server.serve(texts)) == wanted
    tf.saved_model.save(server, str(tmp_path))
    loaded = tf.saved_model.load(str(tmp_path)).serve(texts)
    assert server.tokenizer.ids_to_tokens(loaded) == wanted
