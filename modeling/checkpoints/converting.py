"""From any checkpoint format to one of ours without building a model."""

import dataclasses
import math
import os
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import tensorflow as tf

from modeling.checkpoints import huggingface, names, tf1
from modeling.checkpoints.configurations import (
    check_shapes,
    config_file_of,
    config_of_checkpoint,
    masked_lm_note,
    own_configs,
)
from modeling.checkpoints.contents import Contents
from modeling.checkpoints.files import ANSWER_FILES, folders_of_checkpoint, join
from modeling.checkpoints.formats.keras_hub import KERAS_HUB
from modeling.checkpoints.formats.keras_hub_writing import (
    FILES,
    keras_hub_notes,
    keras_hub_weights,
)
from modeling.checkpoints.heads import (
    UNIT_OF_OTHERS,
    checkpoint_heads,
    config_with_trained_head,
    fold_target_unit,
)
from modeling.checkpoints.inspection.tokenizer_files import TOKENIZER_NAME
from modeling.checkpoints.loading import open_contents
from modeling.checkpoints.model_folder import check_nobody_elses, task_files
from modeling.checkpoints.saving import write_checkpoint
from modeling.checkpoints.vocabularies import (
    TextFolding,
    check_vocabulary,
    text_folding,
    vocabulary_file,
)
from modeling.config import BertConfig
from modeling.errors import ModelingError

_POOLER = "bert/pooler/dense/kernel"
_WRITTEN_NAMES = {
    names.TF1: (f"{tf1.RELEASE_NAME}.index", "bert_config.json"),
    names.HUGGINGFACE: (huggingface.FILE_NAME, "config.json"),
    KERAS_HUB: FILES,
}


@dataclasses.dataclass(frozen=True)
class Conversion:
    """What `convert` did.

    Attributes:
        source: The file or TF1 prefix that was read.
        converted: Original names of the weights that were written, sorted.
        not_converted: Names in the source of weights that were not written, sorted.
        ignored: Number of tensors that are no weights (optimizer slots, counters, buffers).
        written: Paths of the files written.
        config: The configuration that was written.
        notes: Sentences about what the reader of the result should know.
        bytes_before, bytes_after: Of the weights that were written: as they were read, and now.
    """

    source: str
    converted: list[str]
    not_converted: list[str]
    ignored: int
    written: list[str]
    config: BertConfig
    notes: list[str]
    bytes_before: int
    bytes_after: int


def convert(
    path: str | os.PathLike,
    directory: str | os.PathLike,
    format: str,
    config_file: str | os.PathLike | None = None,
    vocab_file: str | os.PathLike | None = None,
    kept_ids: Sequence[int] | None = None,
    mean_rows: Mapping[int, Sequence[int]] | None = None,
    folding: TextFolding | None = None,
) -> Conversion:
    """Writes the weights of any checkpoint that can be read in the given format.

    Every head that has a name in both formats is kept, whatever model it belongs to; half
    precision becomes float32 and float32 stays bit for bit. What a run has kept of its task beside
    the weights (labels, how texts are read, what was tuned) comes along.

    Args:
        path: As in `load`.
        directory: Made if absent.
        format: One of `FORMATS`.
        config_file: Any format; by default bert_config.json, config.json or params.yaml beside the
            weights, or what other libraries' files tell themselves.
        vocab_file: By default vocab.txt beside or inside; none is written if there is none.
        kept_ids: Of the vocabulary, ascending: the result is a model of these alone, in this
            order, whose tokens `vocab_file` has. By default all.
        mean_rows: Id of a token that is new in `vocab_file` → the ids of the pieces that its word
            was cut into: its row of the embeddings, and its bias of the masked-LM head, are the
            mean of theirs.
        folding: How the model's texts are folded; by default as its own files or name say.

    Raises:
        ModelingError: No checkpoint, no configuration, one that doesn't describe the weights, one
            that KerasHub can't compute in its format, weights that lack some of the ids, or a
            folder that can't be written.
    """
    held = open_contents(path)
    config = config_of_checkpoint(held, config_file)
    if vocab_file is None:
        vocab_file = vocabulary_file(held.format, held.path)
    kept = [n for n in held.shapes if names.to_huggingface(n) or n in UNIT_OF_OTHERS]
    if not kept:
        raise ModelingError(
            f"{held.path} holds no BERT weights; it holds "
            f"{', '.join((held.unmapped or held.ignored)[:5]) or 'nothing'}."
        )
    check_shapes(held, config)
    if kept_ids is not None or mean_rows:
        check_one_encoder(held.path, held.shapes)
    elif vocab_file is not None:
        check_vocabulary(path, vocab_file)
    before = held.shapes
    if kept_ids is not None:
        held, config = _with_ids(held, config, kept_ids)
    if mean_rows:
        held = _with_means(held, mean_rows)
    config = config_with_trained_head(held.shapes, config, held.head)
    heads = checkpoint_heads(held.shapes, config, held.head)
    unit = [name for name in kept if name in UNIT_OF_OTHERS]
    if format == names.HUGGINGFACE:
        kept = [*huggingface.huggingface_names(kept, next(iter(heads), None)), *unit]
    if format == KERAS_HUB:
        kept = [*keras_hub_weights(held.shapes, config), *unit]
    if format == names.TF1 and held.format == names.TF1:
        kept = list(held.shapes)  # The names need no translation, so unknown heads stay too.
    tensors = fold_target_unit({name: held.weight(name) for name in kept})
    if format != names.TF1:
        _check_encoder(held, config)
    folding = folding or text_folding(path, by_name=True)
    # A preset has a tokenizer only where it is known how texts are folded.
    bare = format == KERAS_HUB and folding.do_lower_case is None
    replaced = () if bare else _WRITTEN_NAMES[format]
    check_nobody_elses(directory, held.path, ANSWER_FILES, vocab_file, folding, replaced)
    beside = task_files(held.path, ANSWER_FILES)
    own = os.path.realpath(directory) in map(os.path.realpath, folders_of_checkpoint(held.path))
    # The weights' own file says more than would be written, and it is theirs.
    kept_folding = own and tf.io.gfile.exists(join(os.fspath(directory), TOKENIZER_NAME))
    how = None if kept_folding and format != KERAS_HUB else folding
    written = write_checkpoint(directory, tensors, config, vocab_file, format, how, beside)
    notes = _notes(held, config, format, vocab_file is not None)
    if format == KERAS_HUB:
        notes += keras_hub_notes(held.shapes, config, vocab_file is not None, folding)
    stored = {held.file_names[name] for name in kept}
    return Conversion(
        source=held.path,
        converted=sorted(kept),
        not_converted=sorted((set(held.file_names.values()) | set(held.unmapped)) - stored),
        ignored=len(held.ignored),
        written=written,
        config=config,
        notes=notes,
        bytes_before=sum(held.dtypes[n].itemsize * math.prod(before[n]) for n in kept),
        bytes_after=sum(held.dtypes[n].itemsize * math.prod(held.shapes[n]) for n in kept),
    )


def conversion_files(
    path: str,
    directory: str,
    format: str,
    config_file: str | None = None,
    vocab_file: str | None = None,
) -> tuple[list[str], list[str]]:
    """The files that `convert` reads, and those that it writes.

    vocab.txt isn't among them, unless another is given: it is copied as it is.
    """
    held = open_contents(path)
    written = _WRITTEN_NAMES[format]
    read = [held.path, f"{held.path}.index", config_file or config_file_of(held)]
    # What is given in their place is compared with these.
    read = [*filter(None, read), *(own.file for own in own_configs(held))]
    own = vocabulary_file(held.format, held.path)
    if vocab_file and own and os.path.realpath(vocab_file) != os.path.realpath(own):
        read.append(own)
        written = (*written, "vocab.txt")
    return read, [join(directory, n) for n in written]


def check_one_encoder(path: str, shapes: Iterable[str]) -> None:
    """Raises ModelingError for weights with a second encoder, which would stay as it is."""
    second = next((name for name in shapes if name.startswith("second_")), None)
    if second:
        raise ModelingError(
            f"{path} holds {second}: it is a model of two encoders, one for each direction, and "
            f"only one of them would be changed. Change the two checkpoints that it was made of."
        )


def spare_rows(path: str | os.PathLike, vocab_size: int) -> int:
    """How many rows a checkpoint's word embeddings have beyond its vocabulary.

    Raises:
        ModelingError: There is no checkpoint, or one with fewer rows than there are tokens.
    """
    held = open_contents(path)
    rows = held.shapes.get(names.WORD_EMBEDDINGS, (0,))[0]
    if rows < vocab_size:
        raise ModelingError(
            f"{held.path} has word embeddings for {rows} tokens, and its vocabulary has "
            f"{vocab_size}: it isn't the one that these weights were trained with. Put that one "
            f"beside them."
        )
    return rows - vocab_size


def _with_ids(
    held: Contents, config: BertConfig, kept_ids: Sequence[int]
) -> tuple[Contents, BertConfig]:
    """A checkpoint and its configuration as if its vocabulary were these tokens of it alone."""
    rows = np.asarray(kept_ids, np.int64)
    tables = {n for n in (names.WORD_EMBEDDINGS, names.MASKED_LM_BIAS) if n in held.shapes}
    for name in tables:
        if rows[-1] >= held.shapes[name][0]:
            raise ModelingError(
                f"{held.file_names[name]} in {held.path} has {held.shapes[name][0]} rows, and "
                f"token {rows[-1]} is to be kept: the vocabulary isn't that of these weights. Give "
                f"the one that they were trained with."
            )

    def read(name: str) -> np.ndarray:
        array = held.read(name)
        return array[rows] if name in tables else array

    shapes = {name: (len(rows), *held.shapes[name][1:]) for name in tables}
    # Other libraries' configurations name tokens by their ids, such as pad_token_id.
    places = {int(row): place for place, row in enumerate(rows)}
    extra = {
        name: places.get(value) if name.endswith("_token_id") and type(value) is int else value
        for name, value in config.extra.items()
    }
    return (
        dataclasses.replace(held, shapes=held.shapes | shapes, read=read),
        dataclasses.replace(config, vocab_size=len(rows), extra=extra),
    )


def _with_means(held: Contents, mean_rows: Mapping[int, Sequence[int]]) -> Contents:
    """A checkpoint as if some of its tokens had the means of others' rows."""

    def read(name: str) -> np.ndarray:
        array = held.read(name)
        if name not in (names.WORD_EMBEDDINGS, names.MASKED_LM_BIAS):
            return array
        new = np.array(array)
        for row, pieces in mean_rows.items():
            new[row] = array[list(pieces)].mean(0, dtype=np.float64)
        return new

    return dataclasses.replace(held, read=read)


def _check_encoder(held: Contents, config: BertConfig) -> None:
    """Refuses what other libraries have no class for: a BiLSTM's head, or one without encoder."""
    width = held.shapes.get("output_weights", (0, config.hidden_size))[-1]
    encoder = any(name.startswith(names.ENCODER) for name in held.shapes)
    if not encoder or width != config.hidden_size:
        what = f"its head reads vectors {width} wide, not the {config.hidden_size} of the encoder"
        raise ModelingError(
            f"{held.path} can't be converted to a format of another library: "
            f"{what if encoder else 'it holds a head and no encoder'}, and no BERT class there has "
            f"such a model. Its own format is 'tf1'."
        )


def _notes(held: Contents, config: BertConfig, format: str, has_vocab: bool) -> list[str]:
    notes = []
    # Other programs don't know these fields.
    plain = dataclasses.replace(config, masked_lm_hidden_act=None, masked_lm_layer_norm_eps=None)
    masked_lm = masked_lm_note(held, plain)
    if masked_lm and format != KERAS_HUB:
        notes.append(masked_lm)
    if UNIT_OF_OTHERS.keys() & held.shapes.keys():
        notes.append(
            f"The model predicts numbers, and {' and '.join(UNIT_OF_OTHERS)} say in which unit. "
            f"They were folded into output_weights and output_bias; it answers as before."
        )
    if not has_vocab:
        notes.append(
            "No vocab.txt beside the weights, so none was written; name it with --vocab_file."
        )
    if format == names.TF1 and config.hidden_act == "gelu_erf":
        notes.append(
            'The model uses the exact gelu, written as "hidden_act": "gelu_erf" in '
            "bert_config.json. The original release knows only its tanh approximation and refuses "
            'this name; with "gelu" instead, results would differ by up to 5e-4 per activation.'
        )
    heads = checkpoint_heads(held.shapes, config, held.head)
    if config.head and not heads:
        notes.append(
            f"The configuration says that the model answers {config.head}, but the weights have no "
            f"such head: what was written is an encoder."
        )
    outputs = held.shapes.get("output_weights", (0,))[0]
    if config.labels and outputs and len(config.labels) != outputs:
        notes.append(
            f"The head has {outputs} outputs, and the configuration names {len(config.labels)} "
            f"labels. It can't be told which is which; the names are not those of the model."
        )
    if format == names.HUGGINGFACE and len(heads) > 1:
        notes.append(
            f"The weights have several heads ({', '.join(heads)}), and a class of Hugging Face's "
            f"has one: that of {heads[0]} was written."
        )
    if format == names.HUGGINGFACE and not heads and _POOLER not in held.shapes:
        notes.append(
            "The encoder has no pooler. Hugging Face's BertModel makes a random one, and says so, "
            "unless it is made with add_pooling_layer=False."
        )
    if held.untied_decoder:
        notes.append(
            "The masked-LM output matrix or bias of this file differs from the word embeddings or "
            "bias that BERT ties it to. It was not converted: the masked-LM head of the result "
            "does not compute what the file's model computes."
        )
    return notes
