"""What the reporter writes and shows: files, status lines, progress bar, plot."""

import fcntl
import json
import math
import os
import pathlib
import pty
import re
import struct
import subprocess
import sys
import termios

import matplotlib.image
import pytest
import tensorflow as tf

from modeling.training.runs import reporting
from modeling.training.runs.reporting import Reporter, write_run_results

ROOT = pathlib.Path(__file__).resolve().parents[4]


def history(steps=2, **others):
    """As of `steps` steps with 3 real tokens in 4 places each."""
    pairs = {
        "loss": [(2.0 + step, 1.0) for step in range(steps)],
        "masked_lm_accuracy": [(step, 4.0) for step in range(steps)],
        "tokens": [(3.0, 4.0)] * steps,
        "learning_rate": [(1e-4 * (step + 1), 1.0) for step in range(steps)],
        "gradient_norm": [(5.0, 1.0)] * steps,
    }
    return pairs | others


def lines(folder):
    def refuse(word):
        raise ValueError(word)  # NaN and Infinity, which JSON doesn't have

    text = (folder / reporting.METRICS_FILE).read_text(encoding="utf-8")
    return [json.loads(line, parse_constant=refuse) for line in text.splitlines()]


def scalars(folder):
    """Name → {step: value} of the event files."""
    found = {}
    for path in folder.glob("events*"):
        for event in tf.compat.v1.train.summary_iterator(str(path)):
            for value in event.summary.value:
                found.setdefault(value.tag, {})[event.step] = float(tf.make_ndarray(value.tensor))
    return found


@pytest.fixture
def clock(monkeypatch):
    """A clock that stands until a test moves it."""
    now = [100.0]
    monkeypatch.setattr(reporting.time, "perf_counter", lambda: now[0])
    return now


def test_files_hold_rates_and_padding(tmp_path, clock, caplog):
    reporter = Reporter(str(tmp_path), 10, 8, bar=False)
    reporter.add(history())
    reporter.batch_size = 4  # the next phase's
    reporter.add(history())
    clock[0] += 2.0
    with caplog.at_level("INFO"):
        reporter.report(4)
    (line,) = lines(tmp_path)
    assert line == {
        "kind": "train",
        "step": 4,
        "loss": 2.5,
        "masked_lm_accuracy": 0.125,
        "learning_rate": 2e-4,
        "gradient_norm": 5.0,
        "examples_per_second": 12.0,  # (2·8 + 2·4) / 2 s
        "tokens_per_second": 6.0,
        "padding_share": 0.25,
    }
    assert caplog.messages == [
        "step 4/10  loss 2.5000  mlm_accuracy 0.1250  lr 0.0002  12.0 examples/s  ETA 0:03"
    ]
    events = scalars(tmp_path)
    assert events.keys() == {f"train/{name}" for name in line if name not in ("kind", "step")}
    assert all(value == {4: pytest.approx(line[n[6:]])} for n, value in events.items())


def test_share_of_the_peak(tmp_path, clock, caplog):
    reporter = Reporter(str(tmp_path), 10, 8, bar=False)
    reporter.peak_flops = 8e9
    for step, seconds in ((2, 2.0), (4, 0.25)):
        reporter.add(history(flops=[(3e9, 1.0), (1e9, 1.0)]))
        clock[0] += seconds
        with caplog.at_level("INFO"):
            reporter.report(step)
    slow, fast = lines(tmp_path)
    assert (slow["flops_per_second"], slow["flops_utilisation"]) == (2e9, 0.25)
    assert caplog.messages[0].endswith("ETA 0:08  25 % of peak FLOPs")
    # Faster than at its peak: that was measured too low.
    assert (fast["flops_per_second"], fast["flops_utilisation"]) == (16e9, 1.0)
    assert "flops" not in fast


def test_an_unknown_peak_has_no_share(tmp_path):
    reporter = Reporter(str(tmp_path), 10, 8, bar=False)
    reporter.add(history(flops=[(3e9, 1.0)] * 2))
    reporter.report(2)
    assert "flops_utilisation" not in lines(tmp_path)[0]


def test_batches_without_a_mask_have_no_token_figures(tmp_path):
    reporter = Reporter(str(tmp_path), 10, 8, bar=False)
    values = history()
    del values["tokens"]
    reporter.add(values)
    reporter.report(2)
    assert not {"tokens_per_second", "padding_share"} & lines(tmp_path)[0].keys()


def test_skipped_updates_are_counted_and_spoil_no_mean(tmp_path, caplog):
    reporter = Reporter(str(tmp_path), 10, 8, bar=False)
    skipped = {
        "loss": [(math.inf, 1.0), (3.0, 1.0), (-math.inf, 1.0)],
        "gradient_norm": [(0.0, 0.0), (7.0, 1.0), (0.0, 0.0)],
        "loss_scale": [(1024.0, 1.0), (512.0, 1.0), (512.0, 1.0)],
        "skipped_updates": [(1.0, 1.0), (0.0, 1.0), (1.0, 1.0)],
    }
    reporter.add(history(3, **skipped))
    with caplog.at_level("INFO"):
        reporter.report(3)
    reporter.add(history(1, **{name: pairs[:1] for name, pairs in skipped.items()}))
    reporter.report(4)
    some, all_skipped = lines(tmp_path)
    assert (some["loss"], some["gradient_norm"]) == (3.0, 7.0)
    assert (some["loss_scale"], some["skipped_updates"]) == (512.0, 2.0)
    assert "(2 of 3 updates skipped, loss scale 512)" in caplog.messages[0]
    assert not {"loss", "gradient_norm"} & all_skipped.keys()
    assert all_skipped["skipped_updates"] == 1.0


def test_values_that_are_not_finite_come_back(tmp_path):
    reporter = Reporter(str(tmp_path), 10, 8, bar=False)
    reporter.write("eval", 1, {"accuracy": 0.5})
    reporter.write("eval", 2, {"accuracy": math.nan})
    assert lines(tmp_path)[1]["accuracy"] is None
    again = Reporter(str(tmp_path), 10, 8, bar=False)
    for one in (reporter, again):
        (first, second) = one.curve("eval", "accuracy")
        assert first == (1, 0.5)
        assert second[0] == 2 and math.isnan(second[1])
    assert again.last("eval") == {"step": 2, "accuracy": None}
    assert again.last("train") == {}
    again.resume(1)
    assert len(lines(tmp_path)) == 1


def test_other_workers_are_silent(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(reporting, "is_chief", lambda: False)
    reporter = Reporter(str(tmp_path), 10, 8, bar=True)
    with caplog.at_level("INFO"):
        reporter.resume(0)
        reporter.add(history())
        reporter.report(2)
        reporter.write("eval", 2, {"accuracy": 0.5})
        assert reporter.curve("eval", "accuracy") == [(2, 0.5)]
        reporter.plot("curves.png", {"Loss": ["loss"]})
        write_run_results(str(tmp_path), "eval_results.txt", {"accuracy": 0.5})
    assert not caplog.messages
    assert not list(tmp_path.iterdir())


def test_plot_leaves_out_empty_panels(tmp_path):
    reporter = Reporter(str(tmp_path), 10, 8, bar=False)
    for step in (1, 2):
        reporter.write("train", step, {"loss": 3.0 - step})
        reporter.write("eval", step, {"loss": math.nan, "perplexity": 100.0**step})
    widths = []
    for titles in (["loss", "perplexity", "accuracy"], ["loss"], ["accuracy"]):
        path = reporter.plot("curves.png", {title: [title] for title in titles})
        widths.append(matplotlib.image.imread(path).shape[1])
    assert widths[0] == pytest.approx(2 * widths[1], abs=2)
    assert widths[2] == widths[1]


SCRIPT = """
from absl import logging
from modeling import errors
from modeling.errors import ModelingError
from modeling.training.runs import reporting

def main(_):
    reporter = reporting.Reporter(FOLDER, 40, 8)
    reporting.BAR_SECONDS = 0.0
    step = {"loss": [(2.0, 1.0)], "learning_rate": [(1e-4, 1.0)]}
    for number in range(1, 31):
        reporter.add(step)
        if number % 10 == 0:
            reporter.report(number)
            logging.error("an error at %d", number)
    reporter.close()
    logging.info("after the bar")
    raise ModelingError("the end")

errors.run(main)
"""


def test_progress_bar_tears_no_line(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.replace("FOLDER", repr(str(tmp_path))), encoding="utf-8")
    environment = os.environ | {"PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "3"}
    outputs = []
    for terminal in (True, False):
        ours, theirs = pty.openpty() if terminal else os.pipe()
        if terminal:
            fcntl.ioctl(ours, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 100, 0, 0))
        process = subprocess.Popen([sys.executable, str(script)], stderr=theirs, env=environment)
        os.close(theirs)
        output = b""
        while True:
            try:
                piece = os.read(ours, 65536)
            except OSError:  # how a pseudo-terminal ends
                break
            if not piece:
                break
            output += piece
        os.close(ours)
        assert process.wait() == 1
        outputs.append(output.decode())
    shown, plain = outputs
    assert "| step 5/40  loss 2.0000  lr 0.0001  " in shown
    assert "step 5/40" not in plain and "\r" not in plain and "\x1b" not in plain
    # What stays on the screen: each line as it stands after the last return to its start.
    left = [re.sub(r"\x1b\[A|\x1b\[K", "", row.rstrip("\r")) for row in shown.split("\n")]
    left = [row.rpartition("\r")[2].strip() for row in left]
    assert not [row for row in left if "| step" in row]
    times = r"\d\d:\d\d:\d\d |[\d.]+ examples/s|ETA .*"

    def lines_of(rows):
        wanted = [row for row in rows if re.match(r"\d\d:\d\d:\d\d |Error", row)]
        return [re.sub(times, "", row).strip() for row in wanted]

    expected = []
    for step in (10, 20, 30):
        expected += [f"step {step}/40  loss 2.0000  lr 0.0001", f"an error at {step}"]
    expected += ["after the bar", "Error: the end"]
    assert lines_of(left) == expected
    assert lines_of(plain.splitlines()) == expected


def test_bar_gives_the_handlers_back(tmp_path, capsys):
    before = list(reporting.getLogger().handlers)
    reporter = Reporter(str(tmp_path), 10, 8, bar=True)
    reporter.add(history())
    assert reporting.getLogger().handlers != before
    reporter.close()
    reporter.close()
    assert reporting.getLogger().handlers == before
    reporter.add(history())  # training goes on: the bar comes back where it was
    reporter.close()
    assert "step 4/10" in capsys.readouterr().err
