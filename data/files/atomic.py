"""Files that are there whole or not at all: written under a temporary name, then renamed."""

import contextlib
import os
import socket
import uuid
from collections.abc import Iterator

import tensorflow as tf

from data.errors import DataError


@contextlib.contextmanager
def writing(path: str, mode: str = "w") -> Iterator:
    temporary = f"{path}.tmp-{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:12]}"
    try:
        with tf.io.gfile.GFile(temporary, mode) as file:
            yield file
        tf.io.gfile.rename(temporary, path, overwrite=True)
    finally:
        if tf.io.gfile.exists(temporary):
            tf.io.gfile.remove(temporary)


def write_text(path: str, text: str) -> None:
    try:
        with writing(path) as file:
            file.write(text)
    except tf.errors.OpError as error:
        raise DataError(f"{path} can't be written: {error.message}") from error


def remove_leftovers(folder: str) -> None:
    pass
