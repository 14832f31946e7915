"""Packed rows against one instance per row: padding, speed, and the loss at equal tokens.

    python -m tests.benchmarks.packing --corpus='enwiki/train/*' --vocab_file=vocab.txt

Every document (or with --unit=sentence every sentence) of the text becomes one instance, or
several where it is longer. The same model is trained twice from the same weights: on batches of
--batch_size instances, one per row, and on packed batches of so few rows that they hold as many
tokens; with the same number of steps, so that both see equally many tokens in equally many
updates. Held-out loss is that of instances in rows of their own, with the same masks for both.
"""

from modeling import quiet  # noqa: F401  isort: skip

import itertools
import statistics
import sys
import time

import keras
import numpy as np
import tensorflow as tf
from absl import app, flags

from data.pretraining import corpus
from data.pretraining.batches.packing import WINDOW, pack_dataset
from data.pretraining.instances.masking import MaskingVocabulary, MaskSettings, mask_instances
from data.tokenization import Tokenizer
from modeling.config import BertConfig
from modeling.losses import PretrainingLosses
from modeling.models import BertPretrainer
from modeling.training.engine.evaluation import Evaluator
from modeling.training.engine.precision import clear_session_keeping_precision
from modeling.training.engine.setup import EngineSettings, make_train_step
from tests.data.pretraining.batches.padding import padding_share

FLAGS = flags.FLAGS
LOSSES = PretrainingLosses(next_sentence=False)
HELD_OUT_EVERY = 20
CALLS = 10  # of the compiled step, in each of which the same number of steps is timed


def read_instances(tokenizer: Tokenizer) -> dict[str, np.ndarray]:
    """Masked instances of the text's beginning, at most --instances."""
    width = FLAGS.max_seq_length
    documents = corpus.read_documents(corpus.expand(FLAGS.corpus))
    if FLAGS.unit == "sentence":
        texts = (sentence for document in documents for sentence in document.sentences)
    else:
        texts = (" ".join(document.sentences) for document in documents)
    rows: list[list[int]] = []
    while len(rows) < FLAGS.instances and (some := list(itertools.islice(texts, 1000))):
        for pieces in tokenizer.tokenize(some).to_list():
            for begin in range(0, len(pieces), width - 2):
                part = pieces[begin : begin + width - 2]
                rows.append([tokenizer.cls_id, *part, tokenizer.sep_id])
    rows = rows[: FLAGS.instances]
    ids, mask = np.zeros((2, len(rows), width), np.int32)
    for row, pieces in enumerate(rows):
        ids[row, : len(pieces)] = pieces
        mask[row, : len(pieces)] = 1
    masked = mask_instances(
        ids,
        mask,
        MaskSettings(MaskingVocabulary.from_tokenizer(tokenizer)),
        FLAGS.max_predictions_per_seq,
        np.random.default_rng(0),
    )
    return masked | {"input_mask": mask, "segment_ids": np.zeros_like(mask)}


def batches(instances: dict[str, np.ndarray], batch_size: int, packed: bool, seed: int, words):
    """Endless training batches; `words` tells the pieces that continue one."""
    data = tf.data.Dataset.from_tensor_slices(instances)
    data = data.shuffle(len(instances["input_ids"]), seed=seed).repeat()
    if packed:
        sizes = FLAGS.max_seq_length, FLAGS.max_predictions_per_seq
        data = pack_dataset(data.batch(WINDOW), batch_size, *sizes, seed, words)
    else:
        data = data.batch(batch_size, drop_remainder=True)
    return data.prefetch(tf.data.AUTOTUNE)


def pipeline_milliseconds(dataset, count: int = 100) -> float:
    """Time that the data alone takes, per batch."""
    iterator = iter(dataset)
    next(iterator)
    start = time.perf_counter()
    for _ in range(count):
        next(iterator)
    return (time.perf_counter() - start) * 1000 / count


def train(dataset, held_out, vocab_size: int, seed: int) -> dict[str, float]:
    """Trains --steps steps; the median speed, and both losses in the end."""
    clear_session_keeping_precision()
    keras.utils.set_random_seed(seed)
    config = BertConfig(
        vocab_size,
        hidden_size=FLAGS.hidden_size,
        num_hidden_layers=FLAGS.layers,
        num_attention_heads=max(1, FLAGS.hidden_size // 64),
        intermediate_size=4 * FLAGS.hidden_size,
        max_position_embeddings=FLAGS.max_seq_length,
    )
    model = BertPretrainer(config, next_sentence=False)
    model.build()
    settings = EngineSettings(FLAGS.learning_rate, FLAGS.steps, FLAGS.steps // 10, seed=seed)
    step = make_train_step(model, LOSSES, settings)
    iterator = iter(dataset)
    share = FLAGS.steps // CALLS
    speeds, tokens, losses = [], 0.0, []
    for call in range(CALLS):
        start = time.perf_counter()
        history = step.run(iterator, share)
        seconds = time.perf_counter() - start
        seen = sum(real for real, _ in history["tokens"])
        tokens += seen
        if call:  # the first one compiles
            speeds.append(seen / seconds)
        losses = [total / weight for total, weight in history["masked_lm_loss"]]
    results = Evaluator(model, LOSSES)(held_out)
    return {
        "tokens": tokens,
        "tokens/s": statistics.median(speeds),
        "train loss": statistics.mean(losses),
        "held-out loss": results["masked_lm_loss"],
    }


def main(_) -> None:
    if FLAGS.steps < 2 * CALLS:
        sys.exit(f"--steps={FLAGS.steps}: {2 * CALLS} or more, please.")
    tokenizer = Tokenizer(FLAGS.vocab_file)
    instances = read_instances(tokenizer)
    lengths = instances["input_mask"].sum(1)
    number = np.arange(len(lengths))
    parts = [
        {name: values[chosen] for name, values in instances.items()}
        for chosen in (number % HELD_OUT_EVERY != 0, number % HELD_OUT_EVERY == 0)
    ]
    held_out = tf.data.Dataset.from_tensor_slices(parts[1]).batch(FLAGS.batch_size)
    held_out = held_out.take(max(1, len(number) // HELD_OUT_EVERY // FLAGS.batch_size))
    mean_length, words = lengths.mean(), np.asarray(tokenizer.is_continuation)
    rows = max(1, round(FLAGS.batch_size * mean_length / (0.99 * FLAGS.max_seq_length)))
    print(
        f"{len(lengths):,} instances of {mean_length:.1f} pieces (median "
        f"{np.median(lengths):.0f}); {FLAGS.layers} × {FLAGS.hidden_size}, {FLAGS.steps} steps"
    )
    print(
        "| rows | padding | worst batch | data ms/batch | tokens/s | instances/s | tokens | "
        "train loss | held-out loss |\n|---|" + "---:|" * 8
    )
    for packed, size in ((False, FLAGS.batch_size), (True, rows)):
        data = batches(parts[0], size, packed, 0, words)
        padding = padding_share(data, 50)
        worst = max(padding_share([batch], 1) for batch in data.take(50))
        milliseconds = pipeline_milliseconds(data)
        runs = [
            train(
                batches(parts[0], size, packed, seed, words), held_out, len(tokenizer.vocab), seed
            )
            for seed in range(FLAGS.seeds)
        ]
        speed = statistics.median(run["tokens/s"] for run in runs)
        values = [f"{padding:.1%}", f"{worst:.1%}", f"{milliseconds:.1f}", f"{speed:,.0f}"]
        values += [f"{speed / mean_length:,.1f}", f"{runs[0]['tokens']:,.0f}"]
        for name in ("train loss", "held-out loss"):
            values.append(" ".join(f"{run[name]:.4f}" for run in runs))
        name = f"{size} packed" if packed else f"{size} of one instance"
        print(f"| {name} | " + " | ".join(values) + " |", flush=True)


if __name__ == "__main__":
    flags.DEFINE_string("corpus", None, "Globs of text files, as run_pretraining reads them.")
    flags.DEFINE_string("vocab_file", None, "The vocabulary.")
    flags.DEFINE_enum("unit", "document", ["document", "sentence"], "What an instance is made of.")
    flags.DEFINE_integer("instances", 20000, "Most instances to make.")
    flags.DEFINE_integer("max_seq_length", 128, "Pieces of a row.")
    flags.DEFINE_integer("max_predictions_per_seq", 20, "Most predictions of an instance.")
    flags.DEFINE_integer("batch_size", 32, "Rows where each holds one instance.")
    flags.DEFINE_integer("layers", 4, "Of the model.")
    flags.DEFINE_integer("hidden_size", 256, "Of the model.")
    flags.DEFINE_integer("steps", 1000, "Updates of each run.")
    flags.DEFINE_integer("seeds", 2, "Runs of each kind, to see the noise.")
    flags.DEFINE_float("learning_rate", 5e-4, "Peak of the schedule.")
    flags.mark_flags_as_required(["corpus", "vocab_file"])
    app.run(main)
