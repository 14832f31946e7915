"""What an export keeps of a model's weights, and in which number format it computes.

float32: the weights as they are. bfloat16: matrices in half the bytes, products in bfloat16.
int8: matrices in a quarter of the bytes, a scale per output (per row of the word embeddings);
products in float32. Biases, norms, the small tables and the task's own head stay float32.
"""

from collections.abc import Iterator, Mapping, Sequence

import keras
import numpy as np
import tensorflow as tf

from modeling.errors import ModelingError
from modeling.layers.dense import Dense
from modeling.layers.embeddings import BertEmbeddings
from modeling.layers.execution import Execution
from modeling.serving.flags import EXPORT_DTYPES

_POLICIES = {"float32": "float32", "bfloat16": "mixed_bfloat16", "int8": "float32"}


class _Matrix:
    """A matrix in fewer bytes: bfloat16, or whole numbers from -127 to 127 times scales.

    Args:
        matrix: float32 [rows, columns].
        dtype: "bfloat16", rounded to the nearest; or "int8".
        axis: Along which int8 shares a scale: 0 for the kernel of a product (a scale per
            output), 1 for a table of vectors.
    """

    def __init__(self, matrix: np.ndarray, dtype: str, axis: int):
        self.scales = None
        if dtype == "int8":
            scales = np.maximum(np.abs(matrix).max(axis, keepdims=True), 1e-12) / 127
            matrix = np.clip(np.rint(matrix / scales), -127, 127)
            self.scales = tf.Variable(scales.astype(np.float32), trainable=False)
        self.values = tf.Variable(tf.cast(matrix, dtype), trainable=False)
        self.variables = [v for v in (self.values, self.scales) if v is not None]

    def read(self, dtype: str) -> tf.Tensor:
        return self._scaled(self.values, self.scales, dtype)

    def rows(self, numbers, dtype: str) -> tf.Tensor:
        scales = self.scales
        if scales is not None and scales.shape[0] > 1:
            scales = tf.gather(scales, numbers)
        return self._scaled(tf.gather(self.values, numbers), scales, dtype)

    @staticmethod
    def _scaled(values, scales, dtype: str) -> tf.Tensor:
        wide = tf.cast(values, dtype)
        return wide if scales is None else wide * tf.cast(scales, dtype)


class Servable(tf.Module):
    """A model as it is served: what a SavedModel keeps of it, and a function of batches.

    Tracked are variables alone: Keras variables or layers work in Python but not in the C++ loader
    of TF Serving.

    Args:
        model: The model, built.
        dtype: One of `EXPORT_DTYPES`, or None: weights in float32, computing as the model does.

    Attributes:
        config: The model's configuration, if it has one.

    Raises:
        ModelingError: Another dtype.
    """

    def __init__(self, model: keras.Model, dtype: str | None = None):
        super().__init__()
        if dtype is not None and dtype not in EXPORT_DTYPES:
            raise ModelingError(
                f"The weights can be exported as {', '.join(EXPORT_DTYPES)}; got {dtype!r}."
            )
        stored = {}
        if dtype in ("bfloat16", "int8"):
            for weight, axis in _matrices(model):
                matrix = keras.ops.convert_to_numpy(weight)
                stored[id(weight)] = _Matrix(matrix, dtype, axis)
        execution = Execution(inference=True, unpad=True, stored=stored)

        def compute(batch):
            policies = [(layer, layer.dtype_policy) for layer in _layers(model)]
            try:
                if dtype is not None:
                    for layer, _ in policies:
                        layer.dtype_policy = _POLICIES[dtype]
                return model(batch, execution=execution)
            finally:
                for layer, policy in policies:
                    layer.dtype_policy = policy

        # In a function, since a `tf.Module` would track the model if it were an attribute.
        self._compute = compute
        self.config = getattr(model, "config", None)
        self.model_variables = [w.value for w in model.weights if id(w) not in stored]
        self.model_variables += [v for matrix in stored.values() for v in matrix.variables]

    def __call__(self, batch: Mapping[str, tf.Tensor]) -> Mapping[str, tf.Tensor]:
        """The model's outputs, traced as they are served."""
        return self._compute(batch)


def _layers(model) -> Sequence[keras.layers.Layer]:
    """All of a model; none of what is a model by its weights alone."""
    parts = [p for p in getattr(model, "parts", [model]) if isinstance(p, keras.layers.Layer)]
    return [layer for part in parts for layer in part._flatten_layers()]


def _matrices(model: keras.Model) -> Iterator[tuple[keras.Variable, int]]:
    """The weights that layers read through `Execution`, with the axis of their scales."""
    for layer in _layers(model):
        if isinstance(layer, Dense):
            yield layer.kernel, 0
        elif isinstance(layer, BertEmbeddings):
            yield layer.word_embeddings, 1
