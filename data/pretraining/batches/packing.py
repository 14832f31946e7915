"""Sequence packing: several short instances in one row, for masked LM without next sentences.

    windows = instances.batch(WINDOW)                 # dicts of masked instances
    batches = pack(windows, batch_size=32, max_seq_length=128, max_predictions=20)

An instance keeps its pieces, its positions (`position_ids` start at 0 again) and its predictions;
`sequence_ids` tell it from its neighbours, and attention is to stay within one sequence.
`packed_rows.py` tells how rows are filled.
"""

import numpy as np
import tensorflow as tf

from data.errors import DataError
from data.pretraining.batches.packed_rows import (
    PER_PIECE,
    PER_PREDICTION,
    PackedRowLimits,
    packed_row_window,
)

WINDOW = 512
"""Instances that are packed together; more would not fill rows better."""


def pack_dataset(
    windows: tf.data.Dataset,
    batch_size: int,
    max_seq_length: int,
    max_predictions: int,
    seed: int = 12345,
    continues_word: np.ndarray | None = None,
    drop_remainder: bool = True,
) -> tf.data.Dataset:
    """Packs instances into batches of static shape.

    The same windows and seed give the same batches. An iterator can be saved in a checkpoint and
    goes on exactly; it keeps the instances that wait for a row.

    Args:
        windows: Dicts of about `WINDOW` masked instances each, in random order, the first
            dimension of any size: input_ids, input_mask, segment_ids int32 [W, S];
            masked_lm_positions, masked_lm_ids int32 and masked_lm_weights float32 [W, P], weight 0
            in unused slots; optionally index int64 [W]. Other entries, such as
            next_sentence_labels, are left out.
        batch_size: B, rows of a batch.
        max_seq_length: S.
        max_predictions: P.
        seed: Of the order of the rows within a window, which would otherwise begin with the
            longest instances.
        continues_word: bool [vocab_size], the pieces that start with "##"; without it cuts may
            fall inside of words.
        drop_remainder: False keeps the last batch of a finite dataset though it is smaller, which
            leaves B unknown.

    Returns:
        Dataset of dicts: input_ids, input_mask, segment_ids, position_ids and sequence_ids int32
        [B, S] (sequence_ids 1, 2, … in the order of the row, 0 at padding); masked_lm_positions
        (in the row), masked_lm_ids int32 and masked_lm_weights float32 [B, P′]; is_real_example
        float32 [B], all 1; index int64 [B, K], that of each sequence, and -1 where there is none,
        if the windows had one. P′ and K are those of `PackedRowLimits.of`.

    Raises:
        DataError: An entry is missing or has another shape.
    """
    limits = PackedRowLimits.of(max_seq_length, max_predictions)
    spec = _checked_spec(windows.element_spec, max_seq_length, max_predictions)
    none = {name: np.zeros((0, *s.shape[1:]), s.dtype.as_numpy_dtype) for name, s in spec.items()}
    outputs = _features(limits.pieces, limits.predictions, "position_ids", "sequence_ids")
    outputs["is_real_example"] = tf.TensorSpec([None], tf.float32)
    if "index" in spec:
        outputs["index"] = tf.TensorSpec([None, limits.sequences], tf.int64)
    packed_specs = [*outputs.values(), *spec.values()]

    def packed(number, is_last, *arrays):
        window = dict(zip(spec, arrays, strict=True))
        rng = np.random.default_rng([seed % 2**32, int(number)])
        rows, rest = packed_row_window(window, limits, rng, continues_word, keep_rest=not is_last)
        return [rows[name] for name in outputs] + [rest[name] for name in spec]

    def step(state, element):
        number, waiting = state
        window, is_last = element
        arrays = [tf.concat([waiting[name], window[name]], 0) for name in spec]
        # A function of its arguments alone, so iterators with it can be saved.
        types = [s.dtype for s in packed_specs]
        tensors = tf.numpy_function(packed, [number, is_last, *arrays], types, stateful=False)
        for tensor, s in zip(tensors, packed_specs, strict=True):
            tensor.set_shape([None, *s.shape[1:]])
        rows = dict(zip(outputs, tensors[: len(outputs)], strict=True))
        rest = dict(zip(spec, tensors[len(outputs) :], strict=True))
        return (number + 1, rest), rows

    def select(window):
        return {name: window[name] for name in spec}, False

    windows = windows.map(select).concatenate(tf.data.Dataset.from_tensors((none, True)))
    rows = windows.scan((np.int64(0), none), step)
    rows = rows.filter(lambda row: tf.shape(row["input_ids"])[0] > 0)
    return rows.rebatch(batch_size, drop_remainder)


def _checked_spec(spec, max_seq_length: int, max_predictions: int) -> dict[str, tf.TensorSpec]:
    expected = _features(max_seq_length, max_predictions)
    for name, (_, width) in ((name, s.shape) for name, s in expected.items()):
        dtype = expected[name].dtype
        if name not in spec or spec[name].shape[1:] != (width,) or spec[name].dtype != dtype:
            raise DataError(
                f"Instances to be packed have {spec.get(name, 'nothing')} as {name}, but"
                f" {dtype.name} [number of instances, {width}] was expected."
            )
    return {name: spec[name] for name in (*expected, "index") if name in spec}


def _features(length: int, predictions: int, *more: str) -> dict[str, tf.TensorSpec]:
    """Names, types and shapes of what instances and rows have, and rows `more`."""
    features = dict.fromkeys((*PER_PIECE, *more), tf.TensorSpec([None, length], tf.int32))
    features |= dict.fromkeys(PER_PREDICTION, tf.TensorSpec([None, predictions], tf.int32))
    return features | {"masked_lm_weights": tf.TensorSpec([None, predictions], tf.float32)}
