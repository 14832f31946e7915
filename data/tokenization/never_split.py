"""Special tokens written in a text, such as [MASK], kept whole when that is asked for.

The original splits them like any other text ("[", "mask", "]"), and so does the tokenizer unless
it is told which ones to keep. A kept token is replaced, before normalisation, by blanks and a
control character, as many bytes as it had, so that offsets stay where they are.
"""

import re
from collections.abc import Sequence

import tensorflow as tf

from data.errors import DataError

# Normalisation deletes these from every text, so none that stands there is a user's; and they
# are not white space to the op that splits words, as the other control characters are. U+0011
# the op uses for itself.
_CODES = [*map(chr, range(0x01, 0x09)), *map(chr, range(0x0E, 0x11)), *map(chr, range(0x12, 0x1C))]
_ANY_CODE = r"[\x01-\x08\x0e-\x1b]"
# Deleted as well, and as long.
_OTHER_CONTROL = "\x7f"
_ALLOWED = re.compile(r"\[[^\[\]\s]+\]")


class NeverSplit:
    """Marks the places of certain tokens in texts.

    Args:
        tokens: Each in brackets, such as "[MASK]", and in the vocabulary.
        ids: Token to id.

    Attributes:
        codes: The words that stand for the tokens in a marked text, in the order of `tokens`.

    Raises:
        DataError: A token isn't in brackets, or not in the vocabulary.
    """

    def __init__(self, tokens: Sequence[str], ids: dict[str, int]):
        # The shortest first: they have room for one character only.
        self.tokens = sorted(dict.fromkeys(tokens), key=lambda token: (len(token.encode()), token))
        for token in self.tokens:
            if not _ALLOWED.fullmatch(token):
                raise DataError(
                    f"{token!r} can't be kept whole: only tokens in brackets, such as [MASK] or "
                    "[unused1], can, since only these are never part of a longer word."
                )
            if token not in ids:
                raise DataError(
                    f"{token!r} is to be kept whole, but the vocabulary lacks it; put it there, "
                    "or leave it out of never_split."
                )
        pairs = [first + second for first in _CODES for second in _CODES]
        self.codes = [*_CODES, *pairs][: len(self.tokens)]
        for token, code in zip(self.tokens, self.codes, strict=False):
            if len(token.encode()) < len(code) + 2:
                raise DataError(
                    f"Too many short tokens are to be kept whole; {token!r} has no room left."
                )
        if len(self.codes) < len(self.tokens):
            raise DataError(
                f"{len(self.tokens)} tokens are to be kept whole; at most {len(self.codes)} can be."
            )
        with tf.init_scope():
            self._ids = tf.constant([ids[token] for token in self.tokens], tf.int32)
            self._sizes = tf.constant([len(token.encode()) for token in self.tokens], tf.int64)

    def mark(self, texts: tf.Tensor) -> tf.Tensor:
        """string [N] to string [N] with the same number of bytes each."""
        texts = tf.strings.regex_replace(texts, _ANY_CODE, _OTHER_CONTROL)
        for token, code in zip(self.tokens, self.codes, strict=True):
            blanks = " " * (len(token.encode()) - 1 - len(code))
            texts = tf.strings.regex_replace(texts, re.escape(token), f" {code}{blanks}")
        return texts

    def named(self, words: tf.Tensor) -> tf.Tensor:
        """string [words] of a marked text, with the tokens in place of their codes."""
        for token, code in zip(self.tokens, self.codes, strict=True):
            words = tf.where(words == code, token, words)
        return words

    def resolve(
        self, ids: tf.Tensor, starts: tf.Tensor, ends: tf.Tensor, vocab_size: int
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Ids from `vocab_size` on (the codes) to the tokens' own, spans to the whole tokens.

        Args:
            ids, starts, ends: int [pieces]; starts and ends in the source text.

        Returns:
            The same three.
        """
        code = ids - vocab_size
        is_code = code >= 0
        code = tf.maximum(code, 0)
        # One blank stands before a code.
        starts = tf.where(is_code, starts - 1, starts)
        ends = tf.where(is_code, starts + tf.gather(self._sizes, code), ends)
        return tf.where(is_code, tf.gather(self._ids, code), ids), starts, ends
