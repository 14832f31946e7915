"""The converter: weights bit for bit, the configuration's meaning, and its error messages."""

import json
import os

import numpy as np
import pytest

from modeling import checkpoints, logs
from modeling.checkpoints import huggingface, tf1
from modeling.config import BertConfig
from modeling.errors import ModelingError
from tests.reference import numpy_bert
from tests.scripts import run

CONFIG = {
    "vocab_size": 13,
    "hidden_size": 4,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 8,
    "max_position_embeddings": 6,
    "type_vocab_size": 2,
}
HEADS = ("pretraining", "classifier", "squad")


def write_release(folder, heads):
    weights = numpy_bert.random_weights(CONFIG, heads=heads, labels=3)
    tf1.write_bundle(folder / "bert_model.ckpt", weights)
    (folder / "bert_config.json").write_text(json.dumps(CONFIG))
    (folder / "vocab.txt").write_text("[PAD]\n[UNK]\n")
    return folder


@pytest.fixture
def release(tmp_path):
    return write_release(tmp_path / "release", ["classifier"])


def _bytes(folder, name):
    return (folder / name).read_bytes()


def test_the_weights_own_tokenizer_file_stays(tmp_path, release):
    """Beside the weights that it was written for; elsewhere one is written."""
    own = json.dumps({"do_lower_case": True, "never_split": ["[USER]"], "model_max_length": 5})
    (release / "tokenizer_config.json").write_text(own)
    checkpoints.convert(release, release, "huggingface")
    assert (release / "model.safetensors").exists()
    assert (release / "tokenizer_config.json").read_text() == own
    checkpoints.convert(release / "bert_model.ckpt", tmp_path / "other", "huggingface")
    written = json.loads((tmp_path / "other" / "tokenizer_config.json").read_text())
    assert written["do_lower_case"] is True and "never_split" not in written


def test_the_weights_own_configuration_counts_as_read(release):
    """Where another is given, too: it must not be written over."""
    config = str(release / "other.json")
    read, written = checkpoints.conversion_files(str(release), str(release), "tf1", config)
    assert {config, f"{release}/bert_config.json"} < {*read}
    assert f"{release}/bert_config.json" in written
    checkpoints.convert(release, release, "huggingface")
    weights = str(release / "model.safetensors")
    read, written = checkpoints.conversion_files(weights, str(release), "keras_hub", config)
    assert f"{release}/config.json" in {*read} & {*written}


def test_no_other_weights_are_left_with_another_vocabulary(tmp_path, release):
    """They would be read with it, and nothing in them says that they mean other words."""
    other = write_release(tmp_path / "another", ["pretraining"])
    (other / "vocab.txt").write_text("[UNK]\n[PAD]\n")
    mixed = tmp_path / "mixed"
    checkpoints.convert(release, mixed, "huggingface")
    with pytest.raises(ModelingError, match=r"mixed holds model\.safetensors of another model"):
        checkpoints.convert(other, mixed, "tf1")
    assert (mixed / "vocab.txt").read_text() == "[PAD]\n[UNK]\n"
    checkpoints.convert(other, mixed, "huggingface")  # in their place
    assert (mixed / "vocab.txt").read_text() == "[UNK]\n[PAD]\n"
    checkpoints.convert(other, mixed, "tf1")  # of one vocabulary


@pytest.mark.parametrize("head", [None, *HEADS])
def test_there_and_back_keeps_every_bit(tmp_path, head):
    heads = [head] if head else []
    release = write_release(tmp_path / "release", heads)
    there = checkpoints.convert(release, tmp_path / "hf", "huggingface")
    back = checkpoints.convert(tmp_path / "hf", tmp_path / "back", "tf1")
    names = sorted(numpy_bert.variable_shapes(CONFIG, heads, 3))
    poolerless = [n for n in names if head == "squad" and "pooler" in n]  # as the class there
    assert there.not_converted == poolerless and back.not_converted == []
    assert there.converted == back.converted == [n for n in names if n not in poolerless]
    written = tf1.read_bundle(tmp_path / "back" / "bert_model.ckpt")
    for name, array in tf1.read_bundle(release / "bert_model.ckpt").items():
        if name not in poolerless:
            assert written[name].tobytes() == array.tobytes(), name
    if not poolerless:
        for suffix in (".index", ".data-00000-of-00001"):
            name = f"bert_model.ckpt{suffix}"
            assert _bytes(release, name) == _bytes(tmp_path / "back", name)
    assert _bytes(release, "vocab.txt") == _bytes(tmp_path / "back", "vocab.txt")
    config = BertConfig.from_json_file(tmp_path / "back/bert_config.json")
    assert {key: getattr(config, key) for key in CONFIG} == CONFIG


def test_one_head_of_several_is_written_and_the_others_named(tmp_path):
    release = write_release(tmp_path / "release", HEADS)
    result = checkpoints.convert(release, tmp_path / "hf", "huggingface")
    others = [n for n in numpy_bert.variable_shapes(CONFIG, HEADS, 3) if n.startswith("cls/")]
    assert result.not_converted == sorted(others)
    assert any("several heads (classes, spans, pretraining)" in note for note in result.notes)
    assert checkpoints.convert(release, tmp_path / "tf1", "tf1").not_converted == []


@pytest.mark.parametrize("hidden_act", ["gelu", "gelu_erf", "relu"])
def test_activation_keeps_its_meaning(release, tmp_path, hidden_act):
    (release / "bert_config.json").write_text(json.dumps(CONFIG | {"hidden_act": hidden_act}))
    checkpoints.convert(release, tmp_path / "hf", "huggingface")
    theirs = json.loads((tmp_path / "hf/config.json").read_text("utf-8"))["hidden_act"]
    assert theirs == {"gelu": "gelu_new", "gelu_erf": "gelu", "relu": "relu"}[hidden_act]
    back = checkpoints.convert(tmp_path / "hf", tmp_path / "back", "tf1")
    stored = json.loads((tmp_path / "back/bert_config.json").read_text("utf-8"))
    assert stored["hidden_act"] == hidden_act
    assert any("exact gelu" in note for note in back.notes) == (hidden_act == "gelu_erf")


def test_same_numbers_from_the_converted_model(release, tmp_path):
    """The meaning of the result, not only its bits: equal outputs through the oracle."""
    checkpoints.convert(release, tmp_path / "hf", "huggingface")
    held = checkpoints.open_contents(tmp_path / "hf")
    weights = {name: held.read(name) for name in held.shapes}
    inputs = {"input_ids": np.array([[1, 2, 3]])}
    ours = numpy_bert.forward(weights, CONFIG, inputs)
    want = numpy_bert.forward(tf1.read_bundle(checkpoints.find(release)[1]), CONFIG, inputs)
    # Not to the bit: a transposed view multiplies in another order.
    np.testing.assert_allclose(ours["logits"], want["logits"], rtol=0, atol=1e-14)


def test_slots_are_dropped_and_unknown_weights_named(release, tmp_path):
    weights = tf1.read_bundle(checkpoints.find(release)[1])
    weights |= {
        "global_step": np.array(3),
        "bert/pooler/dense/bias/adam_m": np.zeros(4, np.float32),
        # Of TensorFlow's own AdamOptimizer, as some have fine-tuned the original.
        "bert/pooler/dense/bias/Adam_1": np.zeros(4, np.float32),
        "beta1_power": np.array(0.9, np.float32),
        "tagger/kernel": np.ones((4, 9), np.float32),
    }
    tf1.write_bundle(release / "bert_model.ckpt", weights)
    result = checkpoints.convert(release, tmp_path / "hf", "huggingface")
    assert (result.ignored, result.not_converted) == (4, ["tagger/kernel"])
    result = checkpoints.convert(release, tmp_path / "slim", "tf1")
    assert result.not_converted == []
    kept = tf1.read_bundle(checkpoints.find(tmp_path / "slim")[1])
    assert "tagger/kernel" in kept
    assert not {"global_step", "beta1_power", "bert/pooler/dense/bias/Adam_1"} & kept.keys()


@pytest.mark.parametrize("format", checkpoints.FORMATS)
def test_every_format_says_how_far_it_is(release, tmp_path, monkeypatch, format):
    begun = []
    monkeypatch.setattr(logs, "begin_activity", begun.append)
    result = checkpoints.convert(release, tmp_path / "out", format)
    assert sum(activity.done for activity in begun) == len(result.converted) > 0
    for activity in begun:
        assert activity.unit == "weights" and activity.done == activity.total
        assert str(tmp_path) not in activity.what  # of a folder that is a temporary one


def test_half_precision_input_is_widened(release, tmp_path):
    weights = {
        name: a.astype(np.float16)
        for name, a in tf1.read_bundle(checkpoints.find(release)[1]).items()
    }
    config = BertConfig(**CONFIG, head="classes")
    huggingface.write_huggingface(str(tmp_path), weights, config)
    checkpoints.convert(tmp_path, tmp_path / "out", "tf1")
    stored = tf1.read_bundle(checkpoints.find(tmp_path / "out")[1])
    for name, array in weights.items():
        assert stored[name].dtype == np.float32
        np.testing.assert_array_equal(stored[name], array.astype(np.float32))


def test_configuration_that_is_missing_or_wrong(release, tmp_path):
    os.rename(release / "bert_config.json", tmp_path / "elsewhere.json")
    with pytest.raises(ModelingError, match=r"no bert_config\.json or config\.json beside"):
        checkpoints.convert(release, tmp_path / "out", "huggingface")
    checkpoints.convert(
        release, tmp_path / "out", "huggingface", config_file=tmp_path / "elsewhere.json"
    )
    wrong = CONFIG | {"vocab_size": 14, "num_hidden_layers": 3}
    (release / "bert_config.json").write_text(json.dumps(wrong))
    with pytest.raises(ModelingError, match=r"vocab_size is 14 but .*num_hidden_layers is 3 but"):
        checkpoints.convert(release, tmp_path / "out", "huggingface")


def test_not_a_bert_checkpoint(release, tmp_path):
    tf1.write_bundle(release / "bert_model.ckpt", {"lstm/kernel": np.ones(2, np.float32)})
    with pytest.raises(ModelingError, match="holds no BERT weights; it holds lstm/kernel"):
        checkpoints.convert(release, tmp_path / "out", "huggingface")


def test_a_failed_conversion_leaves_nothing_behind(release, tmp_path):
    """Its labels would be another model's."""
    (release / "labels.json").write_text('{"labels": ["a", "b", "c"]}')
    values = CONFIG | {"hidden_act": "relu"}
    (release / "bert_config.json").write_text(json.dumps(values))
    with pytest.raises(ModelingError, match="KerasHub"):
        checkpoints.convert(release, tmp_path / "out", "keras_hub")
    assert not (tmp_path / "out").exists() or not list((tmp_path / "out").iterdir())
    written = checkpoints.convert(release, tmp_path / "out", "huggingface").written
    assert str(tmp_path / "out" / "labels.json") in written
    assert _bytes(tmp_path / "out", "labels.json") == _bytes(release, "labels.json")


@pytest.mark.parametrize("name", ["tokenizer.json", "added_tokens.json"])
def test_a_folder_with_another_models_tokenizer(release, tmp_path, name):
    (tmp_path / name).write_text("{}")
    with pytest.raises(ModelingError, match=f"holds {name} of another model"):
        checkpoints.convert(release, tmp_path, "huggingface")


def test_missing_vocabulary_is_noted(release, tmp_path):
    (release / "vocab.txt").unlink()
    result = checkpoints.convert(release, tmp_path / "out", "huggingface")
    assert any("No vocab.txt" in note for note in result.notes)
    assert sorted(os.listdir(tmp_path / "out")) == ["config.json", "model.safetensors"]


def _command(*arguments):
    return run("-m", "modeling.convert_checkpoint", *arguments)


def test_command(release, tmp_path):
    out = tmp_path / "hf"
    done = _command("--input", release, "--output", out, "--format", "huggingface")
    assert done.returncode == 0, done.stderr
    for name in ("model.safetensors", "config.json", "vocab.txt"):
        assert f"Wrote {out / name}" in done.stdout
    weights = numpy_bert.variable_shapes(CONFIG, ["classifier"], 3)
    assert f"Read {release / 'bert_model.ckpt'}: {len(weights)} weights" in done.stdout


def test_command_error_is_one_paragraph(tmp_path):
    done = _command("--input", tmp_path, "--output", tmp_path / "out", "--format", "tf1")
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "holds no checkpoint that can be read" in " ".join(done.stderr.split())
