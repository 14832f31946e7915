"""Words that somebody wants in a vocabulary, checked before any work is done."""

import re
from collections.abc import Sequence

import tensorflow as tf

from data.errors import DataError
from data.tokenization.normalizer import Normalizer
from data.tokenization.wordpiece import MAX_CHARS_PER_WORD

IN_BRACKETS = re.compile(r"\[[^\[\]\s]+\]")
_SHOWN = 10


def check(words: Sequence[str], do_lower_case: bool) -> None:
    """Raises a DataError that names the words that tokenization could never yield.

    Tokens in brackets, such as "[USER]", are let through: a tokenizer finds them in text if they
    are in its `never_split`.
    """
    plain = [word for word in dict.fromkeys(words) if not IN_BRACKETS.fullmatch(word)]
    if not plain:
        return
    split = Normalizer(do_lower_case).split_words(tf.constant(plain, tf.string)).to_list()
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
            " (--do_lower_case), at most 200 characters long."
        )
