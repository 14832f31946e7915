"""PyTorch's files, made byte by byte: both layouts, every type, and what must not be opened."""

import collections
import io
import json
import pickle
import struct
import sys
import types
import zipfile

import numpy as np
import pytest
import tensorflow as tf

from modeling.checkpoints import huggingface
from modeling.checkpoints.formats.torch_file import TorchFile, torch_contents, torch_file
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
STORAGES = {"float32": "Float", "float16": "Half", "float64": "Double", "bfloat16": "BFloat16"}
STORAGES |= {"int64": "Long", "int8": "Char", "uint8": "Byte", "bool": "Bool"}
MAGIC = 0x1950A86A20F9469CFC6C


def integer(value: int) -> bytes:
    return b"J" + struct.pack("<i", value)


def text(value: str) -> bytes:
    return b"X" + struct.pack("<I", len(value)) + value.encode()


def tensor(key, shape, strides, offset=0, size=None, storage="Float", view=b"") -> bytes:
    """The pickle's instructions for one tensor, as torch.save writes them."""
    size = int(np.prod(shape)) if size is None else size
    kept = b"((" + text("storage") + f"ctorch\n{storage}Storage\n".encode() + text(key)
    kept += text("cpu") + integer(size) + view + b"tQ" + integer(offset)
    for numbers in (shape, strides):
        kept += b"(" + b"".join(map(integer, numbers)) + b"t"
    return b"ctorch._utils\n_rebuild_tensor_v2\n" + kept + b"\x89ccollections\nOrderedDict\n)RtR"


def dense(key, array, view=b"") -> bytes:
    strides = [stride // array.itemsize for stride in array.strides]
    return tensor(key, array.shape, strides, storage=STORAGES[array.dtype.name], view=view)


def state(parts: dict[str, bytes]) -> bytes:
    return b"\x80\x02}(" + b"".join(text(name) + part for name, part in parts.items()) + b"u."


def archive(path, pickled, storages=(), compression=zipfile.ZIP_STORED):
    with zipfile.ZipFile(path, "w", compression) as file:
        file.writestr("archive/data.pkl", pickled)
        for key, data in dict(storages).items():
            file.writestr(f"archive/data/{key}", data)
    return str(path)


def saved(path, arrays: dict[str, np.ndarray]):
    arrays = {name: np.array(array, order="C") for name, array in arrays.items()}
    pickled = state({name: dense(f"{i}", a) for i, (name, a) in enumerate(arrays.items())})
    return archive(path, pickled, {f"{i}": a.tobytes() for i, a in enumerate(arrays.values())})


def saved_before_1_6(path, arrays):
    arrays = {name: np.array(array, order="C") for name, array in arrays.items()}
    content = b"".join(pickle.dumps(part, 2) for part in (MAGIC, 1001, {"little_endian": True}))
    content += state({name: dense(f"{i}", a, b"N") for i, (name, a) in enumerate(arrays.items())})
    content += pickle.dumps([f"{i}" for i in range(len(arrays))], 2)
    for array in arrays.values():
        content += struct.pack("<q", array.size) + array.tobytes()
    path.write_bytes(content)
    return str(path)


@pytest.fixture
def weights():
    return numpy_bert.random_weights(CONFIG, heads=("pretraining", "classifier", "squad"))


@pytest.mark.parametrize("save", [saved, saved_before_1_6])
@pytest.mark.parametrize("prefix", ["", "module.", "module.0.auto_model.", "model._orig_mod."])
def test_all_weights_behind_wrappers_names(tmp_path, weights, save, prefix):
    tensors = {f"{prefix}{n}": a for n, a in huggingface.huggingface_weights(weights).items()}
    words = tensors[f"{prefix}bert.embeddings.word_embeddings.weight"]
    decoder, buffer = f"{prefix}cls.predictions.decoder.weight", f"{prefix}embeddings.position_ids"
    tensors |= {decoder: words, buffer: np.arange(6)[None], "other": words}
    file = save(tmp_path / "pytorch_model.bin", tensors)
    assert torch_file(str(tmp_path)) == torch_file(file) == file
    contents = torch_contents(file)
    assert contents.shapes == {name: array.shape for name, array in weights.items()}
    for name, array in weights.items():
        np.testing.assert_array_equal(contents.read(name), array)
    assert (contents.unmapped, contents.ignored) == (["other"], sorted([decoder, buffer]))
    tensors[decoder] = words + 1
    contents = torch_contents(save(tmp_path / "pytorch_model.bin", tensors))
    assert contents.untied_decoder
    assert contents.unmapped == [decoder, "other"]


def nested(**parts) -> bytes:
    """A state of dictionaries and whatever else."""
    return state({key: part[2:-1] for key, part in parts.items()})


@pytest.mark.parametrize("key", ["state_dict", "model_state_dict", "model", "net"])
def test_a_dictionary_inside_the_file_s(tmp_path, key):
    words = "model.bert.embeddings.word_embeddings.weight"
    tensors = state({words: tensor("0", (3, 2), (2, 1))})
    parts = {
        "optimizer": state({"state": state({"exp": tensor("1", (4,), (1,))})[2:-1]}),
        "rng_state": b"\x80\x02" + tensor("2", (4,), (1,), storage="Byte") + b".",
        "epoch": b"\x80\x02K\x07.",
        key: tensors,
        "rng": state({"cpu": tensor("2", (4,), (1,), storage="Byte")}),
    }
    numbers = np.arange(6, dtype=np.float32)
    storages = {"0": numbers.tobytes(), "1": bytes(16), "2": bytes(4)}
    contents = torch_contents(archive(tmp_path / "a.ckpt", nested(**parts), storages))
    assert contents.file_names == {"bert/embeddings/word_embeddings": words}
    read = contents.read("bert/embeddings/word_embeddings")
    np.testing.assert_array_equal(read, numbers.reshape(3, 2))
    file = archive(tmp_path / "b.ckpt", nested(ema=tensors, **parts), storages)
    with pytest.raises(ModelingError, match=f"several dictionaries .* under 'ema', '{key}'"):
        torch_contents(file)


class FloatStorage:
    """What a pickle calls torch.FloatStorage."""

    def __init__(self, key, size):
        self.key, self.size = key, size


def _rebuild_tensor_v2():
    """Only named in the pickle."""


class _Tensor:
    def __init__(self, storage, shape, strides):
        self.parts = (storage, 0, shape, strides, False, collections.OrderedDict())

    def __reduce__(self):
        return _rebuild_tensor_v2, self.parts


class _Pickler(pickle.Pickler):
    def persistent_id(self, value):
        if isinstance(value, FloatStorage):
            return ("storage", FloatStorage, value.key, "cpu", value.size)
        return None


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_pickles_of_python_s_own_pickler(tmp_path, monkeypatch, protocol):
    """As torch.save does it: with a state dict's _metadata, shared objects and any protocol."""
    for module, named in (("torch", FloatStorage), ("torch._utils", _rebuild_tensor_v2)):
        monkeypatch.setitem(sys.modules, module, types.ModuleType(module))
        monkeypatch.setattr(sys.modules[module], named.__name__, named, raising=False)
        monkeypatch.setattr(named, "__module__", module)
    shared = FloatStorage("0", 12)
    held = collections.OrderedDict(a=_Tensor(shared, (3, 4), (4, 1)))
    held["b"] = _Tensor(shared, (4, 3), (1, 4))
    held["again"] = held["a"]
    held._metadata = collections.OrderedDict({"": {"version": 1}, "bert": {"version": 1}})
    written = io.BytesIO()
    _Pickler(written, protocol).dump(held)
    numbers = np.arange(12, dtype=np.float32)
    path = archive(tmp_path / "a.bin", written.getvalue(), {"0": numbers.tobytes()})
    file = TorchFile(path)
    assert list(file.shapes) == ["a", "b", "again"]
    for name in ("a", "again"):
        np.testing.assert_array_equal(file.read(name), numbers.reshape(3, 4))
    np.testing.assert_array_equal(file.read("b"), numbers.reshape(3, 4).T)


def test_shards(tmp_path, weights):
    tensors = huggingface.huggingface_weights(weights)
    weight_map = {name: f"pytorch_model-{i % 2}.bin" for i, name in enumerate(tensors)}
    for shard in set(weight_map.values()):
        saved(tmp_path / shard, {n: tensors[n] for n in tensors if weight_map[n] == shard})
    index = tmp_path / "pytorch_model.bin.index.json"
    index.write_text(json.dumps({"weight_map": weight_map}))
    assert torch_file(str(tmp_path)) == str(index)
    contents = torch_contents(str(index))
    for name, array in weights.items():
        np.testing.assert_array_equal(contents.read(name), array)
    index.write_text(json.dumps({"weight_map": {"classifier.bias": "../pytorch_model-0.bin"}}))
    with pytest.raises(ModelingError, match="Nothing outside its folder is read"):
        torch_contents(str(index))


@pytest.mark.parametrize("save", [saved, saved_before_1_6])
def test_types_and_shapes(tmp_path, save):
    bfloat16 = np.array([1.5, -2.0], tf.bfloat16.as_numpy_dtype)
    arrays = {name: np.array([[0, 1, 1]]).astype(name) for name in STORAGES if name != "bfloat16"}
    arrays |= {"bfloat16": bfloat16, "empty": np.zeros((0, 3), np.float32), "one": np.float32(2)}
    file = TorchFile(save(tmp_path / "a.pt", arrays))
    for name, array in arrays.items():
        got = file.read(name)
        assert (got.shape, got.dtype) == (np.shape(array), array.dtype)
        np.testing.assert_array_equal(got, array)


def test_views_of_one_storage(tmp_path):
    numbers = np.arange(24, dtype=np.float32)
    parts = {
        "transposed": tensor("0", (3, 4), (1, 3), offset=12, size=24),
        "column": tensor("0", (4,), (3,), offset=1, size=24),
        "last": tensor("0", (), (), offset=23, size=24),
    }
    file = TorchFile(archive(tmp_path / "a.bin", state(parts), {"0": numbers.tobytes()}))
    np.testing.assert_array_equal(file.read("transposed"), numbers[12:].reshape(4, 3).T)
    np.testing.assert_array_equal(file.read("column"), numbers[1:12:3])
    assert file.read("last") == 23


class _Runs:
    def __init__(self, function, *arguments):
        self.called = (function, arguments)

    def __reduce__(self):
        return self.called


@pytest.mark.parametrize(
    ("function", "name"),
    [
        ((__import__("os").system, "echo > hacked"), "posix.system"),
        ((eval, "open('hacked', 'w')"), "builtin.*eval"),
        ((getattr, "", "join"), "builtin.*getattr"),
        ((BertConfig, 5), "modeling.config.BertConfig"),
        ((np.zeros, 5), "numpy.*zeros"),
    ],
)
@pytest.mark.parametrize("protocol", [2, 4])
@pytest.mark.parametrize("legacy", [False, True])
def test_nothing_is_called(tmp_path, monkeypatch, function, name, protocol, legacy):
    monkeypatch.chdir(tmp_path)
    pickled = pickle.dumps({"classifier.bias": _Runs(*function)}, protocol)
    path = tmp_path / "a.bin"
    archive(path, pickled)
    if legacy:
        head = (pickle.dumps(part, 2) for part in (MAGIC, 1001, {"little_endian": True}))
        path.write_bytes(b"".join(head) + pickled)
    with pytest.raises(ModelingError, match=rf"asks for '.*{name}' to be called") as raised:
        torch_contents(str(path))
    assert "\n" not in str(raised.value)
    assert not (tmp_path / "hacked").exists()


BIG = 1 << 30
PERSISTENT = b"(" + text("storage")


@pytest.mark.parametrize(
    "pickled",
    [
        state({"a": tensor("0", (5,), (1,), size=4)}),  # beyond its storage
        state({"a": tensor("0", (4,), (1,), offset=1, size=4)}),
        state({"a": tensor("0", (2, 2), (3, 1), size=4)}),
        state({"a": tensor("0", (BIG, BIG), (0, 0), size=4)}),  # one number repeated
        state({"a": tensor("0", (4,), (-1,), offset=3, size=4)}),
        state({"a": tensor("0", (4,), (1, 1), size=4)}),
        state({"a": tensor("0", (-4,), (1,), size=4)}),
        state({"a": tensor("0", (4,), (1,), size=BIG)}),  # beyond the file
        state({"a": tensor("0", (4,), (1,), storage="Double")}),
        state({"a": tensor("1", (4,), (1,))}),  # no such storage
        state({"a": tensor("../data.pkl", (4,), (1,))}),
        state({"a": tensor("0", (4,), (1,), storage="Untyped")}),
        state({"a": tensor("0", (1,), (1,), size=4), "b": tensor("0", (1,), (1,), size=2)}),
        state({"a": b"N"}),
        state({"optimizer": b"}"}),
        b"\x80\x02" + b"]" * 10_000 + b"a" * 9_999 + b".",  # nested lists
        b"\x80\x02)" + b"\x85" * 20_000 + b".",
        b"\x80\x02)" + b"q\0h\0\x86" * 100 + b"q\0}h\0Ns.",  # hashed, it would take for ever
        b"\x80\x02" + b"}" * 2_000_000,
        b"\x80\x02(" + text("a") + b"u.",
        b"\x80\x02}}NNs.",
        b"\x80\x02ctorch\nFloatStorage\n)R.",
        b"\x80\x02h\x07.",
        state({"a": tensor("0", (4,), (1,)), "b": b"ccollections\nOrderedDict\n}\x85R"}),
        b"\x80\x02" + PERSISTENT + b"tQ.",
        b"\x80\x02" + PERSISTENT + b"NNNNtQ.",
        b"\x80\x02NQ.",
        b"cos\nsystem\n.",
        b".",
        b"",
    ],
)
def test_pickles_that_lie(tmp_path, pickled):
    file = archive(tmp_path / "a.bin", pickled, {"0": bytes(16)})
    with pytest.raises(ModelingError, match=r"a\.bin ") as raised:
        torch_contents(file)
    assert "\n" not in str(raised.value)
    assert len(str(raised.value)) < 700


@pytest.mark.parametrize("save", [saved, saved_before_1_6])
@pytest.mark.parametrize(
    "damage",
    [
        lambda content: content[:-1],
        lambda content: content[: len(content) // 2],
        lambda content: content[:40],
        lambda content: content[:4],
        lambda content: b"",
        lambda content: b"version https://git-lfs.github.com/spec/v1\n",
        lambda content: content[:60] + content[200:60:-1] + content[200:],
        lambda content: content[:26] + b"\xff\xff" + content[28:],  # the length of a name
    ],
)
def test_damaged_files(tmp_path, save, damage):
    path = tmp_path / "pytorch_model.bin"
    save(path, {"classifier.weight": np.ones((9, 9), np.float32)})
    path.write_bytes(damage(path.read_bytes()))
    assert torch_file(str(tmp_path)) == str(path)
    wanted = r"pytorch_model\.bin (is no|holds no|asks for)"
    with pytest.raises(ModelingError, match=wanted) as raised:
        torch_contents(str(path)).read("output_weights")
    assert len(str(raised.value)) < 700


def test_changed_numbers_are_noticed(tmp_path):
    """By the checksum that the archive has of each storage."""
    path = tmp_path / "pytorch_model.bin"
    saved(path, {"classifier.weight": np.arange(81, dtype=np.float32)})
    content = path.read_bytes()
    path.write_bytes(content.replace(np.float32(7).tobytes(), np.float32(8).tobytes()))
    with pytest.raises(ModelingError, match="Bad CRC"):
        torch_contents(str(path)).read("output_weights")


def test_packed_archives_are_refused(tmp_path):
    """A few kilobytes of them could be gigabytes of zeros."""
    parts = {"a": tensor("0", (1 << 24,), (1,))}
    zeros = {"0": bytes(1 << 26)}
    file = archive(tmp_path / "a.bin", state(parts), zeros, zipfile.ZIP_DEFLATED)
    with pytest.raises(ModelingError, match="is compressed"):
        torch_contents(file)


def test_folders(tmp_path):
    assert torch_file(str(tmp_path)) is None
    saved(tmp_path / "training_args.bin", {"a": np.ones(1, np.float32)})
    (tmp_path / "notes.bin").write_bytes(b"no model")
    assert torch_file(str(tmp_path)) is None
    file = saved(tmp_path / "weights.pt", {"a": np.ones(1, np.float32)})
    assert torch_file(str(tmp_path)) == file
    saved(tmp_path / "weights.pth", {"a": np.ones(1, np.float32)})
    with pytest.raises(ModelingError, match=r"weights\.pt, weights\.pth"):
        torch_file(str(tmp_path))
