"""Runs that are spoilt half-way and go back: their held-out loss beside that of the undisturbed.

    python -m tests.benchmarks.poisoned_runs --output_dir=/tmp/poisoned --num_train_steps=2000

The demo of run_pretraining.py, with --rollback, three times: as it is; with a thousand times the
learning rate for twenty steps, which passes by itself when the run has gone back; and with wrong
answers in twenty batches that follow each other. Prints a table; runs that are finished are not
made again.
"""

import json
import os
import subprocess
import sys

import tensorflow as tf
from absl import app, flags

FLAGS = flags.FLAGS
KINDS = ("undisturbed", "rate", "answers")
POISONED = 20
"""Steps, or batches."""
TOO_MUCH = 1000.0


def poison_rate(first: int) -> None:
    """From the step on, so many have far too high a rate, until the run has gone back once."""
    from modeling.training.engine import setup
    from modeling.training.runs import fit

    armed = tf.Variable(True, trainable=False)
    make_schedule, roll_back = setup.make_schedule, fit.roll_back

    def make(*arguments):
        rate = make_schedule(*arguments)

        def poisoned(step):
            now = (step >= first) & (step < first + POISONED)
            return rate(step) * tf.where(armed & now, TOO_MUCH, 1.0)

        return poisoned

    def disarm(*arguments):
        armed.assign(False)
        return roll_back(*arguments)

    setup.make_schedule, fit.roll_back = make, disarm


def poison_answers(first: int) -> None:
    """Batches from that number on have other words as their answers, and the other label."""
    from modeling.training.runs import fit, rollback

    make_iterator = fit.make_iterator

    def spoil(number, batch):
        now = (number >= first) & (number < first + POISONED)
        ids, labels = batch["masked_lm_ids"], batch["next_sentence_labels"]
        return batch | {
            "masked_lm_ids": tf.where(now, 1000 + (ids + 999) % 4000, ids),
            "next_sentence_labels": tf.where(now, 1 - labels, labels),
        }

    def make(dataset, steps_done=0):
        return make_iterator(dataset.enumerate().map(spoil), steps_done)

    fit.make_iterator = rollback.make_iterator = make


def run_child(kind: str, first: int) -> None:
    """run_pretraining.py with the flags of this process, poisoned."""
    if kind != "undisturbed":
        {"rate": poison_rate, "answers": poison_answers}[kind](first)
    import run_pretraining

    app.run(run_pretraining.main)


def train(kind: str, folder: str) -> dict[str, float]:
    """A run's held-out results, and "rollbacks": how often it has gone back."""
    results = os.path.join(folder, "eval_results.txt")
    if not os.path.exists(results):
        os.makedirs(folder, exist_ok=True)
        first = FLAGS.num_train_steps // 2
        program = f"from tests.benchmarks import poisoned_runs as p; p.run_child({kind!r}, {first})"
        command = [sys.executable, "-c", program, "--demo", "--rollback", f"--output_dir={folder}"]
        command += [f"--num_train_steps={FLAGS.num_train_steps}", "--eval_steps=0"]
        command += [f"--save_checkpoints_steps={max(1, FLAGS.num_train_steps // 10)}"]
        command += [f"--random_seed={FLAGS.random_seed}", "--dtype=float32", "--log_steps=100"]
        with open(os.path.join(folder, "log"), "w", encoding="utf-8") as log:
            subprocess.run(command, check=True, stdout=log, stderr=subprocess.STDOUT)
    with open(results, encoding="utf-8") as file:
        found = {k: float(v) for k, v in (line.split(" = ") for line in file)}
    path = os.path.join(folder, "rollbacks.json")
    found["rollbacks"] = 0
    if os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            found["rollbacks"] = len(json.load(file)["rollbacks"])
    return found


def main(_) -> None:
    found = {kind: train(kind, os.path.join(FLAGS.output_dir, kind)) for kind in KINDS}
    print("| run | gone back | masked-LM loss | to the undisturbed | next sentences |")
    print("|---|---:|---:|---:|---:|")
    for kind, results in found.items():
        loss = results["masked_lm_loss"]
        ratio = loss / found["undisturbed"]["masked_lm_loss"] - 1
        accuracy = results["next_sentence_accuracy"]
        print(f"| {kind} | {results['rollbacks']} | {loss:.4f} | {ratio:+.2%} | {accuracy:.3f} |")


if __name__ == "__main__":
    flags.DEFINE_string("output_dir", None, "For the runs.", required=True)
    flags.DEFINE_integer("num_train_steps", 2000, "Of each run.", lower_bound=200)
    flags.DEFINE_integer("random_seed", 1, "Of each run.")
    app.run(main)
