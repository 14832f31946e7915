"""Flags of everything that tokenizes.

Defined without TensorFlow, since --help needs none.
"""

from absl import flags


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
