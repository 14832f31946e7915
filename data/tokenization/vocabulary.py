"""Vocabulary files: one token per line, its id being the line's number from 0."""

import functools
import hashlib
import os
import re
from collections.abc import Iterable, Mapping, Sequence

import tensorflow as tf
from absl import logging

from data.errors import DataError, error_list
from data.files import atomic
from data.tokenization import unicode_tables

PAD, UNK, CLS, SEP, MASK = "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"
SPECIAL_TOKENS = (PAD, UNK, CLS, SEP, MASK)
CONTINUATION = "##"
_SHOWN = 5
_MANY_UNKNOWN = 0.05  # of the pieces of a text
# Shares of a vocabulary's tokens with a capital letter: the released cased ones have more than a
# quarter, the others next to none.
_CASED, _LOWER_CASED = 0.05, 0.002
_HAVE_CASE = 0.05  # share of the tokens with letters that have a case, for that to tell anything
IN_BRACKETS = re.compile(r"\[[^\[\]\s]+\]")
_MOST_CHARACTERS = 1000  # of a token; those between here and 200 do no harm


def load_vocab(vocab_file: str) -> list[str]:
    """Reads a vocabulary as the original release does.

    Each line is stripped of white space at both ends. Blank lines take an id (their token is "",
    which no text yields). Of a token that stands there twice the last id counts, see `token_ids`.
    The log tells of these, and of blank lines at debug level.

    Args:
        vocab_file: Any path that `tf.io.gfile` opens.

    Returns:
        The tokens; index = id.

    Raises:
        DataError: The file is missing or lacks one of [PAD] [UNK] [CLS] [SEP] [MASK].
    """
    try:
        with tf.io.gfile.GFile(vocab_file, "rb") as file:
            text = file.read().decode("utf-8", "ignore")
    except tf.errors.OpError as error:
        if tf.io.gfile.isdir(vocab_file):
            raise DataError(
                f"The vocabulary {vocab_file} is a folder; a file was expected. Give the "
                f"{os.path.join(vocab_file, 'vocab.txt')} that belongs to your checkpoint."
            ) from None
        raise DataError(
            f"The vocabulary file {vocab_file} can't be read ({type(error).__name__}); give the "
            "vocab.txt that belongs to your checkpoint, or learn one with "
            "python -m data.learn_vocabulary."
        ) from error
    # Not splitlines(): it would also split at U+2028 and others, and shift all ids behind them.
    lines = text.removeprefix("\ufeff").split("\n")
    if not lines[-1]:
        lines.pop()
    tokens = [line.strip() for line in lines]
    longest = max(range(len(tokens)), key=lambda index: len(tokens[index]), default=0)
    if tokens and len(tokens[longest]) > _MOST_CHARACTERS:
        raise DataError(
            f"{vocab_file}:{longest + 1}: this token has {len(tokens[longest]):,} characters, and "
            f"words of more than 200 are never looked up. A WordPiece vocabulary has a token a "
            f"line: check that this is one, or remove the line."
        )
    check_special_tokens(tokens, vocab_file)
    last = token_ids(tokens)
    blank = [index for index, token in enumerate(tokens) if not token]
    doubled = [index for index, token in enumerate(tokens) if token and last[token] != index]
    if blank:
        places = error_list(map(str, blank), _SHOWN)
        logging.debug("%s: blank lines, whose ids no text yields: %s", vocab_file, places)
    if doubled:
        logging.warning(
            "%s: tokens that stand there again further down, where the last id counts: %s",
            vocab_file,
            error_list((f"{tokens[i]} ({i}, {last[tokens[i]]})" for i in doubled), _SHOWN),
        )
    return tokens


def check_special_tokens(tokens: Iterable[str], source: str) -> None:
    """Raises a DataError that names the special tokens missing from `tokens`."""
    known = set(tokens)
    missing = [token for token in SPECIAL_TOKENS if token not in known]
    if missing:
        raise DataError(
            f"The vocabulary {source} has {len(known)} tokens but lacks {', '.join(missing)}; a "
            f"BERT vocabulary holds {', '.join(SPECIAL_TOKENS)}, one token per line. Check that "
            "this is a WordPiece vocab.txt, not a SentencePiece model or a JSON file."
        )


def token_ids(tokens: Sequence[str]) -> dict[str, int]:
    """Token to id; the last one counts where a token stands twice."""
    return {token: index for index, token in enumerate(tokens)}


def vocabulary_checksum(tokens: Sequence[str]) -> str:
    """32 hexadecimal digits for the tokens: the same however a file's lines end."""
    return hashlib.sha256("\n".join(tokens).encode()).hexdigest()[:32]


def reachable_wordpieces(tokens: Sequence[str]) -> list[bool]:
    """Which ids the tokenization of some text can yield.

    Not duplicates but the last, nor blanks, nor a token that mixes a character that is always a
    word of its own (punctuation, CJK) with others, nor one that holds white space or a character
    that normalisation deletes. What lower-casing would change is not looked at.
    """
    alone, never = _special_codes()
    last = token_ids(tokens)

    def can_occur(token: str) -> bool:
        codes = {ord(char) for char in token.removeprefix(CONTINUATION)}
        if not codes or codes & never:
            return False
        return len(token) == 1 or not codes & alone

    return [last[token] == index and can_occur(token) for index, token in enumerate(tokens)]


@functools.lru_cache(maxsize=1)
def _special_codes() -> tuple[frozenset[int], frozenset[int]]:
    """Code points that are always a word of their own, and those that no word contains."""
    tables = unicode_tables.load_tables()
    return (
        frozenset(unicode_tables.code_points(tables.punctuation + unicode_tables.CJK_RANGES)),
        frozenset(unicode_tables.code_points(tables.space + tables.removed)),
    )


def contradiction_of_case(tokens: Sequence[str], do_lower_case: bool) -> str:
    """A sentence if a vocabulary is evidently of the other case than a flag says; else "".

    One of a script without case, in which few tokens have any, tells nothing.
    """
    plain = [token for token in tokens if not IN_BRACKETS.fullmatch(token)]
    if sum(token.lower() != token.upper() for token in plain) < _HAVE_CASE * len(plain):
        return ""
    share = sum(token != token.lower() for token in plain) / max(1, len(plain))
    if _LOWER_CASED <= share <= _CASED or do_lower_case == (share < _LOWER_CASED):
        return ""
    return (
        f"{share:.1%} of the vocabulary's tokens have capital letters, so it is "
        f"{'cased' if do_lower_case else 'lower-cased'}, but --do_lower_case is {do_lower_case}."
    )


def check_writable(vocab_file: str) -> None:
    """Raises DataError now if `write_vocab` couldn't write there later, after long work."""
    atomic.check_writable(vocab_file)


def write_vocab(tokens: Sequence[str], vocab_file: str) -> None:
    """Writes a vocabulary file; DataError if that isn't possible."""
    atomic.write_text(vocab_file, "".join(f"{token}\n" for token in tokens))


def write_replaced_vocabulary(source: str, replaced: Mapping[int, str], vocab_file: str) -> None:
    """Copies a vocabulary file byte for byte but for the lines of some ids.

    Writing its tokens anew would not do: reading strips lines, and a few tokens of the released
    Chinese vocabulary are nothing but white space.

    Args:
        source: The vocabulary file.
        replaced: Id → its new token.
        vocab_file: Where the copy goes.
    """
    with tf.io.gfile.GFile(source, "rb") as file:
        lines = file.read().split(b"\n")
    for index, token in replaced.items():
        end = b"\r" if lines[index].endswith(b"\r") else b""
        lines[index] = token.encode("utf-8") + end
    with atomic.writing(vocab_file) as file:
        file.write(b"\n".join(lines))


def warn_of_unknown_pieces(name: str, unknown: int, pieces: int) -> None:
    """Logs if many of the pieces of a text are [UNK]: the vocabulary may be of another language."""
    if pieces and unknown > _MANY_UNKNOWN * pieces:
        logging.warning(
            "%s: %d of %d pieces (%.0f %%) are [UNK], which stands for every word that the "
            "vocabulary can't spell. Check that --vocab_file is of the text's language and script.",
            name,
            unknown,
            pieces,
            100 * unknown / pieces,
        )
