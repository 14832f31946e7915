"""Layers of a student made like those of its teacher: hidden states and attention relations.

losses = LayerLosses(student, teacher, relations=[(2, 5)])
"""

import math
from collections.abc import Mapping, Sequence

import tensorflow as tf

from modeling.errors import ModelingError
from modeling.layers.attention import attention_bias
from modeling.layers.execution import INFERENCE, PLAIN, Execution
from modeling.losses import Mean, Means
from modeling.models import BertModel

Pairs = Sequence[tuple[int, int]]
"""(student's layer, teacher's layer), each from 0."""
_INPUTS = ("input_ids", "input_mask", "segment_ids", "position_ids", "sequence_ids")


class LayerLosses:
    """Losses of chosen layers, as `losses.Losses` wants them; the teacher runs in every step.

    `hidden_loss` is the mean squared difference of the hidden states of a layer (TinyBERT, Jiao
    et al. 2020, equation 8), between equal widths. `relation_loss` is that of MiniLMv2 (Wang et
    al. 2021, section 3.1): queries, keys and values are cut anew into equally many relation heads
    on both sides, whatever the widths are, and in each the relation of any two places,
    softmax(x·xᵀ/√d), is made like the teacher's; the mean of the KL divergences over the three,
    heads and places. Both are means over real pieces, and over the pairs of layers.

    Args:
        student, teacher: Built models that read the same pieces.
        hidden, relations: Which layers are made like which.
        relation_heads: How many; by default the student's attention heads, where the teacher's
            width can be cut so, else what both widths and numbers of heads have in common.
        weight: How much these losses count.

    Raises:
        ModelingError: The widths don't allow what is asked for.
    """

    def __init__(
        self,
        student: BertModel,
        teacher: BertModel,
        hidden: Pairs = (),
        relations: Pairs = (),
        relation_heads: int = 0,
        weight: float = 1.0,
    ):
        self.student = student
        self.teacher = teacher
        self.hidden = list(hidden)
        self.relations = list(relations)
        self.weight = weight
        widths = student.config.hidden_size, teacher.config.hidden_size
        if hidden and widths[0] != widths[1]:
            raise ModelingError(
                f"Hidden states can't be matched: the student's are {widths[0]} wide, the "
                f"teacher's {widths[1]}. Match attention relations, which any two widths have."
            )
        self.relation_heads = relation_heads or _relation_heads(student.config, teacher.config)
        if relations and any(width % self.relation_heads for width in widths):
            raise ModelingError(
                f"Relations can't be cut into {self.relation_heads} heads: that doesn't divide "
                f"both the student's width {widths[0]} and the teacher's {widths[1]}."
            )

    def __call__(
        self, outputs: Mapping, batch: Mapping, taught: Mapping | None = None
    ) -> tuple[Means, Means]:
        """See `losses.Losses`; `taught` are the outputs of the teacher's encoder if it has run."""
        inputs = {name: _flat(batch[name]) for name in _INPUTS if name in batch}
        if taught is None:
            taught = self.teacher.encoder(inputs, execution=INFERENCE)
        # Only weights of the student learn.
        layers = ("embedding_output", "encoder_outputs")
        taught = {name: tf.nest.map_structure(tf.stop_gradient, taught[name]) for name in layers}
        real = tf.cast(_mask(batch), tf.float32)
        losses = {}
        if self.hidden:
            loss = tf.add_n([_difference(outputs, taught, *pair) for pair in self.hidden])
            losses["hidden_loss"] = self._mean(loss / len(self.hidden), real)
        if self.relations:
            bias = attention_bias(
                inputs["input_mask"],
                "float32",
                self.student.config.attention_direction,
                inputs.get("sequence_ids"),
            )
            parts = []
            for ours, theirs in self.relations:
                student = self._relations(self.student, outputs, ours, bias, PLAIN)
                teacher = self._relations(self.teacher, taught, theirs, bias, INFERENCE)
                parts += [
                    _relation_divergence(tf.stop_gradient(theirs_), ours_)
                    for ours_, theirs_ in zip(student, teacher, strict=True)
                ]
            losses["relation_loss"] = self._mean(tf.add_n(parts) / len(parts), real)
        return losses, {}

    def weights(self, batch: Mapping) -> dict[str, tf.Tensor]:
        count = tf.reduce_sum(tf.cast(_mask(batch), tf.float32))
        names = ["hidden_loss"] * bool(self.hidden) + ["relation_loss"] * bool(self.relations)
        return dict.fromkeys(names, count)

    def _mean(self, of_places, real) -> Mean:
        """Of float32 [B, T]."""
        return Mean(self.weight * tf.reduce_sum(of_places * real), tf.reduce_sum(real))

    def _relations(self, model: BertModel, outputs, layer: int, bias, execution: Execution):
        """Log probabilities [B, relation heads, T, T] of queries, keys and values of a layer.

        They are computed once more from what the layer read: three products of a layer, and no
        layer has to give out more than its result.
        """
        below = outputs["encoder_outputs"][layer - 1] if layer else outputs["embedding_output"]
        attention = model.encoder.layers[layer].attention
        width, length = model.config.hidden_size, tf.shape(below)[1]
        rows = tf.reshape(below, [-1, width])
        size = width // self.relation_heads
        for dense in (attention.query, attention.key, attention.value):
            x = tf.cast(dense(rows, execution=execution), tf.float32)
            x = tf.reshape(x, [-1, length, self.relation_heads, size])
            x = tf.transpose(x, [0, 2, 1, 3])
            scores = tf.matmul(x, x, transpose_b=True) / math.sqrt(size)
            yield tf.nn.log_softmax(scores + bias)


def _relation_heads(student, teacher) -> int:
    if not teacher.hidden_size % student.num_attention_heads:
        return student.num_attention_heads
    return math.gcd(student.num_attention_heads, teacher.num_attention_heads)


def _relation_divergence(teacher, student):
    """KL, the mean of all heads: log probabilities [B, heads, T, T], twice → [B, T]."""
    return tf.reduce_mean(tf.reduce_sum(tf.exp(teacher) * (teacher - student), -1), 1)


def _difference(outputs, taught, ours: int, theirs: int):
    """The mean square over the width: [B, T]."""
    student, teacher = outputs["encoder_outputs"][ours], taught["encoder_outputs"][theirs]
    difference = tf.cast(student, tf.float32) - tf.cast(teacher, tf.float32)
    return tf.reduce_mean(tf.square(difference), -1)


def _flat(tensor):
    """[B, R, T] as [B·R, T], as encoders see examples of several rows."""
    return tensor if len(tensor.shape) == 2 else tf.reshape(tensor, [-1, tf.shape(tensor)[-1]])


def _mask(batch: Mapping):
    """Of the real pieces, as encoders see them; rows that only fill a batch have none."""
    return _flat(batch["input_mask"])
