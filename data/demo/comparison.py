"""A demo's runs: ordinary commands, which are shown; then the table of what they are worth.

The script is run once from the checkpoint of run_pretraining.py's demo and once from random
weights, by its own flags and nothing else. What a run leaves in its folder lets it go on, so a
demo that was interrupted does too.
"""

import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType

import numpy as np
from absl import logging

from data.demo.scores import score_table
from data.errors import DataError
from data.files import atomic

PRETRAINED, RANDOM = "pretrained", "random"
PRETRAINING = "output/demo"
"""Where run_pretraining.py's demo leaves its weights."""
TABLE = "comparison.txt"

# What the demo says to each of its runs itself.
_OWN_FLAGS = ("demo", "output_dir", "init_checkpoint", "num_runs", "random_seed")
_FILE_FLAGS = ("data_dir", "train_file", "dev_file", "test_file", "predict_file")
_MODEL_FLAGS = ("bert_config_file", "vocab_file")


@dataclass(frozen=True)
class DemoData:
    """What a demo has made: files, and what simple systems make of them.

    Attributes:
        described: The task, in words.
        files: Flags that name the files.
        sizes: Part → numbers of examples and modules.
        groups: Module of each test example.
        baselines: System → counts [N, 3], see `scores`.
        score: From a run's folder to its counts.
        question: A line to ask the exported model.
        reports: From a run's folder to what people read, by the names of the files.
    """

    described: str
    files: Mapping[str, str]
    sizes: Mapping[str, tuple[int, int]]
    groups: Sequence[str]
    baselines: Mapping[str, np.ndarray]
    score: Callable[[str], np.ndarray]
    question: str
    reports: Callable[[str], Mapping[str, str]] = lambda run: {}


def run_demo(values, script: str, demo: ModuleType, make: Callable[[str], DemoData]) -> None:
    """Makes the data, runs the script from both kinds of weights, and compares.

    Args:
        values: The script's flag values; those of the command line replace the demo's, and
            --num_runs asks for several seeds.
        script: Its path.
        demo: Has METRIC, SETTINGS (flags of a run) and SHOWN (files to look at).
        make: Writes the data to a folder.

    Raises:
        DataError: A flag was given that the demo sets itself.
        SystemExit: A run has failed, and has said why.
    """
    _refuse_given(values)
    name = os.path.basename(script).removeprefix("run_").removesuffix(".py")
    folder = values.output_dir or f"output/demo_{name}"
    checkpoint = values.init_checkpoint or _pretrained(os.path.dirname(script))
    start = time.monotonic()
    os.makedirs(os.path.join(folder, "data"), exist_ok=True)
    data = make(os.path.join(folder, "data"))
    logging.info("%s: %s", data.described, _described(data.sizes))
    given = [values[n].serialize() for n in values if values[n].present and n not in _OWN_FLAGS]
    flags = {**demo.SETTINGS, **data.files, "do_train": True, "do_predict": True, "dtype": "auto"}
    runs: dict[str, list[str]] = {PRETRAINED: [], RANDOM: []}
    for number in range(values.num_runs):
        own = {**flags, "random_seed": values.random_seed + number}
        for kind, folders in runs.items():
            folders.append(os.path.join(folder, f"{kind}_{number + 1}" if number else kind))
            if kind == PRETRAINED:
                weights = {"init_checkpoint": checkpoint, "do_export": not number}
            else:
                weights = _sizes_of_model(runs[PRETRAINED][0])
            run_shown(script, {**own, **weights, "output_dir": folders[-1]}, given)
    systems = {name: [counts] for name, counts in data.baselines.items()}
    systems["BERT from random weights"] = [data.score(run) for run in runs[RANDOM]]
    systems["BERT from the checkpoint"] = [data.score(run) for run in runs[PRETRAINED]]
    table = score_table(systems, data.groups, demo.METRIC)
    examples, of = data.sizes["test"]
    table = f"{data.described}; {examples} test examples of {of} modules\n\n{table}\n"
    first = runs[PRETRAINED][0]
    shown = [os.path.join(first, name) for name in demo.SHOWN]
    for name, text in {TABLE: table, **data.reports(first)}.items():
        shown.append(os.path.join(folder, name))
        atomic.write_text(shown[-1], text)
    shown = "\n".join(f"  {path}" for path in shown)
    print(
        f"\n{table}\nThe demo took {time.monotonic() - start:.0f} s. The checkpoint has read "
        f"docstrings, some of the test's too, but none of the answers.\n\n"
        f"To look at:\n{shown}\n\n"
        f"Ask the exported model:\n  printf '%s\\n' {shlex.quote(data.question)} | "
        f"python -m modeling.predict --saved_model={first}/export"
    )


def _pretrained(scripts: str) -> str:
    """The folder of the pre-trained weights; they are made if they aren't there."""
    if not os.path.exists(os.path.join(PRETRAINING, "bert_model.ckpt.index")):
        logging.info(
            "There is no %s yet: first the pre-training, of four to six minutes more. "
            "--init_checkpoint names other weights.",
            PRETRAINING,
        )
        run_shown(os.path.join(scripts, "run_pretraining.py"), {"demo": True}, [])
    return PRETRAINING


def _refuse_given(values) -> None:
    for name in (*_FILE_FLAGS, *_MODEL_FLAGS):
        if name in values and values[name].present:
            raise DataError(
                f"--{name} and --demo exclude each other: the demo makes its own files, and takes "
                f"the model's from the folder of --init_checkpoint."
            )


def _described(sizes: Mapping[str, tuple[int, int]]) -> str:
    return "; ".join(f"{part} {n} examples of {of} modules" for part, (n, of) in sizes.items())


def _sizes_of_model(run: str) -> dict[str, object]:
    """Flags that give the model of a run without its weights."""
    with open(os.path.join(run, "tokenizer_config.json"), encoding="utf-8") as file:
        lower = json.load(file)["do_lower_case"]
    files = zip(_MODEL_FLAGS, ("bert_config.json", "vocab.txt"), strict=True)
    return {flag: os.path.join(run, name) for flag, name in files} | {"do_lower_case": lower}


def run_shown(script: str, flags: Mapping[str, object], given: Sequence[str]) -> None:
    """Runs a script, and shows how."""
    texts = {name: str(v).lower() if isinstance(v, bool) else v for name, v in flags.items()}
    arguments = [*(f"--{name}={value}" for name, value in texts.items()), *given]
    shown = " \\\n    ".join(shlex.quote(argument) for argument in arguments)
    print(f"\npython {os.path.basename(script)} \\\n    {shown}\n", flush=True)
    done = subprocess.run([sys.executable, script, *arguments])
    if done.returncode:
        raise SystemExit(done.returncode)
