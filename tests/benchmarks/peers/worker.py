"""What every process that is timed has in common: it answers requests over pipes.

A request is a line of JSON on standard input and the answer a line on standard output. Those of
serving (of training: `training_worker`):

    {"do": "about"}                                            → text
    {"do": "answers", "engine": NAME, "case": NAME}            → probabilities, a list per batch
    {"do": "time", "engine": NAME, "case": NAME, "passes": N}  → mean seconds per call of each pass
    {"do": "clients", "engine": NAME, "case": NAME, "clients": N, "seconds": S}
        → {"seconds": the whole, "latencies": of each answer}

Needs NumPy alone, for it runs in every environment.
"""

import argparse
import concurrent.futures
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
    """Writes the arrays of a case, a dictionary for each batch, as `read_batches` reads them."""
    arrays = {f"{name}_{i}": x for i, batch in enumerate(batches) for name, x in batch.items()}
    np.savez(pathlib.Path(folder, f"{case}.npz"), **arrays)


def read_batches(folder: str, case: str) -> list[dict[str, np.ndarray]]:
    """The arrays of a case, by batch and name, as int64."""
    batches: dict[int, dict[str, np.ndarray]] = {}
    with np.load(pathlib.Path(folder, f"{case}.npz")) as held:
        for key in held.files:
            name, _, number = key.rpartition("_")
            batches.setdefault(int(number), {})[name] = held[key].astype(np.int64)
    return [batches[number] for number in sorted(batches)]


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


def timed_clients(call: Callable, batches: Sequence, clients: int, seconds: float) -> dict:
    """Several clients at once, each of which asks again as soon as it has its answer.

    Returns:
        `seconds` until the last had its answer, and the `latencies` of all answers.
    """
    latencies: list[list[float]] = [[] for _ in range(clients)]
    begun = time.perf_counter()

    def client(number: int) -> None:
        place, now = number * len(batches) // clients, time.perf_counter()
        while now < begun + seconds:
            call(batches[place % len(batches)])
            asked, now = now, time.perf_counter()
            latencies[number].append(now - asked)
            place += 1

    with concurrent.futures.ThreadPoolExecutor(clients) as pool:
        for done in [pool.submit(client, number) for number in range(clients)]:
            done.result()
    whole = time.perf_counter() - begun
    return {"seconds": whole, "latencies": [one for own in latencies for one in own]}


def answer_requests(start: Callable[[], Callable[[dict], object]]) -> None:
    """Answers requests until standard input ends.

    Args:
        start: Prepares; gives the function from a request to what JSON can hold.
    """
    # Libraries print what they like; answers go where standard output was.
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as answers:
        os.dup2(2, 1)

        def answer(**content) -> None:
            answers.write(json.dumps(content) + "\n")
            answers.flush()

        try:
            respond = start()
            for line in sys.stdin:
                answer(result=respond(json.loads(line)))
        except Exception:
            answer(error=traceback.format_exc())


def serve(start: Callable[[], tuple[str, Mapping[str, Engine]]], folder: str) -> None:
    """Answers the requests above until standard input ends.

    Args:
        start: Gives what to say of this process and its engines by name.
        folder: Holds the cases.
    """

    def begin():
        about, engines = start()
        prepared = {}

        def respond(request: dict):
            if request["do"] == "about":
                return about
            engine, case = engines[request["engine"]], request["case"]
            key = request["engine"], case
            if key not in prepared:
                prepared[key] = engine.prepare(case, read_batches(folder, case))
            if request["do"] == "answers":
                return [engine.call(batch).tolist() for batch in prepared[key]]
            if request["do"] == "clients":
                load = request["clients"], request["seconds"]
                return timed_clients(engine.call, prepared[key], *load)
            return timed(engine.call, prepared[key], request["passes"])

        return respond

    answer_requests(begin)


def arguments(model: str) -> argparse.Namespace:
    """What `serving_speed` starts a worker with; `model` says what --model is."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", help=model)
    parser.add_argument("--cases", help="The folder of the cases.")
    parser.add_argument("--threads", type=int)
    return parser.parse_args()
