"""Flags of everything that tokenizes.

Defined without TensorFlow, since --help needs none.
"""

from absl import flags


def define_encoding_flag() -> None:
    """How the bytes of own files become text."""
    flags.DEFINE_string(
        "encoding", "utf-8", "Of own files of text: utf-8, latin-1, cp1252, utf-16, gb18030, …"
    )


def define_delimiter_flag() -> None:
    """How the lines of own files become fields."""
    flags.DEFINE_string(
        "delimiter",
        None,
        "Between the fields of .tsv and .csv: tab, comma, semicolon, pipe, or one character; by "
        "default as the ending says.",
    )


def define_text_folding_flags() -> None:
    """How texts are folded before they are cut into pieces."""
    flags.DEFINE_bool(
        "do_lower_case", True, "Lower-case the text and strip accents; False for cased models."
    )
    flags.DEFINE_bool(
        "strip_accents",
        None,
        "Whether accents are stripped. Default: as the model's own files say, or else where text "
        "is lower-cased.",
    )
