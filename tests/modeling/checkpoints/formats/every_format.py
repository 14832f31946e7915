"""One pre-training model's weights in every format that is read, of any size.

Those of other libraries are made without them: names and layouts are theirs.
"""

import json
import pathlib
import re
import shutil
import zipfile
from collections.abc import Iterable, Mapping

import numpy as np
import safetensors.numpy
import tensorflow as tf

from modeling import checkpoints
from modeling.checkpoints.contents import in_keras_layout
from modeling.checkpoints.huggingface import huggingface_weights
from modeling.config import BertConfig
from tests.modeling.checkpoints.formats import test_hf_tensorflow as hf
from tests.modeling.checkpoints.formats import test_torch_file as torch

Weights = Mapping[str, np.ndarray]


def write_in_formats(
    folder: pathlib.Path, weights: Weights, config: BertConfig, formats: Iterable[str]
) -> None:
    """Makes a folder of the format's name for some of `FORMATS`, with the configuration in it.

    Args:
        folder: Made if absent.
        weights: Original name → float32, encoder and pre-training heads.
        config: Of a model that KerasHub can compute.
        formats: Keys of `FORMATS`; KerasHub's files are parts of its preset, which comes first.
    """
    for name in formats:
        (folder / name).mkdir(parents=True)
        FORMATS[name](folder / name, weights, config)
        if not (folder / name / "config.json").exists():
            (folder / name / "bert_config.json").write_text(config.to_json_string())


def _original(folder, weights, config):
    checkpoints.write_checkpoint(folder, weights, config)


def _safetensors(folder, weights, config):
    checkpoints.write_checkpoint(folder, weights, config, format="huggingface")


def _safetensors_shards(folder, weights, config):
    _shards(folder, weights, config, "model", ".safetensors", safetensors.numpy.save_file)


def _torch(folder, weights, config):
    torch.saved(folder / "pytorch_model.bin", huggingface_weights(weights))
    _huggingface_config(folder, config)


def _torch_shards(folder, weights, config):
    _shards(folder, weights, config, "pytorch_model", ".bin", lambda t, path: torch.saved(path, t))


def _torch_before_1_6(folder, weights, config):
    torch.saved_before_1_6(folder / "pytorch_model.bin", huggingface_weights(weights))
    _huggingface_config(folder, config)


def _h5(folder, weights, config):
    stored = hf.stored(weights)
    tied = {f"mlm___cls/{hf.OUTER}/{hf.WORDS}": stored[hf.WORDS[:-2]]}
    hf.write_h5(folder / "tf_model.h5", stored, copies=tied)
    _huggingface_config(folder, config)


def _objects(folder, weights, config):
    hf.write_objects(folder / "ckpt-1", hf.stored(weights))
    _huggingface_config(folder, config)


def _garden(folder, weights, config):
    tf.train.Checkpoint(model=_program(weights, config)).write(str(folder / "bert_model.ckpt"))


def _hub(folder, weights, config):
    tf.saved_model.save(_program(weights, config), str(folder))


def _preset(folder, weights, config):
    checkpoints.write_checkpoint(folder, weights, config, format="keras_hub")


def _weights_h5(folder, weights, config):
    preset = folder.parent / "KerasHub preset"
    shutil.copy(preset / "model.weights.h5", folder / "bert.weights.h5")


def _keras(folder, weights, config):
    preset = folder.parent / "KerasHub preset"
    with zipfile.ZipFile(folder / "bert.keras", "w") as archive:
        for name in ("config.json", "model.weights.h5"):
            archive.write(preset / name, name)


FORMATS = {
    "original": _original,
    "safetensors": _safetensors,
    "safetensors, 2 shards": _safetensors_shards,
    "pytorch_model.bin": _torch,
    "pytorch_model.bin, 2 shards": _torch_shards,
    "pytorch_model.bin before 1.6": _torch_before_1_6,
    "tf_model.h5": _h5,
    "Hugging Face's objects": _objects,
    "Model Garden": _garden,
    "TF-Hub SavedModel": _hub,
    "KerasHub preset": _preset,
    ".weights.h5": _weights_h5,
    ".keras": _keras,
}


def _huggingface_config(folder, config):
    (folder / "config.json").write_text(json.dumps(config.to_huggingface_dict()))


def _shards(folder, weights, config, stem, ending, save):
    tensors = {name: np.array(a, order="C") for name, a in huggingface_weights(weights).items()}
    names = sorted(tensors, key=lambda name: tensors[name].size)
    shards = {f"{stem}-{i + 1}{ending}": names[i::2] for i in range(2)}
    for file, inside in shards.items():
        save({name: tensors[name] for name in inside}, folder / file)
    weight_map = {name: file for file, inside in shards.items() for name in inside}
    (folder / f"{stem}{ending}.index.json").write_text(json.dumps({"weight_map": weight_map}))
    _huggingface_config(folder, config)


# The original's name → Model Garden's, with its pooler as pre-training has it.
_GARDEN = (
    ("bert/embeddings/word_embeddings", "word_embeddings/embeddings"),
    ("bert/embeddings/position_embeddings", "position_embedding/embeddings"),
    ("bert/embeddings/token_type_embeddings", "type_embeddings/embeddings"),
    ("bert/embeddings/LayerNorm", "embeddings/layer_norm"),
    (r"bert/encoder/(layer_\d+)/attention/self", r"transformer/\1/self_attention"),
    (
        r"bert/encoder/(layer_\d+)/attention/output/dense",
        r"transformer/\1/self_attention/attention_output",
    ),
    (
        r"bert/encoder/(layer_\d+)/attention/output/LayerNorm",
        r"transformer/\1/self_attention_layer_norm",
    ),
    (r"bert/encoder/(layer_\d+)/intermediate/dense", r"transformer/\1/intermediate"),
    (r"bert/encoder/(layer_\d+)/output/dense", r"transformer/\1/output"),
    (r"bert/encoder/(layer_\d+)/output/LayerNorm", r"transformer/\1/output_layer_norm"),
    ("bert/pooler/dense", "pooler_transform"),
    ("cls/predictions/output_bias", "cls/predictions/output_bias/bias"),
    ("cls/seq_relationship/output_weights", "next_sentence/logits/kernel"),
    ("cls/seq_relationship/output_bias", "next_sentence/logits/bias"),
)


def _program(weights, config) -> tf.Module:
    """Variables that are called as Model Garden's are."""
    program = tf.Module()
    for number, (original, array) in enumerate(weights.items()):
        name = original
        for pattern, theirs in _GARDEN:
            name = re.sub(f"^{pattern}(?=/|$)", theirs, name)
        value = in_keras_layout(original, array, config.num_attention_heads)
        setattr(program, f"part_{number}", tf.Variable(value, name=name))
    return program
