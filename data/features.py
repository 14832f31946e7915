"""Tokenised examples as arrays, what tells them from others, and where they are kept.

features = cached_features(folder, "train", features_fingerprint(texts_and_settings), tokenise)
"""

import contextlib
import dataclasses
import hashlib
import io
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np
import tensorflow as tf
from absl import logging

from data.errors import DataError
from data.files import atomic


@dataclasses.dataclass(frozen=True)
class Features:
    """Tokenised examples. An example has one row, or several: its choices or its windows.

    Attributes:
        ids: int32 [all pieces of all rows].
        splits: int64 [rows + 1]; row r is ids[splits[r]:splits[r + 1]].
        first_lengths: int32 [rows]; how many of its pieces are of segment 0.
        row_splits: int64 [N + 1]; example i has the rows row_splits[i] to row_splits[i + 1].
        label_ids: int32 [N]: class or choice; float32 [N]: number; float32 [N, L]: 1 for each
            label of several. 0 where there is no label.
        max_seq_length: What the rows were truncated to.
        pad_id: Id that fills rows up.
        several_rows: Whether batches have an axis for rows.
        extra: Further arrays [N, …], which batches have under the same names; 0 in filling rows.
        piece_labels: int32 [all pieces of all rows] or None: labels of single pieces, which
            batches then have as `piece_labels` of the shape of `input_ids`; -1 at padding.
    """

    ids: np.ndarray
    splits: np.ndarray
    first_lengths: np.ndarray
    row_splits: np.ndarray
    label_ids: np.ndarray
    max_seq_length: int
    pad_id: int
    several_rows: bool = False
    extra: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)
    piece_labels: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.label_ids)

    @classmethod
    def of_single_rows(cls, lengths: np.ndarray, **fields) -> "Features":
        """Examples of one row each; without labels, unless `label_ids` is among the fields."""
        fields = {"label_ids": np.zeros(len(lengths), np.int32)} | fields
        return cls(
            splits=feature_row_splits(lengths), row_splits=np.arange(len(lengths) + 1), **fields
        )

    def part(self, begin: int, end: int) -> "Features":
        """The examples `begin` to before `end`, of one row each, without labels."""
        splits = self.splits[begin : end + 1]
        return Features.of_single_rows(
            np.diff(splits),
            ids=self.ids[splits[0] : splits[-1]],
            first_lengths=self.first_lengths[begin:end],
            max_seq_length=self.max_seq_length,
            pad_id=self.pad_id,
        )

    def joined(self, other: "Features") -> "Features":
        """These examples, and behind them those of features of the same kind."""

        def both(name: str) -> np.ndarray:
            return np.concatenate([getattr(self, name), getattr(other, name)])

        def splits(name: str) -> np.ndarray:
            mine, others = getattr(self, name), getattr(other, name)
            return np.concatenate([mine, others[1:] + mine[-1]])

        names = ("ids", "first_lengths", "label_ids")
        names += () if self.piece_labels is None else ("piece_labels",)
        return dataclasses.replace(
            self,
            splits=splits("splits"),
            row_splits=splits("row_splits"),
            extra={
                name: np.concatenate([values, other.extra[name]])
                for name, values in self.extra.items()
            },
            **{name: both(name) for name in names},
        )

    @property
    def lengths(self) -> np.ndarray:
        """int64 [N], pieces of the example's longest row, [CLS] and [SEP] counted."""
        lengths = np.diff(self.splits)
        return np.maximum.reduceat(lengths, self.row_splits[:-1]) if len(self) else lengths

    @property
    def num_rows(self) -> np.ndarray:
        """int64 [N]."""
        return np.diff(self.row_splits)


def feature_row_splits(lengths: np.ndarray) -> np.ndarray:
    """int64 [N + 1]: where each of N parts of these lengths begins, and where the last one ends."""
    return np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])


def feature_portions(lengths: Sequence[int], most: int) -> Iterator[slice]:
    """Cuts a list so that the lengths of no portion sum up to more, unless it is a single item."""
    splits, begin = feature_row_splits(lengths), 0
    while begin < len(lengths):
        end = int(np.searchsorted(splits, splits[begin] + most, "right")) - 1
        end = max(end, begin + 1)
        yield slice(begin, end)
        begin = end


def concatenated_features(parts: Iterable[Mapping[str, tf.Tensor]]) -> dict[str, np.ndarray]:
    """Arrays that were computed part by part, each as a whole."""
    parts = list(parts)
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def features_fingerprint(parts: Iterable) -> str:
    """A checksum of content, 32 hexadecimal digits; the identity of data in runs and caches.

    Args:
        parts: What JSON can hold, or NumPy arrays, in an order that counts.
    """
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        if isinstance(part, np.ndarray):
            digest.update(f"{part.dtype.str}{part.shape}".encode())
            digest.update(np.ascontiguousarray(part).tobytes())
        else:
            digest.update(json.dumps(part).encode())
        digest.update(b"\n")
    return digest.hexdigest()


def cached_features(
    folder: str | None, name: str, identity: str, make: Callable[[], Features]
) -> Features:
    """What `make` gives, or what it gave before for the same data.

    A cache is a convenience: where it can't be written a warning says so, and nothing else happens.

    Args:
        folder: Where to keep the arrays, in `NAME-IDENTITY.npz`; None keeps nothing. Whatever
            changes the identity makes a new file; the old ones of that name are removed.
        name: Of the split.
        identity: The fingerprint of all that the arrays depend on.
        make: Computes features without `extra` and `piece_labels`.
    """
    if not folder:
        return make()
    path = os.path.join(folder, f"{name}-{identity}.npz")
    stored = _load(path, identity)
    if stored:
        logging.info("Pieces of %d examples of %s: from %s", len(stored), name, path)
        return stored
    features = make()
    try:
        tf.io.gfile.makedirs(folder)
        atomic.remove_leftovers(folder)
        with atomic.writing(path, "wb") as file:
            arrays = dataclasses.asdict(features)
            del arrays["extra"], arrays["piece_labels"]
            arrays["checksum"] = _checksum(identity, arrays)
            content = io.BytesIO()
            np.savez(content, **arrays)
            file.write(content.getvalue())
        remove_other_features(path, name)
    except (DataError, tf.errors.OpError) as error:
        logging.warning("The pieces can't be kept, and are made again next time: %s", error)
    return features


def remove_other_features(path: str, name: str) -> None:
    """Removes the files of that name with other identities than the one at `path`."""
    folder, extension = os.path.dirname(path), os.path.splitext(path)[1]
    digits = len(os.path.basename(path)) - len(f"{name}-{extension}")
    for old in tf.io.gfile.glob(os.path.join(folder, f"{name}-{'[0-9a-f]' * digits}{extension}")):
        if os.path.basename(old) != os.path.basename(path):
            # Other processes, such as the workers of one run, may be at it as well.
            with contextlib.suppress(tf.errors.NotFoundError):
                tf.io.gfile.remove(old)


def _checksum(identity: str, arrays: Mapping[str, np.ndarray]) -> str:
    return features_fingerprint([identity, *(np.asarray(arrays[name]) for name in sorted(arrays))])


def _load(path: str, identity: str) -> Features | None:
    """The features of a file, None where there is none that is whole and of that identity."""
    if not tf.io.gfile.exists(path):
        return None
    try:
        with tf.io.gfile.GFile(path, "rb") as file:
            arrays = dict(np.load(io.BytesIO(file.read())))
        if arrays.pop("checksum") != _checksum(identity, arrays):
            raise ValueError("another checksum")
        for name, of in (("max_seq_length", int), ("pad_id", int), ("several_rows", bool)):
            arrays[name] = of(arrays[name])
        return Features(**arrays)
    # Of a damaged archive zipfile and NumPy raise nearly anything, EOFError and KeyError too.
    except Exception:
        logging.warning("%s is damaged; the texts are tokenised again.", path)
        return None
