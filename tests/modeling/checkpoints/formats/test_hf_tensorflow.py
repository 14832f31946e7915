"""Hugging Face's TensorFlow formats, made here: names, copies, optimizers, damaged files."""

import json

import h5py
import numpy as np
import pytest
import safetensors.numpy
import tensorflow as tf
from tensorflow.core.protobuf import trackable_object_graph_pb2

from modeling.checkpoints import huggingface, names, tf1
from modeling.checkpoints.formats.hf_h5 import hf_h5_contents, hf_h5_file
from modeling.checkpoints.formats.hf_objects import hf_objects_contents, hf_objects_file
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
OUTER = "tf_bert_for_pre_training"
WORDS = "bert/embeddings/word_embeddings/weight:0"
VALUE = ".ATTRIBUTES/VARIABLE_VALUE"


@pytest.fixture
def weights():
    return numpy_bert.random_weights(CONFIG, heads=("pretraining",))


def tensorflow_name(name: str) -> str:
    """What Hugging Face's TensorFlow classes call a weight of the original."""
    name = name.replace("/layer_", "/layer_._").replace("cls/predictions", "mlm___cls/predictions")
    name = name.replace("cls/seq_relationship/output_weights", "nsp___cls/seq_relationship/kernel")
    name = name.replace("cls/seq_relationship/output_bias", "nsp___cls/seq_relationship/bias")
    name = name.replace("word_embeddings", "word_embeddings/weight")
    name = name.replace("n_embeddings", "n_embeddings/embeddings").replace("output_bias", "bias")
    return name.replace("type_embeddings", "type_embeddings/embeddings")


def stored(weights) -> dict[str, np.ndarray]:
    named = {tensorflow_name(name): array for name, array in weights.items()}
    return {n: a.T if n.startswith("nsp") and a.ndim == 2 else a for n, a in named.items()}


def assert_holds(contents, weights):
    assert contents.shapes == {name: array.shape for name, array in weights.items()}
    for name, array in weights.items():
        np.testing.assert_array_equal(contents.read(name), array)


# Spelled out, as in test_names.py.
@pytest.mark.parametrize(
    ("huggingface", "original", "transposed"),
    [
        ("bert/embeddings/word_embeddings/weight:0", "bert/embeddings/word_embeddings", False),
        (
            "model_weights/a/tf_bert_model_1/bert/embeddings/token_type_embeddings/embeddings:0",
            "bert/embeddings/token_type_embeddings",
            False,
        ),
        (
            "bert/encoder/layer_._11/attention/self/query/kernel:0",
            "bert/encoder/layer_11/attention/self/query/kernel",
            False,
        ),
        (
            "x/bert/encoder/layer_._0/output/LayerNorm/beta",
            "bert/encoder/layer_0/output/LayerNorm/beta",
            False,
        ),
        ("mlm___cls/predictions/bias:0", "cls/predictions/output_bias", False),
        (
            "y/mlm___cls/predictions/transform/dense/kernel",
            "cls/predictions/transform/dense/kernel",
            False,
        ),
        (
            "nsp___cls/seq_relationship/kernel:0",
            "cls/seq_relationship/output_weights",
            True,
        ),
        ("qa_outputs/kernel:0", "cls/squad/output_weights", True),
        ("qa_outputs/bias:0", "cls/squad/output_bias", False),
        ("tf_bert_for_multiple_choice/classifier/kernel:0", "output_weights", True),
        ("classifier/bias:0", "output_bias", False),
    ],
)
def test_names(huggingface, original, transposed):
    assert names.from_huggingface(huggingface) == (original, transposed)


@pytest.mark.parametrize(
    "name",
    [
        "bert/encoder/layer_0/output/dense/kernel",
        "bert/encoder/layer_._0/output/dense/kernel/m",
        "bert/encoder/layer_._0/crossattention/self/query/kernel:0",
        "roberta/pooler/dense/kernel:0",
    ],
)
def test_unknown_names(name):
    assert names.from_huggingface(name) is None


def write_h5(path, tensors, root="", copies=()):
    with h5py.File(path, "w") as file:
        for name, array in tensors.items():
            layer = name.partition("/")[0]
            file[f"{root}{layer}/{OUTER}/{name}:0"] = array
        for name, array in dict(copies).items():
            file[name] = array
    return str(path)


def test_h5_with_copies_and_an_optimizer(tmp_path, weights):
    tensors = stored(weights)
    copy = f"model_weights/mlm___cls/{OUTER}/{WORDS}"
    slot = f"optimizer_weights/Adam/{OUTER}/{WORDS}"
    extra = {copy: tensors[WORDS[:-2]], slot: np.ones((13, 4), np.float32)}
    extra["model_weights/dense/dense/kernel:0"] = np.ones((4, 7), np.float32)
    path = tmp_path / "tf_model.h5"
    write_h5(path, tensors, "model_weights/", extra)
    assert hf_h5_file(str(tmp_path)) == hf_h5_file(str(path)) == str(path)
    contents = hf_h5_contents(str(path))
    assert_holds(contents, weights)
    assert contents.ignored == [copy, slot]
    assert contents.unmapped == ["model_weights/dense/dense/kernel:0"]
    extra[copy] = tensors[WORDS[:-2]] + 1
    write_h5(path, tensors, "model_weights/", extra)
    with pytest.raises(ModelingError, match=r"twice, .* and the two differ"):
        hf_h5_contents(str(path))


def test_h5_shards(tmp_path, weights):
    tensors = stored(weights)
    files = [f"tf_model-0000{i}-of-00002.h5" for i in (1, 2)]
    weight_map = {f"{OUTER}/{name}:0": files[i % 2] for i, name in enumerate(tensors)}
    for shard in files:
        with h5py.File(tmp_path / shard, "w") as file:
            for name in tensors:
                if weight_map[f"{OUTER}/{name}:0"] == shard:
                    file[f"{name}:0"] = tensors[name]
    index = tmp_path / "tf_model.h5.index.json"
    index.write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    assert hf_h5_file(str(tmp_path)) == hf_h5_file(str(index)) == str(index)
    assert_holds(hf_h5_contents(str(index)), weights)
    for name, words in (
        ("../tf_model-00001-of-00002.h5", "Nothing outside its folder is read"),
        ("tf_model-00002-of-00002.h5", "says that .* which it doesn't"),
        ("tf_model-00003-of-00002.h5", "which is not beside it"),
    ):
        first = next(iter(weight_map))
        index.write_text(json.dumps({"weight_map": weight_map | {first: name}}))
        with pytest.raises(ModelingError, match=words):
            hf_h5_contents(str(index))
    index.write_text(json.dumps({"weight_map": weight_map | {f"other/{WORDS}": files[0]}}))
    with pytest.raises(ModelingError, match=r"word_embeddings.* twice"):
        hf_h5_contents(str(index))


def test_safetensors_shards_of_tensorflow(tmp_path, weights):
    tensors = {f"{name}:0": np.ascontiguousarray(a) for name, a in stored(weights).items()}
    safetensors.numpy.save_file(tensors, tmp_path / "model-1.safetensors")
    index = tmp_path / "model.safetensors.index.json"
    weight_map = {f"{OUTER}/{name}": "model-1.safetensors" for name in tensors}
    index.write_text(json.dumps({"weight_map": weight_map}))
    assert_holds(huggingface.contents(str(index)), weights)


def test_other_h5_files_are_not_claimed(tmp_path):
    path = tmp_path / "model.weights.h5"
    with h5py.File(path, "w") as file:
        file["layers/dense/vars/0"] = np.ones((4, 4), np.float32)
    (tmp_path / "text.h5").write_text("no HDF5")
    assert hf_h5_file(str(path)) is hf_h5_file(str(tmp_path)) is None
    assert hf_h5_file(str(tmp_path / "absent.h5")) is None


@pytest.mark.parametrize("damage", [lambda c: c[:-1], lambda c: c[: len(c) // 2], lambda c: c[:9]])
def test_damaged_h5(tmp_path, weights, damage):
    path = tmp_path / "tf_model.h5"
    write_h5(path, stored(weights))
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(ModelingError, match="not a whole HDF5 file"):
        hf_h5_file(str(tmp_path))


def test_h5_that_lies(tmp_path, weights):
    """Nothing outside the file is read, and nothing that isn't in it takes memory."""
    secret = tmp_path / "secret"
    secret.write_bytes(bytes(1000))
    other = write_h5(tmp_path / "other.h5", stored(weights))
    path = tmp_path / "tf_model.h5"
    group = f"bert/{OUTER}/bert/"
    with h5py.File(path, "w") as file:
        file[f"{group}encoder/layer_._0/output/dense/bias:0"] = np.ones(4, np.float32)
        stands = {"shape": (13, 4), "dtype": "float32"}
        file.create_dataset(f"{group}embeddings/word_embeddings/weight:0", (1 << 40, 4), "float32")
        external = [(str(secret), 0, h5py.h5f.UNLIMITED)]
        file.create_dataset(f"{group}pooler/dense/bias:0", **stands, external=external)
        zeros = file.create_dataset(f"{group}pooler/dense/kernel:0", **stands, compression="gzip")
        zeros[:] = 0
        embeddings = file[f"{group}embeddings"]
        embeddings["LayerNorm"] = h5py.ExternalLink(other, f"{group}embeddings/LayerNorm")
        embeddings["again"] = file
    contents = hf_h5_contents(hf_h5_file(str(path)))
    assert "bert/embeddings/LayerNorm/gamma" not in contents.shapes
    assert contents.read("bert/encoder/layer_0/output/dense/bias").sum() == 4
    for name in ("embeddings/word_embeddings", "pooler/dense/bias", "pooler/dense/kernel"):
        with pytest.raises(ModelingError, match="compressed, incomplete or stored in another"):
            contents.read(f"bert/{name}")
    with h5py.File(path, "w") as file:
        file["/".join("a" * 40)] = 1
    with pytest.raises(ModelingError, match="nested more than 32 deep"):
        hf_h5_file(str(path))


def write_objects(prefix, tensors, keys=()):
    """A checkpoint as tf.train.Checkpoint writes it, without the classes that it was made of."""
    graph = trackable_object_graph_pb2.TrackableObjectGraph()
    graph.nodes.add()
    places = enumerate(tensors.items())
    named = {f"model/place_{i}/{VALUE}": (f"{OUTER}/{n}", array) for i, (n, array) in places}
    named |= dict(keys)
    bundle = {key: array for key, (_, array) in named.items()}
    for key, (name, _) in [*named.items(), ("absent", (f"{OUTER}/{WORDS}", None))]:
        number = 0
        for part in key.partition("/.ATTR")[0].split("/"):
            ways = {child.local_name: child.node_id for child in graph.nodes[number].children}
            if part not in ways:
                graph.nodes[number].children.add(local_name=part, node_id=len(graph.nodes))
            number = ways.get(part, len(graph.nodes))
            if number == len(graph.nodes):
                graph.nodes.add()
        attribute = "VARIABLE_VALUE"
        graph.nodes[number].attributes.add(name=attribute, checkpoint_key=key, full_name=name)
    bundle["_CHECKPOINTABLE_OBJECT_GRAPH"] = np.array(graph.SerializeToString(), object)
    tf1.write_bundle(str(prefix), bundle)
    return str(prefix)


def test_objects_with_an_optimizer(tmp_path, weights):
    tensors = stored(weights)
    kernel = "bert/pooler/dense/kernel"
    slot = f"model/place_1/.OPTIMIZER_SLOT/optimizer/m/{VALUE}"
    moment, count = f"optimizer/_variables/2/{VALUE}", f"save_counter/{VALUE}"
    other = f"dense/kernel/{VALUE}"
    keys = {
        slot: (f"{OUTER}/{kernel}", tensors[kernel]),
        moment: (f"Adam/m/{OUTER}/{kernel}", tensors[kernel]),
        count: ("save_counter", np.int64(1)),
        other: ("dense/kernel", tensors[kernel]),
    }
    prefix = write_objects(tmp_path / "ckpt-1", tensors, keys)
    for path in (prefix, f"{prefix}.index", f"{prefix}.data-00000-of-00001", str(tmp_path)):
        assert hf_objects_file(path) == prefix
    contents = hf_objects_contents(prefix)
    assert_holds(contents, weights)
    assert contents.unmapped == [other]
    assert contents.ignored == sorted([slot, moment, count])
    again = {f"student/{VALUE}": (f"student/{kernel}", tensors[kernel])}
    with pytest.raises(ModelingError, match="bert/pooler/dense/kernel twice"):
        hf_objects_contents(write_objects(tmp_path / "ckpt-2", tensors, again))
    with pytest.raises(ModelingError, match="several checkpoints"):
        hf_objects_file(str(tmp_path))


def test_other_bundles_are_not_claimed(tmp_path, weights):
    tf1.write_bundle(tmp_path / "bert_model.ckpt", weights)
    assert hf_objects_file(str(tmp_path)) is None
    assert hf_objects_file(str(tmp_path / "absent")) is None
    (tmp_path / "bert_model.ckpt.index").write_bytes(b"damaged")
    assert hf_objects_file(str(tmp_path)) is None


def test_damaged_objects(tmp_path, weights):
    prefix = write_objects(tmp_path / "ckpt-1", stored(weights))
    data = tmp_path / "ckpt-1.data-00000-of-00001"
    content = data.read_bytes()
    for kept in (content[: len(content) // 2], content[::-1], b""):
        data.write_bytes(kept)
        with pytest.raises(ModelingError, match="can't be read") as raised:
            contents = hf_objects_contents(prefix)
            for name in contents.shapes:
                contents.read(name)
        assert "\n" not in str(raised.value)
    graph = {"_CHECKPOINTABLE_OBJECT_GRAPH": np.array(b"\xff" * 9, object)}
    tf1.write_bundle(prefix, graph | {"a": np.ones(3, np.float32)})
    with pytest.raises(ModelingError, match=r"object graph .* can't be read"):
        hf_objects_file(prefix)
    tf1.write_bundle(prefix, {"_CHECKPOINTABLE_OBJECT_GRAPH": tf.constant(1.0)})
    with pytest.raises(ModelingError, match=r"object graph .* can't be read"):
        hf_objects_file(prefix)
