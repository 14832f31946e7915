"""The files that spare a run the tokenising or computing of its features: none is needed."""

import signal
import time

import pytest

from tests import test_run_classifier
from tests.scripts import Script, run
from tests.test_run_classifier import command

folder = test_run_classifier.folder

# What a run on a disk that gets full meets: only in its folder of features, as if that were one.
FULL = """
import runpy, sys
import tensorflow as tf

File = tf.io.gfile.GFile

class OnFullDisk(File):
    def write(self, data):
        if "/features/" in str(self.name):
            raise tf.errors.ResourceExhaustedError(None, None, "No space left on device")
        super().write(data)

tf.io.gfile.GFile = OnFullDisk
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
# Dies when its features are written, before they get their name.
DYING = """
import os, runpy, signal, sys
import tensorflow as tf

rename = tf.io.gfile.rename

def die(source, target, overwrite=False):
    if "/features/" in str(target):
        os.kill(os.getpid(), signal.SIGKILL)
    rename(source, target, overwrite)

tf.io.gfile.rename = die
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
TRAIN = ("--do_train", "--num_train_steps=2")


@pytest.mark.slow
def test_a_full_disk_costs_a_warning(folder):
    ended = run("-c", FULL, *command(folder, "full", *TRAIN))
    assert "Traceback" not in ended.stderr, ended.stderr[-1500:]
    assert ended.returncode == 0, ended.stderr[-3000:]
    said = [line for line in ended.stderr.splitlines() if "No space left" in line]
    assert len(said) == 1 and "features" in said[0], ended.stderr
    assert (folder / "full" / "model.ckpt-2.index").exists()
    assert not list((folder / "full").glob("features/*"))


@pytest.mark.slow
def test_what_a_killed_run_left_of_pieces_goes(folder):
    died = run("-c", DYING, *command(folder, "killed", *TRAIN))
    assert died.returncode == -signal.SIGKILL, died.stderr[-3000:]
    (left,) = (folder / "killed" / "features").iterdir()
    ended = run(*command(folder, "killed", *TRAIN))
    assert ended.returncode == 0, ended.stderr[-3000:]
    (kept,) = (folder / "killed" / "features").iterdir()
    assert kept != left


# Computes vectors; "dying" is killed meanwhile, "slow" doesn't get to an end.
VECTORS = """
import os, signal, sys, time
from tests.data.vectors.test_store import WIDTH, Extract, rows
from data.vectors.store import stored_vectors

folder, how = sys.argv[1:]

def extract(batches, lengths):
    if how == "slow":
        print("under way", flush=True)
        time.sleep(100)
    if how == "dying":
        os.kill(os.getpid(), signal.SIGKILL)
    return Extract()(batches, lengths)

stored_vectors(folder, "train", rows(), "w", WIDTH, extract)
"""


def test_what_a_killed_run_left_of_vectors_goes(tmp_path):
    """But not what another process is still writing."""
    slow = Script("-c", VECTORS, tmp_path, "slow")
    try:
        while "under way" not in slow.read("stdout"):
            assert slow.poll() is None, slow.read("stderr")
            time.sleep(0.01)
        before = set(tmp_path.iterdir())
        died = run("-c", VECTORS, tmp_path, "dying")
        assert died.returncode == -signal.SIGKILL, died.stderr[-3000:]
        (left,) = set(tmp_path.iterdir()) - before
        ended = run("-c", VECTORS, tmp_path, "whole")
        assert ended.returncode == 0, ended.stderr[-3000:]
        assert len(before) == 1 and before < set(tmp_path.iterdir())
        assert not left.exists()
    finally:
        slow.send_signal(signal.SIGKILL)
