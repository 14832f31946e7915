"""In which number format a run computes. Weights and optimizer always stay in float32."""

import keras
import tensorflow as tf

from modeling.errors import ModelingError
from modeling.training.loss_scale import LossScale

DTYPES = ("float32", "bfloat16", "float16")


def set_precision(dtype: str, xla: bool = False) -> None:
    """Sets the number format of activations and matrix products.

    bfloat16 on CPU is left to TensorFlow's graph optimizer (oneDNN), which measures faster than
    casting in the layers; elsewhere, and with XLA, whose programs that optimizer doesn't see, it
    is Keras's mixed_bfloat16 policy. float16 is Keras's mixed_float16 policy everywhere, and needs
    a loss scale. Call it before the model is made.

    Args:
        dtype: One of `DTYPES`.
        xla: Whether the training step is compiled with XLA.

    Raises:
        ModelingError: Another name.
    """
    if dtype not in DTYPES:
        raise ModelingError(f"--dtype must be one of {', '.join(DTYPES)}; got {dtype!r}.")
    accelerated = tf.config.list_physical_devices("GPU") or tf.config.list_logical_devices("TPU")
    by_graph_optimizer = dtype == "bfloat16" and not accelerated and not xla
    tf.config.optimizer.set_experimental_options(
        {"auto_mixed_precision_onednn_bfloat16": by_graph_optimizer}
    )
    mixed = dtype != "float32" and not by_graph_optimizer
    keras.config.set_dtype_policy(f"mixed_{dtype}" if mixed else "float32")


def make_loss_scale() -> LossScale | None:
    """A loss scale if the precision set needs one; call it in the strategy's scope."""
    if keras.config.dtype_policy().compute_dtype == "float16":
        return LossScale()
    return None
