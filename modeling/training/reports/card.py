"""`model_card.md`: what a model is and what it is worth, in the form that model hubs read.

The head is YAML: https://github.com/huggingface/hub-docs/blob/main/modelcard.md. What isn't known,
such as the language, is left out.
"""

import math
import re
from collections.abc import Sequence

import yaml

from modeling.training.reports.contents import TaskReport
from modeling.training.reports.facts import JudgedSplit, RunFacts
from modeling.training.reports.page import (
    interval_text,
    intervals_note,
    number_text,
    score_name,
)

LIBRARY = "tensorflow"
_PUNCTUATION = re.compile(r"([\\`*_{}\[\]()<>#|!&~])")


def card_markdown(facts: RunFacts, splits: Sequence[JudgedSplit], command: str) -> str:
    """The whole file.

    Args:
        facts: Of the run.
        splits: What was judged, at least one, the main one first.
        command: How to ask the model.
    """
    first = splits[0].report
    scores = [
        f"| {_plain(split.report.data)} | {score_name(name)} "
        f"| {number_text(value)} | {interval_text(split.report, name)} "
        f"| {split.report.examples:,} |"
        for split in splits
        for name, value in split.report.results.items()
    ]
    data = [
        f"- {_plain(split.report.data)}: {split.report.examples:,} "
        f"{split.report.unit}, content `{split.fingerprint}`"
        for split in splits
    ]
    limits = [
        f"- {_plain(split.report.data)}: {_plain(limit)}" if splits[1:] else f"- {_plain(limit)}"
        for split in splits
        for limit in (*split.report.limits, *_calibrations(split.report))
    ]
    settings = [f"| `--{name}` | {_plain(value)} |" for name, value in facts.settings.items()]
    # Longer than what a text may have of it.
    fence = "`" * max(3, *(len(run) + 1 for run in re.findall("`+", command)), 3)
    parts = [
        f"---\n{_head(facts, splits)}---",
        f"# {_plain(facts.name)}",
        f"{facts.model}, fine-tuned to give {_plain(first.described)}. Weights of step "
        f"{facts.step:,}, judged on {facts.date}; {facts.made}.",
        "## Data\n\n" + "\n".join(data),
        "## Scores\n\n| Data | Score | Value | 95 % interval | Examples |\n"
        "|---|---|---:|---|---:|\n" + "\n".join(scores),
        *map(_plain, dict.fromkeys(n for split in splits for n in split.report.notes)),
        intervals_note(first),
        "## Limits that were measured\n\n" + "\n".join(limits),
        f"## Speed\n\n{_plain(splits[0].speed)}, on {_plain(facts.machine)}.",
        f"## Ask it\n\n{fence}bash\n{command}\n{fence}",
        "## Settings\n\nFlags that were given; the others had their defaults.\n\n"
        "| Flag | Value |\n|---|---|\n" + "\n".join(settings),
    ]
    return "\n\n".join(parts) + "\n"


def _head(facts: RunFacts, splits: Sequence[JudgedSplit]) -> str:
    results = [
        {
            "task": {"type": split.report.task},
            "dataset": {
                "name": split.report.data,
                "type": re.sub(r"[^\w.-]+", "-", split.report.data).lower(),
                "split": split.name,
            },
            "metrics": [
                {"type": _metric(name), "name": score_name(name), "value": float(value)}
                for name, value in split.report.results.items()
                if math.isfinite(value)
            ],
        }
        for split in splits
    ]
    metrics = dict.fromkeys(metric["type"] for of in results for metric in of["metrics"])
    task = splits[0].report.task
    head = {
        "library_name": LIBRARY,
        "pipeline_tag": task,
        "tags": ["bert", task],
        "metrics": list(metrics),
        "model-index": [{"name": facts.name, "results": results}],
    }
    return yaml.safe_dump(head, sort_keys=False, allow_unicode=True)


def _calibrations(report: TaskReport) -> list[str]:
    return [
        f"Probability of {name}: expected calibration error {reliability.expected_error:.4f} over "
        f"{len(reliability.counts)} bins."
        for name, reliability in report.calibrations.items()
    ]


def _metric(name: str) -> str:
    return name.removeprefix("eval_").removeprefix("test_")


def _plain(text: str) -> str:
    """A text on one line that Markdown takes for nothing but text."""
    return _PUNCTUATION.sub(r"\\\1", " ".join(text.split()))
