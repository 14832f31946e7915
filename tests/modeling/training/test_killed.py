"""Runs that are killed at any moment end as if they had never been."""

import pathlib
import random
import signal
import time

import numpy as np
import pytest

from modeling.training.runs import run_folder
from tests.modeling.training.killable import STEPS
from tests.scripts import Script

ROOT = pathlib.Path(__file__).resolve().parents[3]


def start(folder, replicas, fatal_operation=0, recipe="paper") -> Script:
    program = "tests.modeling.training.killable"
    return Script("-m", program, folder, replicas, fatal_operation, recipe)


def finish(process: Script) -> str:
    ended = process.wait()
    assert ended.returncode == 0, ended.stderr[-3000:]
    return ended.stdout + ended.stderr


def steps(folder) -> list[int]:
    return sorted(int(p.stem.split("-")[1]) for p in folder.glob("model.ckpt-*.index"))


def interrupt(folder, replicas, number, wait, recipe="paper") -> int:
    """Starts the run and sends it a signal `wait` seconds after its next checkpoint; its code."""
    process = start(folder, replicas, recipe=recipe)
    before = steps(folder)
    while steps(folder) == before and process.poll() is None:
        time.sleep(0.002)
    time.sleep(wait)
    process.send_signal(number)
    return process.wait(60).returncode


def weights(folder) -> dict[str, np.ndarray]:
    with np.load(folder / "weights.npz") as file:
        return dict(file)


def check(tmp_path, replicas, kills, deaths_in_writes, terms, tolerance, recipe="paper") -> None:
    finish(start(tmp_path / "whole", replicas, recipe=recipe))
    folder = tmp_path / "killed"
    draw = random.Random(replicas)
    ended = []
    for operation in deaths_in_writes:
        ended.append(start(folder, replicas, operation, recipe).wait(120).returncode)
    for number in [signal.SIGKILL] * kills + [signal.SIGTERM] * terms:
        ended.append(interrupt(folder, replicas, number, draw.uniform(0, 0.1), recipe))
    # A run that had already got to its end before the signal came proves nothing.
    assert ended.count(-signal.SIGKILL) >= 0.8 * (kills + len(deaths_in_writes))
    # Past the end of training a signal does what it does to any program.
    assert set(ended) <= {-signal.SIGKILL, 143} | (
        {-signal.SIGTERM, 0} if STEPS in steps(folder) else set()
    )
    finish(start(folder, replicas, recipe=recipe))
    expected, values = weights(tmp_path / "whole"), weights(folder)
    for name, value in expected.items():
        if tolerance:
            np.testing.assert_allclose(values[name], value, atol=tolerance, err_msg=name)
        else:
            np.testing.assert_array_equal(values[name], value, err_msg=name)


@pytest.mark.slow
def test_killed_and_resumed(tmp_path):
    check(tmp_path, 1, kills=2, deaths_in_writes=[2, 9], terms=1, tolerance=0)


@pytest.mark.slow
@pytest.mark.hours
def test_killed_twenty_times_and_told_to_stop_five_times(tmp_path):
    deaths = [1, 2, 3, 4, 5, 6, 11, 17]
    check(tmp_path, 1, kills=12, deaths_in_writes=deaths, terms=5, tolerance=0)


@pytest.mark.slow
@pytest.mark.hours
def test_a_fast_run_is_killed_ten_times(tmp_path):
    check(tmp_path, 1, kills=6, deaths_in_writes=[1, 4, 7, 12], terms=0, tolerance=0, recipe="fast")


@pytest.mark.slow
@pytest.mark.hours
@pytest.mark.parametrize(("kills", "deaths", "terms"), [(2, [3], 1), (4, [3, 8], 2)])
def test_killed_on_two_replicas(tmp_path, kills, deaths, terms):
    check(tmp_path, 2, kills=kills, deaths_in_writes=deaths, terms=terms, tolerance=1e-6)


@pytest.mark.hours
@pytest.mark.slow
def test_truncated_checkpoint_falls_back(tmp_path):
    finish(start(tmp_path / "whole", 1))
    folder = tmp_path / "cut"
    interrupt(folder, 1, signal.SIGTERM, 0.05)
    older, newest = steps(folder)
    data = folder / f"model.ckpt-{newest}.data-00000-of-00001"
    data.write_bytes(data.read_bytes()[: data.stat().st_size // 2])
    assert run_folder.latest_run_checkpoint(str(folder)).endswith(f"model.ckpt-{older}")
    output = finish(start(folder, 1))
    assert "Damaged, so the checkpoint before it counts" in output
    assert f"model.ckpt-{newest}" in output
    expected, values = weights(tmp_path / "whole"), weights(folder)
    assert all((values[name] == value).all() for name, value in expected.items())


def test_damaged_ones_no_longer_count(tmp_path):
    for step in (8, 16, 24):
        (tmp_path / f"model.ckpt-{step}.index").write_text(f"{step}")
    run_folder.set_damaged_run_aside(str(tmp_path), 8)
    assert steps(tmp_path) == run_folder.run_checkpoint_steps(str(tmp_path)) == [8]
    assert (tmp_path / "model.ckpt-24.index.damaged").read_text() == "24"
