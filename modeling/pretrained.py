"""A trained BERT of any format in one line, and back to disk.

    import modeling
    from data.tokenization import build_inputs

    model, tokenizer, config = modeling.from_pretrained("uncased_L-12_H-768_A-12")
    outputs = model(build_inputs(tokenizer, ["Which layer?"]))
    modeling.save_pretrained("copy", model, tokenizer, format="huggingface")

The door for programs that use this project as a library; scripts and commands have their flags.
"""

from modeling import quiet  # noqa: F401  isort: skip

import contextlib
import os
import tempfile
from collections.abc import Iterator
from typing import NamedTuple

import keras
from absl import logging

from data.tokenization import Tokenizer
from data.tokenization.vocabulary import load_vocab
from modeling import checkpoints
from modeling.checkpoints.configurations import check_shapes
from modeling.checkpoints.formats.keras_hub import KERAS_HUB
from modeling.checkpoints.formats.keras_hub_writing import FILES
from modeling.checkpoints.heads import checkpoint_head
from modeling.checkpoints.inspection.releases import case_of_release
from modeling.checkpoints.model_folder import check_nobody_elses, open_model_folder
from modeling.checkpoints.vocabularies import TextFolding
from modeling.config import HEADS, BertConfig
from modeling.errors import ModelingError
from modeling.models import (
    BertClassifier,
    BertModel,
    BertMultipleChoice,
    BertPretrainer,
    BertQuestionAnswering,
    BertTagger,
)

_FILLING = ("pretraining", "masked_lm")  # heads that fill in [MASK]
_LABELLED = ("classes", "multi_label", "regression", "tags")  # heads with an output for each label


class Pretrained(NamedTuple):
    """What `from_pretrained` finds.

    Attributes:
        model: Built, with its weights: of `modeling.models` the class that its head asks for.
        tokenizer: That of its vocabulary; None if there is no vocabulary.
        config: The model's configuration, with `head` and `labels` where they are known.
    """

    model: keras.Model
    tokenizer: Tokenizer | None
    config: BertConfig


def from_pretrained(
    path: str | os.PathLike,
    head: str | None = None,
    num_labels: int | None = None,
    *,
    config_file: str | os.PathLike | None = None,
    vocab_file: str | os.PathLike | None = None,
    do_lower_case: bool | None = None,
    strip_accents: bool | None = None,
) -> Pretrained:
    """Opens a checkpoint of any format: the model with its head, its tokenizer, its configuration.

    Args:
        path: As `checkpoints.load` takes it: a folder, or a file of one of the formats.
        head: A key of `config.HEADS`: what the model is to answer, where that is not what the
            checkpoint's own head does; its weights are then new, which is logged. "classes" on a
            pre-trained model makes one to be fine-tuned.
        num_labels: Of such a new head: of "classes", "multi_label" and "tags", and the numbers of
            "regression" if there are several.
        config_file, vocab_file: Where they don't lie beside the weights.
        do_lower_case, strip_accents: Where nothing beside the weights tells. By default texts are
            lower-cased, and accents stripped where they are, as in the original.

    Raises:
        ModelingError: No checkpoint, several, a damaged one, no configuration; a new head without
            its number of labels, or that number for a head that has none.
        DataError: The vocabulary can't be used.
    """
    if num_labels is not None and (type(num_labels) is not int or num_labels < 1):
        raise ModelingError(f"num_labels is {num_labels!r}; it has to be a whole number from 1 on.")
    if head is not None and head not in HEADS:
        raise ModelingError(f"The head is {head!r}; it may be one of {', '.join(HEADS)}.")
    known = open_model_folder(path, config_file)
    held = checkpoints.open_contents(path)
    own = checkpoint_head(held.shapes, known.config, held.head)
    wanted = head or own
    rows = held.shapes.get("output_weights", (None,))[0] if wanted == own else None
    same = wanted == own and num_labels in (None, rows)
    if num_labels is not None and wanted not in _LABELLED:
        opened = f"head of {wanted}" if wanted else "encoder without a head"
        raise ModelingError(
            f"num_labels is {num_labels}, and {held.path} is opened as {opened}, which has no "
            f"labels. Give head='classes', 'multi_label' or 'tags', or leave num_labels out."
        )
    config = known.config
    if wanted != config.head or not same:
        config = config.with_head(wanted, config.labels or () if same else ())
    if wanted is None and known.config.head:
        logging.warning(
            "%s holds no head of %s, which its configuration tells of: this is the encoder alone.",
            held.path,
            known.config.head,
        )
    if rows and not same:
        logging.warning(
            "The head in %s has %d outputs, and num_labels is %d: a new one is made, not trained.",
            held.path,
            rows,
            num_labels,
        )
    if rows and config.labels and len(config.labels) != rows:
        raise ModelingError(
            f"The head in {held.path} has {rows} outputs, and its configuration names "
            f"{len(config.labels)} labels: {', '.join(config.labels)[:200]}. Name each of them in "
            f"its id2label, or none."
        )
    # Before memory is taken for a model that they can't be of.
    check_shapes(held, config, fewer_layers=True)
    model = _make_model(config, num_labels or rows, "target_scale" in held.shapes)
    model.build()
    if same:
        if own == "next_sentence":
            model.unused = ("cls/predictions/",)
        # Many encoders are published without their pooler.
        report = checkpoints.load(model, path, required=("",) if own else checkpoints.ENCODER)
    else:
        skip = ("output_",)
        report = checkpoints.load(model, path, required=checkpoints.ENCODER, skip=skip)
    if report.left_over:
        logging.warning("%s", report.summary())
    if vocab_file or known.vocab_file:
        checkpoints.check_vocabulary(path, vocab_file or known.vocab_file)
    folding = TextFolding(do_lower_case, strip_accents)
    if do_lower_case is None and known.folding == TextFolding():
        folding = TextFolding(case_of_release(held.path), strip_accents)
    return Pretrained(model, _tokenizer(known, vocab_file, folding, config), config)


def _make_model(config: BertConfig, num_labels: int | None, numbers: bool) -> keras.Model:
    """The model that answers what the configuration's head says."""
    head = config.head
    if head in ("classes", "multi_label", "tags") and not num_labels:
        raise ModelingError(
            f"The checkpoint has no head of {head}, and a new one needs num_labels: how many "
            f"{'tags' if head == 'tags' else 'labels'} there are."
        )
    if head in ("classes", "multi_label"):
        return BertClassifier(config, num_labels)
    if head == "regression":
        return BertClassifier(config, num_labels or 1, numbers=numbers)
    if head == "tags":
        return BertTagger(config, num_labels)
    if head in (*_FILLING, "next_sentence"):
        return BertPretrainer(config, next_sentence=head != "masked_lm")
    classes = {"choices": BertMultipleChoice, "spans": BertQuestionAnswering, None: BertModel}
    return classes[head](config)


def _tokenizer(known, vocab_file, given: TextFolding, config: BertConfig):
    path = vocab_file or known.vocab_file
    if not path:
        return None
    told = TextFolding(known.folding.do_lower_case, known.folding.drops_accents)
    for name, value, said in zip(TextFolding._fields, given, told, strict=True):
        if None not in (value, said) and value != said:
            raise ModelingError(
                f"{name} is {value}, but the files beside the weights say {said}. Texts that are "
                f"folded otherwise than in training have other pieces; leave it out."
            )
    lower, accents = (a if a is not None else b for a, b in zip(told, given, strict=True))
    never_split = ["[MASK]"] if config.head in _FILLING else []
    tokenizer = Tokenizer(os.fspath(path), lower is not False, never_split, accents)
    if len(tokenizer.vocab) > config.vocab_size:
        raise ModelingError(
            f"The vocabulary {path} has {len(tokenizer.vocab)} tokens, but the model's vocab_size "
            f"is {config.vocab_size}. Give the vocabulary that it was pre-trained with."
        )
    return tokenizer


def save_pretrained(
    directory: str | os.PathLike,
    model: keras.Model,
    tokenizer: Tokenizer | None = None,
    format: str = checkpoints.TF1,
) -> list[str]:
    """Writes a model so that `from_pretrained`, and the format's own library, opens the folder.

    Args:
        directory: Made if absent; files of the same names are replaced once all are complete.
        model: Its `config` says which head it has and what the labels are called, see
            `BertConfig.with_head`.
        tokenizer: Its vocabulary and how it folds texts are written too.
        format: One of `checkpoints.FORMATS`.

    Returns:
        The paths of the files written.

    Raises:
        ModelingError: As `checkpoints.save`; or the folder holds what would be taken for this
            model's: labels, thresholds, a vocabulary.
    """
    with _vocabulary(tokenizer) as vocab_file:
        folding = tokenizer and TextFolding(tokenizer.do_lower_case, tokenizer.strip_accents)
        preset = FILES if format == KERAS_HUB and tokenizer else ()
        check_nobody_elses(directory, None, (), vocab_file, folding or TextFolding(), preset)
        return checkpoints.save(model, directory, vocab_file, format, folding)


@contextlib.contextmanager
def _vocabulary(tokenizer: Tokenizer | None) -> Iterator[str | None]:
    """The tokenizer's vocabulary as a file: its own, unless that has changed since."""
    if tokenizer is None:
        yield None
        return
    file = tokenizer.vocab_file
    if file and os.path.exists(file) and load_vocab(file) == list(tokenizer.vocab):
        yield file
        return
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "vocab.txt")
        with open(path, "w", encoding="utf-8") as file:
            file.write("".join(f"{token}\n" for token in tokenizer.vocab))
        yield path
