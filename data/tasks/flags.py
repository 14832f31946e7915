"""Flags of every task.

Defined without TensorFlow, since --help needs none.
"""

from collections.abc import Sequence

from absl import flags


def define_bad_row_flags() -> None:
    """What becomes of the rows of files."""
    flags.DEFINE_bool(
        "skip_bad_rows",
        False,
        "Leave out rows, questions and sentences that can't be used, up to half of a file.",
    )


def define_limit_flags() -> None:
    """How much of the files is used."""
    flags.DEFINE_integer(
        "max_train_examples",
        0,
        "Train on the first so many of each training file; 0: all.",
        lower_bound=0,
    )
    flags.DEFINE_integer(
        "max_eval_examples",
        0,
        "Evaluate on the first so many of each file to evaluate on; 0: all.",
        lower_bound=0,
    )


def define_transfer_flag(form: str) -> None:
    """Texts without labels, to learn a teacher's answers to."""
    flags.DEFINE_string(
        "transfer_file",
        None,
        f"With --teacher: {form} without labels, to learn the teacher's answers to.",
    )


def define_demo_flag(description: str) -> None:
    """--demo, which says what it learns and needs no other flag."""
    flags.DEFINE_bool("demo", False, description)


def mark_required_unless_demo(names: Sequence[str]) -> None:
    """Flags that a run needs and that a demo sets itself."""
    for name in names:
        flags.register_multi_flags_validator(
            [name, "demo"],
            lambda values, name=name: values["demo"] or values[name] is not None,
            f"Flag --{name} must have a value other than None.",
        )
