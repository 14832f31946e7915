"""Looking at a corpus to adapt to: counts against plain Python, words that pay, masked words."""

import collections
import os

import numpy as np
import pytest

from data.errors import DataError
from data.pretraining import domain
from data.pretraining.corpus import Document
from data.pretraining.from_text import PretrainingSides, PretrainingText
from data.tokenization import Tokenizer

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


def test_masked_words_are_whole_and_counted(tmp_path):
    text, _ = study(tmp_path, ["the", "cell", "mitosis", "genome", "divides"], count=200)
    tokenizer = Tokenizer(str(tmp_path / "vocab.txt"))
    path = str(tmp_path / "masked.tfrecord")
    found = domain.held_out_texts(text, None)["domain"](tokenizer, path, 64)
    begins = pieces = real = 0
    for batch in found.batches.as_numpy_iterator():
        rows = zip(*(batch[f"masked_lm_{n}"] for n in ("positions", "ids", "weights")), strict=True)
        for number, (positions, ids, weights) in enumerate(rows):
            masked = dict(zip(positions[weights > 0], ids[weights > 0], strict=True))
            inputs = batch["input_ids"][number]
            real += int(batch["input_mask"][number].sum()) - 2 * bool(masked)
            pieces += len(masked)
            for place, piece in masked.items():
                begins += not TOKENS[piece].startswith("##")
                if len(masked) == 1:
                    continue  # a short row, into whose number no word fits
                # Whatever continues the word is masked as well, and what it continues.
                after = masked.get(place + 1, inputs[place + 1])
                if TOKENS[after].startswith("##"):
                    assert place + 1 in masked
                if TOKENS[piece].startswith("##"):
                    assert place - 1 in masked
    assert (found.pieces, found.words) == (pieces, begins)
    assert 0.1 < pieces / real < 0.2 and found.words < found.pieces


def test_general_text_is_read_where_there_is_some(tmp_path):
    text = sides(["the", "cell"])
    other = PretrainingText(documents=lambda: [Document(["never"], "")], name="other")
    assert list(domain.held_out_texts(text, None)) == ["domain"]
    assert list(domain.held_out_texts(text, other)) == ["domain", "general"]
    empty = PretrainingText(documents=list, name="empty")
    with pytest.raises(DataError, match=r"general_corpus_file .* no documents"):
        domain.held_out_texts(text, empty)


def test_general_text_is_not_the_domains(tmp_path):
    (tmp_path / "own.txt").write_text("\n\n".join(f"the cell {i}" for i in range(8)))
    own = PretrainingText(files=[str(tmp_path / "own.txt")])
    (tmp_path / "link.txt").symlink_to(tmp_path / "own.txt")
    for name in ("own.txt", "link.txt"):
        same = PretrainingText(files=[os.path.relpath(tmp_path / name)])
        with pytest.raises(DataError, match=rf"{name} is part of the domain's text and of"):
            domain.held_out_texts(PretrainingSides(own), same)


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


def test_a_long_document_is_measured_as_far_as_others(tmp_path, monkeypatch):
    monkeypatch.setattr(domain, "MOST_CHARACTERS", 1000)
    (tmp_path / "vocab.txt").write_text("\n".join(TOKENS) + "\n")
    tokenizer, path = Tokenizer(str(tmp_path / "vocab.txt")), str(tmp_path / "records")
    found = []
    for end in (10, 1000, 200_000):
        made = [
            Document(["never " * 90]),
            Document(["the cell " * end, "divides"]),
            Document(["a"]),
        ]
        found.append(domain.masked_words(iter(made), tokenizer, path, 64))
    assert found[0].words < found[1].words == found[2].words
    assert found[0].checksum != found[1].checksum == found[2].checksum
