"""From raw text to everything that pre-training reads: vocabulary, training and held-out records.

    text = PretrainingText(files=["corpus.txt"])
    records = make_records_from_text(text, "out", 30522, InstanceSettings())

What was made is described in `records/made.json`, written last. A later call with the same
text and settings finds it and makes nothing again, so an interrupted run goes on at once.
"""

import dataclasses
import hashlib
import itertools
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import tensorflow as tf
from absl import logging

from data.errors import DataError
from data.pretraining import corpus
from data.pretraining.batches import text_stream
from data.pretraining.corpus import Document
from data.pretraining.corpus.parts import CorpusParts, divide_corpus
from data.pretraining.instances import generate
from data.pretraining.instances.settings import InstanceSettings
from data.pretraining.records import record_sets
from data.pretraining.run_records import RecordsFromText
from data.pretraining.writing import jobs, local, manifest, shards
from data.tokenization import vocabulary
from data.tokenization.learning import learner

HELD_OUT_SHARE = 0.05
# A corpus of fewer documents is split so that both sides have some, whatever chance says.
_SMALL_CORPUS = 1000
_TRAIN_SHARDS = 16
# Vocabularies are often padded to a multiple of 8 to 128 in the configuration, for speed.
_PADDING = 128

Documents = Callable[[], Iterable[Document]]


@dataclasses.dataclass(frozen=True)
class PretrainingText:
    """A corpus: files, or documents in memory.

    Attributes:
        files: Corpus files.
        documents: Instead of files: returns an iterator over the documents, anew at each call.
        name: Instead of files: tells this corpus from others.
        text_field: The field or column of the files that holds the text.
    """

    files: Sequence[str] = ()
    documents: Documents | None = None
    name: str = ""
    text_field: str = corpus.TEXT_FIELD

    def read(self) -> Iterable[Document]:
        """Streams the documents."""
        if self.documents is not None:
            return self.documents()
        return corpus.read_documents(self.files, text_field=self.text_field)

    def describe(self) -> list[str]:
        """Checksums of the files, and how they are read: a change of it makes records anew."""
        files = [f"{path} {shards.shard_sha256(path)}" for path in self.files]
        return [self.name, self.text_field, *files]


def existing_records_not_from_text(
    input_file: str,
    eval_file: str | None,
    vocab_file: str | None,
    vocab_size: int,
    max_seq_length: int,
    max_predictions_per_seq: int | None,
    objective: str,
) -> RecordsFromText:
    """Records that were made before, checked by the manifests beside them and their own marks.

    Args:
        input_file, eval_file: Globs, separated by commas. Without `eval_file` a share of the
            input is held out (`pipeline.split_held_out`).
        vocab_file: Checked against the configuration if given.
        vocab_size: Of the configuration.
        max_seq_length: As the records are to be read.
        max_predictions_per_seq: As they are to be read; None where masks are made anew.
        objective: What is trained with them.
    """
    tokens = _check_vocab_size(vocab_file, vocab_size) if vocab_file else None
    train_files = _record_files(input_file)
    eval_files = _record_files(eval_file) if eval_file else train_files
    corpus.warn_of_common_files(train_files if eval_file else (), eval_files)
    files = list(dict.fromkeys(train_files + eval_files))
    described = manifest.verify_manifest(
        files, max_seq_length, max_predictions_per_seq, vocab_file, objective
    )
    checksum = vocabulary.vocabulary_checksum(tokens) if tokens else None
    sets = record_sets.examine_sets(files, checksum, described, vocab_file)
    sets.check()
    sets.log_notes()
    made_with = checksum or sets.vocabulary
    return RecordsFromText(
        train_files, eval_files, vocab_file, shared=not eval_file, vocabulary=made_with
    )


def _record_files(patterns: str) -> list[str]:
    # 'records/*' is a usual pattern, and what lies beside the records matches it too.
    files = [path for path in corpus.expand(patterns) if not path.endswith(manifest.ENDING)]
    if not files:
        raise DataError(f"{patterns} matches manifests only, and no TFRecord file.")
    return files


def _check_vocab_size(vocab_file: str, vocab_size: int) -> list[str]:
    """The tokens of a vocabulary; raises DataError unless it has the configuration's size.

    The configuration may have up to 127 rows more, which pad the table for speed.
    """
    tokens = vocabulary.load_vocab(vocab_file)
    if not len(tokens) <= vocab_size < len(tokens) + _PADDING:
        raise DataError(
            f"The vocabulary {vocab_file} has {len(tokens)} tokens, but the model's configuration "
            f"says vocab_size {vocab_size}. Use the vocabulary that belongs to the configuration, "
            f"or set vocab_size to {len(tokens)} in it."
        )
    if len(tokens) < vocab_size:
        logging.info(
            "The vocabulary %s has %d tokens and vocab_size is %d: the ids from %d on stand for no "
            "token, and their embeddings only pad the table.",
            vocab_file,
            len(tokens),
            vocab_size,
            len(tokens),
        )
    return tokens


def make_records_from_text(
    text: PretrainingText,
    directory: str,
    vocab_size: int,
    settings: InstanceSettings,
    vocab_file: str | None = None,
    held_out: PretrainingText | None = None,
    kept_vocab_file: str | None = None,
    num_workers: int = 1,
    besides: PretrainingText | None = None,
) -> RecordsFromText:
    """Makes the vocabulary (unless given) and the records in `directory/records`.

    Args:
        text: The corpus.
        directory: The run's output folder.
        vocab_size: Of the configuration, met exactly when a vocabulary is learned.
        settings: How records are made. The held-out ones go through the text once, and always
            have masks, so that all evaluations are of the same ones. With dynamic masking a
            corpus in files is trained on as it is, without records (see `text_stream`); one in
            memory, or of less than a thousand documents, gets records without masks.
        vocab_file: Vocabulary to use instead of learning one.
        held_out: Text to evaluate on. Without it a share of the documents is held out.
        kept_vocab_file: That of weights that are trained already; None without. It, or what was
            learned for them, stays when the records are made anew.
        num_workers: Processes; 0: one for each CPU.
        besides: Text to train on as well, see `PretrainingSides`.

    Raises:
        DataError: Empty corpus, a corpus of one document, a vocabulary of another size.
    """
    settings.check()
    folder = os.path.join(directory, "records")
    if vocab_file:
        _check_vocab_size(vocab_file, vocab_size)
    used_vocab = vocab_file or os.path.join(folder, "vocab.txt")
    _, train_files = shards.name_shards(os.path.join(folder, "train.tfrecord"), _TRAIN_SHARDS)
    sides = PretrainingSides(text, held_out, besides)
    stream = sides.parts() if settings.dynamic_masking else None
    if stream and not any(document.sentences for document in sides.documents(True)):
        # Endless epochs of nothing would be waited for.
        raise DataError(f"There is no text to train on in {', '.join(text.files[:3])}. Add some.")
    described_own, described_held_out = text.describe(), held_out and held_out.describe()
    described_besides = besides.describe() if besides else []
    described_text = [*described_own, *described_besides]
    source = json.dumps([described_text, described_held_out])
    identity = {
        "source": hashlib.sha256(source.encode()).hexdigest(),
        "settings": settings.identity(),
        "vocab_size": vocab_size,
    }
    records = RecordsFromText(
        [] if stream else train_files,
        [os.path.join(folder, "heldout.tfrecord")],
        used_vocab,
        corpus=stream,
        settings=settings,
        source=json.dumps([*_checksums(described_text), not held_out]),
        held_out_source=json.dumps(
            [*_checksums(described_held_out or described_own), not held_out]
        ),
        besides=" ".join(_checksums(described_besides)),
    )
    note = os.path.join(folder, "made.json")
    made = dict(jobs.unless_damaged(jobs.read_job_note, note) or {})
    made.pop("vocab_file", None)  # of earlier versions; which one it was the records tell
    if made == identity and all(
        tf.io.gfile.exists(f) for f in (*records.train_files, *records.eval_files, used_vocab)
    ):
        try:
            _check_made(records, settings)
        except DataError as error:
            if kept_vocab_file:  # weights were trained with them
                raise
            logging.info("The records in %s are made again: %s", folder, error)
            for name in ("train", "heldout"):  # else they would pass for made by their sizes
                manifest.remove_manifest(os.path.join(folder, f"{name}.tfrecord"))
        else:
            logging.info("Records for this text and these settings are in %s already.", folder)
            return records
    tf.io.gfile.makedirs(folder)
    if tf.io.gfile.exists(note):
        tf.io.gfile.remove(note)

    places = [used_vocab, kept_vocab_file] if kept_vocab_file and not vocab_file else []
    kept = next(filter(tf.io.gfile.exists, places), None)
    if kept:
        if kept != used_vocab:
            tf.io.gfile.copy(kept, used_vocab)
        _check_vocab_size(used_vocab, vocab_size)
        logging.info("The text or its settings have changed; the vocabulary %s stays", used_vocab)
    elif not vocab_file:
        logging.info("Learning a vocabulary of %d tokens from the corpus", vocab_size)
        sentences = (s for document in sides.documents(True) for s in document.sentences)
        folding = settings.do_lower_case, settings.strip_accents
        words = learner.count_words(sentences, *folding)
        vocabulary.write_vocab(learner.learn_vocabulary(words, vocab_size), used_vocab)
        logging.info("Wrote %s", used_vocab)
    for training, files in ((True, records.train_files), (False, records.eval_files)):
        if not files:
            continue
        how = settings
        if not training:
            how = dataclasses.replace(settings, dupe_factor=1, dynamic_masking=False)
        counts = sides.write(training, files, used_vocab, how, num_workers)
        logging.info("%s: %s", "Training" if training else "Held out", counts)
    jobs.write_job_note(note, identity)
    return records


def _checksums(described: Iterable[str]) -> list[str]:
    """Of what `PretrainingText.describe` tells, without the files' names."""
    return [line.rpartition(" ")[2] for line in described]


def _check_made(records: RecordsFromText, settings: InstanceSettings) -> None:
    """Raises DataError unless record files are as they were made, with the vocabulary as it is."""
    files = [*records.train_files, *records.eval_files]
    described = manifest.verify_manifest(
        files, settings.max_seq_length, settings.max_predictions_per_seq, records.vocab_file
    )
    checksum = vocabulary.vocabulary_checksum(vocabulary.load_vocab(records.vocab_file))
    record_sets.examine_sets(files, checksum, described, records.vocab_file).check()


class PretrainingSides:
    """The training and the held-out documents of a corpus, told apart by a hash of their text.

    Args:
        text: The corpus.
        held_out: Text to evaluate on; None: a share of the corpus.
        besides: Files that are trained on as well, none of whose documents the hash would hold out.

    Raises:
        DataError: There are fewer than four documents.
    """

    def __init__(
        self,
        text: PretrainingText,
        held_out: PretrainingText | None = None,
        besides: PretrainingText | None = None,
    ):
        self._text, self._held_out, self._besides = text, held_out, besides
        self._split: tuple[list[Document], list[Document]] | None = None
        if held_out is not None:
            corpus.warn_of_common_files(text.files, held_out.files)
        else:
            first = list(itertools.islice(text.read(), _SMALL_CORPUS))
            if len(first) < _SMALL_CORPUS:
                self._split = corpus.split_corpus_documents(first, HELD_OUT_SHARE)
                if len(self._split[1]) < 2:
                    where = f" ({', '.join(text.files[:3])})" if text.files else ""
                    raise DataError(
                        f"The corpus{where} has {len(first)} documents; at least 4 are needed, "
                        f"two to train on and two to evaluate on. Put a blank line between "
                        f"documents, or add text."
                    )

    @property
    def files(self) -> list[str]:
        """Those of both sides; none where the text is in memory."""
        return [*self._text.files, *(self._held_out.files if self._held_out else ())]

    def parts(self) -> CorpusParts | None:
        """The training side in parts, for a stream; None if it can't be read by parts."""
        text = self._text
        if self._split or not text.files:
            return None
        how = text.text_field, None if self._held_out else ("train", HELD_OUT_SHARE)
        besides = self._besides.files if self._besides else ()
        size = sum(tf.io.gfile.stat(path).length for path in besides)
        own = divide_corpus(
            text.files, lambda number: text_stream.number_of_stream_parts(number + size), *how
        )
        return own.joined(divide_corpus(besides, lambda _: len(own), *how)) if besides else own

    def held_out_hashes(self) -> set[int]:
        """Of the documents to evaluate on that `corpus.is_held_out_of_corpus` doesn't tell."""
        documents: Iterable[Document] = self._held_out.read() if self._held_out else ()
        return set(map(corpus.corpus_document_hash, self._split[1] if self._split else documents))

    def documents(self, training: bool) -> Iterator[Document]:
        """Streams the documents of one side."""
        if self._split and training and self._besides:
            # Not behind all others, which may fill a shuffle buffer by themselves.
            own, more = self._split[0], list(self._besides.read())
            places = [len(more) * number // len(own) for number in range(len(own) + 1)]
            for document, (begin, end) in zip(own, itertools.pairwise(places), strict=True):
                yield document
                yield from more[begin:end]
            return
        if self._split:
            yield from self._split[not training]
        elif self._held_out:
            yield from (self._text if training else self._held_out).read()
        else:
            for document in self._text.read():
                if corpus.is_held_out_of_corpus(document, HELD_OUT_SHARE) != training:
                    yield document
        if training and self._besides:
            yield from self._besides.read()

    def _training_files(self) -> list[str]:
        return [*self._text.files, *(self._besides.files if self._besides else ())]

    def write(
        self,
        training: bool,
        files: list[str],
        vocab_file: str,
        settings: InstanceSettings,
        num_workers: int,
    ) -> generate.InstanceCounts:
        """Makes the records of one side."""
        text = self._text if training or not self._held_out else self._held_out
        side, name = ("train", "train") if training else ("eval", "heldout")
        name = os.path.join(os.path.dirname(files[0]), f"{name}.tfrecord")
        if self._split or not text.files:
            # What is of records that were made, or begun, of a larger corpus.
            manifest.remove_manifest(name)
            if tf.io.gfile.exists(f"{name}{jobs.PARTS}"):
                tf.io.gfile.rmtree(f"{name}{jobs.PARTS}")
            tokenizer = settings.make_tokenizer(vocab_file)
            return local.create_pretraining_records(
                self.documents(training), tokenizer, files, settings
            )
        job = jobs.plan_job(
            self._training_files() if training else text.files,
            files,
            vocab_file,
            settings,
            name=name,
            text_field=text.text_field,
            held_out=None if self._held_out else (side, HELD_OUT_SHARE),
        )
        return local.write_job_locally(job, num_workers).counts


def fill_in_pretraining_length(pattern: str | None, values: Mapping[str, int]) -> str | None:
    """A file pattern with its {max_seq_length} replaced."""
    for name, value in values.items():
        pattern = pattern and pattern.replace("{" + name + "}", str(value))
    return pattern
