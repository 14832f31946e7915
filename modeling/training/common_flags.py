"""Flags that all scripts define alike; the scripts read them."""

from absl import flags

from modeling.training.distribution import DTYPES


def define_hardware_flags() -> None:
    """The original's TPU flags, and precision."""
    flags.DEFINE_bool("use_tpu", False, "Train on a TPU; otherwise on all GPUs, or on the CPU.")
    flags.DEFINE_string("tpu_name", None, "Name or grpc:// address of the TPU.")
    flags.DEFINE_string("tpu_zone", None, "Zone of the TPU; found out if not given.")
    flags.DEFINE_string("gcp_project", None, "Project of the TPU; found out if not given.")
    flags.DEFINE_string("master", None, "Address of the TPU, the original's older form.")
    flags.DEFINE_integer(
        "num_tpu_cores", 8, "Cores of the TPU. All of them are used; a difference is reported."
    )
    flags.DEFINE_enum("dtype", "float32", DTYPES, "Precision of the matrix products.")


def define_run_flags(learning_rate: float, train_batch_size: int, save_steps: int) -> None:
    """What every training run has: model, output, batch sizes, schedule, reporting."""
    flags.DEFINE_string(
        "bert_config_file", None, "bert_config.json (or Hugging Face's config.json) of the model."
    )
    flags.DEFINE_string(
        "init_checkpoint",
        None,
        "Weights to start from: bert_model.ckpt, a Hugging Face folder or .safetensors file.",
    )
    flags.DEFINE_string("output_dir", None, "Where checkpoints and results are written.")
    flags.DEFINE_integer("train_batch_size", train_batch_size, "Over all replicas.", lower_bound=1)
    flags.DEFINE_integer("eval_batch_size", 8, "Over all replicas.", lower_bound=1)
    flags.DEFINE_float("learning_rate", learning_rate, "Peak of the schedule.")
    flags.DEFINE_integer(
        "save_checkpoints_steps", save_steps, "Steps between checkpoints.", lower_bound=1
    )
    flags.DEFINE_integer(
        "iterations_per_loop", 1000, "Most steps in one call to the device.", lower_bound=1
    )
    flags.DEFINE_integer("log_steps", 100, "Steps between status lines.", lower_bound=1)
    flags.DEFINE_integer(
        "random_seed",
        12345,
        "Of weights, dropout, data order and masks.",
        lower_bound=0,
        upper_bound=2**31 - 1,
    )
