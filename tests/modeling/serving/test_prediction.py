"""Asking SavedModels: versions, signatures, batches, refusals."""

import pathlib
import types

import numpy as np
import pytest
import tensorflow as tf

from modeling.errors import ModelingError
from modeling.serving.prediction import SavedModelPredictor, load_signature, version_folder


def example(size=0, **values):
    return types.SimpleNamespace(values=values, size=size)


class Texts(tf.Module):
    """Tells of each batch; refuses texts of thirteen bytes."""

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "text")])
    def lengths(self, text):
        length = tf.strings.length(text)
        with tf.control_dependencies([tf.debugging.Assert(tf.reduce_all(length != 13), ["13!"])]):
            batch = tf.fill(tf.shape(length), tf.shape(length)[0])
        longest = tf.fill(tf.shape(length), tf.reduce_max(length))
        return {"length": length, "batch": batch, "longest": longest}

    @tf.function(
        input_signature=[
            tf.TensorSpec([None, None], tf.string, "words"),
            tf.TensorSpec([None, None, 2], tf.int32, "ids"),
            tf.TensorSpec([None], tf.float32, "weight"),
        ]
    )
    def joined(self, words, ids, weight):
        text = tf.strings.reduce_join(words, 1, separator=",")
        return {"text": text, "ids": tf.identity(ids), "weight": tf.identity(weight)}

    @tf.function(input_signature=[tf.TensorSpec([], tf.string, "text")])
    def single(self, text):
        return {"text": text + "!"}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "text")])
    def shrunk(self, text):
        return {"text": tf.strings.reduce_join(text)}

    @tf.function(input_signature=[])
    def nothing(self):
        return {"text": tf.constant(["x"])}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    module = Texts()
    signatures = {
        "serving_default": module.lengths,
        **{name: getattr(module, name) for name in ("joined", "single", "shrunk", "nothing")},
    }
    path = tmp_path_factory.mktemp("models") / "2"
    tf.saved_model.save(module, str(path), signatures=signatures)
    return path


def test_version_folder(folder, tmp_path):
    assert version_folder(str(folder)) == str(folder)
    assert version_folder(str(folder.parent)) == str(folder)
    for name in ("1", "9", "10", "latest", ".saving-11"):
        (tmp_path / name).mkdir()
    (tmp_path / "10" / "saved_model.pb").write_bytes(b"")
    assert version_folder(f"{tmp_path}/") == f"{tmp_path}/10"
    (tmp_path / "11").mkdir()
    (tmp_path / "file").write_text("x")
    for name in ("run/export/1", "trained"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "trained" / "run_summary.json").write_text("{}")
    for path, part in (
        (tmp_path, "its highest version, 11, has neither"),
        (tmp_path / "latest", "it has neither"),
        (tmp_path / "file", "isn't a folder"),
        (tmp_path / "absent", "doesn't exist"),
        (tmp_path / "run", f"--saved_model={tmp_path}/run/export"),
        (tmp_path / "trained", "--do_export"),
    ):
        with pytest.raises(ModelingError, match=part):
            version_folder(str(path))


def test_signatures(folder, tmp_path):
    signature = load_signature(str(folder), "joined")
    assert list(signature.inputs) == ["ids", "weight", "words"]
    assert list(signature.outputs) == ["ids", "text", "weight"]
    for name, part in (
        ("absent", "it has joined, nothing, serving_default, shrunk, single"),
        ("single", "'text' is string of shape \\(\\)"),
        ("nothing", "takes no inputs"),
    ):
        with pytest.raises(ModelingError, match=part):
            load_signature(str(folder), name)
    (tmp_path / "saved_model.pb").write_bytes(b"no model")
    with pytest.raises(ModelingError, match="can't be loaded"):
        load_signature(str(tmp_path), "serving_default")
    (tmp_path / "saved_model.pb").write_bytes((folder / "saved_model.pb").read_bytes())
    with pytest.raises(ModelingError, match="can't be loaded"):
        load_signature(str(tmp_path), "serving_default")


@pytest.mark.parametrize("at_once", [1, 3], indirect=True)
def test_like_sizes_together_in_the_order_asked(folder, at_once):
    rng = np.random.default_rng(0)
    sizes = [int(size) for size in rng.permutation(np.arange(100, 150))]
    asked = [example(size, text=b"x" * size) for size in sizes]
    done = []
    signature = load_signature(str(folder), "serving_default")
    predictor = SavedModelPredictor(signature, 8, done.append)
    answers = predictor(asked)
    assert [answer["length"] for answer in answers] == sizes
    assert done == [2] + [8] * 6  # the longest first
    for answer in answers:
        # The batches are those of the sorted sizes.
        begin = (int(answer["length"]) - 100) // 8 * 8
        assert answer["batch"] == min(8, 50 - begin)
        assert answer["longest"] == min(begin + 107, 149)
    assert predictor([]) == []


@pytest.mark.parametrize("at_once", [3], indirect=True)
def test_few_examples_are_divided_among_the_threads(folder, at_once):
    signature = load_signature(str(folder), "serving_default")
    asked = [example(size, text=b"x" * size) for size in (1, 2, 3, 4, 13, 5)]
    answers = SavedModelPredictor(signature, 8)(asked)
    assert isinstance(answers.pop(4), ModelingError)
    assert [answer["length"] for answer in answers] == [1, 2, 3, 4, 5]
    assert [answer["batch"] for answer in answers] == [2, 2, 2, 2, 1]


def test_lists_are_not_filled_up(folder):
    predictor = SavedModelPredictor(load_signature(str(folder), "joined"), 8)
    first, second, third = predictor(
        [
            example(0, words=[b"a", b"\xff\x00"], ids=np.ones([3, 2], np.int32), weight=0.5),
            example(0, words=[], ids=np.ones([0, 2], np.int32), weight=np.float32(2)),
            example(0, words=[b"b"], ids=np.array([[7, 8]], np.int32), weight=np.float32(3)),
        ]
    )
    assert (first["text"], second["text"], third["text"]) == (b"a,\xff\x00", b"", b"b")
    assert first["ids"].tolist() == [[1, 1]] * 3
    assert second["ids"].tolist() == []
    assert third["ids"].tolist() == [[7, 8]]
    assert [float(a["weight"]) for a in (first, second, third)] == [0.5, 2, 3]


def test_lists_of_an_example_have_its_own_length(tmp_path):
    """Those that the export names; others may end in what looks like filling."""

    class Words(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "text")])
        def split(self, text):
            words = tf.strings.split(text)
            sizes = tf.strings.length(words)
            return {
                "words": words.to_tensor(),
                "sizes": sizes.to_tensor(-1),
                "pairs": tf.stack([words.to_tensor()] * 2, 2),
                "other": sizes.to_tensor(-1),
            }

    module, folder = Words(), tmp_path / "1"
    tf.saved_model.save(module, str(folder), signatures=module.split)
    asked = [example(1, text=text) for text in (b"a bcd e", b"", b"fg")]
    (folder / "assets" / "lists.json").write_text(
        '[["serving_default", ["words", "sizes", "pairs"]], ["else", ["other"]]]'
    )
    first, second, third = SavedModelPredictor(load_signature(str(folder), "serving_default"), 8)(
        asked
    )
    assert [a["words"].tolist() for a in (first, second, third)] == [
        [b"a", b"bcd", b"e"],
        [],
        [b"fg"],
    ]
    assert [a["sizes"].tolist() for a in (first, second, third)] == [[1, 3, 1], [], [2]]
    assert third["pairs"].tolist() == [[b"fg", b"fg"]] and second["pairs"].tolist() == []
    assert third["other"].tolist() == [2, -1, -1]
    for damage in ("", "[1]", '[["a"'):
        (folder / "assets" / "lists.json").write_text(damage)
        with pytest.raises(ModelingError, match=r"lists\.json can't be read"):
            load_signature(str(folder), "serving_default")


def test_refused_examples_leave_the_others_alone(folder):
    predictor = SavedModelPredictor(load_signature(str(folder), "serving_default"), 4)
    texts = [b"x" * size for size in (3, 13, 5, 1, 13, 30)]
    answers = predictor([example(len(text), text=text) for text in texts])
    for text, answer in zip(texts, answers, strict=True):
        if len(text) == 13:
            assert isinstance(answer, ModelingError)
            assert str(answer) == "assertion failed: [13!]."
        else:
            assert answer["length"] == len(text)


def test_outputs_need_a_row_for_each_example(folder):
    predictor = SavedModelPredictor(load_signature(str(folder), "shrunk"), 4)
    with pytest.raises(ModelingError, match=r"'text' is of shape \(\) for 2 examples"):
        predictor([example(0, text=b"a"), example(0, text=b"b")])


def test_columns_that_the_export_remembers(folder):
    path = pathlib.Path(folder, "assets", "columns.json")
    path.parent.mkdir(exist_ok=True)
    assert load_signature(str(folder), "serving_default").columns == {}
    path.write_text('{"text": "body", "label": "verdict"}')
    assert load_signature(str(folder), "serving_default").columns == {"text": "body"}
    for damage in ("", "[1]", "7"):
        path.write_text(damage)
        with pytest.raises(ModelingError, match=r"columns\.json can't be read"):
            load_signature(str(folder), "serving_default")
    path.unlink()
