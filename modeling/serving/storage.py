"""What an export keeps of a model's weights, and in which number format it computes.

float32: the weights as they are. bfloat16: matrices in half the bytes, products in bfloat16.
int8: matrices in a quarter of the bytes, an encoder's products in whole numbers where oneDNN
computes, all else in float32. Biases, norms, the small tables and the task's own head stay float32.
"""

from collections.abc import Iterator, Mapping, Sequence

import keras
import tensorflow as tf

from modeling.errors import ModelingError
from modeling.layers.dense import Dense
from modeling.layers.embeddings import BertEmbeddings
from modeling.layers.encoder import BertEncoder
from modeling.layers.execution import Execution
from modeling.serving.flags import BRANCHES, EXPORT_FORMATS
from modeling.serving.graph.encoder import BranchedEncoder
from modeling.serving.graph.matrices import StoredMatrix

_POLICIES = {"float32": "float32", "bfloat16": "mixed_bfloat16", "int8": "float32"}


class Servable(tf.Module):
    """A model as it is served: what a SavedModel keeps of it, and a function of batches.

    Tracked are variables alone: Keras variables or layers work in Python but not in the C++ loader
    of TF Serving.

    Args:
        model: The model, built.
        dtype: Of a SavedModel's in `EXPORT_FORMATS`; None: weights in float32, computing as the
            model does.
        branches, in_functions, xla: See `BranchedEncoder`.

    Attributes:
        config: The model's configuration, if it has one.

    Raises:
        ModelingError: Another dtype, or int8 with xla.
    """

    def __init__(
        self,
        model: keras.Model,
        dtype: str | None = None,
        branches: int = BRANCHES,
        in_functions: bool = True,
        xla: bool = False,
    ):
        super().__init__()
        dtypes = EXPORT_FORMATS["saved_model"]
        if dtype is not None and dtype not in dtypes:
            raise ModelingError(
                f"The weights can be exported as {', '.join(dtypes)}; got {dtype!r}."
            )
        if xla and dtype == "int8":
            raise ModelingError("XLA has no products of whole numbers: export float32 or bfloat16.")
        layers = _layers(model)
        encoders = {
            id(layer): BranchedEncoder(layer, dtype or "float32", branches, in_functions, xla)
            for layer in layers
            if isinstance(layer, BertEncoder)
        }
        replaced = {weight for encoder in encoders.values() for weight in encoder.replaced}
        stored = {}
        if dtype in ("bfloat16", "int8"):
            for weight, axis in _matrices(layers):
                if id(weight) not in replaced:
                    matrix = keras.ops.convert_to_numpy(weight)
                    stored[id(weight)] = StoredMatrix(matrix, dtype, axis)
        execution = Execution(inference=True, stored=stored, encoders=encoders)

        def compute(batch):
            policies = [(layer, layer.dtype_policy) for layer in layers]
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
        kept = [w.value for w in model.weights if id(w) not in replaced | stored.keys()]
        parts = [*stored.values(), *encoders.values()]
        self.model_variables = kept + [v for part in parts for v in part.variables]

    def __call__(self, batch: Mapping[str, tf.Tensor]) -> Mapping[str, tf.Tensor]:
        """The model's outputs, traced as they are served."""
        return self._compute(batch)


def _layers(model) -> Sequence[keras.layers.Layer]:
    """All of a model; none of what is a model by its weights alone."""
    parts = [p for p in getattr(model, "parts", [model]) if isinstance(p, keras.layers.Layer)]
    return [layer for part in parts for layer in part._flatten_layers()]


def _matrices(layers: Sequence[keras.layers.Layer]) -> Iterator[tuple[keras.Variable, int]]:
    """The weights that layers read through `Execution`, with the axis of their scales."""
    for layer in layers:
        if isinstance(layer, Dense):
            yield layer.kernel, 0
        elif isinstance(layer, BertEmbeddings):
            yield layer.word_embeddings, 1
