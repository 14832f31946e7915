"""Looking at a corpus to adapt to: counts against plain Python, words that pay, masked words."""

import collections

import numpy as np
import pytest

from data.errors import DataError
from data.pretraining import domain
from data.pretraining.corpus import Document
from data.pretraining.from_text import PretrainingSides, PretrainingText

LETTERS = "abcdefghijklmnopqrstuvwxyz"
SPECIAL = ["[PAD]", "[unused0]", "[unused1]", "[unused2]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
TOKENS = [
    *SPECIAL,
    *LETTERS,
    *(f"##{c}" for c in LETTERS),
    "the",
    "cell",
    "divides",
    "##s",
    "never",
]
TOKENS = list(dict.fromkeys(TOKENS))


def sides(words, count=40, seed=0):
    """Of documents with words drawn from some."""
    rng = np.random.default_rng(seed)
    made = [
        Document([" ".join(rng.choice(words, 12)) for _ in range(rng.integers(2, 6))], f"{n}")
        for n in range(count)
    ]
    return PretrainingSides(PretrainingText(documents=lambda: made, name="made"))


def study(tmp_path, words, **options):
    (tmp_path / "vocab.txt").write_text("\n".join(TOKENS) + "\n")
    text = sides(words, **options)
    found = domain.study_domain(text, str(tmp_path / "vocab.txt"), str(tmp_path / "new/vocab.txt"))
    return text, found


def test_new_words_are_put_in_where_that_pays(tmp_path):
    words = ["the", "cell", "mitosis", "genome", "divides", "kinase", "plasmid"]
    text, found = study(tmp_path, words)
    train, held = (
        collections.Counter(w for d in text.documents(side) for s in d.sentences for w in s.split())
        for side in (True, False)
    )
    # The three that save most pieces.
    rest = {w: n * (len(w) - 1) for w, n in train.items() if w not in TOKENS}
    assert set(found.new_words.values()) == set(sorted(rest, key=rest.get)[-3:])
    extended = (tmp_path / "new/vocab.txt").read_text().splitlines()
    assert found.vocab_file == str(tmp_path / "new/vocab.txt")
    assert len(extended) == len(TOKENS)
    for number, word in found.new_words.items():
        assert TOKENS[number].startswith("[unused") and extended[number] == word
        pieces = [TOKENS[i] for i in found.new_pieces[number]]
        assert pieces == [word[0], *(f"##{c}" for c in word[1:])]
    assert [t for i, t in enumerate(extended) if i not in found.new_words] == [
        t for i, t in enumerate(TOKENS) if i not in found.new_words
    ]

    def pieces(counts, known):
        return sum(n * (1 if w in known else len(w)) for w, n in counts.items())

    assert found.words == train.total()
    assert found.known_share == sum(n for w, n in train.items() if w in TOKENS) / train.total()
    assert found.before.pieces == pieces(held, TOKENS) and found.before.words == held.total()
    assert found.after.pieces == pieces(held, extended)
    assert found.pieces == round(train.total() * found.after.pieces_per_word)
    assert set(found.frequent) == {"the", "cell", "divides", *found.new_words.values()}
    assert found.frequent == sorted(found.frequent, key=lambda w: -train[w])
    lengths = [len(s.split()) for d in text.documents(False) for s in d.sentences]
    assert found.document_pieces >= min(lengths)


@pytest.mark.parametrize(
    ("words", "count"),
    [
        (["the", "cell", "divides", "never"], 40),  # all are tokens
        (["the", "cell", "divides", "genome"], 4),  # rarer than LEAST_COUNT
        ([*["the"] * 990, "genome"], 400),  # saves less than LEAST_SAVED
    ],
)
def test_words_that_do_not_pay_stay_out(tmp_path, words, count):
    _, found = study(tmp_path, words, count=count)
    assert found.new_words == {} and found.new_pieces == {}
    assert found.vocab_file == str(tmp_path / "vocab.txt") and found.before == found.after
    assert not (tmp_path / "new").exists()


def test_a_run_that_goes_on_keeps_its_words(tmp_path):
    """Whatever the text has become; and another model's vocabulary is refused."""
    words = ["the", "cell", "mitosis", "genome", "divides", "kinase", "plasmid"]
    _, found = study(tmp_path, words)
    kept = tmp_path / "kept.txt"
    kept.write_text((tmp_path / "new/vocab.txt").read_text())
    place = str(tmp_path / "vocab.txt"), str(tmp_path / "again/vocab.txt")
    text = sides(["the", "ribosome", "cell", "genome"])
    again = domain.study_domain(text, *place, kept_vocab_file=str(kept))
    assert again.new_words == found.new_words and again.new_pieces == found.new_pieces
    assert (tmp_path / "again/vocab.txt").read_text() == kept.read_text()
    plain = domain.study_domain(text, *place, kept_vocab_file=place[0])
    assert plain.new_words == {} and plain.vocab_file == place[0]
    missing = domain.study_domain(text, *place, kept_vocab_file=str(tmp_path / "none"))
    assert "ribosome" in missing.new_words.values()
    kept.write_text(kept.read_text().replace("\ncell\n", "\nsell\n"))
    with pytest.raises(DataError, match="was begun with another model"):
        domain.study_domain(text, *place, kept_vocab_file=str(kept))


def test_scripts_without_case_have_no_wrong_case(tmp_path):
    arabic = [chr(n) for n in range(0x620, 0x64A)]
    tokens = [
        *SPECIAL,
        *arabic,
        *(f"##{c}" for c in arabic),
        *(a + b for a in arabic for b in arabic),
    ]
    (tmp_path / "vocab.txt").write_text("\n".join([*tokens, "A", "b"]) + "\n")
    text = sides([arabic[1] * 3, arabic[2] * 4, arabic[3]])
    place = str(tmp_path / "vocab.txt"), str(tmp_path / "new/vocab.txt")
    for lower in (True, False):
        assert len(domain.study_domain(text, *place, do_lower_case=lower).new_words) == 2


def test_unknown_words_pay(tmp_path):
    """They are one piece before and after."""
    _, found = study(tmp_path, ["the", "цикл", "клетка"])
    assert set(found.new_words.values()) == {"цикл", "клетка"}
    assert found.before.unknown and not found.after.unknown


def test_places_of_another_name_are_none(tmp_path):
    odd = [token.replace("[unused", "[unused_") for token in TOKENS]
    (tmp_path / "vocab.txt").write_text("\n".join(odd) + "\n")
    place = str(tmp_path / "vocab.txt"), str(tmp_path / "new/vocab.txt")
    text = sides(["the", "mitosis", "genome"])
    assert domain.study_domain(text, *place).new_words == {}


def test_a_vocabulary_of_the_other_case(tmp_path):
    """Whether there are places for words or not."""
    capital = [t for t in TOKENS if "[unused" not in t] + [a + b for a in "ABCD" for b in LETTERS]
    (tmp_path / "vocab.txt").write_text("\n".join(capital) + "\n")
    place = str(tmp_path / "vocab.txt"), str(tmp_path / "new/vocab.txt")
    with pytest.raises(DataError, match="so it is cased, but --do_lower_case is True"):
        domain.study_domain(sides(["the", "cell"]), *place)


def test_a_corpus_without_words(tmp_path):
    (tmp_path / "vocab.txt").write_text("\n".join(TOKENS) + "\n")
    blank = [Document(["\u200b"], str(n)) for n in range(8)]
    text = PretrainingSides(PretrainingText(documents=lambda: blank, name="blank"))
    with pytest.raises(DataError, match="has no words"):
        domain.study_domain(text, str(tmp_path / "vocab.txt"), str(tmp_path / "new/vocab.txt"))


def test_nothing_to_evaluate_on(tmp_path):
    (tmp_path / "vocab.txt").write_text("\n".join(TOKENS) + "\n")
    some = [Document(["the cell"], str(n)) for n in range(8)]
    text = PretrainingText(documents=lambda: some, name="some")
    sides = PretrainingSides(text, PretrainingText(documents=list, name="none"))
    with pytest.raises(DataError, match="no text to evaluate on"):
        domain.study_domain(sides, str(tmp_path / "vocab.txt"), str(tmp_path / "new/vocab.txt"))


def test_measured_documents_among_own_text_are_told(tmp_path, caplog):
    (tmp_path / "vocab.txt").write_text("\n".join(TOKENS) + "\n")
    text = sides(["the", "cell"])
    copies = [*text.documents(True)][3:5]
    place = str(tmp_path / "vocab.txt"), str(tmp_path / "new/vocab.txt")
    for made in (copies, [Document(["never"])]):
        general = PretrainingText(documents=lambda made=made: made, name="general")
        domain.study_domain(text, *place, general=general)
    (line,) = [m for m in caplog.messages if "--general_corpus_file" in m]
    assert line.startswith("2 documents of own text are among those")
