"""Which configuration a checkpoint's weights belong to, and weights that aren't computed here.

Beside weights of the original's format it is bert_config.json, beside Hugging Face's config.json. A
folder may hold both, and mean another function by "gelu" in each. A configuration that is given
explicitly may differ from the checkpoint's own in what doesn't change answers, such as dropout.
"""

import dataclasses
import os
import re
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from modeling.checkpoints import names
from modeling.checkpoints.contents import Contents
from modeling.checkpoints.files import folders_of_checkpoint, join
from modeling.checkpoints.formats.configs import config_of_weights
from modeling.checkpoints.formats.garden import GARDEN
from modeling.checkpoints.formats.hf_h5 import HF_H5
from modeling.checkpoints.formats.hf_objects import HF_OBJECTS
from modeling.checkpoints.formats.hub import HUB
from modeling.checkpoints.formats.keras_hub import KERAS_HUB, keras_hub_config
from modeling.checkpoints.formats.torch_file import PYTORCH
from modeling.config import BertConfig
from modeling.errors import ModelingError
from modeling.sizes import ENGLISH_VOCABULARY

_OF_HUGGINGFACE = (names.HUGGINGFACE, HF_H5, HF_OBJECTS, PYTORCH)
# The format's own, then what may stand in for it.
_CONFIG_NAMES = {
    names.TF1: (("bert_config.json",), ("config.json",)),
    **dict.fromkeys(_OF_HUGGINGFACE, (("config.json",), ("bert_config.json",))),
    KERAS_HUB: ((), ("bert_config.json", "config.json", "params.yaml")),
}
_OTHER_CONFIG_NAMES = (("bert_config.json", "params.yaml"), ("config.json",))  # Model Garden's
# Of these the weights' shapes, or the file itself, tell enough.
_MAY_LACK = (KERAS_HUB, GARDEN, HUB)
# What changes answers and can't be seen in the weights' shapes.
_UNSEEN = ("hidden_act", "num_attention_heads", "layer_norm_eps")
_NOT_COMPUTED = {
    "distance_embedding": "a table of relative positions",
    "crossattention": "attention to another model's outputs, as decoders have it",
}


def config_of_checkpoint(
    held: Contents, config_file: str | os.PathLike | None = None
) -> BertConfig:
    """The configuration that belongs to a checkpoint.

    It is that of `config_file`, which may name a size (`BertConfig.from_file_or_name`), else that
    of the file beside the weights, else, for other libraries' formats, what the file itself or the
    weights' shapes tell.

    Raises:
        ModelingError: There is none, it can't be read, or `config_file` or one of the
            checkpoint's own contradicts another.
    """
    own = own_configs(held)
    stand_in = config_file or (None if own else config_file_of(held))
    same = [c for c in own if stand_in and _same_file(c.file, stand_in)]
    if same:
        config = same[0]  # the format tells in whose terms it is
    elif stand_in:
        rows = held.shapes.get(names.WORD_EMBEDDINGS, (ENGLISH_VOCABULARY,))[0]
        config = BertConfig.from_file_or_name(stand_in, rows)
    else:
        config = own[0] if own else config_of_weights(held)
    check_own_config(held, config, (*_UNSEEN, "attention_direction"))
    told = _told_of_masked_lm(held, own)
    untold = {name: value for name, value in told.items() if getattr(config, name) is None}
    return dataclasses.replace(config, **untold)


def config_file_of(held: Contents) -> str | None:
    """The configuration's file that lies beside a checkpoint, None if its weights may do without.

    Raises:
        ModelingError: There is none, and the weights don't tell enough.
    """
    own, others = _CONFIG_NAMES.get(held.format, _OTHER_CONFIG_NAMES)
    candidates = (*own, *others)
    beside = _beside(held, candidates)
    if beside or held.format in _MAY_LACK:
        return beside[0] if beside else None
    raise ModelingError(
        f"There is no {' or '.join(candidates)} beside {held.path}. The configuration says how "
        f"many attention heads the weights stand for: name its file with --bert_config_file."
    )


def check_own_config(held: Contents, config: BertConfig, fields: Sequence[str] = _UNSEEN) -> None:
    """Compares a configuration with the checkpoint's own, if it has one.

    Args:
        held: The checkpoint.
        config: What its weights are to be used with.
        fields: Those that are compared.

    Raises:
        ModelingError: They contradict each other, or the checkpoint's own can't be read or says
            what isn't computed here.
    """
    for own in own_configs(held):
        said = {name: (getattr(own, name), getattr(config, name)) for name in fields}
        differing = [name for name, (theirs, ours) in said.items() if theirs != ours]
        if not differing:
            continue
        theirs, ours = (
            ", ".join(f"{name} {said[name][side]!r}" for name in differing) for side in (0, 1)
        )
        gelu = any({"gelu", "gelu_erf"} <= {*pair} for pair in said.values())
        hint = ' (Hugging Face calls "gelu" what is "gelu_erf" here.)' if gelu else ""
        if config.file and _same_file(own.file, config.file):
            hint += " Nothing in the file says that it is Hugging Face's: name no file, read it by"
            hint += ' checkpoints.config_of_checkpoint, or write "model_type": "bert" into it.'
        raise ModelingError(
            f"{own.file}, which came with the weights of {held.path}, says {theirs}; "
            f"{config.file or 'the configuration that they are to be used with'} says {ours}.{hint}"
            f" The weights fit both, but the answers would be other ones. Use the former; if that "
            f"isn't of these weights, take it out of their folder."
        )


def masked_lm_note(held: Contents, config: BertConfig) -> str | None:
    """A sentence about where a masked-LM head would compute otherwise than the checkpoint's did.

    Args:
        held: The checkpoint.
        config: What its weights are to be used with.
    """
    if names.MASKED_LM_BIAS not in held.shapes:
        return None
    own = own_configs(held)
    told = _told_of_masked_lm(held, own)
    theirs = dataclasses.replace([*own, config][0], **told).masked_lm_form
    if theirs == config.masked_lm_form:
        return None
    (act, eps), (our_act, our_eps) = theirs, config.masked_lm_form
    return (
        f"The masked-LM head of {held.path} computes {act} and adds {eps:g} to the variance in its "
        f"layer norm. Where a configuration's masked_lm_hidden_act and masked_lm_layer_norm_eps "
        f"don't say so, or aren't known, the head computes {our_act} and adds {our_eps:g}, and its "
        f"logits differ a little."
    )


def check_computable(held: Contents) -> None:
    """Looks at names and shapes for models whose answers aren't computed here.

    Raises:
        ModelingError: There are relative positions, a decoder's parts or pruned heads; the message
            names a weight.
    """
    for name in [*held.file_names.values(), *held.unmapped]:
        for part, meaning in _NOT_COMPUTED.items():
            if part in name.lower():
                raise ModelingError(
                    f"{held.path} holds {name}, {meaning}. BERT's encoder doesn't have it, and "
                    f"without it the answers would be other ones; such models aren't read."
                )
    for name, shape in held.shapes.items():
        attends = re.fullmatch(r"bert/.*/attention/self/(query|key|value)/kernel", name)
        if attends and len(shape) == 2 and shape[1] < shape[0]:
            raise ModelingError(
                f"{held.path} holds {held.file_names[name]} with {shape[1]} outputs for "
                f"{shape[0]} inputs: heads of its attention were pruned. Layers with fewer heads "
                f"than others aren't computed here; take the model from before its pruning."
            )


def check_shapes(held: Contents, config: BertConfig, fewer_layers: bool = False) -> None:
    """Compares the weights with what a configuration says about their shapes.

    Args:
        held: The checkpoint.
        config: What its weights are to be used with.
        fewer_layers: Whether it may have fewer layers, the first ones.

    Raises:
        ModelingError: They differ, or a part of the encoder is missing; names some.
    """
    wrong = []
    for field, (name, axis) in names.SIZES.items():
        shape, said = held.shapes.get(name), getattr(config, field)
        if shape is not None and (axis >= len(shape) or shape[axis] != said):
            wrong.append(f"{field} is {said} but {held.file_names[name]} is {list(shape)}")
    layers = names.number_of_checkpoint_layers(held.shapes)
    heads = held.num_attention_heads or config.num_attention_heads
    if heads != config.num_attention_heads:
        wrong.append(f"num_attention_heads is {config.num_attention_heads} but there are {heads}")
    if layers not in (0, config.num_hidden_layers) and not (
        fewer_layers and layers > config.num_hidden_layers
    ):
        wrong.append(f"num_hidden_layers is {config.num_hidden_layers} but there are {layers}")
    expected = names.encoder_shapes(config)
    if not wrong:
        wrong = [
            f"{held.file_names[name]} is {list(held.shapes[name])}, not {list(shape)}"
            for name, shape in expected.items()
            if held.shapes.get(name, shape) != shape
        ][:3]
    if not wrong and any(name.startswith("bert/") for name in held.shapes):
        missing = [n for n in expected if n.startswith(names.ENCODER) and n not in held.shapes]
        wrong = [f"it lacks {name}, as it is called here" for name in missing[:3]]
    if wrong:
        raise ModelingError(
            f"The configuration doesn't describe {held.path}: {'; '.join(wrong)}. Name the right "
            f"file (--bert_config_file, config_file)."
        )


def _told_of_masked_lm(held: Contents, own: Sequence[BertConfig]) -> dict[str, Any]:
    """What any of a checkpoint's own configurations, or else its format, tells of that head."""
    fields = ("masked_lm_hidden_act", "masked_lm_layer_norm_eps")
    told = {name: getattr(config, name) for config in own for name in fields}
    return {**held.masked_lm, **{name: value for name, value in told.items() if value is not None}}


def own_configs(held: Contents) -> list[BertConfig]:
    """What the checkpoint's own library wrote with it: beside the weights, or inside of them.

    Raises:
        ModelingError: It can't be read.
    """
    inside = keras_hub_config(held.path) if held.format == KERAS_HUB else None
    if inside:
        return [dataclasses.replace(BertConfig.from_dict(inside), file=held.path)]
    own, _ = _CONFIG_NAMES.get(held.format, _OTHER_CONFIG_NAMES)
    # Of 2019, when none of their keys was written, too: "gelu" is the erf form.
    huggingface = held.format in _OF_HUGGINGFACE
    return [BertConfig.from_json_file(file, huggingface) for file in _beside(held, own)]


def _same_file(one: str, other: str | os.PathLike) -> bool:
    """Whether two paths are of one file, or of a copy of it."""
    if os.path.realpath(one) == os.path.realpath(other):
        return True
    if not (tf.io.gfile.exists(one) and tf.io.gfile.exists(other)) or tf.io.gfile.isdir(other):
        return False
    contents = []
    for path in (one, other):
        with tf.io.gfile.GFile(path, "rb") as file:
            contents.append(file.read())
    return contents[0] == contents[1]


def _beside(held: Contents, candidates: Sequence[str]) -> list[str]:
    folders = folders_of_checkpoint(held.path)
    files = [join(folder, name) for folder in folders for name in candidates]
    return [file for file in files if tf.io.gfile.exists(file)]
