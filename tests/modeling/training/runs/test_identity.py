"""The identity of weights, of every format that is read."""

import json
import shutil

import h5py
import pytest
import tensorflow as tf
from safetensors.numpy import load_file, save_file

from modeling.training.runs.identity import identity_differences, weights_identity

FORMATS = (
    *("TFBertModel.h5", "TFBertModel.safetensors", "hf_checkpoint", "kh_classifier", "kh_keras"),
    *("kh_preset", "mg_classifier", "mg_release", "mg_trainer", "pytorch_bin"),
    *("pytorch_safetensors", "tfhub"),
)


@pytest.mark.parametrize("name", FORMATS)
def test_weights_of_every_format_have_one(formats, tmp_path, name):
    """Fine-tuning asks for it, whatever it begins with; wherever that lies."""
    found = weights_identity(str(formats / name))
    shutil.copytree(formats / name, tmp_path / "moved")
    assert len(found) == 32 and found == weights_identity(str(tmp_path / "moved"))


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("tfhub", "variables/variables"),
        ("pytorch_safetensors", "model"),
        ("TFBertModel.h5", "tf_model"),
        ("kh_classifier", "task"),
        ("kh_preset", "model"),
        ("shards", "model-00002"),
    ],
)
def test_every_file_of_the_weights_counts(golden, tmp_path, name, part):
    """Of several files it isn't that of the one which says what is in the others."""
    folder = tmp_path / "weights"
    if name == "shards":
        safetensors_in_two(golden / "formats/pytorch_safetensors", folder)
    else:
        shutil.copytree(golden / "formats" / name, folder)
    before = weights_identity(str(folder))
    files = [path for path in folder.rglob("*") if str(path.relative_to(folder)).startswith(part)]
    assert any(change_a_weight(path) for path in files)
    assert weights_identity(str(folder)) != before


def safetensors_in_two(source, folder):
    folder.mkdir()
    shutil.copy(source / "config.json", folder)
    [file] = source.glob("*.safetensors")
    tensors = load_file(file)
    names = sorted(tensors)
    halves = {"00001": names[: len(names) // 2], "00002": names[len(names) // 2 :]}
    places = {}
    for number, part in halves.items():
        file_name = f"model-{number}-of-00002.safetensors"
        save_file({n: tensors[n] for n in part}, folder / file_name, {"format": "pt"})
        places |= dict.fromkeys(part, file_name)
    index = {"metadata": {}, "weight_map": places}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def change_a_weight(path):
    """Whether the file holds weights: one number of them is then another."""
    if path.suffix == ".safetensors":
        tensors = load_file(path)
        next(iter(tensors.values())).flat[0] += 1
        save_file(tensors, path, {"format": "pt"})
    elif path.suffix == ".h5":
        with h5py.File(path, "r+") as file:
            kept = []
            file.visititems(lambda _, item: kept.append(item) if is_weight(item) else None)
            kept[0][(0,) * kept[0].ndim] += 1
    elif path.suffix == ".index":
        prefix = str(path.with_suffix(""))
        reader = tf.train.load_checkpoint(prefix)
        tensors = {n: reader.get_tensor(n) for n in reader.get_variable_to_dtype_map()}
        weight = next(t for n, t in tensors.items() if getattr(t, "ndim", 0) == 2)
        weight.flat[0] += 1
        write_any_bundle(prefix, tensors)
    else:
        return False
    return True


def is_weight(item):
    return isinstance(item, h5py.Dataset) and item.ndim > 0 and item.dtype.kind == "f"


def write_any_bundle(prefix, tensors):
    tf.raw_ops.SaveV2(
        prefix=prefix,
        tensor_names=list(tensors),
        shape_and_slices=[""] * len(tensors),
        tensors=[tf.constant(tensor) for tensor in tensors.values()],
    )


def test_settings_that_were_given_once():
    earlier = {"init_checkpoint": "0" * 32, "freeze_layers": None, "corpus_file": ["1" * 32]}
    now = {"init_checkpoint": None, "freeze_layers": "all", "corpus_file": ["2" * 32]}
    assert identity_differences(earlier, now) == (
        "init_checkpoint was given and is not now; freeze_layers was not given and is now; "
        "corpus_file has another content"
    )
