"""What every process that trains for `tests.benchmarks.training_speed` has in common.

A worker trains one model in one number format. Batches come from files; the requests are

    {"do": "about"}                                → {"program": text, "parameters": number}
    {"do": "run", "workload": NAME, "steps": N}    → {"seconds": of a step, "loss": of the last}
    {"do": "memory"}                               → bytes, the most since this was last asked

Every step is: forward, cross-entropy, backward, clipping by the global norm, Adam with decoupled
decay for all weights but biases and LayerNorm; dropout everywhere. Needs NumPy alone, for it runs
in every environment.
"""

import argparse
import contextlib
import dataclasses
import json
import pathlib
import re
import time
from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np

from tests.benchmarks.peers.worker import answer_requests, read_batches

LEARNING_RATE = 1e-5
DECAY = 0.01
CLIP_NORM = 1.0
DROPOUT = 0.1
BETAS = (0.9, 0.999)
EPSILON = 1e-6


@dataclasses.dataclass(frozen=True)
class Shape:
    """A BERT model, and which head it is trained with.

    Attributes:
        layers, hidden_size, heads, inner_size: Of the encoder.
        labels: Classes of a text; 0 for masked words in place of classes.
        vocab_size, positions: Rows of the embeddings.
    """

    layers: int
    hidden_size: int
    heads: int
    inner_size: int
    labels: int = 2
    vocab_size: int = 30522
    positions: int = 512

    @property
    def classes(self) -> int:
        """Over which the cross-entropy is."""
        return self.labels or self.vocab_size


class Trainer(Protocol):
    """A model with its optimizer."""

    def parameters(self) -> int:
        """Numbers that are trained."""

    def prepare(self, batches: Sequence[dict[str, np.ndarray]]):
        """What `run` takes batches from, over and over; int64 arrays of `write_batches`."""

    def run(self, prepared, steps: int) -> float:
        """Trains for so many steps and gives the loss of the last."""


def peak_bytes(forget: bool = False) -> int:
    """The most memory that this process has had in RAM, since the last time it was to forget.

    Forgetting needs a Linux that lets a process reset its own peak; elsewhere nothing happens.
    """
    status = pathlib.Path("/proc/self/status").read_text(encoding="utf-8")
    found = re.search(r"^VmHWM:\s*(\d+) kB$", status, re.MULTILINE)
    if forget:
        with contextlib.suppress(OSError):
            pathlib.Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    return int(found[1]) * 1024


def serve_training(start: Callable[[Shape, argparse.Namespace], tuple[str, Trainer]]) -> None:
    """Reads the arguments that `training_speed` gives a worker and answers its requests.

    Args:
        start: Gives from shape and arguments what to say of this process, and the trainer.
    """
    parser = argparse.ArgumentParser()
    parser.add_argument("--shape", help="A Shape's values, as JSON.")
    parser.add_argument("--dtype", help="float32 or bfloat16; the weights are float32 always.")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--folder", help="The workloads' folder.")
    parser.add_argument("--compile", action="store_true", help="Where that is a choice.")
    parser.add_argument("--whole", action="store_true", help="No parts of batches side by side.")
    given = parser.parse_args()

    def begin():
        program, trainer = start(Shape(**json.loads(given.shape)), given)
        prepared = {}

        def respond(request: dict):
            if request["do"] == "about":
                return {"program": program, "parameters": trainer.parameters()}
            if request["do"] == "memory":
                return peak_bytes(forget=True)
            workload, steps = request["workload"], request["steps"]
            if workload not in prepared:
                prepared[workload] = trainer.prepare(read_batches(given.folder, workload))
            begun = time.perf_counter()
            loss = trainer.run(prepared[workload], steps)
            return {"seconds": (time.perf_counter() - begun) / steps, "loss": loss}

        return respond

    answer_requests(begin)
