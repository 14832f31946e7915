"""What Muon does to matrices: the nearest ones whose singular values are all near 1.

found = orthogonal_updates({0: matrix, 1: another})
"""

import functools
import math
from collections.abc import Mapping

import tensorflow as tf

from modeling.layers.tensors import has_accelerator

TOGETHER, TOGETHER_ON_CPU = 2**24, 2**18
"""Numbers of the matrices that are made orthogonal side by side. A GPU would wait for each of many
small products; on a CPU few matrices are to stay in the cache."""


def orthogonal_updates(matrices: Mapping[int, tf.Tensor]) -> dict[int, tf.Tensor]:
    """`orthogonal` of each matrix; those of one shape are stacked, as many as pays here.

    Args:
        matrices: float32 [rows, columns] by number; their shapes may differ.

    Returns:
        By the same numbers, of the same shapes.
    """
    # Lying matrices cost least, for their square is the smaller one.
    upright = {n for n, x in matrices.items() if x.shape[0] > x.shape[1]}
    lying = {n: tf.transpose(x) if n in upright else x for n, x in matrices.items()}
    shapes = {n: tuple(x.shape) for n, x in lying.items()}
    found = {}
    for shape in dict.fromkeys(shapes.values()):
        alike = [n for n in lying if shapes[n] == shape]
        most = max(1, (TOGETHER if has_accelerator() else TOGETHER_ON_CPU) // math.prod(shape))
        for some in (alike[i : i + most] for i in range(0, len(alike), most)):
            updates = tf.unstack(orthogonal(tf.stack([lying[n] for n in some])))
            found |= dict(zip(some, updates, strict=True))
    return {n: tf.transpose(x) if n in upright else x for n, x in found.items()}


def orthogonal(matrices: tf.Tensor) -> tf.Tensor:
    """UVᵀ of each matrix USVᵀ, roughly: five steps of Muon's iteration of Newton and Schulz.

    Its polynomial is chosen for a steep start, not to converge: singular values end between 0.68
    and 1.21 if they were at least 0.002 of the matrix's norm; smaller ones stay smaller.

    Args:
        matrices: float32 [..., rows, columns]; zeros give zeros. It costs least where there are no
            more rows than columns.
    """
    x = tf.math.divide_no_nan(matrices, tf.norm(matrices, axis=(-2, -1), keepdims=True))
    rows, columns = x.shape[-2:]
    if has_accelerator() or columns < 1.5 * rows:
        for _ in range(5):
            square = tf.matmul(x, x, transpose_b=True)
            x = 3.4445 * x + tf.matmul(-4.775 * square + 2.0315 * tf.matmul(square, square), x)
        return x
    # Each step multiplies x with a polynomial of its square. These commute, so the next square
    # follows from this one, and the wide x is needed only at the end: half of the work where it is
    # four times as wide as high. Not on a GPU, which may multiply with fewer digits: rounding grows
    # on the way from square to square.
    square, factors = tf.matmul(x, x, transpose_b=True), []
    for _ in range(5):
        factor = 3.4445 * tf.eye(rows) - 4.775 * square + 2.0315 * tf.matmul(square, square)
        factors.append(factor)
        square = tf.matmul(factor, tf.matmul(square, factor))
    return tf.matmul(functools.reduce(tf.matmul, factors), x)
