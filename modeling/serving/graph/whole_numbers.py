"""Products in whole numbers: what makes an export in int8 fast.

if can_multiply(number): y = whole_numbers(x).times(matrix)      # [N, in] → [N, out]

Each row of x is rounded to whole numbers from -63 to 63 as the request comes (dynamic quantisation,
Zafrir et al. 2019, with a scale for every token instead of one for all), the matrix has been to
-127 to 127 with a scale for every output. oneDNN, which multiplies them, takes numbers from 0 on:
64 is added to x, and what that adds to the product is taken off it again.

Why not all of 8 bits: a processor without VNNI adds each two products in 16 bits, and stops there
at 32,767. 127·127·2 is less, 255·127·2 would be a wrong answer that nothing tells.

oneDNN is a part of TensorFlow, but on by default only on processors with AVX-512 VNNI and the like
(TF_ENABLE_ONEDNN_OPTS=1 and =0 say otherwise). Without it the operation has no kernel.
"""

from typing import NamedTuple

import tensorflow as tf

from modeling.serving.graph.matrices import StoredMatrix

_LARGEST = 63
_ZERO = 64
"""What stands for 0."""


class WholeNumbers(NamedTuple):
    """Rows as whole numbers.

    Attributes:
        values: quint8 [N, in], 1 to 127.
        scales: float32 [N, 1]; a row is `(values - 64) · scale`.
    """

    values: tf.Tensor
    scales: tf.Tensor

    def times(self, matrix: StoredMatrix) -> tf.Tensor:
        """The product with an int8 matrix [in, out]: float32 [N, out].

        Sums are 32 bits wide, and then float32: exact but for the rounding of both factors, and
        from 1,040 inputs on for up to four of the sum's units.
        """
        # The ranges say that a step of each factor is 1, so that float32 sums of whole products
        # come back; the true scales differ from row to row and from output to output. The range of
        # the output is read for outputs of 8 bits only.
        lowest, highest = tf.constant(0.0), tf.constant(255.0)
        product = tf.raw_ops.QuantizedMatMulWithBiasAndDequantize(
            a=self.values,
            b=tf.bitcast(matrix.values, tf.qint8),
            bias=tf.bitcast(tf.constant(-_ZERO * matrix.column_sums), tf.qint32),
            min_a=lowest,
            max_a=highest,
            min_b=-127.0,
            max_b=127.0,
            min_freezed_output=lowest,
            max_freezed_output=highest,
            Toutput=tf.float32,
            input_quant_mode="SCALED",
        )
        return product * self.scales * matrix.scales


def whole_numbers(x: tf.Tensor) -> WholeNumbers:
    """float32 [N, in], rounded to the nearest."""
    scales = tf.maximum(tf.reduce_max(tf.abs(x), -1, True), 1e-12) / _LARGEST
    # To cut off what follows the point is to round, half a step higher.
    values = tf.cast(x * tf.math.reciprocal(scales) + (_ZERO + 0.5), tf.uint8)
    return WholeNumbers(tf.bitcast(values, tf.quint8), scales)


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
