"""Flags that all scripts define alike; the scripts read them."""

import tensorflow as tf
from absl import flags

from modeling.config import BertConfig
from modeling.errors import ModelingError
from modeling.training.engine.distribution import STRATEGIES, get_strategy
from modeling.training.engine.optimizers import OPTIMIZERS
from modeling.training.engine.precision import DTYPES
from modeling.training.engine.schedules import SCHEDULES
from modeling.training.engine.setup import Settings
from modeling.training.runs.fit import Options
from modeling.training.search import Trial, grid


def define_hardware_flags() -> None:
    """The original's TPU flags; which devices, in which number format, how compiled."""
    define_device_flags()
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


def define_device_flags() -> None:
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
        "num_tpu_cores", 8, "Cores of the TPU. All of them are used; a difference is reported."
    )
    flags.DEFINE_enum(
        "dtype",
        "float32",
        DTYPES,
        "Number format of activations and products; auto: the fastest here.",
    )


def make_strategy(values) -> tf.distribute.Strategy:
    """The strategy that the hardware flags ask for; before anything else of TensorFlow."""
    return get_strategy(
        values.distribution_strategy,
        values.use_tpu,
        values.tpu_name,
        values.tpu_zone,
        values.gcp_project,
        values.master,
        values.num_tpu_cores,
    )


def check_model_fits(
    values, config: BertConfig, vocab_size: int, config_file: str | None = None
) -> None:
    """Refuses a sequence length or a vocabulary that the model has no embeddings for.

    Args:
        values: The flag values `max_seq_length`, `bert_config_file` and `vocab_file`.
        config: Of the model.
        vocab_size: Tokens of the vocabulary.
        config_file: Where the configuration is from, if not from --bert_config_file.

    Raises:
        ModelingError: Says which.
    """
    config_file = config_file or values.bert_config_file
    if values.max_seq_length > config.max_position_embeddings:
        raise ModelingError(
            f"--max_seq_length is {values.max_seq_length}, but the model was made for "
            f"max_position_embeddings {config.max_position_embeddings} "
            f"({config_file})."
        )
    if vocab_size > config.vocab_size:
        raise ModelingError(
            f"The vocabulary {values.vocab_file} has {vocab_size} tokens, but vocab_size in "
            f"{config_file} is {config.vocab_size}. Use the vocabulary that the model "
            f"was pre-trained with."
        )


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
    flags.DEFINE_float(
        "save_checkpoints_minutes",
        0,
        "Most minutes between checkpoints; 0: only steps count.",
        lower_bound=0,
    )
    flags.DEFINE_integer(
        "keep_checkpoint_max", 5, "Checkpoints that stay; 0 for all.", lower_bound=0
    )
    flags.DEFINE_integer(
        "eval_steps", 0, "Also evaluate every so many steps of training; 0: never.", lower_bound=0
    )
    flags.DEFINE_string(
        "best_metric",
        None,
        "Keep the weights that are best by this result of the evaluations (--eval_steps), and "
        "use them in the end.",
    )
    flags.DEFINE_integer(
        "early_stopping_patience",
        0,
        "Stop after so many evaluations without a better --best_metric; 0: never.",
        lower_bound=0,
    )


def define_optimizer_flags() -> None:
    """What changes the weights, and how fast; the defaults are the original's."""
    flags.DEFINE_enum(
        "optimizer",
        "adam",
        OPTIMIZERS,
        "adam: the original's, without bias correction; adamw: with it; lamb: for large batches.",
    )
    flags.DEFINE_enum(
        "lr_schedule",
        "linear",
        SCHEDULES,
        "Learning rate after the warm-up. linear is the original's, which falls from step 0 on and "
        "so has a jump where the warm-up ends; linear_from_peak has none.",
    )
    flags.DEFINE_float("lr_decay_power", 0.5, "Power of --lr_schedule=polynomial.", lower_bound=0)
    flags.DEFINE_float("weight_decay_rate", 0.01, "Decoupled weight decay.", lower_bound=0)
    flags.DEFINE_float(
        "layerwise_lr_decay",
        1.0,
        "Factor of the learning rate from each layer to the one below; 0.8 to 0.95 is usual.",
        lower_bound=0,
        upper_bound=1,
    )
    flags.DEFINE_integer(
        "freeze_layers",
        0,
        "First layers (and the embeddings) that are not trained; 0 trains all.",
        lower_bound=0,
    )


def define_fine_tuning_flags() -> None:
    """What every fine-tuning script has besides."""
    flags.DEFINE_string("vocab_file", None, "The vocabulary that the model was pre-trained with.")
    flags.DEFINE_bool(
        "do_lower_case", True, "Lower-case the text and strip accents; False for cased models."
    )
    flags.DEFINE_bool("do_train", False, "Fine-tune on the training set.")
    flags.DEFINE_bool("do_predict", False, "Write the answers to what is to be predicted.")
    flags.DEFINE_integer("predict_batch_size", 8, "Over all replicas.", lower_bound=1)
    flags.DEFINE_float("num_train_epochs", 3.0, "Passes over the training set.", lower_bound=0)
    flags.DEFINE_float(
        "warmup_proportion", 0.1, "Share of the steps that warm up.", lower_bound=0, upper_bound=1
    )
    # Beyond the original's flags.
    flags.DEFINE_integer(
        "num_train_steps", 0, "Train so many steps instead of num_train_epochs.", lower_bound=0
    )
    flags.DEFINE_bool("length_buckets", True, "False pads every input to max_seq_length.")


def define_search_flags() -> None:
    """The paper's search: every combination of the lists, each several times."""
    flags.DEFINE_list("learning_rates", [], "Search these in place of --learning_rate.")
    flags.DEFINE_list("batch_sizes", [], "Search these in place of --train_batch_size.")
    flags.DEFINE_list("epochs", [], "Search these in place of --num_train_epochs.")
    flags.DEFINE_integer(
        "num_runs",
        1,
        "Runs of each setting, with seeds from --random_seed on: other heads, other data orders.",
        lower_bound=1,
    )


def search_trials(values) -> list[Trial]:
    """The runs that the search flags ask for, read from the script's flag values; one if none.

    Raises:
        ModelingError: A list holds something that isn't a positive number.
    """
    return grid(
        _numbers(values.learning_rates, "learning_rates", float) or [values.learning_rate],
        _numbers(values.batch_sizes, "batch_sizes", int) or [values.train_batch_size],
        _numbers(values.epochs, "epochs", float) or [values.num_train_epochs],
        values.num_runs,
        values.random_seed,
    )


def _numbers(items: list[str], flag: str, of: type) -> list:
    try:
        numbers = [of(item) for item in items]
    except ValueError:
        numbers = [-1]
    if any(not number > 0 for number in numbers):
        raise ModelingError(
            f"--{flag} is {','.join(items)}; it has to be positive "
            f"{'whole ' if of is int else ''}numbers with commas between them."
        )
    return numbers


def training_settings(values, num_train_steps: int, num_warmup_steps: int) -> Settings:
    """The settings that the flags above give, read from the script's flag values."""
    return Settings(
        learning_rate=values.learning_rate,
        num_train_steps=num_train_steps,
        num_warmup_steps=num_warmup_steps,
        seed=values.random_seed,
        optimizer=values.optimizer,
        lr_schedule=values.lr_schedule,
        lr_decay_power=values.lr_decay_power,
        weight_decay_rate=values.weight_decay_rate,
        layerwise_lr_decay=values.layerwise_lr_decay,
        freeze_layers=values.freeze_layers,
        accumulation_steps=values.gradient_accumulation_steps,
        jit_compile=values.xla,
    )


def loop_options(values) -> Options:
    """When to save, report and evaluate, read from the script's flag values."""
    return Options(
        save_checkpoints_steps=values.save_checkpoints_steps,
        save_checkpoints_minutes=values.save_checkpoints_minutes,
        keep_checkpoint_max=values.keep_checkpoint_max,
        steps_per_call=values.iterations_per_loop,
        log_steps=values.log_steps,
        eval_steps=values.eval_steps,
        best_metric=values.best_metric,
        early_stopping_patience=values.early_stopping_patience,
    )
