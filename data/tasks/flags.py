"""Flags of every task.

Defined without TensorFlow, since --help needs none.
"""

from absl import flags


def define_bad_row_flags() -> None:
    """What becomes of the rows of files."""
    flags.DEFINE_bool(
        "skip_bad_rows",
        False,
        "Leave out rows, questions and sentences that can't be used, up to half of a file.",
    )
