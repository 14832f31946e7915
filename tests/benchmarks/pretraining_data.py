"""How fast pre-training data is made, on how many workers, in how much memory.

    python -m tests.benchmarks.pretraining_data --corpus='enwiki/*' --vocab_file=vocab.txt \\
        --megabytes=5,50 --work=/tmp/pretraining_data

Text of the corpus is written out as one sentence per line (repeated where the corpus is smaller
than asked for), then records are made of it with the original's settings (128 tokens, 5 passes):

* by this project's command, with one worker and with two, of every size: tokens per CPU second
  and per second, peak memory;
* with --beam_python by Apache Beam's DirectRunner with two processes, under that interpreter;
* by plain Python as the original does it (tests/reference/plain_pretraining_data.py), of a small
  part, alternating with the project's command: its speed here is held against the 35,700 tokens
  of text per CPU second that the original itself reached on another day.
"""

from modeling import quiet  # noqa: F401  isort: skip

import glob
import json
import math
import os
import re
import statistics
import subprocess
import sys
import time

from absl import app, flags

from data.pretraining.corpus import expand, read_documents

FLAGS = flags.FLAGS

# Tokens of text (after WordPiece, each once) per CPU second of the original release under
# TensorFlow 1.15: 128 tokens, dupe_factor 5.
ORIGINAL = 35_700

PLAIN = """
import resource, sys
from tests.reference import plain_pretraining_data
tokens, instances = plain_pretraining_data.write([sys.argv[1]], sys.argv[2], sys.argv[3])
used = resource.getrusage(resource.RUSAGE_SELF)
print(tokens, instances, used.ru_utime + used.ru_stime)
"""


def write_text(files: list[str], megabytes: float, path: str) -> None:
    """One sentence per line, as much as asked for."""
    wanted, size = megabytes * 1e6, 0
    with open(path, "w", encoding="utf-8") as file:
        while size < wanted:
            for document in read_documents(files):
                text = "\n".join(document.sentences) + "\n\n"
                file.write(text)
                size += len(text.encode())
                if size >= wanted:
                    break


def make(path: str, workers: int, output: str, beam_python: str = "") -> dict[str, float]:
    """Runs the command, by Beam if there is an interpreter for it; what it took."""
    for old in glob.glob(f"{output}*"):
        os.remove(old)
    python = beam_python or sys.executable
    command = [python, "-m", "data.create_pretraining_data", f"--input_file={path}"]
    command += [f"--output_file={output}", f"--vocab_file={FLAGS.vocab_file}"]
    command += ["--dupe_factor=5", "--num_shards=4"]
    if beam_python:
        options = f"--direct_running_mode=multi_processing --direct_num_workers={workers}"
        command += ["--runner=DirectRunner", f"--beam_options={options}"]
    else:
        command += [f"--num_workers={workers}"]
    before, start = os.times(), time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    seconds, after = time.monotonic() - start, os.times()
    cpu = after.children_user + after.children_system
    cpu -= before.children_user + before.children_system
    with open(f"{output}.manifest.json", encoding="utf-8") as file:
        counts = json.load(file)["counts"]
    peak = re.search(r"peak memory ([\d,]+) MB", done.stderr.rpartition("Done")[2])
    return {
        "tokens": counts["tokens"],
        "instances": counts["instances"],
        "seconds": seconds,
        "cpu": cpu,
        "peak": float(peak[1].replace(",", "")) if peak else math.nan,
    }


def make_plainly(path: str, output: str) -> dict[str, float]:
    """The plain-Python way; what it took."""
    command = [sys.executable, "-c", PLAIN, path, FLAGS.vocab_file, output]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    tokens, instances, cpu = map(float, done.stdout.split())
    return {"tokens": tokens, "instances": instances, "cpu": cpu}


def compare_with_plain(files: list[str]) -> None:
    """Prints the ratio of tokens per CPU second, over alternating runs."""
    small = os.path.join(FLAGS.work, "small.txt")
    large = os.path.join(FLAGS.work, "large.txt")
    write_text(files, FLAGS.plain_megabytes, small)
    write_text(files, 20 * FLAGS.plain_megabytes, large)
    ratios, plain_rates = [], []
    for _ in range(FLAGS.rounds):
        plain = make_plainly(small, os.path.join(FLAGS.work, "plain.tfrecord"))
        ours = make(large, 1, os.path.join(FLAGS.work, "ours.tfrecord"))
        rates = [found["tokens"] / found["cpu"] for found in (ours, plain)]
        ratios.append(rates[0] / rates[1])
        plain_rates.append(rates[1])
        print(
            f"tokens of text per CPU second: ours {rates[0]:,.0f}, plain Python {rates[1]:,.0f}: "
            f"{ratios[-1]:.1f} times",
            flush=True,
        )
    ratio, plain_rate = statistics.median(ratios), statistics.median(plain_rates)
    print(
        f"Median: {ratio:.1f} times plain Python, which makes {plain_rate:,.0f} here; the original "
        f"made {ORIGINAL:,}, {plain_rate / ORIGINAL:.2f} of which is plain Python's.\n"
        f"Against the original's own number: {ratio * plain_rate / ORIGINAL:.1f} times."
    )


def main(_: list[str]) -> None:
    os.makedirs(FLAGS.work, exist_ok=True)
    files = expand(FLAGS.corpus)
    if FLAGS.rounds:
        compare_with_plain(files)
    for megabytes in map(float, FLAGS.megabytes):
        path = os.path.join(FLAGS.work, "text.txt")
        write_text(files, megabytes, path)
        output = os.path.join(FLAGS.work, "made.tfrecord")
        cases = [(workers, "") for workers in map(int, FLAGS.workers)]
        cases += [(2, FLAGS.beam_python)] if FLAGS.beam_python else []
        for workers, beam_python in cases:
            made = make(path, workers, output, beam_python)
            if (workers, beam_python) == cases[0]:
                first = made["seconds"]
            name = f"Beam, {workers}" if beam_python else str(workers)
            print(
                f"{megabytes:6.0f} MB, {name} workers: {made['seconds']:7.1f} s, "
                f"{made['tokens'] / made['seconds']:10,.0f} tokens of text/s, "
                f"{made['tokens'] / made['cpu']:10,.0f} per CPU second, "
                f"{made['instances']:,.0f} instances, peak memory {made['peak']:,.0f} MB a process"
                + f", {first / made['seconds']:.2f} times the speed",
                flush=True,
            )
        os.remove(path)


if __name__ == "__main__":
    flags.DEFINE_string("corpus", None, "Files of text.")
    flags.DEFINE_string("vocab_file", None, "An uncased vocabulary.")
    flags.DEFINE_string("work", None, "Folder for texts and records.")
    flags.DEFINE_list("megabytes", ["5", "50"], "Sizes of text to make records of.")
    flags.DEFINE_list("workers", ["1", "2"], "Numbers of workers.")
    flags.DEFINE_string("beam_python", "", "An interpreter with Apache Beam and requirements.txt.")
    flags.DEFINE_integer("rounds", 3, "Alternations with plain Python; 0 for none.")
    flags.DEFINE_float("plain_megabytes", 1.0, "Text for plain Python; ours gets 20 times that.")
    flags.mark_flags_as_required(["corpus", "vocab_file", "work"])
    app.run(main)
