"""Files of labels that lie."""

import json

import pytest

from data.errors import DataError
from data.tasks import labels
from data.tasks.sentences import delimited
from data.tasks.tagging import tags


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"labels": ["a", "b", "a"]}', "'a' stands there twice"),
        ('{"labels": ["a", 1]}', "has to be a list of strings"),
        ("[" * 100_000, "RecursionError"),
        ('{"labels": ' * 100_000, "RecursionError"),
    ],
)
def test_labels_of_a_model(tmp_path, text, words):
    path = tmp_path / "labels.json"
    filled = {"kind": "classes", "text_columns": ["text"], "scheme": "iob2"}
    path.write_text(text if words == "RecursionError" else json.dumps(json.loads(text) | filled))
    with pytest.raises(DataError, match=rf"labels\.json doesn't hold labels .*{words}"):
        delimited.load_sentence_labels(str(path))
    with pytest.raises(DataError, match=rf"labels\.json doesn't hold labels .*{words}"):
        tags.load_tags(str(tmp_path), None)


def test_of_another_kind_of_model(tmp_path):
    path = tmp_path / "labels.json"
    path.write_text('{"scheme": "iob2", "labels": ["O", "B-X", "I-X"]}')
    with pytest.raises(
        DataError, match=r"of another kind .* it tells scheme, labels, and no text_columns"
    ):
        delimited.load_sentence_labels(str(path))
    path.write_text('{"task_name": "cola", "labels": ["0", "1"]}')
    with pytest.raises(DataError, match=r"it tells task_name, labels, and no scheme"):
        tags.load_tags(str(tmp_path), None)


def test_never_those_of_a_folder_above(tmp_path):
    """Beside the weights, or above their folder `best`; not where a folder of models has some."""
    model = tmp_path / "models" / "a"
    (model / "best").mkdir(parents=True)
    out = str(tmp_path / "out")
    for folder in (tmp_path / "models", model):
        (folder / "labels.json").write_text('{"labels": ["x"]}')
    own = str(model / "labels.json")
    for path in (model, f"{model}/", model / "bert_model.ckpt", model / "best"):
        assert labels.find_labels(out, str(path)) == own
    assert labels.find_labels(out, str(model / "best" / "model.ckpt-4")) == own
    (model / "labels.json").unlink()
    for path in (model, f"{model}/", model / "bert_model.ckpt", model / "best"):
        assert labels.find_labels(out, str(path)) is None


def test_labels_alone_bind_nobody(tmp_path):
    """A command that was refused, or stopped before its first checkpoint, has left them."""
    folder = str(tmp_path)
    labels.keep_labels(folder, {"labels": ["x", "y"]}, write=True, holds_model=False)
    labels.keep_labels(folder, {"labels": ["a", "b"]}, write=True, holds_model=False)
    assert labels.read_labels(f"{folder}/labels.json") == {"labels": ["a", "b"]}
    with pytest.raises(DataError, match=r"trained for the labels a, b .* training set has c, d"):
        labels.keep_labels(folder, {"labels": ["c", "d"]}, write=True, holds_model=True)
