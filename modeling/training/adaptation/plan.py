"""How a released model is pre-trained further on own text: what the flags leave open.

    set_adaptation_flags(values)             # before the flags are checked
    folder = make_start(values, domain)      # within the run's lock
    plan_adaptation(values, domain, hidden_size, longest, head)

`domain` is what `data.pretraining.domain.study_domain` found out about the text.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from absl import logging

from modeling import checkpoints
from modeling.checkpoints.files import join
from modeling.checkpoints.model_folder import CONFIG_NAME
from modeling.checkpoints.vocabularies import TextFolding
from modeling.errors import ModelingError
from modeling.training.given_model import check_run_vocabulary
from modeling.training.phases import MASKED_SHARE
from modeling.training.runs.run_folder import ADAPTED_VOCABULARY

MINUTES = 30.0
PASSES = 40
"""More of them over a small corpus would be learned by heart."""
LENGTHS = (32, 64, 128)
"""Of records: the shortest into which nine of ten documents fit, or the longest of these."""
WIDE = 512
"""From this hidden_size on the learning rate is the lower one."""
_FIXED = {
    "do_train": True,
    "do_eval": True,
    "dynamic_masking": True,
    # It has fewer steps than lie between two checkpoints otherwise.
    "save_checkpoints_minutes": 5.0,
    "optimizer": "adamw",
    "lr_schedule": "linear_from_peak",
}
_EXCLUDED = ("demo", "input_file", "phases", "student_layers", "student_num_layers")
_EXCLUDED += ("student_hidden_size", "teacher")


class StudiedText(Protocol):
    """What is known of the text; see `data.pretraining.domain.Domain`."""

    characters: int
    pieces: int
    document_pieces: int
    vocab_file: str
    new_words: Mapping[int, str]
    new_pieces: Mapping[int, Sequence[int]]
    frequent: Sequence[str]


class RehearsedText(Protocol):
    """General text to train on besides; see `data.pretraining.rehearsal.Rehearsal`."""

    characters: int
    wanted: float


def set_adaptation_flags(values) -> None:
    """Gives --adapt's values to the flags that the command line leaves alone.

    Args:
        values: The flags' values: `values[name].present` and `.value`.

    Raises:
        ModelingError: There is no model or no text, or a flag that --adapt excludes.
    """
    for name, what in (("init_checkpoint", "the model to adapt"), ("corpus_file", "own text")):
        if not values[name].value:
            raise ModelingError(f"--adapt needs --{name}: {what}.")
    given = [f"--{name}" for name in _EXCLUDED if values[name].value]
    if given:
        raise ModelingError(
            f"--adapt and {', '.join(given)} exclude each other: it takes a whole model and raw "
            f"text, may add words to its vocabulary, and chooses lengths and steps itself."
        )
    if values["do_train"].present and not values.do_train:
        raise ModelingError(
            "--adapt trains, and --do_train is false. What an adaptation has made is a model like "
            "any other: evaluate and export it without --adapt."
        )
    if values.recipe != "paper":
        raise ModelingError(
            f"--adapt and --recipe={values.recipe} exclude each other: the recipe is for models "
            f"from nothing, and --adapt has one of its own. Give single flags of it."
        )
    if values.objective in ("ltr", "rtl"):
        raise ModelingError(
            f"--adapt and --objective={values.objective} exclude each other: it trains and judges "
            f"by masked words. Give mlm_nsp or mlm, or leave it out."
        )
    for name, value in _FIXED.items():
        _set(values, name, value)
    if values.pack_sequences:
        _set(values, "objective", "mlm")
    budgets = ("minutes", "flops", "num_train_steps")
    if not any(values[name].present for name in budgets):
        values["minutes"].value = MINUTES


def _set(values, name: str, value: Any) -> None:
    if not values[name].present:
        values[name].value = value


def make_start(values, domain: StudiedText) -> str:
    """The model that training starts from: the given one, or one with the new words' rows.

    A row is the mean of those of the pieces that the word was cut into. --init_checkpoint,
    --vocab_file and --bert_config_file name that model from here on.

    Args:
        values: The flags' values.
        domain: Of the text; its `vocab_file` is written.

    Returns:
        Its folder or checkpoint.

    Raises:
        ModelingError: The output folder's weights are of another vocabulary: of other text.
    """
    if not domain.new_pieces:
        check_run_vocabulary(values)
        return values.init_checkpoint
    folder = join(values.output_dir, ADAPTED_VOCABULARY)
    checkpoints.convert(
        values.init_checkpoint,
        folder,
        checkpoints.TF1,
        values.bert_config_file,
        domain.vocab_file,
        mean_rows=domain.new_pieces,
        folding=TextFolding(values.do_lower_case, values.strip_accents),
    )
    values["init_checkpoint"].value = folder
    values["vocab_file"].value = join(folder, "vocab.txt")
    if values.bert_config_file:
        values["bert_config_file"].value = join(folder, CONFIG_NAME)
    check_run_vocabulary(values)
    return folder


def plan_adaptation(
    values,
    domain: StudiedText,
    rehearsed: RehearsedText,
    hidden_size: int,
    longest: int,
    head: str | None,
) -> str:
    """Chooses lengths, steps and rate where the flags don't; what it chose, in words.

    Args:
        values: The flags' values, which are changed.
        domain: Of the text.
        rehearsed: Besides it.
        hidden_size, longest: Of the model: its width and the most pieces that it takes.
        head: Of its checkpoint, see `heads.checkpoint_head`.
    """
    fitting = [n for n in LENGTHS if n >= domain.document_pieces + 2] or [LENGTHS[-1]]
    length = min(fitting[0], longest)
    # A next-sentence head that isn't trained would be of another model than the rest.
    with_pairs = head == "pretraining" and not values.pack_sequences
    _set(values, "objective", "mlm_nsp" if with_pairs else "mlm")
    _set(values, "max_seq_length", length)
    length = values.max_seq_length
    _set(
        values,
        "max_predictions_per_seq",
        math.ceil(max(MASKED_SHARE, values.masked_lm_prob) * length),
    )
    _set(values, "learning_rate", 5e-5 if hidden_size >= WIDE else 1e-4)
    pieces = domain.pieces * (1 + rehearsed.characters / domain.characters)
    steps = math.ceil(PASSES * pieces / (values.train_batch_size * length))
    _set(values, "num_train_steps", steps)
    _set(values, "num_warmup_steps", max(1, values.num_train_steps // 10))
    names = ("objective", "max_seq_length", "max_predictions_per_seq", "train_batch_size")
    names += ("optimizer", "learning_rate", "lr_schedule", "num_train_steps", "num_warmup_steps")
    chosen = " ".join(f"--{name}={values[name].value}" for name in names)
    limit = next(
        (f"--{n}={values[n].value:g}" for n in ("minutes", "flops") if values[n].value), ""
    )
    text = f"Plan: {chosen}" + (f", or as many steps as {limit} holds" if limit else "")
    logging.info("%s", text)
    return text
