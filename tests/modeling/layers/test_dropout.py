"""Masks of dropout: the same everywhere, fair, and unlike each other."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

from modeling.layers.dropout import _random_words, dropout


def test_dropout_depends_on_key_and_site_only():
    x = tf.ones([1000, 101])  # an odd number of elements
    key = tf.constant([1, 2, 0], tf.int32)
    eager = dropout(x, 0.1, key, site=3).numpy()
    graph = tf.function(lambda: dropout(x, 0.1, key, site=3))().numpy()
    compiled = tf.function(lambda: dropout(x, 0.1, key, site=3), jit_compile=True)().numpy()
    assert (eager == graph).all() and (eager == compiled).all()
    assert abs((eager == 0).mean() - 0.1) < 0.004
    np.testing.assert_allclose(eager[eager > 0], 1 / 0.9, rtol=1e-4)
    for other_key, site in (([2, 2, 0], 3), ([1, 3, 0], 3), ([1, 2, 1], 3), ([1, 2, 0], 4)):
        other = dropout(x, 0.1, tf.constant(other_key, tf.int32), site).numpy()
        # Independent masks agree at 0.9² + 0.1² = 82 % of the places.
        assert abs(((other == 0) == (eager == 0)).mean() - 0.82) < 0.01


def test_dropout_gradient_has_the_same_mask():
    x = tf.ones([50, 50])
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = dropout(x, 0.5, tf.constant([1, 2, 3], tf.int32), site=0)
    np.testing.assert_array_equal(tape.gradient(y, x), y)


def words(key=(1, 2, 0), site=3, shape=(512, 512)):
    found = _random_words(tf.zeros(shape), tf.constant(key, tf.int32), tf.constant(site))
    assert found.dtype == tf.uint32
    return found.numpy()


def bits(numbers):
    """[N] uint32 → [N, 32] of 0 and 1."""
    return (numbers.ravel()[:, None] >> np.arange(32, dtype=np.uint32)) & 1


def test_every_bit_is_fair_and_independent_of_the_others():
    drawn = bits(words())
    number = len(drawn)
    # Five standard deviations of the mean of fair coins.
    assert np.abs(drawn.mean(0) - 0.5).max() < 5 * 0.5 / number**0.5
    correlation = np.corrcoef(drawn.T) - np.eye(32)
    assert np.abs(correlation).max() < 5 / number**0.5


@pytest.mark.parametrize("lag", [1, 2, 7, 64, 512, 4096])
def test_neighbours_are_independent(lag):
    """Along the rows and, 512 apart, along the columns."""
    drawn = words().ravel().astype(np.float64)
    correlation = np.corrcoef(drawn[:-lag], drawn[lag:])[0, 1]
    assert abs(correlation) < 5 / len(drawn) ** 0.5


def test_numbers_are_evenly_spread():
    """χ² of 256 bins of the high and of the low byte."""
    drawn = words()
    for byte in (drawn >> 24, drawn & 255):
        counts = np.bincount(byte.ravel(), minlength=256)
        expected = drawn.size / 256
        chi_squared = ((counts - expected) ** 2 / expected).sum()
        assert abs(chi_squared - 255) < 5 * (2 * 255) ** 0.5


def test_keys_that_are_neighbours_draw_unlike_numbers():
    """Seeds, steps, streams and sites count up from 0; no two may be equal, shifted or alike."""
    keys = list(itertools.product(range(2), range(2), range(2), range(3)))
    drawn = np.array([words(key[:3], key[3], (40_000,)) for key in keys])
    correlation = np.corrcoef(drawn.astype(np.float64)) - np.eye(len(keys))
    assert np.abs(correlation).max() < 5 / 200
    # Of 2³² numbers two sets of 40,000 share 0.37 on average; a shifted window shares most.
    sets = [np.unique(each) for each in drawn]
    values, counts = np.unique(np.concatenate(sets), return_counts=True)
    shared = np.array([np.isin(values[counts > 1], each) for each in sets], int)
    common = shared @ shared.T
    np.fill_diagonal(common, 0)
    assert common.max() < 10


def test_extreme_keys_and_every_shape_are_taken():
    largest = words((2**31 - 1, -1, -(2**31)), 2**31 - 1, (3, 5, 7))
    assert largest.shape == (3, 5, 7) and len(np.unique(largest)) == 105
    dynamic = tf.function(
        lambda x: _random_words(x, tf.constant([1, 2, 0]), tf.constant(3)),
        input_signature=[tf.TensorSpec([None, None])],
    )
    np.testing.assert_array_equal(dynamic(tf.zeros([6, 8])), words(shape=(6, 8)))


def test_programs_hold_no_constants_of_the_tensors_size():
    def drop(x, key):
        return dropout(x, 0.1, key, 3)

    x, key = tf.zeros([64, 128, 128]), tf.constant([1, 2, 0])
    program = tf.function(drop, jit_compile=True, autograph=False)
    text = program.experimental_get_compiler_ir(x, key)(stage="stablehlo_serialized")
    assert len(text) < 50_000  # four bytes for each place would be four million


def test_nothing_of_the_tensors_size_is_computed_from_constants():
    # XLA's bridge computes that ahead, for all places of a step at a time.
    def drop(x, key):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = dropout(x, 0.1, key, 3)
        return y, tape.gradient(y, x, output_gradients=x)

    x, key = tf.zeros([64, 128, 128]), tf.constant([1, 2, 0])
    graph = tf.function(drop, autograph=False).get_concrete_function(x, key).graph
    varying = set()
    for operation in graph.get_operations():
        if operation.type == "Placeholder" or any(t.op in varying for t in operation.inputs):
            varying.add(operation)
        else:
            assert all(t.shape.num_elements() <= 64 * 128 for t in operation.outputs), operation
