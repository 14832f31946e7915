"""The recipe of pre-training, ingredient by ingredient: each alone, and each left out.

    python -m tests.paper.recipes --shared=DATA --work=/tmp/recipes --steps=3000 --minutes=10

Every variant is trained for so many steps (equal tokens) and for so many minutes (equal time), with
every seed, and always judged by the same held-out records, masked as the paper does; from what the
minutes gave SST-2 and MRPC are fine-tuned. What is there isn't run again, and what was interrupted
goes on. Minutes are measured: run it on a machine that does nothing else. `--only=muon,fast` takes
some variants, `--size=6x384` another model, `--no-tuning` leaves the tasks out.

The table goes to recipes.txt in --work, the curves against tokens and time, with the spread of the
seeds, to recipes.png.
"""

from modeling import quiet  # noqa: F401  isort: skip

import argparse
import dataclasses
import itertools
import json
import os
import pathlib
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from tabulate import tabulate

from modeling.training.recipes import RECIPES
from tests.paper import small
from tests.paper.experiment import ROOT, Cell, FailedRunError, Place, Run, complete, numbers
from tests.paper.report import COLOURS

INGREDIENTS: dict[str, dict[str, object]] = {
    "muon": {"optimizer": "muon", "learning_rate": 1.5e-3},
    "adamw": {"optimizer": "adamw", "learning_rate": 1e-3},
    "local": {"initialization": "local"},
    "from-peak": {"lr_schedule": "linear_from_peak"},
    "decay": {"weight_decay_rate": 0.1},
    "no-dropout": {"dropout": False},
    "mlm": {"objective": "mlm"},
    "fresh-masks": {"dynamic_masking": True},
    "masks-30": {
        "dynamic_masking": True,
        "masked_lm_prob": 0.3,
        "max_predictions_per_seq": 2 * small.PREDICTIONS,
    },
    "average": {"average_last": 0.2},
    "short-first": {"phases": "32:{half}:64:10,64:{half}:32:10"},
    "small-batch-first": {"phases": "64:{steps}:16:10,64:{half}:32:10"},
}
"""By name; of --phases, {steps} and {half} stand for the steps of the others and half of them."""
FAILED = "failed"
BASE = {"optimizer": "adam", "lr_schedule": "linear", "learning_rate": 5e-4, "dtype": "auto"}
SIZES = {"4x256": (4, 256, 4), "6x384": (6, 384, 6)}
TASKS = {"SST-2": ("eval_accuracy", 3000), "MRPC": ("eval_f1", 400)}
"""Result and steps. After 500 of SST-2 random weights are as good as those of half an hour."""


def variants() -> dict[str, dict[str, object]]:
    """Name → flags besides `BASE`'s."""
    fast = RECIPES["fast"]
    found: dict[str, dict[str, object]] = {"paper": {}, **INGREDIENTS, "fast": fast}
    for name, flags in INGREDIENTS.items():
        if set(flags.items()) <= set(fast.items()):
            left = {key: value for key, value in fast.items() if key not in flags}
            found[f"fast-without-{name}"] = left
        elif not set(flags) & set(fast):
            found[f"fast-with-{name}"] = fast | flags
    return found


def pretraining(
    place: Place, size: str, name: str, flags: Mapping[str, object], steps: int, minutes: float
) -> Run:
    """A variant, for so many steps or, if there are any, so many minutes."""
    layers, width, heads = SIZES[size]
    config = {
        "vocab_size": small.VOCAB_SIZE,
        "hidden_size": width,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "intermediate_size": 4 * width,
        "max_position_embeddings": small.LENGTH,
        "type_vocab_size": 2,
        "initializer_range": 0.04,
    }
    text = json.dumps(config, indent=1)
    steps = small.steps(place, steps)
    predictions = flags.get("max_predictions_per_seq", small.PREDICTIONS)
    lengths = (32, 64) if "phases" in flags else (None,)
    made = [
        small.records(place, held_out=held_out, length=length, predictions=predictions)
        for length in lengths
        for held_out in (False, True)
    ]
    files = [place.of(run, "records-*.tfrecord") for run in made[:2]]
    if "phases" in flags:
        files = [str(file).replace("-32/", "-{max_seq_length}/") for file in files]
    words = small.vocabulary(place)
    given = BASE | flags
    if "phases" in given:
        given["phases"] = given["phases"].format(steps=steps, half=max(1, steps // 2))
    given |= {
        "input_file": files[0],
        "eval_file": files[1],
        "bert_config_file": place.made(f"recipe-{size}.json", lambda: text),
        "vocab_file": place.of(words, "vocab.txt"),
        "do_train": True,
        "do_eval": True,
        "max_seq_length": small.LENGTH,
        "max_predictions_per_seq": predictions,
        "eval_batch_size": 64,
        "max_eval_steps": small.steps(place, 50),
        "num_train_steps": steps,
        "num_warmup_steps": max(1, steps // 10),
        "eval_steps": max(1, steps // 10),
        "save_checkpoints_steps": 10**6,
        "log_steps": max(1, steps // 100),
    }
    if minutes:
        given["minutes"] = minutes
    measure = f"{minutes:g}-minutes" if minutes else f"{steps}-steps"
    return Run(
        f"{size}-{name}-{measure}",
        "run_pretraining.py",
        given,
        seeds=place.seed_range(),
        after=[words, *made],
    )


def tuning(place: Place, model: Run, task: str) -> Run:
    """A task from each seed's model, with that seed."""
    folder = place.work / "runs" / model.name / ("{seed_folder}" if len(model.seeds) > 1 else "")
    start = {
        "bert_config_file": folder / "bert_config.json",
        "vocab_file": folder / "vocab.txt",
        "init_checkpoint": folder / "bert_model.ckpt",
        "max_seq_length": small.LENGTH,
    }
    run = small.glue(place, model.name, task, start, TASKS[task][1], 1e-4, [model], model.seeds)
    return dataclasses.replace(run, apart=True)


def phases_of(run: Run) -> list[tuple[int, int, int]]:
    """(last step, rows in a batch, length) of each phase."""
    text = str(run.flags.get("phases") or f"{small.LENGTH}:{run.flags['num_train_steps']}:32")
    parts = [list(map(int, part.split(":")[:3])) for part in text.split(",")]
    ends = itertools.accumulate(steps for _, steps, _ in parts)
    return [(end, rows, length) for end, (length, _, rows) in zip(ends, parts, strict=True)]


def curve(
    folder: pathlib.Path, phases: Sequence[tuple[int, int, int]]
) -> list[tuple[float, float, float]]:
    """(millions of tokens, minutes, held-out loss of masked words) at each evaluation.

    Minutes are those of training steps, by the speeds that were logged. Evaluations of a phase of
    shorter records, which are of other records, are left out.
    """
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    found, steps, tokens, seconds = [], [0], [0.0], [0.0]

    def phase_of(step: int) -> tuple[int, int, int]:
        return next(phase for phase in phases if step <= phase[0])

    for line in lines:
        step = line["step"]
        if line["kind"] == "train" and step > steps[-1]:
            _, rows, length = phase_of(step)
            done = (step - steps[-1]) * rows
            tokens.append(tokens[-1] + done * length)
            seconds.append(seconds[-1] + done / line["examples_per_second"])
            steps.append(step)
        elif line["kind"] == "eval" and phase_of(step)[2] == small.LENGTH:
            until = (float(np.interp(step, steps, values)) for values in (tokens, seconds))
            millions, minutes = (n / by for n, by in zip(until, (1e6, 60), strict=True))
            found.append((millions, minutes, line["masked_lm_loss"]))
    return found


def draw(curves: Mapping[str, list[list[tuple[float, float, float]]]], path: pathlib.Path) -> None:
    """Losses against tokens and against time: the seeds' mean, and between which they lie."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 5), layout="constrained")
    panels = figure.subplots(1, 2, sharey=True)
    for (name, seeds), colour in zip(curves.items(), itertools.cycle(COLOURS)):
        length = min(map(len, seeds))
        points = np.array([seed[:length] for seed in seeds])  # [seeds, evaluations, 3]
        for axis, panel in enumerate(panels):
            x, losses = points[:, :, axis].mean(0), points[:, :, 2]
            panel.plot(x, losses.mean(0), "o-", markersize=3, color=colour, label=name)
            panel.fill_between(x, losses.min(0), losses.max(0), color=colour, alpha=0.2)
    for panel, label in zip(panels, ("millions of tokens", "minutes of training"), strict=True):
        panel.set_xlabel(label)
        panel.grid(alpha=0.3)
    panels[0].set_ylabel("held-out loss of masked words")
    panels[1].legend(fontsize=8)
    figure.savefig(path, dpi=110)


def shown(values: list[float] | None) -> str:
    """Mean ± standard deviation (runs); None are those of a run that failed."""
    if values is None:
        return FAILED
    if not values:
        return "–"
    spread = f" ± {statistics.stdev(values):.3f}" if len(values) > 1 else ""
    return f"{statistics.fmean(values):.3f}{spread} ({len(values)})"


def rows(
    place: Place, size: str, chosen: Mapping[str, Mapping], steps: int, minutes: float, tune: bool
) -> Iterator[tuple[str, Run, list[str]]]:
    """Makes what is missing, variant by variant: name, the run by steps, a line of the table.

    A run that fails, because it diverges, say, is told and leaves its places in the table to that.

    Raises:
        FailedRunError: What all of them need can't be made.
    """

    def made(run: Run, key: str) -> list[float] | None:
        for needed in (*itertools.chain(*(r.after for r in run.after)), *run.after):
            complete(needed, place.work)
        try:
            complete(run, place.work)
        except FailedRunError as error:
            print(error, flush=True)
            return None
        return numbers(Cell("", "", None, run, key, scale=1.0), place.work)

    for name, flags in chosen.items():
        by_steps = pretraining(place, size, name, flags, steps, 0)
        by_minutes = pretraining(place, size, name, flags, steps, minutes)
        found = [made(run, "masked_lm_loss") for run in (by_steps, by_minutes)]
        if found[1] is None:  # or it would be tried again for each of these
            found += [None] * (1 + len(TASKS) * tune)
        else:
            found.append(made(by_minutes, "global_step"))
            tasks = TASKS.items() if tune else ()
            found += [made(tuning(place, by_minutes, task), key) for task, (key, _) in tasks]
        yield name, by_steps, [name, *map(shown, found)]


def main() -> None:
    try:
        compare()
    except FailedRunError as error:  # of what every variant needs
        sys.exit(str(error))


def compare() -> None:
    """The command, with the flags that it was given."""
    shared = os.environ.get("BERT_SHARED_DIR", ROOT.parent / "shared")
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--shared", type=pathlib.Path, default=pathlib.Path(shared, "data"))
    parser.add_argument("--work", type=pathlib.Path, default=pathlib.Path("output/recipes"))
    parser.add_argument("--size", choices=SIZES, default="4x256")
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", default="", help="Variants, with commas between them.")
    parser.add_argument("--no-tuning", action="store_true")
    parser.add_argument("--smoke", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    every = variants()
    names = given.only.split(",") if given.only else list(every)
    for name in set(names) - set(every):
        parser.error(f"{name!r} is no variant; they are {', '.join(every)}.")
    nowhere = pathlib.Path("/")
    paths = (given.shared.absolute(), given.work.absolute(), nowhere, nowhere)
    place = Place(*paths, given.seeds, given.smoke)
    chosen = {name: every[name] for name in names}
    header = ["", f"loss, {given.steps:,} steps", f"loss, {given.minutes:g} minutes", "steps then"]
    lines, curves, text = [], {}, ""
    tune = not given.no_tuning
    for name, run, line in rows(place, given.size, chosen, given.steps, given.minutes, tune):
        lines.append(line)
        text = tabulate(lines, header + list(TASKS)) + "\n"
        (place.work / "recipes.txt").write_text(text, encoding="utf-8")
        if line[1] != FAILED:
            folders = run.folders(place.work)
            curves[name] = [curve(folder, phases_of(run)) for folder in folders]
    print(text)
    if curves:
        draw(curves, place.work / "recipes.png")
    failed = [line[0] for line in lines if FAILED in line]
    if failed:
        sys.exit(f"Failed: {', '.join(failed)}. Given again, the command tries these again.")


if __name__ == "__main__":
    main()
