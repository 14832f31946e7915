"""Starts every script and command twice at random offsets, and kills owners at random moments.

    python -m tests.runs.one_writer --pairs=50 --kills=20

Each start is a fork that runs a command line as it is, up to the work under its lock; there stands
other work, which writes and finds out whether it is alone. Prints a table: one line a writer.
"""

from modeling import quiet  # noqa: F401  isort: skip

import contextlib
import importlib
import os
import pathlib
import pkgutil
import random
import signal
import sys
import tempfile
import time

import tensorflow as tf
from absl import app, flags
from tabulate import tabulate

import data
import modeling
from data.errors import DataError
from data.files import atomic, lock_files, locks
from modeling.checkpoints.model_folder import ModelFolder
from modeling.checkpoints.vocabularies import TextFolding
from modeling.config import BertConfig
from tests.test_house import COMMANDS

FLAGS = flags.FLAGS

ALONE, REFUSED, MIXED = 0, 3, 9


class WorkEndedError(Exception):
    """The work under the lock is done."""


def work(folder: pathlib.Path, seconds: float) -> None:
    """Writes for a while in some steps; ends with MIXED if another does so at the same time."""
    busy = folder / "busy"
    if any(atomic.temporary_target(path.name) for path in folder.iterdir()):
        os._exit(5)  # what a killed owner left is still there
    earlier = busy.read_text() if busy.exists() else ""
    if earlier and lock_files._start_of(int(earlier)):
        os._exit(MIXED)
    busy.write_text(str(os.getpid()))
    with atomic.writing(str(folder / "out.npy"), "w") as file:
        for _ in range(10):
            file.write("x")
            file.flush()
            time.sleep(seconds / 10)
            if busy.read_text() != str(os.getpid()):
                os._exit(MIXED)
    busy.write_text("")
    raise WorkEndedError


class Writer:
    """A command line, and what takes its work's place.

    Args:
        module: Of the script or command.
        arguments: With {out} for the folder.
        place: The name in the module of what is called under the lock.
        others: Names in the module → what they give instead, as they'd need real files.
    """

    def __init__(self, module: str, *arguments: str, place: str, **others):
        self.module, self.arguments, self.place, self.others = module, arguments, place, others

    def run(self, folder: pathlib.Path, seconds: float) -> int:
        """What the command comes to, in this process."""
        module = importlib.import_module(self.module)
        arguments = [argument.replace("{out}", str(folder)) for argument in self.arguments]
        if self.module.endswith("convert_checkpoint"):
            for name in ("input", "output", "format", "bert_config_file", "vocab_file"):
                flags.DEFINE_string(name, None, "As where it is a program.")
            flags.DEFINE_bool("list", False, "As where it is a program.")
        FLAGS([self.module, *arguments])
        for name, value in self.others.items():
            target, _, attribute = name.rpartition("__")
            setattr(getattr(module, target) if target else module, attribute, value)
        target, _, attribute = self.place.rpartition(".")
        stands = lambda *_, **__: work(folder, seconds)  # noqa: E731
        setattr(getattr(module, target) if target else module, attribute, stands)
        try:
            module.main([self.module])
        except WorkEndedError:
            return ALONE
        except DataError as error:
            return REFUSED if "is being written by" in str(error) else 1
        return 1


class _Nothing:
    def __init__(self, *_, **__):
        self.paths, self.live, self.outputs, self.inputs, self.columns = [], False, {}, {}, {}


def writers(folder: pathlib.Path) -> dict[str, Writer]:
    """All of them; `folder` holds a text, a vocabulary and a configuration."""
    corpus, vocab = f"--input_file={folder}/text", f"--vocab_file={folder}/vocab"
    model = (vocab, f"--bert_config_file={folder}/config")
    run = ("--output_dir={out}", "--do_train", *model)
    nothing = {"prediction__load_signature": _Nothing, "PredictionInputs": _Nothing}
    nothing |= {"prediction__version_folder": str, "prediction__saved_model_files": lambda _: []}
    nothing |= {"prediction__BatchPredictor": _Nothing}
    own = ("--task_name=delimited", "--train_file=t", *run)
    return {
        "run_pretraining": Writer("run_pretraining", "--input_file=r", *run, place="session"),
        "run_classifier": Writer("run_classifier", *own, place="task_session"),
        "run_squad": Writer("run_squad", "--train_file=t", *run, place="task_session"),
        "run_ner": Writer("run_ner", "--train_file=t", *run, place="task_session"),
        "export (run_classifier)": Writer(
            "run_classifier",
            *("--task_name=delimited", "--output_dir={out}/" + "{own}", "--export_dir={out}"),
            *("--do_export", *model),
            place="task_session",
        ),
        "create_pretraining_data": Writer(
            "data.create_pretraining_data",
            corpus,
            vocab,
            "--output_file={out}/out.npy",
            place="write",
        ),
        "learn_vocabulary": Writer(
            "data.learn_vocabulary", corpus, "--output_file={out}/out.npy", place="learn"
        ),
        "learn_vocabulary (a model's)": Writer(
            "data.learn_vocabulary",
            *(corpus, "--prune=m", "--output_dir={out}"),
            place="prune",
            vocabulary__load_vocab=lambda _: [],
            open_model_folder=lambda _: ModelFolder(None, f"{folder}/vocab", TextFolding()),
            checkpoints__check_vocabulary=lambda *_: None,
            checkpoints__spare_rows=lambda *_: 0,
            checkpoints__conversion_files=lambda *_: ([], []),
        ),
        "inspect_records": Writer(
            "data.inspect_records", corpus, "--json={out}/out.npy", place="inspect"
        ),
        "convert_checkpoint": Writer(
            "modeling.convert_checkpoint",
            *("--input=i", "--output={out}", "--format=tf1"),
            place="convert_given",
            checkpoints__conversion_files=lambda *_: ([], []),
        ),
        "extract_features": Writer(
            "modeling.extract_features",
            *("--input_file=t", "--output_file={out}/out.npy", "--output_format=numpy", *model),
            place="open_given_model",
        ),
        "predict": Writer(
            "modeling.predict",
            *("--saved_model=m", "--output_file={out}/out.npy"),
            place="PredictionOutputs",
            **nothing,
        ),
    }


def start(writer: Writer, folder: pathlib.Path, seconds: float) -> int:
    """A process that runs a writer."""
    process = os.fork()
    if process:
        return process
    status = 1
    try:
        os.dup2(os.open(folder / "said", os.O_CREAT | os.O_WRONLY | os.O_APPEND), 2)
        writer.arguments = [a.replace("{own}", str(os.getpid())) for a in writer.arguments]
        status = writer.run(folder, seconds)
    except SystemExit as end:
        status = int(end.code or 1)
    except BaseException as error:
        os.write(2, f"{type(error).__name__}: {error}\n".encode())
    finally:
        os._exit(status)


def end_of(process: int) -> int:
    """Its exit status."""
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


def measure(name: str, writer: Writer, pairs: int, kills: int, draw: random.Random) -> dict:
    """A row of the table."""
    row = {"writer": name, "pairs": pairs, "one refused": 0, "one after another": 0}
    row |= {"mixtures": 0, "kills": kills, "taken over": 0, "failures": 0}
    for _ in range(pairs):
        with tempfile.TemporaryDirectory() as made:
            folder = pathlib.Path(made)
            first = start(writer, folder, 0.1)
            time.sleep(draw.uniform(0, 0.25))
            ends = sorted((end_of(start(writer, folder, 0.1)), end_of(first)))
            row["mixtures"] += MIXED in ends
            row["one refused"] += ends == [ALONE, REFUSED]
            row["one after another"] += ends == [ALONE, ALONE]
            if ends not in ([ALONE, REFUSED], [ALONE, ALONE]):
                row["failures"] += 1
                print(name, ends, (folder / "said").read_text()[-1500:], file=sys.stderr)
    killed = 0
    while killed < kills:
        with tempfile.TemporaryDirectory() as made:
            folder = pathlib.Path(made)
            owner = start(writer, folder, 60)
            while not [*folder.glob(".*lock"), *folder.glob("*/.lock")]:
                if os.waitpid(owner, os.WNOHANG)[0]:
                    sys.exit(f"{name} took no lock: {(folder / 'said').read_text()[-1500:]}")
            time.sleep(draw.uniform(0, 0.1))
            os.kill(owner, signal.SIGKILL)
            end_of(owner)
            killed += 1
            end = end_of(start(writer, folder, 0.0))
            left = [
                p.name for p in folder.iterdir() if p.name.startswith(".") or ".partial" in p.name
            ]
            row["taken over"] += end == ALONE
            if end != ALONE or left:
                row["failures"] += 1
                print(name, end, left, (folder / "said").read_text()[-1500:], file=sys.stderr)
    return row


def main(_: list[str]) -> None:
    for package in (data, modeling):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if module.name.rpartition(".")[2] not in COMMANDS:
                with contextlib.suppress(ImportError):
                    importlib.import_module(module.name)
    tf.io.gfile.exists("/")
    locks.BEAT_SECONDS, locks._LINGERING_SECONDS = 0.05, 0.0
    draw = random.Random(0)
    with tempfile.TemporaryDirectory() as made:
        folder = pathlib.Path(made)
        (folder / "text").write_text("a\n")
        (folder / "vocab").write_text("a\n")
        (folder / "config").write_text(BertConfig(vocab_size=1).to_json_string())
        rows = [
            measure(name, writer, FLAGS.pairs, FLAGS.kills, draw)
            for name, writer in writers(folder).items()
            if FLAGS.writer in name
        ]
    print(tabulate(rows, headers="keys"))
    sys.exit(any(row["mixtures"] or row["failures"] for row in rows))


if __name__ == "__main__":
    flags.DEFINE_integer("pairs", 50, "Pairs of starts of each writer.")
    flags.DEFINE_integer("kills", 20, "Killed owners of each writer.")
    flags.DEFINE_string("writer", "", "Only those with this in their name.")
    app.run(main)
