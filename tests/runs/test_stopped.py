"""Runs that are told to stop: what the shell sees, and what the person at the terminal."""

import concurrent.futures
import os
import signal
import threading
import time

import pytest

from modeling.training.engine import loop
from tests import test_run_classifier
from tests.scripts import Script
from tests.test_run_classifier import command

folder = test_run_classifier.folder


def wait_for(text, script):
    end = time.monotonic() + 120
    while text not in script.read("stderr"):
        assert script.poll() is None and time.monotonic() < end, script.read("stderr")[-3000:]
        time.sleep(0.01)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["SIGINT", "SIGTERM"]
)
def test_half_a_training_is_no_success(folder, number, status):
    """So that `pretrain && finetune` doesn't go on."""
    out = folder / f"stopped{status}"
    train = ("--do_train", "--num_train_steps=1000000", "--log_steps=10")
    script = Script(*command(folder, out.name, *train))
    wait_for("step 10/", script)
    script.send_signal(number)
    ended = script.wait(120)
    assert list(out.glob("model.ckpt-*.index")), ended.stderr[-3000:]
    assert "To go on:" in ended.stderr and "Traceback" not in ended.stderr
    assert ended.returncode == status


# A call to TensorFlow that takes three seconds, as training does on a device. Only what is printed
# by the call itself tells when it ends: Python hears of a signal before anything else.
PROGRAM = """
import sys
import tensorflow as tf
from absl import logging
from tests.modeling.training.test_training import Run

logging.use_absl_handler()
logging.set_verbosity(logging.INFO)
run = Run(sys.argv[1], steps=1000)
steps = run.step.run

@tf.function
def long_call():
    tf.print("the call begins", output_stream=sys.stderr)
    end = tf.timestamp() + 3.0
    wait = tf.while_loop(lambda n: tf.timestamp() < end, lambda n: [n + 1], [tf.constant(0)])
    with tf.control_dependencies(wait):
        tf.print("the call ends", output_stream=sys.stderr)

def long_steps(*arguments):
    long_call()
    return steps(*arguments)

run.step.run = long_steps
run.go(save_checkpoints_steps=1000)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["SIGINT", "SIGTERM"])
def test_a_signal_is_heard_inside_of_a_long_call(tmp_path, number):
    script = Script("-c", PROGRAM, tmp_path)
    wait_for("the call begins", script)
    script.send_signal(number)
    ended = script.wait(120)
    assert "Stopped at step" in ended.stderr, ended.stderr[-3000:]
    during = ended.stderr.partition("the call begins")[2].partition("the call ends")[0]
    assert "stopping" in during


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["SIGINT", "SIGTERM"]
)
def test_a_second_signal_ends_a_long_call(tmp_path, number, status):
    script = Script("-c", PROGRAM, tmp_path)
    wait_for("the call begins", script)
    script.send_signal(number)
    wait_for("stopping", script)
    script.send_signal(number)
    ended = script.wait(120)
    assert "the call ends" not in ended.stderr and ended.returncode == status


def test_one_run_after_another_hears_signals():
    """As of a search; and nothing of the one before is left."""
    before = [signal.getsignal(signal.SIGTERM), os.listdir("/proc/self/fd"), threading.enumerate()]
    for number in (signal.SIGTERM, signal.SIGINT):
        with loop.LoopInterruption() as interruption:
            assert not interruption.wanted
            os.kill(os.getpid(), number)
            end = time.monotonic() + 10
            while not interruption.wanted and time.monotonic() < end:
                time.sleep(0.01)
        assert interruption.number == number
        with loop.LoopInterruption() as interruption:
            pass
        assert not interruption.wanted
    after = [signal.getsignal(signal.SIGTERM), os.listdir("/proc/self/fd"), threading.enumerate()]
    assert after == before and signal.set_wakeup_fd(-1) == -1


def test_beside_the_main_thread_nothing_is_heard():
    handlers = []

    def inside():
        with loop.LoopInterruption() as interruption:
            handlers.append(signal.getsignal(signal.SIGTERM))
        assert not interruption.wanted

    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        pool.submit(inside).result()
    assert handlers == [signal.getsignal(signal.SIGTERM)]
