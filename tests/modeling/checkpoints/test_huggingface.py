"""Hugging Face files in all the shapes they come in."""

import json
import struct

import numpy as np
import pytest
import safetensors.numpy

from modeling.checkpoints import huggingface, open_contents
from modeling.config import BertConfig
from modeling.errors import ModelingError
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


@pytest.fixture
def weights():
    return numpy_bert.random_weights(CONFIG, heads=("pretraining", "classifier", "squad"))


def _file(folder, tensors, name="model.safetensors"):
    path = folder / name
    path.write_bytes(safetensors.numpy.save({n: a.copy(order="C") for n, a in tensors.items()}))
    return path


def _assert_holds(contents, weights):
    assert contents.shapes == {name: array.shape for name, array in weights.items()}
    for name, array in weights.items():
        np.testing.assert_array_equal(contents.read(name), array)


def test_written_bytes_are_those_of_the_package(tmp_path, weights):
    kernel = "bert/encoder/layer_0/output/dense/kernel"
    weights[kernel] = weights[kernel].astype(np.float64)
    weights = {name: array for name, array in weights.items() if not name.startswith("cls/")}
    huggingface.write_huggingface(str(tmp_path), weights, BertConfig(**CONFIG))
    tensors = huggingface.huggingface_weights(weights)
    tensors = {name: np.ascontiguousarray(array) for name, array in tensors.items()}
    want = safetensors.numpy.save(tensors, metadata={"format": "pt"})
    assert (tmp_path / "model.safetensors").read_bytes() == want


def test_written_file_is_what_transformers_expects(tmp_path, weights):
    huggingface.write_huggingface(str(tmp_path), weights, BertConfig(**CONFIG))
    with safetensors.safe_open(tmp_path / "model.safetensors", "np") as file:
        assert file.metadata() == {"format": "pt"}
        # The masked-LM output matrix is tied and therefore absent.
        assert "cls.predictions.decoder.weight" not in file.keys()  # noqa: SIM118
        query = file.get_tensor("bert.encoder.layer.1.attention.self.query.weight")
        inner = file.get_tensor("bert.encoder.layer.0.intermediate.dense.weight")
        head = file.get_tensor("classifier.weight")
    np.testing.assert_array_equal(
        query, weights["bert/encoder/layer_1/attention/self/query/kernel"].T
    )
    assert inner.shape == (8, 4)
    np.testing.assert_array_equal(head, weights["output_weights"])
    # Of the three heads its class has one.
    of_class = {name: w for name, w in weights.items() if not name.startswith("cls/")}
    _assert_holds(open_contents(tmp_path), of_class)


@pytest.mark.parametrize(
    ("head", "absent", "present"),
    [
        ("tags", "bert.pooler.dense.bias", "classifier.bias"),
        ("choices", "qa_outputs.weight", "classifier.bias"),
        ("spans", "bert.pooler.dense.bias", "qa_outputs.bias"),
        ("masked_lm", "bert.pooler.dense.bias", "cls.predictions.bias"),
        ("next_sentence", "cls.predictions.bias", "bert.pooler.dense.bias"),
        ("pretraining", "classifier.bias", "cls.seq_relationship.bias"),
    ],
)
def test_what_a_class_has_no_place_for_is_left_out(tmp_path, weights, head, absent, present):
    if head == "choices":
        weights["output_weights"] = weights["output_weights"][:1]
        del weights["output_bias"]
    if head == "masked_lm":
        weights = {n: w for n, w in weights.items() if "seq_relationship" not in n}
    if head == "next_sentence":
        weights = {n: w for n, w in weights.items() if "cls/predictions" not in n}
    huggingface.write_huggingface(str(tmp_path), weights, BertConfig(**CONFIG, head=head))
    with safetensors.safe_open(tmp_path / "model.safetensors", "np") as file:
        written = set(file.keys())
        if head == "choices":
            np.testing.assert_array_equal(file.get_tensor(present), [0])
    assert absent not in written and present in written
    values = json.loads((tmp_path / "config.json").read_text())
    assert values["dtype"] == "float32" and BertConfig.from_dict(values).head == head


def test_same_weights_give_the_same_bytes(tmp_path, weights):
    for folder, order in (("a", list(weights)), ("b", sorted(weights))):
        (tmp_path / folder).mkdir()
        tensors = {name: weights[name] for name in order}
        huggingface.write_huggingface(str(tmp_path / folder), tensors, BertConfig(**CONFIG))
    one, other = ((tmp_path / f / "model.safetensors").read_bytes() for f in "ab")
    assert one == other


def _written_config(folder, config, shapes):
    tensors = {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}
    huggingface.write_huggingface(str(folder), tensors, config)
    return json.loads((folder / "config.json").read_text())


@pytest.mark.parametrize(
    ("heads", "architecture"),
    [
        (("pretraining",), "BertForPreTraining"),
        (("classifier",), "BertForSequenceClassification"),
        (("squad",), "BertForQuestionAnswering"),
        ((), "BertModel"),
    ],
)
def test_config_names_the_class(tmp_path, heads, architecture):
    shapes = numpy_bert.variable_shapes(CONFIG, heads, labels=5)
    values = _written_config(tmp_path, BertConfig(**CONFIG), shapes)
    assert values["architectures"] == [architecture]
    assert len(values.get("id2label", ())) == (5 if heads == ("classifier",) else 0)


def test_config_keeps_label_names_that_fit(tmp_path):
    shapes = numpy_bert.variable_shapes(CONFIG, ("classifier",), labels=2)
    kept = {"0": "bad", "1": "good"}
    config = BertConfig(**CONFIG, extra={"id2label": kept})
    assert _written_config(tmp_path, config, shapes)["id2label"] == kept


def test_without_prefix_and_with_the_first_conversions_names(tmp_path, weights):
    tensors = huggingface.huggingface_weights(weights)
    renamed = {}
    for name, array in tensors.items():
        old = name.removeprefix("bert.").replace("LayerNorm.weight", "LayerNorm.gamma")
        renamed[old.replace("LayerNorm.bias", "LayerNorm.beta")] = array
    renamed["embeddings.position_ids"] = np.arange(6)[None]
    contents = open_contents(_file(tmp_path, renamed))
    _assert_holds(contents, weights)
    assert contents.ignored == ["embeddings.position_ids"]
    assert contents.file_names["bert/embeddings/LayerNorm/gamma"] == "embeddings.LayerNorm.gamma"


@pytest.mark.parametrize("instead", [False, True])
def test_tied_decoder(tmp_path, weights, instead):
    """Copies beside the tied tensors are ignored; in their place they are taken for them."""
    tensors = huggingface.huggingface_weights(weights)
    words, bias = "bert.embeddings.word_embeddings.weight", "cls.predictions.bias"
    tensors["cls.predictions.decoder.weight"] = tensors.pop(words) if instead else tensors[words]
    tensors["cls.predictions.decoder.bias"] = tensors.pop(bias) if instead else tensors[bias]
    contents = open_contents(_file(tmp_path, tensors))
    _assert_holds(contents, weights)
    assert len(contents.ignored) == (0 if instead else 2)
    assert not contents.untied_decoder


def test_untied_decoder_is_flagged(tmp_path, weights):
    tensors = huggingface.huggingface_weights(weights)
    words = tensors["bert.embeddings.word_embeddings.weight"]
    tensors["cls.predictions.decoder.weight"] = words + 1
    contents = open_contents(_file(tmp_path, tensors))
    assert contents.untied_decoder
    assert contents.unmapped == ["cls.predictions.decoder.weight"]


def test_half_precision_becomes_float32_exactly(tmp_path, weights):
    tensors = huggingface.huggingface_weights(weights)
    half = {name: array.astype(np.float16) for name, array in tensors.items()}
    contents = open_contents(_file(tmp_path, half))
    array = contents.read("bert/pooler/dense/kernel")
    assert array.dtype == np.float32
    np.testing.assert_array_equal(array.T, half["bert.pooler.dense.weight"].astype(np.float32))


def test_bfloat16_file(tmp_path):
    """Written byte by byte, as NumPy has no such type."""
    values = np.array([[1.0, -2.5, 3.140625], [0.0, 1e30, -1e-30]], np.float32)
    bits = (values.view(np.uint32) >> 16).astype("<u2")
    header = {
        "__metadata__": {"format": "pt"},
        "classifier.weight": {"dtype": "BF16", "shape": [2, 3], "data_offsets": [0, 12]},
        "classifier.bias": {"dtype": "F32", "shape": [2], "data_offsets": [12, 20]},
    }
    encoded = json.dumps(header).encode()
    path = tmp_path / "model.safetensors"
    bias = np.array([1.5, 2.5], "<f4")
    path.write_bytes(struct.pack("<Q", len(encoded)) + encoded + bits.tobytes() + bias.tobytes())
    contents = open_contents(path)
    got = contents.read("output_weights")
    assert got.dtype == np.float32
    np.testing.assert_array_equal(got.view(np.uint32), bits.astype(np.uint32) << 16)
    np.testing.assert_allclose(got, values, rtol=2**-7)
    np.testing.assert_array_equal(contents.read("output_bias"), bias)


def test_sharded(tmp_path, weights):
    tensors = huggingface.huggingface_weights(weights)
    names = sorted(tensors)
    shards = {"model-1.safetensors": names[:9], "model-2.safetensors": names[9:]}
    for shard, part in shards.items():
        _file(tmp_path, {name: tensors[name] for name in part}, shard)
    index = tmp_path / "model.safetensors.index.json"
    weight_map = {name: shard for shard, part in shards.items() for name in part}
    index.write_text(json.dumps({"weight_map": weight_map}))
    _assert_holds(open_contents(tmp_path), weights)
    (tmp_path / "model-2.safetensors").unlink()
    with pytest.raises(ModelingError, match=r"model-2\.safetensors, which is not beside it"):
        open_contents(tmp_path)
    index.write_text("[]")
    with pytest.raises(ModelingError, match="not an index"):
        open_contents(tmp_path)


@pytest.mark.parametrize(
    "shard",
    [
        "../model.safetensors",
        "/etc/model.safetensors",
        "sub/model.safetensors",
        "..\\model.safetensors",
        "gs://bucket/model.safetensors",
        "passwd",
        ".safetensors\0",
        7,
        None,
        ["model.safetensors"],
    ],
)
def test_index_names_files_of_its_folder_alone(tmp_path, weights, shard):
    folder = tmp_path / "folder"
    folder.mkdir()
    _file(tmp_path, huggingface.huggingface_weights(weights))
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"classifier.bias": shard}}))
    with pytest.raises(ModelingError, match="Nothing outside its folder is read"):
        open_contents(folder)
    index.write_text('{"weight_map":' * 5000)
    with pytest.raises(ModelingError, match="not an index"):
        open_contents(folder)


def test_one_weight_under_two_names(tmp_path):
    tensors = {"bert.pooler.dense.bias": np.ones(4), "pooler.dense.bias": np.ones(4)}
    with pytest.raises(ModelingError, match="bert/pooler/dense/bias twice"):
        open_contents(_file(tmp_path, tensors))


def test_empty_and_scalar_tensors(tmp_path):
    tensors = {"a": np.zeros((0, 3), np.float32), "b": np.array(2.5), "c": np.arange(3)}
    file = huggingface.SafetensorsFile(str(_file(tmp_path, tensors)))
    for name, array in tensors.items():
        got = file.read(name)
        assert (got.shape, got.dtype) == (array.shape, array.dtype)
        np.testing.assert_array_equal(got, array)


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: content[:-1],
        lambda content: content[:4],
        lambda content: b"",
        lambda content: b"PK\x03\x04" + content[4:],
        lambda content: content[:8] + b"[" + content[9:],
        lambda content: content.replace(b"[4]", b"[5]", 1),
        lambda content: content.replace(b'"F32"', b'"F64"', 1),
    ],
)
def test_damaged_files(tmp_path, damage):
    path = _file(tmp_path, {"classifier.bias": np.ones(4, np.float32)})
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(ModelingError, match=r"model\.safetensors is not a whole"):
        open_contents(path)


@pytest.mark.parametrize(
    ("offsets", "size"),
    [
        ([[0, 16], [8, 24]], 24),  # overlapping
        ([[0, 16], [0, 16]], 16),  # twice the same bytes
        ([[0, 16], [24, 40]], 40),  # a gap
        ([[0, 16.5], [16.5, 32.5]], 33),
        ([[0, 16.0], [16.0, 32.0]], 32),
        ([[-16, 0], [0, 16]], 32),
        ([[0, 16], [16, 32]], 31),  # out of the file
        ([[0, 16], [16, 32]], 33),  # bytes that belong to nothing
        ([[0, 16], [32, 16]], 32),
        ([[0, 16], [2**63, 2**63 + 16]], 32),
    ],
)
def test_offsets_that_lie(tmp_path, offsets, size):
    parts = zip(("classifier.bias", "classifier.weight"), offsets, strict=True)
    header = {n: {"dtype": "F32", "shape": [4], "data_offsets": of} for n, of in parts}
    text = json.dumps(header).encode()
    path = tmp_path / "model.safetensors"
    path.write_bytes(struct.pack("<Q", len(text)) + text + bytes(size))
    with pytest.raises(ModelingError, match=r"model\.safetensors is not a whole"):
        open_contents(path)
