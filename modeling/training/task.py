"""The contract between a fine-tuning task and the driver that runs it, `training.fine_tuning`.

A task says what is its own: how its data are read, which model learns what, how answers are
judged and written. Whatever is the same for all tasks (training, evaluation on the way, the best
weights, search, resuming, the order of it all) is the driver's. As `data` and `modeling` do not
know each other, a task is put together in its script; "Add a task in an hour" in
modeling/README.md does that with an example.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import keras
import numpy as np
import tensorflow as tf

from modeling.losses import Losses


class Split(Protocol):
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

    def describe(self, index: np.ndarray) -> str:
        """Where the examples of a batch come from, for messages: "train.tsv: lines 3, 17"."""
        ...


Batches = Callable[[Split], tf.data.Dataset]
"""From a split to its batches, each example once, as the run's devices want them."""
Predict = Callable[[Split, Batches], Any]
"""From a split to what the model answers to its examples, in the form that its task chooses."""


class Evaluation(NamedTuple):
    """What a model's answers to a split are worth.

    Attributes:
        results: By name, "eval_" before it; empty where the split has no gold answers.
        constant: Whether the answer is the same whatever the example, as an unstable run's is.
    """

    results: Mapping[str, float]
    constant: bool = False


class Task(Protocol):
    """A fine-tuning task.

    Attributes:
        losses: What training lowers.
        result_names: Of the evaluations, the one first that runs are compared by.
        identity: Everything besides training data and optimizer that makes another run of it, by
            the names of the flags: sizes of the model, labels, vocabulary, kinds of heads.
    """

    losses: Losses
    result_names: Sequence[str]
    identity: Mapping[str, Any]

    def read(self, purpose: str) -> list[Split]:
        """The splits for "train", "dev" or "test", the main one first.

        Several to train on are trained on one after the other.
        """
        ...

    def make_model(self) -> keras.Model:
        """A built model, its weights random."""
        ...

    def predictor(self, model: keras.Model) -> Predict:
        """Answers by a model; made once for it, called for every split and as often as wanted."""
        ...

    def evaluate(self, split: Split, answers: Any) -> Evaluation:
        """Judges answers to a split."""
        ...

    def write_evaluation(
        self, split: Split, answers: Any, results: Mapping[str, float], first: bool
    ) -> None:
        """Writes results, and what people read. All workers call it; the chief writes.

        Args:
            split: One of `read("dev")`.
            answers: To it.
            results: See `Evaluation`; with `global_step` and `loss`.
            first: Whether it is the main one, whose files have the plain names.
        """
        ...

    def write_predictions(self, split: Split, answers: Any, step: int, first: bool) -> None:
        """Writes the answers to a split to predict. All workers call it; the chief writes.

        Args:
            split: One of `read("test")`.
            answers: To it.
            step: Of the weights.
            first: See `write_evaluation`.
        """
        ...

    def export(self, model: keras.Model) -> str:
        """Writes a SavedModel from raw text to answers; returns its folder."""
        ...
