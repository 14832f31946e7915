"""The card and the page: whole, self-contained, and hostile texts stay texts."""

import dataclasses
import html.parser
import os
import re
import subprocess

import numpy as np
import pytest
import yaml

from modeling.training.reports.calibration import measure_reliability
from modeling.training.reports.card import card_markdown
from modeling.training.reports.contents import (
    Mistake,
    ReportMatrix,
    ReportTable,
    TaskReport,
    table_by_length,
)
from modeling.training.reports.drawings import numbers_drawing
from modeling.training.reports.facts import JudgedSplit, RunFacts, command_to_ask
from modeling.training.reports.page import page_html
from modeling.training.reports.writing import write_reports
from modeling.training.runs.summary import RunSummary

HOSTILE = "\"'></p><script>alert(1)</script><img src=x onerror=alert(1)>{{ 7*7 }}```\n---\n| a: [b]"


def report(**fields) -> TaskReport:
    rng = np.random.default_rng(0)
    right = (rng.random(90) < 0.8).astype(float)
    usual = {
        "task": "text-classification",
        "described": f"one of 2 labels ({HOSTILE}, yes)",
        "data": HOSTILE,
        "examples": 90,
        "unit": "examples",
        "results": {"eval_accuracy": float(right.mean()), "eval_pearson": float("nan")},
        "intervals": {"eval_accuracy": (0.7, 0.9), "eval_pearson": (float("nan"),) * 2},
        "outcomes": right,
        "lengths": rng.integers(3, 60, 90),
        "calibrations": {HOSTILE: measure_reliability(rng.random(90), right)},
        "tables": [ReportTable(HOSTILE, ["label", "F1"], [[HOSTILE, 0.5], ["yes", 1234]], HOSTILE)],
        "matrices": [ReportMatrix("Confusions", [HOSTILE, "b", "c"], np.arange(9).reshape(3, 3))],
        "mistakes": [Mistake(HOSTILE, HOSTILE, HOSTILE, 0.9, [(HOSTILE, HOSTILE), ("b", "ß 漢")])],
        "limits": [HOSTILE],
        "example": HOSTILE,
    }
    return TaskReport(**usual | fields)


FACTS = RunFacts(HOSTILE, "BERT", 12, "TensorFlow 2", "a CPU", "2026-11-25", {"task_name": HOSTILE})
LINES = [
    {"kind": "train", "step": 1, "loss": 0.7, "accuracy": 0.5},
    {"kind": "train", "step": 2, "loss": None, "accuracy": 0.6},
    {"kind": "eval", "step": 2, "eval_loss": 0.6, "eval_accuracy": 0.8},
]


class Read(html.parser.HTMLParser):
    """Tags, attributes and texts of a page."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.attributes, self.texts = set(), set(), []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_data(self, data):
        self.texts.append(data)


def judged(**fields) -> JudgedSplit:
    return JudgedSplit("dev", "0123456789abcdef", report(**fields), 2.0)


def test_hostile_texts_stay_texts():
    page = page_html(FACTS, judged(), LINES, HOSTILE)
    read = Read(page)
    assert not read.tags & {"script", "img", "link", "iframe", "object"}
    assert not {name for name in read.attributes if name.startswith("on")} | (
        read.attributes & {"src", "href"}
    )
    text = "".join(read.texts)
    # Name, data, described, table (3), confusions (4, one in pairs), calibration, mistake (5), …
    assert text.count(HOSTILE) >= 15
    assert text.count("{{ 7*7 }}") == text.count("7*7") > 0


def test_page_needs_nothing_from_elsewhere():
    page = page_html(FACTS, judged(), LINES, "ask")
    assert not re.search(r"https?://|url\(|@import", page)
    assert page.count("<svg") == 4  # loss, scores, length, reliability


def test_numbers_are_those_of_the_report():
    text = "".join(Read(page_html(FACTS, judged(), LINES, "ask")).texts)
    given = report()
    assert f"{given.results['eval_accuracy']:.4f}" in text and "0.700 to 0.900" in text
    assert "undefined" in text
    error = given.calibrations[HOSTILE].expected_error
    assert f"Expected calibration error {error:.4f} over 90 answers, 15 bins" in text
    assert "1,234" in text


def test_card_has_a_head_that_hubs_read():
    card = card_markdown(FACTS, [judged(), judged(data="other")], HOSTILE)
    _, head, body = re.split(r"^---$", card, maxsplit=2, flags=re.MULTILINE)
    head = yaml.safe_load(head)
    assert head["library_name"] and head["tags"] and "language" not in head
    first, other = head["model-index"][0]["results"]
    assert first["dataset"]["name"] == HOSTILE and other["dataset"]["name"] == "other"
    assert re.fullmatch(r"[\w.-]+", first["dataset"]["type"])
    # An undefined value is none.
    assert first["metrics"] == [
        {"type": "accuracy", "name": "accuracy", "value": report().results["eval_accuracy"]}
    ]
    outside = re.sub(r"^````bash.*?^````$", "", body, flags=re.DOTALL | re.MULTILINE)
    assert re.search("script", outside) and not re.search(r"(?<!\\)<\w", outside)
    assert re.search(r"^````bash$", body, re.MULTILINE)  # longer than what the text has


def test_bins_of_length_hold_everything_once():
    given = report()
    bins = table_by_length(given)
    assert sum(count for _, _, count, _ in bins) == 90
    assert sum(count * mean for _, _, count, mean in bins) == pytest.approx(given.outcomes.sum())
    for low, high, count, mean in bins:
        inside = (given.lengths >= low) & (given.lengths <= high)
        assert inside.sum() == count and given.outcomes[inside].mean() == pytest.approx(mean)
    assert table_by_length(report(lengths=np.full(90, 7)))[0][:3] == (7, 7, 90)
    assert table_by_length(report(outcomes=np.full(90, np.nan))) == []


def test_a_page_of_many_classes_shows_what_is_confused_most():
    names = [f"class {number}" for number in range(200)]
    counts = np.eye(200, dtype=int) * 3
    counts[17, 171] = 9
    page = page_html(FACTS, judged(matrices=[ReportMatrix("Confusions", names, counts)]), [], "")
    assert "<small>" not in page and "class 171" in page and "class 18<" not in page


def test_numbers_are_drawn():
    gold = np.linspace(0, 5, 3000)
    fields = {"numbers": (gold, gold + 1), "outcome": "absolute error", "outcomes": np.ones(90)}
    page = page_html(FACTS, judged(**fields), [], "")
    assert 1000 < page.count("<circle") < 2500


def test_command_is_for_the_shell(tmp_path):
    summary = RunSummary(str(tmp_path))
    summary.entry["command"] = ["run.py", "--do_train", "--do_eval=true", "--init_checkpoint=a b"]
    summary.entry["command"] += ["--init_checkpoint", "c d", "--teacher=t", "--match_weight=2"]
    summary.entry["command"] += ["--student_num_layers=3", "--teacher_temperature", "2"]
    summary.entry["command"] += ["--task_name=my do_train", f"--output_dir={tmp_path}"]
    summary.entry["flags"] = {"do_train": {"value": True, "given": True}}
    first, ask, last = command_to_ask(str(tmp_path), summary, HOSTILE.replace("\n", " ")).split(
        "\n"
    )
    # The weights that were trained count, and not those that they were made of.
    assert first == f"python run.py '--task_name=my do_train' --output_dir={tmp_path} --do_export"
    shown = subprocess.run(["sh", "-c", ask.removesuffix("| \\")], capture_output=True, text=True)
    assert shown.stdout == HOSTILE.replace("\n", " ") + "\n"
    assert last == f"  python -m modeling.predict --saved_model={tmp_path}/export"
    os.mkdir(tmp_path / "export")
    assert "--do_export" not in command_to_ask(str(tmp_path), summary, "a")


def test_files_are_written_whole(tmp_path):
    other = dataclasses.replace(judged(), name="dev_mismatched")
    write_reports(str(tmp_path), [judged(), other], RunSummary(str(tmp_path)), 3)
    assert sorted(os.listdir(tmp_path)) == [
        "model_card.md",
        "report.html",
        "report_dev_mismatched.html",
    ]
    write_reports(str(tmp_path / "none"), [], RunSummary(str(tmp_path)), 3)
    assert not os.path.exists(tmp_path / "none")


@pytest.mark.parametrize("value", [0.0, 1e17, -1e300])
def test_numbers_that_are_all_alike_are_drawn(value):
    assert "<circle" in numbers_drawing(np.full(3, value), np.full(3, value))
