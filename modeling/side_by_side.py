"""Batches, or parts of one, side by side: on a processor each has a thread of its own.

divide_threads()                                # before TensorFlow computes anything
for result in side_by_side(compute, batches):   # in the batches' order
    ...

All threads on each product in turn have to wait for each other; for the products of small models
that costs more than it gains.
"""

import collections
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent import futures
from typing import TypeVar

import tensorflow as tf

_MOST_CORES = 4
"""What more cores gain from batches side by side was never measured, and each takes memory."""
MOST_CORES_OF_PARTS = 2
"""The same of the parts of a training batch, each of which has gradients of all weights."""
_OF_THE_USER = ("TF_NUM_INTEROP_THREADS", "TF_NUM_INTRAOP_THREADS")

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


def divide_threads(most_cores: int = _MOST_CORES) -> int:
    """Divides the processor's threads among batches; how many there are to be at once.

    It changes nothing on a GPU, on more cores than that, where the environment tells TensorFlow its
    threads, and once TensorFlow has computed something.
    """
    affinity = getattr(os, "sched_getaffinity", None)  # which not every system has
    cores = len(affinity(0)) if affinity else os.cpu_count() or 1
    given = any(name in os.environ for name in _OF_THE_USER)
    if cores <= most_cores and not given and not tf.config.list_physical_devices("GPU"):
        try:
            tf.config.threading.set_inter_op_parallelism_threads(cores)
            tf.config.threading.set_intra_op_parallelism_threads(1)
        except RuntimeError:
            pass  # too late
    return batches_at_once()


def batches_at_once() -> int:
    """How many batches, or parts of one, are computed side by side.

    It is 1 unless `divide_threads` has divided threads; also on GPUs, whoever divided them, and on
    several replicas, which have to take their batches in one order.
    """
    divided = tf.config.threading.get_intra_op_parallelism_threads() == 1
    several = tf.distribute.get_strategy().num_replicas_in_sync > 1
    if not divided or several or tf.config.list_physical_devices("GPU"):
        return 1
    return max(tf.config.threading.get_inter_op_parallelism_threads(), 1)


def side_by_side(compute: Callable[[_Item], _Result], items: Iterable[_Item]) -> Iterator[_Result]:
    """`map(compute, items)`, `batches_at_once` at a time.

    Items are taken as they are needed; one more is begun than are computed at once.
    What `compute` raises is raised here; what has begun then is waited for.
    """
    strategy = tf.distribute.get_strategy()

    def in_scope(item: _Item) -> _Result:
        with strategy.scope():  # which threads don't inherit
            return compute(item)

    at_once = batches_at_once()
    if at_once == 1:
        yield from map(compute, items)
        return
    pool = futures.ThreadPoolExecutor(at_once)
    begun: collections.deque[futures.Future[_Result]] = collections.deque()
    try:
        for item in items:
            begun.append(pool.submit(in_scope, item))
            if len(begun) > at_once:  # so that no thread has to wait for the next one
                yield begun.popleft().result()
        while begun:
            yield begun.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)
