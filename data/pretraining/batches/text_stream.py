"""Raw text to training batches without any files: read, paired and masked while training.

    corpus = divide_corpus(files, number_of_stream_parts, held_out=("train", 0.05))
    dataset = stream_instances(
        corpus, tokenizer, InstanceSettings(), masks, batch_size=32, seed=12345
    )

In every epoch the parts of the corpus come in another order, their pairs are drawn anew, and so
are their masks. Instances of several parts at a time are mixed. What comes when depends on the
seed alone, and a part's instances on the seed, the epoch and its number, so the iterator's place
is a few numbers: it goes into a checkpoint, and after a restore the same batches follow.
"""

import dataclasses
import functools
import itertools
import math
import re
from typing import Any

import numpy as np
import tensorflow as tf

from data.dataset_options import deterministic_dataset
from data.errors import DataError
from data.pretraining.batches import packing
from data.pretraining.batches.pipeline import PREFETCHED, batch_masker
from data.pretraining.corpus.parts import CorpusParts
from data.pretraining.instances import generate
from data.pretraining.instances.masking import MaskSettings
from data.pretraining.instances.settings import InstanceSettings

# Some seconds of work: a part is made as a whole before its first instance comes.
_PART_BYTES = 2**20
_TOGETHER = 8  # parts that are mixed
_BLOCK = 4  # instances of a part in a row
_FEATURES = ("input_ids", "input_mask", "segment_ids", "next_sentence_labels")


def number_of_stream_parts(text_bytes: int) -> int:
    """How many parts to make of a corpus that is to be streamed."""
    return max(1, math.ceil(text_bytes / _PART_BYTES))


# Rewriting the functions of its steps by AutoGraph, which none of them needs, takes seconds.
@tf.autograph.experimental.do_not_convert
def stream_instances(
    corpus: CorpusParts,
    tokenizer: Any,
    settings: InstanceSettings,
    masks: MaskSettings,
    batch_size: int,
    seed: int,
    num_shards: int = 1,
    shard_index: int = 0,
    pack_sequences: bool = False,
) -> tf.data.Dataset:
    """Endless training batches.

    Args:
        corpus: See `parts.divide_corpus`.
        tokenizer: A `data.tokenization.Tokenizer`.
        settings: How instances are made; each part is gone through once in an epoch, whatever
            its dupe_factor.
        masks: How they are masked.
        batch_size: B, of this shard.
        seed: Of the order, the pairs and the masks.
        num_shards, shard_index: This worker takes every so many-th part.
        pack_sequences: See `packing.pack_dataset`; for single segments only.

    Returns:
        A dataset of the features that `pipeline.pretraining_dataset` gives, without index.

        Iterating raises `tf.errors.InvalidArgumentError` for text that can't be read; see
        `raise_text_stream_error`.
    """
    length = settings.max_seq_length
    make = functools.partial(_instances, corpus, tokenizer, settings, seed)

    def read(epoch: tf.Tensor, part: tf.Tensor) -> tf.data.Dataset:
        types = [tf.int32] * len(_FEATURES)
        # Stateless, so that it may stand before an iterator that is saved.
        arrays = tf.numpy_function(make, [epoch, part], types, stateful=False)
        for array, name in zip(arrays, _FEATURES, strict=True):
            array.set_shape([None, 1 if name == "next_sentence_labels" else length])
        return tf.data.Dataset.from_tensor_slices(dict(zip(_FEATURES, arrays, strict=True)))

    def order(epoch: tf.Tensor) -> tf.data.Dataset:
        key = tf.stack([tf.constant(seed % 2**63, tf.int64), epoch])
        chances = tf.random.stateless_uniform([len(corpus)], key, alg="philox")
        shuffled = tf.argsort(chances, stable=True)
        epochs = tf.fill([len(corpus)], epoch)
        return tf.data.Dataset.from_tensor_slices((epochs, tf.cast(shuffled, tf.int64)))

    dataset = tf.data.Dataset.range(2**31).flat_map(order)
    if num_shards > 1:
        dataset = dataset.shard(num_shards, shard_index)
    dataset = dataset.interleave(
        read,
        cycle_length=min(_TOGETHER, len(corpus)),
        block_length=_BLOCK,
        num_parallel_calls=1,
        deterministic=True,
    )
    dataset = dataset.batch(packing.WINDOW if pack_sequences else batch_size, drop_remainder=True)
    predictions = settings.max_predictions_per_seq
    mask = batch_masker(masks, predictions, seed, shard_index, keep=False)
    dataset = dataset.enumerate().map(mask)
    dataset = dataset.map(
        lambda batch: (
            batch | {"is_real_example": tf.ones_like(batch["input_ids"][:, 0], tf.float32)}
        )
    )
    if pack_sequences:
        continues_word = masks.vocabulary.continues_word
        own_seed = seed + 2 + shard_index
        dataset = packing.pack_dataset(
            dataset, batch_size, length, predictions, own_seed, continues_word
        )
    return deterministic_dataset(dataset).prefetch(PREFETCHED)


def _instances(
    corpus: CorpusParts,
    tokenizer: Any,
    settings: InstanceSettings,
    seed: int,
    epoch: np.ndarray,
    part: np.ndarray,
) -> list[np.ndarray]:
    """All instances of a part in one epoch, in random order."""
    number = int(part)
    once = dataclasses.replace(settings, dupe_factor=1, dynamic_masking=True, random_seed=seed)
    batches = generate.generate_instances(
        corpus.documents(number),
        tokenizer,
        once,
        (int(epoch), number),
        lenders=lambda: itertools.chain.from_iterable(map(corpus.documents, corpus.behind(number))),
    )
    widths = dict.fromkeys(_FEATURES, once.max_seq_length) | {"next_sentence_labels": 1}
    none = {name: np.zeros((0, width), np.int32) for name, width in widths.items()}
    parts = [none, *batches]
    return [np.concatenate([part[name] for part in parts]) for name in _FEATURES]


def raise_text_stream_error(error: tf.errors.OpError) -> None:
    """Raises the DataError that lies behind an error of iterating, if one does."""
    message = re.search(r"DataError: (.+)", error.message)
    if message:
        raise DataError(message[1]) from None
