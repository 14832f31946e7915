"""Teaching a released vocabulary the words of a domain, without changing its size.

The [unusedN] tokens of a released vocabulary have rows in the embedding table that pre-training
never touched. Whole words put in their places keep every other id, so the released weights still
fit; the new rows have to be trained.
"""

import bisect
import dataclasses
import heapq
import re
from collections.abc import Collection, Mapping, Sequence

import numpy as np
from absl import logging

from data.errors import DataError
from data.tokenization import vocabulary
from data.tokenization.learning import learner
from data.tokenization.tokenizer import Tokenizer
from data.tokenization.wordpiece import MAX_CHARS_PER_WORD

_UNUSED = re.compile(r"\[unused\d+\]")
_SHOWN = 10


@dataclasses.dataclass(frozen=True)
class Extension:
    """An extended vocabulary.

    Attributes:
        tokens: index = id; as many as before.
        replaced: Id → word, for the words that took the place of [unusedN] tokens.
        free: How many [unusedN] tokens are left.
        before, after: How the old and the new vocabulary fit held-out text; None without text.
    """

    tokens: list[str]
    replaced: dict[int, str]
    free: int
    before: learner.Coverage | None = None
    after: learner.Coverage | None = None

    def report(self) -> str:
        """A line for people."""
        added = list(self.replaced.values())
        filled = (
            f"{len(added)} [unusedN] places filled, {self.free} free: "
            f"{', '.join(added[:_SHOWN])}{', …' if len(added) > _SHOWN else ''}"
        )
        if not self.before or not self.after:
            return filled
        return (
            f"{filled}; before: {self.before.report()}; after: "
            f"{self.after.pieces_per_word:.4f} pieces per word, "
            f"{self.after.unknown_share:.4%} [UNK]"
        )


def extend_from_files(
    vocab_file: str,
    files: Sequence[str],
    *,
    vocab_size: int | None = None,
    do_lower_case: bool = True,
    strip_accents: bool | None = None,
    reserved_tokens: Sequence[str] = (),
    num_unused: int = 0,
    min_frequency: int = 2,
    **reading,
) -> Extension:
    """Extends the vocabulary `vocab_file` with the words of corpus files, and tests the result.

    Args:
        vocab_file: A vocabulary with [unusedN] tokens.
        files: Corpus files; none if `reserved_tokens` are all that is to be added.
        vocab_size: If given, it has to be the size that the vocabulary has and keeps.
        **reading: `heldout_share` and `text_field`, as for `learner.read_learner_corpus`; the
            others are those of `extend_vocabulary`.

    Raises:
        DataError: As `extend_vocabulary`, `vocabulary.load_vocab` or
            `learner.read_learner_corpus`, or nothing is given to add.
    """
    tokens = vocabulary.load_vocab(vocab_file)
    options = {"reserved_tokens": reserved_tokens, "num_unused": num_unused}
    if not files and not reserved_tokens:
        raise DataError(
            f"Nothing was given to extend {vocab_file} with. Give corpus files to learn words from"
            " (--input_file), words (--reserved_tokens), or both."
        )
    if vocab_size not in (None, len(tokens)):
        raise DataError(
            f"vocab_size is {vocab_size}, but {vocab_file} has {len(tokens)} tokens and keeps them:"
            " extending only fills [unusedN] places. Leave --vocab_size out."
        )
    folding = {"do_lower_case": do_lower_case, "strip_accents": strip_accents}
    # Mistakes show before the long work.
    extended = extend_vocabulary(tokens, {}, **folding, **options)
    for token in sorted(set(tokens).intersection(reserved_tokens)):
        logging.info("%s has %s already", vocab_file, token)
    if not files:
        return extended
    counts, held_out = learner.read_learner_corpus(files, **folding, **reading)
    logging.info("Choosing among %d distinct words", len(counts))
    extended = extend_vocabulary(tokens, counts, min_frequency=min_frequency, **folding, **options)
    before, after = (
        learner.measure_coverage(Tokenizer.from_vocab(vocab, **folding), held_out)
        for vocab in (tokens, extended.tokens)
    )
    return dataclasses.replace(extended, before=before, after=after)


def extend_vocabulary(
    tokens: Sequence[str],
    word_counts: Mapping[str, int],
    do_lower_case: bool = True,
    strip_accents: bool | None = None,
    *,
    reserved_tokens: Sequence[str] = (),
    num_unused: int = 0,
    min_frequency: int = 2,
) -> Extension:
    """Puts whole words into the places of [unusedN] tokens, in the order of their ids.

    First come `reserved_tokens`, then, one after another, the word that saves the most pieces:
    count x (pieces - 1) of the word itself, plus what it saves or costs in longer words that
    begin with it, since the longest match is taken first ("tensor" turns "tensors" into "tensor
    ##s"; it may also turn a happier cut into a worse one). What a word saves is counted anew
    after every choice that touches it, and none is taken that saves nothing. A word that is
    [UNK] now counts as if it were cut into its characters, and as two pieces at least: nothing
    of it is left, so it is worth more than a word that is cut.

    Args:
        tokens: The vocabulary; index = id.
        word_counts: Normalised words (see `learner.count_words`) and how often each occurs.
        do_lower_case, strip_accents: As the vocabulary was made, see `Tokenizer`.
        reserved_tokens: Words to add in any case; those that the vocabulary has are passed over.
            A token in brackets, such as "[USER]", is found in text only by a tokenizer that has
            it in `never_split`.
        num_unused: So many [unusedN] tokens, the last ones, stay free.
        min_frequency: Rarer words aren't chosen, however much room there is.

    Raises:
        DataError: No [unusedN] token is free, the reserved ones are too many, or one of them is
            nothing that tokenization could ever yield; or the vocabulary is evidently of the
            other case than `do_lower_case` says.
    """
    check_vocabulary_case(tokens, do_lower_case)
    slots = [index for index, token in enumerate(tokens) if is_unused(token)]
    room = len(slots) - num_unused
    if room <= 0:
        reason = f", and {num_unused} are to stay free (num_unused)" if num_unused else ""
        raise DataError(
            f"The vocabulary has {len(tokens)} tokens, of which {len(slots)} are called"
            f" [unusedN]{reason}: there is no place for a new word. Extend a vocabulary that has"
            " free places, or learn one with python -m data.learn_vocabulary."
        )
    known = set(tokens)
    learner.check_learner_reserved(reserved_tokens, do_lower_case, strip_accents)
    added = [token for token in dict.fromkeys(reserved_tokens) if token not in known]
    if len(added) > room:
        raise DataError(
            f"{len(added)} reserved tokens are to be added, but only {room} [unusedN] tokens are"
            f" free. Leave out {len(added) - room} of them."
        )
    known.update(token for token in added if not vocabulary.IN_BRACKETS.fullmatch(token))
    added += _Chooser(known, word_counts, min_frequency).choose(room - len(added))
    replaced = dict(zip(slots, added, strict=False))
    extended = [replaced.get(index, token) for index, token in enumerate(tokens)]
    return Extension(extended, replaced, len(slots) - len(added))


class _Chooser:
    """Greedy choice of words by the number of pieces that they save in all words counted.

    A word's place is its number in alphabetical order, so words that begin alike are neighbours.
    """

    def __init__(self, known: Collection[str], word_counts: Mapping[str, int], minimum: int):
        self._known = set(known)
        self._longest = max(len(token) for token in self._known)
        self._words = sorted(w for w in word_counts if 0 < len(w) <= MAX_CHARS_PER_WORD)
        self._counts = [word_counts[word] for word in self._words]
        self._pieces = [self._cut(word) for word in self._words]
        # Not yet chosen: place to what it saves, at most or exactly.
        self._savings: dict[int, int] = {}
        self._exact: set[int] = set()
        could_save = [
            count * (pieces - 1) for count, pieces in zip(self._counts, self._pieces, strict=True)
        ]
        until = np.cumsum([0, *could_save])
        for place, word in enumerate(self._words):
            if self._counts[place] >= minimum and self._pieces[place] > 1:
                self._savings[place] = int(until[self._end(place)] - until[place])
                self._longest = max(self._longest, len(word))

    def choose(self, size: int) -> list[str]:
        """At most `size` words, the most useful first."""
        # Of equally useful words the first in the alphabet: the same counts, the same words.
        heap = [(-saving, place) for place, saving in self._savings.items()]
        heapq.heapify(heap)
        chosen: list[str] = []
        while heap and len(chosen) < size:
            saving, place = heapq.heappop(heap)
            if self._savings.get(place) != -saving:
                continue
            if place not in self._exact:
                self._measure(place, heap)
                continue
            if saving >= 0:
                break
            del self._savings[place]
            word = self._words[place]
            chosen.append(word)
            self._known.add(word)
            for other in range(place, self._end(place)):
                self._pieces[other] = self._cut(self._words[other])
                self._measure(other, heap)
            for length in range(1, len(word)):
                start = bisect.bisect_left(self._words, word[:length], hi=place)
                if self._words[start] == word[:length]:
                    self._measure(start, heap)
        return chosen

    def _measure(self, place: int, heap: list[tuple[int, int]]) -> None:
        """Counts exactly what the word at `place` saves now."""
        if place not in self._savings:
            return
        word = self._words[place]
        self._known.add(word)
        saving = sum(
            self._counts[other] * (self._pieces[other] - self._cut(self._words[other]))
            for other in range(place, self._end(place))
        )
        self._known.remove(word)
        self._savings[place] = saving
        self._exact.add(place)
        heapq.heappush(heap, (-saving, place))

    def _end(self, place: int) -> int:
        """One past the last word that begins with the word at `place`."""
        word = self._words[place]
        return bisect.bisect_right(
            self._words, word, lo=place, key=lambda other: other[: len(word)]
        )

    def _cut(self, word: str) -> int:
        """The number of pieces of a word; that of its characters, or two, if it is [UNK]."""
        start = pieces = 0
        while start < len(word):
            lead = vocabulary.CONTINUATION if start else ""
            end = min(len(word), start + self._longest)
            while end > start and lead + word[start:end] not in self._known:
                end -= 1
            if end == start:
                return max(2, len(word))
            start = end
            pieces += 1
        return pieces


def is_unused(token: str) -> bool:
    """Whether it is one of the places that released vocabularies keep free, as "[unused7]"."""
    return bool(_UNUSED.fullmatch(token))


def check_vocabulary_case(tokens: Sequence[str], do_lower_case: bool) -> None:
    """Raises DataError if a vocabulary is evidently of the other case than a flag says."""
    contradiction = vocabulary.contradiction_of_case(tokens, do_lower_case)
    if contradiction:
        raise DataError(f"{contradiction} Give --do_lower_case={not do_lower_case}.")
