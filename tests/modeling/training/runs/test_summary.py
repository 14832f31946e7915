"""run_summary.json: what it holds, how a session ends in it, and that it stops no run."""

import json
import os
import subprocess
import sys
import types

import numpy as np
import pytest
import tensorflow as tf
from absl import flags

from modeling.config import BertConfig
from modeling.training.runs import summary
from modeling.training.runs.reporting import Reporter
from modeling.training.runs.summary import RunSummary, given_run_flags


def sessions(folder):
    return json.loads((folder / summary.FILE).read_text(encoding="utf-8"))["sessions"]


class Parts:
    """As a script has them: a model, a step and a reporter."""

    def __init__(self, folder):
        self.config = BertConfig.named("tiny", 30)
        self.model = types.SimpleNamespace(config=self.config, count_params=lambda: 123)
        self.train_step = types.SimpleNamespace(global_step=tf.Variable(5, dtype=tf.int64))
        self.reporter = Reporter(str(folder), 10, 8)

    def attach(self, run):
        run.attach(model=self.model, train_step=self.train_step, reporter=self.reporter)


def test_a_finished_session(tmp_path, caplog):
    parts = Parts(tmp_path)
    given = {"learning_rate": {"value": 1e-4, "given": True}}
    with caplog.at_level("INFO"), RunSummary(str(tmp_path), flags=given) as run:
        parts.attach(run)
        assert sessions(tmp_path)[0]["ended"] is None  # so a killed run leaves its flags behind
        parts.train_step.global_step.assign(9)
        parts.reporter.write("train", 9, {"loss": 0.25})
        parts.reporter.write("eval", 9, {"accuracy": float("nan")})
        run.entry |= {"note": np.float32(1.5), "shape": (1, 2)}
    (entry,) = sessions(tmp_path)
    assert entry["ended"] == "finished" and entry["error"] is None
    assert (entry["from_step"], entry["to_step"], entry["parameters"]) == (5, 9, 123)
    assert entry["config"] == parts.config.to_dict()
    assert entry["flags"] == given
    assert entry["final"]["train"] == {"step": 9, "loss": 0.25}
    assert entry["final"]["eval"] == {"step": 9, "accuracy": None}
    assert (entry["note"], entry["shape"]) == (1.5, [1, 2])
    assert entry["versions"]["tensorflow"] == tf.__version__
    assert entry["versions"]["python"] == ".".join(map(str, sys.version_info[:3]))
    assert entry["hardware"]["replicas"] == entry["hardware"]["workers"] == 1
    assert entry["hardware"]["cores"] >= 1
    started, ended = (
        summary.datetime.datetime.fromisoformat(entry[k]) for k in ("started", "ended_at")
    )
    assert started.utcoffset() == summary.datetime.timedelta(0) and started <= ended
    assert entry["wall_seconds"] >= 0
    (line,) = [m for m in caplog.messages if m.startswith("Run finished")]
    assert "steps 5 to 9, 123 parameters, 1 replica(s)" in line


@pytest.mark.parametrize(
    ("error", "ended", "message"),
    [
        (SystemExit(130), "interrupted", None),
        (SystemExit(143), "interrupted", None),
        (KeyboardInterrupt(), "interrupted", None),
        (SystemExit(1), "failed", "SystemExit: 1"),
        (ValueError("no good"), "failed", "ValueError: no good"),
    ],
)
def test_how_a_session_ends(tmp_path, error, ended, message):
    parts = Parts(tmp_path)
    with pytest.raises(type(error)), RunSummary(str(tmp_path)) as run:
        parts.attach(run)
        raise error
    (entry,) = sessions(tmp_path)
    assert (entry["ended"], entry["error"]) == (ended, message)


def test_sessions_add_up(tmp_path):
    for note in (1, 2):
        with RunSummary(str(tmp_path)) as run:
            run.entry["note"] = note
            run.attach()
    assert [entry["note"] for entry in sessions(tmp_path)] == [1, 2]
    first, second = sessions(tmp_path)
    killed = json.dumps({"sessions": [first | {"wall_seconds": None}, second]})
    (tmp_path / summary.FILE).write_text(killed)
    assert RunSummary(str(tmp_path)).killed_sessions == 1
    (tmp_path / summary.FILE).write_text('{"sess')
    with RunSummary(str(tmp_path)) as run:
        run.entry["note"] = 3
        run.attach()
    with pytest.raises(ValueError), RunSummary(str(tmp_path)):
        raise ValueError("before it began")
    assert [entry["note"] for entry in sessions(tmp_path)] == [3]
    assert sorted(p.name for p in tmp_path.iterdir()) == [summary.FILE]


def test_nothing_that_is_missing_stops_the_run(tmp_path, monkeypatch, caplog):
    """No git, no /proc, no versions, a model that can't be counted; then no folder either."""

    def absent(*_, **__):
        raise OSError("absent")

    monkeypatch.setattr(summary.subprocess, "run", absent)
    monkeypatch.setattr(summary.importlib.metadata, "version", absent)
    monkeypatch.setattr(summary.os, "sysconf", absent)
    monkeypatch.setattr("builtins.open", absent)
    for name in ("get_device_details", "get_memory_info"):
        monkeypatch.setattr(summary.tf.config.experimental, name, absent)
    with RunSummary(str(tmp_path)) as run:
        run.attach(model=types.SimpleNamespace())
    monkeypatch.undo()
    (entry,) = sessions(tmp_path)
    assert entry["ended"] == "finished"
    assert entry["git"] is None and entry["versions"]["tensorflow-text"] is None
    assert entry["parameters"] is None and entry["hardware"]["memory_bytes"] is None
    assert entry["peak_memory_bytes"] > 2**20  # from getrusage
    (tmp_path / "file").write_text("")
    with RunSummary(str(tmp_path / "file")) as run:
        run.attach()
    assert "can't be written" in caplog.text


def test_peak_memory_is_that_of_this_process():
    before = summary._peak_memory()
    grown = np.ones(60 * 2**20, np.uint8)
    with open("/proc/self/statm", encoding="utf-8") as file:
        resident = int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    assert grown.all()
    assert summary._peak_memory() >= max(before, 0.95 * resident)
    assert summary._peak_memory() < 1.5 * max(before, resident)


def test_commit_and_changes(tmp_path, monkeypatch):
    """A checkout of the project's shape, seen clean, changed, and from inside another one."""

    def git(*arguments):
        identity = ["-c", "user.name=a", "-c", "user.email=a@b.c"]
        command = ["git", "-C", str(tmp_path), *identity, *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    module = tmp_path / "modeling" / "training" / "runs" / "summary.py"
    module.parent.mkdir(parents=True)
    module.write_text("1\n")
    monkeypatch.setattr(summary, "__file__", str(module))
    monkeypatch.setenv("GIT_DIR", "/nowhere")
    assert summary._attempt(summary._git) is None
    with monkeypatch.context() as patched:
        patched.delenv("GIT_DIR")
        git("init", "-q")
        git("add", "modeling")
        git("commit", "-q", "-m", "a")
        commit = git("rev-parse", "HEAD")
    (tmp_path / "untracked").write_text("an output folder, for example")
    assert summary._git() == {"commit": commit, "dirty": False}
    module.write_text("2\n")
    assert summary._git() == {"commit": commit, "dirty": True}
    inner = tmp_path / "vendored" / "modeling" / "training" / "runs" / "summary.py"
    monkeypatch.setattr(summary, "__file__", str(inner))
    inner.parent.mkdir(parents=True)
    assert summary._git() is None


def test_given_flags():
    values = flags.FlagValues()
    options = {"flag_values": values, "module_name": "run_x"}
    flags.DEFINE_float("rate", 0.1, "", **options)
    flags.DEFINE_string("folder", None, "", **options)
    flags.DEFINE_bool("demo", False, "", **options)
    flags.DEFINE_integer("verbosity", 0, "", flag_values=values, module_name="absl.logging")
    values(["script", "--rate=0.1"])
    values["demo"].value = True
    assert given_run_flags(values) == {
        "rate": {"value": 0.1, "given": True},
        "folder": {"value": None, "given": False},
        "demo": {"value": True, "given": False},
    }


def test_other_workers_write_nothing(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(summary, "is_chief", lambda: False)
    with caplog.at_level("INFO"), RunSummary(str(tmp_path)) as run:
        run.attach()
    assert not list(tmp_path.iterdir()) and not caplog.messages
