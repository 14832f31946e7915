"""Two processes that train together against one."""

import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time

import numpy as np
import pytest
import tensorflow as tf

from modeling.errors import ModelingError
from modeling.losses import PretrainingLosses
from modeling.training.engine import distribution
from modeling.training.engine.evaluation import Evaluator, ReplicaPredictor
from tests.modeling.training.engine.test_step import make_step
from tests.modeling.training.test_training import batches, records, tiny_model

ROOT = pathlib.Path(__file__).resolve().parents[3]


def free_ports(number: int) -> list[int]:
    sockets = [socket.socket() for _ in range(number)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def start_workers(folder, *arguments) -> list[subprocess.Popen]:
    addresses = [f"127.0.0.1:{port}" for port in free_ports(2)]
    processes = []
    for index in range(2):
        config = {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}}
        environment = os.environ | {
            "TF_CONFIG": json.dumps(config),
            "TF_CPP_MIN_LOG_LEVEL": "2",
            "PYTHONPATH": str(ROOT),
        }
        command = [sys.executable, "-m", "tests.modeling.training.two_workers", str(folder)]
        processes.append(
            subprocess.Popen(
                [*command, *arguments],
                cwd=ROOT,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
        )
    return processes


def finish(processes) -> list[str]:
    """Waits for both; their output."""
    try:
        return [process.communicate(timeout=240)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()


@pytest.mark.slow
def test_two_workers_equal_one_device(tmp_path):
    outputs = finish(start_workers(tmp_path))
    assert (tmp_path / "worker-1.npz").exists(), "\n".join(output[-3000:] for output in outputs)
    chief, other = (np.load(tmp_path / f"worker-{index}.npz") for index in range(2))
    step, weights = make_step(tiny_model(dropout_prob=0.0))
    losses = [total for total, _ in step.run(iter(batches()), 20)["loss"]]
    for worker in (chief, other):
        np.testing.assert_allclose(worker["losses"], losses, rtol=1e-6)
        for name, value in weights.items():
            if "key/bias" not in name:  # its true gradient is zero; Adam amplifies the rounding
                np.testing.assert_allclose(worker[name], value, atol=2e-5, err_msg=name)
    for name in weights:
        np.testing.assert_array_equal(chief[name], other[name])
    data = tf.data.Dataset.from_tensor_slices(records(32) | {"index": np.arange(32)}).batch(8)
    results = Evaluator(step.model, PretrainingLosses())(data)
    expected = [results[name] for name in sorted(results)]
    np.testing.assert_allclose(chief["evaluation"], expected, rtol=2e-5, atol=1e-5)
    expected = ReplicaPredictor(step.model, "pooled_output")(data)
    np.testing.assert_allclose(chief["predictions"], expected, atol=5e-5)
    assert (tmp_path / "model.ckpt-20.index").exists()
    # Both have the best weights, which the chief was slow to write, and both left.
    assert [list(worker["best"]) for worker in (chief, other)] == [[6, 1], [6, 1]]
    np.testing.assert_array_equal(chief["best_weights"], other["best_weights"])


@pytest.mark.slow
def test_a_signal_to_one_worker_stops_both_and_they_go_on(tmp_path):
    processes = start_workers(tmp_path, "2000")
    give_up = time.monotonic() + 120
    alive = lambda: all(process.poll() is None for process in processes)  # noqa: E731
    while not newest_steps(tmp_path) and alive() and time.monotonic() < give_up:
        time.sleep(0.2)
    processes[1].send_signal(signal.SIGTERM)
    outputs = finish(processes)
    assert [process.returncode for process in processes] == [143, 143], outputs[0][-3000:]
    stopped = max(newest_steps(tmp_path))
    assert 0 < stopped < 2000
    outputs = finish(start_workers(tmp_path, str(stopped + 4)))
    assert (tmp_path / "worker-0.npz").exists(), outputs[0][-3000:]
    step, _ = make_step(tiny_model(dropout_prob=0.0))
    losses = [total for total, _ in step.run(iter(batches()), stopped + 4)["loss"]]
    resumed = np.load(tmp_path / "worker-0.npz")["losses"]
    # Hundreds of steps let the rounding of another order of sums grow.
    np.testing.assert_allclose(resumed, losses[stopped:], rtol=1e-2)


CLUSTER = '{"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": %s}}'


def newest_steps(folder) -> list[int]:
    return [int(path.stem.split("-")[1]) for path in folder.glob("model.ckpt-*.index")]


@pytest.mark.parametrize(
    ("name", "config", "message"),
    [
        ("multi_worker_mirrored", None, "TF_CONFIG doesn't name several workers"),
        ("multi_worker_mirrored", "{broken", "isn't the JSON object"),
        ("auto", "[1]", "isn't the JSON object"),
        ("auto", '{"cluster": {"worker": null}}', "worker in its cluster has to be a list"),
        ("auto", '{"cluster": {"worker": "h:1"}}', "worker in its cluster has to be a list"),
        ("auto", CLUSTER % '"evaluator", "index": 0', "only chief and worker take part"),
        ("auto", CLUSTER % '"worker", "index": 2', "worker 2, which its cluster doesn't have"),
        ("horovod", None, "must be one of auto"),
    ],
)
def test_settings_that_cannot_work(monkeypatch, name, config, message):
    monkeypatch.delenv("TF_CONFIG", raising=False)
    if config is not None:
        monkeypatch.setenv("TF_CONFIG", config)
    with pytest.raises(ModelingError, match=message):
        distribution.get_strategy(name)


@pytest.mark.parametrize("name", ["no-such-tpu", "grpc://no-such-host.invalid:8470", "grpc://"])
def test_tpu_that_is_not_there(name, monkeypatch):
    def unresolved(*arguments, **named):
        raise OSError("Name or service not known")

    # As without a network; asking the real one takes as long as it likes.
    monkeypatch.setattr("socket.getaddrinfo", unresolved)
    monkeypatch.setattr("urllib.request.urlopen", unresolved)
    with pytest.raises(ModelingError, match=f"'{name}'.*not known.*--tpu_name") as caught:
        distribution.get_strategy(use_tpu=True, tpu_name=name)
    assert len(str(caught.value)) < 600


@pytest.mark.parametrize(
    ("told", "asked"),
    [
        ({"master": "grpc://10.0.0.2:8470"}, ("grpc://10.0.0.2:8470", None, None)),
        (
            {"use_tpu": True, "tpu_name": "my-tpu", "tpu_zone": "us-b", "gcp_project": "p"},
            ("my-tpu", "us-b", "p"),
        ),
        ({"use_tpu": True}, ("local", None, None)),
    ],
)
@pytest.mark.parametrize("cores", [None, 4, 8])
def test_the_tpu_that_flags_name(told, asked, cores, monkeypatch, caplog):
    class Resolver:
        def __init__(self, tpu, zone, project):
            self.named = tpu, zone, project

    class Strategy:
        num_replicas_in_sync = 4

        def __init__(self, resolver):
            self.resolver = resolver

    done = []
    monkeypatch.setattr("socket.getaddrinfo", lambda *arguments, **named: [])
    monkeypatch.setattr(tf.distribute.cluster_resolver, "TPUClusterResolver", Resolver)
    monkeypatch.setattr(tf.config, "experimental_connect_to_cluster", done.append)
    monkeypatch.setattr(tf.tpu.experimental, "initialize_tpu_system", done.append)
    monkeypatch.setattr(tf.distribute, "TPUStrategy", Strategy)
    strategy = distribution.get_strategy(**told, num_tpu_cores=cores)
    assert strategy.resolver.named == asked and done == [strategy.resolver] * 2
    told_of = "--num_tpu_cores is 8, but the TPU has 4; all of them are used." in caplog.text
    assert told_of == (cores == 8)


def test_tpu_and_another_strategy_contradict_each_other():
    with pytest.raises(ModelingError, match="use_tpu is set, but"):
        distribution.get_strategy("mirrored", use_tpu=True)


@pytest.mark.parametrize("visible", [None, "0", "", "-1"])
def test_gpus_that_tensorflow_cannot_use_are_told_of(visible, monkeypatch, tmp_path, caplog):
    for number in range(2):
        (tmp_path / f"nvidia{number}").touch()
    (tmp_path / "nvidiactl").touch()
    monkeypatch.setattr(distribution, "_GPU_FILES", str(tmp_path / "nvidia[0-9]*"))
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: [])
    monkeypatch.delenv("TF_CONFIG", raising=False)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    distribution.get_strategy()
    told = "This machine has 2 NVIDIA GPU(s), but TensorFlow can't use them" in caplog.text
    assert told == (visible not in ("", "-1"))
