"""What a teacher answers to a split, computed once and kept on disk with its identity.

stored = stored_answers(folder, split.name, identity, count, width, by_place, compute)
dataset = with_answers(dataset, [stored])
"""

import dataclasses
import hashlib
import os
from collections.abc import Callable, Iterable, Sequence

import numpy as np
import tensorflow as tf
from absl import logging

from modeling.checkpoints.files import join, staged
from modeling.errors import ModelingError
from modeling.training.distillation.soft_answers import TEACHER
from modeling.training.engine.distribution import is_chief
from modeling.training.engine.loop import LoopAgreement, wait_for_workers

# To be counted up when the same identity gives other files.
_FORMAT = 1
_CHECKSUM_BYTES = 16
_READ_BYTES = 2**24
_PLACES = np.dtype([("start", "<i8"), ("count", "<i8")])

Answers = Iterable[tuple[np.ndarray, Sequence[np.ndarray]]]
"""For some examples at a time `index` int64 [B], and of each example float32 [places, K]."""


@dataclasses.dataclass(frozen=True, eq=False)
class StoredAnswers:
    """A file of float32 rows of K numbers, and where each example has its own.

    Attributes:
        path: The rows, one example's after the other; behind them where each example's begin and
            how many they are; in the end a checksum of the identity and of all before.
        width: K.
        by_place: Whether an example has a row for each place, not one.
        places: `start` and `count` of each example, [N].
    """

    path: str
    width: int
    by_place: bool
    places: np.ndarray

    def read(self, index: np.ndarray, length: int) -> np.ndarray:
        """Float32 [B, length, K], 0 where there is nothing, and all of it where index is −1."""
        values = np.zeros((len(index), length, self.width), np.float32)
        with tf.io.gfile.GFile(self.path, "rb") as file:
            for row, example in enumerate(index):
                if example >= 0:
                    rows = self._rows(file, example)
                    values[row, : len(rows)] = rows
        return values

    def of_example(self, example: int) -> np.ndarray:
        """Float32 [places, K]."""
        with tf.io.gfile.GFile(self.path, "rb") as file:
            return self._rows(file, example)

    def _rows(self, file, example: int) -> np.ndarray:
        start, count = self.places[example].tolist()
        file.seek(start * self.width * 4)
        rows = np.frombuffer(file.read(count * self.width * 4), "<f4")
        return rows.reshape(count, self.width)


def with_answers(dataset: tf.data.Dataset, stored: Sequence[StoredAnswers]) -> tf.data.Dataset:
    """Batches with `teacher_logits`: the mean of several teachers' answers to the same split.

    They are float32 [B, K], or [B, T, K] where T is the second axis of `input_ids`. They are read
    from the files when their batch comes.
    """
    by_place = stored[0].by_place

    def read(index: np.ndarray, length: np.ndarray) -> np.ndarray:
        parts = [one.read(index, int(length)) for one in stored]
        return np.mean(parts, 0, np.float32) if len(parts) > 1 else parts[0]

    def add(batch):
        ids = batch["input_ids"]
        length = tf.shape(ids)[1] if by_place else tf.constant(1)
        # Stateless, so that the place in the data can be saved with the training state.
        values = tf.numpy_function(read, [batch["index"], length], tf.float32, stateful=False)
        values.set_shape([ids.shape[0], ids.shape[1] if by_place else 1, stored[0].width])
        return batch | {TEACHER: values if by_place else values[:, 0]}

    return dataset.map(add).prefetch(1)


def stored_answers(
    folder: str,
    name: str,
    identity: str,
    count: int,
    width: int,
    by_place: bool,
    compute: Callable[[], Answers],
) -> StoredAnswers:
    """What `compute` gives for each of `count` examples, or what it gave before.

    They lie in `NAME-HASH.answers`, and the hash is of all that is given here; so whatever changes
    makes a new file. Nothing is left under that name by a process that was killed. A file from
    before is verified by its checksum, and computed again if it was damaged. Memory holds some
    examples at a time, and two numbers of each.

    Args:
        folder: Made if absent; all workers read it.
        name: Of the split.
        identity: Says which texts, pieces, model, weights and number format these are.
        count: Of the examples.
        width, by_place: See `StoredAnswers`.
        compute: Called by all workers if there is no such file.

    Raises:
        ModelingError: The folder can't be written, or isn't shared by all workers; or answers
            aren't of that width.
    """
    digest = hashlib.blake2b(digest_size=16)
    digest.update(repr((_FORMAT, identity, count, width, by_place)).encode())
    path = join(folder, f"{name}-{digest.hexdigest()[:16]}.answers")
    places = _sound_places(path, digest.digest(), count)
    if LoopAgreement().reach(places is None, False, 1.0)[0]:
        logging.info("Computing the teacher's answers to %d examples: %s", count, path)
        if is_chief():
            _write(path, digest.digest(), np.zeros(count, _PLACES), width, compute())
        else:
            for _ in compute():  # in which the devices of all workers take part
                pass
        wait_for_workers()
        places = _sound_places(path, digest.digest(), count)
        if places is None:
            raise ModelingError(
                f"{path} can't be read back as it was written. All workers need a folder that "
                f"they share, and a disk with room for it."
            )
    else:
        logging.info("The teacher's answers to %d examples: from %s", count, path)
    return StoredAnswers(path, width, by_place, places)


def _write(path: str, identity: bytes, places: np.ndarray, width: int, answers: Answers) -> None:
    checksum, rows = hashlib.blake2b(identity, digest_size=_CHECKSUM_BYTES), 0
    folder, file_name = os.path.split(path)
    with (
        staged(folder) as temporary,
        tf.io.gfile.GFile(join(temporary, file_name), "wb") as file,
    ):
        for index, of_examples in answers:
            for example, answer in zip(index, of_examples, strict=True):
                if np.shape(answer)[1:] != (width,):
                    # Numbers of one example would be taken for those of the next.
                    raise ModelingError(
                        f"The teacher answers with {np.shape(answer)[-1]} numbers where what is "
                        f"trained here answers with {width}: its head is larger than what the "
                        f"files beside it say. Take a teacher that was fine-tuned on this task."
                    )
                places[example] = (rows, len(answer))
                rows += len(answer)
                content = np.ascontiguousarray(answer, "<f4").tobytes()
                file.write(content)
                checksum.update(content)
        lost = np.flatnonzero(places["count"] == 0)
        if len(lost):
            raise ModelingError(
                f"The teacher has answered {len(places) - len(lost)} of {len(places)} examples, "
                f"and not number {lost[0]}: batches don't hold every example once."
            )
        checksum.update(places.tobytes())
        file.write(places.tobytes() + checksum.digest())


def _sound_places(path: str, identity: bytes, count: int) -> np.ndarray | None:
    """Where the examples' rows are in a file; None if there is none, or it is damaged."""
    if not tf.io.gfile.exists(path):
        return None
    checksum = hashlib.blake2b(identity, digest_size=_CHECKSUM_BYTES)
    behind = count * _PLACES.itemsize + _CHECKSUM_BYTES
    size = tf.io.gfile.stat(path).length - behind
    with tf.io.gfile.GFile(path, "rb") as file:
        left = size
        while left > 0:
            block = file.read(min(left, _READ_BYTES))
            checksum.update(block)
            left -= len(block)
        content = file.read(count * _PLACES.itemsize)
        checksum.update(content)
        if size < 0 or file.read(_CHECKSUM_BYTES) != checksum.digest():
            logging.warning("%s is damaged: its checksum is another. It is made again.", path)
            return None
    return np.frombuffer(content, _PLACES)
