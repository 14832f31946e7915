"""Flags of tasks on sentences: which task, which files, how texts are read, what is written.

Defined without TensorFlow, since --help needs none.
"""

from absl import flags

from data.flags import define_delimiter_flag, define_encoding_flag, define_text_folding_flags
from data.tasks.flags import (
    define_bad_row_flags,
    define_demo_flag,
    define_limit_flags,
    define_transfer_flag,
)

OWN_FILES = "delimited"  # name of the task
TASKS = ("cola", "diagnostic", "mnli", "mrpc", "qnli", "qqp", "rte", "sst-2", "sts-b", "wnli")
TASKS += ("xnli", "codah", "multiple_choice", "swag")
LONG_TEXT = ("head", "tail", "head_tail", "windows")
MAX_WINDOWS = 16


def define_sentence_flags() -> None:
    """All of them."""
    define_bad_row_flags()
    define_limit_flags()
    define_transfer_flag("texts")
    define_demo_flag("Learn from installed docstrings which library a text is from; see README.")
    _define_task_flags()
    define_text_folding_flags()
    flags.DEFINE_integer("max_seq_length", 128, "Longer inputs are truncated.", lower_bound=3)
    # Beyond the original's flags.
    flags.DEFINE_enum("long_text", "head", LONG_TEXT, "What is read of texts above max_seq_length.")
    flags.DEFINE_integer(
        "window_stride", 0, "Pieces between windows; 0: half a window.", lower_bound=0
    )
    flags.DEFINE_integer("max_windows", MAX_WINDOWS, "Per text.", lower_bound=1)
    flags.DEFINE_integer(
        "train_batch_tokens",
        0,
        "Places of a training batch, padding counted, in place of --train_batch_size.",
        lower_bound=0,
    )
    flags.DEFINE_bool("cache_features", True, "Keep the pieces of the texts in the output folder.")
    flags.DEFINE_bool(
        "glue_submission", False, "With --do_predict: also files for the GLUE server."
    )
    flags.DEFINE_bool(
        "raw_cells",
        False,
        "Tables with cells that begin with = + - @ as they are; else an apostrophe keeps a "
        "spreadsheet from running them.",
    )
    flags.DEFINE_enum(
        "label_thresholds",
        "0.5",
        ["0.5", "tuned"],
        "From which probability on a label of several is predicted, in predictions.tsv and the "
        "export; tuned: for each the one with the best F1 in the last --do_eval.",
    )
    flags.DEFINE_enum(
        "temperature",
        "1",
        ["1", "tuned"],
        "What logits of classes and choices are divided by before they become probabilities, in "
        "predictions.tsv, test_results.tsv and the export; tuned: what makes the labels of the "
        "last --do_eval likeliest.",
    )
    flags.DEFINE_bool(
        "wnli_majority",
        True,
        "In WNLI's submission the majority class, as the paper (appendix B.1).",
    )


def _define_task_flags() -> None:
    flags.DEFINE_string("data_dir", None, "Folder with the task's files, named as published.")
    flags.DEFINE_string("task_name", None, f"One of {', '.join(TASKS)}; {OWN_FILES} for own files.")
    # Own files.
    flags.DEFINE_string("train_file", None, "Own training file: .tsv, .csv, .jsonl or .parquet.")
    flags.DEFINE_list("dev_file", [], "Own files to evaluate on; the first decides.")
    flags.DEFINE_string("test_file", None, "Own file to predict.")
    flags.DEFINE_list("text_columns", [], "Column of the text, or of both texts.")
    flags.DEFINE_string(
        "label_column", None, "Column of the label; with --test_file it scores the predictions."
    )
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
    define_delimiter_flag()
    define_encoding_flag()
    flags.DEFINE_float("dev_fraction", 0.0, "Share of the training file to evaluate on.")
