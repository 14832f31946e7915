"""The one driver of fine-tuning: trains, evaluates on the way, searches, predicts, exports.

    with session(values, …) as summary:
        fine_tune(task, fine_tuning_settings(values), summary)

What a task has to say is in `training.task`.
"""

import dataclasses
import functools
import time
from collections.abc import Callable, Mapping
from typing import Any

import keras
import tensorflow as tf
from absl import logging

from modeling import checkpoints
from modeling.checkpoints.files import join
from modeling.checkpoints.model_folder import keep_model_files
from modeling.checkpoints.vocabularies import TextFolding
from modeling.errors import ModelingError
from modeling.logs import activity
from modeling.training.distillation.opening import open_teaching
from modeling.training.distillation.teaching import TeacherModel, Teaching
from modeling.training.engine import distribution, precision
from modeling.training.engine.setup import OPTIMIZATION, make_train_step
from modeling.training.reading_flags import keep_reading_flags
from modeling.training.reports.facts import JudgedSplit
from modeling.training.reports.writing import write_reports
from modeling.training.runs import run_folder, run_state
from modeling.training.runs.best import has_best, load_best
from modeling.training.runs.fit import RunStage, fit_run
from modeling.training.runs.identity import weights_identity
from modeling.training.runs.reporting import Reporter, reported_evaluation
from modeling.training.runs.summary import RunSummary
from modeling.training.search import FinishedTrial, Search, Trial
from modeling.training.settings import FineTuningSettings
from modeling.training.task import Predict, Task, TaskEvaluation, TrainingTaskSplit


def fine_tune(
    task: Task,
    settings: FineTuningSettings,
    summary: RunSummary,
    open_teacher: Callable[[str], TeacherModel] | None = None,
) -> None:
    """Does with a task what the settings say; call it in the strategy's scope.

    Args:
        task: See `training.task`.
        settings: What to do.
        summary: Of the session.
        open_teacher: From a path of `settings.teaching` to the model there.

    Raises:
        ModelingError: The folder is of another run, training has diverged, or there are no
            weights to evaluate.
    """
    summary.entry["result_names"] = list(task.result_names)
    train = _read(task, "train") if settings.do_train else []
    dev = _read(task, "dev") if settings.evaluating else []
    test = _read(task, "test") if settings.do_predict else []
    teaching = open_teaching(task, settings, train, open_teacher) if train else None
    driver = _Driver(task, settings, train, dev, teaching)
    if settings.do_train:
        driver.keep_model_files(write=False)
    if settings.searching:
        driver.search()
    model = task.make_model()
    judge = driver.judge(model) if dev else None
    before = run_folder.latest_run_step(settings.output_dir) if train else 0
    if train and not settings.searching:
        step = driver.train(model, settings.trials[0], settings.output_dir, judge, summary)
    else:
        step = _load_weights(settings, model)
        summary.attach(model=model)

    judged = []
    for split in dev if settings.do_eval else []:
        if split is not dev[0] or not judge.results:
            judge.judge(split)
        results = {**judge.results, "global_step": step, "loss": judge.results["eval_loss"]}
        report = task.write_evaluation(split, judge.answers, results, split is dev[0])
        if report:
            judged.append(JudgedSplit(split.name, split.fingerprint, report, judge.seconds))
    predict = judge.predict if judge else task.predictor(model)
    batches = functools.partial(driver.batches, batch_size=settings.predict_batch_size)
    for split in test:
        start = time.perf_counter()
        report = task.write_predictions(split, predict(split, batches), step, split is test[0])
        if report:
            seconds = time.perf_counter() - start
            judged.append(JudgedSplit(split.name, split.fingerprint, report, seconds))
    write_reports(settings.output_dir, judged, summary, step)
    if settings.do_export and distribution.is_chief():
        logging.info("Wrote the SavedModel %s", task.export(model))
    if train and distribution.is_chief() and step != before:
        _name_what_is_older(settings, bool(judged))


def _name_what_is_older(settings: FineTuningSettings, judged: bool) -> None:
    """Says what in the folder tells of weights from before this training."""
    made = {"model_card.md": judged, "export": settings.do_export}
    older = [
        name
        for name, anew in made.items()
        if not anew and tf.io.gfile.exists(join(settings.output_dir, name))
    ]
    if older:
        logging.warning(
            "%s in %s: of the weights before this training. --do_eval and --do_export make card "
            "and export anew.",
            " and ".join(older),
            settings.output_dir,
        )


def _read(task: Task, purpose: str) -> list[TrainingTaskSplit]:
    with activity(f"Reading and tokenising the {purpose} examples"):
        return task.read(purpose)


class _Judge:
    """Evaluates a model as it is on the dev set; remembers answers, results and time."""

    def __init__(self, task: Task, predict: Predict, batches, split: TrainingTaskSplit):
        self.task = task
        self.predict = predict
        self.batches = batches
        self.split = split
        self.answers: Any = None
        self.seconds = 0.0
        self.evaluation = TaskEvaluation({})

    @property
    def results(self) -> dict[str, float]:
        return dict(self.evaluation.results)

    def judge(self, split: TrainingTaskSplit) -> dict[str, float]:
        start = time.perf_counter()
        self.answers = self.predict(split, self.batches)
        self.evaluation = self.task.evaluate(split, self.answers)
        self.seconds = time.perf_counter() - start
        if self.evaluation.constant:
            logging.warning(
                "%s: the model answers %s to every example, whatever the text says. Train longer, "
                "or with another learning rate.",
                split.name,
                self.evaluation.constant,
            )
        return self.results

    def __call__(self, step: int) -> dict[str, float]:
        return self.judge(self.split)


class _Driver:
    """What the runs of one command have in common."""

    def __init__(
        self,
        task: Task,
        settings: FineTuningSettings,
        train: list[TrainingTaskSplit],
        dev: list[TrainingTaskSplit],
        teaching: Teaching | None,
    ):
        self.task = task
        self.teaching = teaching
        self.settings = settings
        self.train_splits = train
        self.dev_splits = dev
        replicas = tf.distribute.get_strategy().num_replicas_in_sync
        self.shape = {
            "fixed_shapes": settings.fixed_shapes,
            "multiple": replicas * settings.optimization.accumulation_steps,
        }

    def batches(
        self, split: TrainingTaskSplit, batch_size: int, seed: int | None = None
    ) -> tf.data.Dataset:
        """This process's batches."""
        share = distribution.share_of_worker(batch_size)
        return split.batches(
            batch_size, seed, num_parts=share.num_parts, parts=share.parts, **self.shape
        )

    def training_batches(
        self, split: TrainingTaskSplit, batch_size: int, seed: int
    ) -> tf.data.Dataset:
        """Endless ones, with the teachers' answers if there are teachers."""
        batches = self.batches(split, batch_size, seed)
        return self.teaching.taught(split, batches) if self.teaching else batches

    def judge(self, model: keras.Model) -> _Judge:
        batches = functools.partial(self.batches, batch_size=self.settings.eval_batch_size)
        return _Judge(self.task, self.task.predictor(model), batches, self.dev_splits[0])

    @functools.cached_property
    def identity(self) -> dict[str, Any]:
        """What every run of this command depends on."""
        optimization = dataclasses.asdict(self.settings.optimization)
        return {
            **self.task.identity,
            **(self.teaching.identity if self.teaching else {"teacher": []}),
            "train_file": [split.fingerprint for split in self.train_splits],
            "init_checkpoint": weights_identity(self.settings.init_checkpoint),
            "warmup_proportion": self.settings.warmup_proportion,
            **{name: optimization[name] for name in OPTIMIZATION},
        }

    @property
    def judging(self) -> Mapping[str, Any]:
        """What evaluations depend on besides weights and data, by the names of the flags."""
        return getattr(self.task, "judging", {})

    @functools.cached_property
    def vocabulary(self) -> Mapping[str, Any] | None:
        """Which one the weights will belong to."""
        path = self.settings.vocab_file
        return checkpoints.describe_vocabulary(path) if path else None

    def keep_model_files(self, write: bool) -> None:
        """Puts what weights need besides into the run's folder, or looks if that fits."""
        settings = self.settings
        folding = TextFolding(settings.do_lower_case, settings.strip_accents)
        model_files = self.task.config, settings.vocab_file, folding
        keep_model_files(settings.output_dir, *model_files, write)

    def _begin(self, trains: bool) -> None:
        """What changes in the output folder once a run stands."""
        folder, chief = self.settings.output_dir, distribution.is_chief()
        self.keep_model_files(write=chief)
        if not chief:
            return
        keep_reading_flags(folder, self.settings.reading)
        run_folder.forget_run(folder)  # that of a search has its trials' folders besides
        if trains:
            run_folder.remove_tuned(folder)

    # ---- One run ----

    def stages(self, trial: Trial) -> list[RunStage]:
        """What a run trains on, part after part."""
        stages, last_step = [], 0
        for number, split in enumerate(self.train_splits):
            per_epoch = split.steps_per_epoch(trial.batch_size, **self.shape)
            epochs = trial.num_epochs if split.epochs is None else split.epochs
            last_step += self.settings.num_train_steps or int(per_epoch * epochs)
            if last_step < 1:
                raise ModelingError(
                    f"{split.name}: {len(split)} rows in batches of {trial.batch_size}, for "
                    f"{epochs:g} passes, make less than one training step. Raise "
                    f"--num_train_epochs, lower --train_batch_size, or give --num_train_steps."
                )
            seed = trial.seed + number
            stages.append(
                RunStage(
                    last_step,
                    functools.partial(self.training_batches, split, trial.batch_size, seed),
                    f"{split.name}: {len(split)} rows, content {split.fingerprint}, "
                    f"batch {trial.batch_size}, seed {seed}",
                    round(len(split) / split.steps_per_epoch(trial.batch_size, **self.shape)),
                    split.describe,
                )
            )
        return stages

    def train(
        self,
        model: keras.Model,
        trial: Trial,
        folder: str,
        judge: _Judge | None,
        summary: RunSummary | None = None,
    ) -> int:
        """Fine-tunes from where the folder or the initial checkpoint stands.

        Returns:
            The step of the weights that the model then has: the last, or the best.
        """
        stages = self.stages(trial)
        num_train_steps = stages[-1].last_step
        settings = dataclasses.replace(
            self.settings.optimization,
            learning_rate=trial.learning_rate,
            num_train_steps=num_train_steps,
            num_warmup_steps=int(num_train_steps * self.settings.warmup_proportion),
            seed=trial.seed,
        )
        identity = self.identity | {
            "learning_rate": trial.learning_rate,
            "train_batch_size": trial.batch_size,
            "random_seed": trial.seed,
            "steps_before_files": [stage.last_step for stage in stages[:-1]],
        }
        reporter = Reporter(folder, num_train_steps, stages[0].batch_size)
        evaluate = reported_evaluation(judge, reporter, "dev set") if judge else None
        scores = [name for name in self.task.result_names if name != "eval_loss"]
        panels = {"Loss": ["loss", "eval_loss"], "Training": ["accuracy"], "Dev set": scores}
        losses = self.task.losses
        if self.teaching:
            losses = self.teaching.losses(losses, model)
        step = fit_run(
            make_train_step(model, losses, settings),
            stages,
            folder,
            self.settings.init_checkpoint,
            reporter,
            self.settings.loop,
            evaluate,
            summary,
            result_names=lambda: self.task.result_names if judge else (),
            identity=identity,
            judged_by={"dev_file": judge.split.fingerprint, **self.judging} if judge else None,
            vocabulary=self.vocabulary,
            begin=self._begin,
        )
        if evaluate:
            evaluate(step)
        reporter.plot("training.png", panels)
        return step

    # ---- Several ----

    def search(self) -> None:
        """The paper's search; leaves the best weights in best/ of the output folder.

        Raises:
            ModelingError: The folder has weights of a run of its own, which would stand for it.
        """
        settings = self.settings
        own = run_folder.latest_run_checkpoint(settings.output_dir)
        if own:
            raise ModelingError(
                f"{settings.output_dir} holds a run that is none of a search ({own}), and its "
                f"weights would be taken for the best ones. Give another --output_dir, or "
                f"--overwrite_output_dir to search in this one."
            )
        identity = self.identity | {
            "dev_file": [split.fingerprint for split in self.dev_splits],
            **self.judging,
            "num_train_steps": settings.num_train_steps,
            # Whether a run's weights are its last or its best ones, and of which steps.
            "eval_steps": settings.loop.eval_steps if settings.loop.best_metric else 0,
            "early_stopping_patience": settings.loop.early_stopping_patience,
        }
        metric = settings.loop.best_metric or self.task.result_names[0]
        search = Search(settings.output_dir, metric, identity, self.vocabulary)
        search.run(settings.trials, self._try)

    def _try(self, trial: Trial, folder: str) -> FinishedTrial:
        precision.clear_session_keeping_precision()
        keras.utils.set_random_seed(trial.seed)
        run_folder.prepare_run_folder(folder)
        model = self.task.make_model()
        judge = self.judge(model)
        step = self.train(model, trial, folder, judge)
        weights = checkpoints.weights_by_name(model)
        tensors = {name: weight.value.numpy() for name, weight in weights.items()}
        return FinishedTrial(judge.results, step, bool(judge.evaluation.constant), tensors)


def _load_weights(settings: FineTuningSettings, model: keras.Model) -> int:
    """Loads what was trained before into a model; returns its step.

    The best weights after a search (just now, or what the output folder is of) and where
    --best_metric is given; otherwise see `run_state.load_trained_run`.
    """
    folder, initial = settings.output_dir, settings.init_checkpoint
    # A search leaves no training checkpoint in the output folder itself.
    searched = not run_folder.latest_run_checkpoint(folder) and has_best(folder) and not initial
    if settings.searching or settings.loop.best_metric or searched:
        return load_best(model, folder)
    return run_state.load_trained_run(model, folder, initial)
