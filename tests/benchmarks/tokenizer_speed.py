"""Speed of the tokenizer against TF Text's, Hugging Face's and a plain Python one.

    pip install tokenizers
    python -m tests.benchmarks.tokenizer_speed --corpus='enwiki/train/*' \
        --vocab_file=uncased_L-12_H-768_A-12/vocab.txt --megabytes=20

All in one process, in turns; medians. The number of threads is 1 or 2 for all: in a process of
its own each, as neither TensorFlow nor `tokenizers` changes it once it runs.
"""

from modeling import quiet  # noqa: F401  isort: skip

import os
import statistics
import subprocess
import sys
import time

import tensorflow as tf
import tensorflow_text as tf_text
from absl import app, flags

from data.pretraining import corpus
from data.tokenization import Tokenizer
from tests.reference.plain_tokenizer import plain_ids

FLAGS = flags.FLAGS
BATCH = 1000
# The plain tokenizer is timed on this share of the text only.
PLAIN_SHARE = 0.02


def in_tensorflow(function, batches, threads):
    """A pass over all batches through tf.data, as training reads them."""
    dataset = tf.data.Dataset.from_tensor_slices(batches)
    dataset = dataset.map(function, num_parallel_calls=threads, deterministic=True)

    def run():
        for result in dataset:
            del result

    return run


def competitors(texts: list[str], threads: int) -> dict[str, tuple[object, float]]:
    """Name → (function of one pass, share of the text that it goes over)."""
    ours = Tokenizer(FLAGS.vocab_file)
    stock = tf_text.FastBertTokenizer(
        vocab=ours.vocab, token_out_type=tf.int32, lower_case_nfd_strip_accents=True
    )
    whole = len(texts) // BATCH * BATCH
    batches = tf.reshape(tf.constant(texts[:whole]), [-1, BATCH])
    vocab = {token: index for index, token in enumerate(ours.vocab)}
    few = texts[: int(len(texts) * PLAIN_SHARE)]
    found = {
        "ours": (in_tensorflow(ours.tokenize, batches, threads), whole / len(texts)),
        "ours, with offsets": (
            in_tensorflow(ours.tokenize_with_offsets, batches, threads),
            whole / len(texts),
        ),
        "TF Text FastBertTokenizer": (
            in_tensorflow(stock.tokenize, batches, threads),
            whole / len(texts),
        ),
        "plain Python": (lambda: [plain_ids(text, vocab, True) for text in few], PLAIN_SHARE),
    }
    try:
        from tokenizers import BertWordPieceTokenizer
    except ImportError:
        print("Hugging Face's tokenizers isn't installed and left out.")
        return found
    rust = BertWordPieceTokenizer(FLAGS.vocab_file, lowercase=True)
    found["HF tokenizers, encode_batch"] = (
        lambda: rust.encode_batch(texts, add_special_tokens=False),
        1.0,
    )
    if hasattr(rust._tokenizer, "encode_batch_fast"):  # without offsets
        found["HF tokenizers, encode_batch_fast"] = (
            lambda: rust._tokenizer.encode_batch_fast(texts, add_special_tokens=False),
            1.0,
        )
    return found


def measure(threads: int) -> None:
    files = corpus.expand(FLAGS.corpus)
    texts, size = [], 0
    for document in corpus.read_documents(files):
        texts += document.sentences
        size += sum(len(sentence.encode()) for sentence in document.sentences)
        if size >= FLAGS.megabytes * 1e6:
            break
    runs = competitors(texts, threads)
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for turn in range(FLAGS.rounds + 1):
        for name, (function, share) in runs.items():
            start = time.perf_counter()
            function()
            if turn:  # the first one warms up
                seconds[name].append((time.perf_counter() - start) / share)
    ours = statistics.median(seconds["ours"])
    print(f"\n{threads} thread(s), {len(texts)} sentences, {size / 1e6:.1f} MB, "
          f"medians of {FLAGS.rounds}:")  # fmt: skip
    for name, times in seconds.items():
        median = statistics.median(times)
        print(
            f"  {name:34s} {median:8.2f} s  {size / 1e6 / median:7.2f} MB/s   "
            f"ours is {median / ours:6.2f} times as fast"
        )


def main(_) -> None:
    if FLAGS.threads:
        tf.config.threading.set_intra_op_parallelism_threads(FLAGS.threads)
        tf.config.threading.set_inter_op_parallelism_threads(FLAGS.threads)
        measure(FLAGS.threads)
        return
    for threads in (1, 2):
        environment = os.environ | {"RAYON_NUM_THREADS": str(threads)}
        command = [sys.executable, "-m", "tests.benchmarks.tokenizer_speed", *sys.argv[1:]]
        subprocess.run([*command, f"--threads={threads}"], env=environment, check=True)


if __name__ == "__main__":
    flags.DEFINE_string("corpus", None, "Text files, as the other commands read them.")
    flags.DEFINE_string("vocab_file", None, "An uncased vocabulary.")
    flags.DEFINE_float("megabytes", 20, "Text to go over.")
    flags.DEFINE_integer("rounds", 5, "Timed turns of each.")
    flags.DEFINE_integer("threads", 0, "Set by the command itself.")
    flags.mark_flags_as_required(["corpus", "vocab_file"])
    app.run(main)
