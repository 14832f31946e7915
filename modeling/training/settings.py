"""From the values of flags to what training takes: devices, trials, and all that a run is told.

settings = fine_tuning_settings(values)
"""

import dataclasses
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import tensorflow as tf
from absl import logging

from modeling.config import LEFT_TO_RIGHT, RIGHT_TO_LEFT, BertConfig
from modeling.errors import ModelingError
from modeling.side_by_side import MOST_CORES_OF_PARTS, divide_threads
from modeling.training.distillation.teaching import TeachingSettings
from modeling.training.engine import distribution
from modeling.training.engine.loop import LoopOptions
from modeling.training.engine.setup import OPTIMIZATION, EngineSettings
from modeling.training.flags import MAX_BATCH_SIZE
from modeling.training.given_model import open_given_model
from modeling.training.phases import Phase
from modeling.training.reading_flags import reading_flags, take_reading_flags
from modeling.training.runs.identity import weights_identity
from modeling.training.search import Trial, trial_grid

DIRECTIONS = {"ltr": LEFT_TO_RIGHT, "rtl": RIGHT_TO_LEFT}
"""Objectives of pre-training in one direction."""
# What a search could try in vain.
_SAID_BY_OTHERS = {
    "epochs": ("num_train_steps", "epochs_per_file"),
    "batch_sizes": ("train_batch_tokens",),
}


@dataclass(frozen=True)
class FineTuningSettings:
    """What the driver of fine-tuning is told.

    Attributes:
        output_dir: The run's folder.
        init_checkpoint: Weights that training starts from; None for random ones.
        do_train, do_eval, do_predict, do_export: What to do.
        trials: The runs of a search, or the only one.
        optimization: How a model is trained; rate, steps and seed are each trial's own.
        loop: When to save, report, evaluate and stop.
        num_train_steps: Steps of a split to train on, in place of passes; 0: passes count.
        warmup_proportion: Share of the steps that warm up.
        eval_batch_size, predict_batch_size: Examples over all replicas.
        length_buckets: Whether batches may differ in length.
        vocab_file: The vocabulary that the texts are read with; None if it isn't known.
        config: The model's configuration.
        do_lower_case, strip_accents: How texts are folded before, see `vocabularies.TextFolding`.
        reading: How texts are read besides, see `training.reading_flags`.
        max_seq_length: Of the rows.
        teaching: Who teaches the model, and how.
    """

    output_dir: str
    init_checkpoint: str | None
    do_train: bool
    do_eval: bool
    do_predict: bool
    do_export: bool
    trials: list[Trial]
    optimization: EngineSettings
    loop: LoopOptions
    num_train_steps: int
    warmup_proportion: float
    eval_batch_size: int
    predict_batch_size: int
    length_buckets: bool
    vocab_file: str | None = None
    config: BertConfig | None = None
    do_lower_case: bool | None = None
    strip_accents: bool | None = None
    reading: dict[str, Any] = field(default_factory=dict)
    max_seq_length: int = 0
    teaching: TeachingSettings = field(default_factory=TeachingSettings)

    @property
    def searching(self) -> bool:
        """Whether several runs are trained and the best one is taken."""
        return self.do_train and len(self.trials) > 1

    @property
    def evaluating(self) -> bool:
        """Whether the dev set is needed."""
        return bool(self.do_eval or self.searching or (self.do_train and self.loop.eval_steps))

    @property
    def fixed_shapes(self) -> bool:
        """Whether all batches have one shape: each shape is compiled by XLA, on a TPU too."""
        return (
            not self.length_buckets
            or self.optimization.jit_compile
            or distribution.strategy_on_tpu()
        )


def fine_tuning_settings(values) -> FineTuningSettings:
    """Reads the flag values of a fine-tuning script, and what the model's folder tells besides.

    Raises:
        ModelingError: There is nothing to do, flags contradict each other or can't be meant; or
            what `open_given_model` raises.
    """
    if "class_weights" in values:
        training_class_weights(values)
    jobs = [name for name in ("do_train", "do_eval", "do_predict", "do_export") if name in values]
    if not any(values[name].value for name in jobs):
        raise ModelingError(
            f"Nothing to do: give at least one of {', '.join(f'--{name}' for name in jobs)}."
        )
    trials, loop = search_trials(values), training_loop_options(values)
    config = open_given_model(values)
    take_reading_flags(values)
    names = [setting.name for setting in fields(FineTuningSettings)]
    flags = {name: values[name].value for name in names if name in values}
    return FineTuningSettings(
        **{"do_eval": False, **flags},
        config=config,
        reading=reading_flags(values),
        trials=trials,
        teaching=teaching_settings(values),
        optimization=training_settings(values),
        loop=loop,
    )


def check_pretraining_run(values) -> None:
    """Refuses a pre-training run that has nothing to do, nowhere to write or too many sources.

    Raises:
        ModelingError: Says which.
    """
    if not (values.do_train or values.do_eval or values.do_export):
        raise ModelingError(
            "Nothing to do: give --do_train, --do_eval, --do_export or several of them, or --demo "
            "for a first run."
        )
    if not values.output_dir:
        raise ModelingError("--output_dir is missing: the folder for checkpoints.")
    if values.phases and values.demo:
        raise ModelingError("--phases and --demo exclude each other.")
    if values.init_checkpoint and values.initialization != "normal":
        raise ModelingError(
            f"--initialization={values.initialization} is for a new model, and this one begins as "
            f"--init_checkpoint={values.init_checkpoint}: leave one of them out."
        )
    teaching_settings(values)
    check_result(values)


def check_result(values) -> None:
    """Refuses what is to be both the mean of the last weights and the best ones (ModelingError)."""
    if values.average_last and values.best_metric:
        raise ModelingError(
            f"--average_last={values.average_last:g} makes the mean of the last weights the "
            f"result, --best_metric={values.best_metric} the best ones on the way: give one of "
            f"them."
        )


def teaching_settings(values) -> TeachingSettings:
    """Who teaches, and how.

    Raises:
        ModelingError: How is said, but not who; or there is nothing to learn.
    """
    names = [setting.name for setting in fields(TeachingSettings)]
    names_given = [n for n in (*names, "transfer_file", "teacher_places") if n in values]
    given = [f"--{name}" for name in names_given if values[name].present and name != "teacher"]
    if given and not values.teacher:
        raise ModelingError(
            f"{', '.join(given)} says how a teacher teaches, but there is none: give --teacher, "
            f"the folder of a model that was trained on this task."
        )
    if values.teacher and not values.do_train:
        raise ModelingError(
            f"--teacher={','.join(values.teacher)} teaches what is trained, and nothing is: give "
            f"--do_train, or leave it out."
        )
    settings = TeachingSettings(**{name: values[name].value for name in names})
    matches = settings.match_hidden_states or settings.match_relations
    if values["match_weight"].present and not matches:
        raise ModelingError(
            "--match_weight says how much matched layers count, and none are to be matched: give "
            "--match_relations or --match_hidden_states, or leave it out."
        )
    if settings.teacher and settings.label_share == 1 and not matches:
        raise ModelingError(
            "--label_share is 1, which leaves no share to what --teacher answers, and no layers "
            "are to be matched: there is nothing to learn from it. Give less, or --match_relations."
        )
    idle = [f"--{n}" for n in ("teacher_temperature", "teacher_places") if n in values]
    idle = [flag for flag in idle if values[flag[2:]].present]
    if settings.label_share == 1 and idle:
        raise ModelingError(
            f"{', '.join(idle)} says how the teacher's answers are learned, and --label_share=1 "
            f"leaves no share to them: leave one of them out."
        )
    return settings


def training_class_weights(values) -> list[float] | None:
    """The numbers of --class_weights; None where it is "balanced" or not given.

    Raises:
        ModelingError: They aren't numbers from 0 on, or all are 0, so that nothing would count.
    """
    given = values.class_weights
    if given in ([], ["balanced"]):
        return None
    try:
        weights = [float(weight) for weight in given]
    except ValueError:
        weights = []
    if not any(weights) or not all(0 <= weight < math.inf for weight in weights):
        raise ModelingError(
            f"--class_weights is {','.join(given)}; it has to be balanced, or a number from 0 on "
            f"for each class, at least one of them above 0."
        )
    return weights


def make_strategy(values, parts: bool = False) -> tf.distribute.Strategy:
    """The strategy that the hardware flags ask for; before anything else of TensorFlow.

    On a processor it divides the threads among batches that are computed side by side, see
    `divide_threads`, if there is no training, or `parts` of training batches are to be.
    """
    strategy = distribution.get_strategy(
        values.distribution_strategy,
        values.use_tpu,
        values.tpu_name,
        values.tpu_zone,
        values.gcp_project,
        values.master,
        values.num_tpu_cores if values["num_tpu_cores"].present else None,
    )
    trains = "do_train" in values and values.do_train
    if (parts or not trains) and strategy is tf.distribute.get_strategy():
        at_once = divide_threads(MOST_CORES_OF_PARTS) if trains else divide_threads()
        if at_once > 1:
            what = "parts of each batch" if trains else "batches"
            logging.info("Computing %d %s side by side.", at_once, what)
    return strategy


def search_trials(values) -> list[Trial]:
    """The runs that the search flags ask for; one if none.

    Raises:
        ModelingError: A list holds something that isn't a positive number, or another flag says
            already what it would try.
    """
    for searched, others in _SAID_BY_OTHERS.items():
        given = [name for name in others if name in values and values[name].value]
        if values[searched].value and given:
            raise ModelingError(
                f"--{searched} would try numbers that nothing depends on, because "
                f"--{given[0]} says it already: leave one of them out."
            )
    return trial_grid(
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
    most = MAX_BATCH_SIZE if of is int else sys.float_info.max
    if not all(0 < number <= most for number in numbers):
        raise ModelingError(
            f"--{flag} is {','.join(items)}; it has to be positive "
            f"{f'whole numbers up to {most}' if of is int else 'numbers'} with commas between them."
        )
    return numbers


def training_settings(
    values, num_train_steps: int = 0, num_warmup_steps: int = 0
) -> EngineSettings:
    """How a model is trained; a warning if its learning rate never gets to where it should.

    Raises:
        ModelingError: See `check_result`.
    """
    check_result(values)
    if 0 < num_train_steps <= num_warmup_steps:
        logging.warning(
            "The learning rate rises for --num_warmup_steps=%d, and training ends before, at step "
            "%d: --learning_rate is never reached. A tenth of the steps is usual.",
            num_warmup_steps,
            num_train_steps,
        )
    return EngineSettings(
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
        average_last=values.average_last,
        dropout=values.dropout,
        accumulation_steps=values.gradient_accumulation_steps,
        jit_compile=values.xla,
    )


def config_for_objective(values, config: BertConfig) -> BertConfig:
    """A model's configuration with the direction in which the objective has it read.

    Raises:
        ModelingError: The model reads in one direction, and is to fill in words.
    """
    if values.objective in DIRECTIONS:
        return dataclasses.replace(config, attention_direction=DIRECTIONS[values.objective])
    if config.attention_direction in DIRECTIONS.values() and (values.do_train or values.do_eval):
        raise ModelingError(
            f"The model reads in one direction, {config.attention_direction}, and "
            f"--objective={values.objective} wants words filled in from both sides: give "
            f"--objective=ltr or rtl, as it was trained, or another model."
        )
    return config


def pretraining_identity(
    values,
    phases: Sequence[Phase],
    num_warmup_steps: int,
    fingerprints: Sequence[str],
    records: Mapping[str, Any],
    masks: Any,
) -> dict[str, Any]:
    """What makes a run of pre-training the run that it is, see `runs.identity`.

    How many steps its last phase has is no part of it: a run may be trained further.

    Args:
        values: The script's flag values.
        phases: In order.
        num_warmup_steps: Of the whole, within a budget if there is one.
        fingerprints: Of the data of each phase.
        records: How records are made of text, by the names of flags; {} of given ones.
        masks: How masks are made in training, with a string that tells; None for the records' own.
    """
    names = ["objective", "learning_rate", "random_seed", *OPTIMIZATION]
    names += ["initialization", "pack_sequences"]
    of_phases = ("max_seq_length", "max_predictions_per_seq")
    described = [dataclasses.asdict(phase) for phase in phases]
    del described[-1]["num_steps"]
    if not values.phases:
        names += [*of_phases, "train_batch_size"]
        described = []
    return {
        **{name: value for name, value in records.items() if name not in of_phases},
        **{name: values[name].value for name in names},
        "num_warmup_steps": num_warmup_steps,
        "phases": described,
        "init_checkpoint": weights_identity(values.init_checkpoint),
        "input_file": fingerprints if values.input_file else None,
        "corpus_file": None if values.input_file else fingerprints,
        "masking": str(masks) if masks else "that of the records",
    }


def pretraining_judges(values, records: Sequence[Any]) -> dict[str, Any]:
    """What evaluations of pre-training depend on besides, see `runs.fit.fit_run`.

    Args:
        values: The script's flag values.
        records: `RecordsFromText` of each phase.
    """
    held_out = "eval_file" if values.input_file else "eval_corpus_file"
    return {
        held_out: [each.held_out_fingerprint() for each in records],
        "max_eval_steps": values.max_eval_steps,
        "eval_batch_size": values.eval_batch_size if values.max_eval_steps else None,
    }


def training_loop_options(values) -> LoopOptions:
    """When to save, report and evaluate."""
    names = [option.name for option in fields(LoopOptions) if option.name in values]
    return LoopOptions(**{name: values[name].value for name in names})
