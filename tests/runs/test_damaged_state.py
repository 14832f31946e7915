"""Files of ours that are cut short, empty, binary or of another shape: named, or done without."""

import json
import pathlib

import pytest
import tensorflow as tf

from data.errors import DataError
from data.pretraining.writing import jobs, manifest
from data.tasks import labels
from modeling.errors import ModelingError
from modeling.serving import prediction
from modeling.training.runs import identity
from modeling.training.runs.best import has_best
from modeling.training.runs.reporting import Reporter
from modeling.training.search import Search, Trial

TRIAL = Trial(1e-3, 8, 1.0, 1)


def damages(whole: bytes) -> list[bytes]:
    """What may be in a file in place of its content."""
    other = [b"", b"\xff\xfe\x00\x01", b"[]", b"3", b"null", b"{}", b'{"a": {"b": 1}}']
    return [whole[: len(whole) // 2], *other, b"[" * 100_000, whole[: len(whole) // 2] + b"\xff"]


def each(path: pathlib.Path, whole: bytes):
    """Puts one damaged content after the other into a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    for content in damages(whole):
        path.write_bytes(content)
        yield content


def test_notes_and_manifests(tmp_path):
    path = tmp_path / "r.manifest.json"
    whole = json.dumps({"fingerprint": "x", "settings": {}, "counts": {}, "files": [{"name": 1}]})
    for content in [*each(path, whole.encode()), whole]:
        path.write_text(whole) if content is whole else None
        with pytest.raises(DataError, match=r"r\.manifest\.json is damaged: .*remove it"):
            manifest.read_manifest(str(path))
        with pytest.raises(DataError, match=r"r\.manifest\.json is damaged"):
            manifest.verify_manifest([f"{tmp_path}/r"], 8, 2, None)
        assert jobs.unless_damaged(manifest.read_manifest, str(path)) is None
    assert manifest.read_manifest(f"{tmp_path}/absent") is None


def test_a_searchs_results(tmp_path):
    search = Search(str(tmp_path), "eval_f1", {})
    path = pathlib.Path(search.folder(TRIAL), "result.json")
    row = {"learning_rate": 1e-3, "batch_size": 8, "num_epochs": 1.0, "seed": 1, "step": 2}
    row |= {"setting": "s", "value": 0.5, "degenerate": False, "identity": search.identity}
    for _ in each(path, json.dumps(row).encode()):
        with pytest.raises(ModelingError, match=r"result\.json is damaged: .*is repeated"):
            search._read(str(path.parent))
    for name, wrong in (("value", "x"), ("step", None), ("setting", 1), ("identity", [])):
        path.write_text(json.dumps(row | {name: wrong}))
        with pytest.raises(ModelingError, match=r"result\.json is damaged"):
            search._read(str(path.parent))
    path.write_text(json.dumps(row))
    assert search._read(str(path.parent))["value"] == 0.5


def test_a_log_is_not_needed(tmp_path, caplog):
    path = tmp_path / "metrics.jsonl"
    line = b'{"kind": "eval", "step": 1, "eval_f1": 0.5}\n'
    wrong = [b'{"kind": "eval", "step": "1"}', b'{"kind": 1, "step": 1}', b'{"step": 1}']
    for content in [*damages(line)[2:], *wrong]:
        path.write_bytes(line + content + b"\n" + line[:9])
        caplog.clear()
        reporter = Reporter(str(tmp_path), 1, 1)
        assert reporter.curve("eval", "eval_f1") == [(1, 0.5)]
        assert "2 of the 3 lines" in caplog.text and str(path) in caplog.text


def test_what_weights_were_trained_with(tmp_path):
    path = tmp_path / "training.json"
    for content in each(path, b'{"random_seed": 1}'):
        if content.startswith(b"{") and content.endswith(b"}"):
            continue
        with pytest.raises(ModelingError, match=r"training\.json is damaged .*remove it"):
            identity.read_identity(str(tmp_path))


def test_best_weights_and_labels(tmp_path):
    for _ in each(tmp_path / "best" / "best.json", b'{"step": 1, "value": 1, "checkpoint": "c"}'):
        assert not has_best(str(tmp_path))
    path = tmp_path / "labels.json"
    for _ in each(path, b'{"labels": ["a", "b"]}'):
        with pytest.raises(DataError, match=r"labels\.json"):
            labels.read_labels(
                str(path), lambda content: labels.task_label_strings(content, "labels")
            )
        with pytest.raises(DataError, match=r"labels\.json"):
            labels.keep_labels(str(tmp_path), {"labels": ["a", "b"]}, True, True)


def test_an_export(tmp_path):
    class Model(tf.Module):
        def __init__(self):
            self.weight = tf.Variable(tf.ones([100]))

        @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
        def __call__(self, text):
            return {"n": tf.cast(tf.strings.length(text), tf.float32) * self.weight[0]}

    model = Model()
    tf.saved_model.save(model, str(tmp_path), signatures=model.__call__)
    prediction.load_signature(str(tmp_path), "serving_default")
    for path in [*(tmp_path / "variables").iterdir(), tmp_path / "saved_model.pb"]:
        whole = path.read_bytes()
        for content in damages(whole):
            path.write_bytes(content)
            with pytest.raises(ModelingError, match=f"{tmp_path}"):
                prediction.load_signature(str(tmp_path), "serving_default")
        path.write_bytes(whole)
