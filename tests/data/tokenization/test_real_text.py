"""Ids and offsets of 250,000 real sentences in six languages under the four released vocabularies.

Each as it was made, and two with accents kept or stripped against the case.

python -m pytest -m slow tests/data/tokenization/test_real_text.py -s
"""

import collections
import itertools
import time

import pytest

from data.pretraining import corpus
from data.tokenization import Tokenizer
from tests.reference.plain_tokenizer import (
    HAS_UNICODE_14,
    UNK,
    clean,
    fold,
    plain_pieces,
    plain_spans,
    plain_words,
    split_punctuation,
)

# Whose, do_lower_case, strip_accents.
VOCABULARIES = (
    ("uncased-en", True, True),
    pytest.param("cased-en", False, False, marks=pytest.mark.hours),
    ("chinese", True, True),
    pytest.param("multilingual-cased", False, False, marks=pytest.mark.hours),
    pytest.param("multilingual-cased", True, False, marks=pytest.mark.hours),
    pytest.param("cased-en", False, True, marks=pytest.mark.hours),
)
SENTENCES = 40_000
BATCH = 2000
SPANS_EVERY = 100

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not HAS_UNICODE_14, reason="needs Python 3.11's Unicode tables"),
]


class Cleaning(dict):
    """`clean` as a table for str.translate, filled as it is used."""

    def __missing__(self, code: int) -> str:
        self[code] = clean(chr(code))
        return self[code]


class Oracle:
    """`plain_ids`, with each character and each word looked at once."""

    def __init__(self, vocab: dict[str, int], *folding: bool):
        self.vocab = vocab
        self.folding = folding
        self.table = Cleaning()
        self.ids_of_word: dict[str, list[int]] = {}

    def ids(self, text: str) -> list[int]:
        known, ids = self.ids_of_word, []
        for word in text.translate(self.table).split():
            if word not in known:
                words = split_punctuation(fold(word, *self.folding))
                pieces = [piece for part in words for piece in plain_pieces(part, self.vocab)]
                known[word] = [self.vocab[piece] for piece in pieces]
            ids += known[word]
        return ids


def kind_of(source: bytes, piece: str, vocab: dict[str, int], *folding: bool) -> str:
    """How the slice of a piece relates to it."""
    text = source.decode()
    words = plain_words(text, *folding)
    letters = piece.removeprefix("##")
    if words == [letters] or words == [piece]:
        return "equal"
    if piece == UNK and len(words) == 1 and plain_pieces(words[0], vocab) == [UNK]:
        return "unknown word"
    if len(words) == 1 and letters.endswith("ς") and words[0] == letters[:-1] + "σ":
        return "final sigma"
    # A character that becomes several: its slice is the whole of it.
    if len(words) == 1 and letters in words[0] and len(fold(text[:1], *folding)) > 1:
        return "part of a character"
    return "violation"


@pytest.fixture(scope="module")
def texts(shared_data) -> dict[str, list[str]]:
    found = {}
    for name in ("enwiki/train/*", "zhwiki/*"):
        files = corpus.expand(str(shared_data / "corpora" / name))
        sentences = (s for document in corpus.read_documents(files) for s in document.sentences)
        found[name.split("/")[0]] = list(itertools.islice(sentences, SENTENCES))
    for language in ("en", "zh", "de", "ar", "th"):
        lines = (shared_data / f"xnli/dev-{language}.tsv").read_text(encoding="utf-8").split("\n")
        found[f"xnli-{language}"] = [part for line in lines for part in line.split("\t") if part]
    return found


@pytest.mark.parametrize(("name", "lower", "strip"), VOCABULARIES)
def test_every_sentence(texts, shared_data, name, lower, strip):
    folding = lower, strip
    tokenizer = Tokenizer(str(shared_data / f"vocab/bert-{name}/vocab.txt"), lower, (), strip)
    vocab = {token: index for index, token in enumerate(tokenizer.vocab)}
    oracle = Oracle(vocab, *folding)
    known: dict[tuple[bytes, int], str] = {}
    for source, sentences in texts.items():
        start = time.perf_counter()
        kinds: collections.Counter[str] = collections.Counter()
        different = other_spans = 0
        for begin in range(0, len(sentences), BATCH):
            part = sentences[begin : begin + BATCH]
            pieces = tokenizer.tokenize_with_offsets(part)
            assert tokenizer.tokenize(part).to_list() == pieces.ids.to_list()
            rows = zip(part, *(values.to_list() for values in pieces), strict=True)
            for number, (text, ids, starts, ends) in enumerate(rows):
                different += ids != oracle.ids(text)
                data = text.encode()
                for index, first, last in zip(ids, starts, ends, strict=True):
                    key = (data[first:last], index)
                    kind = known.get(key)
                    if kind is None:
                        kind = kind_of(key[0], tokenizer.vocab[index], vocab, *folding)
                        known[key] = kind
                    kinds[kind] += 1
                if number % SPANS_EVERY == 0:
                    tokens = tokenizer.ids_to_tokens(ids)
                    spans = list(zip(tokens, starts, ends, strict=True))
                    other_spans += spans != plain_spans(text, vocab, *folding)
        print(
            f"\n{name}, {folding}, {source}: {len(sentences)} texts, {kinds.total()} pieces, "
            f"{different} different; offsets: {dict(kinds)}, {other_spans} other spans "
            f"({time.perf_counter() - start:.0f} s)"
        )
        assert different == 0
        assert kinds["violation"] == 0
        assert other_spans == 0
