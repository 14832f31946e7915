"""From documents to TFRecord files in one streaming pass and bounded memory.

Documents are tokenized in batches and gathered into chunks of some 32 MB of text. Every chunk is
planned at once with all its duplicates (instances.py), its instances are shuffled as a plan of a
few integers each, and then made, masked and encoded batch by batch in the shuffled order, so the
tensors of no more than one batch exist at a time. Random next segments come from other documents
of the same chunk.

All randomness of chunk c comes from (random_seed, c), so the same documents, vocabulary and seed
give the same bytes on every machine.
"""

import dataclasses
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import tensorflow as tf
from absl import logging

from data.errors import DataError
from data.pretraining import instances, masking, records
from data.pretraining.corpus import TEXT_FIELD, Document, read_documents

CHUNK_BYTES = 32 * 2**20
_TOKENIZE_BYTES = 2**20
_BATCH_PIECES = 2**17
_SEED_MASK = 2**64 - 1


@dataclass(slots=True)
class GenerationSummary:
    """What was made.

    Attributes:
        documents: Documents used.
        dropped_documents: Documents without two words.
        sentences, tokens: Of the used documents, after WordPiece.
        chunks, instances: Number of chunks and of records.
        instance_tokens: Real pieces in all instances, with [CLS] and [SEP].
        masked_tokens: Predictions in all instances.
        random_next_share: Share of instances with a random second segment.
        text_bytes: UTF-8 bytes of the documents read.
        wall_seconds: Duration.
        output_files: The files written.
    """

    documents: int = 0
    dropped_documents: int = 0
    sentences: int = 0
    tokens: int = 0
    chunks: int = 0
    instances: int = 0
    instance_tokens: int = 0
    masked_tokens: int = 0
    random_next_share: float = 0.0
    text_bytes: int = 0
    wall_seconds: float = 0.0
    output_files: list[str] = dataclasses.field(default_factory=list)

    def __str__(self) -> str:
        return (
            f"{self.documents:,} documents, {self.sentences:,} sentences, {self.tokens:,} tokens →"
            f" {self.instances:,} instances in {len(self.output_files)} files"
            f" ({self.instance_tokens:,} tokens, {self.masked_tokens:,} masked,"
            f" {self.random_next_share:.1%} random next) in {self.wall_seconds:.1f} s"
        )


def create_pretraining_records(
    documents: Iterable[Document] | Sequence[str],
    tokenizer,
    output_files: Sequence[str],
    max_seq_length: int = 128,
    max_predictions_per_seq: int = 20,
    dupe_factor: int = 10,
    masked_lm_prob: float = 0.15,
    short_seq_prob: float = 0.1,
    do_whole_word_mask: bool = False,
    random_seed: int = 12345,
    progress: float = 5.0,
    chunk_bytes: int = CHUNK_BYTES,
    mask_share: float = masking.MASK_SHARE,
    random_share: float = masking.RANDOM_SHARE,
    text_field: str = TEXT_FIELD,
) -> GenerationSummary:
    """Writes pre-training records; defaults are the original release's.

    Args:
        documents: Documents, or a list of corpus files (see `corpus.read_documents`).
        tokenizer: A `data.tokenization.Tokenizer`.
        output_files: TFRecord files, written round-robin; they appear when all is done.
        max_seq_length: Pieces per instance with [CLS] and two [SEP]; 5 or more.
        max_predictions_per_seq: Slots for predictions in each record.
        dupe_factor: How often each document is gone through, with other pairs and masks.
        masked_lm_prob: Share of pieces predicted.
        short_seq_prob: Share of instances that aim at a shorter length.
        do_whole_word_mask: Mask whole words instead of single pieces.
        random_seed: Same seed, same bytes.
        progress: Seconds between progress lines in the log; 0 for none.
        chunk_bytes: Text held at once; peak memory is several times this.
        mask_share, random_share: Shares of the predicted pieces that become [MASK] and a random
            piece; the rest stay as they are.
        text_field: The field of JSON lines that holds the text, where files are given.

    Returns:
        A summary of what was made.

    Raises:
        DataError: For settings out of range, an empty corpus, a corpus of one document, a
            vocabulary without [MASK], unreadable text, output that can't be written.
    """
    started = time.monotonic()
    check_settings(
        max_seq_length,
        max_predictions_per_seq,
        dupe_factor,
        masked_lm_prob,
        short_seq_prob,
        mask_share,
        random_share,
    )
    vocabulary = masking.MaskingVocabulary.from_tokenizer(tokenizer)
    report = _Progress(progress, started)
    origin = "the documents given"
    if isinstance(documents, Sequence) and documents and isinstance(documents[0], str):
        files = list(documents)
        origin = ",".join(files[:3]) + (f" and {len(files) - 3} more files" if files[3:] else "")
        report.measure(files)
        documents = read_documents(files, text_field=text_field)
    summary = report.summary
    random_next = 0
    with records.ShardWriters(output_files) as writers:
        chunks = _chunks(documents, tokenizer, vocabulary, max_seq_length, chunk_bytes, report)
        for number, chunk in enumerate(chunks):
            if chunk.documents < 2:
                raise DataError(_too_few(origin, chunk.documents, summary))
            summary.chunks += 1
            rng = np.random.default_rng([random_seed & _SEED_MASK, number])
            plan = instances.plan_instances(chunk, max_seq_length, short_seq_prob, dupe_factor, rng)
            plan = instances.truncate(plan.take(rng.permutation(len(plan))), max_seq_length, rng)
            random_next += int(plan.is_random_next.sum())
            step = max(64, _BATCH_PIECES // max_seq_length)
            for begin in range(0, len(plan), step):
                batch = instances.assemble(
                    chunk,
                    plan.take(slice(begin, begin + step)),
                    max_seq_length,
                    vocabulary.cls_id,
                    vocabulary.sep_id,
                )
                masked = masking.mask_instances(
                    batch["input_ids"],
                    batch["input_mask"],
                    vocabulary,
                    max_predictions_per_seq,
                    masked_lm_prob,
                    do_whole_word_mask,
                    rng,
                    mask_share,
                    random_share,
                )
                batch.update(masked)
                writers.write(records.encode_records(batch))
                summary.instances += len(batch["input_ids"])
                summary.instance_tokens += int(batch["input_mask"].sum())
                summary.masked_tokens += int(np.count_nonzero(batch["masked_lm_weights"]))
                report.maybe_log()
        if summary.instances == 0:
            raise DataError(_too_few(origin, 0, summary))
    summary.random_next_share = random_next / summary.instances
    summary.output_files = list(writers.files)
    summary.wall_seconds = time.monotonic() - started
    return summary


def check_settings(
    max_seq_length: int,
    max_predictions_per_seq: int,
    dupe_factor: int,
    masked_lm_prob: float,
    short_seq_prob: float,
    mask_share: float = masking.MASK_SHARE,
    random_share: float = masking.RANDOM_SHARE,
) -> None:
    """Raises DataError, naming the setting, for values out of range."""
    for name, value, low, why in (
        ("max_seq_length", max_seq_length, instances.MIN_SEQUENCE_LENGTH, "[CLS] a [SEP] b [SEP]"),
        ("max_predictions_per_seq", max_predictions_per_seq, 1, "one prediction per instance"),
        ("dupe_factor", dupe_factor, 1, "one pass over the documents"),
    ):
        if value < low:
            raise DataError(
                f"{name} is {value}, but {low} is the least that works ({why}). Set --{name} to"
                f" {low} or more."
            )
    for name, share in (("masked_lm_prob", masked_lm_prob), ("short_seq_prob", short_seq_prob)):
        if not 0 <= share <= 1:
            raise DataError(f"{name} is {share}, but a share from 0 to 1 was expected.")
    masking.check_shares(mask_share, random_share)


def _too_few(origin: str, documents: int, summary: GenerationSummary) -> str:
    if documents == 0:
        return (
            f"No text was found in {origin}: {summary.dropped_documents} documents were read, and"
            " none has two words. Give text files with one sentence per line and a blank line"
            " between documents."
        )
    return (
        f"Only one document was found in {origin}, but next-sentence pairs take their random"
        " segments from another document. Put a blank line between the documents (articles,"
        " chapters) of your text, or add more text."
    )


def _chunks(
    documents: Iterable[Document],
    tokenizer,
    vocabulary: masking.MaskingVocabulary,
    max_seq_length: int,
    chunk_bytes: int,
    report: "_Progress",
) -> Iterator[instances.Chunk]:
    """Gathers tokenized documents into chunks.

    A chunk is given out when the next one has two documents, so that the last documents of a
    corpus join the chunk before if they are too few to make pairs.
    """
    waiting: instances.Chunk | None = None
    parts: list[instances.Chunk] = []
    size = 0
    for batch, batch_bytes in _batches(documents):
        part = _tokenize(batch, tokenizer, vocabulary, max_seq_length)
        report.add(batch, batch_bytes, part)
        if part.documents:
            parts.append(part)
        size += batch_bytes
        enough = sum(p.documents for p in parts) >= 2
        if waiting is not None and enough:
            yield waiting
            waiting = None
        if size >= chunk_bytes and enough:
            waiting = instances.Chunk.concatenate(parts)
            parts, size = [], 0
    if waiting is not None:
        parts.insert(0, waiting)
    if parts:
        yield instances.Chunk.concatenate(parts)


def _batches(documents: Iterable[Document]) -> Iterator[tuple[list[list[bytes]], int]]:
    """Documents as lists of UTF-8 sentences, about a megabyte of text at a time."""
    batch, size = [], 0
    for document in documents:
        sentences = [s.encode("utf-8", "ignore") for s in document.sentences]
        batch.append(sentences)
        size += sum(map(len, sentences)) + len(sentences)
        if size >= _TOKENIZE_BYTES:
            yield batch, size
            batch, size = [], 0
    if batch:
        yield batch, size


def _tokenize(
    batch: list[list[bytes]],
    tokenizer,
    vocabulary: masking.MaskingVocabulary,
    max_seq_length: int,
) -> instances.Chunk:
    sentences = [sentence for document in batch for sentence in document]
    document = np.repeat(np.arange(len(batch)), [len(d) for d in batch])
    pieces, lengths = [], []
    begin = 0
    while begin < len(sentences):
        # One enormous document still goes through the tokenizer in bounded portions.
        end, size = begin, 0
        while end < len(sentences) and size < 2 * _TOKENIZE_BYTES:
            size += len(sentences[end])
            end += 1
        ids = tokenizer.tokenize(tf.constant(sentences[begin:end], tf.string))
        pieces.append(ids.values.numpy())
        lengths.append(ids.row_lengths().numpy())
        begin = end
    empty = [np.zeros(0, np.int32)]
    return instances.make_chunk(
        np.concatenate(pieces or empty),
        np.concatenate(lengths or empty),
        document,
        vocabulary.continues_word,
        max_seq_length,
    )


class _Progress:
    """Counts, and logs a line every few seconds."""

    def __init__(self, seconds: float, started: float):
        self.summary = GenerationSummary()
        self._seconds = seconds
        self._started = self._last = started
        self._total_bytes: int | None = None

    def measure(self, files: Sequence[str]) -> None:
        """Learns the size of the corpus; unknown if a file is compressed or can't be asked."""
        try:
            if not any(os.fspath(path).endswith(".gz") for path in files):
                self._total_bytes = sum(tf.io.gfile.stat(path).length for path in files)
        except tf.errors.OpError:
            self._total_bytes = None

    def add(self, batch: list[list[bytes]], size: int, part: instances.Chunk) -> None:
        summary = self.summary
        summary.documents += part.documents
        summary.dropped_documents += len(batch) - part.documents
        summary.sentences += part.sentences
        summary.tokens += len(part.pieces)
        summary.text_bytes += size
        self.maybe_log()

    def maybe_log(self) -> None:
        now = time.monotonic()
        if not self._seconds or now - self._last < self._seconds:
            return
        self._last = now
        elapsed = now - self._started
        summary = self.summary
        line = (
            f"{summary.text_bytes / 1e6:.1f} MB, {summary.documents:,} documents,"
            f" {summary.tokens:,} tokens read; {summary.instances:,} instances written"
            f" ({summary.instance_tokens / elapsed:,.0f} tokens/s)"
        )
        if self._total_bytes and summary.text_bytes:
            done = min(1.0, summary.text_bytes / self._total_bytes)
            # Reading runs ahead of writing by a chunk, which makes this a little hopeful.
            line += f"; {done:.0%} of the text, about {elapsed / done - elapsed:.0f} s left"
        logging.info("%s", line)
