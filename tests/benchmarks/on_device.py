"""Size, latency and accuracy of a model for LiteRT beside the SavedModel's.

    python -m tests.benchmarks.on_device --data_dir=$GLUE_DIR --minilm=$MINILM_DIR

One text at a time, from ids, with the same number of threads, in turns. Accuracy is that of SST-2's
dev set; it says something only if $MINILM_DIR holds a classifier of it, see serving_speed.py.
"""

from modeling import quiet  # noqa: F401  isort: skip

import dataclasses
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import tensorflow as tf
from absl import app, flags
from ai_edge_litert.interpreter import Interpreter

from data.tokenization import Tokenizer, build_inputs
from modeling.serving.export import Export
from modeling.serving.prediction import LITE_NAME
from modeling.serving.sentences import export_sentence_model
from tests.benchmarks.peers.environment import use_processors
from tests.benchmarks.peers.requests import MAX_SEQ_LENGTH, labelled_case
from tests.benchmarks.serving_speed import LABELS, make_model
from tests.benchmarks.turns import interleaved, ratio

FLAGS = flags.FLAGS
LENGTHS = (16, 32, 128)
LITE_DTYPES = ("float32", "float16", "int8")
CALLS = 10
PAUSE = 0.1

Ask = Callable[[Mapping[str, np.ndarray]], np.ndarray]


def make_engines(folder: str) -> dict[str, tuple[str, Ask]]:
    """Name → file or folder of the weights, and a function from ids [1, T] to probabilities."""
    vocab_file = os.path.join(FLAGS.minilm, "vocab.txt")
    tokenizer = Tokenizer(vocab_file)
    model, _ = make_model("minilm", FLAGS.minilm)

    def preprocess(text):
        return build_inputs(tokenizer, text, max_seq_length=MAX_SEQ_LENGTH, pad_to="longest")

    plain = Export(os.path.join(folder, "saved_model"), {"vocab.txt": vocab_file}, "float32")

    def write(export: Export) -> str:
        return export_sentence_model(model, export, "classes", preprocess, LABELS, pairs=False)

    path = write(plain)
    signature = (loaded := tf.saved_model.load(path)).signatures["tokenized"]

    def ask(ids, _owner=loaded):
        return signature(**{k: tf.constant(v) for k, v in ids.items()})["probabilities"].numpy()

    engines = {"SavedModel float32": (path, ask)}
    for dtype in LITE_DTYPES:
        place = os.path.join(folder, dtype)
        path = write(dataclasses.replace(plain, directory=place, dtype=dtype, format="tflite"))
        path = os.path.join(path, LITE_NAME)
        interpreter = Interpreter(path, num_threads=FLAGS.threads)
        run = interpreter.get_signature_runner()
        engines[f"LiteRT {dtype}"] = (
            path,
            lambda ids, run=run, _owner=interpreter: run(**ids)["probabilities"],
        )
    return engines


def size_of(path: str) -> int:
    """Bytes of a file, or of all in a folder."""
    if os.path.isfile(path):
        return os.path.getsize(path)
    return sum(
        os.path.getsize(os.path.join(place, name))
        for place, _, names in os.walk(path)
        for name in names
    )


def make_ids(length: int) -> dict[str, np.ndarray]:
    """One text without padding."""
    ids = np.random.default_rng(length).integers(1000, 20_000, (1, length)).astype(np.int32)
    return {"input_ids": ids, "input_mask": np.ones_like(ids), "segment_ids": np.zeros_like(ids)}


def seconds_of(ask: Ask, ids: Mapping[str, np.ndarray]) -> float:
    """The median of several calls; the first, which prepare for the length, don't count."""
    found = []
    for call in range(2 + CALLS):
        begun = time.perf_counter()
        ask(ids)
        if call >= 2:
            found.append(time.perf_counter() - begun)
    return statistics.median(found)


def accuracies(engines: Mapping[str, tuple[str, Ask]]) -> dict[str, float]:
    """Share of SST-2's dev set that each has right, one text at a time."""
    tokenizer = Tokenizer(os.path.join(FLAGS.minilm, "vocab.txt"))
    case, labels = labelled_case(FLAGS.data_dir)
    texts = [text for batch in case.batches for text in batch]
    rows = []
    for text in texts:
        ids = build_inputs(tokenizer, [text], max_seq_length=MAX_SEQ_LENGTH, pad_to="longest")
        rows.append({name: tensor.numpy() for name, tensor in ids.items()})
    right = np.array([int(label) for label in labels])
    return {
        name: float(np.mean([ask(row)[0].argmax() for row in rows] == right))
        for name, (_, ask) in engines.items()
    }


def table(engines, seconds: Mapping[int, Mapping[str, Sequence[float]]], shares) -> str:
    """Markdown: a row for each engine."""
    first = next(iter(engines))
    lines = [["", "MB", *(f"1 × {length}" for length in LENGTHS), "SST-2 dev"]]
    lines.append(["---", *["---:"] * (len(LENGTHS) + 2)])
    for name, (path, _) in engines.items():
        row = [name, f"{size_of(path) / 1e6:.1f}"]
        for length in LENGTHS:
            own = seconds[length][name]
            text = f"{1e3 * statistics.median(own):.1f} ms"
            if name != first:
                text += f" ({ratio(seconds[length][first], own)[0]:.2f})"
            row.append(text)
        lines.append([*row, f"{100 * shares[name]:.1f} %"])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def main(_) -> None:
    use_processors(FLAGS.threads)
    tf.config.threading.set_inter_op_parallelism_threads(FLAGS.threads)
    tf.config.threading.set_intra_op_parallelism_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        engines = make_engines(folder)
        shares = accuracies(engines)
        seconds = {}
        for length in LENGTHS:
            ids = make_ids(length)
            calls = {
                name: lambda ask=ask, ids=ids: seconds_of(ask, ids)
                for name, (_, ask) in engines.items()
            }
            seconds[length] = interleaved(calls, FLAGS.rounds, PAUSE)
        print(f"{FLAGS.threads} threads, medians of {FLAGS.rounds} rounds; in brackets how many")
        print("times as fast as the SavedModel:\n")
        print(table(engines, seconds, shares))


if __name__ == "__main__":
    flags.DEFINE_string("data_dir", None, "Folder of GLUE, for SST-2/dev.tsv.")
    flags.DEFINE_string("minilm", None, "Folder of a 6-layer, 384-wide BERT, see above.")
    flags.DEFINE_integer("threads", 2, "Of each engine, and processors there are.")
    flags.DEFINE_integer("rounds", 7, "Timed turns of each engine.", lower_bound=1)
    flags.mark_flags_as_required(["data_dir", "minilm"])
    app.run(main)
