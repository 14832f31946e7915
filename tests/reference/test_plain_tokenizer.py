"""The plain tokenizer against recorded strings of the original; offsets against the plain ones."""

import json
import unicodedata

import pytest

from data.tokenization import Tokenizer
from tests.reference.plain_tokenizer import HAS_UNICODE_14, plain_ids, plain_spans, plain_words

needs_unicode_14 = pytest.mark.skipif(
    not HAS_UNICODE_14, reason="needs Python 3.11's Unicode tables"
)
VOCABULARIES = ("uncased-en", "cased-en", "chinese", "multilingual-cased")


@pytest.fixture(scope="module")
def recorded(golden) -> list[dict]:
    data = json.loads((golden / "tokenization_400.json").read_text(encoding="utf-8"))
    newer = {case["id"]: case for case in data["py311_cases"]}
    return [newer.get(case["id"], case) for case in data["cases"]]


@needs_unicode_14
def test_recorded_strings(recorded, shared_data):
    vocab_file = shared_data / "vocab/bert-uncased-en/vocab.txt"
    tokenizer = Tokenizer(str(vocab_file))
    vocab = {token: index for index, token in enumerate(tokenizer.vocab)}
    assert len(recorded) == 400
    for case in recorded:
        assert plain_words(case["text"], True) == case["basic_lower"]
        assert plain_words(case["text"], False) == case["basic_cased"]
        assert plain_ids(case["text"], vocab, True) == case["lower_ids"]
        assert [piece for piece, _, _ in plain_spans(case["text"], vocab, True)] == case["lower"]


@needs_unicode_14
@pytest.mark.parametrize("lower", [True, False])
def test_offsets_of_the_recorded_strings(recorded, shared_data, lower):
    tokenizer = Tokenizer(str(shared_data / "vocab/bert-uncased-en/vocab.txt"), lower)
    vocab = {token: index for index, token in enumerate(tokenizer.vocab)}
    texts = [case["text"] for case in recorded]
    ids, starts, ends = (part.to_list() for part in tokenizer.tokenize_with_offsets(texts))
    for text, *row in zip(texts, ids, starts, ends, strict=True):
        got = list(zip(tokenizer.ids_to_tokens(row[0]), row[1], row[2], strict=True))
        assert got == plain_spans(text, vocab, lower), repr(text)


@pytest.mark.parametrize("name", VOCABULARIES)
def test_no_released_vocabulary_tells_apart_what_we_do_otherwise(shared_data, name):
    """Code points that are punctuation only to newer Unicode tables; chains that NFD reorders."""
    newer = [*(0x1B4E, 0x1B4F, 0x1B7F, 0x10D6E, 0x113D4, 0x113D5, 0x113D7, 0x113D8, 0x11BE1)]
    newer += [*range(0x11B00, 0x11B0A), *range(0x11F43, 0x11F50), *range(0x16D6D, 0x16D70), 0x1E5FF]
    reordered = [
        code
        for code in range(0x110000)
        if unicodedata.combining(chr(code)) and unicodedata.category(chr(code)) != "Mn"
    ]
    assert len(newer) == 36 and 0x302E in reordered
    tokens = (shared_data / f"vocab/bert-{name}/vocab.txt").read_text(encoding="utf-8")
    assert not {chr(code) for code in newer + reordered} & set(tokens)
