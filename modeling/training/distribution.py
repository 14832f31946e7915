"""Where a run computes: TPU, several GPUs, one device; and in which precision."""

import keras
import tensorflow as tf
from absl import logging

from modeling.errors import ModelingError

DTYPES = ("float32", "bfloat16")


def get_strategy(
    use_tpu: bool = False,
    tpu_name: str | None = None,
    tpu_zone: str | None = None,
    gcp_project: str | None = None,
    master: str | None = None,
    num_tpu_cores: int | None = None,
) -> tf.distribute.Strategy:
    """TPU if asked for, MirroredStrategy if there are several GPUs, else one device.

    Args:
        use_tpu: Connects to a TPU and uses all its cores.
        tpu_name: Name or grpc:// address; None on a TPU VM means the local one.
        tpu_zone, gcp_project: Found out when None.
        master: The original's older way to give the address.
        num_tpu_cores: Cores that the caller expects; all are used, and a difference is reported.

    Raises:
        ModelingError: The TPU can't be reached.
    """
    if use_tpu:
        try:
            resolver = tf.distribute.cluster_resolver.TPUClusterResolver(
                tpu=tpu_name or master or "local", zone=tpu_zone, project=gcp_project
            )
            tf.config.experimental_connect_to_cluster(resolver)
            tf.tpu.experimental.initialize_tpu_system(resolver)
            strategy = tf.distribute.TPUStrategy(resolver)
        except (ValueError, RuntimeError, tf.errors.OpError) as error:
            raise ModelingError(
                f"--use_tpu is set but no TPU was found (tpu_name {tpu_name!r}): {error} Check "
                f"--tpu_name, --tpu_zone and --gcp_project, and that tensorflow-tpu is installed."
            ) from error
    else:
        gpus = tf.config.list_physical_devices("GPU")
        for gpu in gpus:
            tf.config.experimental.set_memory_growth(gpu, True)
        strategy = (
            tf.distribute.MirroredStrategy() if len(gpus) > 1 else tf.distribute.get_strategy()
        )
    if use_tpu and num_tpu_cores not in (None, strategy.num_replicas_in_sync):
        logging.warning(
            "--num_tpu_cores is %d, but the TPU has %d; all of them are used.",
            num_tpu_cores,
            strategy.num_replicas_in_sync,
        )
    device = "TPU" if use_tpu else "GPU" if gpus else "CPU"
    logging.info("Running on %d %s replica(s).", strategy.num_replicas_in_sync, device)
    return strategy


def check_batch_sizes(strategy: tf.distribute.Strategy, use_tpu: bool, **sizes: int) -> None:
    """Refuses batches that a TPU's cores can't share evenly; raises ModelingError.

    Args:
        strategy: Of the run.
        use_tpu: Elsewhere any size works.
        **sizes: Flag name → batch size.
    """
    replicas = strategy.num_replicas_in_sync
    for name, size in sizes.items():
        if use_tpu and size % replicas:
            raise ModelingError(
                f"--{name} is {size}, but the TPU has {replicas} cores and every core takes the "
                f"same share. Make it a multiple of {replicas}."
            )


def set_precision(dtype: str) -> None:
    """Sets the precision of the matrix products; weights and optimizer stay in float32.

    On CPU, bfloat16 is left to TensorFlow's graph optimizer (oneDNN), which measures faster than
    casting in the layers; elsewhere it is Keras's mixed_bfloat16 policy. Call it before the
    model is made.
    """
    if dtype not in DTYPES:
        raise ModelingError(f"--dtype must be one of {', '.join(DTYPES)}; got {dtype!r}.")
    accelerated = tf.config.list_physical_devices("GPU") or tf.config.list_logical_devices("TPU")
    half = dtype == "bfloat16"
    tf.config.optimizer.set_experimental_options(
        {"auto_mixed_precision_onednn_bfloat16": half and not accelerated}
    )
    keras.config.set_dtype_policy("mixed_bfloat16" if half and accelerated else "float32")
