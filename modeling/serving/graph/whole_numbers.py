"""Products in whole numbers: what makes an export in int8 fast.

if can_multiply(number): y = whole_numbers(x).times(matrix)      # [N, in] → [N, out]

Each row of x is rounded to 8 bits as the request comes (dynamic quantisation, Zafrir et al. 2019,
with a scale for every token instead of one for all), the matrix has been to 7 bits, -63 to 63, with
a scale for every output. oneDNN, which multiplies them, takes numbers from 0 on. So -127 to 127 are
1 to 255, and what the 128 adds to the product is taken off it again; or, where x has a known least
value, 0 stands for that, which gives what an activation such as GELU's makes, from -0.17 on, steps
of half the size.

Why the matrix hasn't 8 bits: a processor without VNNI adds each two products in 16 bits, and stops
there at 32,767. 255·63·2 is less, 255·127·2 would be a wrong answer that nothing tells. With 7 bits
for x and 8 for the matrix a question's logits are a fifth further from float32's.

oneDNN is a part of TensorFlow, but on by default only on processors with AVX-512 VNNI and the like
(TF_ENABLE_ONEDNN_OPTS=1 and =0 say otherwise). Without it the operation has no kernel.
"""

from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf

from modeling.serving.graph.matrices import StoredMatrix

LARGEST_OF_MATRIX = 63
_STEPS = 255
_LARGEST, _ZERO = 127, 128
"""Where values of both signs are the same: the largest, and what stands for 0."""


class WholeNumbers(NamedTuple):
    """Rows as whole numbers.

    Attributes:
        values: quint8 [N, in].
        scales: float32 [N, 1].
        zero, least: A row is `(values - zero) · scale + least`.
    """

    values: tf.Tensor
    scales: tf.Tensor
    zero: int
    least: float

    def times(self, matrix: StoredMatrix) -> tf.Tensor:
        """The product with a matrix of int8 up to `LARGEST_OF_MATRIX`, [in, out]: float32 [N, out].

        Sums are 32 bits wide, and then float32: exact but for the rounding of both factors, and
        from 1,045 inputs on for up to four of the sum's units.
        """
        # The ranges say that a step of each factor is 1, so that float32 sums of whole products
        # come back; the true scales differ from row to row and from output to output. The range of
        # the output is read for outputs of 8 bits only.
        lowest, highest = tf.constant(0.0), tf.constant(255.0)
        product = tf.raw_ops.QuantizedMatMulWithBiasAndDequantize(
            a=self.values,
            b=tf.bitcast(matrix.values, tf.qint8),
            bias=tf.bitcast(tf.constant(-self.zero * matrix.column_sums), tf.qint32),
            min_a=lowest,
            max_a=highest,
            min_b=-127.0,  # of the type, not of the matrix
            max_b=127.0,
            min_freezed_output=lowest,
            max_freezed_output=highest,
            Toutput=tf.float32,
            input_quant_mode="SCALED",
        )
        product *= self.scales
        if self.least:
            product += tf.constant(self.least * matrix.column_sums, tf.float32)
        return product * matrix.scales


def whole_numbers(x: tf.Tensor, least: float | None = None) -> WholeNumbers:
    """float32 [N, in], rounded to the nearest.

    Args:
        x: Rows.
        least: What none of its numbers is below, if that is known.
    """
    if least is None:
        scales = tf.maximum(tf.reduce_max(tf.abs(x), -1, True), 1e-12) / _LARGEST
        zero, least, steps = _ZERO, 0.0, x * tf.math.reciprocal(scales)
    else:
        scales = tf.maximum(tf.reduce_max(x, -1, True) - least, 1e-12) / _STEPS
        zero, steps = 0, (x - least) * tf.math.reciprocal(scales)
    # To cut off what follows the point is to round, half a step higher.
    values = tf.cast(steps + (zero + 0.5), tf.uint8)
    return WholeNumbers(tf.bitcast(values, tf.quint8), scales, zero, least)


def least_value(activation: Callable) -> float | None:
    """Just below the least that an activation gives; None if there is none, or it is far from 0.

    It is looked for from -50 to 0: from there on BERT's activations only grow.
    """
    inputs = tf.linspace(-50.0, 0.0, 50_001)
    least = float(tf.reduce_min(activation(inputs)))
    return least - 1e-4 if least > -0.5 else None


def can_multiply(number: tf.Tensor) -> tf.Tensor:
    """Whether oneDNN computes the graph that this is in: bool [].

    Told by an operation that both can compute, and whose range without oneDNN is a 127th wider than
    asked for (TensorFlow 2.12 to 2.21).

    Args:
        number: int [], not known before the request: what is constant is computed without oneDNN,
            when the graph is prepared. With 0, of nothing, the answer is no.
    """
    largest = tf.cast(number, tf.float32)
    _, lowest, _ = tf.raw_ops.QuantizeV2(
        input=[largest],
        min_range=-largest,
        max_range=largest,
        T=tf.qint8,
        mode="SCALED",
        round_mode="HALF_TO_EVEN",
    )
    return (number > 0) & (lowest >= -largest)
