"""From raw text to everything that pre-training reads: vocabulary, training and held-out records.

    records = make_records(lambda: corpus.read_documents(files), "out", 30522, Settings())

What was made is described in `records/manifest.json`, written last. A later call with the same
text and settings finds it and makes nothing again, so an interrupted run goes on at once.
"""

import dataclasses
import hashlib
import itertools
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping

import tensorflow as tf
from absl import logging

from data.errors import DataError
from data.pretraining import corpus, generate, masking, pipeline, records
from data.pretraining.corpus import Document
from data.tokenization import Tokenizer, learner, vocabulary

HELD_OUT_SHARE = 0.05
# A corpus of fewer documents is split so that both sides have some, whatever chance says.
_SMALL_CORPUS = 1000
_TRAIN_SHARDS = 8
# Vocabularies are often padded to a multiple of 8 to 128 in the configuration, for speed.
_PADDING = 128

Documents = Callable[[], Iterable[Document]]


@dataclasses.dataclass(frozen=True)
class Settings:
    """How records are made; see `generate.create_pretraining_records`."""

    max_seq_length: int = 128
    max_predictions_per_seq: int = 20
    dupe_factor: int = 10
    masked_lm_prob: float = 0.15
    short_seq_prob: float = 0.1
    do_whole_word_mask: bool = False
    do_lower_case: bool = True
    random_seed: int = 12345
    mask_share: float = masking.MASK_SHARE
    random_share: float = masking.RANDOM_SHARE


@dataclasses.dataclass(frozen=True)
class Records:
    """The record files of a run.

    Attributes:
        train_files, eval_files: TFRecord files; the same ones when a share of them is held out.
        vocab_file: The vocabulary they were made with, if known.
        shared: Whether the two sides are told apart record by record (`pipeline`'s `held_out`).
    """

    train_files: list[str]
    eval_files: list[str]
    vocab_file: str | None
    shared: bool = False

    def side(self, training: bool) -> str | None:
        """The value of `pipeline.pretraining_dataset`'s `held_out` for one side."""
        if not self.shared:
            return None
        return "train" if training else "eval"

    def describe(self) -> str:
        """Which files are trained on: names, sizes and side."""
        return f"{describe_files(self.train_files)}\n{self.side(training=True)}"

    def describe_examples(self, index) -> str:
        """Files and numbers of training records, see `pipeline.describe_examples`."""
        return pipeline.describe_examples(self.train_files, index)

    def diagnose(self, max_seq_length: int, max_predictions: int, vocab_size: int) -> None:
        """After a failure while reading: raises DataError naming the bad record, if any is bad."""
        files = list(dict.fromkeys(self.train_files + self.eval_files))
        records.diagnose(files, max_seq_length, max_predictions, vocab_size)


def existing_records(
    input_file: str, eval_file: str | None, vocab_file: str | None, vocab_size: int
) -> Records:
    """Records that were made before.

    Args:
        input_file, eval_file: Globs, separated by commas. Without `eval_file` a share of the
            input is held out (`pipeline.split_held_out`).
        vocab_file: Checked against the configuration if given.
        vocab_size: Of the configuration.
    """
    if vocab_file:
        check_vocab_size(vocab_file, vocab_size)
    train_files = corpus.expand(input_file)
    eval_files = corpus.expand(eval_file) if eval_file else train_files
    return Records(train_files, eval_files, vocab_file, shared=not eval_file)


def check_vocab_size(vocab_file: str, vocab_size: int) -> None:
    """Raises DataError unless the vocabulary has the configuration's size.

    The configuration may have up to 127 rows more, which pad the table for speed.
    """
    tokens = len(vocabulary.load_vocab(vocab_file))
    if not tokens <= vocab_size < tokens + _PADDING:
        raise DataError(
            f"The vocabulary {vocab_file} has {tokens} tokens, but the model's configuration says "
            f"vocab_size {vocab_size}. Use the vocabulary that belongs to the configuration, or "
            f"set vocab_size to {tokens} in it."
        )


def make_records(
    documents: Documents,
    source: str,
    directory: str,
    vocab_size: int,
    settings: Settings,
    vocab_file: str | None = None,
    held_out_documents: Documents | None = None,
    keep_vocabulary: bool = False,
) -> Records:
    """Makes the vocabulary (unless given) and the records in `directory/records`.

    Args:
        documents: Returns an iterator over the corpus, anew at each call.
        source: What the corpus is, such as its files with their sizes: a change of it makes the
            records anew.
        directory: The run's output folder.
        vocab_size: Of the configuration, met exactly when a vocabulary is learned.
        settings: How records are made.
        vocab_file: Vocabulary to use instead of learning one.
        held_out_documents: Documents to evaluate on. Without them a share of `documents` is
            held out.
        keep_vocabulary: A vocabulary learned earlier stays when the records are made anew.

    Raises:
        DataError: Empty corpus, a corpus of one document, a vocabulary of another size.
    """
    folder = os.path.join(directory, "records")
    if vocab_file:
        check_vocab_size(vocab_file, vocab_size)
    used_vocab = vocab_file or os.path.join(folder, "vocab.txt")
    train_files = [
        os.path.join(folder, f"train-{i:05d}-of-{_TRAIN_SHARDS:05d}.tfrecord")
        for i in range(_TRAIN_SHARDS)
    ]
    made = Records(train_files, [os.path.join(folder, "heldout.tfrecord")], used_vocab)
    manifest = os.path.join(folder, "manifest.json")
    wanted = {
        "source": hashlib.sha256(source.encode()).hexdigest(),
        "settings": dataclasses.asdict(settings),
        "vocab_size": vocab_size,
        "vocab_file": vocab_file,
    }
    if _read_json(manifest) == wanted and all(
        tf.io.gfile.exists(f) for f in (*made.train_files, *made.eval_files, used_vocab)
    ):
        logging.info("Records for this text and these settings are in %s already.", folder)
        return made
    tf.io.gfile.makedirs(folder)
    if tf.io.gfile.exists(manifest):
        tf.io.gfile.remove(manifest)

    if held_out_documents:
        training, held_out = documents, held_out_documents
    else:
        training, held_out = split(documents)
    if not vocab_file and keep_vocabulary and tf.io.gfile.exists(used_vocab):
        check_vocab_size(used_vocab, vocab_size)
        logging.info("The text or its settings have changed; the vocabulary %s stays", used_vocab)
    elif not vocab_file:
        logging.info("Learning a vocabulary of %d tokens from the corpus", vocab_size)
        words = learner.count_words(
            (s for document in training() for s in document.sentences), settings.do_lower_case
        )
        vocabulary.write_vocab(learner.learn_vocabulary(words, vocab_size), used_vocab)
        logging.info("Wrote %s", used_vocab)
    tokenizer = Tokenizer(used_vocab, settings.do_lower_case)
    options = dataclasses.asdict(settings)
    del options["do_lower_case"]
    for side, files, changed in (
        (training, made.train_files, {}),
        # One pass is enough to evaluate on.
        (held_out, made.eval_files, {"dupe_factor": 1}),
    ):
        summary = generate.create_pretraining_records(
            side(), tokenizer, files, **(options | changed)
        )
        logging.info(
            "%s: %d records of %d documents, %d tokens",
            "Held out" if changed else "Training",
            summary.instances,
            summary.documents,
            summary.tokens,
        )
    _write_json(manifest, wanted)
    return made


def describe_files(files: list[str]) -> str:
    """Names and sizes of corpus files, as the `source` of `make_records`."""
    return "\n".join(f"{path} {tf.io.gfile.stat(path).length}" for path in files)


def split(documents: Documents) -> tuple[Documents, Documents]:
    """Training and held-out documents, told apart by a stable hash of their text."""
    first = list(itertools.islice(documents(), _SMALL_CORPUS))
    if len(first) < _SMALL_CORPUS:
        training, held_out = corpus.split_documents(first, HELD_OUT_SHARE)
        if len(held_out) < 2:
            raise DataError(
                f"The corpus has {len(first)} documents; at least 4 are needed, two to train on "
                f"and two to evaluate on. Put a blank line between documents, or add text."
            )
        return lambda: training, lambda: held_out

    def side(wanted: bool) -> Iterator[Document]:
        for document in documents():
            if corpus.is_held_out(document, HELD_OUT_SHARE) == wanted:
                yield document

    return lambda: side(False), lambda: side(True)


def _read_json(path: str):
    if not tf.io.gfile.exists(path):
        return None
    with tf.io.gfile.GFile(path, "r") as file:
        return json.loads(file.read())


def _write_json(path: str, value) -> None:
    temporary = path + ".tmp"
    with tf.io.gfile.GFile(temporary, "w") as file:
        file.write(json.dumps(value, indent=2) + "\n")
    tf.io.gfile.rename(temporary, path, overwrite=True)


def fill_in(pattern: str | None, values: Mapping[str, int]) -> str | None:
    """A file pattern with its {max_seq_length} replaced."""
    for name, value in values.items():
        pattern = pattern and pattern.replace("{" + name + "}", str(value))
    return pattern
