"""Putting a checkpoint's weights into a model, and saying exactly what that did."""

import dataclasses
import os
from collections.abc import Callable, Collection, Mapping

import keras
import numpy as np
import tensorflow as tf
from absl import logging

from modeling.checkpoints import huggingface, names, tf1
from modeling.checkpoints.configurations import (
    check_computable,
    check_own_config,
    masked_lm_note,
)
from modeling.checkpoints.contents import Contents
from modeling.checkpoints.files import BEST_FOLDER, join, listing_of_names, refuse_lfs_pointer
from modeling.checkpoints.formats.garden import GARDEN, garden_contents, garden_file
from modeling.checkpoints.formats.hf_h5 import HF_H5, hf_h5_contents, hf_h5_file
from modeling.checkpoints.formats.hf_objects import (
    HF_OBJECTS,
    hf_objects_contents,
    hf_objects_file,
)
from modeling.checkpoints.formats.hub import HUB, hub_contents, hub_file
from modeling.checkpoints.formats.keras_hub import (
    KERAS_HUB,
    keras_hub_contents,
    keras_hub_file,
)
from modeling.checkpoints.formats.torch_file import PYTORCH, torch_contents, torch_file
from modeling.checkpoints.heads import (
    BIAS,
    SCALE,
    UNIT_OF_OTHERS,
    WEIGHTS,
    fold_target_unit,
)
from modeling.checkpoints.inspection.releases import hint_of_release
from modeling.config import BertConfig
from modeling.errors import ModelingError
from modeling.logs import counted

# Other libraries' formats, asked in turn: which file of theirs a path means, and what it holds.
FORMATS_OF_OTHERS: dict[str, tuple[Callable[[str], str | None], Callable[[str], Contents]]] = {
    GARDEN: (garden_file, garden_contents),
    HUB: (hub_file, hub_contents),
    KERAS_HUB: (keras_hub_file, keras_hub_contents),
    HF_OBJECTS: (hf_objects_file, hf_objects_contents),
    HF_H5: (hf_h5_file, hf_h5_contents),
    PYTORCH: (torch_file, torch_contents),
}
# Hugging Face's own folders hold one model in several of these; safetensors is what they load.
_BESIDE_SAFETENSORS = (HF_H5, PYTORCH)
_LIBRARIES = "Hugging Face's, PyTorch's, Model Garden's, TensorFlow Hub's or KerasHub's"

_OTHER_FORMATS = {
    ".bin": "a PyTorch pickle",
    ".pt": "a PyTorch pickle",
    ".h5": "an HDF5 file",
    ".msgpack": "a Flax file",
    ".onnx": "an ONNX graph",
    ".pb": "a TensorFlow SavedModel",
    ".keras": "a Keras archive",
}


@dataclasses.dataclass(frozen=True)
class LoadReport:
    """What `load` did. All lists are sorted.

    Attributes:
        loaded: Weights of the model, by original name, that came from the file.
        newly_initialised: Weights of the model that keep their initial values.
        left_over: Weights in the file, by their name there, that the model has no place for.
        ignored: Tensors in the file that are no weights: optimizer slots, step counters, position
            buffers, copies of tied weights.
        path: The file that was read, or the TF1 prefix.
        format: "tf1", "huggingface" or another library's, as `find` says.
    """

    loaded: list[str]
    newly_initialised: list[str]
    left_over: list[str]
    ignored: list[str] = dataclasses.field(default_factory=list)
    path: str = ""
    format: str = ""

    def summary(self) -> str:
        """A few lines for the log."""
        lines = [f"Loaded {_weights(self.loaded)} from {self.path} ({self.format} format)."]
        if self.newly_initialised:
            lines.append(
                f"  Not in it, so kept as they are: {_weights(self.newly_initialised)} of the "
                f"model: {_some(self.newly_initialised)}"
            )
        if self.left_over:
            lines.append(
                f"  Left over, without a place in the model: {_weights(self.left_over)}: "
                f"{_some(self.left_over)}"
            )
        return "\n".join(lines)


def load(
    model: keras.Model,
    path: str | os.PathLike,
    *,
    required: Collection[str] = (),
    skip: Collection[str] = (),
) -> LoadReport:
    """Loads every weight that the model and the checkpoint have in common, by name.

    As in the original release, weights that the checkpoint lacks keep their initial values and
    optimizer slots are never taken; unlike there, the result is reported, logged, and a warning
    where a part of the encoder was missing.

    Args:
        model: A model whose weights carry the original's names; built if it isn't yet. Half
            precision in the file is widened, and everything is cast to the weights' dtypes.
        path: A TF1 prefix (`…/bert_model.ckpt`), a .safetensors file, a file of another library's
            (formats/), or a folder that holds one checkpoint of any kind. Any path that
            tf.io.gfile knows.
        required: Beginnings of weight names that must be in the checkpoint, if the model has
            them: ("bert/",) for fine-tuning, ("",) where every weight must come from the file. A
            model's `unused` weights are never missed.
        skip: Beginnings of weight names that keep their initial values even if the checkpoint
            has them, e.g. ("output_",) for a new classifier on top of another task's encoder.

    Raises:
        ModelingError: No checkpoint or several at `path`, a damaged one, a tensor whose shape
            isn't the model's, nothing in common, a required weight missing, an output matrix of
            the masked-LM head that isn't tied to the word embeddings, or a configuration of its
            own that contradicts the model's. In all cases but a tensor that can't be read or
            isn't finite, the model is as it was.
    """
    held = open_contents(path)
    model_weights = names.weights_by_name(model)
    assignable = {name: w for name, w in model_weights.items() if not name.startswith(tuple(skip))}
    common = [name for name in assignable if name in held.shapes]
    if not common:
        raise _nothing_in_common(held, model_weights)
    _check_shapes(held, {name: tuple(assignable[name].shape) for name in common})
    config = getattr(model, "config", None)
    if config is not None:
        _check_heads(held, config, common)
        check_own_config(held, config)
    implied = {n for n in UNIT_OF_OTHERS if WEIGHTS in common and n not in held.shapes}
    implied &= assignable.keys()
    missing = sorted(model_weights.keys() - set(common) - implied)
    # Whether these are there makes no difference.
    spared = (*skip, *getattr(model, "unused", ()))
    _check_required(held, missing, tuple(required), spared)
    if held.untied_decoder and names.MASKED_LM_BIAS in assignable:
        untied = [n for n in held.unmapped if names.plain_huggingface(n) in names.TIED]
        raise ModelingError(
            f"{held.path} holds {' and '.join(untied)} "
            f"different from the word embeddings or bias that BERT ties it to. The masked-LM head "
            f"here is always tied, so it would not compute what that file's model computes. Load "
            f"it into a model without this head, or with skip=('cls/predictions/',)."
        )
    head = {}
    if SCALE in held.shapes and WEIGHTS in common and SCALE not in assignable:
        # The model has no unit of its own, but its answers are to be in that of the file.
        parts = (WEIGHTS, BIAS, *UNIT_OF_OTHERS)
        head = fold_target_unit({name: held.read(name) for name in parts})
    for name in counted(f"Reading {held.path}", "weights", common):
        _assign(assignable[name], head[name] if name in head else held.read(name))
    for name in implied:
        assignable[name].assign(tf.fill(assignable[name].shape, UNIT_OF_OTHERS[name]))
    placed = {held.file_names[name] for name in [*common, *(UNIT_OF_OTHERS if head else ())]}
    left_over = sorted((set(held.file_names.values()) | set(held.unmapped)) - placed)
    report = LoadReport(sorted(common), missing, left_over, held.ignored, held.path, held.format)
    logging.info("%s", report.summary())
    note = masked_lm_note(held, config) if config and names.MASKED_LM_BIAS in common else None
    if note:
        logging.warning("%s", note)
    if held.ignored:
        # Nearly every checkpoint has some, and nothing is amiss with it.
        logging.debug(
            "  Not looked at: %d tensor%s besides weights (optimizer slots, counters, buffers, "
            "tied copies): %s",
            len(held.ignored),
            "" if len(held.ignored) == 1 else "s",
            _some(held.ignored),
        )
    lost = [n for n in missing if n.startswith("bert/") and not n.startswith(spared)]
    if lost:
        logging.warning(
            "%s lacks %s of the encoder, which stay random: %s. %s",
            held.path,
            _weights(lost),
            _some(lost),
            _depths(held, model_weights),
        )
    return report


def _assign(variable: keras.Variable, array: np.ndarray) -> None:
    stored, dtype = variable.value, tf.as_dtype(variable.dtype)
    if not isinstance(stored, tf.Variable) or isinstance(stored, tf.distribute.DistributedValues):
        variable.assign(tf.cast(array, dtype))
        return
    # `assign` would have the old numbers, the array and two copies of it in memory at once.
    for value in (np.empty(0, array.dtype), array.reshape(variable.shape)):
        value = tf.raw_ops.Cast(x=value, DstT=dtype)
        tf.raw_ops.AssignVariableOp(resource=stored.handle, value=value, validate_shape=False)


def find(path: str | os.PathLike) -> tuple[str, str]:
    """Tells what checkpoint `path` means.

    Of a folder that holds both a release and checkpoints of training that is the release; of one
    whose only weights are the best of a search, in its folder `best`, these.

    Returns:
        (format, file): "tf1" with the bundle's prefix, "huggingface" with the .safetensors file
        or shard index, or another library's format with the file that its reader takes.

    Raises:
        ModelingError: Nothing that can be read, or several checkpoints in one folder.
    """
    path = os.fspath(path)
    asked = [(format_, file_of(path)) for format_, (file_of, _) in FORMATS_OF_OTHERS.items()]
    others = [(format_, file) for format_, file in asked if file]
    if others and not tf.io.gfile.isdir(path):
        return others[0]
    if tf1.is_tf1_prefix(path):
        return names.TF1, path
    if not tf.io.gfile.exists(path):
        folder = os.path.dirname(path) or "."
        nearby = f"{folder} holds {listing_of_names(folder)}." if tf.io.gfile.isdir(folder) else ""
        raise ModelingError(
            f"There is no checkpoint at {path}: neither a TF1 bundle ({path}.index) nor a file or "
            f"folder of that name. {nearby} {hint_of_release(path)}"
        )
    if not tf.io.gfile.isdir(path):
        refuse_lfs_pointer(path)
        if path.endswith((".safetensors", ".safetensors.index.json")):
            return names.HUGGINGFACE, path
        if path.endswith(".index") or ".data-" in os.path.basename(path):
            return names.TF1, tf1.find_tf1_checkpoint(path)
        raise ModelingError(
            f"{path} is {_describe(path)}. Expected a TF1 prefix such as bert_model.ckpt (without "
            f".index or .data), a .safetensors file, a file of {_LIBRARIES}, or a folder that "
            f"holds one of them."
        )
    taken = {file for _, file in others}
    prefixes = [prefix for prefix in tf1.tf1_prefixes_in(path) if prefix not in taken]
    checkpoints = [(names.TF1, prefix) for prefix in prefixes]
    safetensors = [(names.HUGGINGFACE, file) for file in huggingface.huggingface_files(path)]
    if safetensors:
        others = [other for other in others if other[0] not in _BESIDE_SAFETENSORS]
    checkpoints += others + safetensors
    released = [(kind, file) for kind, file in checkpoints if not tf1.is_run_checkpoint(file)]
    checkpoints = released or checkpoints
    best = join(path, BEST_FOLDER)
    if not checkpoints and tf.io.gfile.isdir(best):
        return find(best)
    if len(checkpoints) == 1:
        return checkpoints[0]
    if checkpoints:
        raise ModelingError(
            f"The folder {path} holds several checkpoints: "
            f"{', '.join(file for _, file in checkpoints)}. Give the one to read instead of the "
            f"folder."
        )
    other = [e for e in sorted(tf.io.gfile.listdir(path)) if _describe(e) != _UNKNOWN]
    hint = ""
    if other:
        hint = f" {other[0]} is {_describe(other[0])}, but damaged or none that is read here."
    raise ModelingError(
        f"The folder {path} holds no checkpoint that can be read: expected bert_model.ckpt.index "
        f"(with its .data file), a `checkpoint` file that names a bundle, model.safetensors, or a "
        f"file of {_LIBRARIES}; found {listing_of_names(path)}.{hint}"
    )


def open_contents(path: str | os.PathLike) -> Contents:
    """Opens the checkpoint that `path` means, of any format; reads names and shapes only.

    Raises:
        ModelingError: None, several or a damaged one there, or one of a model whose answers can't
            be computed here: with relative positions, pruned heads or a decoder's parts.
    """
    format_, file = find(path)
    if format_ in FORMATS_OF_OTHERS:
        held = FORMATS_OF_OTHERS[format_][1](file)
    else:
        held = (tf1 if format_ == names.TF1 else huggingface).contents(file)
    check_computable(held)
    return held


_UNKNOWN = "no checkpoint file"


def _describe(file: str) -> str:
    return _OTHER_FORMATS.get(os.path.splitext(file)[1], _UNKNOWN)


def _weights(items: list[str]) -> str:
    return f"{len(items)} weight{'' if len(items) == 1 else 's'}"


def _some(items: list[str], limit: int = 6) -> str:
    more = f" and {len(items) - limit} more" if len(items) > limit else ""
    return ", ".join(items[:limit]) + more


def _check_shapes(held: Contents, expected: Mapping[str, tuple[int, ...]]) -> None:
    wrong = [name for name, shape in expected.items() if held.shapes[name] != shape]
    if not wrong:
        return
    name = wrong[0]
    has, wants = held.shapes[name], expected[name]
    also = f" (shapes also differ for {_some(wrong[1:], 3)})" if wrong[1:] else ""
    raise ModelingError(
        f"Tensor {held.file_names[name]} in {held.path} has the wrong shape: the file holds "
        f"{list(has)}, the model expects {list(wants)}{also}. {_shape_hint(name, has, wants)}"
    )


def _check_heads(held: Contents, config: BertConfig, common: list[str]) -> None:
    wants = config.num_attention_heads
    attends = any("/attention/self/" in name for name in common)
    if attends and held.num_attention_heads not in (None, wants):
        raise ModelingError(
            f"{held.path} has {held.num_attention_heads} attention heads in each layer, the "
            f"configuration says num_attention_heads {wants}; the shapes are alike, but the "
            f"answers wouldn't be. Use the configuration that came with the checkpoint."
        )


def _shape_hint(name: str, has: tuple[int, ...], wants: tuple[int, ...]) -> str:
    if len(has) != len(wants):
        return "The file is not of a BERT model with these parts."
    other_rows = has[0] != wants[0] and has[1:] == wants[1:]
    table = names.WORD_EMBEDDINGS if name == names.MASKED_LM_BIAS else name
    tables = {n: f for f, (n, axis) in names.SIZES.items() if axis == 0 and "embeddings/" in n}
    field = tables.get(table)
    if field and other_rows:
        vocab = " and the vocab.txt" if field == "vocab_size" else ""
        return (
            f"The configuration says {field} {wants[0]}, the file was made with {has[0]}: use the "
            f"bert_config.json{vocab} that came with this checkpoint."
        )
    if name == "output_weights" and not other_rows:
        return (
            f"Its head stands on vectors of {has[1]} numbers: give --bilstm, --feature_based or "
            f"--second_bert_config_file as in training, or the bert_config.json that belongs to it."
        )
    if name in ("output_weights", "output_bias") and other_rows:
        return (
            f"The file's classifier has {has[0]} labels, the model has {wants[0]}. To go on with "
            f"the same task, build the model with num_labels={has[0]}; to train a new classifier, "
            f"load with skip=('output_',), or start from the checkpoint that it was tuned from."
        )
    return (
        "The configuration doesn't describe this checkpoint (see hidden_size and "
        "intermediate_size): use the bert_config.json that came with it."
    )


def _nothing_in_common(held: Contents, model_weights: Mapping[str, keras.Variable]):
    file_holds = sorted({*held.file_names.values(), *held.unmapped}) or held.ignored
    return ModelingError(
        f"{held.path} has no weight in common with the model. The file holds "
        f"{_some(file_holds, 3) or 'nothing'}; the model expects names such as "
        f"{_some(list(model_weights), 2)}. Is it a BERT checkpoint?"
    )


def _check_required(
    held: Contents, missing: list[str], required: tuple[str, ...], skip: tuple[str, ...]
) -> None:
    lacking = [n for n in missing if n.startswith(required) and not n.startswith(skip)]
    if lacking:
        remedy = "Give a checkpoint that holds them."
        if not any(name.startswith("bert/") for name in lacking):
            remedy = "They are its head's: train first (--do_train), or give what was trained so."
        raise ModelingError(
            f"{held.path} lacks {_weights(lacking)} that the model needs: {_some(lacking)}. "
            f"{_depths(held, missing)} {remedy}"
        )


def _depths(held: Contents, model_weights: Collection[str]) -> str:
    """Says so when the model has more layers than the file."""
    in_file = names.number_of_checkpoint_layers(held.shapes)
    in_model = names.number_of_checkpoint_layers(model_weights)
    if in_file < in_model:
        return (
            f"The file has {in_file} layers and the configuration's num_hidden_layers is "
            f"{in_model}."
        )
    return ""
