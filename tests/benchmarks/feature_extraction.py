"""Vectors of many sentences: how fast, in how much memory, against padding every row.

    python -m tests.benchmarks.feature_extraction --corpus='enwiki/*' --model=minilm

`python -m modeling.extract_features` runs in a process of its own on real sentences of a corpus,
in its order shuffled once. The same command with every row padded to --max_seq_length alternates
with it on --padded of them; then --few and all --sentences are read with the peak memory of each.
--model is a folder with config.json (or bert_config.json), vocab.txt and a checkpoint.
"""

from modeling import quiet  # noqa: F401  isort: skip

import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time

from absl import app, flags

from data.pretraining.corpus import expand, read_documents

FLAGS = flags.FLAGS

CHILD = """
import json, resource, runpy, sys, time
from data import batching
padded, *arguments = sys.argv[1:]
if int(padded):
    batching.default_buckets = lambda length: [length]
    batching.EVALUATION_STEP = int(padded)
sys.argv = ["modeling.extract_features", *arguments]
start = time.monotonic()
try:
    runpy.run_module("modeling.extract_features", run_name="__main__")
except SystemExit as ended:
    if ended.code:
        raise
seconds = time.monotonic() - start
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(json.dumps({"seconds": seconds, "peak": peak}))
"""


def sentences(files: list[str], number: int) -> list[str]:
    """The corpus' first sentences, shuffled."""
    found: list[str] = []
    for document in read_documents(files):
        found += document.sentences
        if len(found) >= number:
            break
    found = found[:number]
    random.Random(0).shuffle(found)
    return found


def extract(lines: list[str], padded: bool, folder: str) -> dict[str, float]:
    """Runs the command; how long and how much memory it took."""
    path = os.path.join(folder, "input.txt")
    with open(path, "w", encoding="utf-8") as file:
        file.writelines(line + "\n" for line in lines)
    width = str(FLAGS.max_seq_length) if padded else "0"
    command = [sys.executable, "-c", CHILD, width, f"--input_file={path}"]
    command += [f"--output_file={folder}/output.npy", "--output_format=numpy", "--layers=-1"]
    command += ["--pooling=mean", "--normalize", f"--max_seq_length={FLAGS.max_seq_length}"]
    command += [f"--dtype={FLAGS.dtype}", f"--batch_size={FLAGS.batch_size}"]
    command += [f"--vocab_file={FLAGS.model}/vocab.txt"]
    names = ("config.json", "bert_config.json")
    config = next(name for name in names if os.path.exists(os.path.join(FLAGS.model, name)))
    command += [f"--bert_config_file={FLAGS.model}/{config}", f"--init_checkpoint={FLAGS.model}"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr[-3000:])
    found = json.loads(done.stdout.splitlines()[-1])
    found["speed"] = len(lines) / found["seconds"]
    print(
        f"{time.strftime('%H:%M:%S')} {len(lines):>7,} sentences, "
        f"{'padded to ' + width if padded else 'bucketed':>13}: {found['seconds']:7.1f} s, "
        f"{found['speed']:7.1f} a second, peak memory {found['peak']:,.0f} MB",
        flush=True,
    )
    return found


def main(_: list[str]) -> None:
    lines = sentences(expand(FLAGS.corpus), FLAGS.sentences)
    print(f"{len(lines):,} sentences of {statistics.mean(map(len, lines)):.0f} characters")
    with tempfile.TemporaryDirectory() as folder:
        ratios = []
        for _ in range(FLAGS.rounds):
            bucketed, padded = (extract(lines[: FLAGS.padded], p, folder) for p in (False, True))
            ratios.append(bucketed["speed"] / padded["speed"])
        if ratios:
            print(
                f"{statistics.median(ratios):.2f} times the speed of padding "
                f"({min(ratios):.2f} to {max(ratios):.2f})",
                flush=True,
            )
        few, many = (extract(lines[:n], False, folder) for n in (FLAGS.few, len(lines)))
        print(f"Peak memory: {many['peak'] / few['peak']:.3f} times that of {FLAGS.few:,}")


if __name__ == "__main__":
    flags.DEFINE_string("corpus", None, "Files of text.")
    flags.DEFINE_string("model", None, "Folder with configuration, vocabulary and checkpoint.")
    flags.DEFINE_integer("sentences", 100_000, "How many sentences in the long run.")
    flags.DEFINE_integer("few", 10_000, "How many in the run whose memory is compared with it.")
    flags.DEFINE_integer("padded", 2_000, "How many in the runs with and without padding.")
    flags.DEFINE_integer("rounds", 3, "Alternations of those two.")
    flags.DEFINE_integer("max_seq_length", 128, "Width of padded rows, and where texts are cut.")
    flags.DEFINE_integer("batch_size", 32, "Sentences a batch.")
    flags.DEFINE_string("dtype", "float32", "float32 or bfloat16.")
    flags.mark_flags_as_required(["corpus", "model"])
    app.run(main)
