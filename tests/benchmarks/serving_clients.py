"""Requests per second and latencies of single texts from several clients at once.

    python -m tests.benchmarks.serving_clients --data_dir=$GLUE_DIR --minilm=$MINILM_DIR

Ours against ONNX Runtime, same weights, same ids, as many threads. Each client asks again as soon
as it has its answer. Both are tried with all threads on each request and with one on each: ONNX
Runtime counts as what was faster, ours is shown in both ways (--export_branches), and with the
texts of several clients put together, as a server with batching does.
"""

from modeling import quiet  # noqa: F401  isort: skip

import contextlib
import os
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence

import numpy as np
from absl import app, flags

from data.tokenization import Tokenizer
from modeling.checkpoints import saving
from tests.benchmarks import serving_speed
from tests.benchmarks.peers.environment import Process, python_of, use_processors
from tests.benchmarks.peers.requests import Case, dev_set, write_case
from tests.benchmarks.serving_speed import IDS, PAUSE, USUAL, WHOLE
from tests.benchmarks.turns import interleaved, ratio

FLAGS = flags.FLAGS
TEXTS = 64
PEER = "ONNX Runtime"
DTYPES = ("float32", "int8")


def make_case(data_dir: str) -> Case:
    """Sentences of SST-2, one a request."""
    texts = [example.text_a for example in dev_set(data_dir, "SST-2")]
    return Case("clients", "1 × SST-2", [[text] for text in texts[:TEXTS]])


def start_engines(stack, size: str, folder: str) -> dict[str, tuple[Process, str]]:
    """Name → process and what it calls the engine."""
    vocab_file = os.path.join(FLAGS.minilm, "vocab.txt")
    model, _ = serving_speed.make_model(size, FLAGS.minilm)
    weights = os.path.join(folder, size, "huggingface")
    saving.save(model, weights, vocab_file, "huggingface")
    tokenizer, place = Tokenizer(vocab_file), os.path.join(folder, size)
    forms = [*USUAL, *(f"{dtype} {WHOLE}" for dtype in USUAL)]
    exports = serving_speed.export_model(model, tokenizer, vocab_file, place, forms)

    def start(python: str, name: str, threads: int, *arguments: str) -> Process:
        command = [python, "-m", f"tests.benchmarks.peers.{name}", *arguments]
        command += [f"--cases={folder}", f"--threads={threads}"]
        return stack.enter_context(Process(name, command, threads))

    ours = start(
        sys.executable, "saved_model", FLAGS.threads, *(f"--export={each}" for each in exports)
    )
    engines = {f"ours {form}": (ours, f"{form} {IDS}") for form in forms}
    exports = [f"--export={each}" for each in exports if WHOLE not in each]
    together = start(sys.executable, "saved_model", FLAGS.threads, *exports, "--batching")
    engines |= {f"ours {form}, batching": (together, f"{form} batched") for form in USUAL}
    python = python_of("onnx_runtime", FLAGS.environment)
    for threads in sorted({1, FLAGS.threads}):
        peer = start(python, "onnx_runtime", threads, f"--model={weights}")
        engines |= {f"{PEER} {dtype}, {threads} a request": (peer, dtype) for dtype in DTYPES}
    return engines


def measure(engines, clients: int) -> dict[str, list[dict]]:
    """What the clients saw in each round, by engine."""
    seen: dict[str, list[dict]] = {name: [] for name in engines}

    def once(name: str, seconds: float) -> float:
        process, engine = engines[name]
        load = {"clients": clients, "seconds": seconds}
        found = process.ask(do="clients", engine=engine, case="clients", **load)
        seen[name].append(found)
        return found["seconds"] / len(found["latencies"])

    for name in engines:  # prepares
        once(name, FLAGS.seconds / 2)
        seen[name].clear()
    interleaved(
        {name: lambda name=name: once(name, FLAGS.seconds) for name in engines}, FLAGS.rounds, PAUSE
    )
    return seen


def rates(found: Sequence[Mapping]) -> list[float]:
    """Answers per second in each round."""
    return [len(one["latencies"]) / one["seconds"] for one in found]


def rows(seen: Mapping[str, Sequence[Mapping]], clients: int) -> list[list[str]]:
    """Of a table: an engine each."""
    best = {}
    for dtype in DTYPES:
        names = [name for name in seen if name.startswith(f"{PEER} {dtype}")]
        best[dtype] = max(names, key=lambda name: statistics.median(rates(seen[name])))
    lines = []
    for name, found in seen.items():
        if name.startswith(PEER) and name not in best.values():
            continue
        latencies = 1e3 * np.concatenate([one["latencies"] for one in found])
        p50, p99 = np.percentile(latencies, [50, 99])
        line = [str(clients), name, f"{statistics.median(rates(found)):.0f}"]
        line += [f"{p50:.1f} ms", f"{p99:.1f} ms"]
        for dtype in DTYPES:
            times = ratio(rates(found), rates(seen[best[dtype]]))
            line.append("" if name.startswith(PEER) else "{:.2f} ({:.2f}–{:.2f})".format(*times))
        lines.append(line)
    return lines


def main(_) -> None:
    use_processors(FLAGS.threads)
    tokenizer = Tokenizer(os.path.join(FLAGS.minilm, "vocab.txt"))
    header = ["clients", "", "answers a second", "p50", "p99", *(f"of its {d}" for d in DTYPES)]
    lines = [header, ["---:", "---", *["---:"] * (len(header) - 2)]]
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        about = write_case(make_case(FLAGS.data_dir), tokenizer, folder)
        engines = start_engines(stack, FLAGS.model, folder)
        for clients in map(int, FLAGS.clients):
            lines += rows(measure(engines, clients), clients)
    print(f"{FLAGS.model}; {FLAGS.threads} threads, {FLAGS.rounds} rounds. {about}\n")
    print("\n".join(f"| {' | '.join(line)} |" for line in lines))


if __name__ == "__main__":
    flags.DEFINE_string("data_dir", None, "Folder of GLUE, for SST-2/dev.tsv.")
    flags.DEFINE_string("minilm", None, "Folder of a 6-layer, 384-wide BERT, see serving_speed.py.")
    flags.DEFINE_string("model", "minilm", "Size: minilm, or of BertConfig.named.")
    flags.DEFINE_list("clients", ["1", "4", "16"], "How many at once.")
    flags.DEFINE_string("environment", "~/.cache/bert-benchmarks", "Holds the peers' environments.")
    flags.DEFINE_integer("threads", 2, "Of each engine, and processors there are.")
    flags.DEFINE_integer("rounds", 7, "Timed turns of each engine.", lower_bound=1)
    flags.DEFINE_float("seconds", 2.0, "Of each turn.")
    flags.mark_flags_as_required(["data_dir", "minilm"])
    app.run(main)
