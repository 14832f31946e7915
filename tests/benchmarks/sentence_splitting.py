"""Sentence splitting against TF Text's `StateBasedSentenceBreaker`: speed and boundaries found.

    python -m tests.benchmarks.sentence_splitting --corpus='enwiki/heldout/*' \
        --data_dir=data_sets --lines=one_sentence_per_line.txt

Speed: paragraphs of WikiExtractor's files, CPU seconds on one thread, median of the rounds.

Boundaries: sets of single sentences (GLUE's and XNLI's files as published, in --data_dir, and
files of one sentence per line) are joined to paragraphs of five, in random order; the seams are
the true boundaries. Only sentences that end in a mark are taken, as nothing could find the end of
others. Some "sentences" of these sets are two in truth, and count against both splitters.
"""

from modeling import quiet  # noqa: F401  isort: skip

import glob
import html
import os
import random
import re
import statistics
import time
from collections.abc import Callable, Iterable

import tensorflow as tf
import tensorflow_text as tf_text
from absl import app, flags

from data.files.lines import numbered_lines
from data.files.text_files import expand
from data.pretraining.corpus.sentences import split_sentences

FLAGS = flags.FLAGS
SENTENCES = 5  # Of a paragraph
# Name → (files, columns, whether words stand apart from marks in the files).
GOLD = {
    "MRPC (news)": ("glue/MRPC/*.tsv", (3, 4), True),
    "STS-B (captions, news, forums)": ("glue/STS-B/*.tsv", (7, 8), False),
    "CoLA (linguistics)": ("glue/CoLA/*.tsv", (3,), False),
    "XNLI English": ("xnli/dev-en.tsv", (1,), False),
    "XNLI German": ("xnli/dev-de.tsv", (1,), False),
    "XNLI Chinese": ("xnli/dev-zh.tsv", (1,), False),
}
_END = re.compile(r"""[.!?…。！？]["'”’»)\]」』]*$""")
_BEFORE = re.compile(r" (?=[.,;:!?%)\]]|'(?:s|t|re|ve|ll|d|m)\b)|(?<=[(\[$]) ")
_QUOTED = re.compile(r'" ([^"]*?) "')

Splitter = Callable[[list[str]], list[list[str]]]


def ours(paragraphs: list[str]) -> list[list[str]]:
    return [split_sentences(paragraph) for paragraph in paragraphs]


def tf_text_breaker() -> Splitter:
    breaker = tf_text.StateBasedSentenceBreaker()

    def split(paragraphs: list[str]) -> list[list[str]]:
        found = breaker.break_sentences(tf.constant(paragraphs)).to_list()
        # It cuts within the bytes of a no-break space now and then.
        return [[part.decode("utf-8", "replace") for part in parts] for parts in found]

    return split


def gold_sentences(data_dir: str, pattern: str, columns: tuple[int, ...], apart: bool) -> list[str]:
    """The distinct sentences of a data set, in the order of its files."""
    found: dict[str, None] = {}
    for path in sorted(glob.glob(os.path.join(data_dir, pattern))):
        for _, line in numbered_lines(path):
            cells = line.split("\t")
            for text in (cells[i] for i in columns if i < len(cells)):
                text = " ".join(html.unescape(text).split())
                found[joined(text) if apart else text] = None
    return [text for text in found if _END.search(text)]


def joined(text: str) -> str:
    """Words and marks that stood apart, joined as in print."""
    return _QUOTED.sub(r'"\1"', _BEFORE.sub("", text))


def boundaries(sentences: Iterable[str]) -> set[int]:
    """Where sentences end, in characters but white space; the paragraph's end left out."""
    ends, place = set(), 0
    for sentence in sentences:
        place += len("".join(sentence.split()))
        ends.add(place)
    ends.discard(place)
    return ends


def score(split: Splitter, paragraphs: list[list[str]], joint: str) -> tuple[float, float, float]:
    """(Precision, recall, F1) of the boundaries."""
    right = guessed = true = 0
    found = split([joint.join(sentences) for sentences in paragraphs])
    for sentences, parts in zip(paragraphs, found, strict=True):
        gold, guess = boundaries(sentences), boundaries(parts)
        right += len(gold & guess)
        guessed += len(guess)
        true += len(gold)
    precision, recall = right / max(guessed, 1), right / max(true, 1)
    return precision, recall, 2 * precision * recall / max(precision + recall, 1e-9)


def show_boundaries(splitters: dict[str, Splitter]) -> None:
    sets = {name: gold_sentences(FLAGS.data_dir, *where) for name, where in GOLD.items()}
    for path in expand(FLAGS.lines) if FLAGS.lines else []:
        lines = dict.fromkeys(line for _, line in numbered_lines(path) if _END.search(line))
        sets[os.path.basename(path)] = list(lines)
    print(f"\n{'boundaries':34s}{'sentences':>10s}  {'splitter':10s}precision  recall      F1")
    for name, sentences in sets.items():
        random.Random(1).shuffle(sentences)
        del sentences[FLAGS.sentences :]
        paragraphs = [sentences[i : i + SENTENCES] for i in range(0, len(sentences), SENTENCES)]
        joint = "" if "Chinese" in name else " "
        for splitter, split in splitters.items():
            precision, recall, f1 = score(split, paragraphs, joint)
            print(
                f"{name:34s}{len(sentences):10d}  {splitter:10s}{precision:9.2%}{recall:8.2%}"
                f"{f1:8.2%}"
            )


def show_speed(splitters: dict[str, Splitter]) -> None:
    paragraphs, size = [], 0
    for path in expand(FLAGS.corpus):
        for _, line in numbered_lines(path):
            if line and not line.startswith("<") and size < FLAGS.megabytes * 1e6:
                paragraphs.append(line)
                size += len(line.encode())
    print(f"{len(paragraphs)} paragraphs, {size / 1e6:.2f} MB, one thread, CPU time:")
    seconds: dict[str, list[float]] = {name: [] for name in splitters}
    for turn in range(FLAGS.rounds + 1):
        for name, split in splitters.items():
            start = time.process_time()
            split(paragraphs)
            if turn:  # The first one warms up.
                seconds[name].append(time.process_time() - start)
    for name, times in seconds.items():
        print(f"  {name:10s}{size / 1e6 / statistics.median(times):8.2f} MB/s")


def main(_) -> None:
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    splitters = {"ours": ours, "TF Text": tf_text_breaker()}
    show_speed(splitters)
    show_boundaries(splitters)


if __name__ == "__main__":
    flags.DEFINE_string("corpus", None, "Files of WikiExtractor, for the speed.")
    flags.DEFINE_string("data_dir", None, "The folder that holds glue/ and xnli/.")
    flags.DEFINE_string("lines", "", "Files of one sentence per line.")
    flags.DEFINE_float("megabytes", 2, "Text to go over.")
    flags.DEFINE_integer("rounds", 5, "Timed turns of each.")
    flags.DEFINE_integer("sentences", 5000, "Sentences taken of each set at most.")
    flags.mark_flags_as_required(["corpus", "data_dir"])
    app.run(main)
