"""What TensorFlow does to answer a request: operations, and the time of matrix products among them.

    python -m tests.benchmarks.serving_profile --exports=before=old/export/1,after=new/export/1
    python -m tests.benchmarks.serving_profile --exports=… --texts=32 --pieces=16,45,128

Each export is loaded into a session with two inter-op threads and one intra-op, as the docs start a
server, and asked in turns for the ids of one text, or of --texts, whose lengths go from a quarter
of --pieces up to it; then as often with TensorFlow's tracer, which slows it. Times of operations
are summed over both threads; calls of functions, whose operations are there too, aren't counted.
The lengths of --pieces are asked for in their order, of the same session: with
TF_ONEDNN_ASSUME_FROZEN_WEIGHTS=1 the first one decides how weights are arranged.
"""

import statistics
import time

import numpy as np
import tensorflow as tf
import tensorflow_text  # noqa: F401  registers the operations of exports
from absl import app, flags
from tabulate import tabulate

from tests.benchmarks.turns import interleaved

FLAGS = flags.FLAGS
CALLS = ("StatefulPartitionedCall", "PartitionedCall")
PAUSE = 0.0


class Server:
    """A loaded export."""

    def __init__(self, path: str):
        self._session = tf.compat.v1.Session(
            graph=tf.Graph(),
            config=tf.compat.v1.ConfigProto(
                inter_op_parallelism_threads=FLAGS.inter_op_threads,
                intra_op_parallelism_threads=FLAGS.intra_op_threads,
            ),
        )
        with self._session.graph.as_default():
            loaded = tf.compat.v1.saved_model.load(self._session, ["serve"], path)
        self._signature = loaded.signature_def["tokenized"]
        self._answers = [answer.name for answer in self._signature.outputs.values()]
        self._feed = {}

    def take(self, pieces: int, texts: int = 1) -> None:
        """What it is asked for from now on: texts of which the longest has so many pieces."""
        lengths = np.linspace(pieces, max(1, pieces // 4), texts).round()
        mask = (np.arange(pieces) < lengths[:, np.newaxis]).astype(np.int32)
        ids = mask * np.arange(1000, 1000 + pieces, dtype=np.int32)
        values = {"input_ids": ids, "input_mask": mask, "segment_ids": np.zeros_like(ids)}
        self._feed = {self._signature.inputs[name].name: value for name, value in values.items()}

    def ask(self) -> float:
        """Seconds of an answer."""
        begun = time.perf_counter()
        self._session.run(self._answers, self._feed)
        return time.perf_counter() - begun

    def trace(self) -> tuple[int, float, float]:
        """Operations that an answer takes, seconds of its products, and of all."""
        told = tf.compat.v1.RunMetadata()
        full = tf.compat.v1.RunOptions(trace_level=tf.compat.v1.RunOptions.FULL_TRACE)
        self._session.run(self._answers, self._feed, options=full, run_metadata=told)
        count, products, total = 0, 0, 0
        for device in told.step_stats.dev_stats:
            for node in device.node_stats:
                # "NAME = KIND(INPUTS)", or the kind alone.
                kind = node.timeline_label.rpartition(" = ")[2].partition("(")[0]
                microseconds = node.op_end_rel_micros - node.op_start_rel_micros
                if kind not in CALLS:
                    count += 1
                    total += microseconds
                    products += microseconds * ("MatMul" in kind)
        return count, products / 1e6, total / 1e6


def main(_) -> None:
    exports = dict(each.split("=", 1) for each in FLAGS.exports)
    servers = {name: Server(path) for name, path in exports.items()}
    calls = {name: server.ask for name, server in servers.items()}
    lines = []
    for pieces in FLAGS.pieces:
        for server in servers.values():
            server.take(int(pieces), FLAGS.texts)
        interleaved(calls, FLAGS.rounds, PAUSE)
        seconds = interleaved(calls, FLAGS.rounds, PAUSE)
        for name, server in servers.items():
            traced = [server.trace() for _ in range(FLAGS.rounds)]
            count, *times = (statistics.median(values) for values in zip(*traced, strict=True))
            times.insert(0, statistics.median(seconds[name]))
            lines.append((pieces, name, count, *(f"{1e3 * value:.1f}" for value in times)))
    head = ("pieces", "export", "operations", "answer, ms", "products, ms", "all operations, ms")
    print(tabulate(lines, head, tablefmt="github"))


if __name__ == "__main__":
    flags.DEFINE_list("exports", None, "NAME=FOLDER of each.", required=True)
    flags.DEFINE_list("pieces", ["16", "32", "128"], "Of the longest text, in this order.")
    flags.DEFINE_integer("texts", 1, "Of a request.", lower_bound=1)
    flags.DEFINE_integer("rounds", 21, "Requests to each.", lower_bound=1)
    flags.DEFINE_integer("inter_op_threads", 2, "Operations at a time.")
    flags.DEFINE_integer("intra_op_threads", 1, "Threads of an operation.")
    app.run(main)
