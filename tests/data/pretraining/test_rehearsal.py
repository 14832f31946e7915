"""General text beside a domain's: which of it is taken, how it is written, and what is refused."""

import os

import numpy as np
import pytest

from data.errors import DataError
from data.pretraining import judged_text
from data.pretraining.batches import text_stream
from data.pretraining.corpus import Document, corpus_document_hash, is_held_out_of_corpus
from data.pretraining.from_text import HELD_OUT_SHARE, PretrainingSides, PretrainingText
from data.pretraining.rehearsal import Rehearsal, rehearse


def text_of(documents, name="made"):
    return PretrainingText(documents=lambda: documents, name=name)


def own_sides(count=40):
    rng = np.random.default_rng(0)
    made = [Document([" ".join(rng.choice(["the", "cell"], 12)) for _ in range(3)])]
    made += [Document([f"the cell {n}", *made[0].sentences]) for n in range(count)]
    return PretrainingSides(text_of(made))


def general_documents(count=600):
    return [Document([f"never ever {n:03}", f"was it {n:03}"]) for n in range(count)]


def held_out(document):
    return is_held_out_of_corpus(document, HELD_OUT_SHARE)


@pytest.fixture(autouse=True)
def _little_is_measured(monkeypatch):
    monkeypatch.setattr(judged_text, "MOST_CHARACTERS", 2400)


def test_it_is_neither_measured_nor_held_out(tmp_path):
    own, made = own_sides(), general_documents()
    made[200:200] = [*made[:50], next(own.documents(False))]
    found = rehearse(own, text_of(made), str(tmp_path), 5000)
    assert found.text.files == [str(tmp_path / "records/general.txt")]
    texts = [document.sentences for document in found.text.read()]
    given = [document.sentences for document in made]
    assert len(texts) > 100 and all(text in given for text in texts[:-1])
    assert sum(len(sentence) for text in texts for sentence in text) == found.characters == 5000
    taken = {corpus_document_hash(document) for document in found.text.read()}
    for apart in (own.documents(False), made[:100]):
        assert taken.isdisjoint(map(corpus_document_hash, apart))
    assert not any(map(held_out, found.text.read())) and any(map(held_out, made[102:300]))


def test_what_is_evaluated_on_is_never_taken(tmp_path):
    """All of it, and not only what is measured of it."""
    made = general_documents()
    own = PretrainingSides(text_of([Document(["the cell"])] * 9), text_of(made[150:], "held out"))
    found = rehearse(own, text_of(made), str(tmp_path), 50_000)
    given = [document.sentences for document in made[100:150]]
    assert [document.sentences for document in found.text.read() if document.sentences in given]
    assert all(document.sentences in given for document in found.text.read())


def test_a_run_that_goes_on(tmp_path):
    """It finds its file as it was; one of other text is made, but for text that is measured now."""
    own, made = own_sides(), general_documents()
    found = rehearse(own, text_of(made), str(tmp_path), 5000)
    (path,) = found.text.files
    time, texts = os.stat(path).st_mtime_ns, [d.sentences for d in found.text.read()]
    assert rehearse(own, text_of(made), str(tmp_path), 5000, begun=True) == found
    assert os.stat(path).st_mtime_ns == time
    rehearse(own, text_of(made), str(tmp_path), 4000, begun=True)
    again = [document.sentences for document in found.text.read()]
    assert again[:-1] == texts[: len(again) - 1] and len(again) < len(texts)
    for share in (5000, 0):
        with pytest.raises(DataError, match=r"general.txt, on which the run .* as unseen now"):
            rehearse(own, text_of(made[120:]), str(tmp_path), share, begun=True)
    assert [document.sentences for document in found.text.read()] == again
    rehearse(own, text_of(made[120:]), str(tmp_path), 5000)


def test_a_long_document_is_cut(tmp_path):
    made = [*general_documents(100), Document(["word " * 50_000, "never"])]
    found = rehearse(own_sides(), text_of(made), str(tmp_path), 1000)
    assert 990 < found.characters <= 1000 and found.wanted == 1000


@pytest.mark.parametrize(
    "first", ['{"a": 1', "<doc id=1>", "zero\0byte", "lone \ud800", "two\rlines"]
)
def test_it_is_read_as_it_was_taken(tmp_path, first):
    """Whatever its first line is like, and those of documents that are left out before it."""
    made = general_documents(300)
    out = next(document for document in made[100:] if held_out(document))
    at = next(n for n in range(200) if not held_out(Document([first, f"{n}"])))
    made[100:100] = [out, made[0], Document([first, f"{at}"])]
    found = rehearse(own_sides(), text_of(made), str(tmp_path), 3000)
    texts = [document.sentences for document in found.text.read()]
    assert sum(len(sentence) for text in texts for sentence in text) == found.characters == 3000
    assert sum(text[0].startswith("never ever") for text in texts) > 80
    if first[0] in "{<":
        assert texts[0][0].startswith("never ever")
    else:
        assert texts[0][0].split()[0] == first.replace("\0", " ").split()[0]


def test_nothing_is_rehearsed_where_there_is_nothing(tmp_path, caplog):
    own, short = own_sides(), text_of([Document(["never"])] * 9)
    for text, characters in ((None, 100.0), (short, 0.0)):
        assert rehearse(own, text, str(tmp_path), characters) == Rehearsal()
    assert rehearse(own, short, str(tmp_path), 100.0) == Rehearsal(None, 0, 100.0)
    (line,) = [message for message in caplog.messages if "--general_share" in message]
    assert "asks for 100 characters" in line and "there are 0. Give more of it" in line
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("count", [300, 3000])
def test_every_part_of_a_stream_has_some(tmp_path, monkeypatch, count):
    """A run reads a few parts at a time, and a short one few of them in all."""
    monkeypatch.setattr(text_stream, "_PART_BYTES", 2**12)
    for name, word, number in (("own", "own", 3000), ("general", "other", count)):
        documents = ([f"{word} document {n}", "of two sentences"] for n in range(2 * number))
        texts = ["\n".join(d) for d in documents if not held_out(Document(d))][:number]
        (tmp_path / f"{name}.txt").write_text("\n\n".join(texts))
    own, general = (PretrainingText([str(tmp_path / f"{n}.txt")]) for n in ("own", "general"))
    alone, parts = PretrainingSides(own).parts(), PretrainingSides(own, None, general).parts()
    assert parts.files == alone.files and len(parts) > len(alone) > 20
    total = 0
    for number in range(len(parts)):
        words = [d.sentences[0].split()[0] for d in parts.documents(number)]
        total += len(words)
        expected = count / (3000 + count)
        assert 0.7 * expected < words.count("other") / len(words) < 1.4 * expected
    assert total == 3000 + count


def test_a_small_corpus_is_mixed(tmp_path):
    (tmp_path / "general.txt").write_text("\n\n".join(f"other {n}" for n in range(90)))
    made = [Document([f"own {n}"]) for n in range(300)]
    general = PretrainingText([str(tmp_path / "general.txt")])
    words = [
        document.sentences[0].split()[0]
        for document in PretrainingSides(text_of(made), None, general).documents(True)
    ]
    assert words.count("other") == 90
    for tenth in np.array_split(words, 10):
        assert 7 <= list(tenth).count("other") <= 11
