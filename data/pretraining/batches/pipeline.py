"""Pre-training TFRecords to batches of fixed shape, in tf.data.

For training, the order of files is shuffled per epoch, their records are interleaved and shuffled
while still serialised (so that a checkpoint of the iterator stays small), then repeated, batched
and parsed.

Everything is deterministic, and the iterator goes into a checkpoint: with
`it = iter(dataset)`, `tf.train.Checkpoint(iterator=it)` saves the place in the data, and after a
restore the same batches follow as without the interruption, with the same masks.
"""

from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf

from data.dataset_options import deterministic_dataset
from data.errors import DataError
from data.pretraining.batches import packing
from data.pretraining.batches.graph_masking import mask_batch, unmask_batch
from data.pretraining.flags import check_pretraining_objective
from data.pretraining.instances.masking import MaskSettings
from data.pretraining.instances.settings import MLM_NSP
from data.pretraining.records.held_out import (
    HELD_OUT_SHARE,
    held_out_record_batches,
    split_held_out,
)
from data.pretraining.records.record_files import GENERATE, count_records, record_compression
from data.pretraining.records.schema import check_record_file, feature_description, record_limits

ONE_WAY = LTR, RTL = "ltr", "rtl"
PREFETCHED = 4
"""Batches that are made ahead."""
_CYCLE_LENGTH = 16
_FILES_CHECKED = 32
_RECORD_BITS = 40  # of an index; the file's number stands above them
_MASKED_TOGETHER = 64  # records of an evaluation; another number would give other masks
_SEED_MASK = 2**63 - 1

Batch = dict[str, tf.Tensor]


# Rewriting the functions of its steps by AutoGraph, which none of them needs, takes seconds.
@tf.autograph.experimental.do_not_convert
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
    dynamic_masking: MaskSettings | None = None,
    continues_word: np.ndarray | None = None,
    pack_sequences: bool = False,
) -> tf.data.Dataset:
    """Batches of pre-training instances.

    Args:
        files: TFRecord files (paths, not patterns), each GZIP-compressed or not.
        max_seq_length: S, as in the records.
        max_predictions_per_seq: P, as in the records if these have masks.
        vocab_size: Ids must be below it.
        batch_size: B, of this shard.
        training: Shuffled, endless, only full batches; otherwise each record exactly once, in
            order, the last batch filled up.
        seed: Of all shuffling and masking; another order in every epoch, the same ones for the
            same seed.
        shuffle_buffer: Records shuffled among each other (training).
        num_shards, shard_index: This worker's part. Files are dealt out if they can be dealt
            evenly, else single records. In evaluation all shards have equally many batches (the
            last may be all padding), so that workers stay in step.
        held_out: None for all records, "train" for those that `split_held_out` leaves for
            training, "eval" for those that it holds out.
        held_out_share: Share for `split_held_out`.
        objective: "mlm_nsp", "mlm", "ltr" or "rtl" (paper, section 5.1). For "mlm" the batches are
            those of "mlm_nsp"; the model leaves next_sentence_labels alone. For "ltr" the words
            that the records mask are put back, and P is S − 1: position i predicts token i + 1,
            with weight 1 where that is a real one, for a model that attends left to right. "rtl"
            is the reverse: position i + 1 predicts token i.
        dynamic_masking: How to mask here; None for the masks of the records. In training, words
            that the records mask are put back, and masks are drawn whenever a record is read,
            from the seed, the shard and the number of the batch. In evaluation records keep their
            masks; those without get some that depend on the seed and the record's place alone:
            the same ones in every evaluation, whatever B and num_shards are.
        pack_sequences: Puts several short instances in a row (see `packing.pack_dataset`), in
            training and for the objective "mlm" only.
        continues_word: bool [vocab_size], the pieces that continue a word, before which packing
            doesn't cut.

    Returns:
        A dataset of dicts: input_ids, input_mask, segment_ids int32 [B, S];
        masked_lm_positions, masked_lm_ids int32 [B, P]; masked_lm_weights float32 [B, P];
        next_sentence_labels int32 [B, 1]; is_real_example float32 [B], 0 for the padding of the
        last evaluation batch, whose masked_lm_weights are 0 too; in training index int64 [B], see
        `describe_pretraining_batch`. Packed ones are those of `packing.pack_dataset`.

        Iterating raises `tf.errors.InvalidArgumentError` for a record of another length or a
        value out of range, `tf.errors.DataLossError` for a damaged file; then
        `RecordsFromText.diagnose` finds and names the record.

    Raises:
        DataError: For no files, missing ones, files whose first record doesn't fit, no records,
            an unknown objective, masks for an objective or a vocabulary that they don't go with.
    """
    called = f"the objective {objective!r}"
    check_pretraining_objective(objective, called, dynamic_masking is not None, pack_sequences)
    if pack_sequences and not training:
        raise DataError("Sequences are packed for training only; leave packing out of evaluation.")
    pieces = len(dynamic_masking.vocabulary.continues_word) if dynamic_masking else 0
    if pieces > vocab_size:
        raise DataError(
            f"The vocabulary to mask with has {pieces:,} pieces, but ids must be below"
            f" {vocab_size:,}. Use the vocabulary that the records were made with."
        )
    files = list(files)
    # Where the records' masks don't count, they needn't be there.
    masked = True if dynamic_masking is None and objective not in ONE_WAY else None
    _check(files, max_seq_length, max_predictions_per_seq, vocab_size, masked)
    numbered = list(enumerate(files))
    every = None
    if held_out is not None:
        split = split_held_out(files, held_out_share)
        side = {*{"train": split.train_files, "eval": split.eval_files}[held_out]}
        numbered = [(number, path) for number, path in numbered if path in side]
        every = split.every
    by_file = training and len(numbered) % num_shards == 0
    # A worker whose files are empty would have nothing to train on.
    by_file &= num_shards == 1 or all(count_records(path, 1) for _, path in numbered)
    mine = slice(shard_index, None, num_shards) if by_file else slice(None)
    dataset = _read(numbered[mine], every, held_out == "eval", seed if training else None)
    shards = (num_shards, shard_index) if num_shards > 1 and not by_file else None

    description = feature_description(max_seq_length, max_predictions_per_seq, masked)
    if dynamic_masking:
        vocab_size = pieces
        stream = shard_index if training else -1
        mask = batch_masker(
            dynamic_masking, max_predictions_per_seq, seed, stream, keep=not training
        )

    def parse(index: tf.Tensor, records: tf.Tensor) -> Batch:
        batch = tf.io.parse_example(records, description)
        batch = _checked(batch, vocab_size, max_seq_length)
        if objective in ONE_WAY:
            batch = _predict_neighbours(unmask_batch(batch), from_left=objective == LTR)
        batch["is_real_example"] = tf.ones(tf.shape(records), tf.float32)
        if training:
            batch["index"] = index
        return batch

    if not training and dynamic_masking:
        # Every shard masks all records and keeps its own ones: which they are changes no mask.
        dataset = dataset.batch(_MASKED_TOGETHER).map(parse).enumerate().map(mask).unbatch()
    if shards:
        dataset = dataset.shard(*shards)
    if training:
        dataset = dataset.shuffle(shuffle_buffer, seed=seed + 1, reshuffle_each_iteration=True)
        together = packing.WINDOW if pack_sequences else batch_size
        dataset = dataset.repeat().batch(together, drop_remainder=True).map(parse)
        if dynamic_masking:
            # The batch's number is a part of the iterator's state.
            dataset = dataset.enumerate().map(mask)
        if pack_sequences:
            own_seed = seed + 2 + shard_index
            sizes = (batch_size, max_seq_length, max_predictions_per_seq)
            dataset = packing.pack_dataset(dataset, *sizes, own_seed, continues_word)
    else:
        dataset = dataset.batch(batch_size)
        if not dynamic_masking:
            dataset = dataset.map(parse)
        dataset = dataset.map(lambda batch: _fill(batch, batch_size))
        if num_shards > 1:
            paths = [path for _, path in numbered]
            batches = held_out_record_batches(paths, batch_size, num_shards, every)
            padding = tf.nest.map_structure(
                lambda spec: tf.zeros(spec.shape, spec.dtype), dataset.element_spec
            )
            padding = tf.data.Dataset.from_tensors(padding).repeat()
            dataset = dataset.concatenate(padding).take(batches)
    return deterministic_dataset(dataset).prefetch(PREFETCHED)


def _read(
    numbered: Sequence[tuple[int, str]], every: int | None, held_out: bool, seed: int | None
) -> tf.data.Dataset:
    """Records with their index.

    Args:
        numbered: Files with their numbers.
        every: None for all records; else see `HeldOutSplit`.
        held_out: Whether to read those held out, or the others.
        seed: Of the order of the files; None: in order, one after the other.
    """

    def read(number: tf.Tensor, path: tf.Tensor, kind: tf.Tensor) -> tf.data.Dataset:
        records = tf.data.TFRecordDataset(path, kind)
        records = records.enumerate(start=tf.bitwise.left_shift(number, _RECORD_BITS))
        if every is None:
            return records
        if held_out:
            return records.shard(every, 0)
        # A filter by number would call a function for each record; this calls one per group.
        groups = records.batch(every)
        return groups.flat_map(
            lambda index, group: tf.data.Dataset.from_tensor_slices((index[1:], group[1:]))
        )

    numbers, paths = zip(*numbered, strict=True)
    kinds = [record_compression(path) for path in paths]
    files = tf.data.Dataset.from_tensor_slices((np.array(numbers, np.int64), list(paths), kinds))
    if seed is None:
        return files.flat_map(read)
    files = files.shuffle(len(paths), seed=seed, reshuffle_each_iteration=True)
    return files.interleave(read, cycle_length=min(_CYCLE_LENGTH, len(paths)), block_length=4)


def batch_masker(
    settings: MaskSettings, max_predictions: int, seed: int, stream: int, keep: bool
) -> Callable[[tf.Tensor, Batch], Batch]:
    """What masks a batch by its number.

    Args:
        settings: How.
        max_predictions: P.
        seed: Of the masks.
        stream: Another one has other masks.
        keep: Whether rows that have masks keep them.
    """

    def mask(number: tf.Tensor, batch: Batch) -> Batch:
        key = tf.stack([tf.constant(seed & _SEED_MASK, tf.int64), number])
        key = tf.random.fold_in(key, tf.constant(stream, tf.int64), alg="philox")
        if not keep:
            batch = unmask_batch(batch) if "masked_lm_weights" in batch else batch
            return mask_batch(batch, settings, max_predictions, key)
        masked = mask_batch(batch, settings, max_predictions, key)
        has = tf.reduce_any(batch["masked_lm_weights"] > 0, axis=1, keepdims=True)
        changed = [name for name in masked if masked[name] is not batch[name]]
        return masked | {name: tf.where(has, batch[name], masked[name]) for name in changed}

    return mask


def describe_pretraining_batch(files: Sequence[str], index: np.ndarray) -> str:
    """Files and numbers of records, for messages: "a.tfrecord: records 2, 5; b.tfrecord: record 7".

    Args:
        files: As given to `pretraining_dataset`.
        index: int64 [B] or [B, K], of one of its training batches; -1 stands for none.

    Returns:
        Every record, each once; numbers count from 0.
    """
    of_file: dict[int, list[str]] = {}
    for number in sorted({int(number) for number in np.ravel(index) if number >= 0}):
        of_file.setdefault(number >> _RECORD_BITS, []).append(str(number & (2**_RECORD_BITS - 1)))
    return "; ".join(
        f"{files[file]}: record{'s' if len(numbers) > 1 else ''} {', '.join(numbers)}"
        for file, numbers in of_file.items()
    )


def _predict_neighbours(batch: dict[str, tf.Tensor], from_left: bool) -> dict[str, tf.Tensor]:
    """Makes every token the prediction of the one before it, or behind it (paper, section 5.1).

    Args:
        batch: input_ids without masks and input_mask, both int32 [B, S].
        from_left: Of the one before it.

    Returns:
        The batch with masked_lm_positions, masked_lm_ids int32 and masked_lm_weights float32,
        all [B, S − 1].
    """
    words = batch["input_ids"][:, 1:] if from_left else batch["input_ids"][:, :-1]
    positions = tf.range(tf.shape(words)[1])[tf.newaxis] + (0 if from_left else 1)
    positions = tf.broadcast_to(positions, tf.shape(words))
    return batch | {
        "masked_lm_positions": tf.ensure_shape(positions, words.shape),
        "masked_lm_ids": words,
        # Of two neighbours the second is the one that may be padding.
        "masked_lm_weights": tf.cast(batch["input_mask"][:, 1:], tf.float32),
    }


def _check(
    files: list[str],
    max_seq_length: int,
    max_predictions_per_seq: int,
    vocab_size: int,
    masked: bool | None,
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
        check_record_file(path, max_seq_length, max_predictions_per_seq, vocab_size, masked)
    if not any(count_records(path, limit=1) for path in files):
        raise DataError(f"{', '.join(files)}: there is no record in any file. {GENERATE}")


def _checked(
    batch: dict[str, tf.Tensor], vocab_size: int, max_seq_length: int
) -> dict[str, tf.Tensor]:
    """Casts to int32 and raises in the graph for values that would only give NaN later."""
    checks = []
    for name, limit in record_limits(vocab_size, max_seq_length).items():
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
