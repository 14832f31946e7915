"""Predicted tags as files."""

import json

from data.tasks.tagging.conll import ConllSentence, TagFormat, read_conll_sentences
from data.tasks.tagging.predictions import write_entities, write_tag_columns

SENTENCES = [
    ConllSentence(("New", "York", "is", "漢字"), ("B-LOC", "I-LOC", "O", "O"), 0, "f:1"),
    ConllSentence(("", "a b\n", "-DOCSTART-", "\u3000"), ("O", "O", "O", "O"), 0, "f:7"),
    ConllSentence((), (), 0, "f:9"),
]
PREDICTED = [["B-LOC", "I-LOC", "O", "I-PER"], ["O", "B-X", "O", "B-X"], []]
SCORES = [[0.5, 0.25, 0.75, 1.0], [1.0, 0.125, 1.0, 0.0], []]


def test_columns(tmp_path):
    path = tmp_path / "predictions.txt"
    write_tag_columns(str(path), SENTENCES, PREDICTED)
    lines = path.read_text(encoding="utf-8").split("\n")
    assert lines[:5] == ["New B-LOC B-LOC", "York I-LOC I-LOC", "is O O", "漢字 O I-PER", ""]
    assert lines[5:9] == ["_ O O", "a_b_ O B-X", "_-DOCSTART- O O", "_ O B-X"]
    back = read_conll_sentences(str(path), TagFormat(), True)
    assert [len(sentence.words) for sentence in back] == [4, 4]
    unlabelled = [ConllSentence(("a",), None, 0, "f:1")]
    write_tag_columns(str(path), unlabelled, [["B-X"]])
    assert path.read_text() == "a B-X\n\n"


def test_entities(tmp_path):
    path = tmp_path / "entities.jsonl"
    for separator in (" ", "", "–"):
        write_entities(str(path), SENTENCES, PREDICTED, SCORES, separator)
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n")[:-1]]
        assert [row["text"] for row in rows] == [separator.join(s.words) for s in SENTENCES]
        assert [row["source"] for row in rows] == ["f:1", "f:7", "f:9"]
        for row in rows:
            for entity in row["entities"]:
                assert row["text"][entity["start"] : entity["end"]] == entity["text"]
        first, second = rows[0]["entities"]
        assert first["text"] == f"New{separator}York" and first["type"] == "LOC"
        assert (first["start_word"], first["end_word"]) == (0, 2)
        assert second == {
            "type": "PER",
            "text": "漢字",
            "start": len("NewYorkis") + 3 * len(separator),
            "end": len("NewYorkis漢字") + 3 * len(separator),
            "start_word": 3,
            "end_word": 4,
            "score": 1.0,
        }
        assert first["score"] == 0.25  # that of its least sure word
        assert [row["scores"] for row in rows] == SCORES
        assert [entity["text"] for entity in rows[1]["entities"]] == ["a b\n", "\u3000"]
