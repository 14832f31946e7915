"""Files that are there whole or not at all, wherever `tf.io.gfile` can write.

    with atomic.writing("answers.json", "w") as file:
        file.write(…)
    atomic.write_text("vocab.txt", text)
    atomic.remove_leftovers(folder)

What is written lies under PATH.HOST-PROCESS-RANDOM.partial until it is complete; then it is
renamed. A failure (a full disk, an interruption) removes it. Only a process that is killed leaves
something behind, which is found by that name: by `remove_leftovers` for this host's dead processes,
by `locks.one_writer`, under which nobody else writes, for those of every host.
"""

import contextlib
import os
import re
import socket
import uuid
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from data.errors import DataError

ENDING = ".partial"
HINT = "Name a file in a folder that exists and that you may write to, with room enough."

_HOST = re.sub(r"[^0-9A-Za-z]", "_", socket.gethostname())[:40]
_OURS = re.compile(rf"\.{_HOST}-(\d+)-[0-9a-f]{{12}}{re.escape(ENDING)}$")
# Folders in which a release or a SavedModel is put together have names of another form.
_TEMPORARY = re.compile(
    rf"^(.+)\.\w+-\d+-[0-9a-f]{{12}}{re.escape(ENDING)}$|^\.saving-.+-[0-9a-f]{{12}}$"
)


def temporary_name(path: str) -> str:
    """A name to write a file under, until it is complete."""
    # No two processes ever write to one: those of a run that was killed may live on for a moment.
    return f"{path}.{_HOST}-{os.getpid()}-{uuid.uuid4().hex[:12]}{ENDING}"


def temporary_target(name: str) -> str | None:
    """What a file or folder of this name was to become; None if it isn't a temporary one.

    "" for folders in which several files are put together.
    """
    match = _TEMPORARY.match(name)
    return (match[1] or "") if match else None


@contextlib.contextmanager
def replacing(path: str, folder: str | None = None, hint: str = HINT) -> Iterator[str]:
    """Gives a name to write a file under, which becomes `path` in the end.

    Args:
        path: Of the file; what is there stays until the new one is complete.
        folder: Where the file lies until then; default: that of `path`.
        hint: What to do if it can't be written.

    Raises:
        DataError: It can't be written: whatever error of a file system comes from inside of the
            block, or from renaming.
    """
    refuse_special_file(path)
    temporary = temporary_name(
        path if folder is None else os.path.join(folder, os.path.basename(path))
    )
    try:
        with name_failing_file(path, hint):
            yield temporary
            tf.io.gfile.rename(temporary, path, overwrite=True)
    except BaseException:
        with contextlib.suppress(tf.errors.OpError):
            tf.io.gfile.remove(temporary)
        raise


@contextlib.contextmanager
def writing(path: str, mode: str = "wb", **options: Any) -> Iterator[tf.io.gfile.GFile]:
    """Opens a file for writing that appears when it is complete.

    The mode is "w" for text or "wb" for bytes; for options and errors see `replacing`.
    """
    with replacing(path, **options) as temporary, tf.io.gfile.GFile(temporary, mode) as file:
        file.write("" if mode == "w" else b"")  # Without a write no file comes into being.
        yield file


def write_text(path: str, text: str) -> None:
    """Writes a file of UTF-8 text; DataError as `replacing`."""
    with writing(path, "w") as file:
        file.write(text)


def check_writable(path: str) -> None:
    """Raises DataError now if a file couldn't be written later, after long work."""
    with name_failing_file(path), contextlib.suppress(_OnlyTried), writing(path):
        raise _OnlyTried


class _OnlyTried(Exception):  # noqa: N818
    """Ends a trial of writing."""


def refuse_special_file(path: str) -> None:
    """Raises DataError where no file can be put: for a device, pipe, socket or folder."""
    special = os.path.exists(path) and not (os.path.isfile(path) or os.path.isdir(path))
    # /dev/stdout is a link, maybe to a regular file.
    if special or (os.path.exists(path) and os.path.dirname(os.path.abspath(path)) == "/dev"):
        raise DataError(
            f"{path} is a device, a pipe or a socket, not a regular file, and a finished file "
            f"would take its place. Name a file."
        )
    if tf.io.gfile.isdir(path):
        raise DataError(f"{path} is a folder, where a file is to be written. Name a file in it.")


def make_folder(path: str) -> None:
    """Makes the folder that `path` lies in, if it is absent; DataError if that fails."""
    with name_failing_file(path):
        tf.io.gfile.makedirs(os.path.dirname(path) or ".")


@contextlib.contextmanager
def name_failing_file(path: str, hint: str = HINT) -> Iterator[None]:
    """Turns errors of the file system into a DataError that names the file and says the hint."""
    try:
        yield
    except BrokenPipeError:
        raise
    except (tf.errors.OpError, OSError) as error:
        reason = getattr(error, "message", error)
        raise DataError(f"{path} can't be written: {reason}. {hint}") from error


def remove_leftovers(folder: str) -> None:
    """Removes what processes of this host that are no more left half written in a folder."""
    for name in tf.io.gfile.listdir(folder):
        ours = _OURS.search(name)
        if ours and not _is_alive(int(ours[1])):
            # Another process may clean up at the same time.
            with contextlib.suppress(tf.errors.NotFoundError):
                tf.io.gfile.remove(os.path.join(folder, name))


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
