"""Writing several files so that none is ever half-written under its final name."""

import contextlib
import os
import posixpath
import uuid
from collections.abc import Iterator

import tensorflow as tf

from modeling.errors import ModelingError


def join(directory: str, name: str) -> str:
    """Joins paths, also of gs:// and the like."""
    return posixpath.join(directory, name) if "://" in directory else os.path.join(directory, name)


@contextlib.contextmanager
def staged(directory: str) -> Iterator[str]:
    """A temporary folder inside `directory` whose files move there when the block ends well.

    Each file arrives by renaming, `*.index` last, since a TF1 checkpoint counts as present once
    its index is there. When the block raises, nothing in `directory` has changed. What remains
    is the moment between two renames: a process killed then leaves some files new and others
    old, which the checksums in a TF1 index reveal on reading.

    Args:
        directory: Made if absent. May be on any file system that tf.io.gfile knows.

    Raises:
        ModelingError: The folder can't be made or written.
    """
    temporary = join(directory, f".saving-{uuid.uuid4().hex[:12]}")
    try:
        try:
            tf.io.gfile.makedirs(temporary)
            yield temporary
            names = tf.io.gfile.listdir(temporary)
            for name in sorted(names, key=lambda name: (name.endswith(".index"), name)):
                source, target = join(temporary, name), join(directory, name)
                tf.io.gfile.rename(source, target, overwrite=True)
        finally:
            if tf.io.gfile.exists(temporary):
                tf.io.gfile.rmtree(temporary)
    except tf.errors.OpError as error:
        raise ModelingError(
            f"Can't write to the folder {directory}: {error.message}. Check that it is a folder, "
            f"that you may write to it and that the disk isn't full."
        ) from error


def write_text(path: str, text: str) -> None:
    """Writes a UTF-8 text file with the line ends that `text` has."""
    with tf.io.gfile.GFile(path, "wb") as file:
        file.write(text.encode("utf-8"))


def listing(directory: str, limit: int = 15) -> str:
    """The names in a folder as one phrase for an error message."""
    names = sorted(name.rstrip("/") for name in tf.io.gfile.listdir(directory))
    if not names:
        return "nothing"
    shown = ", ".join(names[:limit])
    return shown if len(names) <= limit else f"{shown} and {len(names) - limit} more"
