"""Pre-training TFRecords to batches of fixed shape, in tf.data.

Training: the order of files is shuffled per epoch, their records are interleaved and shuffled
while still serialised (so that a checkpoint of the iterator stays small), then repeated, batched
and parsed. Evaluation: every record exactly once, in order; the last batch is filled up with
records of weight 0.

Everything is deterministic, and the iterator goes into a checkpoint: with
`it = iter(dataset)`, `tf.train.Checkpoint(iterator=it)` saves the place in the data, and after a
restore the same batches follow as without the interruption.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import tensorflow as tf

from data.errors import DataError
from data.pretraining.records import check_file, count_records, feature_description

MLM_NSP, MLM, LTR = "mlm_nsp", "mlm", "ltr"
OBJECTIVES = (MLM_NSP, MLM, LTR)
HELD_OUT_SHARE = 0.05
WHOLE_FILES_FROM = 20
_CYCLE_LENGTH = 16
_FILES_CHECKED = 32
_RECORD_BITS = 40  # of an index; the file's number stands above them


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

    The rule, which depends on nothing but the files' names, their order and `share`:

    * From 20 files on, every k-th file, k = round(1 / share), is held out whole. Files made
      from different texts share no document, so this is the clean split.
    * With fewer files, every k-th record of each file is held out, from its first one on. The
      duplicates of a document (dupe_factor) then fall on both sides with different masks, so
      held-out numbers are a little better than on unseen text. To avoid this, give evaluation
      files of their own, or split the documents before making records
      (`corpus.split_documents`).

    Raises:
        DataError: If `share` isn't in (0, 0.5], or one side would have no record.
    """
    if not 0 < share <= 0.5:
        raise DataError(f"The held-out share is {share}, but a number in (0, 0.5] was expected.")
    every = max(2, round(1 / share))
    files = tuple(files)
    if len(files) >= WHOLE_FILES_FROM:
        held_out = files[::every]
        return HeldOutSplit(tuple(f for f in files if f not in set(held_out)), held_out, None)
    if all(count_records(path, limit=2) < 2 for path in files):
        raise DataError(
            f"{', '.join(files)}: with fewer than two records per file, none can be held out for"
            " evaluation. Give evaluation files of their own, or more data."
        )
    return HeldOutSplit(files, files, every)


def pretraining_dataset(
    files: Sequence[str],
    max_seq_length: int,
    max_predictions_per_seq: int,
    vocab_size: int,
    batch_size: int,
    training: bool,
    seed: int = 12345,
    shuffle_buffer: int = 10000,
    num_shards: int = 1,
    shard_index: int = 0,
    held_out: str | None = None,
    held_out_share: float = HELD_OUT_SHARE,
    objective: str = MLM_NSP,
) -> tf.data.Dataset:
    """Batches of pre-training instances.

    Args:
        files: TFRecord files (paths, not patterns).
        max_seq_length: S, as in the records.
        max_predictions_per_seq: P, as in the records.
        vocab_size: Ids must be below it.
        batch_size: B, of this shard.
        training: Shuffled, endless, only full batches; otherwise each record exactly once, in
            order, the last batch filled up.
        seed: Of all shuffling; another order in every epoch, the same ones for the same seed.
        shuffle_buffer: Records shuffled among each other (training).
        num_shards, shard_index: This worker's part. Files are dealt out if they can be dealt
            evenly, else single records. In evaluation all shards have equally many batches (the
            last may be all padding), so that workers stay in step.
        held_out: None for all records, "train" for those that `split_held_out` leaves for
            training, "eval" for those that it holds out.
        held_out_share: Share for `split_held_out`.
        objective: One of `OBJECTIVES` (paper, section 5.1). For "mlm" the batches are those of
            "mlm_nsp"; the model leaves next_sentence_labels alone. For "ltr" the words that the
            records mask are put back, and P is S − 1: position i predicts token i + 1, with
            weight 1 where that is a real one. For a model that attends left to right.

    Returns:
        A dataset of dicts: input_ids, input_mask, segment_ids int32 [B, S];
        masked_lm_positions, masked_lm_ids int32 [B, P]; masked_lm_weights float32 [B, P];
        next_sentence_labels int32 [B, 1]; is_real_example float32 [B], 0 for the padding of the
        last evaluation batch, whose masked_lm_weights are 0 too; in training index int64 [B], see
        `describe_examples`.

        Iterating raises `tf.errors.InvalidArgumentError` for a record of another length or a
        value out of range, `tf.errors.DataLossError` for a damaged file; then
        `records.diagnose(files, …)` finds and names the record.

    Raises:
        DataError: For no files, missing ones, files whose first record doesn't fit, no records,
            an unknown objective.
    """
    if objective not in OBJECTIVES:
        raise DataError(
            f"The objective is {objective!r}, but one of {', '.join(OBJECTIVES)} was expected."
        )
    files = list(files)
    _check(files, max_seq_length, max_predictions_per_seq, vocab_size)
    every = None
    numbers = {path: number for number, path in enumerate(files)}
    if held_out is not None:
        split = split_held_out(files, held_out_share)
        files = list({"train": split.train_files, "eval": split.eval_files}[held_out])
        every = split.every

    def read(path: tf.Tensor, number: tf.Tensor) -> tf.data.Dataset:
        records = tf.data.TFRecordDataset(path)
        records = records.enumerate(start=tf.bitwise.left_shift(number, _RECORD_BITS))
        if every is None:
            return records
        if held_out == "eval":
            return records.shard(every, 0)
        # A filter by number would call a function for each record; this calls one per group.
        groups = records.batch(every)
        return groups.flat_map(
            lambda index, group: tf.data.Dataset.from_tensor_slices((index[1:], group[1:]))
        )

    by_file = training and len(files) % num_shards == 0
    paths = tf.data.Dataset.from_tensor_slices(
        (files, np.array([numbers[path] for path in files], np.int64))
    )
    if by_file and num_shards > 1:
        paths = paths.shard(num_shards, shard_index)
    if training:
        paths = paths.shuffle(len(files), seed=seed, reshuffle_each_iteration=True)
        dataset = paths.interleave(
            read, cycle_length=min(_CYCLE_LENGTH, len(files)), block_length=4
        )
    else:
        dataset = paths.flat_map(read)
    if num_shards > 1 and not by_file:
        dataset = dataset.shard(num_shards, shard_index)

    description = feature_description(max_seq_length, max_predictions_per_seq)

    def parse(index: tf.Tensor, records: tf.Tensor) -> dict[str, tf.Tensor]:
        batch = tf.io.parse_example(records, description)
        batch = _checked(batch, vocab_size, max_seq_length)
        if objective == LTR:
            batch = predict_every_next(unmask(batch))
        batch["is_real_example"] = tf.ones(tf.shape(records), tf.float32)
        if training:
            batch["index"] = index
        return batch

    if training:
        dataset = dataset.shuffle(shuffle_buffer, seed=seed + 1, reshuffle_each_iteration=True)
        dataset = dataset.repeat().batch(batch_size, drop_remainder=True).map(parse)
    else:
        dataset = dataset.batch(batch_size).map(parse).map(lambda batch: _fill(batch, batch_size))
        if num_shards > 1:
            batches = evaluation_batches(files, batch_size, num_shards, every)
            padding = tf.nest.map_structure(
                lambda spec: tf.zeros(spec.shape, spec.dtype), dataset.element_spec
            )
            padding = tf.data.Dataset.from_tensors(padding).repeat()
            dataset = dataset.concatenate(padding).take(batches)
    options = tf.data.Options()
    options.deterministic = True
    # Workers take their part through num_shards; tf.distribute must not divide the files again.
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    return dataset.prefetch(tf.data.AUTOTUNE).with_options(options)


def describe_examples(files: Sequence[str], index: np.ndarray) -> str:
    """Files and numbers of records, for messages: "a.tfrecord: records 2, 5; b.tfrecord: record 7".

    Args:
        files: As given to `pretraining_dataset`.
        index: int64 [B], of one of its training batches.

    Returns:
        Every record, each once; numbers count from 0.
    """
    of_file: dict[int, list[str]] = {}
    for number in sorted({int(number) for number in index}):
        of_file.setdefault(number >> _RECORD_BITS, []).append(str(number & (2**_RECORD_BITS - 1)))
    return "; ".join(
        f"{files[file]}: record{'s' if len(numbers) > 1 else ''} {', '.join(numbers)}"
        for file, numbers in of_file.items()
    )


def unmask(batch: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    """Puts the masked words back: masked_lm_ids at masked_lm_positions where the weight isn't 0.

    Args:
        batch: input_ids int32 [B, S] and the masked_lm_* [B, P] of the same records.

    Returns:
        The batch with other input_ids.
    """
    ids, positions = batch["input_ids"], batch["masked_lm_positions"]
    size, length = tf.unstack(tf.shape(ids))
    # Unused slots all write to a column of their own, which is cut off again.
    positions = tf.where(batch["masked_lm_weights"] > 0, positions, length)
    rows = tf.broadcast_to(tf.range(size)[:, tf.newaxis], tf.shape(positions))
    wider = tf.pad(ids, [[0, 0], [0, 1]])
    places = tf.stack([rows, positions], axis=-1)
    wider = tf.tensor_scatter_nd_update(wider, places, batch["masked_lm_ids"])
    return batch | {"input_ids": tf.ensure_shape(wider[:, :-1], ids.shape)}


def predict_every_next(batch: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    """Makes every token the prediction of the one before it (paper, section 5.1).

    Args:
        batch: input_ids without masks and input_mask, both int32 [B, S].

    Returns:
        The batch with masked_lm_positions, masked_lm_ids int32 and masked_lm_weights float32,
        all [B, S − 1].
    """
    following = batch["input_ids"][:, 1:]
    positions = tf.range(tf.shape(following)[1])[tf.newaxis]
    positions = tf.broadcast_to(positions, tf.shape(following))
    return batch | {
        "masked_lm_positions": tf.ensure_shape(positions, following.shape),
        "masked_lm_ids": following,
        "masked_lm_weights": tf.cast(batch["input_mask"][:, 1:], tf.float32),
    }


def evaluation_batches(
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


def _check(
    files: list[str], max_seq_length: int, max_predictions_per_seq: int, vocab_size: int
) -> None:
    if not files:
        raise DataError("No record files were given.")
    missing = [path for path in files if not tf.io.gfile.exists(path)]
    if missing:
        raise DataError(
            f"{missing[0]} isn't there ({len(missing)} of {len(files)} files are missing). Name"
            " TFRecord files of pre-training data."
        )
    for path in files[:_FILES_CHECKED]:
        check_file(path, max_seq_length, max_predictions_per_seq, vocab_size)
    if all(tf.io.gfile.stat(path).length == 0 for path in files):
        raise DataError(
            f"{', '.join(files)}: there is no record in any file. Generate the data again with"
            " 'python -m data.create_pretraining_data'."
        )


def _checked(
    batch: dict[str, tf.Tensor], vocab_size: int, max_seq_length: int
) -> dict[str, tf.Tensor]:
    """Casts to int32 and raises in the graph for values that would only give NaN later."""
    limits = {
        "input_ids": vocab_size,
        "masked_lm_ids": vocab_size,
        "masked_lm_positions": max_seq_length,
        "input_mask": 2,
        "segment_ids": 2,
        "next_sentence_labels": 2,
    }
    checks = []
    for name, limit in limits.items():
        values = batch[name]
        in_range = tf.reduce_all((values >= 0) & (values < limit))
        message = f"A record has a value of {name} outside of 0 to {limit - 1}."
        checks.append(tf.debugging.Assert(in_range, [message], summarize=1))
    weights = batch["masked_lm_weights"]
    message = "A record has a value of masked_lm_weights that isn't finite or is negative."
    sound = tf.reduce_all(tf.math.is_finite(weights) & (weights >= 0))
    checks.append(tf.debugging.Assert(sound, [message], summarize=1))
    with tf.control_dependencies(checks):
        return {
            name: tf.identity(values) if name == "masked_lm_weights" else tf.cast(values, tf.int32)
            for name, values in batch.items()
        }


def _fill(batch: dict[str, tf.Tensor], batch_size: int) -> dict[str, tf.Tensor]:
    """Pads a batch with zeros to batch_size examples; its shapes become static."""
    missing = batch_size - tf.shape(batch["is_real_example"])[0]
    filled = {}
    for name, values in batch.items():
        padding = [[0, missing]] + [[0, 0]] * (values.shape.rank - 1)
        filled[name] = tf.ensure_shape(tf.pad(values, padding), [batch_size, *values.shape[1:]])
    return filled
