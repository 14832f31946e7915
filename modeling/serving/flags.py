"""Flags of exports, which the scripts and commands that write SavedModels define alike."""

from absl import flags

EXPORT_DTYPES = ("float32", "bfloat16", "int8")


def define_export_flags() -> None:
    """Whether, where and how."""
    flags.DEFINE_bool("do_export", False, "Write a SavedModel that takes raw text.")
    flags.DEFINE_string("export_dir", None, "Where to; default: export/ in the output folder.")
    define_export_dtype()


def define_export_fill_mask_flag() -> None:
    """Of a pre-trained model."""
    flags.DEFINE_integer("export_top_k", 5, "Words that it gives for a [MASK].", lower_bound=1)


def define_export_dtype() -> None:
    """In which form the weights are kept."""
    flags.DEFINE_enum(
        "export_dtype",
        "float32",
        EXPORT_DTYPES,
        "bfloat16: matrices and products in it; int8: matrices alone.",
    )
