"""What card and page say of the run itself: model, settings, machine, speed, how to ask it."""

import dataclasses
import os
import re
import shlex
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from modeling.checkpoints.files import join
from modeling.training.reports.contents import TaskReport
from modeling.training.runs.summary import RunSummary

# What a model was trained from, which is no matter of what was trained.
_START = re.compile(
    "init_checkpoint|teacher|teacher_.*|transfer_file|label_share|match_.*|student_.*"
)
_JOB = re.compile(r"--?(no)?(do_(train|eval|predict|export)|overwrite_output_dir)(=.*)?")


@dataclasses.dataclass(frozen=True)
class JudgedSplit:
    """A split whose answers were judged.

    Attributes:
        name: The split's, "dev".
        fingerprint: Of its content.
        report: What the task says of the answers.
        seconds: What answering and judging took.
    """

    name: str
    fingerprint: str
    report: TaskReport
    seconds: float

    @property
    def speed(self) -> str:
        """In words."""
        report = self.report
        a_second = report.examples / max(self.seconds, 1e-9)
        return f"{a_second:.3g} {report.unit} a second, the first batch's compilation counted"


@dataclasses.dataclass(frozen=True)
class RunFacts:
    """Of the run.

    Attributes:
        name: The output folder's.
        model: The model in words.
        step: Of the weights that were judged.
        made: Software and code, in words.
        machine: In words.
        date: Of the judging.
        settings: Flags that were given, of the last training and of this session, in words.
    """

    name: str
    model: str
    step: int
    made: str
    machine: str
    date: str
    settings: Mapping[str, str]

    @classmethod
    def of_run(cls, directory: str, summary: RunSummary, step: int) -> "RunFacts":
        """From the run's summary."""
        entry = summary.entry
        return cls(
            name=os.path.basename(os.path.normpath(directory)),
            model=_model(entry),
            step=step,
            made=_made(entry),
            machine=_machine(entry["hardware"]),
            date=entry["started"][:10],
            settings=_settings(summary),
        )


def _model(entry: Mapping) -> str:
    config, parts = entry["config"] or {}, []
    if "num_hidden_layers" in config:
        parts.append(f"{config['num_hidden_layers']} layers, {config['hidden_size']} wide")
    if entry["parameters"]:
        parts.append(f"{entry['parameters']:,} parameters")
    return "BERT" + (f" ({', '.join(parts)})" if parts else "")


def _made(entry: Mapping) -> str:
    versions, git = entry["versions"], entry["git"]
    code = f", commit {git['commit'][:10]}{' with changes' * git['dirty']}" if git else ""
    return f"TensorFlow {versions['tensorflow']}, Keras {versions['keras']}{code}"


def _machine(hardware: Mapping) -> str:
    parts = [*hardware["gpus"], f"{hardware['cpu']}, {hardware['cores']} cores"]
    return ", ".join(map(str, parts))


def _settings(summary: RunSummary) -> dict[str, str]:
    def shown(value: Any) -> str:
        return ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)

    def given(session: Mapping) -> dict[str, Any]:
        flags = session.get("flags") or {}
        return {name: flag["value"] for name, flag in flags.items() if flag["given"]}

    trained = [given(session) for session in summary.sessions if given(session).get("do_train")]
    settings = (trained[-1] if trained else {}) | given(summary.entry)
    jobs = {name for name in settings if _JOB.fullmatch(f"--{name}")}
    return {name: shown(settings[name]) for name in sorted(set(settings) - jobs)}


def command_to_ask(directory: str, summary: RunSummary, example: str) -> str:
    """The shell commands that ask the model; the export comes first where there is none yet."""
    flags = {name: flag["value"] for name, flag in summary.entry["flags"].items()}
    export = flags.get("export_dir") or join(directory, "export")
    ask = f"printf '%s\\n' {shlex.quote(example)} | \\\n  python -m modeling.predict --saved_model="
    ask += shlex.quote(export)
    if flags.get("do_export") or tf.io.gfile.isdir(export):
        return ask
    # Where initial weights are given they count, and not what was made of them.
    trained = flags.get("do_train") and not flags.get("feature_based")
    arguments, given = iter(summary.entry["command"]), []
    for argument in arguments:
        name, equals, _ = argument.lstrip("-").partition("=")
        if trained and argument.startswith("-") and _START.fullmatch(name):
            if not equals:
                next(arguments, None)
        elif not _JOB.fullmatch(argument):
            given.append(argument)
    return f"{shlex.join(['python', *given, '--do_export'])}\n{ask}"
