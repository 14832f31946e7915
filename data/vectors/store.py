"""Vectors of a frozen encoder on disk: computed once for a list of rows, streamed in training.

stored = stored_vectors(folder, "train", features, fingerprint, width, extract)
for batch in stored.batches(features, Batching(32, batching_length_buckets(128)), training=True): …
"""

import dataclasses
import hashlib
import io
import math
import os
from collections.abc import Callable, Iterable

import numpy as np
import tensorflow as tf
from absl import logging

from data import batching
from data.features import Features, feature_portions, remove_other_features
from data.files import atomic
from data.progress import work
from data.vectors.array_batches import array_batches, check_vector_array_rows

Extract = Callable[[Iterable[dict[str, np.ndarray]], np.ndarray], np.ndarray]

_VALUES_AT_ONCE = 2**24  # held in memory while computing; 64 MB
_BATCH_SIZE = 32
_CHECKSUM_BYTES = 16
_READ_BYTES = 2**24
# Of stored vectors; to be counted up when the same pieces give other files.
_FORMAT = 2


@dataclasses.dataclass(frozen=True)
class StoredVectors:
    """Vectors of all pieces of all rows.

    Attributes:
        path: A NumPy array file, float32 [pieces, width], row after row; behind the numbers, where
            NumPy doesn't look, stands a checksum of the identity and of all before.
        header: Bytes before the first number.
        width: Of a vector.
    """

    path: str
    header: int
    width: int

    def batches(
        self,
        features: Features,
        shape: batching.Batching,
        training: bool,
        seed: int = 0,
        name: str = "features",
    ) -> tf.data.Dataset:
        """`batching.batches` with the vectors: float32 [B, T, width], 0 at padding.

        They are read from the file when their batch comes; nothing else is held in memory.

        Args:
            features: Those that the vectors were computed of; labels may differ.
            shape, training, seed: See `batching.batches`.
            name: Of the vectors in the batch.
        """
        check_vector_array_rows(features)
        first_rows = features.row_splits[:-1]

        def read(index: np.ndarray, length: np.ndarray) -> np.ndarray:
            values = np.zeros((len(index), length, self.width), np.float32)
            with tf.io.gfile.GFile(self.path, "rb") as file:
                for place, example in enumerate(index):
                    if example < 0:
                        continue
                    row = first_rows[example]
                    begin, end = features.splits[row : row + 2]
                    file.seek(self.header + int(begin) * self.width * 4)
                    data = file.read(int(end - begin) * self.width * 4)
                    vectors = np.frombuffer(data, "<f4").reshape(-1, self.width)
                    values[place, : end - begin] = vectors
            return values

        def add(batch):
            ids = batch["input_ids"]
            # Stateless, so that the place in the data can be saved with the training state.
            values = tf.numpy_function(
                read, [batch["index"], tf.shape(ids)[1]], tf.float32, stateful=False
            )
            values.set_shape([*ids.shape, self.width])
            return batch | {name: values}

        dataset = batching.batches(features, shape, training, seed).map(add)
        return dataset.prefetch(1)


def stored_vectors(
    folder: str, name: str, features: Features, fingerprint: str, width: int, extract: Extract
) -> StoredVectors:
    """Computes the vectors of every row, or takes them as they were computed before.

    They lie in `NAME-HASH.npy`. The hash is of the pieces, which texts, vocabulary and settings
    decide, and of `fingerprint`; so whatever changes makes a new file, and the old ones of that
    name are removed. Nothing is left under that name by a process that was killed. Vectors from
    before are verified by their checksum, and computed again if they were damaged.

    Args:
        folder: Made if absent.
        name: Of the split.
        features: Examples of one row each.
        fingerprint: Says which model, weights and layers compute.
        width: Of a vector.
        extract: From batches and the rows' lengths to float32 [pieces, …] of `width` numbers
            each, in the rows' order.

    Raises:
        DataError: There are several rows per example, or the file can't be written.
    """
    check_vector_array_rows(features)
    digest = hashlib.blake2b(digest_size=8)
    digest.update(f"{_FORMAT} {fingerprint} {width} {features.pad_id}".encode())
    for values in (features.ids, features.splits, features.first_lengths):
        digest.update(np.ascontiguousarray(values, "<i8").tobytes())
    path = os.path.join(folder, f"{name}-{digest.hexdigest()}.npy")
    count = len(features.ids)
    header = _header((count, width))
    stored = StoredVectors(path, len(header), width)
    size = len(header) + count * width * 4
    checksum = hashlib.blake2b(digest.digest(), digest_size=_CHECKSUM_BYTES)
    if tf.io.gfile.exists(path):
        if _is_sound(path, size, checksum.copy()):
            logging.info("Vectors of %d rows of %s: from %s", len(features), name, path)
            return stored
        logging.warning("%s is damaged: its checksum or its length is another.", path)
    logging.info(
        "Computing the vectors of %d rows of %s, %.0f MB: %s", len(features), name, size / 1e6, path
    )
    shape = batching.Batching(
        _BATCH_SIZE, batching.batching_length_buckets(features.max_seq_length)
    )
    hint = f"It needs {math.ceil(size / 1e6):,} MB in a folder that you may write to."
    atomic.make_folder(path)
    atomic.remove_leftovers(folder)
    with (
        atomic.writing(path, hint=hint) as file,
        work("Computing vectors", "rows", len(features)) as shown,
    ):
        file.write(header)
        checksum.update(header)
        for some in feature_portions(features.lengths, _VALUES_AT_ONCE // width):
            part = features.part(some.start, some.stop)
            vectors = extract(array_batches(part, shape, shown.add), part.lengths)
            content = np.ascontiguousarray(vectors, "<f4").tobytes()
            file.write(content)
            checksum.update(content)
        file.write(checksum.digest())
    remove_other_features(path, name)
    return stored


def _is_sound(path: str, size: int, checksum) -> bool:
    """Whether a file has `size` bytes and behind them their checksum, to be updated by them."""
    if tf.io.gfile.stat(path).length != size + _CHECKSUM_BYTES:
        return False
    with tf.io.gfile.GFile(path, "rb") as file:
        while size:
            block = file.read(min(size, _READ_BYTES))
            checksum.update(block)
            size -= len(block)
        return file.read(_CHECKSUM_BYTES) == checksum.digest()


def _header(shape: tuple[int, ...]) -> bytes:
    content = io.BytesIO()
    descr = {"descr": "<f4", "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(content, descr)
    return content.getvalue()
