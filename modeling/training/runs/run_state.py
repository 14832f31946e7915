"""Checkpoints of a training run, from which it goes on as if it had never stopped.

A checkpoint is what the original release wrote: a TF1 bundle `model.ckpt-STEP` with the weights,
Adam's slots (`<name>/adam_m`, `<name>/adam_v`) and `global_step`, and a text file `checkpoint`
that names the newest. Every tool that reads the original's checkpoints reads these. The position
in the training data lies beside it, in `data-STEP`.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from absl import logging

from modeling import checkpoints
from modeling.checkpoints import tf1, weights_by_name
from modeling.checkpoints.files import join, staged, write_staged_text
from modeling.checkpoints.heads import (
    UNIT_OF_OTHERS,
    change_target_unit,
    is_other_unit,
    reorder_outputs,
)
from modeling.checkpoints.heads import WEIGHTS as OUTPUT_WEIGHTS
from modeling.checkpoints.model_folder import kept_model_files, labels_of_checkpoint
from modeling.errors import DivergedError, ModelingError
from modeling.logs import only_warnings
from modeling.training.engine.distribution import is_chief
from modeling.training.engine.step import TrainStep
from modeling.training.runs import run_folder
from modeling.training.runs.best import ended_with_best
from modeling.training.runs.reporting import Reporter

KEEP = 5  # the original's number of checkpoints kept
# A classifier's own weights; of another shape where it was tuned on another task.
HEAD = ("output_weights", "output_bias", *UNIT_OF_OTHERS)


class RunState:
    """Saves and restores one run.

    Args:
        directory: The run's output folder.
        train_step: Holds model, optimizer and step number.
        keep: How many checkpoints stay; 0 for all.
        vocabulary: Which one the weights belong to, see `checkpoints.describe_vocabulary`.
        watch: Variables by name that are saved too, and keep their start where a checkpoint
            lacks them.
        every: Multiples of these numbers of steps count for `keep`; of others, which a signal or
            minutes left, only the newest and the beginning of the data's stage stay. Without any
            all checkpoints count.
    """

    def __init__(
        self,
        directory: str,
        train_step: TrainStep,
        keep: int = KEEP,
        vocabulary: Mapping[str, Any] | None = None,
        watch: Mapping[str, tf.Variable] | None = None,
        every: Sequence[int] = (),
    ):
        self.directory = directory
        self.train_step = train_step
        self.keep = keep
        self.vocabulary = vocabulary
        self.watch = watch or {}
        self.every = every
        self.saved_step = -1
        self.change_data(None, "", 0)

    def change_data(
        self, iterator, data_id: str, first_step: int, former_data_id: str | None = None
    ) -> None:
        """From `first_step` on, the run takes its examples from another iterator.

        Args:
            iterator: Of the training data; None where it can't be saved (several replicas).
            data_id: Says which data and order that is. A position in other data is not restored:
                it would point into the middle of records.
            first_step: Updates done with other data.
            former_data_id: What an earlier version called the same.
        """
        self.iterator, self.data_id, self.first_step = iterator, data_id, first_step
        self.former_data_id = former_data_id

    def _variables(self) -> dict[str, tf.Variable]:
        weights = {
            name: weight.value for name, weight in weights_by_name(self.train_step.model).items()
        }
        slots = self.train_step.optimizer.slots()
        return weights | slots | {"global_step": self.train_step.global_step}

    def _optional_variables(self) -> dict[str, tf.Variable]:
        """Those that keep their start where a checkpoint lacks them."""
        loss_scale = self.train_step.loss_scale
        means = self.train_step.optimizer.averaging_state()
        return (loss_scale.state() if loss_scale else {}) | means | dict(self.watch)

    def save(self) -> str:
        """Writes a checkpoint of the present step, drops the oldest, returns its prefix.

        Of several workers only the chief writes; all hold the same variables.

        Raises:
            ModelingError: A variable isn't finite: such a checkpoint would be good for nothing.
        """
        step = int(self.train_step.global_step.numpy())
        prefix = join(self.directory, f"model.ckpt-{step}")
        if step == self.saved_step:
            return prefix
        variables = self._variables() | self._optional_variables()
        tensors = {name: variable.numpy() for name, variable in variables.items()}
        self._check_finite(step, tensors)  # on each worker: they go back together
        self.saved_step = step
        if not is_chief():
            return prefix
        with staged(self.directory) as temporary:
            if self.iterator is not None:
                position = tf.train.Checkpoint(iterator=self.iterator)
                with only_warnings():
                    position.write(join(temporary, f"data-{step}"))
                write_staged_text(join(temporary, f"data-{step}.id"), self.data_id)
            checkpoints.stage_vocabulary(join(temporary, f"model.ckpt-{step}"), self.vocabulary)
            tf1.write_bundle(join(temporary, f"model.ckpt-{step}"), tensors)
        self.name_checkpoints()
        return prefix

    def name_checkpoints(self) -> None:
        """Says in the file `checkpoint` which there are, and drops those that aren't to stay."""
        steps = run_folder.run_checkpoint_steps(self.directory)
        counting = [s for s in steps if not self.every or any(s % n == 0 for n in self.every)]
        staying = steps
        if self.keep:
            # A stage's beginning counts as well: its data have a place to begin again there.
            begun = [self.first_step] if self.every and self.first_step in steps else []
            staying = sorted({*counting[-self.keep :], *begun, steps[-1]})
        kept = [f"model.ckpt-{s}" for s in staying]
        lines = [f'model_checkpoint_path: "{kept[-1]}"']
        lines += [f'all_model_checkpoint_paths: "{name}"' for name in kept]
        with staged(self.directory) as temporary:
            write_staged_text(join(temporary, "checkpoint"), "\n".join(lines) + "\n")
        for old in [s for s in steps if s not in staying]:
            # The index goes first: without it the rest no longer counts as a checkpoint.
            index = f"model.ckpt-{old}.index"
            tf.io.gfile.remove(join(self.directory, index))
            for name in tf.io.gfile.listdir(self.directory):
                if name.startswith((f"model.ckpt-{old}.", f"data-{old}.")):
                    tf.io.gfile.remove(join(self.directory, name))

    def _check_finite(self, step: int, tensors: Mapping[str, np.ndarray]) -> None:
        # The update that spoils the weights comes after a loss that was still finite.
        bad = [name for name, tensor in tensors.items() if not np.isfinite(tensor).all()]
        if bad:
            raise DivergedError(
                f"After step {step} {len(bad)} variables are not finite, {bad[0]} among them, so "
                f"nothing is saved. {self.last_good} Lower the learning rate or lengthen the "
                f"warm-up.",
                step,
            )

    @property
    def last_good(self) -> str:
        """A sentence on the checkpoint that is left of a run whose weights are spoilt."""
        if self.saved_step < 0:
            return f"No checkpoint was written to {self.directory} yet."
        return f"The last good checkpoint, step {self.saved_step}, is kept in {self.directory}."

    def restore(self, prefix: str) -> int:
        """Puts the run back to where `prefix` was written; returns the step.

        Raises:
            ModelingError: The checkpoint doesn't fit the model.
        """
        stored = tf1.read_bundle(prefix)
        variables = self._variables()
        for name in UNIT_OF_OTHERS.keys() & variables.keys() - stored.keys():
            stored[name] = np.full(variables[name].shape, UNIT_OF_OTHERS[name], np.float32)
        for name, variable in variables.items():
            if name not in stored or stored[name].shape != tuple(variable.shape):
                instead = f"shape {stored[name].shape}" if name in stored else "no such tensor"
                raise ModelingError(
                    f"The training checkpoint {prefix} doesn't fit this run: for {name} the run "
                    f"has shape {tuple(variable.shape)}, the checkpoint has {instead}. Choose an "
                    f"empty --output_dir, or the configuration, --optimizer and --freeze_layers "
                    f"that it was made with; to start from its weights only, pass it as "
                    f"--init_checkpoint."
                )
        variables |= {n: v for n, v in self._optional_variables().items() if n in stored}
        for name, variable in variables.items():
            variable.assign(np.asarray(stored[name]))
        step = int(stored["global_step"])
        self._restore_position(step)
        self.saved_step = step
        return step

    def _restore_position(self, step: int) -> None:
        if self.iterator is None or step == self.first_step:
            return
        prefix = join(self.directory, f"data-{step}")
        problem = ""
        try:
            with tf.io.gfile.GFile(f"{prefix}.id", "r") as file:
                same = file.read() in (self.data_id, self.former_data_id)
            if same:
                tf.train.Checkpoint(iterator=self.iterator).read(prefix).assert_consumed()
            else:
                problem = "it belongs to other data, or to another order of it"
        except (*tf1.READ_ERRORS, AssertionError) as error:
            problem = " ".join(str(error).split())[:300]
        if problem:
            logging.warning(
                "The position in the training data (%s) can't be restored: %s. The run goes on "
                "from the beginning of the data.",
                prefix,
                problem,
            )


def start_or_resume(state: RunState, reporter: Reporter, init_checkpoint: str | None) -> None:
    """Goes on from the output folder if it holds a checkpoint, else loads `init_checkpoint`.

    The first line it logs says which of the two it was and why: the original's users kept being
    surprised by the output folder winning. A classification head in `init_checkpoint` for another
    number of classes is left out. One of numbers answers as before, but is then in the unit that
    the model was made with, that of the targets to come; unless these are clearly of another unit.
    """
    newest = run_folder.latest_run_checkpoint(state.directory)
    if newest:
        step = state.restore(newest)
        if is_chief():
            run_folder.set_damaged_run_aside(state.directory, step)
        reporter.resume(step)
        ignored = f"; --init_checkpoint={init_checkpoint} is not read" if init_checkpoint else ""
        logging.info(
            "Start: from %s, step %d, because --output_dir holds a checkpoint%s.",
            newest,
            step,
            ignored,
        )
        return
    reporter.resume(0)
    if not init_checkpoint:
        logging.info("Start: random weights; no checkpoint in --output_dir, no --init_checkpoint.")
        return
    logging.info("Start: weights of %s; --output_dir holds no checkpoint yet.", init_checkpoint)
    model = state.train_step.model
    contents = checkpoints.open_contents(init_checkpoint)
    other_head = [
        name
        for name, weight in checkpoints.weights_by_name(model).items()
        if name in HEAD and contents.shapes.get(name, weight.shape) != tuple(weight.shape)
    ]
    unit = getattr(model, "target_mean", None), getattr(model, "target_scale", None)
    unit = [variable.numpy() for variable in unit if variable is not None]
    if other_head:
        logging.info("Its classification head is for other classes: a new one is trained.")
    elif unit and is_other_unit(contents, *unit):
        other_head = True
        logging.warning(
            "The numbers that its head answers and those of the training file are of another size"
            " or place: a new head is trained."
        )
    skip = HEAD if other_head else ()
    _load(model, init_checkpoint, required=checkpoints.ENCODER, skip=skip)
    if unit:
        change_target_unit(model, *unit)


def _load(model, path: str, **options: Any) -> None:
    """`checkpoints.load`; outputs that mean the model's labels come into the order of these."""
    report = checkpoints.load(model, path, **options)
    config = getattr(model, "config", None)
    labels = config.labels if config else None
    if not labels or OUTPUT_WEIGHTS not in report.loaded:
        return
    known = labels_of_checkpoint(path, config.head)
    if reorder_outputs(model, known):
        logging.info("The head in %s has the task's labels in another order: put in this.", path)
    elif known and [*map(str.casefold, known)] != [*map(str.casefold, labels)]:
        logging.warning(
            "The head in %s answers %s: taken for the task's labels %s, in this order.",
            path,
            ", ".join(known[:10]),
            ", ".join(labels[:10]),
        )


def check_weights(directory: str, init_checkpoint: str | None) -> None:
    """Refuses to use a model that there isn't, in an output folder or given besides."""
    here = ended_with_best(directory) or run_folder.latest_run_checkpoint(directory, to_train=False)
    if not here and not init_checkpoint:
        raise ModelingError(
            f"There are no weights to evaluate: {directory} holds no checkpoint and "
            f"--init_checkpoint is not given. Train with --do_train, or give --init_checkpoint."
        )


def load_pretrained_run(model, directory: str, init_checkpoint: str | None) -> int:
    """`load_trained_run` for pre-training: the output folder's weights, read as in training.

    Raises:
        ModelingError: There are none, or the model reads in another direction than they do.
    """
    own = kept_model_files(directory) if run_folder.latest_run_checkpoint(directory) else None
    trained, wanted = own and own.config.attention_direction, model.config.attention_direction
    if trained and trained != wanted:
        raise ModelingError(
            f"The weights were trained to read {trained}, and --objective and --bert_config_file "
            f"have them read {wanted}. Give --objective as it was in training, and leave "
            f"--bert_config_file out."
        )
    return load_trained_run(model, directory, init_checkpoint, prefer_directory=True)


def load_trained_run(
    model, directory: str, init_checkpoint: str | None, prefer_directory: bool = False
) -> int:
    """Loads a trained model to evaluate, predict or export; returns its step.

    `init_checkpoint` wins if it is given and holds every weight of the model, its task's head
    too; otherwise the newest checkpoint of the output folder is taken, or the best one where the
    run ended with that. (The original always took the newest, and evaluated random weights where
    there was none.)

    Args:
        model, directory, init_checkpoint: As in training.
        prefer_directory: The newest checkpoint of the folder wins in any case. For pre-training,
            where a released checkpoint has every weight although it isn't what was trained.
    """
    check_weights(directory, init_checkpoint)
    newest = run_folder.latest_run_checkpoint(directory, to_train=False)
    unused = getattr(model, "unused", ())
    weights = {n for n in checkpoints.weights_by_name(model) if not n.startswith(unused)}

    def is_complete() -> bool:
        stored = checkpoints.open_contents(init_checkpoint).shapes.keys()
        return weights <= stored | UNIT_OF_OTHERS.keys()

    if init_checkpoint and (not newest or (not prefer_directory and is_complete())):
        logging.info("Weights: %s, because --init_checkpoint is given.", init_checkpoint)
        _load(model, init_checkpoint, required=("",))
        # A run's checkpoint tells its step by its name.
        of_run = re.search(r"model\.ckpt-(\d+)$", checkpoints.open_contents(init_checkpoint).path)
        return int(of_run[1]) if of_run else 0
    best = ended_with_best(directory)
    chosen = best or newest
    logging.info(
        "Weights: %s, with which the run in --output_dir ended%s."
        if best
        else "Weights: %s, the newest checkpoint in --output_dir%s.",
        chosen,
        "; --init_checkpoint is not read" if init_checkpoint else "",
    )
    _load(model, chosen, required=("",))
    return int(chosen.rpartition("-")[2])
