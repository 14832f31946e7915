"""User errors, and how every script and command ends when it meets one."""

import sys
import textwrap
from collections.abc import Callable
from logging import Formatter

from absl import app, logging


class ModelingError(ValueError):
    """A configuration, checkpoint or output folder can't be used.

    The message is one paragraph: what was received, where, what was expected, what to do.
    """


class NotFiniteError(ModelingError):
    """Training has diverged: a loss, a gradient or a weight isn't finite."""


def run(
    main: Callable[[list[str]], None], *user_errors: type[Exception], positional: bool = False
) -> None:
    """Runs `main(argv)` under absl; user errors end the process with one paragraph and code 1.

    Args:
        main: Takes the arguments that are left after flag parsing.
        *user_errors: Further exception classes that stand for the user's mistake, such as
            `data.errors.DataError`. `ModelingError` and `OSError` always count.
        positional: Whether there may be arguments besides flags.
    """

    def is_the_users(error: Exception) -> bool:
        if isinstance(error, (ModelingError, OSError, *user_errors)):
            return True
        import tensorflow as tf

        # How tf.io.gfile reports a missing file, a forbidden one and a full disk.
        of_files = (tf.errors.NotFoundError, tf.errors.PermissionDeniedError)
        return isinstance(error, (*of_files, tf.errors.FailedPreconditionError))

    def wrapped(argv: list[str]) -> None:
        logging.use_absl_handler()
        logging.get_absl_handler().setFormatter(Formatter("%(asctime)s %(message)s", "%H:%M:%S"))
        if len(argv) > 1 and not positional:
            raise app.UsageError(f"Unexpected arguments: {' '.join(argv[1:])}.")
        try:
            main(argv)
        except Exception as error:
            if not is_the_users(error):
                raise
            paragraph = textwrap.fill(
                " ".join(str(error).split()),
                width=100,
                break_long_words=False,
                break_on_hyphens=False,
            )
            print(f"\nError: {paragraph}", file=sys.stderr, flush=True)
            sys.exit(1)

    logging.set_verbosity(logging.INFO)  # before the flags are read, so that --verbosity counts
    app.run(wrapped)
