"""TF1 bundles: byte-identical with the original's, found wherever they are, replaced whole."""

import shutil

import numpy as np
import pytest
import tensorflow as tf

from modeling import checkpoints
from modeling.checkpoints import tf1
from modeling.errors import ModelingError

TENSORS = {
    "bert/a": np.arange(6, dtype=np.float32).reshape(2, 3),
    "global_step": np.array(7, np.int64),
    "half": np.array([0.5, -2.0], np.float16),
    "empty": np.zeros((0, 4), np.float32),
}


def _assert_equal(one, other):
    assert one.keys() == other.keys()
    for name in one:
        assert one[name].dtype == other[name].dtype, name
        np.testing.assert_array_equal(one[name], other[name])


def test_round_trip(tmp_path):
    tf1.write_bundle(tmp_path / "new/bert_model.ckpt", TENSORS)
    assert sorted(p.name for p in (tmp_path / "new").iterdir()) == [
        "bert_model.ckpt.data-00000-of-00001",
        "bert_model.ckpt.index",
    ]
    _assert_equal(tf1.read_bundle(tmp_path / "new/bert_model.ckpt"), TENSORS)
    # TensorFlow's own reader agrees.
    assert dict(tf.train.list_variables(str(tmp_path / "new/bert_model.ckpt")))["bert/a"] == [2, 3]


@pytest.mark.parametrize("prefix", ["tiny/bert_model.ckpt", "tiny2/model.ckpt"])
def test_writing_gives_the_original_s_bytes(golden, tmp_path, prefix):
    source = golden / prefix
    target = tmp_path / source.name
    tf1.write_bundle(target, tf1.read_bundle(source))
    for suffix in (".index", ".data-00000-of-00001"):
        ours = target.with_name(target.name + suffix).read_bytes()
        assert ours == source.with_name(source.name + suffix).read_bytes()


def test_one_bundle_is_found_by_many_paths(tmp_path):
    prefix = tmp_path / "bert_model.ckpt"
    tf1.write_bundle(prefix, TENSORS)
    for path in (prefix, tmp_path, f"{prefix}.index", f"{prefix}.data-00000-of-00001"):
        assert checkpoints.find(path) == ("tf1", str(prefix))


def test_checkpoint_file_names_the_latest(tmp_path):
    for step in (10, 20):
        tf1.write_bundle(tmp_path / f"model.ckpt-{step}", TENSORS)
    with pytest.raises(ModelingError, match="several checkpoints"):
        checkpoints.find(tmp_path)
    (tmp_path / "checkpoint").write_text(
        'model_checkpoint_path: "model.ckpt-20"\nall_model_checkpoint_paths: "model.ckpt-10"\n'
    )
    assert checkpoints.find(tmp_path)[1] == str(tmp_path / "model.ckpt-20")


def test_checkpoint_file_in_a_folder_that_moved(tmp_path):
    tf1.write_bundle(tmp_path / "old/model.ckpt-20", TENSORS)
    tf1.write_bundle(tmp_path / "old/model.ckpt-30", TENSORS)
    (tmp_path / "old/checkpoint").write_text(
        f'model_checkpoint_path: "{tmp_path}/old/model.ckpt-20"\n'
    )
    shutil.move(tmp_path / "old", tmp_path / "new")
    assert checkpoints.find(tmp_path / "new")[1] == str(tmp_path / "new/model.ckpt-20")


def test_a_release_counts_before_checkpoints_of_training(tmp_path):
    for name in ("bert_model.ckpt", "model.ckpt-20"):
        tf1.write_bundle(tmp_path / name, TENSORS)
    (tmp_path / "checkpoint").write_text('model_checkpoint_path: "model.ckpt-20"\n')
    assert checkpoints.find(tmp_path) == ("tf1", str(tmp_path / "bert_model.ckpt"))
    for path in tmp_path.glob("bert_model.*"):
        path.unlink()
    assert checkpoints.find(tmp_path) == ("tf1", str(tmp_path / "model.ckpt-20"))
    (tmp_path / "model.safetensors").write_bytes(b"")
    assert checkpoints.find(tmp_path) == ("huggingface", str(tmp_path / "model.safetensors"))


def test_nothing_there(tmp_path):
    (tmp_path / "notes.md").write_text("x")
    with pytest.raises(ModelingError, match=r"found notes\.md"):
        checkpoints.find(tmp_path)
    with pytest.raises(ModelingError, match="no TF1 checkpoint at"):
        tf1.find_tf1_checkpoint(tmp_path / "bert_model.ckpt")


def test_damaged_data_file(tmp_path):
    prefix = tmp_path / "bert_model.ckpt"
    tf1.write_bundle(prefix, TENSORS)
    data = tmp_path / "bert_model.ckpt.data-00000-of-00001"
    content = bytearray(data.read_bytes())
    content[5] ^= 0xFF
    data.write_bytes(bytes(content))
    with pytest.raises(ModelingError, match="bert/a of the TF1 checkpoint"):
        tf1.read_bundle(prefix)
    data.write_bytes(bytes(content[:10]))
    with pytest.raises(ModelingError, match="bert_model"):
        tf1.read_bundle(prefix)
    data.unlink()
    with pytest.raises(ModelingError, match="bert_model"):
        tf1.read_bundle(prefix)


def test_damaged_index(tmp_path):
    prefix = tmp_path / "bert_model.ckpt"
    tf1.write_bundle(prefix, TENSORS)
    (tmp_path / "bert_model.ckpt.index").write_bytes(b"not an index")
    with pytest.raises(ModelingError, match="can't be opened"):
        tf1.read_bundle(prefix)


def test_failed_write_leaves_the_old_bundle(tmp_path):
    prefix = tmp_path / "bert_model.ckpt"
    tf1.write_bundle(prefix, TENSORS)
    with pytest.raises((TypeError, ValueError)):
        tf1.write_bundle(prefix, {"bert/a": object()})
    _assert_equal(tf1.read_bundle(prefix), TENSORS)
    assert len(list(tmp_path.iterdir())) == 2


def test_object_based_checkpoint_is_refused_by_name(tmp_path):
    prefix = tf.train.Checkpoint(v=tf.Variable(1.0)).write(str(tmp_path / "ckpt"))
    with pytest.raises(ModelingError, match="object-based"):
        tf1.contents(prefix)
