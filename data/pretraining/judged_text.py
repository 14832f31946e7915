"""The held-out text that a model is judged by before and after it is adapted, words masked in it.

texts = held_out_texts(PretrainingSides(text), general)
found = texts["domain"](tokenizer, given_tokenizer, "held_out.tfrecord", 64)
"""

import dataclasses
import hashlib
import math
import os
from collections.abc import Callable, Iterable, Iterator

import numpy as np
import tensorflow as tf

from data.errors import DataError
from data.files import atomic
from data.pretraining.batches import pipeline
from data.pretraining.corpus import Document, corpus_document_hash
from data.pretraining.from_text import PretrainingSides, PretrainingText
from data.pretraining.instances.settings import MLM
from data.pretraining.records.schema import encode_records
from data.tokenization import Tokenizer

MOST_CHARACTERS = 300_000
"""Of held-out text that is evaluated on."""
SHARE = 0.15
"""Of the words that are masked, as the paper does."""


@dataclasses.dataclass(frozen=True)
class MaskedWords:
    """Records of held-out text in which whole words are masked.

    A loss per word can be compared across vocabularies, one per piece can't.

    Attributes:
        batches: As of `pipeline.pretraining_dataset`, once.
        pieces, words: How many are masked.
        checksum: Of the text.
    """

    batches: tf.data.Dataset
    pieces: int
    words: int
    checksum: str


def masked_words(
    documents: Iterable[Document],
    tokenizer: Tokenizer,
    given: Tokenizer,
    path: str,
    max_seq_length: int,
) -> MaskedWords:
    """Masks 15 % of the words of the first 300,000 characters, always the same ones.

    Which they are is drawn by the text alone, whatever pieces they have: were so many pieces of a
    row masked, as in training, words of many pieces would hardly come up, and not be missed before
    they are words of their own. [MASK] stands for each of their pieces.

    Args:
        documents: Of one side of a corpus.
        tokenizer: Of the model.
        given: Of the model that is adapted. Words that are unknown to it aren't masked: to guess
            [UNK] is no merit.
        path: Of the records, which are written anew.
        max_seq_length: Pieces in a record, of one document.

    Raises:
        DataError: No word of the text is known.
    """
    digest, left = hashlib.sha256(), MOST_CHARACTERS
    rows: list[tuple[np.ndarray, np.ndarray]] = []  # ids, and what was drawn for their words
    for whole in beginning(documents):
        document = first_characters(whole, left)
        left -= sum(map(len, document.sentences))
        digest.update(corpus_document_hash(document).to_bytes(8, "big"))
        rows += _rows(document, tokenizer, given, max_seq_length - 2)
    least = min((chances.min() for _, chances in rows), default=1.0)
    if least == 1.0:
        raise DataError(
            "The vocabulary has none of the words of the text that the model is judged by, its own "
            "or --general_corpus_file's: all of them are [UNK]. Learn a vocabulary of such text, "
            "and pre-train with it."
        )
    # In a short text it may be that none was drawn.
    drawn = [chances < max(SHARE, np.nextafter(least, 1.0)) for _, chances in rows]
    most = max(map(np.count_nonzero, drawn))
    features = {
        "next_sentence_labels": np.zeros([len(rows), 1], np.int32),
        "masked_lm_weights": np.zeros([len(rows), most], np.float32),
        **{f"masked_lm_{n}": np.zeros([len(rows), most], np.int32) for n in ("ids", "positions")},
        **{
            name: np.zeros([len(rows), max_seq_length], np.int32)
            for name in ("input_ids", "input_mask", "segment_ids")
        },
    }
    for number, ((ids, _), masked) in enumerate(zip(rows, drawn, strict=True)):
        filled = {
            "input_ids": [
                tokenizer.cls_id,
                *np.where(masked, tokenizer.mask_id, ids),
                tokenizer.sep_id,
            ],
            "input_mask": np.ones(len(ids) + 2),
            "masked_lm_ids": ids[masked],
            "masked_lm_positions": 1 + np.flatnonzero(masked),
            "masked_lm_weights": np.ones(np.count_nonzero(masked)),
        }
        for name, values in filled.items():
            features[name][number, : len(values)] = values
    atomic.make_folder(path)
    with tf.io.TFRecordWriter(path) as writer:
        for record in encode_records(features):
            writer.write(record)
    # The head is computed for as many places of each row as the row with the most has.
    batch_size = 32 * math.ceil(0.2 * max_seq_length) // most
    batches = pipeline.pretraining_dataset(
        [path],
        *(max_seq_length, most, tokenizer.vocab_size, min(max(batch_size, 1), 32)),
        training=False,
        objective=MLM,
    )
    found = np.concatenate([ids[masked] for (ids, _), masked in zip(rows, drawn, strict=True)])
    words = int(np.count_nonzero(~np.asarray(tokenizer.is_continuation)[found]))
    return MaskedWords(batches, len(found), words, digest.hexdigest())


def _rows(
    document: Document, tokenizer: Tokenizer, given: Tokenizer, room: int
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Cuts a document between words: ids, and for each piece what was drawn for its word.

    That is a number from 0 to 1 by the document and the word's place in it, and 1 for a word that
    `given` doesn't know or that no row has room for.
    """
    before, before_starts = _words(given, document)
    ids, starts = _words(tokenizer, document)
    chances = np.random.default_rng(corpus_document_hash(document)).random(len(before_starts))
    long = np.diff(before_starts, append=len(before)) > room
    chances[long | (before[before_starts] == given.unk_id)] = 1.0
    ends = np.append(starts[1:], len(ids))
    of_pieces = np.repeat(chances, ends - starts)
    begin = 0
    while begin < len(ids):
        end = int(ends[np.searchsorted(ends, begin + room, "right") - 1])
        end = end if begin < end <= begin + room else min(begin + room, len(ids))
        yield ids[begin:end], of_pieces[begin:end]
        begin = end


def _words(tokenizer: Tokenizer, document: Document) -> tuple[np.ndarray, np.ndarray]:
    """A document's pieces, and the places of those that begin a word."""
    ids = tokenizer.tokenize(list(document.sentences)).values.numpy()
    return ids, np.flatnonzero(~np.asarray(tokenizer.is_continuation)[ids])


def held_out_texts(
    sides: PretrainingSides, general: PretrainingText | None
) -> dict[str, Callable[[Tokenizer, Tokenizer, str, int], MaskedWords]]:
    """What a model is judged by: held-out text of the domain, and text of none if there is any.

    Returns:
        "domain" and "general" → from the other arguments of `masked_words` to what it returns.
    """
    texts = {"domain": lambda *place: masked_words(sides.documents(False), *place)}
    if general:
        places = set(map(os.path.realpath, sides.files))
        common = sorted(path for path in general.files if os.path.realpath(path) in places)
        if common:
            raise DataError(
                f"{common[0]} is part of the domain's text and of --general_corpus_file, which is "
                f"to tell what a model forgets of other text: give text of other kinds there."
            )
        if next(iter(general.read()), None) is None:
            raise DataError(
                f"--general_corpus_file ({', '.join(general.files[:3])}) holds no documents. Give "
                f"text, or leave it out."
            )
        texts["general"] = lambda *place: masked_words(general.read(), *place)
    return texts


def beginning(documents: Iterable[Document]) -> Iterator[Document]:
    """The first documents, until they have `MOST_CHARACTERS`."""
    characters = 0
    for document in documents:
        yield document
        characters += sum(map(len, document.sentences))
        if characters >= MOST_CHARACTERS:
            return


def first_characters(document: Document, most: float) -> Document:
    """A document that ends after so many characters of its sentences."""
    sentences, left = [], math.ceil(most)
    for sentence in document.sentences:
        if left <= 0:
            break
        sentences.append(sentence[:left].rstrip())
        left -= len(sentence)
    return Document(sentences, document.source)
