"""In which number format a run computes. Weights and optimizer always stay in float32."""

import gc
import pathlib

import keras
import tensorflow as tf
from absl import logging

from modeling.errors import ModelingError
from modeling.training.engine.flags import DTYPES

# NVIDIA's Ampere, the first with bfloat16 products.
_AMPERE = (8, 0)
_CPUINFO = "/proc/cpuinfo"

INITIAL_SCALE = 2.0**15
GROWTH_STEPS = 2000
LARGEST_SCALE = 2.0**24


def set_precision(dtype: str) -> None:
    """Sets the number format of activations and matrix products, as Keras's policy for it.

    bfloat16 and float16 are mixed: weights, optimizer, softmax, LayerNorm's statistics and losses
    stay in float32. float16 needs a loss scale. Call it before the model is made, and after the
    strategy.

    Args:
        dtype: One of `DTYPES`; "auto" is `fastest_dtype`.

    Raises:
        ModelingError: Another name.
    """
    if dtype not in DTYPES:
        raise ModelingError(f"--dtype must be one of {', '.join(DTYPES)}; got {dtype!r}.")
    if dtype == "auto":
        dtype = fastest_dtype()
        logging.info("--dtype=auto: computing in %s.", dtype)
    keras.config.set_dtype_policy(dtype if dtype == "float32" else f"mixed_{dtype}")


def clear_session_keeping_precision() -> None:
    """Frees the names and states of models made before, for another one in the same process.

    As `keras.utils.clear_session`, but that forgets the number format, too, and the default graph,
    by which a strategy makes its variables: within the scope of one nothing is freed but memory.
    """
    if tf.distribute.has_strategy():
        gc.collect()
        return
    policy = keras.config.dtype_policy()
    keras.utils.clear_session()
    keras.config.set_dtype_policy(policy)


def fastest_dtype() -> str:
    """The format that trains fastest here without a loss scale: "bfloat16" or "float32".

    bfloat16 on TPUs, on NVIDIA GPUs from Ampere on, and on x86 processors with AVX-512 BF16 or
    AMX, where Linux tells. Intel's since Sapphire Rapids need AMX for it: where a virtual machine
    hides that, float32 is faster (measured, on Emerald Rapids: steps of BERT-base take 0.74 of
    bfloat16's time). Where it isn't sure, float32.
    """
    if tf.config.list_logical_devices("TPU"):
        return "bfloat16"
    gpus = tf.config.list_physical_devices("GPU")
    if gpus:
        details = map(tf.config.experimental.get_device_details, gpus)
        modern = all(d.get("compute_capability", (0, 0)) >= _AMPERE for d in details)
        return "bfloat16" if modern else "float32"
    try:
        words = set(pathlib.Path(_CPUINFO).read_text(encoding="utf-8").split())
    except OSError:
        words = set()
    made_for_amx = {"GenuineIntel", "avx512_fp16"} <= words
    fast = "amx_bf16" in words or ("avx512_bf16" in words and not made_for_amx)
    return "bfloat16" if fast else "float32"


class LossScale:
    """Keeps small gradients from vanishing in float16 (Micikevicius et al. 2018, section 3.2).

    Halved after a step whose summed gradient isn't finite on any replica, and that step changes
    no weight; doubled after `growth_steps` good ones in a row. It is decided on the sum over all
    replicas, so that all of them keep the same scale.

    Create it in the strategy's scope: it has variables.

    Attributes:
        scale: float32 scalar variable.
        good_steps: int32 scalar variable, good steps since the scale last changed.
    """

    def __init__(self, initial: float = INITIAL_SCALE, growth_steps: int = GROWTH_STEPS):
        self.growth_steps = growth_steps
        options = {
            "trainable": False,
            "aggregation": tf.VariableAggregation.ONLY_FIRST_REPLICA,
        }
        self.scale = tf.Variable(initial, dtype=tf.float32, **options)
        self.good_steps = tf.Variable(0, dtype=tf.int32, **options)

    def state(self) -> dict[str, tf.Variable]:
        """Variables by the names that they have in checkpoints."""
        return {"loss_scale": self.scale, "loss_scale_good_steps": self.good_steps}

    def update(self, finite: tf.Tensor) -> None:
        """Takes note of one step; call it in replica context.

        Args:
            finite: bool scalar, equal on all replicas: the summed gradient was finite.
        """
        grow = self.good_steps + 1 >= self.growth_steps
        larger = tf.where(grow, tf.minimum(self.scale * 2.0, LARGEST_SCALE), self.scale)
        smaller = tf.maximum(self.scale / 2.0, 1.0)
        good_steps = tf.where(finite & ~grow, self.good_steps + 1, 0)
        self.scale.assign(tf.where(finite, larger, smaller))
        self.good_steps.assign(good_steps)


def make_loss_scale(model: keras.Model) -> LossScale | None:
    """A loss scale if the model's number format needs one; call it in the strategy's scope."""
    if model.dtype_policy.compute_dtype == "float16":
        return LossScale()
    return None
