"""What a model is judged by: the same whole words, whatever pieces they have."""

import os

import pytest

from data.errors import DataError
from data.pretraining import judged_text
from data.pretraining.corpus import Document
from data.pretraining.from_text import PretrainingSides, PretrainingText
from data.tokenization import Tokenizer
from tests.data.pretraining.test_domain import TOKENS, sides, study


def rows_of(found):
    """The records of some text: pieces as they stand there, and the masked ones by place."""
    for batch in found.batches.as_numpy_iterator():
        masks = (batch[f"masked_lm_{n}"] for n in ("positions", "ids", "weights"))
        for inputs, length, *masked, real in zip(
            batch["input_ids"],
            batch["input_mask"].sum(1),
            *masks,
            batch["is_real_example"],
            strict=True,
        ):
            positions, ids, weights = masked
            taken = weights > 0
            if real:
                yield inputs[:length], dict(zip(positions[taken], ids[taken], strict=True))


def whole_words(found, tokens):
    """The words as they stand in the text, and at which places of it masked ones stand."""
    words, masked = [], set()
    for inputs, places in rows_of(found):
        assert all(tokens[inputs[place]] == "[MASK]" for place in places)
        for place in range(1, len(inputs) - 1):
            token = tokens[places.get(place, inputs[place])]
            if token.startswith("##"):
                assert (place in places) == (len(words) - 1 in masked)  # whole words only
                words[-1] += token[2:]
                continue
            words.append(token)
            if place in places:
                masked.add(len(words) - 1)
    return words, masked


def test_the_same_words_are_masked_whatever_their_pieces(tmp_path):
    text, study_found = study(tmp_path, ["the", "cell", "mitosis", "genome", "divides"], count=200)
    given = Tokenizer(str(tmp_path / "vocab.txt"))
    extended = Tokenizer(study_found.vocab_file)
    documents = list(text.documents(False))
    wanted = " ".join(s for d in documents for s in d.sentences).split()
    seen = []
    for tokenizer in (given, extended):
        for length in (12, 64):
            path = str(tmp_path / "masked.tfrecord")
            found = judged_text.held_out_texts(text, None)["domain"](tokenizer, given, path, length)
            words, masked = whole_words(found, tokenizer.vocab)
            assert words == wanted and found.words == len(masked)
            assert found.pieces == sum(len(places) for _, places in rows_of(found))
            seen.append((masked, found.checksum))
    assert seen[1:] == seen[:-1]
    assert 0.12 < len(seen[0][0]) / len(wanted) < 0.18
    assert {wanted[n] for n in seen[0][0]} == set(wanted)


def test_unknown_words_and_those_too_long_are_not_masked(tmp_path):
    (tmp_path / "vocab.txt").write_text("\n".join(TOKENS) + "\n")
    tokenizer = Tokenizer(str(tmp_path / "vocab.txt"))
    words = ["the", "цикл", "never", "cell", "g" * 30]
    documents = [*sides(words).documents(True)]
    found = judged_text.masked_words(documents, tokenizer, tokenizer, str(tmp_path / "m"), 16)
    masked = {TOKENS[id_] for _, places in rows_of(found) for id_ in places.values()}
    assert masked == {"the", "never", "cell"}
    rare = [Document(["the цикл"])]  # of which none is drawn
    found = judged_text.masked_words(rare, tokenizer, tokenizer, str(tmp_path / "m"), 16)
    assert (found.words, found.pieces) == (1, 1)
    with pytest.raises(DataError, match=r"none of the words .* all of them are \[UNK\]"):
        unknown = [Document(["цикл"])]
        judged_text.masked_words(unknown, tokenizer, tokenizer, str(tmp_path / "m"), 16)


def test_general_text_is_read_where_there_is_some(tmp_path):
    text = sides(["the", "cell"])
    other = PretrainingText(documents=lambda: [Document(["never"], "")], name="other")
    assert list(judged_text.held_out_texts(text, None)) == ["domain"]
    assert list(judged_text.held_out_texts(text, other)) == ["domain", "general"]
    empty = PretrainingText(documents=list, name="empty")
    with pytest.raises(DataError, match=r"general_corpus_file .* no documents"):
        judged_text.held_out_texts(text, empty)


def test_general_text_is_not_the_domains(tmp_path):
    (tmp_path / "own.txt").write_text("\n\n".join(f"the cell {i}" for i in range(8)))
    own = PretrainingText(files=[str(tmp_path / "own.txt")])
    (tmp_path / "link.txt").symlink_to(tmp_path / "own.txt")
    for name in ("own.txt", "link.txt"):
        same = PretrainingText(files=[os.path.relpath(tmp_path / name)])
        with pytest.raises(DataError, match=rf"{name} is part of the domain's text and of"):
            judged_text.held_out_texts(PretrainingSides(own), same)


def test_a_long_document_is_measured_as_far_as_others(tmp_path, monkeypatch):
    monkeypatch.setattr(judged_text, "MOST_CHARACTERS", 1000)
    (tmp_path / "vocab.txt").write_text("\n".join(TOKENS) + "\n")
    tokenizer, path = Tokenizer(str(tmp_path / "vocab.txt")), str(tmp_path / "records")
    found = []
    for end in (10, 1000, 200_000):
        made = [
            Document(["never " * 90]),
            Document(["the cell " * end, "divides"]),
            Document(["a"]),
        ]
        found.append(judged_text.masked_words(iter(made), tokenizer, tokenizer, path, 64))
    assert found[0].words < found[1].words == found[2].words
    assert found[0].checksum != found[1].checksum == found[2].checksum
