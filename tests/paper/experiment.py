"""What the paper's tables have in common: commands that are run once, their results, one table.

    python -m tests.paper.table1_glue --scale=small --shared=DATA --minilm=DIR --work=/tmp/paper
    python -m tests.paper.table1_glue --scale=paper --released=DIR

A table's own file lists its runs, commands of this project, and the paper's numbers; what is done
with them is here. Small scale: every run has a folder in --work and isn't repeated once its
results are there; one that was interrupted goes on when the table's command is given again. Runs
that several tables need are made once if they share --work. In the end the table is printed and
written beside the runs, as TSV and PNG. Paper scale: prints the commands and what they cost.

--shared holds the data: glue/, squad/, swag/codah/, conll2003/, corpora/enwiki/.
"""

from modeling import quiet  # noqa: F401  isort: skip

import argparse
import dataclasses
import datetime
import json
import math
import os
import pathlib
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

from modeling.training.runs.summary import code_commit

ROOT = pathlib.Path(__file__).resolve().parents[2]
# These repeat a run with other seeds themselves, in one process.
SEARCHING = ("run_classifier.py", "run_ner.py")
RECORD = "run.json"


@dataclasses.dataclass(frozen=True)
class Run:
    """One of the project's commands, repeated with every seed.

    Attributes:
        name: Of its folder; runs of one name are one run.
        command: A script such as "run_squad.py", or a module such as "data.learn_vocabulary".
        flags: By name. "{folder}" stands for the run's folder, "{seed_folder}" for its last part,
            which is that of the same seed in other runs.
        result: File in the folder that is there when the command has ended well.
        seeds: From the first on, one more each.
        after: What has to be there before.
        apart: A process for each seed even where one could make them all, which keeps no results
            but the first dev set's.
    """

    name: str
    command: str
    flags: Mapping[str, object]
    result: str = "eval_results.txt"
    seeds: Sequence[int] = (1,)
    after: Sequence["Run"] = ()
    apart: bool = False

    @property
    def searches(self) -> bool:
        """Whether one process makes all the seeds' runs."""
        return self.command in SEARCHING and len(self.seeds) > 1 and not self.apart

    def folders(self, work: pathlib.Path) -> list[pathlib.Path]:
        """One for each process."""
        folder = work / "runs" / self.name
        if len(self.seeds) == 1 or self.searches:
            return [folder]
        return [folder / f"seed-{seed}" for seed in self.seeds]

    def first(self) -> "Run":
        """The first seed's process as a run of its own, in the same folder."""
        if len(self.seeds) == 1 or self.searches:
            return self
        name = f"{self.name}/seed-{self.seeds[0]}"
        return dataclasses.replace(self, name=name, seeds=self.seeds[:1])

    def arguments(self, folder: pathlib.Path, seed: int) -> list[str]:
        """Of the process that fills a folder."""
        flags = dict(self.flags)
        script = self.command.endswith(".py")
        if script:
            flags |= {"output_dir": folder, "random_seed": seed}
        if self.searches:
            flags["num_runs"] = len(self.seeds)
        command = [self.command] if script else ["-m", self.command]
        given = [flag(name, value, folder) for name, value in flags.items()]
        return command + [text.replace("{seed_folder}", folder.name) for text in given]


def flag(name: str, value: object, folder: object = "{folder}") -> str:
    """One flag of a command line."""
    if isinstance(value, bool):
        value = str(value).lower()
    elif isinstance(value, (list, tuple)):
        value = ",".join(map(str, value))
    return f"--{name}={str(value).replace('{folder}', str(folder))}"


@dataclasses.dataclass(frozen=True)
class Cell:
    """One number of a table.

    Attributes:
        row, column: Where it stands.
        paper: The paper's number; None where it has none.
        run: What gives ours; None where this scale has none.
        key: Of the results, or what makes the number of them.
        file: That has them, if not the run's result.
        scale: What ours is multiplied by; the paper counts in percent.
    """

    row: str
    column: str
    paper: float | None
    run: Run | None = None
    key: str | Callable[[Mapping[str, float]], float] = "eval_accuracy"
    file: str = ""
    scale: float = 100.0


@dataclasses.dataclass(frozen=True)
class Table:
    """A table or figure of the paper.

    Attributes:
        name: Of its files.
        title: What it shows, and where it is in the paper.
        cells: In the order of rows and columns.
        notes: What to know about this scale; printed below.
        line: The rows are lines over columns that are numbers, as in a figure.
    """

    name: str
    title: str
    cells: Sequence[Cell]
    notes: Sequence[str] = ()
    line: bool = False

    @property
    def runs(self) -> list[Run]:
        """Every run once, each behind those that it needs."""
        ordered: dict[str, Run] = {}

        def add(run: Run) -> None:
            for needed in run.after:
                add(needed)
            ordered.setdefault(run.name, run)

        for cell in self.cells:
            if cell.run:
                add(cell.run)
        return list(ordered.values())


@dataclasses.dataclass(frozen=True)
class Place:
    """Where things are, and how much of them.

    Attributes:
        data: The folder of data sets.
        work: Of runs and results.
        minilm: MiniLM's weights, config.json and vocab.txt.
        released: Folder of the released models, such as uncased_L-12_H-768_A-12.
        seeds: How many runs of each setting.
        smoke: Two steps of everything, to see that it works.
    """

    data: pathlib.Path
    work: pathlib.Path
    minilm: pathlib.Path
    released: pathlib.Path
    seeds: int = 3
    smoke: bool = False

    def seed_range(self, most: int | None = None) -> tuple[int, ...]:
        """The seeds of a run, at most so many."""
        return tuple(range(1, 1 + min(self.seeds, most or self.seeds)))

    def of(self, run: Run, name: str = "") -> pathlib.Path:
        """A file in the folder of a run of one process."""
        return self.work / "runs" / run.name / name

    def made(self, name: str, text: Callable[[], str]) -> pathlib.Path:
        """A file in the work folder, written if it isn't there, at one go."""
        path = self.work / "files" / name
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            beside = path.with_name(f".{path.name}.{os.getpid()}")
            beside.write_text(text(), encoding="utf-8")
            beside.replace(path)
        return path


# ---- Running ----


class FailedRunError(Exception):
    """A command of a run failed; the message ends in what it logged, and where."""


def complete(run: Run, work: pathlib.Path) -> None:
    """Makes whatever a run lacks.

    Raises:
        FailedRunError: A command failed.
        SystemExit: The folder was made by another command.
    """
    for folder, seed in zip(run.folders(work), run.seeds, strict=False):
        arguments = run.arguments(folder, seed)
        record = _read_record(folder) or {"command": arguments, "seconds": 0.0}
        if record["command"] != arguments:
            sys.exit(
                f"{folder} was made by another command:\n  {' '.join(record['command'])}\nnot\n"
                f"  {' '.join(arguments)}\nChoose another --work, or remove the folder."
            )
        if (folder / run.result).exists() and "finished" in record:
            continue
        folder.mkdir(parents=True, exist_ok=True)
        print(f"{_clock()} {folder.relative_to(work)}: {' '.join(arguments)}", flush=True)
        # Before it begins: it may be killed, and mustn't go on as another command then.
        _write_record(folder, record)
        start = time.monotonic()
        status = -1
        try:
            with open(folder / "log.txt", "a", encoding="utf-8") as log:
                status = subprocess.run(
                    [sys.executable, *arguments],
                    cwd=ROOT,
                    env=os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3"},
                    stdout=log,
                    stderr=subprocess.STDOUT,
                ).returncode
        finally:
            record["seconds"] += time.monotonic() - start
            if status == 0:
                record |= {"finished": _clock("%Y-%m-%d %H:%M"), "commit": code_commit()}
            _write_record(folder, record)
        if status or not (folder / run.result).exists():
            text = (folder / "log.txt").read_text(encoding="utf-8", errors="replace")
            raise FailedRunError(f"{text[-3000:]}\nFailed, see {folder / 'log.txt'}.")


def _write_record(folder: pathlib.Path, record: Mapping[str, object]) -> None:
    beside = folder / f".{RECORD}.{os.getpid()}"
    beside.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    beside.replace(folder / RECORD)


def _read_record(folder: pathlib.Path) -> dict | None:
    path = folder / RECORD
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def seconds(runs: Iterable[Run], work: pathlib.Path) -> float:
    """What the runs took in all, those of other tables' commands too."""
    records = (_read_record(folder) for run in runs for folder in run.folders(work))
    return sum(record["seconds"] for record in records if record)


def commits(runs: Iterable[Run], work: pathlib.Path) -> list[str]:
    """Of the code that made them."""
    records = (_read_record(folder) for run in runs for folder in run.folders(work))
    return sorted({record["commit"] for record in records if record and "commit" in record})


def _clock(form: str = "%H:%M:%S") -> str:
    return datetime.datetime.now().strftime(form)


# ---- Results ----


def numbers(cell: Cell, work: pathlib.Path) -> list[float]:
    """Ours, one for each seed that didn't diverge; [] where this scale has none.

    Raises:
        SystemExit: The results lack the key.
    """
    if cell.run is None:
        return []
    values = []
    for results in _results(cell.run, cell.file, work):
        if not results:
            continue  # it diverged
        if not callable(cell.key) and cell.key not in results:
            sys.exit(
                f"The results of {cell.run.name} have no {cell.key}; they have "
                f"{', '.join(sorted(results))}."
            )
        value = cell.key(results) if callable(cell.key) else results[cell.key]
        if math.isfinite(value):
            values.append(cell.scale * value)
    return values


def _results(run: Run, file: str, work: pathlib.Path) -> list[dict[str, float]]:
    """Of each seed."""
    if run.searches and not file:
        (folder,) = run.folders(work)
        trials = [json.loads(p.read_text()) for p in folder.glob("runs/*/result.json")]
        return [trial["results"] for trial in sorted(trials, key=lambda trial: trial["seed"])]
    found = []
    for folder in run.folders(work):
        text = (folder / (file or run.result)).read_text(encoding="utf-8")
        if text.startswith("{"):
            found.append(json.loads(text))
        else:
            pairs = (line.split(" = ") for line in text.splitlines())
            found.append({key: float(value) for key, value in pairs})
    return found


def corners(table: Table) -> Table:
    """The first and last row and column of what is run: one run of every kind, more or less."""
    measured = [cell for cell in table.cells if cell.run]
    rows, columns = [cell.row for cell in measured], [cell.column for cell in measured]
    cells = [
        cell
        for cell in measured
        if cell.row in (rows[0], rows[-1]) and cell.column in (columns[0], columns[-1])
    ]
    return dataclasses.replace(table, cells=cells)


# ---- The command ----


def main(small: Callable[[Place], Table], full: Callable[[Place], Sequence]) -> None:
    """Of each table.

    Args:
        small: The table at this machine's scale.
        full: What the paper's scale takes, see `tests.paper.full.show`.
    """
    from tests.paper import full as paper_scale
    from tests.paper import report

    shared = os.environ.get("BERT_SHARED_DIR", ROOT.parent / "shared")
    parser = argparse.ArgumentParser()
    parser.add_argument("--scale", choices=["small", "paper"], default="small")
    parser.add_argument("--shared", type=pathlib.Path, default=pathlib.Path(shared, "data"))
    parser.add_argument("--work", type=pathlib.Path, default=pathlib.Path("output/paper"))
    parser.add_argument(
        "--minilm", type=pathlib.Path, default=os.environ.get("BERT_MINILM_DIR", "minilm")
    )
    parser.add_argument("--released", type=pathlib.Path, default=pathlib.Path("released"))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--smoke", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    paths = (path.absolute() for path in (given.shared, given.work, given.minilm, given.released))
    place = Place(*paths, given.seeds, given.smoke)
    if given.scale == "paper":
        paper_scale.show(full(place), place)
        return
    if not place.data.is_dir():
        sys.exit(f"{place.data} isn't there. --shared names the folder of glue/, squad/ and so on.")
    table = small(place)
    if place.smoke:
        table = corners(table)
    for run in table.runs:
        try:
            complete(run, place.work)
        except FailedRunError as error:
            sys.exit(str(error))
    report.show(table, place.work)
