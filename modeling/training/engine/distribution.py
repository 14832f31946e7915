"""Where a run computes: TPU, several machines, several GPUs, one device; and how it shares data."""

import glob
import json
import os
import socket
import urllib.parse
from typing import NamedTuple

import tensorflow as tf
from absl import logging

from modeling.errors import ModelingError
from modeling.training.engine.flags import STRATEGIES

_GPU_FILES = "/dev/nvidia[0-9]*"
"""What NVIDIA's driver makes on Linux, one for each GPU."""


def get_strategy(
    name: str = "auto",
    use_tpu: bool = False,
    tpu_name: str | None = None,
    tpu_zone: str | None = None,
    gcp_project: str | None = None,
    master: str | None = None,
    num_tpu_cores: int | None = None,
) -> tf.distribute.Strategy:
    """The strategy to train with. Call it before anything else of TensorFlow.

    Args:
        name: "auto" takes a TPU if one is asked for or named, several machines if TF_CONFIG
            names them, all GPUs if there are several, else one device. "mirrored" takes all GPUs,
            or all logical CPUs; "multi_worker_mirrored" the machines that TF_CONFIG names.
        use_tpu: Connects to a TPU and uses all its cores.
        tpu_name: Name or grpc:// address; None on a TPU VM means the local one.
        tpu_zone, gcp_project: Found out when None.
        master: The original's older way to give the address.
        num_tpu_cores: Cores that the caller expects; all are used, and a difference is reported.

    Raises:
        ModelingError: The TPU can't be reached, TF_CONFIG is missing or broken, or two of the
            arguments contradict each other.
    """
    if name not in STRATEGIES:
        raise ModelingError(
            f"--distribution_strategy must be one of {', '.join(STRATEGIES)}; got {name!r}."
        )
    if use_tpu and name not in ("auto", "tpu"):
        raise ModelingError(
            f"--use_tpu is set, but --distribution_strategy is {name}; leave out one of the two."
        )
    if name == "auto":
        machines = len(_cluster()) > 1
        wants_tpu = use_tpu or tpu_name or master
        name = "tpu" if wants_tpu else "multi_worker_mirrored" if machines else name
    if name == "tpu":
        strategy = _tpu(tpu_name or master or "local", tpu_zone, gcp_project, num_tpu_cores)
        device = "TPU"
    else:
        gpus = tf.config.list_physical_devices("GPU")
        for gpu in gpus:
            tf.config.experimental.set_memory_growth(gpu, True)
        device = "GPU" if gpus else "CPU"
        if not gpus:
            _tell_of_unused_gpus()
        if name == "multi_worker_mirrored":
            strategy = _multi_worker()
        elif name == "mirrored" or (name == "auto" and len(gpus) > 1):
            devices = tf.config.list_logical_devices(device)
            strategy = tf.distribute.MirroredStrategy([device.name for device in devices])
        else:
            strategy = tf.distribute.get_strategy()
    logging.info("Running on %d %s replica(s).", strategy.num_replicas_in_sync, device)
    return strategy


def _tell_of_unused_gpus() -> None:
    """Warns where the driver has GPUs and TensorFlow hasn't; that alone says so in C++'s log."""
    files = glob.glob(_GPU_FILES)
    if files and os.environ.get("CUDA_VISIBLE_DEVICES", "all") not in ("", "-1"):
        logging.warning(
            "This machine has %d NVIDIA GPU(s), but TensorFlow can't use them: the CPU computes. "
            "Usually CUDA's libraries are missing, which pip install 'tensorflow[and-cuda]==%s' "
            "brings; TROUBLESHOOTING.md beside modeling/training/README.md says what else it can "
            "be. If the CPU is wanted, CUDA_VISIBLE_DEVICES=-1 in the environment says so.",
            len(files),
            tf.__version__,
        )


def _tpu(address: str, zone: str | None, project: str | None, cores: int | None):
    try:
        if "://" in address:
            # TensorFlow would look for the host for minutes.
            socket.getaddrinfo(urllib.parse.urlsplit(address).hostname, None)
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(
            tpu=address, zone=zone, project=project
        )
        tf.config.experimental_connect_to_cluster(resolver)
        tf.tpu.experimental.initialize_tpu_system(resolver)
        strategy = tf.distribute.TPUStrategy(resolver)
    except (ValueError, RuntimeError, OSError, ImportError, tf.errors.OpError) as error:
        raise ModelingError(
            f"A TPU is asked for, but none was found (tpu_name {address!r}): "
            f"{' '.join(str(error).split())[:300]}. Check --tpu_name, --tpu_zone and "
            f"--gcp_project, and that tensorflow-tpu is installed; or leave out --use_tpu."
        ) from error
    if cores not in (None, strategy.num_replicas_in_sync):
        logging.warning(
            "--num_tpu_cores is %d, but the TPU has %d; all of them are used.",
            cores,
            strategy.num_replicas_in_sync,
        )
    return strategy


def _multi_worker():
    workers = _cluster()
    if len(workers) < 2:
        raise ModelingError(
            "--distribution_strategy is multi_worker_mirrored, but the environment variable "
            "TF_CONFIG doesn't name several workers. Set it on each machine, for example "
            """TF_CONFIG='{"cluster": {"worker": ["host1:12345", "host2:12345"]}, """
            """"task": {"type": "worker", "index": 0}}', with the machine's own index."""
        )
    try:
        return tf.distribute.MultiWorkerMirroredStrategy()
    except (ValueError, RuntimeError, tf.errors.OpError) as error:
        raise ModelingError(
            f"The workers of TF_CONFIG ({', '.join(workers)}) can't be joined: {error} Check that "
            f"each machine has its own task index and that the ports are open between them."
        ) from error


def _tf_config() -> dict:
    text = os.environ.get("TF_CONFIG", "")
    try:
        config = json.loads(text or "{}")
        problem = _tf_config_problem(config)
    except ValueError as error:
        problem = str(error)
    if problem:
        raise ModelingError(
            f"The environment variable TF_CONFIG isn't the JSON object it has to be ({problem}): "
            f"{text[:200]!r}."
        )
    return config


def _tf_config_problem(config) -> str:
    """What is wrong with a TF_CONFIG that has been read; "" if nothing is."""
    cluster, task = {}, {}
    if isinstance(config, dict):
        cluster, task = config.get("cluster", cluster), config.get("task", task)
    if not all(isinstance(part, dict) for part in (config, cluster, task)):
        return "it, its cluster and its task have to be objects"
    number = 0
    for job in ("chief", "worker"):
        addresses = cluster.get(job, [])
        if not isinstance(addresses, list) or not all(isinstance(a, str) for a in addresses):
            return f'{job} in its cluster has to be a list of addresses, as in ["host:port"]'
        number += len(addresses)
    if number < 2:
        return ""
    kind, index = task.get("type", "worker"), task.get("index", 0)
    if kind not in ("chief", "worker"):
        return f"the task's type is {kind!r}, but only chief and worker take part"
    if str(index) not in map(str, range(len(cluster.get(kind, [])))):
        return f"the task is {kind} {index!r}, which its cluster doesn't have"
    return ""


def _cluster() -> list[str]:
    """Addresses of the workers that TF_CONFIG names, the chief before the others."""
    cluster = _tf_config().get("cluster", {})
    return [*cluster.get("chief", []), *cluster.get("worker", [])]


def _is_multi_worker() -> bool:
    return isinstance(tf.distribute.get_strategy(), tf.distribute.MultiWorkerMirroredStrategy)


def strategy_on_tpu() -> bool:
    """Whether the present strategy computes on a TPU."""
    return isinstance(tf.distribute.get_strategy(), tf.distribute.TPUStrategy)


def team_of_workers(values) -> tuple[str, int]:
    """Name of the run that several processes make together, and number of this one.

    To be asked before there is a strategy.

    Args:
        values: The flag values that `get_strategy` is going to be called with.

    Returns:
        A name that all workers of TF_CONFIG know, and 0 for the chief; ("", 0) for one alone.
    """
    on_tpu = values.use_tpu or values.tpu_name or values.master
    if on_tpu or values.distribution_strategy not in ("auto", "multi_worker_mirrored"):
        return "", 0
    workers = _cluster()
    return (" ".join(workers), _task_index()) if len(workers) > 1 else ("", 0)


def worker_index() -> int:
    """Which of several workers this process is; 0 if it is the only one."""
    return _task_index() if _is_multi_worker() else 0


def _task_index() -> int:
    config = _tf_config()
    task, chiefs = config.get("task", {}), config["cluster"].get("chief", [])
    return int(task.get("index", 0)) + (len(chiefs) if task.get("type") == "worker" else 0)


def check_text_for_one_worker() -> None:
    """Raises ModelingError where several workers would have to make records from raw text."""
    if num_workers() > 1:
        raise ModelingError(
            "Several workers can't make records from raw text together: make them first with "
            "python -m data.create_pretraining_data, and give them as --input_file."
        )


def num_workers() -> int:
    """Processes that train together."""
    return len(_cluster()) if _is_multi_worker() else 1


def is_chief() -> bool:
    """Whether this process writes checkpoints and results: one of several workers does."""
    return worker_index() == 0


class _WorkerShare(NamedTuple):
    """What one process has to read of a data set.

    Attributes:
        num_shards: Processes that share the data set.
        shard_index: Which of them this is.
        batch_size: Of the batches that it has to make; see `distribute_dataset`.
        num_parts: So many of these make up the batch of one step.
        parts: Which of them are this process's.
    """

    num_shards: int
    shard_index: int
    batch_size: int
    num_parts: int
    parts: range


def share_of_worker(batch_size: int) -> _WorkerShare:
    """This process's part of batches of `batch_size` examples over all replicas."""
    if not _is_multi_worker():
        return _WorkerShare(1, 0, batch_size, 1, range(1))
    replicas = tf.distribute.get_strategy().num_replicas_in_sync
    own, index = replicas // num_workers(), worker_index()
    parts = range(index * own, (index + 1) * own)
    return _WorkerShare(num_workers(), index, batch_size // replicas, replicas, parts)


def batches_per_step() -> int:
    """Elements of a data set by the rule of `share_of_worker` that this process takes in a step."""
    return len(share_of_worker(1).parts)


def distribute_dataset(dataset: tf.data.Dataset):
    """A data set made by the rule of `share_of_worker` as one that deals batches to the replicas.

    One process makes batches for all its replicas, which are cut here; of several workers each
    makes those of single replicas.
    """
    strategy = tf.distribute.get_strategy()
    if _is_multi_worker():
        return strategy.distribute_datasets_from_function(lambda _: dataset)
    if strategy.num_replicas_in_sync == 1:
        return dataset
    return strategy.experimental_distribute_dataset(dataset)


def check_replica_batch_sizes(accumulation_steps: int, train_batch_size: int, **sizes: int) -> None:
    """Refuses batches that can't be divided as they have to be; raises ModelingError.

    On a TPU and with several workers all replicas take the same share; elsewhere they only have
    to when their share is cut further, into micro-batches.

    Args:
        accumulation_steps: Micro-batches of a replica's part of a training batch.
        train_batch_size: Over all replicas.
        **sizes: Flag name → batch size of an evaluation.
    """
    replicas = tf.distribute.get_strategy().num_replicas_in_sync
    even = strategy_on_tpu() or _is_multi_worker()
    if even or accumulation_steps > 1:
        _check_multiple(
            "train_batch_size",
            train_batch_size,
            replicas * accumulation_steps,
            f"{replicas} replica(s) times --gradient_accumulation_steps={accumulation_steps}",
        )
    for name, size in sizes.items():
        if even:
            _check_multiple(name, size, replicas, f"{replicas} replicas that share it evenly")


def _check_multiple(name: str, size: int, factor: int, reason: str) -> None:
    if size % factor:
        raise ModelingError(
            f"--{name} is {size}, but there are {reason}. Make it a multiple of {factor}."
        )
