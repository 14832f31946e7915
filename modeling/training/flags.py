"""Flags of training: batches, optimizer, evaluation on the way, search, what is kept."""

from absl import flags

from modeling.training.engine.flags import OPTIMIZERS, SCHEDULES
from modeling.training.recipes import RECIPES

MAX_BATCH_SIZE = 100_000
"""Of examples over all replicas; beyond it a batch is a mistake that takes all memory."""


def define_run_flags() -> None:
    """What every training run has; the defaults are the original's."""
    flags.DEFINE_string("output_dir", None, "Where checkpoints and results are written.")
    flags.DEFINE_bool(
        "overwrite_output_dir",
        False,
        "Remove what an earlier run has written to --output_dir, and train anew.",
    )
    flags.DEFINE_integer(
        "train_batch_size", 32, "Over all replicas.", lower_bound=1, upper_bound=MAX_BATCH_SIZE
    )
    flags.DEFINE_integer(
        "eval_batch_size", 8, "Over all replicas.", lower_bound=1, upper_bound=MAX_BATCH_SIZE
    )
    flags.DEFINE_float("learning_rate", 5e-5, "Peak of the schedule.", lower_bound=0)
    flags.DEFINE_integer(
        "save_checkpoints_steps", 1000, "Steps between checkpoints.", lower_bound=1
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
    _define_optimizer_flags()


def _define_optimizer_flags() -> None:
    """What changes the weights, and how fast."""
    flags.DEFINE_enum(
        "optimizer",
        "adam",
        OPTIMIZERS,
        "adam: the original's, without bias correction; adamw: with it; lamb: for large batches; "
        "muon: orthogonal updates of matrices, adamw for the rest.",
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
    flags.DEFINE_float(
        "average_last",
        0.0,
        "Share of the steps, the last ones, the mean of whose weights is the result; 0: none.",
        lower_bound=0,
        upper_bound=1,
    )
    flags.DEFINE_bool(
        "dropout", True, "Train with the dropout of the configuration, which stays as it is."
    )


def define_pretraining_flags() -> None:
    """What run_pretraining.py has besides."""
    define_run_flags()
    flags.DEFINE_bool("do_train", False, "Train.")
    flags.DEFINE_bool("do_eval", False, "Evaluate on the held-out records.")
    flags.DEFINE_integer("num_train_steps", 100000, "Updates in all.", lower_bound=1)
    flags.DEFINE_integer("num_warmup_steps", 10000, "Updates of linear warm-up.", lower_bound=0)
    flags.DEFINE_integer(
        "max_eval_steps",
        100,
        "Most batches of an evaluation; 0 evaluates all held-out records.",
        lower_bound=0,
    )
    # Beyond the original's flags.
    flags.DEFINE_string(
        "phases",
        None,
        "LENGTH:STEPS:BATCH[:PREDICTIONS],… in place of --max_seq_length, --num_train_steps, "
        "--train_batch_size and --max_predictions_per_seq, as in 128:900000:256,512:100000:256.",
    )
    flags.DEFINE_float(
        "minutes",
        0.0,
        "As many steps as so many minutes of training hold, measured before the first one; "
        "--num_train_steps (or those of --phases) and --num_warmup_steps are proportions then.",
        lower_bound=0,
        upper_bound=1e6,
    )
    flags.DEFINE_float(
        "flops",
        0.0,
        "As many steps as so many floating-point operations hold, as in 1e15; see --minutes.",
        lower_bound=0,
        upper_bound=1e30,
    )
    flags.DEFINE_enum(
        "recipe",
        "paper",
        list(RECIPES),
        "paper: the defaults; fast: "
        + " ".join(f"--{name}={str(value).lower()}" for name, value in RECIPES["fast"].items())
        + ", each unless it is given. --demo and --adapt begin with values of their own.",
    )
    flags.DEFINE_enum(
        "initialization",
        "normal",
        ["normal", "local"],
        "Of a new model; normal: as the original; local: positions attend to their neighbours at "
        "first, which leaves the plateau of word frequencies sooner.",
    )
    flags.DEFINE_bool(
        "rollback",
        False,
        "Where the loss jumps or isn't finite, go back to a checkpoint from before and past the "
        "batches since then, three times at most.",
    )
    flags.DEFINE_bool("estimate", False, "Only print what the run would take and cost.")


def define_fine_tuning_flags() -> None:
    """What every fine-tuning script has besides."""
    define_run_flags()
    flags.DEFINE_bool("do_train", False, "Fine-tune on the training set.")
    flags.DEFINE_bool("do_predict", False, "Write the answers to what is to be predicted.")
    flags.DEFINE_integer(
        "predict_batch_size", 8, "Over all replicas.", lower_bound=1, upper_bound=MAX_BATCH_SIZE
    )
    flags.DEFINE_float("num_train_epochs", 3.0, "Passes over the training set.", lower_bound=0)
    flags.DEFINE_float(
        "warmup_proportion", 0.1, "Share of the steps that warm up.", lower_bound=0, upper_bound=1
    )
    # Beyond the original's flags.
    flags.DEFINE_integer(
        "num_train_steps",
        0,
        "Train so many steps on each file, not num_train_epochs.",
        lower_bound=0,
    )
    flags.DEFINE_bool("length_buckets", True, "False pads every input to max_seq_length.")
    define_teacher_flags()
    # The paper's search: every combination of the lists, each several times.
    flags.DEFINE_list("learning_rates", [], "Search these in place of --learning_rate.")
    flags.DEFINE_list("batch_sizes", [], "Search these in place of --train_batch_size.")
    flags.DEFINE_list("epochs", [], "Search these in place of --num_train_epochs.")
    flags.DEFINE_integer(
        "num_runs",
        1,
        "Runs of each setting, with seeds from --random_seed on: other heads, other data orders.",
        lower_bound=1,
        upper_bound=10_000,
    )


def define_training_evaluation_flag() -> None:
    """Of the scripts whose original evaluates."""
    flags.DEFINE_bool("do_eval", False, "Evaluate on the dev set.")


def define_head_flag() -> None:
    """Of the scripts whose heads answer with classes, labels, numbers or tags."""
    flags.DEFINE_bool(
        "original_head",
        False,
        "A new head begins with zeros as bias and learns numbers in their own unit, as the "
        "original's; otherwise it begins at how often each label occurs in the training data, and "
        "numbers are learned in units of their standard deviation.",
    )


def define_class_weights_flag() -> None:
    """Of the scripts that classify."""
    flags.DEFINE_list(
        "class_weights", [], '"balanced", or a number per class: how much its examples count.'
    )


def define_teacher_flags(pretraining: bool = False) -> None:
    """Distillation: who teaches, and how.

    Args:
        pretraining: Whether words are learned, not the answers of a task.
    """
    flags.DEFINE_list(
        "teacher",
        [],
        "Learn from this pre-trained model's words or layers too: its folder or checkpoint."
        if pretraining
        else "Learn from this model's answers too: the folder or checkpoint of one that was "
        "trained on the same task, or several, whose mean is taken.",
    )
    if pretraining:
        flags.DEFINE_enum(
            "teacher_places",
            "masked",
            ["masked", "all"],
            "Where words are learned from --teacher: at the masked places, or at all of them.",
        )
    flags.DEFINE_float(
        "teacher_temperature",
        2.0,
        "What logits are divided by; the higher, the more a teacher's doubts count.",
        lower_bound=0.01,
        upper_bound=100,
    )
    flags.DEFINE_float(
        "label_share",
        0.5,
        "How much the labels count in the loss; the teacher's answers count the rest.",
        lower_bound=0,
        upper_bound=1,
    )
    flags.DEFINE_list(
        "match_hidden_states",
        [],
        "Make layers like the teacher's, of the same width: STUDENT:TEACHER,… from 0, or even.",
    )
    flags.DEFINE_list(
        "match_relations",
        [],
        "Make the attention relations of layers like the teacher's, of any width: "
        "STUDENT:TEACHER,… from 0, or even.",
    )
    flags.DEFINE_float(
        "match_weight", 1.0, "How much the losses of matched layers count.", lower_bound=0
    )


def define_student_command_flag() -> None:
    """--student, of the scripts that do all of it."""
    flags.DEFINE_list(
        "student",
        [],
        "From the trained model of --init_checkpoint to small ones that are served, of so many "
        "layers each (3 or 3,2): cut out, taught by it, evaluated, exported and compared.",
    )
