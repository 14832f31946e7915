"""Which records are kept from training, to evaluate on."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import tensorflow as tf

from data.errors import DataError
from data.pretraining.records.record_files import count_records

HELD_OUT_SHARE = 0.05
WHOLE_FILES_FROM = 20


@dataclass(frozen=True, slots=True)
class HeldOutSplit:
    """A division of record files into training and held-out records.

    Attributes:
        train_files, eval_files: Files of each side.
        every: None if the sides have different files. Otherwise both have the same files, and
            records 0, every, 2·every … of each file are held out.
    """

    train_files: tuple[str, ...]
    eval_files: tuple[str, ...]
    every: int | None


def split_held_out(files: Sequence[str], share: float = HELD_OUT_SHARE) -> HeldOutSplit:
    """Sets a share of the records aside for evaluation.

    The rule, which depends on nothing but the files' names, order and sizes, and on `share`:

    * From 20 files on, every k-th file, k = round(1 / share), is held out whole. Files made
      from different texts share no document, so this is the clean split.
    * With fewer files, or where some have no record or those held out would be less than half or
      more than twice the share of all bytes, every k-th record of each file is held out, from its
      first one on. The duplicates of a document (dupe_factor) then fall on both sides with
      different masks, so held-out numbers are a little better than on unseen text. To avoid this,
      give evaluation files of their own, or split the documents before making records
      (`corpus.split_corpus_documents`).

    Raises:
        DataError: If `share` isn't in (0, 0.5], or one side would have no record.
    """
    if not 0 < share <= 0.5:
        raise DataError(f"The held-out share is {share}, but a number in (0, 0.5] was expected.")
    every = max(2, round(1 / share))
    files = tuple(files)
    held_out = files[::every]
    if len(files) >= WHOLE_FILES_FROM and _evenly_filled(files, held_out, share):
        others = {*held_out}
        return HeldOutSplit(tuple(f for f in files if f not in others), held_out, None)
    if all(count_records(path, limit=2) < 2 for path in files):
        raise DataError(
            f"{', '.join(files)}: with fewer than two records per file, none can be held out for"
            " evaluation. Give evaluation files of their own, or more data."
        )
    return HeldOutSplit(files, files, every)


def _evenly_filled(files: Sequence[str], held_out: Sequence[str], share: float) -> bool:
    """Whether all files have records, and those held out about their share of the bytes."""
    sizes = {path: tf.io.gfile.stat(path).length for path in files}
    found = sum(sizes[path] for path in held_out) / max(1, sum(sizes.values()))
    return share / 2 <= found <= 2 * share and all(count_records(path, 1) for path in files)


def held_out_record_batches(
    files: Sequence[str], batch_size: int, num_shards: int = 1, every: int | None = None
) -> int:
    """Number of batches per shard that an exact evaluation of `files` takes.

    Args:
        files: TFRecord files.
        batch_size: Of one shard.
        num_shards: Workers that divide the records.
        every: Only every so many-th record of each file counts, from its first one on.
    """
    total = sum(math.ceil(count_records(path) / (every or 1)) for path in files)
    return math.ceil(math.ceil(total / num_shards) / batch_size)
