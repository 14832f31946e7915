"""What a training run shows and leaves behind: status lines, TensorBoard, metrics file, plot."""

import io
import json
import math
import time
from collections.abc import Mapping, Sequence

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import tensorflow as tf
from absl import logging

from modeling.checkpoints.files import join, staged, write_text

METRICS_FILE = "metrics.jsonl"


def _parsed(line: str) -> dict | None:
    """A line of the metrics file; None for what a process killed while writing left of one."""
    try:
        return json.loads(line)
    except ValueError:
        return None


def mean(pairs: Sequence[tuple[float, float]]) -> float:
    """Mean over (total, weight) pairs, in float64; 0 if there is no weight."""
    weight = math.fsum(w for _, w in pairs)
    return math.fsum(t for t, _ in pairs) / weight if weight else 0.0


def duration(seconds: float) -> str:
    """Seconds as h:mm:ss or m:ss."""
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"


class Reporter:
    """Collects the steps' values and, once per interval, tells them.

    Args:
        directory: Where `metrics.jsonl` and TensorBoard's event files go.
        num_train_steps: For the ETA.
        batch_size: Examples per step.
    """

    def __init__(self, directory: str, num_train_steps: int, batch_size: int):
        self.directory = directory
        self.num_train_steps = num_train_steps
        self.batch_size = batch_size
        self._writer = tf.summary.create_file_writer(directory)
        self._path = join(directory, METRICS_FILE)
        self._lines = self._earlier_lines()
        self._pending: dict[str, list[tuple[float, float]]] = {}
        self._steps = 0
        self._since = time.perf_counter()

    def _earlier_lines(self) -> list[dict]:
        if not tf.io.gfile.exists(self._path):
            return []
        with tf.io.gfile.GFile(self._path, "r") as file:
            return [line for line in map(_parsed, file) if line]

    def resume(self, step: int) -> None:
        """Forgets what an interrupted run reported after `step`; step 0 forgets everything."""
        self._lines = [line for line in self._lines if line["step"] <= step and step > 0]
        text = "".join(json.dumps(line) + "\n" for line in self._lines)
        with staged(self.directory) as temporary:
            write_text(join(temporary, METRICS_FILE), text)

    def start_clock(self) -> None:
        """Leaves the time since the last report (evaluation, saving) out of the speed."""
        self._since = time.perf_counter()

    def add(self, history: Mapping[str, Sequence[tuple[float, float]]]) -> None:
        """Takes what `TrainStep.run` returned."""
        for name, pairs in history.items():
            self._pending.setdefault(name, []).extend(pairs)
        self._steps += len(history["loss"])

    @property
    def seconds(self) -> float:
        """Since the last report."""
        return time.perf_counter() - self._since

    def report(self, step: int) -> None:
        """Logs one line on the steps since the last one, and writes it to both files."""
        if not self._steps:
            return
        values = {name: mean(pairs) for name, pairs in self._pending.items()}
        values["learning_rate"] = self._pending["learning_rate"][-1][0]
        steps_per_second = self._steps / max(self.seconds, 1e-9)
        values["examples_per_second"] = steps_per_second * self.batch_size
        left = (self.num_train_steps - step) / steps_per_second
        shown = "  ".join(
            f"{name.replace('masked_lm', 'mlm').replace('next_sentence', 'nsp')} {value:.4f}"
            for name, value in values.items()
            if name not in ("learning_rate", "gradient_norm", "examples_per_second")
        )
        logging.info(
            "step %d/%d  %s  lr %.3g  %.1f examples/s  ETA %s",
            step,
            self.num_train_steps,
            shown,
            values["learning_rate"],
            values["examples_per_second"],
            duration(left),
        )
        self.write("train", step, values)
        self._pending, self._steps = {}, 0
        self._since = time.perf_counter()

    def write(self, kind: str, step: int, values: Mapping[str, float]) -> None:
        """Adds values of a kind ("train", "eval") to TensorBoard and to the metrics file."""
        with self._writer.as_default():
            for name, value in values.items():
                tf.summary.scalar(f"{kind}/{name}", value, step=step)
        self._writer.flush()
        self._lines.append({"kind": kind, "step": step, **values})
        with tf.io.gfile.GFile(self._path, "a") as file:
            file.write(json.dumps(self._lines[-1]) + "\n")

    def curve(self, kind: str, name: str) -> list[tuple[int, float]]:
        """(step, value) pairs of one quantity."""
        return [(r["step"], r[name]) for r in self._lines if r["kind"] == kind and name in r]

    def plot(self, file_name: str, panels: Mapping[str, Sequence[str]]) -> str:
        """Draws curves against the step, one panel per title; returns the PNG's path.

        Args:
            file_name: In the run's folder.
            panels: Title → names of quantities, drawn as lines (training) and dots (held out).
        """
        figure, axes = plt.subplots(
            1, len(panels), figsize=(5.2 * len(panels), 3.8), squeeze=False, layout="constrained"
        )
        for axis, (title, names) in zip(axes[0], panels.items(), strict=True):
            for color, name in zip(plt.cm.tab10.colors, names, strict=False):
                label = name.replace("_", " ")
                train, held_out = self.curve("train", name), self.curve("eval", name)
                if train:
                    axis.plot(*zip(*train, strict=True), color=color, label=label)
                if held_out:
                    axis.plot(
                        *zip(*held_out, strict=True),
                        "o--",
                        color=color,
                        label=f"{label}, held out",
                    )
            axis.set(title=title, xlabel="step")
            axis.grid(alpha=0.3)
            if axis.lines:
                axis.legend(fontsize=8)
        image = io.BytesIO()
        figure.savefig(image, format="png", dpi=130)
        plt.close(figure)
        with (
            staged(self.directory) as temporary,
            tf.io.gfile.GFile(join(temporary, file_name), "wb") as file,
        ):
            file.write(image.getvalue())
        return join(self.directory, file_name)


def write_results(directory: str, file_name: str, values: Mapping[str, float]) -> None:
    """Writes `key = value` lines with sorted keys, the original's eval_results.txt; logs them."""
    logging.info("***** %s *****", file_name.removesuffix(".txt"))
    text = ""
    for key in sorted(values):
        logging.info("  %s = %s", key, values[key])
        text += f"{key} = {values[key]}\n"
    with staged(directory) as temporary:
        write_text(join(temporary, file_name), text)
