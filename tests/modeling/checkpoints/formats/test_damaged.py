"""Every format's files cut off, mixed up and hostile: refused in one paragraph, or read right.

What can't be noticed isn't asked for: where a format has no checksums (safetensors, HDF5, PyTorch
before 1.6), numbers that changed places, and names of weights of equal shape that did.
"""

import json
import os
import pathlib
import random
import resource
import shutil
import struct
import tracemalloc
import zipfile

import h5py
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf.trackable_object_graph_pb2 import TrackableObjectGraph

from modeling import checkpoints
from modeling.checkpoints import tf1
from modeling.checkpoints.formats.torch_file import TorchFile
from modeling.errors import ModelingError
from tests.modeling.checkpoints.formats.test_torch_file import saved_before_1_6

# Name → the example's folder and the files that its weights are in.
BUNDLE = (".index", ".data-00000-of-00001")
FORMATS = {
    "original": ("", tuple(f"bert_model.ckpt{part}" for part in BUNDLE)),
    "safetensors of PyTorch": ("pytorch_safetensors", ("model.safetensors",)),
    "safetensors of TensorFlow": ("TFBertModel.safetensors", ("model.safetensors",)),
    "h5": ("TFBertForPreTraining.h5", ("tf_model.h5",)),
    "objects": ("hf_checkpoint", tuple(f"ckpt-1{part}" for part in BUNDLE)),
    "garden": ("mg_release", tuple(f"bert_model.ckpt{part}" for part in BUNDLE)),
    "hub": ("tfhub", ("saved_model.pb", *(f"variables/variables{part}" for part in BUNDLE))),
    "preset": ("kh_classifier", ("model.weights.h5", "task.weights.h5")),
    "keras": ("kh_keras", ("backbone.keras",)),
    "pytorch": ("pytorch_bin", ("pytorch_model.bin",)),
    "pytorch before 1.6": ("", ("pytorch_model.bin",)),
}
FILES = [(name, file) for name, (_, files) in FORMATS.items() for file in files]
CHECKED = [(n, f) for n, f in FILES if n in ("original", "objects", "garden", "pytorch")]
CHECKED += [(n, f) for n, f in FILES if n == "hub" and f != "saved_model.pb"]

SEEDS = [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 9))]


@pytest.fixture
def example(formats, tmp_path):
    """Makes a format's folder, whole."""

    def make(name) -> pathlib.Path:
        source, target = formats / FORMATS[name][0], tmp_path / "model"
        if name == "original":
            checkpoints.convert(formats / "mg_classifier", target, "tf1")
        elif name == "pytorch before 1.6":
            source = formats / "pytorch_bin"
            target.mkdir()
            file = TorchFile(str(source / "pytorch_model.bin"))
            tensors = {name: file.read(name) for name in file.shapes}
            saved_before_1_6(target / "pytorch_model.bin", tensors)
            shutil.copy(source / "config.json", target)
        else:
            shutil.copytree(source, target)
        return target

    return make


def weights(folder) -> dict[str, np.ndarray]:
    held = checkpoints.open_contents(folder)
    return {name: held.read(name) for name in held.shapes}


def refused_or_right(folder, whole) -> bool:
    """Whether it is refused; where it isn't, every weight must be what it was."""
    try:
        got = weights(folder)
    except ModelingError as error:
        assert str(folder) in str(error)
        assert "\n\n" not in str(error)
        assert len(str(error)) < 1500
        return True
    assert got.keys() == whole.keys()
    for name, array in whole.items():
        np.testing.assert_array_equal(got[name], array, err_msg=name)
    return False


def damage(folder, file, content, damages, whole) -> list[bool]:
    refused = []
    for changed in damages:
        (folder / file).write_bytes(changed)
        refused.append(refused_or_right(folder, whole))
    (folder / file).write_bytes(content)
    return refused


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("name", "file"), FILES)
def test_cut_off(example, name, file, seed):
    folder = example(name)
    whole, content = weights(folder), (folder / file).read_bytes()
    size, rng = len(content), random.Random(seed)
    places = {0, 1, 9, size // 2, size - 1, *(rng.randrange(size) for _ in range(3))}
    refused = damage(folder, file, content, [content[:at] for at in sorted(places)], whole)
    assert refused[0] or file == "task.weights.h5"
    assert any(refused[1:])


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("name", "file"), CHECKED)
def test_bytes_in_another_order(example, name, file, seed):
    folder = example(name)
    whole, content = weights(folder), (folder / file).read_bytes()
    rng = random.Random(seed)
    changes = []
    for _ in range(4):
        first, second, third = sorted(rng.sample(range(len(content)), 3))
        parts = content[:first], content[second:third], content[first:second], content[third:]
        changes.append(b"".join(parts))
    assert any(damage(folder, file, content, changes, whole))


def converted_or_refused(folder, words):
    with pytest.raises(ModelingError, match=words) as raised:
        checkpoints.convert(folder, folder.parent / "out", "tf1")
    assert "\n\n" not in str(raised.value)
    assert not (folder.parent / "out").exists()


def with_header(change):
    """Rewrites the header of safetensors."""

    def apply(folder):
        file = folder / "model.safetensors"
        content = file.read_bytes()
        length = struct.unpack("<Q", content[:8])[0]
        header = json.loads(content[8 : 8 + length])
        text = change(header) or json.dumps(header)
        file.write_bytes(struct.pack("<Q", len(text)) + text.encode() + content[8 + length :])

    return apply


def _name(header, end) -> str:
    return next(name for name in header if name.endswith(end))


def named(header, end) -> dict:
    return header[_name(header, end)]


def swap(one, other, key):
    one[key], other[key] = other[key], one[key]


QUERY, KEY = "layer.0.attention.self.query.weight", "layer.0.attention.self.key.weight"
WIDE = "layer.0.intermediate.dense.weight"
SAFETENSORS = {
    "offsets of others": lambda h: swap(named(h, QUERY), named(h, WIDE), "data_offsets"),
    "overlapping": lambda h: named(h, QUERY).update(data_offsets=named(h, KEY)["data_offsets"]),
    "shapes of others": lambda h: swap(named(h, QUERY), named(h, WIDE), "shape"),
    "another axis": lambda h: named(h, WIDE)["shape"].reverse(),
    "lost": lambda h: h.pop(_name(h, KEY)) and None,
    "twice": lambda h: f"{json.dumps(h)[:-1]}, {json.dumps({_name(h, KEY): named(h, QUERY)})[1:]}",
    "huge": lambda h: named(h, WIDE).update(shape=[1 << 40, 1 << 20]),
    "negative": lambda h: named(h, WIDE).update(shape=[-43, -32]),
    "another type": lambda h: named(h, WIDE).update(dtype="I32"),
    "long": lambda h: h["__metadata__"].update(more="x" * 5_000_000),
    "nested": lambda h: '{"a":' * 100_000 + "1" + "}" * 100_000,
}


@pytest.mark.parametrize("case", SAFETENSORS)
def test_safetensors_mixed_up(example, case):
    folder = example("safetensors of PyTorch")
    with_header(SAFETENSORS[case])(folder)
    converted_or_refused(folder, r"model\.safetensors")


def in_h5(change):
    def apply(folder):
        file = folder / ("tf_model.h5" if (folder / "tf_model.h5").exists() else "model.weights.h5")
        with h5py.File(file, "a") as opened:
            found = {}
            opened.visititems(lambda n, item: found.setdefault(n, item) and None)
            arrays = {n: item for n, item in found.items() if isinstance(item, h5py.Dataset)}
            wide = next(n for n in arrays if "intermediate" in n and arrays[n].ndim == 2)
            biases = [n for n in arrays if "intermediate" in n and arrays[n].ndim == 1]
            change(opened, wide, *biases[:2])

    return apply


def _linked(file, wide, bias, other):
    del file[wide]
    file[wide] = file[bias]


def _twice(file, wide, bias, other):
    del file[other]
    file[other] = file[bias]


def _reshaped(file, wide, bias, other):
    array = file[wide][()]
    del file[wide]
    file[wide] = array.T


def _huge(file, wide, bias, other):
    del file[wide]
    file.create_dataset(wide, (1 << 40, 1 << 10), np.float32)


def _external(file, wide, bias, other):
    del file[wide]
    file.create_dataset(wide, (32, 43), np.float32, external=[("/etc/passwd", 0, 32 * 43 * 4)])


def _many_times(file, wide, bias, other):
    """Each of its elements is the same run of numbers, which stands in the file once."""
    del file[wide]
    file.create_dataset(wide, (32, 43), h5py.vlen_dtype(np.float32))[:] = np.ones(9, np.float32)


def _link_outside(file, wide, bias, other):
    del file[wide]
    file[wide] = h5py.ExternalLink("/etc/passwd", "x")


@pytest.mark.parametrize("name", ["h5", "preset"])
@pytest.mark.parametrize(
    "change",
    [_linked, _twice, _reshaped, _huge, _external, _many_times, _link_outside],
    ids=lambda c: c.__name__,
)
def test_h5_mixed_up(example, name, change):
    folder = example(name)
    in_h5(change)(folder)
    converted_or_refused(folder, r"\.h5")


def rewritten(folder, prefix, change):
    """Writes a bundle anew with a changed graph of objects."""
    tensors = tf1.read_bundle(folder / prefix)
    graph = TrackableObjectGraph.FromString(tensors[tf1.OBJECT_GRAPH])
    stored = [a for node in graph.nodes for a in node.attributes if a.checkpoint_key in tensors]
    kernels = [a for a in stored if a.full_name.endswith(("query/kernel", "key/kernel"))]
    change(graph, *kernels[:2])
    tensors[tf1.OBJECT_GRAPH] = np.array(graph.SerializeToString(), object)
    tf1.write_bundle(folder / prefix, tensors)


def _keys_swapped(graph, one, other):
    one.checkpoint_key, other.checkpoint_key = other.checkpoint_key, one.checkpoint_key


def _key_twice(graph, one, other):
    one.checkpoint_key = other.checkpoint_key


def _nodes_reversed(graph, one, other):
    nodes = list(graph.nodes)[::-1]
    del graph.nodes[:]
    graph.nodes.extend(nodes)


def _ways_nowhere(graph, one, other):
    for node in graph.nodes:
        for child in node.children:
            child.node_id = 1 << 30


def _names_twice(graph, one, other):
    one.full_name = other.full_name


@pytest.mark.parametrize("name", ["objects", "garden"])
@pytest.mark.parametrize(
    "change",
    [_keys_swapped, _key_twice, _nodes_reversed, _ways_nowhere, _names_twice],
    ids=lambda change: change.__name__,
)
def test_graph_of_objects_mixed_up(example, name, change):
    folder = example(name)
    rewritten(folder, FORMATS[name][1][0].removesuffix(".index"), change)
    converted_or_refused(folder, str(folder))


@pytest.mark.parametrize("name", ["objects", "garden", "hub", "original"])
def test_an_index_that_declares_more_than_there_is(example, name):
    """A slice of a tensor that would be of 16 terabytes."""
    folder = example(name)
    prefix = str(folder / FORMATS[name][1][-1].removesuffix(BUNDLE[1]))
    tensors = tf1.read_bundle(prefix)
    word = {"original": "word_embeddings"}.get(name, ".ATTRIBUTES")
    large = max((n for n in tensors if word in n), key=lambda n: tensors[n].size)
    tensors[large] = np.ones((1, 4), np.float32)
    slices = ["1099511627776 4 0,1:0,4" if n == large else "" for n in tensors]
    arrays = [tf.convert_to_tensor(array) for array in tensors.values()]
    tf.raw_ops.SaveV2(
        prefix=prefix, tensor_names=[*tensors], shape_and_slices=slices, tensors=arrays
    )
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(ModelingError, match="more than the data") as raised:
        weights(folder)
    assert str(folder) in str(raised.value)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000  # kilobytes


def _archive(folder, entries, compression=zipfile.ZIP_DEFLATED):
    (file,) = (f for f in folder.iterdir() if f.suffix in (".bin", ".keras"))
    with zipfile.ZipFile(file, "w", compression) as archive:
        for name, content in entries.items():
            archive.writestr(name, content)


BOMB = bytes(200_000_000)
HOSTILE = {
    "header without end": (
        "safetensors of TensorFlow",
        lambda f: (f / "model.safetensors").write_bytes(struct.pack("<Q", 1 << 62) + b"{" * 99),
    ),
    "index of shards": ("safetensors of PyTorch", lambda f: _long_index(f)),
    "keras bomb": ("keras", lambda f: _archive(f, {"model.weights.h5": BOMB})),
    "configuration bomb": (
        "keras",
        lambda f: _with_entry(f / "backbone.keras", "config.json", b'{"a": "' + BOMB + b'"}'),
    ),
    "pickle bomb": ("pytorch", lambda f: _archive(f, {"archive/data.pkl": BOMB})),
    "graph": ("hub", lambda f: (f / "saved_model.pb").write_bytes(b"\x12\xff\xff\xff\xff\x07")),
    "program": (
        "pytorch",
        lambda f: _archive(f, {"archive/data.pkl": b"cposix\nsystem\n(Vecho\ntR."}, 0),
    ),
}


def _long_index(folder):
    (folder / "model.safetensors").unlink()
    names = {f"{i}": "a.safetensors" for i in range(1_000_000)}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": names}))


def _with_entry(file, name, content):
    with zipfile.ZipFile(file) as archive:
        kept = {n: archive.read(n) for n in archive.namelist() if n != name}
    with zipfile.ZipFile(file, "w") as archive:
        for n, value in kept.items():
            archive.writestr(n, value)
        archive.writestr(name, content, zipfile.ZIP_DEFLATED)


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile(example, case):
    name, spoil = HOSTILE[case]
    folder = example(name)
    spoil(folder)
    size = sum(f.stat().st_size for f in folder.rglob("*") if f.is_file())
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    tracemalloc.start()
    try:
        with pytest.raises(ModelingError) as raised:
            checkpoints.convert(folder, folder.parent / "out", "tf1")
        traced = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert traced < size + 30e6
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak < size / 1e3 + 50_000
    assert str(folder) in str(raised.value)
    assert "\n\n" not in str(raised.value)


@pytest.mark.parametrize("name", [name for name in FORMATS if name not in ("hub", "keras")])
@pytest.mark.parametrize(
    "spoil", [lambda c: c[: len(c) // 2], lambda c: b"[" * 10**5, lambda c: b""]
)
def test_configurations(example, name, spoil):
    folder = example(name)
    files = [folder / file for file in ("bert_config.json", "config.json")]
    files = [file for file in files if file.exists()]
    assert files
    for file in files:
        file.write_bytes(spoil(file.read_bytes()))
        converted_or_refused(folder, str(file))
        assert os.path.exists(file)
