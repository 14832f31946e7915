"""Vocabulary learning: exact sizes, layouts, and pieces equal to a slow plain computation."""

import collections
import random

import pytest

from data.errors import DataError
from data.tokenization import Tokenizer, vocabulary
from data.tokenization.learning import learner, substring_trie
from data.tokenization.learning.learner import count_words, learn_vocabulary, measure_coverage
from data.tokenization.learning.substring_trie import SubstringTrie

STEMS = ["walk", "talk", "jump", "play", "work", "count", "cover", "order", "present", "form"]
ENDINGS = ["", "s", "ed", "ing", "er", "ers", "able", "ment"]


def sample_counts(number: int = 4000, seed: int = 1) -> collections.Counter:
    draw = random.Random(seed)
    words = collections.Counter(
        draw.choice(["", "", "re", "un"]) + draw.choice(STEMS) + draw.choice(ENDINGS)
        for _ in range(number)
    )
    for char in ",.!漢":
        words[char] += 100
    return words


def plain_pieces(counts: dict[str, int], threshold: int) -> dict[str, int]:
    """One threshold of the algorithm with dictionaries of strings."""
    singles = {form for word in counts for char in word for form in (char, "##" + char)}
    starts = {word: list(range(len(word))) for word in counts}
    for _ in range(4):
        found = collections.Counter()
        for word, count in counts.items():
            for start in starts[word]:
                for end in range(start + 1, len(word) + 1):
                    found["##" * (start > 0) + word[start:end]] += count

        def length(token):
            return len(token.removeprefix("##"))

        kept = {}
        for token in sorted(found, key=length, reverse=True):
            if found[token] >= threshold:
                kept[token] = found[token]
                for end in range(1, length(token)):
                    found[token[: len(token) - length(token) + end]] -= found[token]
        known = singles | set(kept)
        for word in counts:
            cuts, start = [], 0
            while start < len(word):
                cuts.append(start)
                start = max(
                    end
                    for end in range(start + 1, len(word) + 1)
                    if "##" * (start > 0) + word[start:end] in known
                )
            starts[word] = cuts
    return {token: count for token, count in kept.items() if length(token) > 1}


@pytest.mark.parametrize("threshold", [2, 5, 20, 60, 200])
def test_pieces_equal_plain_computation(threshold):
    counts = sample_counts()
    trie = SubstringTrie(counts, 2, set())
    kept, weight = trie._rounds(threshold)
    got = {trie._token(node): int(weight[node]) for node in kept.nonzero()[0]}
    assert got == plain_pieces(counts, threshold)
    assert got


@pytest.mark.parametrize("size", [60, 75, 100, 150, 20000, 20500])
def test_exact_size_and_layout(size):
    tokens = learn_vocabulary(sample_counts(), size)
    assert len(tokens) == size == len(set(tokens))
    if size < 20000:
        assert tokens[:5] == ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    else:
        assert tokens[:2] == ["[PAD]", "[unused0]"]
        assert tokens[99:104] == ["[unused98]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
        assert tokens[104] == "[unused99]"
    characters = {char for word in sample_counts() for char in word}
    assert characters <= set(tokens)
    if size > 60:
        assert {f"##{char}" for char in characters if char.isascii() and char.isalpha()} <= set(
            tokens
        )
    # Always words of their own, so these would never be used.
    assert not {"##,", "##漢"} & set(tokens)


def test_pieces_are_the_frequent_ones():
    tokens = learn_vocabulary(sample_counts(), 120)
    assert {"walk", "talk", "##ing", "##ment"} <= set(tokens)
    tokenizer = Tokenizer.from_vocab(tokens)
    coverage = measure_coverage(tokenizer, ["talking walks, unjumpable 漢"])
    assert coverage.words == 5
    assert coverage.unknown == 0
    assert coverage.pieces_per_word < 2.5


def test_same_counts_same_vocabulary():
    counts = sample_counts()
    shuffled = list(counts.items())
    random.Random(9).shuffle(shuffled)
    assert learn_vocabulary(counts, 130) == learn_vocabulary(dict(shuffled), 130)


def test_reserved_and_unused_tokens():
    tokens = learn_vocabulary(
        sample_counts(), 200, reserved_tokens=["[USER]", "walking", "[CLS]"], num_unused=3
    )
    assert tokens[5:10] == ["[unused0]", "[unused1]", "[unused2]", "[USER]", "walking"]
    assert len(tokens) == 200 == len(set(tokens))


def test_reserved_characters_are_there_once():
    """In the alphabet, and among the rare ones that fill it up."""
    counts = {"ab": 50, "bc": 40, "q": 1, "7": 1}
    tokens = learn_vocabulary(counts, 30, reserved_tokens=["a", "q", "7", "zebra"])
    assert len(tokens) == 30 == len(set(tokens))
    assert {"##a", "b", "##b", "##q"} <= set(tokens) and tokens.count("a") == 1


def test_filling_up_when_words_run_out():
    tokens = learn_vocabulary({"ab": 5, "q": 1}, 20)
    assert len(tokens) == 20
    assert {"a", "##a", "b", "##b", "ab", "q", "##q"} <= set(tokens)
    assert tokens[5] == "[unused0]"
    assert sum(token.startswith("[unused") for token in tokens) == 20 - 5 - 7


def test_rare_characters_stay_out_until_there_is_room():
    counts = {"abc": 100_000, "é": 1, "abcd": 50}
    small = learn_vocabulary(counts, 13, character_coverage=0.9999)
    assert "é" not in small
    assert "é" in learn_vocabulary(counts, 40, character_coverage=0.9999)


def test_small_sizes():
    tokens = learn_vocabulary(sample_counts(), 12)
    assert len(tokens) == 12 == len(set(tokens))
    with pytest.raises(DataError, match="vocab_size is 6"):
        learn_vocabulary(sample_counts(), 6)
    with pytest.raises(DataError, match="no words"):
        learn_vocabulary({}, 100)


def test_counting_words(monkeypatch):
    monkeypatch.setattr(learner, "_BATCH", 2)
    texts = ["The cat, the CAT", "", "naïve cat\u2028sat", "漢字"]
    assert count_words(iter(texts)) == {
        "the": 2, "cat": 3, ",": 1, "naive": 1, "sat": 1, "漢": 1, "字": 1
    }  # fmt: skip
    assert count_words(texts, do_lower_case=False)["CAT"] == 1
    assert count_words(["Naïve"], strip_accents=False) == {"naïve": 1}
    assert count_words(["Naïve"], False, True) == {"Naive": 1}
    assert count_words([]) == {}


def test_counting_forgets_the_rarest_words_first(monkeypatch):
    monkeypatch.setattr(learner, "_BATCH", 1)
    monkeypatch.setattr(learner, "_MAX_DISTINCT_WORDS", 6)
    counts = count_words(["a a b b c", "d e f g", "a b"])
    assert counts == {"a": 3, "b": 3}


def test_long_texts_are_counted_in_small_batches(monkeypatch):
    monkeypatch.setattr(learner, "_BATCH_CHARACTERS", 10)
    texts = ["a b", "c" * 20, "d", "e f g h i j", "", "k"]
    assert list(learner.text_batches(texts)) == [texts[:2], texts[2:4], texts[4:]]
    monkeypatch.setattr(learner, "_BATCH", 1)
    assert list(learner.text_batches(texts)) == [[text] for text in texts]


def test_only_the_most_frequent_of_too_long_words_are_learned_from(monkeypatch, caplog):
    words = {"abcd": 9, "efgh": 5, "ijkl": 7, "mnop": 5}
    monkeypatch.setattr(substring_trie, "_MAX_CHARACTERS", 12)
    assert learn_vocabulary(words, 60, min_frequency=1)[-3:] == ["abcd", "ijkl", "efgh"]
    assert "pieces are chosen from the 3 most frequent of them" in caplog.text


def test_writing_and_reading_back(tmp_path):
    tokens = learn_vocabulary(sample_counts(), 150)
    path = str(tmp_path / "vocab.txt")
    vocabulary.write_vocab(tokens, path)
    assert vocabulary.load_vocab(path) == tokens
    assert [file.name for file in tmp_path.iterdir()] == ["vocab.txt"]
    with pytest.raises(DataError, match="absent"):
        vocabulary.write_vocab(tokens, str(tmp_path / "absent" / "vocab.txt"))


@pytest.mark.hours
@pytest.mark.slow
def test_real_text_learns_as_well_as_the_released_vocabulary(shared_data):
    from data.pretraining.corpus import read_documents

    def sentences(folder, numbers):
        files = [str(shared_data / f"corpora/enwiki/{folder}/wiki_{n:02d}") for n in numbers]
        return [text for document in read_documents(files) for text in document.sentences]

    tokens = learn_vocabulary(count_words(sentences("train", range(50))), 30522)
    held_out = sentences("heldout", [0])
    ours = measure_coverage(Tokenizer.from_vocab(tokens), held_out)
    released = Tokenizer(str(shared_data / "vocab/bert-uncased-en/vocab.txt"))
    theirs = measure_coverage(released, held_out)
    print(ours.pieces_per_word, theirs.pieces_per_word, ours.unknown_share)
    assert ours.words == theirs.words
    assert ours.pieces_per_word < 1.03 * theirs.pieces_per_word
    assert ours.unknown_share < 1e-4
