"""User errors, and how every script and command ends when it meets one."""

import sys
import textwrap
from collections.abc import Callable
from logging import Formatter

from absl import app, flags, logging

from modeling.logs import break_silence


class ModelingError(ValueError):
    """A configuration, checkpoint or output folder can't be used.

    The message is one paragraph: what was received, where, what was expected, what to do.
    """


class DivergedError(ModelingError):
    """Training has diverged: a loss, a gradient or a weight isn't finite, or the loss has jumped.

    Args:
        message: See `ModelingError`.
        step: Updates done before the first one that is known to be bad.
        until: Updates done with the last one; default: that was the only one.
    """

    def __init__(self, message: str, step: int = 0, until: int | None = None):
        super().__init__(message)
        self.step = step
        self.until = step + 1 if until is None else until


def run(
    main: Callable[[list[str]], None],
    *user_errors: type[Exception],
    flag_values: flags.FlagValues | None = None,
    positional: bool = False,
) -> None:
    """Runs `main(argv)` under absl; user errors end the process with one paragraph and code 1.

    Args:
        main: Takes the arguments that are left after flag parsing.
        *user_errors: Further exception classes that stand for the user's mistake, such as
            `data.errors.DataError`. `ModelingError` and `OSError` always count.
            Their traceback is logged at debug level.
        flag_values: The command's flags, which `check_given_flags` looks at first.
        positional: Whether there may be arguments besides flags.
    """

    def wrapped(argv: list[str]) -> None:
        logging.use_absl_handler()
        logging.get_absl_handler().setFormatter(Formatter("%(asctime)s %(message)s", "%H:%M:%S"))
        if len(argv) > 1 and not positional:
            raise app.UsageError(f"Unexpected arguments: {' '.join(argv[1:])}.")
        try:
            if flag_values is not None:
                check_given_flags(flag_values)
            break_silence()
            main(argv)
        except (ModelingError, OSError, *_file_errors(), *user_errors) as error:
            logging.debug("Where it happened:", exc_info=True)
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


def check_given_flags(values: flags.FlagValues) -> None:
    """Refuses what no flag of a command line can mean, whatever its own bounds say.

    Bounds of absl's let NaN through, and infinity where there is one bound. An empty text is what
    a variable that isn't set leaves in a command line; `--init_checkpoint=` would train from
    random weights without a word. It stays where the flag has another default.

    Raises:
        ModelingError: A number isn't finite or beyond 32 bits, or a text is empty.
    """
    for flag in (values[name] for name in values if values[name].present):
        value = flag.value
        most = 2**31 - 1 if isinstance(value, int) else sys.float_info.max
        if isinstance(value, int | float) and not abs(value) <= most:
            raise ModelingError(
                f"--{flag.name} is {value}; a number that is finite and, if it is whole, below "
                f"2^31 was expected. Correct it, or leave the flag out (its default is "
                f"{flag.default})."
            )
        if value in ("", [], [""]) and not flag.default:
            raise ModelingError(
                f"--{flag.name} is given, but empty. Give it a value or leave it out; if the "
                f"command line takes the value from a variable, that isn't set."
            )


def _file_errors() -> tuple[type[Exception], ...]:
    """How tf.io.gfile reports a missing file, a forbidden one and a full disk."""
    # Not imported for this: what hasn't used TensorFlow can't have met its errors, and the page of
    # --help would take seconds.
    tf = sys.modules.get("tensorflow")
    if tf is None:
        return ()
    kinds = tf.errors
    return (kinds.NotFoundError, kinds.PermissionDeniedError, kinds.FailedPreconditionError)
