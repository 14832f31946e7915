"""What a training run shows and leaves behind: status lines, TensorBoard, metrics file, plot.

Between the status lines an activity tells how far it is, see `modeling.logs`. Of several workers
only the chief shows and writes anything.
"""

import collections
import json
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

import tensorflow as tf
from absl import logging

from modeling.checkpoints.files import join, staged, write_staged_text
from modeling.errors import ModelingError
from modeling.logs import Activity, begin_activity, duration_text, end_activity
from modeling.metrics import metric_text
from modeling.training.engine.distribution import is_chief
from modeling.training.runs import charts

METRICS_FILE = "metrics.jsonl"
# Written to the files, but left out of the status line or placed by hand in it.
NOT_LISTED = (
    "learning_rate",
    "gradient_norm",
    "examples_per_second",
    "tokens_per_second",
    "padding_share",
    "flops_per_second",
    "flops_utilisation",
    "loss_scale",
    "skipped_updates",
)


def _parsed(line: bytes) -> dict | None:
    """A line of the metrics file; None for what a process killed while writing left of one."""
    try:
        parsed = json.loads(line)
        kind, step = parsed.pop("kind"), parsed.pop("step")
        sound = isinstance(kind, str) and isinstance(step, int)
        sound = sound and all(isinstance(v, (int, float, type(None))) for v in parsed.values())
        return {"kind": kind, "step": step, **parsed} if sound else None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def read_metrics_file(directory: str) -> list[dict]:
    """What a run has reported so far: of each line its "kind", its "step" and its values.

    What can't be read is left out, with a warning.
    """
    path = join(directory, METRICS_FILE)
    if not tf.io.gfile.exists(path):
        return []
    with tf.io.gfile.GFile(path, "rb") as file:
        written = file.read().splitlines()
    lines = [line for line in map(_parsed, written) if line]
    if len(lines) < len(written):
        logging.warning(
            "%d of the %d lines of %s can't be read. They are left out: curves and the best "
            "result so far don't know of them.",
            len(written) - len(lines),
            len(written),
            path,
        )
    return lines


def _weighted_mean(pairs: Sequence[tuple[float, float]]) -> float:
    """Mean over (total, weight) pairs, in float64; 0 if there is no weight."""
    weight = math.fsum(w for _, w in pairs)
    return math.fsum(t for t, _ in pairs) / weight if weight else 0.0


def _finite_mean(pairs: Sequence[tuple[float, float]]) -> float | None:
    """`_weighted_mean` without steps whose value overflowed, as where float16 skips the update.

    None if no step is left.
    """
    finite = [(total, weight) for total, weight in pairs if math.isfinite(total)]
    return _weighted_mean(finite) if finite else None


class _Pace:
    """How long the rest of a run takes.

    Steps go on as in the later half of what this session has done; what came between steps,
    evaluations and checkpoints, as in all of it, since there are few of them.
    """

    def __init__(self):
        self._points: collections.deque[tuple[float, float]] = collections.deque()
        self._first = self._paused = 0.0

    def pause(self, seconds: float) -> None:
        """So long there were no steps."""
        if self._points:
            self._paused += seconds

    def seconds_left(self, done: float, total: float) -> float | None:
        """For so much of the work; None before there is something to judge by."""
        now = done, time.perf_counter() - self._paused
        points = self._points
        if not points:
            self._first = done
        # A hundred points say it as well as one for each of a million calls.
        if not points or done - points[-1][0] >= (done - self._first) / 100:
            points.append(now)
        while len(points) > 1 and points[1][0] <= (self._first + done) / 2:
            points.popleft()
        work, seconds = (end - begin for end, begin in zip(now, points[0], strict=True))
        if work <= 0:
            return None
        return (total - done) * (seconds / work + self._paused / (done - self._first))


EVAL_ALONE = "eval_alone"  # in place of "eval"


class Reporter:
    """Collects the steps' values and, once per interval, tells them; made in the strategy's scope.

    Args:
        directory: Where `metrics.jsonl` and TensorBoard's event files go.
        num_train_steps: For the ETA. May be changed later.
        batch_size: Examples per step. May be changed later, for the steps that follow.

    Attributes:
        peak_flops: Of all replicas, if it is known, see `utilisation.peak_flops`.
        work: What the steps up to one cost, in any unit, where some cost more than others.
    """

    def __init__(self, directory: str, num_train_steps: int, batch_size: int):
        self.directory = directory
        self.num_train_steps = num_train_steps
        self.batch_size = batch_size
        self.peak_flops: float | None = None
        self.work: Callable[[int], float] = float
        self._chief = is_chief()
        self._training: Activity | None = None
        self._writer = tf.summary.create_file_writer(directory) if self._chief else None
        self._path = join(directory, METRICS_FILE)
        self._lines = read_metrics_file(directory)
        self._step = 0
        self._forget()
        self._whole = _Pace()

    def _forget(self) -> None:
        self._pending: dict[str, list[tuple[float, float]]] = {}
        self._steps = self._examples = 0
        self._since = time.perf_counter()

    def resume(self, step: int) -> None:
        """Forgets what an interrupted run reported after `step`; step 0 forgets everything."""
        self._step = step
        self._forget()
        self._whole = _Pace()
        self._lines = [line for line in self._lines if line["step"] <= step and step > 0]
        if self._chief:
            text = "".join(json.dumps(line) + "\n" for line in self._lines)
            with staged(self.directory) as temporary:
                write_staged_text(join(temporary, METRICS_FILE), text)

    def start_clock(self) -> None:
        """Leaves the time since the last report (evaluation, saving) out of the speed."""
        self._whole.pause(self.seconds)
        self._since = time.perf_counter()

    def add(self, history: Mapping[str, Sequence[tuple[float, float]]]) -> None:
        """Takes what `TrainStep.run` returned, and shows how far the run is."""
        for name, pairs in history.items():
            self._pending.setdefault(name, []).extend(pairs)
        steps = len(history["loss"])
        self._step += steps
        self._steps += steps
        self._examples += steps * self.batch_size
        if self._chief:
            if self._training is None:
                self._training = Activity("Training", "steps", self.num_train_steps)
                begin_activity(self._training)
            loss = _finite_mean(self._pending["loss"])
            text = self._pace(self._step)
            if loss is not None:
                text = f"loss {loss:.4f}  {text}"
            self._training.show(self._step, self.num_train_steps, text)

    def close(self) -> None:
        """Training is no longer shown; steps that come later bring it back.

        To be called when it ends in any way, before anything else is printed.
        """
        if self._training is not None:
            end_activity(self._training)
            self._training = None

    @property
    def seconds(self) -> float:
        """Since the last report."""
        return time.perf_counter() - self._since

    def _pace(self, step: int) -> str:
        seconds = max(self.seconds, 1e-9)
        left = self._whole.seconds_left(self.work(step), self.work(self.num_train_steps))
        if left is None:
            left = (self.num_train_steps - step) * seconds / self._steps
        return (
            f"lr {self._pending['learning_rate'][-1][0]:.3g}  "
            f"{self._examples / seconds:.1f} examples/s  ETA {duration_text(left)}"
        )

    def _values(self) -> dict[str, float]:
        """What the steps since the last report have to tell; see `report`."""
        pending, seconds = self._pending, max(self.seconds, 1e-9)
        values = {
            name: _finite_mean(pairs)
            for name, pairs in pending.items()
            if name not in ("tokens", "flops", "skipped_updates")
        }
        if not any(weight for _, weight in pending.get("gradient_norm", [])):
            values["gradient_norm"] = None  # every update was skipped
        for name in ("learning_rate", "loss_scale"):
            if name in pending:
                values[name] = pending[name][-1][0]
        if "skipped_updates" in pending:
            values["skipped_updates"] = math.fsum(total for total, _ in pending["skipped_updates"])
        values["examples_per_second"] = self._examples / seconds
        real = math.fsum(total for total, _ in pending.get("tokens", []))
        places = math.fsum(weight for _, weight in pending.get("tokens", []))
        if places:
            values["tokens_per_second"] = real / seconds
            values["padding_share"] = 1 - real / places
        if "flops" in pending:
            speed = math.fsum(total for total, _ in pending["flops"]) / seconds
            values["flops_per_second"] = speed
            if self.peak_flops:
                # One that was measured while the machine had other work may be too low.
                self.peak_flops = max(self.peak_flops, speed)
                values["flops_utilisation"] = speed / self.peak_flops
        return {name: value for name, value in values.items() if value is not None}

    def report(self, step: int) -> None:
        """Logs one line on the steps since the last one, and writes it to both files.

        Losses, accuracies and `gradient_norm` are means over the steps; `learning_rate` and
        `loss_scale` those of the last; `skipped_updates` is their number, `tokens_per_second`
        counts real tokens, and `padding_share` is the part of the places that held none.
        `flops_per_second` counts the model's operations, and `flops_utilisation` is its share of
        the peak, where that is known.
        """
        if not self._steps:
            return
        self._step = step
        values = self._values()
        shown = "".join(
            f"{name.replace('masked_lm', 'mlm').replace('next_sentence', 'nsp')} {value:.4f}  "
            for name, value in values.items()
            if name not in NOT_LISTED
        )
        skipped = ""
        if values.get("skipped_updates"):
            skipped = (
                f"  ({values['skipped_updates']:.0f} of {self._steps} updates skipped, "
                f"loss scale {values['loss_scale']:g})"
            )
        used = ""
        if "flops_utilisation" in values:
            used = f"  {100 * values['flops_utilisation']:.0f} % of peak FLOPs"
        if self._chief:
            logging.info(
                "step %d/%d  %s%s%s%s",
                step,
                self.num_train_steps,
                shown,
                self._pace(step),
                used,
                skipped,
            )
        self.write("train", step, values)
        self._forget()

    def write(self, kind: str, step: int, values: Mapping[str, float]) -> None:
        """Adds values of a kind ("train", "eval") to TensorBoard and to the metrics file.

        There a value that isn't finite is null, since JSON has no word for it.

        Raises:
            ModelingError: They can't be written.
        """
        finite = {n: float(v) if math.isfinite(v) else None for n, v in values.items()}
        self._lines.append({"kind": kind, "step": step, **finite})
        if not self._chief:
            return
        try:
            with self._writer.as_default():
                for name, value in values.items():
                    # Infinite where float32 doesn't hold it; a Python number would be an error.
                    tf.summary.scalar(f"{kind}/{name}", tf.constant(value, tf.float64), step=step)
            self._writer.flush()
            with tf.io.gfile.GFile(self._path, "a") as file:
                file.write(json.dumps(self._lines[-1]) + "\n")
        except tf.errors.OpError as error:
            raise ModelingError(
                f"Can't write to {self._path}: {error.message}. Check that the disk isn't full; "
                f"the run goes on from its newest checkpoint."
            ) from error

    def steps(self, kind: str) -> set[int]:
        """Steps that something of a kind was reported for."""
        return {line["step"] for line in self._lines if line["kind"] == kind}

    def curve(self, kind: str, name: str) -> list[tuple[int, float]]:
        """(step, value) pairs of one quantity, in the order of writing; NaN if it wasn't finite."""
        lines = [line for line in self._lines if line["kind"] == kind and name in line]
        return [(r["step"], math.nan if r[name] is None else r[name]) for r in lines]

    def last(self, kind: str) -> dict[str, float | None]:
        """What was written last of a kind, its step among it; empty if nothing was."""
        lines = (line for line in reversed(self._lines) if line["kind"] == kind)
        return {name: value for name, value in next(lines, {}).items() if name != "kind"}

    def plot(self, file_name: str, panels: Mapping[str, Sequence[str]]) -> None:
        """Draws curves against the step, see `charts.curves_png`, and logs where.

        Args:
            file_name: In the run's folder.
            panels: Title → names of quantities.
        """
        if not self._chief:
            return
        path = join(self.directory, file_name)
        curves = {
            title: [(name, self.curve("train", name), self.curve("eval", name)) for name in of]
            for title, of in panels.items()
        }
        charts.curves_png(curves, path)
        logging.info("Curves: %s", path)


def tell_of_earlier_results(directory: str, names: Iterable[str]) -> None:
    """Says which results are of another file than predictions that couldn't be scored.

    Args:
        directory: The run's output folder.
        names: Of the files that the scores would have been in.
    """
    there = [name for name in names if tf.io.gfile.exists(join(directory, name))]
    if there and is_chief():
        logging.warning(
            "%s in %s: of an earlier file, and not of these predictions, which have no labels to "
            "be scored by.",
            ", ".join(there),
            directory,
        )


def write_run_results(directory: str, file_name: str, values: Mapping[str, float]) -> None:
    """Writes `key = value` lines with sorted keys, the original's eval_results.txt; logs them.

    A correlation of constants is "undefined".

    Of several workers only the chief does; to be called in the strategy's scope.
    """
    if not is_chief():
        return
    logging.info("***** %s *****", file_name.removesuffix(".txt"))
    text = ""
    for key in sorted(values):
        line = f"{key} = {metric_text(key, values[key])}"
        logging.info("  %s", line)
        text += f"{line}\n"
    with staged(directory) as temporary:
        write_staged_text(join(temporary, file_name), text)


def reported_evaluation(
    evaluate: Callable[[int], dict[str, float]],
    reporter: Reporter,
    data_name: str,
    training: bool = True,
) -> Callable[[int], dict[str, float]]:
    """An evaluation whose results also go to the log, TensorBoard and the metrics file.

    Args:
        evaluate: From a step to the results of an evaluation of the model as it is.
        reporter: Of the run.
        data_name: Of what is evaluated on, for the log: "held out".
        training: Of evaluations alone, maybe of other data, the run's choices don't go by.
    """

    def evaluate_and_report(step: int) -> dict[str, float]:
        results = evaluate(step)
        reporter.write("eval" if training else EVAL_ALONE, step, results)
        values = "  ".join(f"{name} {metric_text(name, v, 4)}" for name, v in results.items())
        logging.info("%s at step %d: %s", data_name, step, values)
        return results

    return evaluate_and_report
