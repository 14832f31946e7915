"""Writing presets that KerasHub's BertBackbone, BertTokenizer and tasks load with `from_preset`.

    config.json, model.weights.h5       the encoder
    task.json, task.weights.h5          a head: BertTextClassifier's or BertMaskedLM's
    tokenizer.json, preprocessor.json   how texts are folded, cut and packed
    assets/tokenizer/vocabulary.txt
    metadata.json

Its encoder computes the tanh form of gelu, layer norms with 1e-12, and one dropout everywhere.
"""

import codecs
import contextlib
import json
import math
import os
import tempfile
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import h5py
import keras
import numpy as np
import tensorflow as tf

from modeling.checkpoints import names
from modeling.checkpoints.contents import Weight, in_keras_layout
from modeling.checkpoints.files import join, write_staged_text
from modeling.checkpoints.formats.configs import KERAS_HUB_MASKED_LM
from modeling.checkpoints.formats.keras_hub import keras_hub_name
from modeling.checkpoints.heads import BIAS, WEIGHTS, checkpoint_heads
from modeling.checkpoints.vocabularies import TextFolding
from modeling.config import BertConfig
from modeling.errors import ModelingError
from modeling.logs import counted

_MODEL, _TASK, _CONFIG = "model.weights.h5", "task.weights.h5", "config.json"
FILES = (
    *(_MODEL, _CONFIG, _TASK, "task.json"),
    *("tokenizer.json", "preprocessor.json", "metadata.json"),
)
"""What a preset may consist of besides its vocabulary."""
_VOCABULARY = "assets/tokenizer/vocabulary.txt"
_SPECIAL = (b"[PAD]", b"[UNK]", b"[CLS]", b"[SEP]", b"[MASK]")
_CLASSIFIER, _MASKED_LM = "BertTextClassifier", "BertMaskedLM"
_MODULES = {
    "BertBackbone": "bert_backbone",
    "BertTokenizer": "bert_tokenizer",
    _CLASSIFIER: "bert_text_classifier",
    _MASKED_LM: "bert_masked_lm",
    f"{_CLASSIFIER}Preprocessor": "bert_text_classifier_preprocessor",
    f"{_MASKED_LM}Preprocessor": "bert_masked_lm_preprocessor",
}
# Head → task.
_TASKS = {
    **dict.fromkeys(("classes", "multi_label", "regression"), _CLASSIFIER),
    **dict.fromkeys(("masked_lm", "pretraining"), _MASKED_LM),
}
_OF_TASK = {
    _CLASSIFIER: (WEIGHTS, BIAS),
    _MASKED_LM: tuple(row[0] for row in names.TABLE if row[0].startswith("cls/predictions/")),
}
# The library's own defaults.
_MASKING = {
    "mask_selection_rate": 0.15,
    "mask_selection_length": 96,
    "mask_token_rate": 0.8,
    "random_token_rate": 0.1,
}


def _task_of(head: str, shapes: Collection[str], config: BertConfig) -> str | None:
    task = _TASKS.get(head)
    if task == _MASKED_LM and config.masked_lm_form != tuple(KERAS_HUB_MASKED_LM.values()):
        return None
    return task if task and all(name in shapes for name in _OF_TASK[task]) else None


def keras_hub_task(shapes: Mapping[str, tuple[int, ...]], config: BertConfig) -> str | None:
    """KerasHub's class for a model, None if it has none but the encoder's.

    Args:
        shapes: Original name → shape of its weights.
        config: Names its head, where weights leave it open.
    """
    tasks = (_task_of(head, shapes, config) for head in checkpoint_heads(shapes, config))
    return next((task for task in tasks if task), None)


def keras_hub_weights(shapes: Mapping[str, tuple[int, ...]], config: BertConfig) -> list[str]:
    """Those of a set of weights, by original names, that a preset holds; see `keras_hub_task`."""
    of_task = _OF_TASK.get(keras_hub_task(shapes, config), ())
    places = {*names.encoder_shapes(config), *of_task}
    return [name for name in shapes if name in places]


def keras_hub_notes(
    shapes: Mapping[str, tuple[int, ...]],
    config: BertConfig,
    has_vocabulary: bool,
    folding: TextFolding | None,
) -> list[str]:
    """Sentences about what a preset can't say of a model."""
    notes, task = [], keras_hub_task(shapes, config)
    for head in checkpoint_heads(shapes, config):
        own = _task_of(head, shapes, config)
        if own and own == task:
            if head in ("multi_label", "regression") or "id2label" in config.extra:
                notes.append(
                    f"KerasHub's {task} doesn't tell what its outputs are (here {head!r}) and what "
                    f"they are called: it answers logits or numbers as they are."
                )
        elif own:
            notes.append(f"A preset has one task: {task} was written, the head {head} left out.")
        elif _TASKS.get(head) == _MASKED_LM:
            act, eps = config.masked_lm_form
            notes.append(
                f"KerasHub's BertMaskedLM computes gelu_erf and adds 1e-05 in its layer norm; the "
                f"masked-LM head here computes {act} and adds {eps:g}, so it was left out."
            )
        else:
            notes.append(
                f"KerasHub has no BERT model with the head {head} of this one, so it was left out."
            )
        if head == "pretraining":
            notes.append("KerasHub has no head for the next sentence, so it was left out.")
    if config.attention_probs_dropout_prob != config.hidden_dropout_prob:
        notes.append(
            f"KerasHub has one dropout for all: the {config.hidden_dropout_prob:g} of "
            f"hidden_dropout_prob; attention_probs_dropout_prob is "
            f"{config.attention_probs_dropout_prob:g}. Only training differs."
        )
    if has_vocabulary and (folding is None or folding.do_lower_case is None):
        notes.append(
            "Nothing beside the weights tells whether texts are lower-cased, so no tokenizer.json "
            'was written. Put a tokenizer_config.json with {"do_lower_case": true} or false there, '
            "and convert again."
        )
    return notes


def preset_files(
    directory: str,
    tensors: Mapping[str, Weight],
    config: BertConfig,
    vocabulary: bytes | None = None,
    folding: TextFolding | None = None,
) -> dict[str, str]:
    """A preset's files except for the weights: path inside of it → text.

    Args:
        directory: Where it will be written.
        tensors: Original name → weight.
        config: Theirs.
        vocabulary: The contents of vocab.txt.
        folding: How its texts are folded; if that is unknown, there is no tokenizer.

    Raises:
        ModelingError: KerasHub can't compute this model, its tokenizer can't use the vocabulary, or
            the folder holds files of a preset that wouldn't be replaced.
    """
    _check_model(directory, tensors, config)
    shapes = {name: array.shape for name, array in tensors.items()}
    encoder = names.encoder_shapes(config)
    dtype = _policy(str(np.result_type(*(tensors[name].dtype for name in encoder))))
    backbone = _object(
        "BertBackbone",
        dtype,
        vocabulary_size=config.vocab_size,
        num_layers=config.num_hidden_layers,
        num_heads=config.num_attention_heads,
        hidden_dim=config.hidden_size,
        intermediate_dim=config.intermediate_size,
        dropout=config.hidden_dropout_prob,
        max_sequence_length=config.max_position_embeddings,
        num_segments=config.type_vocab_size,
    )
    metadata = {
        "keras_version": keras.__version__,
        "parameter_count": sum(math.prod(shapes[name]) for name in encoder),
        "tasks": ["MaskedLM", "TextClassifier", "TextEmbedder"],
    }
    objects = {_CONFIG: backbone, "metadata.json": metadata}
    texts = {}
    task = keras_hub_task(shapes, config)
    if vocabulary is not None:
        vocabulary = vocabulary.removeprefix(codecs.BOM_UTF8)
        texts[_VOCABULARY] = vocabulary.decode("utf-8", "ignore")
    if vocabulary is not None and folding is not None and folding.do_lower_case is not None:
        _check_vocabulary(vocabulary)
        objects |= _text_objects(config, folding, dtype, task)
    if task:
        values = {"backbone": backbone, "preprocessor": objects.get("preprocessor.json")}
        values["name"] = _MODULES[task]
        if task == _CLASSIFIER:
            values |= {"num_classes": shapes[WEIGHTS][0], "activation": "linear"}
            values["dropout"] = config.hidden_dropout_prob
        objects["task.json"] = _serialized(task, values)
    texts |= {name: json.dumps(values, indent=4) for name, values in objects.items()}
    _check_folder(directory, {*texts, _MODEL, *([_TASK] if task else [])})
    return texts


def write_preset(
    directory: str,
    tensors: Mapping[str, Weight],
    config: BertConfig,
    texts: Mapping[str, str],
) -> None:
    """Writes a preset into a folder that exists.

    Args:
        directory: The folder.
        tensors: Original name → weight; what the preset has no place for is left out.
        config: Theirs.
        texts: What `preset_files` returned for them.
    """
    shapes = {name: array.shape for name, array in tensors.items()}
    kept = keras_hub_weights(shapes, config)
    for file in (_MODEL, _TASK):
        inside = [name for name in kept if name.startswith("bert/") == (file == _MODEL)]
        if inside:
            with _h5_file(join(directory, file)) as opened:
                for name in counted(f"Writing {file}", "weights", inside):
                    array = np.asarray(tensors[name])
                    array = in_keras_layout(name, array, config.num_attention_heads)
                    opened.create_dataset(keras_hub_name(name), data=array)
    for name, text in texts.items():
        tf.io.gfile.makedirs(os.path.dirname(join(directory, name)))
        write_staged_text(join(directory, name), text)


@contextlib.contextmanager
def _h5_file(path: str) -> Iterator[h5py.File]:
    with tempfile.TemporaryDirectory() as folder:
        # HDF5 knows local files only.
        local = os.path.join(folder, "weights.h5") if "://" in path else path
        try:
            with h5py.File(local, "w") as file:
                yield file
        except OSError as error:
            raise ModelingError(
                f"Can't write {path}: {error}. Check that the disk isn't full."
            ) from error
        if local != path:
            tf.io.gfile.copy(local, path)


def _check_model(directory: str, tensors: Mapping[str, Weight], config: BertConfig) -> None:
    wrong = [
        f"{field} is {getattr(config, field)!r}, which is {theirs!r} there"
        for field, theirs in (
            ("hidden_act", "gelu"),
            ("layer_norm_eps", 1e-12),
            ("attention_direction", "bidirectional"),
        )
        if getattr(config, field) != theirs
    ]
    missing = [name for name in names.encoder_shapes(config) if name not in tensors]
    wrong += [f"it lacks {name}" for name in missing[:3]]
    if wrong:
        raise ModelingError(
            f"KerasHub's BertBackbone can't compute this model: {'; '.join(wrong)}. Nothing was "
            f'written to {directory}; write it as "tf1" or "huggingface".'
        )


def _check_vocabulary(vocabulary: bytes) -> None:
    tokens = {line.rstrip() for line in vocabulary.split(b"\n")}
    missing = [token.decode() for token in _SPECIAL if token not in tokens]
    if missing:
        raise ModelingError(
            f"The vocabulary lacks {', '.join(missing)}, and KerasHub's BertTokenizer needs "
            f"{b', '.join(_SPECIAL).decode()}. Give the vocabulary that the model was trained "
            f'with, or write the model as "tf1" or "huggingface".'
        )


def _check_folder(directory: str, written: Collection[str]) -> None:
    there = {f for f in (*FILES, _VOCABULARY) if tf.io.gfile.exists(join(directory, f))}
    # Hugging Face's has this name too.
    foreign = {_CONFIG} & there if _MODEL not in there else set()
    left = sorted(there - set(written) | foreign)
    if left:
        raise ModelingError(
            f"The folder {directory} holds {', '.join(left)} of another model, which would be "
            f"mixed with this one. Remove them, or give another folder."
        )


def _text_objects(
    config: BertConfig, folding: TextFolding, dtype: dict[str, Any], task: str | None
) -> dict[str, Any]:
    tokenizer = _object(
        "BertTokenizer",
        _policy("int32"),
        config_file="tokenizer.json",
        vocabulary=None,  # an asset
        sequence_length=None,
        lowercase=folding.do_lower_case,
        strip_accents=folding.drops_accents,
        split=True,
        suffix_indicator="##",
        oov_token="[UNK]",
        special_tokens=None,
        special_tokens_in_strings=False,
    )
    preprocessor = _object(
        f"{task or _CLASSIFIER}Preprocessor",
        dtype,
        tokenizer=tokenizer,
        config_file="preprocessor.json",
        sequence_length=config.max_position_embeddings,
        truncate="round_robin",
        **(_MASKING if task == _MASKED_LM else {}),
    )
    return {"tokenizer.json": tokenizer, "preprocessor.json": preprocessor}


def _object(kind: str, dtype: dict[str, Any], **config) -> dict[str, Any]:
    """A layer as Keras serialises it."""
    return _serialized(kind, {"name": _MODULES[kind], "trainable": True, "dtype": dtype} | config)


def _serialized(kind: str, config: dict[str, Any]) -> dict[str, Any]:
    return {
        "module": f"keras_hub.src.models.bert.{_MODULES[kind]}",
        "class_name": kind,
        "config": config,
        "registered_name": f"keras_hub>{kind}",
    }


def _policy(dtype: str) -> dict[str, Any]:
    return {
        "module": "keras",
        "class_name": "DTypePolicy",
        "config": {"name": dtype},
        "registered_name": None,
    }
