"""From documents to batches of instances, in one streaming pass and bounded memory.

Documents are tokenized in batches and gathered into chunks of some 32 MB of text. Every chunk is
planned at once with all its duplicates (pairs.py), its instances are shuffled as a plan of a
few integers each, and then made and masked batch by batch in the shuffled order, so the tensors of
no more than one batch exist at a time. Random next segments come from other documents of the same
chunk.

All randomness of chunk c comes from (random_seed, the caller's seed, c), so the same documents,
vocabulary and seeds give the same bytes on every machine.
"""

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from data.errors import DataError
from data.pretraining.corpus import Document
from data.pretraining.instances import masking, pairs
from data.pretraining.instances.settings import MLM_NSP, WHITESPACE, InstanceSettings
from data.tokenization.vocabulary import warn_of_unknown_pieces

CHUNK_BYTES = 32 * 2**20
_TOKENIZE_BYTES = 2**20
_LENT_BYTES = 2**18
_BATCH_PIECES = 2**17
_SEED_MASK = 2**64 - 1

Batch = dict[str, np.ndarray]


@dataclass(slots=True)
class InstanceCounts:
    """What was read and made.

    Attributes:
        documents: Documents used.
        dropped_documents: Documents too short: without two words, for single segments without one.
        sentences, tokens: Of the used documents, after WordPiece.
        chunks, instances: Number of chunks and of instances.
        instance_tokens: Real pieces in all instances, with [CLS] and [SEP].
        masked_tokens: Predictions in all instances.
        random_next: Instances with a random second segment.
        text_bytes: UTF-8 bytes of the documents read.
        unknown: Of the tokens, those that are [UNK].
    """

    documents: int = 0
    dropped_documents: int = 0
    sentences: int = 0
    tokens: int = 0
    chunks: int = 0
    instances: int = 0
    instance_tokens: int = 0
    masked_tokens: int = 0
    random_next: int = 0
    text_bytes: int = 0
    unknown: int = 0

    def __add__(self, other: "InstanceCounts") -> "InstanceCounts":
        mine, theirs = dataclasses.astuple(self), dataclasses.astuple(other)
        return InstanceCounts(*(a + b for a, b in zip(mine, theirs, strict=True)))

    def __str__(self) -> str:
        text = (
            f"{self.documents:,} documents, {self.sentences:,} sentences, {self.tokens:,} tokens →"
            f" {self.instances:,} instances ({self.instance_tokens:,} tokens"
        )
        if self.masked_tokens:
            text += f", {self.masked_tokens:,} masked"
        if self.random_next:
            text += f", {self.random_next / self.instances:.1%} random next"
        return text + ")"


def generate_instances(
    documents: Iterable[Document],
    tokenizer: Any,
    settings: InstanceSettings,
    seed: Sequence[int] = (),
    *,
    counts: InstanceCounts | None = None,
    lenders: Callable[[], Iterable[Document]] | None = None,
    on_progress: Callable[[int, int], None] | None = None,
    chunk_bytes: int = CHUNK_BYTES,
) -> Iterator[Batch]:
    """Makes the instances of documents.

    Args:
        documents: Read once, in order.
        tokenizer: A `data.tokenization.Tokenizer`.
        settings: See there.
        seed: Numbers that tell these documents from others of the same corpus.
        counts: Is added to as the work goes on.
        lenders: Called if there is one document only: other documents that its random segments
            can come from. None: one document alone is an error.
        on_progress: Called with the bytes of text that were read and the tokens of instances
            that were made since the last call.
        chunk_bytes: Text held at once; peak memory is several times this.

    Yields:
        Instances in random order (within a chunk), features as in the records, integers int32
        [n, S], [n, P] or [n, 1]; without masks if `settings.dynamic_masking`.

    Raises:
        DataError: Only one document, where pairs are wanted; a vocabulary without [MASK].
    """
    counts = InstanceCounts() if counts is None else counts
    report = on_progress or (lambda *_: None)
    vocabulary = masking.MaskingVocabulary.from_tokenizer(tokenizer)
    masks = settings.masks(vocabulary)
    wants_pairs = settings.objective == MLM_NSP
    reader = _Reader(tokenizer, vocabulary, settings, counts, report)
    documents = iter(documents)
    head = list(itertools.islice(documents, 1))
    documents = itertools.chain(head, documents)
    length = settings.max_seq_length
    step = max(64, _BATCH_PIECES // length)
    for number, chunk in enumerate(reader.chunks(documents, 2 if wants_pairs else 1, chunk_bytes)):
        counts.chunks += 1
        rng = np.random.default_rng([settings.random_seed & _SEED_MASK, *seed, number])
        options = (length, settings.short_seq_prob, settings.dupe_factor, rng)
        if wants_pairs:
            own = chunk.documents
            if own < 2:
                chunk = reader.with_lent(chunk, lenders, head[0].source)
            plan = pairs.plan_instances(chunk, *options, own_documents=own)
            plan = pairs.truncate_segments(plan.take(rng.permutation(len(plan))), length, rng)
        else:
            plan = pairs.plan_segments(chunk, *options)
            plan = plan.take(rng.permutation(len(plan)))
        for begin in range(0, len(plan), step):
            rows = plan.take(slice(begin, begin + step))
            batch = pairs.assemble_instances(
                chunk, rows, length, vocabulary.cls_id, vocabulary.sep_id
            )
            continues = batch.pop("continues")
            if not settings.dynamic_masking:
                ids, mask = batch["input_ids"], batch["input_mask"]
                predictions = settings.max_predictions_per_seq
                batch |= masking.mask_instances(ids, mask, masks, predictions, rng, continues)
                counts.masked_tokens += int(np.count_nonzero(batch["masked_lm_weights"]))
            counts.instances += len(rows)
            counts.random_next += int(rows.is_random_next.sum())
            tokens = int(batch["input_mask"].sum())
            counts.instance_tokens += tokens
            report(0, tokens)
            yield batch


def check_instances_generated(
    counts: InstanceCounts, origin: str, left_out: str | None = None
) -> None:
    """Raises DataError if nothing was made, and warns if it is mostly [UNK].

    Args:
        counts: What was made of the texts.
        origin: Their names.
        left_out: What was left out of them before, in words, if anything was.
    """
    if counts.instances == 0 and left_out and not counts.dropped_documents:
        raise DataError(
            f"No text is left of {origin} once it was cleaned ({left_out}). Loosen the flags that"
            " clean, --languages and --boilerplate_documents."
        )
    if counts.instances == 0:
        raise DataError(
            f"No text was found in {origin}: {counts.dropped_documents} documents were read, and"
            " none has two words. Give text files with one sentence per line and a blank line"
            f" between documents.{f' Before, cleaning left out {left_out}.' if left_out else ''}"
        )
    warn_of_unknown_pieces(origin, counts.unknown, counts.tokens)


@dataclass(frozen=True)
class _Reader:
    """Tokenizes documents and gathers them into chunks."""

    _tokenizer: Any
    _vocabulary: masking.MaskingVocabulary
    _settings: InstanceSettings
    _counts: InstanceCounts
    _report: Callable[[int, int], None]

    def chunks(
        self, documents: Iterable[Document], needed: int, chunk_bytes: int
    ) -> Iterator[pairs.InstanceChunk]:
        """Chunks of at least `needed` documents each, unless there are fewer in all.

        A chunk is given out when the next one has enough documents, so that the last documents
        of a corpus join the chunk before if they are too few.
        """
        counts, waiting = self._counts, None
        parts: list[pairs.InstanceChunk] = []
        size = 0
        for batch, batch_bytes in _batches(documents):
            part = self._tokenize(batch)
            counts.documents += part.documents
            counts.dropped_documents += len(batch) - part.documents
            counts.sentences += part.sentences
            counts.tokens += len(part.pieces)
            counts.unknown += int(np.count_nonzero(part.pieces == self._tokenizer.unk_id))
            counts.text_bytes += batch_bytes
            self._report(batch_bytes, 0)
            if part.documents:
                parts.append(part)
            size += batch_bytes
            enough = sum(p.documents for p in parts) >= needed
            if waiting is not None and enough:
                yield waiting
                waiting = None
            if size >= chunk_bytes and enough:
                waiting = pairs.InstanceChunk.concatenate(parts)
                parts, size = [], 0
        if waiting is not None:
            parts.insert(0, waiting)
        if parts:
            yield pairs.InstanceChunk.concatenate(parts)

    def with_lent(
        self,
        chunk: pairs.InstanceChunk,
        lenders: Callable[[], Iterable[Document]] | None,
        source: str,
    ) -> pairs.InstanceChunk:
        """The one document of `chunk`, from `source`, and others behind it.

        Raises:
            DataError: There are no others, or only copies of it.
        """
        for batch, _ in _batches(lenders() if lenders else [], _LENT_BYTES):
            lent = self._tokenize(batch)
            if lent.documents > 1 or (
                lent.documents and not np.array_equal(lent.pieces, chunk.pieces)
            ):
                return pairs.InstanceChunk.concatenate([chunk, lent])
        raise DataError(
            f"Only one document was found in the corpus, at {source or 'its beginning'}, but"
            " next-sentence pairs take their random segments from another document. Put a blank"
            " line between the documents (articles, chapters) of a text file, or a document on"
            " every line of JSON lines; add more text, or make records without pairs"
            " (--objective=mlm)."
        )

    def _tokenize(self, batch: list[list[bytes]]) -> pairs.InstanceChunk:
        sentences = [sentence for document in batch for sentence in document]
        document = np.repeat(np.arange(len(batch)), [len(d) for d in batch])
        pieces, continues, lengths = [], [], []
        begin = 0
        while begin < len(sentences):
            # One enormous document still goes through the tokenizer in bounded portions.
            end, size = begin, 0
            while end < len(sentences) and size < 2 * _TOKENIZE_BYTES:
                size += len(sentences[end])
                end += 1
            ids, inside = self._pieces(sentences[begin:end])
            pieces.append(ids.values.numpy())
            continues.append(inside)
            lengths.append(ids.row_lengths().numpy())
            begin = end
        return pairs.make_instance_chunk(
            np.concatenate([*pieces, np.zeros(0, np.int32)]),
            np.concatenate([*lengths, np.zeros(0, np.int64)]),
            document,
            np.concatenate([*continues, np.zeros(0, bool)]),
            self._settings.max_seq_length,
            pairs=self._settings.objective == MLM_NSP,
        )

    def _pieces(self, sentences: list[bytes]) -> tuple[tf.RaggedTensor, np.ndarray]:
        """Pieces of sentences, and which of them continue the word before."""
        if self._settings.word_boundaries != WHITESPACE:
            ids = self._tokenizer.tokenize(tf.constant(sentences, tf.string))
            return ids, self._vocabulary.continues_word[ids.values.numpy()]
        words = [sentence.split() for sentence in sentences]
        ids, index = self._tokenizer.tokenize_words(tf.ragged.constant(words, tf.string, 1))
        index = index.values.numpy()
        inside = np.zeros(len(index), bool)
        inside[1:] = index[1:] == index[:-1]
        # Two sentences of one word each have the same index, 0.
        starts = ids.row_starts().numpy()
        inside[starts[starts < len(index)]] = False
        return ids, inside


def _batches(
    documents: Iterable[Document], batch_bytes: int | None = None
) -> Iterator[tuple[list[list[bytes]], int]]:
    """Documents as lists of UTF-8 sentences, about a megabyte of text at a time."""
    batch, size = [], 0
    for document in documents:
        sentences = [s.encode("utf-8", "ignore") for s in document.sentences]
        batch.append(sentences)
        size += sum(map(len, sentences)) + len(sentences)
        if size >= (batch_bytes or _TOKENIZE_BYTES):
            yield batch, size
            batch, size = [], 0
    if batch:
        yield batch, size
