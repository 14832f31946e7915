"""Flags of the hardware: which devices, in which number format, how compiled.

Also the names that the engine knows, since --help needs them without TensorFlow.
"""

from absl import flags

STRATEGIES = ("auto", "one_device", "mirrored", "multi_worker_mirrored", "tpu")
DTYPES = ("float32", "bfloat16", "float16", "auto")
OPTIMIZERS = ("adam", "adamw", "lamb", "muon")
SCHEDULES = ("linear", "linear_from_peak", "polynomial", "constant")


def define_hardware_flags() -> None:
    """Those of a training script; the TPU's are the original's."""
    define_engine_device_flags()
    flags.DEFINE_bool("xla", False, "Compile the training step with XLA; for GPUs.")
    flags.DEFINE_bool(
        "remat", False, "Compute activations again in the backward pass: less memory, more time."
    )
    flags.DEFINE_integer(
        "gradient_accumulation_steps",
        1,
        "Parts that each batch is computed in, one after the other: less memory.",
        lower_bound=1,
    )


def define_engine_device_flags() -> None:
    """Of those the ones that aren't about training."""
    flags.DEFINE_enum(
        "distribution_strategy",
        "auto",
        STRATEGIES,
        "auto: a TPU if asked for, the workers of TF_CONFIG, all GPUs, or one device.",
    )
    flags.DEFINE_bool("use_tpu", False, "Train on a TPU; otherwise on all GPUs, or on the CPU.")
    flags.DEFINE_string("tpu_name", None, "Name or grpc:// address of the TPU.")
    flags.DEFINE_string("tpu_zone", None, "Zone of the TPU; found out if not given.")
    flags.DEFINE_string("gcp_project", None, "Project of the TPU; found out if not given.")
    flags.DEFINE_string("master", None, "Address of the TPU, the original's older form.")
    flags.DEFINE_integer(
        "num_tpu_cores",
        8,
        "Cores of the TPU. All of them are used; a difference is reported.",
        lower_bound=1,
    )
    flags.DEFINE_enum(
        "dtype",
        "float32",
        DTYPES,
        "Number format of activations and products; auto: the fastest here.",
    )
