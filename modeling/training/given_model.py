"""The model that a script's flags mean: from each flag, or from the folder of its weights.

config = open_given_model(values)
tokenizer = Tokenizer(values.vocab_file, values.do_lower_case, (), values.strip_accents)
check_training_fits_model(values, config, tokenizer.vocab_size)
"""

import os

import tensorflow as tf
from absl import logging

from modeling import checkpoints
from modeling.checkpoints import model_folder
from modeling.checkpoints.files import BEST_FOLDER, join
from modeling.checkpoints.inspection.releases import hint_of_release
from modeling.checkpoints.inspection.tokenizer_files import TOKENIZER_NAME
from modeling.checkpoints.vocabularies import (
    TextFolding,
    check_casing,
    describe_vocabulary,
    kept_folding,
    text_folding,
)
from modeling.config import BertConfig
from modeling.errors import ModelingError
from modeling.sizes import ENGLISH_VOCABULARY, SIZES, SIZES_IN_WORDS
from modeling.training.runs import best as best_weights
from modeling.training.runs import run_folder

# Vocabularies are often padded to a multiple of 8 to 128 in the configuration, for speed.
_PADDING = 128


def open_given_model(values, learns_vocabulary: bool = False) -> BertConfig:
    """The configuration of the model that the flags mean.

    What --bert_config_file, --vocab_file, --do_lower_case and --strip_accents don't say is taken
    from the folder of --init_checkpoint, or else from the output folder, and put into `values`.
    Sizes that --bert_config_file gives by name are for the vocabulary of --init_checkpoint, or else
    that of --vocab_file, or else one as large as the released English one.

    Args:
        values: The flags' values.
        learns_vocabulary: Whether the script can do without --vocab_file.

    Raises:
        ModelingError: Something isn't known, or a flag contradicts what is.
    """
    for name in ("bert_config_file", "vocab_file"):
        path, sizes = values[name].value, SIZES if name == "bert_config_file" else {}
        if path and path not in sizes and not tf.io.gfile.exists(path):
            or_name = f" Or name the model's sizes: {SIZES_IN_WORDS}." if sizes else ""
            raise ModelingError(f"--{name}={path} does not exist. {hint_of_release(path)}{or_name}")
    known, source = _known_model(values)
    if not (values.bert_config_file or known):
        raise ModelingError(
            f"--bert_config_file is missing: the JSON file with the model's sizes, or a name of "
            f"sizes: {SIZES_IN_WORDS}. It can be left out where --init_checkpoint names a model "
            f"that has one beside its weights."
        )
    source = values.bert_config_file or source
    # One that was learned is found by whoever learned it.
    if known and not values.vocab_file and (values.init_checkpoint or not learns_vocabulary):
        values["vocab_file"].value = known.vocab_file
    if not (values.vocab_file or learns_vocabulary):
        raise ModelingError(
            f"--vocab_file is missing{f', and none lies beside {source}' if known else ''}: the "
            f"vocabulary that the model was pre-trained with, a text file with a token per line."
        )
    config = known.config if known else None
    if values.bert_config_file and not values.init_checkpoint:
        vocab_size = ENGLISH_VOCABULARY
        if values.vocab_file:
            vocab_size = describe_vocabulary(values.vocab_file)["tokens"]
        config = BertConfig.from_file_or_name(values.bert_config_file, vocab_size)
    told = known.folding if known else TextFolding()
    if told == TextFolding() and values.vocab_file:
        told = kept_folding(os.path.dirname(values.vocab_file) or ".")
    take_text_folding(values, told)
    if not learns_vocabulary or values.corpus_file or values.do_export:  # else no text is folded
        check_casing(values.do_lower_case, values.init_checkpoint)
    adapts = "adapt" in values and values.adapt  # and checks when it has chosen the words
    if learns_vocabulary and values.vocab_file and not adapts:
        check_run_vocabulary(values)  # before records are made with it
    return config


def _known_model(values) -> tuple[model_folder.ModelFolder | None, str | None]:
    """What the folders tell, and which one does."""
    if values.init_checkpoint:
        return model_folder.open_model_folder(
            values.init_checkpoint, values.bert_config_file
        ), values.init_checkpoint
    folder = values.output_dir if "output_dir" in values else None
    if "overwrite_output_dir" in values and values.overwrite_output_dir:
        folder = None  # What lies there will be removed.
    kept = model_folder.kept_model_files(folder) if folder else None
    return kept, folder


def take_text_folding(values, known: TextFolding) -> None:
    """Folds texts as a model's folder says.

    Args:
        values: The flag values `do_lower_case` and `strip_accents`, which are changed.
        known: What the folder says; nothing changes where it doesn't.

    Raises:
        ModelingError: A flag was given that says otherwise.
    """
    told = {"do_lower_case": known.do_lower_case, "strip_accents": known.drops_accents}
    for name, value in told.items():
        if value is None:
            continue
        given = values[name].value if values[name].present else None
        if given is not None and given != value:
            raise ModelingError(
                f"--{name} is {given}, but the model's own files say {value}: its "
                f"{TOKENIZER_NAME} or what stands for it. Texts that are folded "
                f"otherwise than in training have other pieces; leave out the flag."
            )
        if name == "do_lower_case" or value != values.do_lower_case:
            values[name].value = value


def known_text_folding(values) -> TextFolding:
    """How the texts of a pre-training run are folded; unknown where it was given only records."""
    start = values.init_checkpoint
    told = text_folding(start) if start else TextFolding()
    if told.do_lower_case is not None:
        return told
    if values.input_file and not any(values[name].present for name in TextFolding._fields):
        return text_folding(start, by_name=True) if start else TextFolding()
    return TextFolding(values.do_lower_case, values.strip_accents)


def check_training_fits_model(
    values, config: BertConfig, vocab_size: int, config_file: str | None = None
) -> None:
    """Refuses a sequence length or a vocabulary that the model has no embeddings for.

    And a vocabulary other than that of the checkpoints that are going to be read.

    Args:
        values: The flag values `max_seq_length`, `bert_config_file`, `vocab_file`,
            `init_checkpoint` and, if there is one, `output_dir`.
        config: Of the model.
        vocab_size: Tokens of the vocabulary.
        config_file: Where the configuration is from, if not from --bert_config_file.

    Raises:
        ModelingError: Says which.
    """
    config_file = config_file or values.bert_config_file or "its configuration"
    if values.max_seq_length > config.max_position_embeddings:
        raise ModelingError(
            f"--max_seq_length is {values.max_seq_length}, but the model was made for "
            f"max_position_embeddings {config.max_position_embeddings} "
            f"({config_file}). Give --max_seq_length={config.max_position_embeddings} or less."
        )
    if vocab_size > config.vocab_size:
        raise ModelingError(
            f"The vocabulary {values.vocab_file} has {vocab_size} tokens, but vocab_size in "
            f"{config_file} is {config.vocab_size}. Use the vocabulary that the model "
            f"was pre-trained with."
        )
    if vocab_size < config.vocab_size:
        logging.log(
            logging.INFO if config.vocab_size - vocab_size < _PADDING else logging.WARNING,
            "The vocabulary %s has %d tokens, but vocab_size in %s is %d: the ids from %d on stand "
            "for no token. A few rows may pad the table for speed; many mean that the vocabulary "
            "is not the model's.",
            values.vocab_file,
            vocab_size,
            config_file,
            config.vocab_size,
            vocab_size,
        )
    check_run_vocabulary(values)


def check_run_vocabulary(values) -> None:
    """Refuses a --vocab_file that isn't that of the checkpoints that are going to be read.

    Args:
        values: The flag values `vocab_file`, `init_checkpoint` and, if there is one, `output_dir`.

    Raises:
        ModelingError: Names the checkpoint; or one can't be read.
    """
    folder = values.output_dir if "output_dir" in values else None
    if "overwrite_output_dir" in values and values.overwrite_output_dir:
        folder = None  # What lies there will be removed.
    best = join(folder, BEST_FOLDER) if folder else None
    paths = [values.init_checkpoint, folder and run_folder.latest_run_checkpoint(folder, False)]
    paths.append(best if best and best_weights.has_best(folder) else None)
    for path in filter(None, paths):
        checkpoints.check_vocabulary(path, values.vocab_file)
