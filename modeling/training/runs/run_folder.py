"""The checkpoints in a run's output folder: which there are, which of them are whole."""

import contextlib
import fnmatch
import functools
import json
import re
import uuid
from collections.abc import Iterable
from typing import Any

import tensorflow as tf
from absl import logging

from modeling.checkpoints import tf1
from modeling.checkpoints.files import (
    ANSWER_FILES,
    BEST_FOLDER,
    TUNED_FILES,
    WEIGHTS_ENDINGS,
    join,
    remove_abandoned,
)
from modeling.checkpoints.inspection.tokenizer_files import TOKENIZER_NAME, VOCABULARY_NAME
from modeling.checkpoints.model_folder import CONFIG_NAME
from modeling.errors import ModelingError

STUDENT_FOLDER, STUDENT_RECORD = "student", "student.json"
"""Of a run's output folder, for the student that it begins as, and what tells it from others."""
ADAPTED_VOCABULARY = "adapted_vocabulary"
"""Of a run's output folder, for the start of an adaptation to which words were added."""
# What a run keeps beside its weights, and replaces by nothing else.
_KEPT = (CONFIG_NAME, VOCABULARY_NAME, TOKENIZER_NAME)
# What a run leaves in its output folder. Caches of data and exports stay: the former are told
# apart by their content, the latter may be served.
_WRITTEN = (
    "model.ckpt-*", "data-[0-9]*", "checkpoint", BEST_FOLDER, "runs", "training.json",
    "budget.json", "rollbacks.json", "metrics.jsonl", "events.out.tfevents.*", "run_summary.json",
    "training.png", "pretraining.png", "search*.tsv", "search.png", "*_results*.txt",
    "eval_results.json",
    "class_report*.txt", "*_report.txt", "confusion*.png", "errors*.tsv", "test_results*.tsv",
    "predictions*.tsv", "predictions.txt", "entities.jsonl", "glue_submission",
    "predictions.json", "nbest_predictions.json", "null_odds.json",
    "bert_model.ckpt.*", "model_card.md", "report*.html", "adaptation.json", STUDENT_FOLDER,
    ADAPTED_VOCABULARY,
    *ANSWER_FILES, *_KEPT,
)  # fmt: skip
# What is replaced by a run that doesn't stand yet; while it is moved; and when nobody needs it.
_ASIDE, _MOVING, _FORGOTTEN = ".replaced", ".replaced.moving", ".replaced.forgotten"


def prepare_run_folder(directory: str) -> None:
    """Makes the output folder; raises ModelingError if it can't be written.

    What a process that was killed while saving has left there is removed. Of several workers each
    calls it.
    """
    probe = join(directory, f".write-test-{uuid.uuid4().hex[:12]}")
    try:
        tf.io.gfile.makedirs(directory)
        remove_abandoned(directory)
        with tf.io.gfile.GFile(probe, "w") as file:
            file.write("")
        # The first of several workers removes what it takes for a killed process's.
        with contextlib.suppress(tf.errors.NotFoundError):
            tf.io.gfile.remove(probe)
    except (tf.errors.OpError, OSError) as error:
        raise ModelingError(
            f"The output folder {directory} can't be written: {error}. Choose another "
            f"--output_dir or change the permissions of this one."
        ) from error


def set_run_aside(directory: str) -> None:
    """Sets aside what a run of any script has written to its output folder, and nothing else.

    The run that replaces it may be refused yet: `restore_run` brings it back, `forget_run` removes
    it once the new one stands.
    """
    written = _written(directory)
    if not written:
        return
    aside = join(directory, _MOVING)
    tf.io.gfile.makedirs(aside)
    for path in written:
        tf.io.gfile.rename(path, join(aside, path.rpartition("/")[2]))
    # Only a folder of this name is whole, so that what lies outside of it is the new run's.
    tf.io.gfile.rename(aside, join(directory, _ASIDE))


def restore_run(directory: str) -> None:
    """Brings back what `set_run_aside` has set aside, unless the run that replaces it stands.

    What that one has written is removed.
    """
    aside, moving = join(directory, _ASIDE), join(directory, _MOVING)
    if tf.io.gfile.isdir(aside):
        for path in _written(directory):
            _remove(path)
        tf.io.gfile.rename(aside, moving)
    if tf.io.gfile.isdir(moving):
        for entry in tf.io.gfile.listdir(moving):
            name = entry.rstrip("/")
            tf.io.gfile.rename(join(moving, name), join(directory, name))
        _remove(moving)
        logging.info("%s has again what the earlier run had written there.", directory)
    _remove(join(directory, _FORGOTTEN))


def forget_run(directory: str) -> None:
    """Removes what `set_run_aside` has set aside: the run that replaces it stands."""
    aside, forgotten = join(directory, _ASIDE), join(directory, _FORGOTTEN)
    if tf.io.gfile.isdir(aside):
        tf.io.gfile.rename(aside, forgotten)
        _remove(forgotten)
        logging.info("Removed what an earlier run had written to %s.", directory)


def remove_tuned(directory: str) -> None:
    """Removes what evaluations found out about weights that are about to change."""
    for name in TUNED_FILES:
        _remove(join(directory, name))


def _remove(path: str) -> None:
    if tf.io.gfile.isdir(path):
        tf.io.gfile.rmtree(path)
    elif tf.io.gfile.exists(path):
        tf.io.gfile.remove(path)


def _written(directory: str) -> list[str]:
    names = (entry.rstrip("/") for entry in tf.io.gfile.listdir(directory))
    ours = [n for n in names if any(fnmatch.fnmatchcase(n, pattern) for pattern in _WRITTEN)]
    # A student may also be trained in a folder of this name, inside of its teacher's.
    own = tf.io.gfile.exists(join(join(directory, STUDENT_FOLDER), STUDENT_RECORD))
    return [join(directory, name) for name in ours if own or name != STUDENT_FOLDER]


def written_files(directory: str) -> list[str]:
    """Files in an output folder that any run may replace: they have the names of what it writes."""
    files = []
    for path in _written(directory) if tf.io.gfile.isdir(directory) else []:
        for folder, _, names in tf.io.gfile.walk(path) if tf.io.gfile.isdir(path) else []:
            files += [join(folder, name) for name in names]
        files.append(path)
    # The release is of pre-training alone.
    kept = [join(directory, name) for name in _KEPT]
    return [path for path in files if "/bert_model.ckpt." not in path and path not in kept]


def run_checkpoint_steps(directory: str) -> list[int]:
    """Steps of the training checkpoints that are there, damaged ones too, in order."""
    if not tf.io.gfile.isdir(directory):
        return []
    # The index arrives last, so where it is the checkpoint had been written whole.
    matches = (re.fullmatch(r"model\.ckpt-(\d+)\.index", n) for n in tf.io.gfile.listdir(directory))
    return sorted(int(match[1]) for match in matches if match)


def holds_model(directory: str) -> bool:
    """Whether a run or a search has stood in a folder, or weights lie there, whoever's they are."""
    if not tf.io.gfile.isdir(directory):
        return False
    names = [name.rstrip("/") for name in tf.io.gfile.listdir(directory)]
    return any(
        name.endswith(WEIGHTS_ENDINGS) or name in (CONFIG_NAME, BEST_FOLDER) for name in names
    )


def latest_run_checkpoint(directory: str, to_train: bool = True) -> str | None:
    """Prefix of the newest training checkpoint that can be read in full, or None.

    Damaged ones (a disk that was full, a copy cut short) are passed over with a warning.

    Args:
        directory: The run's output folder.
        to_train: Whether to go on training from it: then the position in the training data beside
            it has to be whole too, if one was kept. Only where no checkpoint has that does one
            without it count.

    Raises:
        ModelingError: There are checkpoints, and every one is damaged.
    """
    stored = run_checkpoint_steps(directory)
    without_position = None
    for step in reversed(stored):
        prefix = join(directory, f"model.ckpt-{step}")
        problem = _problem(prefix, *_signature(prefix))
        if problem:
            continue
        if not to_train or _has_whole_position(directory, step):
            return prefix
        without_position = without_position or prefix
    if without_position:
        return without_position
    if stored:
        raise ModelingError(
            f"None of the {len(stored)} checkpoints in {directory} can be read; of the newest: "
            f"{problem} Restore them from a backup, or choose an empty --output_dir."
        )
    return None


def is_whole(directory: str, step: int) -> bool:
    """Whether training can go on from the checkpoint of a step; says why not."""
    prefix = join(directory, f"model.ckpt-{step}")
    return not _problem(prefix, *_signature(prefix)) and _has_whole_position(directory, step)


def _has_whole_position(directory: str, step: int) -> bool:
    """Whether a checkpoint's position in the training data is whole, if one was kept."""
    position = join(directory, f"data-{step}")
    kept = tf.io.gfile.exists(f"{position}.id")
    return not kept or not _position_problem(position, *_signature(position))


def latest_run_step(directory: str) -> int:
    """Step of the newest readable training checkpoint in the folder, 0 if there is none."""
    prefix = latest_run_checkpoint(directory)
    return int(prefix.rpartition("-")[2]) if prefix else 0


def read_run_file(path: str, lost: str, needed: Iterable[str] = ()) -> dict[str, Any]:
    """The JSON object that a run keeps at `path`.

    Args:
        path: The file, which is there.
        lost: How the message of a damaged one goes on: what that means, and what to do.
        needed: What the object has to hold.

    Raises:
        ModelingError: It is damaged.
    """
    try:
        with tf.io.gfile.GFile(path, "r") as file:
            kept = json.load(file)
        if not isinstance(kept, dict):
            raise TypeError(f"it holds {json.dumps(kept)[:100]}")
        missing = [name for name in needed if name not in kept]
        if missing:
            raise ValueError(f"it lacks {', '.join(missing)}")
    except (ValueError, TypeError, RecursionError) as error:
        raise ModelingError(f"{path} is damaged ({error}), {lost}") from error
    return kept


def trained_vocabulary(directory: str) -> str | None:
    """Where the vocabulary of the folder's weights lies, or would lie; None without weights."""
    return join(directory, VOCABULARY_NAME) if latest_run_step(directory) else None


def set_damaged_run_aside(directory: str, step: int) -> None:
    """Renames the indexes of checkpoints newer than `step`, so that they no longer count."""
    for newer in run_checkpoint_steps(directory):
        if newer > step:
            index = join(directory, f"model.ckpt-{newer}.index")
            tf.io.gfile.rename(index, f"{index}.damaged", overwrite=True)


def _signature(prefix: str) -> tuple[int, ...]:
    """What tells one writing of a checkpoint from another."""
    numbers = []
    for name in (f"{prefix}.index", f"{prefix}.data-00000-of-00001"):
        stat = tf.io.gfile.stat(name) if tf.io.gfile.exists(name) else None
        numbers += [stat.length, stat.mtime_nsec] if stat else [-1, -1]
    return tuple(numbers)


@functools.lru_cache(maxsize=64)
def _problem(prefix: str, *signature: int) -> str:
    """Why a checkpoint can't be read; "" if every tensor can. Reading checks its checksum."""
    try:
        tf1.read_bundle(prefix)
    except ModelingError as error:
        logging.warning("Damaged, so the checkpoint before it counts: %s", error)
        return str(error)
    return ""


@functools.lru_cache(maxsize=64)
def _position_problem(prefix: str, *signature: int) -> str:
    """The same of a position in the training data, which is an object-based checkpoint."""
    try:
        dtypes = tf.train.load_checkpoint(prefix).get_variable_to_dtype_map()
        with tf.device("CPU:0"):
            # The reader itself only reads what NumPy has a type for.
            tf.raw_ops.RestoreV2(
                prefix=prefix,
                tensor_names=list(dtypes),
                shape_and_slices=[""] * len(dtypes),
                dtypes=list(dtypes.values()),
            )
    except tf1.READ_ERRORS as error:
        problem = " ".join(str(error).split()).rpartition("}} ")[2][:300]
        logging.warning(
            "Damaged, so the checkpoint before it counts: the position in the training data, %s: "
            "%s",
            prefix,
            problem,
        )
        return problem
    return ""
