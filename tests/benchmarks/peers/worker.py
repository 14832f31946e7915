"""What every process that is timed has in common: it answers requests over pipes.

A request is a line of JSON on standard input and the answer a line on standard output:

    {"do": "about"}                                            → text
    {"do": "answers", "engine": NAME, "case": NAME}            → probabilities, a list per batch
    {"do": "time", "engine": NAME, "case": NAME, "passes": N}  → mean seconds per call of each pass

Needs NumPy alone, for it runs in every environment.
"""

import argparse
import json
import os
import pathlib
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import numpy as np

ID_NAMES = ("input_ids", "input_mask", "segment_ids")


class Engine(Protocol):
    """One way of computing a model."""

    def prepare(self, case: str, batches: Sequence[dict[str, np.ndarray]]) -> Sequence:
        """What `call` takes, for each batch of ids, int64 [B, T]; outside of what is timed."""

    def call(self, prepared) -> np.ndarray:
        """Probabilities float32 [B, labels]."""


def write_batches(folder: str, case: str, batches: Sequence[Mapping[str, np.ndarray]]) -> None:
    """Writes the ids of a case, a dictionary for each batch, as `read_batches` reads them."""
    arrays = {f"{name}_{i}": batch[name] for i, batch in enumerate(batches) for name in ID_NAMES}
    np.savez(pathlib.Path(folder, f"{case}.npz"), **arrays)


def read_batches(folder: str, case: str) -> list[dict[str, np.ndarray]]:
    """The ids of a case: int64 [B, T] under each of `ID_NAMES`, for each batch."""
    with np.load(pathlib.Path(folder, f"{case}.npz")) as held:
        count = len(held.files) // len(ID_NAMES)
        return [
            {name: held[f"{name}_{i}"].astype(np.int64) for name in ID_NAMES} for i in range(count)
        ]


def write_texts(folder: str, case: str, batches: Sequence[Sequence[str]]) -> None:
    """Writes the texts of a case, a list for each batch, as `read_texts` reads them."""
    content = json.dumps([list(texts) for texts in batches])
    pathlib.Path(folder, f"{case}.texts.json").write_text(content, encoding="utf-8")


def read_texts(folder: str, case: str) -> list[list[str]]:
    """The texts of a case, a list for each batch."""
    return json.loads(pathlib.Path(folder, f"{case}.texts.json").read_text(encoding="utf-8"))


def timed(call: Callable, batches: Sequence, passes: int) -> list[float]:
    """Goes over all batches several times; the mean seconds per call of each pass.

    Batches differ in length, so a number is of all of them.
    """
    means = []
    for _ in range(passes):
        start = time.perf_counter()
        for batch in batches:
            call(batch)
        means.append((time.perf_counter() - start) / len(batches))
    return means


def serve(start: Callable[[], tuple[str, Mapping[str, Engine]]], folder: str) -> None:
    """Answers requests until standard input ends.

    Args:
        start: Gives what to say of this process and its engines by name.
        folder: Holds the cases.
    """
    # Libraries print what they like; answers go where standard output was.
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as answers:
        os.dup2(2, 1)

        def answer(**content) -> None:
            answers.write(json.dumps(content) + "\n")
            answers.flush()

        try:
            about, engines = start()
            prepared = {}
            for line in sys.stdin:
                request = json.loads(line)
                if request["do"] == "about":
                    answer(result=about)
                    continue
                engine, case = engines[request["engine"]], request["case"]
                key = request["engine"], case
                if key not in prepared:
                    prepared[key] = engine.prepare(case, read_batches(folder, case))
                if request["do"] == "answers":
                    answer(result=[engine.call(batch).tolist() for batch in prepared[key]])
                else:
                    answer(result=timed(engine.call, prepared[key], request["passes"]))
        except Exception:
            answer(error=traceback.format_exc())


def arguments(model: str) -> argparse.Namespace:
    """What `serving_speed` starts a worker with; `model` says what --model is."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", help=model)
    parser.add_argument("--cases", help="The folder of the cases.")
    parser.add_argument("--threads", type=int)
    return parser.parse_args()
