"""Learning a WordPiece vocabulary from word counts.

Counting the words of a corpus, choosing the alphabet, laying out special tokens, and testing the
result. How the pieces of several characters are chosen is told in `substring_trie.py`.
"""

import collections
import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import tensorflow as tf
from absl import logging

from data.errors import DataError
from data.files.lines import text_portions
from data.pretraining import corpus
from data.tokenization import vocabulary
from data.tokenization.learning.substring_trie import SubstringTrie
from data.tokenization.normalizer import Normalizer
from data.tokenization.tokenizer import Tokenizer
from data.tokenization.wordpiece import MAX_CHARS_PER_WORD

# From this size on the special tokens stand where the released vocabularies have them.
ORIGINAL_LAYOUT_SIZE = 20000
_ORIGINAL_UNUSED = 99
_BATCH = 1024
_BATCH_CHARACTERS = 2**20
_SHOWN = 10
_MAX_DISTINCT_WORDS = 4_000_000
_MAX_HELD_OUT_CHARACTERS = 16_000_000


def count_words(
    texts: Iterable[str],
    do_lower_case: bool = True,
    strip_accents: bool | None = None,
    *,
    show_progress: bool = True,
) -> collections.Counter[str]:
    """Counts the normalised words of texts (sentences, paragraphs or documents).

    Runs in graph batches and holds the distinct words only; beyond four million of them the
    rarest are forgotten.
    """
    normalizer = Normalizer(do_lower_case, strip_accents)
    split = tf.function(
        lambda batch: normalizer.split_words(batch).values,
        input_signature=[tf.TensorSpec([None], tf.string)],
        autograph=False,
    )
    counts: collections.Counter[bytes] = collections.Counter()
    number = characters = shown = 0
    for batch in text_batches(texts):
        counts.update(split(tf.constant(batch, tf.string)).numpy().tolist())
        if len(counts) > _MAX_DISTINCT_WORDS:
            counts = _without_rarest(counts)
        number += len(batch)
        characters += sum(map(len, batch))
        if show_progress and characters - shown >= 20_000_000:
            shown = characters
            logging.info(
                "Counted words of %d texts, %.0f million characters: %d distinct words",
                number,
                characters / 1e6,
                len(counts),
            )
    return collections.Counter({word.decode("utf-8"): count for word, count in counts.items()})


def learn_vocabulary(
    word_counts: Mapping[str, int],
    vocab_size: int,
    *,
    reserved_tokens: Sequence[str] = (),
    num_unused: int | None = None,
    min_frequency: int = 2,
    character_coverage: float = 0.99999,
) -> list[str]:
    """Learns a vocabulary of exactly `vocab_size` tokens.

    Order: special tokens, `reserved_tokens`, single characters, their "##" forms, then pieces
    from frequent to rare. From 20,000 tokens on the special tokens have the released places
    ([PAD] 0, [unused0] to [unused98], [UNK] 100, [CLS] 101, [SEP] 102, [MASK] 103); a smaller
    vocabulary begins with these five. Further [unusedN] stand behind [MASK], among them those
    that fill up what the words can't.

    Args:
        word_counts: Normalised words (see `count_words`) and how often each occurs.
        vocab_size: Wanted number of tokens.
        reserved_tokens: Tokens to include whatever the words are.
        num_unused: How many [unusedN] there are at least; default 99 or, in a small vocabulary,
            none.
        min_frequency: Rarer pieces aren't learned, however much room there is.
        character_coverage: The alphabet is the most frequent characters that make up this share
            of all; words with others become [UNK].

    Returns:
        The tokens; index = id.

    Raises:
        DataError: `vocab_size` has no room for the special tokens and some characters, or there
            are no words.
    """
    head, unused = _head(vocab_size, num_unused)
    head += [token for token in dict.fromkeys(reserved_tokens) if token not in head]
    words = {
        word: count for word, count in word_counts.items() if 0 < len(word) <= MAX_CHARS_PER_WORD
    }
    if not words:
        raise DataError(
            f"No vocabulary of {vocab_size} tokens can be learned: the corpus has no words. Check "
            "that the input files hold text."
        )
    room = vocab_size - len(head) - unused
    if room < 2:
        raise DataError(
            f"vocab_size is {vocab_size}, but special, reserved and unused tokens alone take "
            f"{len(head) + unused}; ask for a larger vocabulary."
        )
    frequency: collections.Counter[str] = collections.Counter()
    for word, count in words.items():
        for char in word:
            frequency[char] += count
    # From frequent to rare.
    ranked = sorted(frequency.items(), key=lambda item: (-item[1], item[0]))
    alphabet = _fitting(_covering(ranked, character_coverage), room)
    # A reserved character is there already.
    characters = [token for token in _character_tokens(alphabet) if token not in head]
    taken = {*head, *characters}
    allowed = set(alphabet)
    trie = SubstringTrie(
        {word: count for word, count in words.items() if allowed.issuperset(word)},
        min_frequency,
        # A learned piece may coincide with a reserved token; then it is one token too many.
        taken,
    )
    pieces = trie.learn(room - len(characters))
    # Rare characters are of more use than empty places.
    filling = room - len(characters) - len(pieces)
    rare = _fitting([char for char, _ in ranked if char not in allowed], filling)
    pieces += [token for token in _character_tokens(rare) if token not in head]
    filling = room - len(characters) - len(pieces)
    if filling:
        logging.warning(
            "The corpus yields only %d pieces that occur %d times; %d [unusedN] tokens fill the "
            "vocabulary up to %d",
            len(pieces),
            min_frequency,
            filling,
            vocab_size,
        )
    first = _ORIGINAL_UNUSED if vocab_size >= ORIGINAL_LAYOUT_SIZE else 0
    place = head.index(vocabulary.MASK) + 1
    names = (f"[unused{number}]" for number in itertools.count(first))
    free = (name for name in names if name not in taken)
    fillers = list(itertools.islice(free, unused + filling))
    return [*head[:place], *fillers, *head[place:], *characters, *pieces]


@dataclasses.dataclass(frozen=True)
class Coverage:
    """How a vocabulary fits texts: counts of words, of pieces, and of [UNK] among the pieces."""

    words: int
    pieces: int
    unknown: int

    @property
    def pieces_per_word(self) -> float:
        return self.pieces / max(1, self.words)

    @property
    def unknown_share(self) -> float:
        return self.unknown / max(1, self.pieces)

    def report(self) -> str:
        """A line for people."""
        return (
            f"on {self.words} words {self.pieces_per_word:.4f} pieces per word, "
            f"{self.unknown_share:.4%} [UNK]"
        )


def measure_coverage(tokenizer: Tokenizer, texts: Iterable[str]) -> Coverage:
    """Counts words, pieces and [UNK] of texts, which should be held out from the learning."""

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)], autograph=False)
    def count(batch: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        ids = tokenizer.tokenize(batch).values
        unknown = tf.math.count_nonzero(ids == tokenizer.unk_id)
        return tf.size(tokenizer.split_words(batch).values), tf.size(ids), unknown

    totals = np.zeros(3, np.int64)
    for batch in text_batches(texts):
        totals += [int(number) for number in count(tf.constant(batch, tf.string))]
    return Coverage(*totals.tolist())


def read_learner_corpus(
    files: Sequence[str],
    *,
    do_lower_case: bool = True,
    strip_accents: bool | None = None,
    heldout_share: float = 0.01,
    text_field: str = corpus.TEXT_FIELD,
) -> tuple[collections.Counter[str], list[str]]:
    """Counts the words of corpus files, streaming, and holds some documents out.

    Which documents are held out is a matter of the hash of their text. When they exceed 16
    million characters, half of them (by the same hash) are let go, and the share halves for all
    that follow; so memory is bounded, and they come from all of the corpus.

    Args:
        files: What `data.pretraining.corpus.read_documents` reads.
        do_lower_case, strip_accents: As for the `Tokenizer` that the vocabulary is for.
        heldout_share: Share of documents kept out of the counts. If it is 0, or chance holds out
            none or all, everything is counted and the held-out sentences are the text itself, up
            to the same limit.
        text_field: The field that holds the text where a file is JSON lines.

    Returns:
        How often each normalised word of the text to learn from occurs; sentences that weren't
        counted, to test a vocabulary on.

    Raises:
        DataError: `heldout_share` isn't a share, or a file can't be read.
    """
    if not 0 <= heldout_share < 1:
        raise DataError(
            f"heldout_share is {heldout_share}; it must be at least 0 and below 1, such as 0.01."
        )

    def sentences(held: _HeldOut) -> Iterator[str]:
        progress = corpus.CorpusProgress(files, "Counting words")
        documents = corpus.read_documents(files, text_field=text_field, on_read=progress)
        for document in documents:
            if held.takes(document):
                yield from document.sentences

    folding = do_lower_case, strip_accents
    held = _HeldOut(heldout_share or 1, counted_too=not heldout_share)
    counts = count_words(sentences(held), *folding, show_progress=False)
    if not counts or not held.documents:
        logging.warning("Too few documents to hold some out: the coverage is of the same text")
        held = _HeldOut(1, counted_too=True)
        counts = count_words(sentences(held), *folding, show_progress=False)
    return counts, [text for document in held.documents for text in document.sentences]


class _HeldOut:
    """Collects held-out documents: ever fewer of them when they become too many."""

    def __init__(self, share: float, counted_too: bool = False):
        self.documents: list[corpus.Document] = []
        self._share = share
        self._counted_too = counted_too
        self._characters = 0

    def takes(self, document: corpus.Document) -> bool:
        """Keeps `document` if it is to be held out; returns whether it is to be counted."""
        if not corpus.is_held_out_of_corpus(document, self._share):
            return True
        self.documents.append(document)
        self._characters += sum(map(len, document.sentences))
        while self._characters > _MAX_HELD_OUT_CHARACTERS and len(self.documents) > 1:
            self._share /= 2
            self.documents = [
                d for d in self.documents if corpus.is_held_out_of_corpus(d, self._share)
            ]
            self._characters = sum(len(text) for d in self.documents for text in d.sentences)
        return self._counted_too


def learn_from_files(
    files: Sequence[str],
    vocab_size: int,
    *,
    do_lower_case: bool = True,
    strip_accents: bool | None = None,
    heldout_share: float = 0.01,
    text_field: str = corpus.TEXT_FIELD,
    **options,
) -> tuple[list[str], Coverage]:
    """Learns a vocabulary from corpus files, streaming, and tests it on held-out documents.

    Arguments are those of `read_learner_corpus` and, as `options`, `learn_vocabulary`.

    Returns:
        (tokens, coverage of the held-out documents).

    Raises:
        DataError: As `learn_vocabulary`, or a reserved token could never occur.
    """
    folding = {"do_lower_case": do_lower_case, "strip_accents": strip_accents}
    check_learner_reserved(options.get("reserved_tokens", ()), **folding)
    counts, held_out = read_learner_corpus(
        files, heldout_share=heldout_share, text_field=text_field, **folding
    )
    if not counts:
        raise DataError(
            f"There are no words in {', '.join(files[:3])}{' …' if files[3:] else ''}, so that no "
            f"vocabulary can be learned. Check that these are the right files and hold text."
        )
    logging.info("Learning %d tokens from %d distinct words", vocab_size, len(counts))
    tokens = learn_vocabulary(counts, vocab_size, **options)
    tokenizer = Tokenizer.from_vocab(tokens, **folding)
    return tokens, measure_coverage(tokenizer, held_out)


def check_learner_reserved(
    words: Sequence[str], do_lower_case: bool, strip_accents: bool | None = None
) -> None:
    """Raises a DataError that names the words that tokenization could never yield.

    Tokens in brackets, such as "[USER]", are let through: a tokenizer finds them in text if they
    are in its `never_split`.
    """
    plain = [word for word in dict.fromkeys(words) if not vocabulary.IN_BRACKETS.fullmatch(word)]
    if not plain:
        return
    normalizer = Normalizer(do_lower_case, strip_accents)
    split = normalizer.split_words(tf.constant(plain, tf.string)).to_list()
    wrong = []
    for word, parts in zip(plain, split, strict=True):
        parts = [part.decode("utf-8") for part in parts]
        if len(word) > MAX_CHARS_PER_WORD:
            wrong.append(f"{word[:20]!r}… ({len(word)} characters, the limit is 200)")
        elif parts != [word]:
            seen = " ".join(parts) if parts else "nothing"
            wrong.append(f"{word!r} (tokenization sees {seen})")
    if wrong:
        shown = ", ".join(wrong[:_SHOWN])
        more = f" and {len(wrong) - _SHOWN} more" if len(wrong) > _SHOWN else ""
        case = "lower-cased" if do_lower_case else "cased"
        raise DataError(
            f"These reserved tokens would never be found in {case} text: {shown}{more}. Give whole"
            " words as the vocabulary writes them: without white space or punctuation, in its case"
            " (--do_lower_case, --strip_accents), at most 200 characters long."
        )


def _head(vocab_size: int, num_unused: int | None) -> tuple[list[str], int]:
    """The tokens up to [MASK], and how many [unusedN] have to follow."""
    if vocab_size < ORIGINAL_LAYOUT_SIZE:
        return list(vocabulary.SPECIAL_TOKENS), num_unused or 0
    unused = [f"[unused{index}]" for index in range(_ORIGINAL_UNUSED)]
    pad, *others = vocabulary.SPECIAL_TOKENS
    return [pad, *unused, *others], max(0, (num_unused or 0) - _ORIGINAL_UNUSED)


def _covering(ranked: list[tuple[str, int]], coverage: float) -> list[str]:
    """The most frequent characters that make up `coverage` of all."""
    enough = coverage * sum(count for _, count in ranked)
    before = itertools.accumulate((count for _, count in ranked), initial=0)
    return [char for (char, _), seen in zip(ranked, before, strict=False) if seen < enough]


def _forms(char: str) -> list[str]:
    """The tokens of one character.

    A punctuation or CJK character is always a word, so its "##" form would never be used.
    """
    continuing = vocabulary.CONTINUATION + char
    return [char, continuing] if vocabulary.reachable_wordpieces([continuing])[0] else [char]


def _fitting(ranked: list[str], room: int) -> list[str]:
    """As many of the characters, from the first on, as have room with all their forms."""
    sizes = itertools.accumulate(len(_forms(char)) for char in ranked)
    return [char for char, size in zip(ranked, sizes, strict=True) if size <= room]


def _character_tokens(alphabet: list[str]) -> list[str]:
    """The characters in code point order, then their "##" forms."""
    tokens = [form for char in alphabet for form in _forms(char)]
    return sorted(tokens, key=lambda token: (len(token) > 1, token))


def text_batches(texts: Iterable[str]) -> Iterator[list[str]]:
    """Lists of as many texts as are cut at once, fewer where they are long."""
    return text_portions(texts, _BATCH, _BATCH_CHARACTERS)


def _without_rarest(counts: collections.Counter[bytes]) -> collections.Counter[bytes]:
    floor = 1
    while len(counts) > _MAX_DISTINCT_WORDS // 2:
        counts = collections.Counter({w: count for w, count in counts.items() if count > floor})
        floor += 1
    return counts
