"""Speed and memory of our training step against KerasHub, Model Garden and PyTorch.

    python -m tests.benchmarks.training_speed
    python -m tests.benchmarks.training_speed --lengths
    python -m tests.benchmarks.training_speed --curves=curves.tsv

The same shapes and the same work: forward, backward, clipping by the global norm, Adam with
decoupled decay, dropout 0.1; random ids without padding. Each trainer is a process of its own and
all of one precision are timed in turns, so that what slows the machine slows all. The peers are
installed from PyPI into environments of their own, once (PyTorch there is 3 GB of download;
--pip_arguments="--index-url https://download.pytorch.org/whl/cpu --extra-index-url
https://pypi.org/simple" takes the small build). Where one can't be installed or doesn't run, the
notes below the table say why. bfloat16 is what each has: TensorFlow's graph optimizer for KerasHub
and Model Garden, autocast for PyTorch.

--lengths trains on texts of different lengths: padded to 128, to the longest of the batch, and in
our length buckets. --data_dir and --vocab_file take a GLUE task's texts in place of random ones;
masked words need --records, of pre-training, 128 tokens long with 20 predictions: tokens per second
with an instance in each row, and packed, which the peers have nothing like.
--curves measures our time per token by length, batch and layers, and draws it beside the TSV.

On a machine with a GPU all engines train there, and --tasks=base_128 and the others of `GPU_TASKS`
are of its size; --peers=ours_compiled is our step with --xla.

--json keeps all numbers. What it holds already of other tasks stays and is in the tables too, so
that a long comparison can be made in parts; --rounds=0 only prints it.
"""

from modeling import quiet  # noqa: F401  isort: skip

import contextlib
import dataclasses
import datetime
import json
import math
import os
import pathlib
import platform
import re
import sys
import tempfile
from collections.abc import Mapping, Sequence

from absl import app, flags

from data.features import Features
from modeling.training.runs.summary import code_commit
from tests.benchmarks import training_report, training_work
from tests.benchmarks.peers.environment import Process, python_of, use_processors
from tests.benchmarks.peers.training_worker import Shape
from tests.benchmarks.peers.worker import write_batches
from tests.benchmarks.training_report import OURS, TITLES, LengthsResult, Point, Result
from tests.benchmarks.training_work import GPU_TASKS, PACKED, TASKS, Work
from tests.benchmarks.turns import interleaved

FLAGS = flags.FLAGS
DTYPES = ("float32", "bfloat16")
# Seconds between two engines: threads that wait busily have gone to sleep.
PAUSE = 0.2
# How far from that of a guess the loss of a new model may be.
LOSS_TOLERANCE = 0.6
CEILING = "ceiling"


@dataclasses.dataclass(frozen=True)
class Engine:
    """Where a worker's module runs; no environment: in this one."""

    module: str
    environment: str | None = None
    arguments: tuple[str, ...] = ()


ENGINES = {
    OURS: Engine("training_ours"),
    "ours_compiled": Engine("training_ours", arguments=("--compile",)),
    "ours_whole": Engine("training_ours", arguments=("--whole",)),
    "keras_hub": Engine("training_keras_hub", "keras_hub"),
    "model_garden": Engine("training_model_garden", "model_garden"),
    "pytorch": Engine("training_pytorch", "pytorch"),
    "pytorch_compiled": Engine("training_pytorch", "pytorch", ("--compile",)),
}


class NotMeasuredError(RuntimeError):
    """An engine can't take part; the text says why."""


# ---- Processes ----


def pythons() -> dict[str, str | RuntimeError]:
    """Interpreter of each environment that the chosen peers need, or why there is none."""
    found: dict[str, str | RuntimeError] = {}
    for name in (ENGINES[peer].environment for peer in FLAGS.peers):
        if name not in found and name is not None:
            try:
                arguments = FLAGS.pip_arguments.split()
                found[name] = python_of(name, FLAGS.environment, arguments)
            except RuntimeError as error:
                found[name] = error
    return found


def reason(error: Exception) -> str:
    """The line of a traceback or of pip's output that says it."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    wrong = [line for line in lines if line.startswith("ERROR")]
    return (wrong or lines or [type(error).__name__])[-1][:300]


class Trainer:
    """An engine's process with one model.

    Raises:
        NotMeasuredError: It doesn't start, or trains something else than ours.
    """

    def __init__(self, stack, name: str, shape: Shape, dtype: str, folder: str, environments):
        engine, python = ENGINES[name], sys.executable
        if engine.environment is not None:
            python = environments[engine.environment]
            if isinstance(python, RuntimeError):
                raise NotMeasuredError(reason(python))
        command = [python, "-m", f"tests.benchmarks.peers.{engine.module}", *engine.arguments]
        command += [f"--shape={json.dumps(dataclasses.asdict(shape))}", f"--dtype={dtype}"]
        command += [f"--threads={FLAGS.threads}", f"--folder={folder}"]
        self.shape = shape
        self.process = stack.enter_context(Process(name, command, FLAGS.threads))
        try:
            self.program = self.process.ask(do="about")["program"]
        except RuntimeError as error:
            raise NotMeasuredError(reason(error)) from error

    def warm_up(self, workload: str, steps: int, ours: int | None) -> int:
        """Trains the first steps, and checks that it is the same model; gives its parameters.

        Args:
            workload: What to train on.
            steps: How many.
            ours: Our parameters.
        """
        try:
            loss = self.process.ask(do="run", workload=workload, steps=steps)["loss"]
            parameters = self.process.ask(do="about")["parameters"]
        except RuntimeError as error:
            raise NotMeasuredError(reason(error)) from error
        guess = math.log(self.shape.classes)
        if not abs(loss - guess) <= LOSS_TOLERANCE:
            raise NotMeasuredError(f"its loss is {loss:.2f}, that of a guess {guess:.2f}")
        # The pooler is no part of some models of masked words.
        pooler = self.shape.hidden_size * (self.shape.hidden_size + 1)
        if ours is not None and abs(parameters - ours) > (0 if self.shape.labels else pooler):
            raise NotMeasuredError(f"it trains {parameters} numbers, ours {ours}")
        return parameters

    def seconds(self, workload: str, steps: int) -> float:
        """Of a step."""
        return self.process.ask(do="run", workload=workload, steps=steps)["seconds"]

    def memory(self) -> int:
        """The peak since this was last asked, bytes."""
        return self.process.ask(do="memory")


def started(stack, shape, dtype, folder, environments, workloads: Mapping[str, int]):
    """Engine → trainer that has done its first steps, engine → why there is none.

    Args:
        stack: Ends the processes.
        shape, dtype, folder, environments: See `Trainer`.
        workloads: Name → steps to warm up with.
    """
    trainers: dict[str, Trainer] = {}
    missing: dict[str, str] = {}
    ours = None
    for name in (OURS, *FLAGS.peers):
        try:
            trainer = Trainer(stack, name, shape, dtype, folder, environments)
            for workload, steps in able(name, workloads).items():
                parameters = trainer.warm_up(workload, steps, ours)
        except NotMeasuredError as error:
            if name == OURS:
                raise
            missing[name] = str(error)
            progress(f"{TITLES[name]}: {error}")
            continue
        ours = ours or parameters
        trainers[name] = trainer
    return trainers, missing


def able(name: str, workloads: Mapping[str, int]) -> dict[str, int]:
    """Those that an engine can train on."""
    return {w: steps for w, steps in workloads.items() if name == OURS or w != PACKED}


# ---- Measuring ----


def measure_fixed(task: Work, dtype: str, environments) -> Result:
    """Steps of one shape, and the machine's matrix products between them."""
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        write_batches(folder, "fixed", task.random_batches())
        command = [sys.executable, "-m", "tests.benchmarks.peers.matmul_ceiling"]
        command += [f"--dtype={dtype}", f"--threads={FLAGS.threads}"]
        ceiling = stack.enter_context(Process("The ceiling", command, FLAGS.threads))
        calls = {CEILING: lambda: ceiling.ask(do="measure")}
        calls[CEILING]()
        trainers, missing = started(stack, task.shape, dtype, folder, environments, {"fixed": 2})
        memory = {name: [trainer.memory()] for name, trainer in trainers.items()}
        for name, trainer in trainers.items():
            steps = max(1, round(FLAGS.seconds / trainer.seconds("fixed", 1)))
            calls[name] = lambda trainer=trainer, steps=steps: trainer.seconds("fixed", steps)
        found = interleaved(calls, FLAGS.rounds, PAUSE)
        for name, trainer in trainers.items():
            of_steps = trainer.memory()
            memory[name] = [max(memory[name][0], of_steps), of_steps]
    speeds = found.pop(CEILING)
    result = Result(
        *(task.title, dtype, task.batch_size, task.flops, found, speeds, memory, missing),
        facts([trainer.program for trainer in trainers.values()]),
    )
    progress(", ".join([f"{task.title}, {dtype}", *(f"{e} {result.speed(e)}" for e in found)]))
    return result


def measure_lengths(task: Work, dtype: str, environments) -> LengthsResult:
    """Epochs over texts of different lengths; every pass is over all batches."""
    if task.predictions:
        workloads = training_work.record_workloads(FLAGS.records, task)
    else:
        workloads = training_work.length_workloads(read_features(task), task.batch_size)
    lengths = f"{task.title}; {training_work.describe_lengths(workloads)}"
    steps = {padding: len(batches) for padding, batches in workloads.items()}
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        for padding, batches in workloads.items():
            write_batches(folder, padding, batches)
        trainers, missing = started(stack, task.shape, dtype, folder, environments, steps)
        calls = {
            (name, padding): lambda trainer=trainer, padding=padding: trainer.seconds(
                padding, steps[padding]
            )
            for padding in steps
            for name, trainer in trainers.items()
            if padding in able(name, steps)
        }
        found = interleaved(calls, FLAGS.rounds, PAUSE)
        programs = [trainer.program for trainer in trainers.values()]
    units = dict.fromkeys(steps, task.batch_size)
    if task.predictions:
        real = training_work.real_tokens
        units = {padding: real(batches) / len(batches) for padding, batches in workloads.items()}
    seconds: dict[str, dict[str, list[float]]] = {name: {} for name in trainers}
    for (name, padding), measured in found.items():
        seconds[name][padding] = [each / units[padding] for each in measured]
    unit = "tokens" if task.predictions else "examples"
    return LengthsResult(dtype, seconds, lengths, missing, facts(programs), unit)


def read_features(task: Work) -> Features:
    """Texts of the data set, or random ones."""
    if FLAGS.data_dir:
        return training_work.real_features(FLAGS.data_dir, FLAGS.vocab_file, FLAGS.examples)
    return training_work.random_features(FLAGS.examples, task.shape)


def measure_curves(dtype: str) -> list[Point]:
    """Our steps of all points, in turns."""
    points = training_work.curve_points()
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        trainers: dict[Shape, Trainer] = {}
        calls = {}
        for (axis, value), work in points.items():
            workload = f"{axis}-{value}"
            write_batches(folder, workload, work.random_batches())
            if work.shape not in trainers:
                trainers[work.shape] = Trainer(stack, OURS, work.shape, dtype, folder, {})
            trainer = trainers[work.shape]
            trainer.warm_up(workload, 2, None)
            steps = max(1, round(FLAGS.seconds / 2 / trainer.seconds(workload, 1)))
            calls[axis, value] = lambda t=trainer, w=workload, n=steps: t.seconds(w, n)
        found = interleaved(calls, FLAGS.rounds, 0)
    return [
        Point(axis, value, dtype, work.tokens, work.flops, found[axis, value])
        for (axis, value), work in points.items()
    ]


# ---- Report ----


def progress(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def facts(programs: Sequence[str]) -> dict[str, object]:
    """What a result has to be read with."""
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d"),
        "commit": code_commit(),
        "cpu": processor(),
        "threads": FLAGS.threads,
        "rounds": FLAGS.rounds,
        "programs": list(dict.fromkeys(programs)),
    }


def processor() -> str:
    """Its name, where the system tells, and whether it multiplies bfloat16."""
    name = platform.processor() or platform.machine()
    with contextlib.suppress(OSError):
        text = pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8")
        if found := re.search(r"^model name\s*: (.*)$", text, re.MULTILINE):
            name = found[1]
        for flag, title in (("amx_bf16", "AMX BF16"), ("avx512_bf16", "AVX-512 BF16")):
            if flag in text:
                return f"{name} ({title})"
    return name


def read_results(path: str | None) -> dict[str, dict]:
    """What a JSON file of earlier runs holds, by "KIND TASK DTYPE"."""
    if not path or not os.path.exists(path):
        return {}
    return json.loads(pathlib.Path(path).read_text(encoding="utf-8"))


def write_results(path: str | None, content: Mapping) -> None:
    if path:
        text = json.dumps(content, indent=1, ensure_ascii=False)
        pathlib.Path(path).write_text(text + "\n", encoding="utf-8")


def main(_) -> None:
    use_processors(FLAGS.threads)
    tasks = TASKS | GPU_TASKS
    if FLAGS.lengths and not FLAGS.records and any(tasks[n].predictions for n in FLAGS.tasks):
        sys.exit("--lengths of masked words needs --records; or leave them out with --tasks.")
    content = read_results(FLAGS.json)
    if FLAGS.rounds:
        environments = {} if FLAGS.curves else pythons()
        for dtype in FLAGS.dtypes:
            if FLAGS.curves:
                points = [dataclasses.asdict(point) for point in measure_curves(dtype)]
                content[f"curves {dtype}"] = {"points": points, "facts": facts([])}
                write_results(FLAGS.json, content)
                continue
            for name in FLAGS.tasks:
                if FLAGS.lengths:
                    key, measure = f"lengths {name} {dtype}", measure_lengths
                else:
                    key, measure = f"fixed {name} {dtype}", measure_fixed
                content[key] = dataclasses.asdict(measure(tasks[name], dtype, environments))
                write_results(FLAGS.json, content)
    ordered = [f"{name} {dtype}" for dtype in reversed(DTYPES) for name in tasks]
    fixed = [Result(**content[k]) for o in ordered if (k := f"fixed {o}") in content]
    lengths = [LengthsResult(**content[k]) for o in ordered if (k := f"lengths {o}") in content]
    points = [
        Point(**point)
        for dtype in DTYPES
        for point in content.get(f"curves {dtype}", {"points": []})["points"]
    ]
    print(training_report.report(fixed, lengths, points))
    if FLAGS.curves:
        png = os.path.splitext(FLAGS.curves)[0] + ".png"
        training_report.write_curves(points, FLAGS.curves, png)


if __name__ == "__main__":
    peers = [name for name in TITLES if ENGINES[name].environment]
    flags.DEFINE_multi_enum("peers", peers, list(TITLES), "Whom to compare with.")
    flags.DEFINE_multi_enum("tasks", list(TASKS), [*TASKS, *GPU_TASKS], "What to train.")
    flags.DEFINE_multi_enum("dtypes", DTYPES, DTYPES, "Precisions, one after the other.")
    flags.DEFINE_boolean("lengths", False, "Texts of different lengths in place of fixed shapes.")
    flags.DEFINE_string("data_dir", None, "A GLUE task's folder, named as it, for --lengths.")
    flags.DEFINE_string("vocab_file", None, "Vocabulary for --data_dir.")
    flags.DEFINE_string(
        "records", None, "TFRecords of pre-training, for --lengths of masked words."
    )
    flags.DEFINE_integer("examples", 512, "Texts of --lengths.", lower_bound=128)
    flags.DEFINE_string("curves", None, "Measures our curves, into this TSV and a PNG beside it.")
    flags.DEFINE_string("environment", "~/.cache/bert-benchmarks", "Holds the peers' environments.")
    flags.DEFINE_string("pip_arguments", "", "For installing the peers.")
    flags.DEFINE_integer("threads", 2, "Of each trainer, and processors there are.", lower_bound=1)
    flags.DEFINE_integer("rounds", 5, "Timed turns of each trainer; 0 for none.", lower_bound=0)
    flags.DEFINE_float("seconds", 2.0, "Least length of a measurement, about.")
    flags.DEFINE_string("json", None, "Keeps all numbers in this file.")
    app.run(main)
