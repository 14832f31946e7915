"""What processes that were killed left half-written, removed by the one that alone may write there.

For `locks`, which says when that is certain.
"""

import contextlib
import os
from collections.abc import Iterable, Mapping, Sequence

import tensorflow as tf
from absl import logging

from data.files import atomic, lock_files

_DEPTH = 4  # of the folders in an output folder: length-128/records/train.tfrecord.parts


def remove_in_folder(folder: str, held: Mapping[str, str], depth: int = 0) -> None:
    """Removes temporary files and folders in a folder and below; not where others write.

    Args:
        folder: Which is there.
        held: Path of each lock that this process holds → its token.
        depth: Of the folder.
    """
    names = [name.rstrip("/") for name in tf.io.gfile.listdir(folder)]
    # In this order: what others write later than that isn't among the names.
    locks = [os.path.join(folder, name) for name in names if name.endswith(lock_files.NAME)]
    if any(_is_of_another(path) for path in locks if path not in held):
        return
    _remove(folder, [name for name in names if atomic.temporary_target(name) is not None])
    _remove_claims(folder, names, held)
    for name in names if depth < _DEPTH else []:
        path = os.path.join(folder, name)
        # The versions of an export are whole.
        if not name.isdecimal() and not os.path.islink(path) and tf.io.gfile.isdir(path):
            remove_in_folder(path, held, depth + 1)


def remove_of_files(files: Sequence[str], held: Mapping[str, str]) -> None:
    """Removes what was to become one of the files, or one called by it and a further ending.

    Not where such a one is being written by a process of its own.
    """
    targets: dict[str, set[str]] = {}
    for path in files:
        targets.setdefault(os.path.dirname(path), set()).add(os.path.basename(path))
    for folder, of in targets.items():
        names = tf.io.gfile.listdir(folder or ".")
        endings = tuple(f"{name}." for name in of)
        whole = {name: atomic.temporary_target(name) or "" for name in names}
        ours = [name for name, target in whole.items() if f"{target}.".startswith(endings)]
        locks = {name: os.path.join(folder, f".{whole[name]}{lock_files.NAME}") for name in ours}
        _remove(
            folder, [n for n, lock in locks.items() if lock in held or not _is_of_another(lock)]
        )
        _remove_claims(folder, names, held)


def _remove_claims(folder: str, names: Iterable[str], held: Mapping[str, str]) -> None:
    """Claims on the locks that were there before those that are held now."""
    for lock, token in held.items():
        old = [name for name in names if os.path.join(folder, name).startswith(f"{lock}.")]
        _remove(folder, [name for name in old if token not in name])


def _is_of_another(lock: str) -> bool:
    content = lock_files.read_lock(lock)
    return (
        content is not None
        and lock_files.is_owner_alive(lock_files.lock_owner(content)) is not False
    )


def _remove(folder: str, names: Iterable[str]) -> None:
    for name in names:
        path = os.path.join(folder, name)
        # Others may be at it as well.
        with contextlib.suppress(tf.errors.NotFoundError):
            if not lock_files.is_lock(name):
                logging.info("Removing %s, which a process that was killed left.", path)
            remove = tf.io.gfile.rmtree if tf.io.gfile.isdir(path) else tf.io.gfile.remove
            remove(path)
