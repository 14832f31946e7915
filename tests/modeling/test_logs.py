"""Long work is never silent: what is shown of it, on a terminal and elsewhere."""

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios

import pytest

from modeling import logs
from tests.scripts import ROOT

# Three activities, one inside of another, and lines between.
SCRIPT = """
import sys, time
from absl import logging
from modeling import errors, logs
from modeling.errors import ModelingError

logs.SILENCE_SECONDS, logs._LOOK_SECONDS, logs._BAR_SECONDS = float(sys.argv.pop()), 0.05, 0.0

def main(_):
    with logs.activity("Compiling"), logs.only_warnings():
        logging.info("hidden")
        time.sleep(0.4)
    with logs.activity("Training", "steps", 40) as training:
        for number in range(1, 31):
            training.show(number, 40, "loss 2.0000")
            if number % 10 == 0:
                logging.info("step %d/40", number)
                logging.error("an error at %d", number)
        with logs.activity("Evaluating", "batches", 8) as evaluating:
            evaluating.add(2)
            time.sleep(0.4)
    logging.info("after the bar")
    raise ModelingError("the end")

errors.run(main)
"""


def shown(tmp_path, silence, terminal):
    """What the script leaves on stderr."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT, encoding="utf-8")
    environment = os.environ | {"PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "3"}
    ours, theirs = pty.openpty() if terminal else os.pipe()
    if terminal:
        fcntl.ioctl(ours, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 100, 0, 0))
    command = [sys.executable, str(script), str(silence)]
    process = subprocess.Popen(command, stderr=theirs, env=environment)
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
    return output.decode()


LINES = [
    *(text for n in (10, 20, 30) for text in (f"step {n}/40", f"an error at {n}")),
    *("after the bar", "Error: the end"),
]


def lines_of(rows):
    wanted = [row for row in rows if re.match(r"\d\d:\d\d:\d\d |Error", row)]
    return [re.sub(r"^\d\d:\d\d:\d\d ", "", row).strip() for row in wanted]


def test_progress_bar_tears_no_line(tmp_path):
    text = shown(tmp_path, 60, terminal=True)
    assert "| 5/40  Training  loss 2.0000" in text
    assert re.search(r"Compiling +00:0\d", text) and "| 2/8  Evaluating  " in text
    # What stays on the screen: each line as it stands after the last return to its start.
    left = [re.sub(r"\x1b\[A|\x1b\[K", "", row.rstrip("\r")) for row in text.split("\n")]
    left = [row.rpartition("\r")[2].strip() for row in left]
    assert not [row for row in left if re.search(r"\| \d+/|Compiling", row)]
    assert lines_of(left) == LINES


def test_nothing_is_drawn_elsewhere(tmp_path):
    text = shown(tmp_path, 60, terminal=False)
    assert "\r" not in text and "\x1b" not in text
    assert lines_of(text.splitlines()) == LINES


def test_silence_is_broken(tmp_path):
    rows = lines_of(shown(tmp_path, 0.15, terminal=False).splitlines())
    assert [row for row in rows if not row.startswith(("Compiling", "Training"))] == LINES
    assert rows[0] == "Compiling: 0:00 so far"
    training = [row for row in rows if row.startswith("Training")]
    assert training
    for row in training:
        assert row.startswith("Training: 30 of 40 steps, 75%, loss 2.0000; Evaluating: 2 of 8 ba")
        assert re.search(r", 25%, [\d.]+ a second, ETA 0:0\d$", row)
    # Of 0.4 seconds' silence at 0.15 seconds, and not again before as much has passed.
    assert len(training) <= 3


def test_before_anything_is_done():
    assert logs.Activity("Reading").line() == "Reading: 0:00 so far"
    assert logs.Activity("Reading", "rows", 10).line() == "Reading: 0:00 so far"


def test_an_error_ends_its_activity():
    before = list(logs._under_way)
    with pytest.raises(ValueError, match="x"), logs.activity("Reading") as reading:
        assert logs._under_way == [*before, reading]
        raise ValueError("x")
    assert logs._under_way == before


def test_durations():
    assert [logs.duration_text(s) for s in (5, 65, 3725)] == ["0:05", "1:05", "1:02:05"]
