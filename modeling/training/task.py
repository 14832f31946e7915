"""The contract between a fine-tuning task and the driver that runs it, `training.fine_tuning`.

A task says what is its own: how its data are read, which model learns what, how answers are
judged and written. Whatever is the same for all tasks (training, evaluation on the way, the best
weights, search, resuming, the order of it all) is the driver's. As `data` and `modeling` do not
know each other, a task is put together in its script; "Add a task in an hour" in
modeling/README.md does that with an example.

The driver reads all splits that the job needs before anything else. Then, for the only run or for
each of a search: `make_model`, `predictor`, training with `losses`, and on the way and in the end
`evaluate`. What is written comes last, from the weights that are kept.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import keras
import numpy as np
import tensorflow as tf

from modeling.config import BertConfig
from modeling.losses import Losses
from modeling.training.reports.contents import TaskReport


class TrainingTaskSplit(Protocol):
    """A part of a task's data, tokenised; `data.tasks.splits.TaskSplit` is one.

    Attributes:
        name: "train", "dev", "test" or, of a further one, with more behind it.
        fingerprint: Checksum of all that its batches depend on.
        epochs: Passes of training over it; None for as many as the run asks for.
    """

    name: str
    fingerprint: str
    epochs: float | None

    def __len__(self) -> int: ...

    def batches(
        self,
        batch_size: int,
        seed: int | None = None,
        *,
        fixed_shapes: bool,
        multiple: int,
        num_parts: int,
        parts: Sequence[int],
    ) -> tf.data.Dataset:
        """Batches of every example once; with a seed endless ones, in an order that it decides.

        A batch is a dict of all that the model and the losses take. Besides it holds, for
        `engine.evaluation.ReplicaPredictor` and for messages, `index` int64 [B], the example's
        place in the split, and `is_real_example` float32 [B], 0 for rows that only fill the batch.

        Args:
            batch_size: Examples, over all processes.
            seed: Of the order.
            fixed_shapes: Whether all batches have one shape.
            multiple: What batches are filled up to a multiple of, if their size varies.
            num_parts, parts: Into how many parts a batch is cut, and which of them to return.
        """
        ...

    def steps_per_epoch(self, batch_size: int, fixed_shapes: bool, multiple: int) -> float:
        """Training batches that make one pass."""
        ...

    def places_in(self, other: "TrainingTaskSplit") -> Sequence[np.ndarray]:
        """Where a split of the same texts in other pieces answers what this one does.

        Only asked of tasks whose answers are of words, where `Task.read_with` gave the other one.

        Returns:
            For each example int64 [T, 2]: which example there, and which of its places; −1 for
            none.
        """
        ...

    def describe(self, index: np.ndarray) -> str:
        """Where the examples of a batch come from, for messages: "train.tsv: lines 3, 17"."""
        ...


Batches = Callable[[TrainingTaskSplit], tf.data.Dataset]
"""From a split to its batches, each example once, as the run's devices want them."""
Predict = Callable[[TrainingTaskSplit, Batches], Any]
"""From a split to what the model answers to its examples, in the form that its task chooses.

`evaluate` and then `write_evaluation` get the same answers; a generator would be used up.
"""


class TaskEvaluation(NamedTuple):
    """What a model's answers to a split are worth.

    Attributes:
        results: By name, "eval_" before it: those of `Task.result_names`; empty where the split
            has no gold answers, which only one to predict may lack. --do_eval needs `eval_loss`.
        constant: What the answer to every example is, in words, where it is the same whatever
            the example says, as an unstable run's is; "" where it isn't. It is warned of, and a
            search counts such runs.
    """

    results: Mapping[str, float]
    constant: str = ""


class Task(Protocol):
    """A fine-tuning task.

    Attributes:
        config: The model's configuration, with its head; kept beside the weights.
        losses: What training lowers; may be a property, asked for after `read("train")`.
        result_names: Of the evaluations, the one first that runs are compared by. Whether less of
            it is better its name tells, see `metrics.smaller_metric_is_better`.
        identity: Everything that makes another run of it, by the names of the flags: sizes of the
            model, labels, kinds of heads. The driver adds what it knows itself: fingerprints of
            the training data, initial weights, optimizer, learning rate, batch size and seed.
        judging: What else its evaluations depend on, by the names of the flags: runs that were
            judged otherwise aren't compared. A task may do without.
    """

    config: BertConfig
    losses: Losses
    result_names: Sequence[str]
    identity: Mapping[str, Any]

    def read(self, purpose: str) -> list[TrainingTaskSplit]:
        """The splits for "train", "dev" or "test", the main one first.

        Asked once, and only for what the job needs. Several to train on are trained on one after
        the other.

        Raises:
            ModelingError, DataError: A file is missing, or is at fault.
        """
        ...

    def read_with(self, tokenizer: Any) -> list[TrainingTaskSplit] | None:
        """The splits of `read("train")` in other pieces, for a teacher with another vocabulary.

        Only scripts with the flag --teacher are asked for it.

        Args:
            tokenizer: The teacher's.

        Returns:
            The same examples in the same order; of tags the same words, see
            `TrainingTaskSplit.places_in`. None where what the teacher says of its pieces says
            nothing of the task's.
        """
        ...

    def make_model(self) -> keras.Model:
        """A built model, its weights random; one for each run of a search."""
        ...

    def predictor(self, model: keras.Model) -> Predict:
        """Answers by a model; made once for it, called for every split and as often as wanted.

        Mostly an `engine.evaluation.ReplicaPredictor` of the split's batches.
        """
        ...

    def evaluate(self, split: TrainingTaskSplit, answers: Any) -> TaskEvaluation:
        """Judges answers to a split of `read("dev")`."""
        ...

    def write_evaluation(
        self, split: TrainingTaskSplit, answers: Any, results: Mapping[str, float], first: bool
    ) -> TaskReport | None:
        """Writes results. All workers call it; the chief writes.

        Only scripts with the flag --do_eval are asked for it.

        Args:
            split: One of `read("dev")`.
            answers: To it.
            results: See `TaskEvaluation`; with `global_step` and `loss`.
            first: Whether it is the main one, whose files have the plain names.

        Returns:
            What `model_card.md` and `report.html` are to say; None, as of workers that aren't the
            chief, where there is nothing to be said.
        """
        ...

    def write_predictions(
        self, split: TrainingTaskSplit, answers: Any, step: int, first: bool
    ) -> TaskReport | None:
        """Writes the answers to a split to predict. All workers call it; the chief writes.

        Args:
            split: One of `read("test")`.
            answers: To it.
            step: Of the weights.
            first: See `write_evaluation`.

        Returns:
            See `write_evaluation`; of tasks that have no other evaluation, where the right
            answers are known.
        """
        ...

    def export(self, model: keras.Model) -> str:
        """Writes a SavedModel from raw text to answers; returns its folder.

        Only the chief is asked.
        """
        ...
