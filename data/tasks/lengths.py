"""How many texts of a split are longer than a row, and which length would do: a line of the log."""

from collections.abc import Sequence

import numpy as np
import tensorflow as tf
from absl import logging

from data.progress import portions
from data.tokenization import Tokenizer

_HELD = 0.99
_MULTIPLE = 16
_TEXTS_AT_ONCE = 1024


def piece_counts(tokenizer: Tokenizer, texts: Sequence[str]) -> np.ndarray:
    """How many pieces each text has, int64 [N], [CLS] and [SEP] not counted."""
    counts = [
        tokenizer.tokenize(tf.constant(some, tf.string)).row_lengths().numpy()
        for some in portions("Counting pieces", "texts", texts, _TEXTS_AT_ONCE)
    ]
    return np.concatenate([np.zeros(0, np.int64), *counts])


def suggested_length(lengths: np.ndarray, most: int | None = None) -> int:
    """The smallest multiple of 16 that holds 99 % of the lengths, or `most` if that is less."""
    enough = int(np.quantile(lengths, _HELD, method="inverted_cdf"))
    length = -(-enough // _MULTIPLE) * _MULTIPLE
    return min(length, most) if most else length


def tell_lengths(
    name: str,
    called: str,
    lengths: np.ndarray,
    limit: int,
    *,
    becomes: str,
    most: int | None = None,
    flag: str = "max_seq_length",
    more: str = "",
) -> None:
    """Logs how many texts of a split are longer than the flag says, and the length that would do.

    Args:
        name: Of the split.
        called: What is counted: "texts".
        lengths: int [N], in pieces, before anything is cut.
        limit: The flag's value.
        becomes: What becomes of those that are longer: "are cut".
        most: The longest that the model has positions for; None: any length does.
        flag: The one that helps.
        more: A sentence about those that are longer, or nothing.
    """
    if not len(lengths):
        return
    longer, longest = int((lengths > limit).sum()), int(lengths.max())
    if not longer:
        logging.info(
            f"{name}: none of {len(lengths)} {called} is longer than --{flag}={limit}; the longest"
            f" has {longest} pieces."
        )
        return
    # What is set may hold as many already.
    length = max(suggested_length(lengths, most), limit)
    share = 100 * (lengths <= length).mean()
    bound = ", the most that the model takes," if length == most else ""
    holds = "holds" if length == limit else "would hold"
    logging.info(
        f"{name}: {longer} of {len(lengths)} {called} {becomes}, since they are longer than"
        f" --{flag}={limit}; the longest has {longest} pieces. --{flag}={length}{bound} {holds}"
        f" {share:.1f} % of them whole.{more}"
    )
