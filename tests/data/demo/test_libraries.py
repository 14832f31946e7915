"""The demo of run_classifier.py: its texts, its split, its scores."""

import itertools
import json

import numpy as np
import pytest

from data.demo import libraries, modules, scores
from data.demo.modules import PARTS, split_examples
from tests.data.demo.packages import written_modules

SENTENCES = [
    "The {0} of the table are read one by one, in the order in which they were written there.",
    "Nothing is said about {0} that have no name of their own, since there are none in practice.",
    "All of the {0} are given back as numpy arrays, or as a tf.Tensor if TensorFlow is there.",
]
NOUNS = ("rows", "columns", "lines", "marks", "axes", "tests", "weights", "parts", "grids", "days")
NAMES = {"numpy": "NumPy", "keras": "Keras", "python": "Python"}


@pytest.fixture
def sources() -> dict[str, str]:
    """Thirty modules; the third text is the same in three of them."""
    found = {}
    for (number, noun), name in itertools.product(enumerate(NOUNS), NAMES):
        texts = [text.format(f"{noun} of {name[::-1]}") for text in SENTENCES[:2]]
        texts.append(SENTENCES[2].format(f"{noun} there"))
        body = "\n\n    ".join(texts)
        found[f"{name}/module_{number}.py"] = f'def read():\n    """{body}\n    """\n'
    return found


@pytest.fixture
def small(tmp_path, sources, monkeypatch):
    found = written_modules(tmp_path / "packages", sources)
    monkeypatch.setattr(modules, "installed_modules", lambda: found)
    return found


def test_names_of_libraries_are_masked():
    text = "A tf.Tensor as np.array, for TensorFlow's tf.keras or NumPy; tf, scikit-learn."
    masked = "A Tensor as array, for library's library or library; library, library."
    assert libraries.without_library_names(text) == masked
    assert libraries.without_library_names("step, tfrecord, input") == "step, tfrecord, input"


def test_no_text_is_in_two_parts_and_no_module(small):
    sizes = {"train": 4, "dev": 2, "test": 3}
    parts = split_examples(small, libraries.module_texts, sizes, [*NAMES.values()])
    texts = [example.text.lower() for part in PARTS for example in parts[part]]
    assert len(texts) == len(set(texts)) and parts["train"] and parts["test"]
    owners = [{example.module for example in parts[part]} for part in PARTS]
    assert not any(a & b for a, b in itertools.combinations(owners, 2))
    for part, examples in parts.items():
        assert all(modules.part_of_module(e.module) == part for e in examples)
        kinds = [e.kind for e in examples]
        assert all(kinds.count(kind) <= sizes[part] for kind in NAMES.values())
    again = split_examples(small, libraries.module_texts, sizes, [*NAMES.values()])
    assert again == parts


def test_files_and_baselines(small, tmp_path):
    data = libraries.make_library_demo(str(tmp_path))
    rows = {}
    for part in PARTS:
        lines = (tmp_path / f"{part}.jsonl").read_text().splitlines()
        assert data.files[f"{part}_file"] == str(tmp_path / f"{part}.jsonl")
        rows[part] = [json.loads(line) for line in lines]
    assert {len(rows["test"])} == {len(data.groups), data.sizes["test"][0]}
    assert len({row["id"] for row in rows["train"]}) == len(rows["train"])
    assert not any("numpy" in row["text"].lower() for row in rows["train"])
    for counts in data.baselines.values():
        assert counts.shape == (len(rows["test"]), 3)
    gold = [row["library"] for row in rows["test"]]
    most = max(map(gold.count, gold)) / len(gold)
    assert scores.score_of_counts(data.baselines["majority"]) == pytest.approx(most)
    run = tmp_path / "run"
    run.mkdir()
    lines = ["id\tgold\tlabel\tKeras", *(f"x\t{label}\t{label}\t1" for label in gold)]
    (run / "predictions.tsv").write_text("\n".join(lines) + "\n")
    assert scores.score_of_counts(data.score(str(run))) == 1


def test_scores_and_intervals():
    counts = scores.counts_of_answers([True, False, True, True])
    assert scores.score_of_counts(counts) == 0.75
    entities = np.array([[1, 2, 1], [0, 0, 1]])  # precision and recall 1/2
    assert scores.score_of_counts(entities) == 0.5
    assert scores.score_interval(counts, ["a", "a", "a", "a"]) == (0.75, 0.75)
    low, high = scores.score_interval(counts, ["a", "b", "c", "d"])
    assert 0 <= low < 0.75 < high <= 1
    table = scores.score_table({"one": [counts], "two": [counts, entities[[0] * 4]]}, "abcd", "F1")
    assert "0.750" in table and "2 seeds" in table and "±" in table
