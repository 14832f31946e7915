"""Writing several files so that none is ever half-written under its final name."""

import contextlib
import os
import posixpath
import re
import socket
import time
import uuid
from collections.abc import Iterator

import tensorflow as tf
from absl import logging

from modeling.errors import ModelingError

BEST_FOLDER = "best"
"""Of a run's output folder, for its best weights."""
LABELS_FILE, READING_FILE = TASK_FILES = "labels.json", "reading.json"
"""What a run keeps of its task beside the weights, and what starts from these looks for."""
TUNED_FILES = (
    "label_thresholds.json",
    "temperature.json",
    "answer_calibration.json",
    "null_score_diff_threshold.json",
)
"""What an evaluation finds out about weights, for their answers."""
ANSWER_FILES = (*TASK_FILES, *TUNED_FILES)
"""All that tells beside a task's weights what their answers mean."""
WEIGHTS_ENDINGS = (".index", ".safetensors", ".h5", ".keras", ".bin", ".pt", ".pth")
"""How files that hold weights end, in any format."""
_LFS = b"version https://git-lfs"
_STAGING = ".saving-"
_HOST = re.sub(r"[^\w.]", "_", socket.gethostname())
# Longer than writing takes: a temporary folder of another machine, as old as this, is abandoned.
_ABANDONED_SECONDS = 6 * 3600
_under_way: set[str] = set()  # names of this process's temporary folders


def join(directory: str, name: str) -> str:
    """Joins paths, also of gs:// and the like."""
    return posixpath.join(directory, name) if "://" in directory else os.path.join(directory, name)


def refuse_lfs_pointer(path: str) -> None:
    """Raises ModelingError for what `git clone` leaves without Git LFS: a few lines of text."""
    with tf.io.gfile.GFile(path, "rb") as file:
        if file.read(len(_LFS)) == _LFS:
            raise ModelingError(
                f"{path} is a pointer of Git LFS, not the file itself. Fetch that with 'git lfs "
                f"pull', or download it."
            )


@contextlib.contextmanager
def temporary_folder(directory: str) -> Iterator[str]:
    """A new folder inside `directory`, removed in the end unless it has been renamed.

    So is `directory`, if it was absent and is empty. No other host, process or call gives it the
    same name, and `remove_abandoned` knows whose it is.
    """
    name = f"{_STAGING}{_HOST}-{os.getpid()}-{uuid.uuid4().hex[:12]}"
    temporary = join(directory, name)
    _under_way.add(name)
    absent = False
    try:
        absent = not tf.io.gfile.exists(directory)
        tf.io.gfile.makedirs(temporary)
        yield temporary
    finally:
        if tf.io.gfile.exists(temporary):
            tf.io.gfile.rmtree(temporary)
        if absent and "://" not in directory:
            with contextlib.suppress(OSError):  # something is in it
                os.rmdir(directory)
        _under_way.discard(name)


@contextlib.contextmanager
def staged(directory: str) -> Iterator[str]:
    """A temporary folder inside `directory` whose files move there when the block ends well.

    Those in folders of it move to folders of the same names.

    Each file arrives by renaming, `*.index` last, since a TF1 checkpoint counts as present once
    its index is there. When the block raises, nothing in `directory` has changed. What remains
    is the moment between two renames: a process killed then leaves some files new and others
    old, which the checksums in a TF1 index reveal on reading.

    Args:
        directory: Made if absent. May be on any file system that tf.io.gfile knows.

    Raises:
        ModelingError: The folder can't be made or written.
    """
    try:
        with temporary_folder(directory) as temporary:
            yield temporary
            files = files_inside(temporary)
            for file in sorted(files, key=lambda file: (file.endswith(".index"), file)):
                source, target = join(temporary, file), join(directory, file)
                if os.path.dirname(file):
                    tf.io.gfile.makedirs(os.path.dirname(target))
                tf.io.gfile.rename(source, target, overwrite=True)
    except tf.errors.OpError as error:
        raise ModelingError(
            f"Can't write to the folder {directory}: {error.message}. Check that it is a folder, "
            f"that you may write to it and that the disk isn't full."
        ) from error


def remove_abandoned(directory: str) -> None:
    """Removes temporary folders whose process was killed.

    Those of processes that are still writing stay: their names say which machine and process.
    """
    for entry in tf.io.gfile.listdir(directory):
        name = entry.rstrip("/")
        # Another worker may be removing the same ones.
        with contextlib.suppress(tf.errors.NotFoundError):
            if name.startswith(_STAGING) and _is_abandoned(directory, name):
                logging.info("Removing %s, which a killed process left.", join(directory, name))
                tf.io.gfile.rmtree(join(directory, name))


def _is_abandoned(directory: str, name: str) -> bool:
    host, _, rest = name.removeprefix(_STAGING).partition("-")
    process = rest.partition("-")[0]
    if host == _HOST and process.isdecimal() and os.name == "posix":
        if int(process) == os.getpid():  # maybe of an earlier process of the same number
            return name not in _under_way
        try:
            os.kill(int(process), 0)
        except ProcessLookupError:
            return True
        except OSError:
            pass
    temporary = join(directory, name)
    paths = [join(temporary, file) for file in tf.io.gfile.listdir(temporary)] or [temporary]
    newest = max(tf.io.gfile.stat(path).mtime_nsec for path in paths) / 1e9
    return time.time() - newest > _ABANDONED_SECONDS


def files_inside(directory: str) -> list[str]:
    """The paths, from a folder on, of all files in it and in its folders, sorted."""
    walked = [(where, file) for where, _, files in tf.io.gfile.walk(directory) for file in files]
    return sorted(join(where, file)[len(directory) :].lstrip("/\\") for where, file in walked)


def write_staged_text(path: str, text: str) -> None:
    """Writes a UTF-8 text file with the line ends that `text` has."""
    with tf.io.gfile.GFile(path, "wb") as file:
        file.write(text.encode("utf-8"))


def listing_of_names(directory: str, limit: int = 15) -> str:
    """The names in a folder as one phrase for an error message."""
    names = sorted(name.rstrip("/") for name in tf.io.gfile.listdir(directory))
    if not names:
        return "nothing"
    shown = ", ".join(names[:limit])
    return shown if len(names) <= limit else f"{shown} and {len(names) - limit} more"


def folders_of_checkpoint(file: str) -> list[str]:
    """Where what belongs to a checkpoint, as `find` names it, may lie: beside it.

    What belongs to the best weights of a run, in its folder `best`, lies in the run's folder.
    """
    folder = os.path.dirname(file) or "."
    above = [os.path.dirname(folder) or "."] if os.path.basename(folder) == BEST_FOLDER else []
    return [folder, *above]
