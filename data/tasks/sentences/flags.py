"""Flags of the tasks on sentences: which task, which files, how its texts are read."""

import os

import tensorflow as tf
from absl import flags

from data.errors import DataError
from data.features import TextSettings
from data.tasks.sentences import delimited, glue, multiple_choice
from data.tasks.sentences.examples import Task
from data.tokenization import long_texts

OWN_FILES = "delimited"  # name of the task
LABELS_FILE = "labels.json"


def define_task_flags() -> None:
    """The task and its files."""
    flags.DEFINE_string("data_dir", None, "Folder with the task's files, named as published.")
    flags.DEFINE_string(
        "task_name",
        None,
        f"One of {', '.join([*glue.task_names(), *multiple_choice.NAMES])}; {OWN_FILES} for "
        f"own files.",
    )
    # Own files.
    flags.DEFINE_string("train_file", None, "Own training file: .tsv, .csv, .jsonl or .parquet.")
    flags.DEFINE_list("dev_file", [], "Own files to evaluate on; the first decides.")
    flags.DEFINE_string("test_file", None, "Own file to predict.")
    flags.DEFINE_list("text_columns", [], "Column of the text, or of both texts.")
    flags.DEFINE_string("label_column", None, "Column of the label.")
    flags.DEFINE_string("id_column", None, "Column of a unique name of the row.")
    flags.DEFINE_enum(
        "label_kind",
        None,
        ["classes", "multi_label", "regression"],
        "What the label is; by default a class, or several where the file has lists.",
    )
    flags.DEFINE_list("labels", [], "Names of the classes; by default those of the training file.")
    flags.DEFINE_string("label_separator", ",", "Between the labels of one example.")
    flags.DEFINE_bool(
        "header", True, "Own .tsv and .csv files name their columns in the first line."
    )
    flags.DEFINE_enum(
        "file_format", None, ["tsv", "csv", "jsonl", "parquet"], "By default as the names end."
    )
    flags.DEFINE_float("dev_fraction", 0.0, "Share of the training file to evaluate on.")


def define_text_flags() -> None:
    """What becomes of texts."""
    flags.DEFINE_enum(
        "long_text", "head", long_texts.LONG_TEXT, "What is read of texts above max_seq_length."
    )
    flags.DEFINE_integer(
        "window_stride", 0, "Pieces between windows; 0: half a window.", lower_bound=0
    )
    flags.DEFINE_integer("max_windows", long_texts.MAX_WINDOWS, "Per text.", lower_bound=1)
    flags.DEFINE_enum("window_pooling", "mean", ["mean", "max"], "Of the windows' logits.")


def open_task(values, train: bool) -> Task:
    """The task that the flags name, read from the script's flag values.

    Args:
        values: The flag values, `output_dir` among them.
        train: Whether it will be trained; otherwise own files have the labels that were saved
            with the model in the output folder.

    Raises:
        DataError: There is no such task, or its flags are incomplete.
    """
    name = values.task_name.lower()
    if name == OWN_FILES:
        saved = os.path.join(values.output_dir, LABELS_FILE)
        known = not train and tf.io.gfile.exists(saved)
        return delimited.make_task(
            text_columns=values.text_columns,
            label_column=values.label_column,
            id_column=values.id_column,
            train_file=values.train_file,
            dev_files=values.dev_file,
            test_file=values.test_file,
            kind=values.label_kind,
            labels=values.labels or None,
            saved_labels=delimited.load_labels(saved) if known else None,
            label_separator=values.label_separator,
            has_header=values.header,
            dev_fraction=values.dev_fraction,
            seed=values.random_seed,
            format=values.file_format,
            data_dir=values.data_dir,
        )
    if name in multiple_choice.NAMES:
        return multiple_choice.get_task(name, values.train_file, values.dev_file, values.test_file)
    if not values.data_dir:
        raise DataError(
            f"--data_dir is missing: the folder that holds the files of {name} as published."
        )
    return glue.get_task(name)


def text_settings(values) -> TextSettings:
    """How texts become rows, read from the script's flag values."""
    return TextSettings(
        values.max_seq_length, values.long_text, values.window_stride, values.max_windows
    )
