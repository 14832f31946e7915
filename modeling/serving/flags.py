"""Flags of exports, which the scripts and commands that write SavedModels define alike."""

import os

from absl import flags

from modeling.serving.export import Export
from modeling.serving.storage import EXPORT_DTYPES


def define_export_flags() -> None:
    """Whether, where and how."""
    flags.DEFINE_bool("do_export", False, "Write a SavedModel that takes raw text.")
    flags.DEFINE_string("export_dir", None, "Where to; default: export/ in the output folder.")
    define_export_dtype()


def define_export_dtype() -> None:
    """In which form the weights are kept."""
    flags.DEFINE_enum(
        "export_dtype",
        "float32",
        EXPORT_DTYPES,
        "bfloat16: matrices and products in it; int8: matrices alone.",
    )


def make_export(
    values, vocab_file: str | None = None, bert_config_file: str | None = None
) -> Export:
    """Where and how the flags say that a model is exported.

    Args:
        values: The script's flag values.
        vocab_file, bert_config_file: If they aren't the flags'.
    """
    assets = {
        "vocab.txt": vocab_file or values.vocab_file,
        "bert_config.json": bert_config_file or values.bert_config_file,
    }
    directory = values.export_dir or os.path.join(values.output_dir, "export")
    return Export(directory, assets, values.export_dtype, values.max_seq_length)
