"""How large exports are and how fast they answer, one beside the other.

for measured in measure_exports(["teacher/export/1", "student/export/1"]): …
"""

import os
import statistics
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from modeling.checkpoints.files import files_inside, join
from modeling.config import BertConfig

LENGTHS = (32, 128)
"""Pieces of a single text."""
BATCH = (32, 32)
"""Texts of a batch, and pieces of each."""
_CHOICES = 4
_ROUNDS = 7
_SECONDS = 0.3  # of each measurement


class MeasuredExport(NamedTuple):
    """What an export takes on this machine, with TensorFlow's own number of threads.

    Attributes:
        megabytes: Of its folder.
        milliseconds: For a single text of so many pieces: LENGTHS, or the most that they read.
        texts_per_second: In batches of BATCH.
    """

    megabytes: float
    milliseconds: dict[int, float]
    texts_per_second: float


def measure_exports(folders: Sequence[str]) -> list[MeasuredExport]:
    """Measures SavedModels in turn, so that what else the machine does strikes all alike.

    They answer ids of their signature `tokenized`; which ids these are makes no difference. Each
    figure is the median of seven rounds.

    Args:
        folders: Of the versions, as `--do_export` writes them.
    """
    loaded = [_Loaded(folder) for folder in folders]
    longest = min(model.positions for model in loaded)
    shapes = sorted({(1, min(length, longest)) for length in LENGTHS})
    batch = BATCH[0], min(BATCH[1], longest)
    seconds = {shape: [[] for _ in loaded] for shape in (*shapes, batch)}
    for shape, of_models in seconds.items():
        calls = [model.call(*shape) for model in loaded]
        for call in calls:
            call()  # what a first call prepares doesn't count
        for _ in range(_ROUNDS):
            for call, rounds in zip(calls, of_models, strict=True):
                rounds.append(_seconds_of(call))
    medians = {shape: [statistics.median(m) for m in of] for shape, of in seconds.items()}
    return [
        MeasuredExport(
            sum(os.path.getsize(join(model.folder, n)) for n in files_inside(model.folder)) / 1e6,
            {length: 1000 * medians[1, length][number] for _, length in shapes},
            batch[0] / medians[batch][number],
        )
        for number, model in enumerate(loaded)
    ]


def _seconds_of(call: Callable[[], None]) -> float:
    """The mean of as many calls as fit into some time, one at least."""
    start, count = time.perf_counter(), 0
    while not count or time.perf_counter() - start < _SECONDS:
        call()
        count += 1
    return (time.perf_counter() - start) / count


class _Loaded:
    """An export in memory."""

    def __init__(self, folder: str):
        self.folder = folder
        # Signatures live as long as what they were loaded with.
        self.model = tf.saved_model.load(folder)
        self.answer = self.model.signatures["tokenized"]
        config = BertConfig.from_json_file(join(folder, "assets/bert_config.json"))
        self.positions, self.vocab_size = config.max_position_embeddings, config.vocab_size

    def call(self, texts: int, length: int) -> Callable[[], None]:
        """A function that has so many texts answered."""
        _, inputs = self.answer.structured_input_signature
        rank = inputs["input_ids"].shape.rank
        shape = (texts, length) if rank == 2 else (texts, _CHOICES, length)
        ids = np.random.default_rng(0).integers(0, self.vocab_size, shape)
        values = {"input_ids": ids, "input_mask": np.ones(shape), "segment_ids": np.zeros(shape)}
        batch = {name: tf.constant(values[name], spec.dtype) for name, spec in inputs.items()}

        def call() -> None:
            for output in self.answer(**batch).values():
                output.numpy()  # waits for the device

        return call
