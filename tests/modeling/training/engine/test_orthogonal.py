"""Muon's orthogonal matrices against singular values in float64 NumPy."""

import numpy as np
import pytest
import tensorflow as tf

from modeling.training.engine.orthogonal import orthogonal, orthogonal_updates


def iterated(matrix):
    """The iteration's own result in float64: its polynomial, five times, of each singular value."""
    u, s, v = np.linalg.svd(matrix, full_matrices=False)
    s = s / np.sqrt((s**2).sum())
    for _ in range(5):
        s = 3.4445 * s - 4.775 * s**3 + 2.0315 * s**5
    return (u * s) @ v


def gradients(rank, rows, columns):
    """Of so many directions; their sizes go over four orders of magnitude."""
    rng = np.random.default_rng(rank)
    left, right = (np.linalg.qr(rng.normal(size=(n, rank)))[0] for n in (rows, columns))
    return (left * np.logspace(0, -4, rank)) @ right.T


@pytest.mark.parametrize("shape", [(64, 64), (48, 96), (96, 48)])
def test_updates_of_matrices_have_singular_values_near_one(shape):
    rng = np.random.default_rng(1)
    matrix = rng.normal(size=shape)
    u, s, v = np.linalg.svd(matrix, full_matrices=False)
    got = orthogonal(tf.constant(matrix, tf.float32)).numpy()
    values = np.linalg.svd(got, compute_uv=False)
    kept = s / np.sqrt((s**2).sum()) >= 0.002
    assert values.max() < 1.21 and values[: kept.sum()].min() > 0.68
    # The directions are the matrix's own: what is left in uᵀ·got·vᵀ beside the diagonal is noise.
    inside = u.T @ got @ v.T
    np.testing.assert_allclose(inside - np.diag(np.diag(inside)), 0, atol=1e-4)
    assert not orthogonal(tf.zeros(shape)).numpy().any()


@pytest.mark.parametrize("rank", [1, 8, 48])
@pytest.mark.parametrize("shape", [(48, 48), (48, 192), (48, 72), (64, 48)])
def test_wide_and_square_matrices_have_the_iterations_result(shape, rank):
    matrix = gradients(rank, *shape)
    wanted = iterated(matrix)
    got = orthogonal(tf.constant(matrix, tf.float32)).numpy()
    # Directions that are 1e-4 of the largest are told from rounding, in float32 as well.
    assert np.linalg.norm(got - wanted) < 1e-3 * np.linalg.norm(wanted)


def test_updates_stand_where_their_matrices_stood():
    shapes = [(8, 32), (32, 8), (8, 8), (8, 32), (4, 2), (32, 8)]
    matrices = [gradients(2, *shape) for shape in shapes]
    numbers = (7, 3, 5, 2, 9, 1)
    given = dict(zip(numbers, (tf.constant(m, tf.float32) for m in matrices), strict=True))
    found = orthogonal_updates(given)
    assert found.keys() == set(numbers)
    for number, matrix in zip(numbers, matrices, strict=True):
        np.testing.assert_allclose(found[number], iterated(matrix), atol=1e-3)
