"""A corpus that a released model is adapted to: how it fits the vocabulary, and words it lacks.

    domain = study_domain(PretrainingSides(text), "vocab.txt", "out/vocab.txt")

Words take the places of [unusedN] tokens where that pays, so that the vocabulary keeps its size and
all other ids.
"""

import dataclasses
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import tensorflow as tf
from absl import logging

from data.errors import DataError
from data.files import atomic
from data.pretraining.corpus import corpus_document_hash
from data.pretraining.from_text import PretrainingSides, PretrainingText
from data.pretraining.judged_text import beginning
from data.tokenization import Tokenizer, vocabulary
from data.tokenization.learning import extension, learner

LEAST_COUNT = 50
"""How often a new word has to occur: rarer ones wouldn't learn their row."""
LEAST_SAVED = 0.01
"""Share of the pieces of held-out text that new words have to save; for less, none are added."""


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
    extension.check_vocabulary_case(tokens, do_lower_case)
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
    if not any(map(extension.is_unused, tokens)):
        return {}
    extended = extension.extend_vocabulary(tokens, counts, **folding, min_frequency=LEAST_COUNT)
    measured = learner.measure_coverage(Tokenizer.from_vocab(extended.tokens, **folding), texts)
    # An unknown word is one piece before and after, and yet is what a new token is good for.
    now, then = (found.pieces + found.unknown for found in (measured, before))
    return extended.replaced if now < (1 - LEAST_SAVED) * then else {}


def _kept_words(tokens: Sequence[str], vocab_file: str, kept_vocab_file: str) -> dict[int, str]:
    """Id → word by which the vocabulary of a run differs from the one that it was made of."""
    kept = vocabulary.load_vocab(kept_vocab_file)
    new = {n: word for n, (t, word) in enumerate(zip(tokens, kept, strict=False)) if t != word}
    if len(kept) != len(tokens) or not all(extension.is_unused(tokens[n]) for n in new):
        raise DataError(
            f"{kept_vocab_file}, of the run that would go on, isn't {vocab_file} with words in "
            f"[unused…] places: it was begun with another model. Give that one, or another "
            f"--output_dir."
        )
    return new
