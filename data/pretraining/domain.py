"""A corpus that a released model is adapted to: how it fits the vocabulary, and words it lacks.

    domain = study_domain(PretrainingSides(text), "vocab.txt", "out/vocab.txt")
    held_out = masked_words(sides.documents(training=False), tokenizer, "out/held_out.tfrecord")

Words take the places of [unusedN] tokens where that pays, so that the vocabulary keeps its size and
all other ids.
"""

import dataclasses
import hashlib
import itertools
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np
import tensorflow as tf
from absl import logging

from data.errors import DataError
from data.files import atomic
from data.pretraining.batches import pipeline
from data.pretraining.corpus import Document, corpus_document_hash
from data.pretraining.from_text import PretrainingSides, PretrainingText
from data.pretraining.instances.settings import MLM, InstanceSettings
from data.pretraining.writing import local
from data.tokenization import Tokenizer, vocabulary
from data.tokenization.learning import extension, learner

LEAST_COUNT = 50
"""How often a new word has to occur: rarer ones wouldn't learn their row."""
LEAST_SAVED = 0.01
"""Share of the pieces of held-out text that new words have to save; for less, none are added."""
MOST_CHARACTERS = 300_000
"""Of held-out text that is evaluated on."""
_UNUSED = "[unused"


@dataclasses.dataclass(frozen=True)
class Domain:
    """What was found out about a corpus.

    Attributes:
        words: How many there are to train on.
        characters: Of the sentences with these words.
        pieces: About how many pieces these are, with the vocabulary that is used.
        document_pieces: Of nine of ten held-out documents, at most.
        known_share: Share of the words that are tokens of the given vocabulary.
        tokens_seen: Share of that vocabulary's words that occur.
        before, after: How the given vocabulary and the one that is used fit held-out text.
        vocab_file: The one that is used: the given one, or the extended one.
        new_words: Id → the new word there; none where adding words doesn't pay.
        new_pieces: Id → the ids of the pieces that the word was cut into.
        frequent: Words that are tokens, of letters alone, the most frequent first.
    """

    words: int
    characters: int
    pieces: int
    document_pieces: int
    known_share: float
    tokens_seen: float
    before: learner.Coverage
    after: learner.Coverage
    vocab_file: str
    new_words: Mapping[int, str]
    new_pieces: Mapping[int, Sequence[int]]
    frequent: Sequence[str]


def study_domain(
    sides: PretrainingSides,
    vocab_file: str,
    extended_file: str,
    do_lower_case: bool = True,
    strip_accents: bool | None = None,
    kept_vocab_file: str | None = None,
    general: PretrainingText | None = None,
) -> Domain:
    """Looks at a corpus, and extends a vocabulary by its words where that pays.

    Args:
        sides: Of the corpus.
        vocab_file: The released model's vocabulary.
        extended_file: Where the extended one is written, if there is one.
        do_lower_case, strip_accents: As the vocabulary was made.
        kept_vocab_file: That of a run that goes on, whose words stay; None without one.
        general: Text of no domain, whose beginning is measured; for a warning.

    Raises:
        DataError: The corpus has no words, the vocabulary is of the other case, or that of the
            run isn't made of it.
    """
    folding = {"do_lower_case": do_lower_case, "strip_accents": strip_accents}
    tokens = vocabulary.load_vocab(vocab_file)
    measured = set(map(corpus_document_hash, beginning(general.read()))) if general else set()
    characters = common = 0

    def sentences() -> Iterator[str]:
        nonlocal characters, common
        for document in sides.documents(True):
            characters += sum(map(len, document.sentences))
            common += bool(measured) and corpus_document_hash(document) in measured
            yield from document.sentences

    counts = learner.count_words(sentences(), *folding.values())
    if common:
        logging.warning(
            "%d documents of own text are among those of --general_corpus_file that are measured: "
            "less will seem forgotten than is. Give text of other kinds there.",
            common,
        )
    if not counts:
        raise DataError("The corpus to adapt to has no words. Give text files with sentences.")
    plain = Tokenizer.from_vocab(tokens, **folding)
    held_out = [document.sentences for document in beginning(sides.documents(False))]
    if not held_out:
        raise DataError("There is no text to evaluate on: --eval_corpus_file has no sentences.")
    texts = list(itertools.chain.from_iterable(held_out))
    before = after = learner.measure_coverage(plain, texts)
    new = None
    if kept_vocab_file and tf.io.gfile.exists(kept_vocab_file):
        new = _kept_words(tokens, vocab_file, kept_vocab_file)
    if new is None:
        new = _words_that_pay(tokens, counts, texts, before, folding)
    if new:
        after = learner.measure_coverage(
            Tokenizer.from_vocab([new.get(i, t) for i, t in enumerate(tokens)], **folding), texts
        )
        atomic.make_folder(extended_file)
        vocabulary.write_replaced_vocabulary(vocab_file, new, extended_file)
    logging.info(
        "Vocabulary: %d words in place of [unused…] tokens; %s; now %.4f pieces per word",
        *(len(new), before.report(), after.pieces_per_word),
    )
    pieces = plain.tokenize(list(new.values())).to_list() if new else []
    known = set(tokens)
    words = sum(counts.values())
    whole = {token for token in tokens if token.isalpha()}
    used = known.union(new.values())
    lengths = [sum(map(len, text)) for text in held_out]
    return Domain(
        words=words,
        characters=characters,
        pieces=round(words * after.pieces_per_word),
        document_pieces=math.ceil(np.quantile(lengths, 0.9) * after.pieces / max(1, sum(lengths))),
        known_share=sum(n for word, n in counts.items() if word in known) / words,
        tokens_seen=len(whole & counts.keys()) / max(1, len(whole)),
        before=before,
        after=after,
        vocab_file=extended_file if new else vocab_file,
        new_words=new,
        new_pieces=dict(zip(new, pieces, strict=True)),
        frequent=[word for word, _ in counts.most_common() if word in used and word.isalpha()],
    )


def _words_that_pay(
    tokens: Sequence[str],
    counts: Mapping[str, int],
    texts: Sequence[str],
    before: learner.Coverage,
    folding: Mapping[str, bool | None],
) -> dict[int, str]:
    """Id → word that takes the place of an [unusedN] token; {} where that saves too little."""
    if not any(token.startswith(_UNUSED) for token in tokens):
        return {}
    extended = extension.extend_vocabulary(tokens, counts, **folding, min_frequency=LEAST_COUNT)
    measured = learner.measure_coverage(Tokenizer.from_vocab(extended.tokens, **folding), texts)
    return extended.replaced if measured.pieces < (1 - LEAST_SAVED) * before.pieces else {}


def _kept_words(tokens: Sequence[str], vocab_file: str, kept_vocab_file: str) -> dict[int, str]:
    """Id → word by which the vocabulary of a run differs from the one that it was made of."""
    kept = vocabulary.load_vocab(kept_vocab_file)
    new = {n: word for n, (t, word) in enumerate(zip(tokens, kept, strict=False)) if t != word}
    if len(kept) != len(tokens) or not all(tokens[n].startswith(_UNUSED) for n in new):
        raise DataError(
            f"{kept_vocab_file}, of the run that would go on, isn't {vocab_file} with words in "
            f"[unused…] places: it was begun with another model. Give that one, or another "
            f"--output_dir."
        )
    return new


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
    path: str,
    max_seq_length: int,
    batch_size: int = 32,
) -> MaskedWords:
    """Masks 15 % of the words of the first 300,000 characters, as the paper does.

    Args:
        documents: Of one side of a corpus.
        tokenizer: Of the model.
        path: Of the records, which are written anew.
        max_seq_length: Pieces in a record.
        batch_size: Records in a batch.
    """
    settings = InstanceSettings(
        max_seq_length=max_seq_length,
        max_predictions_per_seq=math.ceil(0.2 * max_seq_length),
        dupe_factor=1,
        do_whole_word_mask=True,
        objective=MLM,
    )
    digest = hashlib.sha256()

    def measured() -> Iterator[Document]:
        left = MOST_CHARACTERS
        for whole in beginning(documents):
            document = first_characters(whole, left)
            left -= sum(map(len, document.sentences))
            digest.update(corpus_document_hash(document).to_bytes(8, "big"))
            yield document

    local.create_pretraining_records(measured(), tokenizer, [path], settings)
    sizes = max_seq_length, settings.max_predictions_per_seq, tokenizer.vocab_size
    batches = pipeline.pretraining_dataset(
        [path], *sizes, batch_size, training=False, objective=MLM
    )
    pieces = words = 0
    begins = ~np.asarray(tokenizer.is_continuation)
    for batch in batches.as_numpy_iterator():
        ids = batch["masked_lm_ids"][batch["masked_lm_weights"] > 0]
        pieces += len(ids)
        words += int(begins[ids].sum())
    return MaskedWords(batches, pieces, words, digest.hexdigest())


def held_out_texts(
    sides: PretrainingSides, general: PretrainingText | None
) -> dict[str, Callable[[Tokenizer, str, int], MaskedWords]]:
    """What a model is judged by: held-out text of the domain, and text of none if there is any.

    Returns:
        "domain" and "general" → from tokenizer, path and length as of `masked_words` to that.
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
