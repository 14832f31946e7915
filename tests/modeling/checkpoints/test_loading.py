"""What `load` does to a model, what it reports, and what it refuses."""

import numpy as np
import pytest
import safetensors.numpy
from absl import logging

from modeling import checkpoints
from modeling.checkpoints import huggingface, tf1
from modeling.config import BertConfig
from modeling.errors import ModelingError
from modeling.models import BertClassifier, BertModel, BertPretrainer
from tests.reference import numpy_bert

CONFIG = {
    "vocab_size": 13,
    "hidden_size": 4,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 8,
    "max_position_embeddings": 6,
    "type_vocab_size": 2,
}
HEADS = ("pretraining", "classifier")


@pytest.fixture
def weights():
    return numpy_bert.random_weights(CONFIG, heads=HEADS)


@pytest.fixture
def prefix(tmp_path, weights):
    tf1.write_bundle(tmp_path / "bert_model.ckpt", weights)
    return tmp_path / "bert_model.ckpt"


def _pretrainer(**changes):
    return BertPretrainer(BertConfig(**(CONFIG | changes)))


def _values(model):
    return {name: v.numpy().copy() for name, v in checkpoints.weights_by_name(model).items()}


def test_report_and_values(prefix, weights):
    model = _pretrainer()
    report = checkpoints.load(model, prefix)
    ours = _values(model)
    for name, value in ours.items():
        np.testing.assert_array_equal(value, weights[name])
    assert report.loaded == sorted(ours)
    assert report.newly_initialised == []
    assert report.left_over == ["output_bias", "output_weights"]
    assert (report.path, report.format) == (str(prefix), "tf1")


def test_new_head_is_reported_and_keeps_its_values(tmp_path, weights):
    encoder = {name: array for name, array in weights.items() if name.startswith("bert/")}
    huggingface.write_huggingface(str(tmp_path), encoder, BertConfig(**CONFIG))
    model = BertClassifier(BertConfig(**CONFIG), 3)
    model.build()
    before = _values(model)
    report = checkpoints.load(model, tmp_path, required=("bert/",))
    assert report.newly_initialised == ["output_bias", "output_weights"]
    assert report.format == "huggingface"
    np.testing.assert_array_equal(_values(model)["output_weights"], before["output_weights"])
    np.testing.assert_array_equal(
        _values(model)["bert/pooler/dense/kernel"], encoder["bert/pooler/dense/kernel"]
    )


def test_optimizer_slots_are_ignored_not_left_over(tmp_path, weights):
    slots = {f"{n}/{slot}": a for n, a in weights.items() for slot in ("adam_m", "adam_v")}
    training = weights | slots | {"global_step": np.array(5, np.int64)}
    tf1.write_bundle(tmp_path / "model.ckpt-5", training)
    report = checkpoints.load(_pretrainer(), tmp_path)
    assert len(report.ignored) == 2 * len(weights) + 1
    assert report.left_over == ["output_bias", "output_weights"]


def test_summary_says_what_became_of_weights(tmp_path, weights):
    extra = {"bert/pooler/dense/bias/adam_m": np.zeros(4, np.float32), "global_step": np.array(5)}
    del weights["cls/seq_relationship/output_bias"]
    tf1.write_bundle(tmp_path / "model.ckpt-5", weights | extra)
    summary = checkpoints.load(_pretrainer(), tmp_path).summary()
    assert (
        summary.splitlines()[0] == f"Loaded 45 weights from {tmp_path}/model.ckpt-5 (tf1 format)."
    )
    assert "1 weight of the model: cls/seq_relationship/output_bias\n" in summary
    assert summary.endswith("place in the model: 2 weights: output_bias, output_weights")
    assert "global_step" not in summary and "adam_m" not in summary


def test_load_logs_its_report(prefix, monkeypatch):
    messages = []
    monkeypatch.setattr(logging, "info", lambda message, *args: messages.append(message % args))
    report = checkpoints.load(_pretrainer(), prefix)
    assert report.summary() in messages


def test_missing_layers_are_warned_about(prefix, monkeypatch):
    messages = []
    monkeypatch.setattr(logging, "warning", lambda message, *args: messages.append(message % args))
    report = checkpoints.load(_pretrainer(num_hidden_layers=3), prefix)
    assert len(report.newly_initialised) == 16
    assert "file has 2 layers" in messages[0] and "num_hidden_layers is 3" in messages[0]
    with pytest.raises(ModelingError, match=r"lacks 16 weights.*file has 2 layers"):
        checkpoints.load(_pretrainer(num_hidden_layers=3), prefix, required=("bert/",))


def test_a_head_that_is_lacking_is_to_be_trained(tmp_path):
    encoder = BertModel(BertConfig(**CONFIG))
    encoder.build()
    checkpoints.save(encoder, tmp_path)
    model = BertClassifier(BertConfig(**CONFIG), 2)
    with pytest.raises(ModelingError, match=r"lacks 2 weights.*train first \(--do_train\)"):
        checkpoints.load(model, tmp_path, required=("",))


def test_fewer_layers_leave_the_others_over(prefix):
    report = checkpoints.load(_pretrainer(num_hidden_layers=1), prefix)
    assert sum(name.startswith("bert/encoder/layer_1/") for name in report.left_over) == 16


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"vocab_size": 20},
            r"bert/embeddings/word_embeddings in .*bert_model\.ckpt .* \[13, 4\], the model "
            r"expects \[20, 4\] .*vocab_size 20, the file was made with 13.*vocab\.txt",
        ),
        ({"max_position_embeddings": 9}, r"position_embeddings.*max_position_embeddings 9"),
        ({"type_vocab_size": 16}, r"token_type_embeddings.*type_vocab_size 16"),
        ({"hidden_size": 8}, r"word_embeddings.*\[13, 4\].*\[13, 8\].*hidden_size"),
        ({"intermediate_size": 5}, r"layer_0/intermediate/dense/kernel.*\[4, 8\].*\[4, 5\]"),
    ],
)
def test_wrong_shapes(prefix, changes, words):
    model = _pretrainer(**changes)
    model.build()
    before = _values(model)
    with pytest.raises(ModelingError, match=words):
        checkpoints.load(model, prefix)
    after = _values(model)
    assert all(np.array_equal(before[name], after[name]) for name in before)


def test_other_number_of_labels(prefix):
    model = BertClassifier(BertConfig(**CONFIG), 5)
    with pytest.raises(ModelingError, match=r"has 2 labels, the model has 5.*num_labels=2.*skip="):
        checkpoints.load(model, prefix)
    report = checkpoints.load(model, prefix, skip=("output_",), required=("bert/",))
    assert report.newly_initialised == ["output_bias", "output_weights"]
    assert "output_weights" in report.left_over


def test_wrong_shape_names_the_tensor_as_the_file_does(tmp_path, weights):
    huggingface.write_huggingface(str(tmp_path), weights, BertConfig(**CONFIG))
    with pytest.raises(ModelingError, match=r"bert\.embeddings\.word_embeddings\.weight in "):
        checkpoints.load(_pretrainer(vocab_size=20), tmp_path)


def test_nothing_in_common(tmp_path):
    tf1.write_bundle(tmp_path / "bert_model.ckpt", {"lstm/kernel": np.ones((2, 2), np.float32)})
    with pytest.raises(ModelingError, match=r"file holds lstm/kernel; the model.* bert/embeddings"):
        checkpoints.load(_pretrainer(), tmp_path)


def test_untied_output_matrix(tmp_path, weights):
    tensors = huggingface.huggingface_weights(weights)
    tensors = {name: np.ascontiguousarray(array) for name, array in tensors.items()}
    tensors["cls.predictions.decoder.weight"] = np.ones((13, 4), np.float32)
    file = tmp_path / "model.safetensors"
    safetensors.numpy.save_file(tensors, file)
    with pytest.raises(ModelingError, match=r"cls\.predictions\.decoder\.weight"):
        checkpoints.load(_pretrainer(), file)
    report = checkpoints.load(BertClassifier(BertConfig(**CONFIG), 2), file)
    assert "cls.predictions.decoder.weight" in report.left_over
    report = checkpoints.load(_pretrainer(), file, skip=("cls/predictions/",))
    assert "cls/seq_relationship/output_bias" in report.loaded


def test_two_formats_in_one_folder(prefix, weights):
    huggingface.write_huggingface(str(prefix.parent), weights, BertConfig(**CONFIG))
    with pytest.raises(ModelingError, match=r"several checkpoints: .*ckpt, .*\.safetensors"):
        checkpoints.load(_pretrainer(), prefix.parent)
    assert checkpoints.load(_pretrainer(), prefix).format == "tf1"
    file = prefix.parent / "model.safetensors"
    assert checkpoints.load(_pretrainer(), file).format == "huggingface"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("pytorch_model.bin", "no file of PyTorch's"),
        ("tf_model.h5", "HDF5 file, but damaged"),
        ("readme.md", r"found readme\.md"),
    ],
)
def test_folder_without_a_checkpoint(tmp_path, name, words):
    (tmp_path / name).write_text("x")
    with pytest.raises(ModelingError, match=words):
        checkpoints.load(_pretrainer(), tmp_path)


@pytest.mark.parametrize("name", ["model.safetensors", "pytorch_model.bin", "tf_model.h5"])
def test_pointers_of_git_lfs(tmp_path, name):
    (tmp_path / name).write_text("version https://git-lfs.github.com/spec/v1\noid sha256:4d\n")
    with pytest.raises(ModelingError, match=r"pointer of Git LFS.*git lfs pull"):
        checkpoints.load(_pretrainer(), tmp_path / name)


def test_what_lies_beside_a_checkpoint(tmp_path, weights):
    """Folders that end as files do, and other programs' indices."""
    huggingface.write_huggingface(str(tmp_path), weights, BertConfig(**CONFIG))
    for name in ("weights.h5", "old.bin", "old.pt"):
        (tmp_path / name).mkdir()
    (tmp_path / "faiss.index").write_text("x")
    whole = tmp_path / "tf1"
    tf1.write_bundle(whole / "bert.ckpt", weights)
    (whole / "faiss.index").write_text("x")
    assert checkpoints.load(_pretrainer(), whole).format == "tf1"
    (tmp_path / "faiss.index").rename(tmp_path / "faiss.idx")
    assert checkpoints.load(_pretrainer(), tmp_path).format == "huggingface"


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("format", ["tf1", "huggingface"])
def test_weights_that_are_not_finite(tmp_path, weights, value, format):
    query = "bert/encoder/layer_1/attention/self/query/kernel"
    weights[query][1, 2] = value
    checkpoints.write_checkpoint(tmp_path / "bad", weights, BertConfig(**CONFIG), format=format)
    called = {
        "tf1": query,
        "huggingface": r"bert\.encoder\.layer\.1\.attention\.self\.query\.weight",
    }
    with pytest.raises(ModelingError, match=rf"{called[format]} in .*bad.* isn't finite: 1 of its"):
        checkpoints.load(_pretrainer(), tmp_path / "bad")
    with pytest.raises(ModelingError, match="isn't finite"):
        checkpoints.convert(tmp_path / "bad", tmp_path / "out", "tf1")
    assert not (tmp_path / "out").exists()


def test_no_such_path_and_wrong_file(tmp_path):
    (tmp_path / "vocab.txt").write_text("x")
    with pytest.raises(ModelingError, match=r"no checkpoint at .*nothing.*holds vocab\.txt"):
        checkpoints.load(_pretrainer(), tmp_path / "nothing")
    with pytest.raises(ModelingError, match=r"vocab\.txt is no checkpoint file"):
        checkpoints.load(_pretrainer(), tmp_path / "vocab.txt")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ModelingError, match="found nothing"):
        checkpoints.load(_pretrainer(), tmp_path / "empty")


@pytest.mark.parametrize("dtype", ["bfloat16", "mixed_bfloat16"])
def test_half_precision_model(prefix, weights, dtype):
    model = BertPretrainer(BertConfig(**CONFIG), dtype=dtype)
    checkpoints.load(model, prefix)
    got = checkpoints.weights_by_name(model)["bert/pooler/dense/kernel"]
    tolerance = 2**-8 if dtype == "bfloat16" else 0
    want = weights["bert/pooler/dense/kernel"]
    np.testing.assert_allclose(np.asarray(got.value, np.float32), want, rtol=tolerance)
