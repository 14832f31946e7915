"""Dropout whose masks depend on seed, step, replica and place alone, the same everywhere."""

import numpy as np
from keras import ops

from modeling.layers.execution import compiled_chain


def dropout(x, rate, key, site, compiled=False):
    """Zeroes elements of `x` with probability `rate` and scales up the others.

    Stateless: the same (key, site) draws the same mask on every device, in graph mode, eagerly
    and under XLA.

    Args:
        x: Float tensor of any shape.
        rate: Python float from 0 to below 1.
        key: int32 [3]: seed, step, and stream (the replica, or the micro-batch of a replica). Or
            int32 [5]: then `x` is of a part of a batch, whose masks are the rows that it has of
            the whole's, and the fourth is the part's first example, the fifth how many it has.
            None means no dropout.
        site: Python int that tells this place in the model from all others.
        compiled: Whether it is a compiled chain, see `modeling.layers.execution`.
    """
    if key is None or rate == 0.0:
        return x
    return dropped(x, key, site, rate=rate, compiled=compiled)


@compiled_chain
def dropped(x, key, site, *, rate):
    """`dropout` with a key."""
    # The rate is right to 2⁻³², and so is the expectation.
    keep = _random_words(x, key, site) >= _word(round(rate * 2**32))
    # A scalar zero: those of x's shape XLA's bridge would make ahead, for all sites at a time.
    return ops.where(keep, x * (1 / (1 - rate)), ops.cast(0, x.dtype))


def _random_words(x, key, site):
    """uint32 of `x`'s shape, evenly distributed: a hash of an element's place and the key.

    Stateless and made of integer arithmetic alone: every device, backend and compiler gives the
    same words, and a compiled chain makes them where they are used, without storing them. Numbers
    of TensorFlow's own generator, Philox, take several times as long on a CPU and have to be kept.

    Args:
        x: Tensor of any shape with up to 2³² elements; from there on the words repeat.
        key: int32 [3] or [5], see `dropout`; the step isn't negative.
        site: int32 scalar.
    """
    columns = ops.shape(x)[-1]
    rows = ops.shape(ops.reshape(x, (-1, columns)))[0]
    row, column = (ops.cast(ops.arange(n, dtype="int32"), "uint32") for n in (rows, columns))
    # The step's sign, 0: of constants alone TensorFlow would put all places into the program, at
    # four bytes an element.
    row = row + ops.right_shift(ops.cast(key[1], "uint32"), _word(31))
    if key.shape[0] > 3:
        row = row + ops.cast(key[3] * (rows // key[4]), "uint32")
    places = row[:, None] * ops.cast(columns, "uint32") + column
    # All of the key goes into either of two words, so that no two keys differ by a shift alone.
    word = _word(0)
    for part in (key[0], key[1], key[2], site):
        word = _mixed(word ^ ops.cast(part, "uint32"))
    words = _mixed(_mixed(places ^ word) + _mixed(word ^ _word(0x9E3779B9)))
    return ops.reshape(words, ops.shape(x))


def _mixed(word):
    """C. Wellons's lowbias32 (2018), a permutation of the 32-bit numbers with little bias."""
    for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
        word = (word ^ ops.right_shift(word, _word(shift))) * _word(factor)
    return word ^ ops.right_shift(word, _word(16))


def _word(number: int):
    return ops.convert_to_tensor(np.uint32(number))
