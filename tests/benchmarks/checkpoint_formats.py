"""Reading and writing checkpoints of each format: seconds, against a plain copy, and peak memory.

    python -m tests.benchmarks.checkpoint_formats --size=large

Files of random weights are made first, those of other libraries without them. Then every case has
a process of its own, in which it runs a few times in turn with a copy of the file that it reads or
writes, the page cache warm. Seconds are the fastest; peak memory is what the first time adds to
what the process had in RAM: a built model for `load` and `save`, nothing but TensorFlow for
`convert`.
"""

from modeling import quiet  # noqa: F401  isort: skip

import ctypes
import gc
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable

import numpy as np
import tabulate
from absl import app, flags, logging

from modeling import checkpoints
from modeling.config import BertConfig
from modeling.models import BertPretrainer
from tests.benchmarks.peers.training_worker import peak_bytes
from tests.modeling.checkpoints.formats.every_format import FORMATS, write_in_formats
from tests.reference import numpy_bert

FLAGS = flags.FLAGS
VOCAB_SIZE = 30522


def extra_memory(function: Callable[[], object]) -> int:
    """Bytes that a call adds at its peak to what this process has in RAM, mapped files included."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)  # else it may find room that earlier calls have left
    peak_bytes(forget=True)
    before = peak_bytes()
    function()
    return peak_bytes() - before


def seconds(function: Callable[[], object]) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def make_files(folder: pathlib.Path, config: BertConfig) -> None:
    """Folders of all `FORMATS`."""
    rng = np.random.default_rng(0)
    shapes = numpy_bert.variable_shapes(vars(config))
    weights = {name: rng.random(shape, np.float32) - 0.5 for name, shape in shapes.items()}
    write_in_formats(folder, weights, config, FORMATS)


def cases(folder: pathlib.Path, case: str) -> tuple[Callable[[], object], pathlib.Path]:
    """What a case does, and the folder that it reads or, if it writes one, that."""
    kind, source, target = case.split("|")
    written = folder / "written"
    if kind == "convert":
        return lambda: checkpoints.convert(folder / source, written, target), written
    config = checkpoints.config_of_checkpoint(checkpoints.open_contents(folder / "original"))
    model = BertPretrainer(config)
    model.build()
    if kind == "load":
        return lambda: checkpoints.load(model, folder / source), folder / source
    return lambda: checkpoints.save(model, written, format=target), written


def measure(folder: pathlib.Path, case: str) -> None:
    """Prints what a case takes, as JSON."""
    logging.set_verbosity(logging.ERROR)
    action, files = cases(folder, case)
    copy, written = folder / "copy", folder / "written"
    taken: dict[str, list[float]] = {"seconds": [], "copy": [], "peak": []}
    for _ in range(FLAGS.rounds):
        shutil.rmtree(written, ignore_errors=True)
        timed = []
        taken["peak"].append(extra_memory(lambda: timed.append(seconds(action))))  # noqa: B023
        taken["seconds"] += timed
        taken["copy"].append(seconds(lambda: shutil.copytree(files, copy)))
        shutil.rmtree(copy)
    shutil.rmtree(written, ignore_errors=True)
    least = {name: min(numbers) for name, numbers in taken.items()}
    print(json.dumps(least | {"peak": taken["peak"][0]}))


def measured(folder: pathlib.Path, case: str) -> dict[str, float]:
    """`measure` in a process of its own."""
    command = [sys.executable, "-m", "tests.benchmarks.checkpoint_formats"]
    command += [f"--work={folder}", f"--case={case}", f"--rounds={FLAGS.rounds}"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    print(f"{case}: {done.stdout.strip()}", file=sys.stderr, flush=True)
    return json.loads(done.stdout.splitlines()[-1])


def report(folder: pathlib.Path, config: BertConfig) -> None:
    """Prints the tables."""
    shapes = numpy_bert.variable_shapes(vars(config)).values()
    sizes = [4 * int(np.prod(shape)) for shape in shapes]
    print(f"\nWeights {sum(sizes) / 1e6:,.0f} MB, the largest tensor {max(sizes) / 1e6:,.0f} MB.")

    def cells(case: str) -> list[str]:
        found = measured(folder, case)
        times = found["seconds"], found["seconds"] / found["copy"]
        memory = found["peak"] / 1e6, found["peak"] / sum(sizes)
        return ["{:.2f} ({:.1f})".format(*times), "{:,.0f} ({:.2f})".format(*memory)]

    rows = []
    for name in FORMATS:
        size = sum(f.stat().st_size for f in (folder / name).rglob("*") if f.is_file())
        rows.append([name, f"{size / 1e6:,.0f}", *cells(f"load|{name}|")])
    _print(rows, ["`load`", "file MB", "s (× copy)", "peak MB (× weights)"])
    rows = [["a model, by `save`"], *([name] for name in FORMATS)]
    for target in checkpoints.FORMATS:
        rows[0] += cells(f"save|{target}|{target}")
        for row in rows[1:]:
            row += cells(f"convert|{row[0]}|{target}")
    heads = [(f"{target} s (× copy)", "peak MB (× weights)") for target in checkpoints.FORMATS]
    _print(rows, ["`convert`", *(column for head in heads for column in head)])


def _print(rows: list[list[str]], head: list[str]) -> None:
    align = ["left", *["right"] * (len(head) - 1)]
    text = tabulate.tabulate(rows, head, "pipe", colalign=align, disable_numparse=True)
    print(f"\n{text}", flush=True)


def main(_: list[str]) -> None:
    if FLAGS.case:
        measure(pathlib.Path(FLAGS.work), FLAGS.case)
        return
    config = BertConfig.named(FLAGS.size, VOCAB_SIZE)
    with tempfile.TemporaryDirectory(dir=FLAGS.work or None) as folder:
        make_files(pathlib.Path(folder), config)
        report(pathlib.Path(folder), config)


if __name__ == "__main__":
    flags.DEFINE_enum("size", "base", ["tiny", "base", "large"], "The model's size.")
    flags.DEFINE_string("work", "", "Folder for the files, 6 GB for base and 18 GB for large.")
    flags.DEFINE_integer("rounds", 3, "How often each case runs.")
    flags.DEFINE_string("case", "", "One case; set by the command itself.")
    app.run(main)
