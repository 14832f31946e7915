"""Pairs of texts with a rating from 1 to 5: from a TSV file to a split, tokenised.

split = read_split("dev", "dev.tsv", tokenizer, max_seq_length=128)

A rating is learned as four yes-or-no questions, whether it is above 1, 2, 3 and 4, so that the
order of the ratings counts and 4 is less wrong for 5 than 1 is (Niu et al., "Ordinal regression
with multiple output CNN for age estimation", CVPR 2016). To the rest of the project these are
labels, of which an example has any number.
"""

import functools

from data import batching
from data.errors import DataError, error_text
from data.features import features_fingerprint
from data.files.tables import read_table, table_value
from data.tasks.sentences import rows
from data.tasks.sentences.examples import Example, SentenceKind
from data.tasks.splits import TaskSplit
from data.tokenization import Tokenizer

RATINGS = ("1", "2", "3", "4", "5")
THRESHOLDS = ("above 1", "above 2", "above 3", "above 4")


def read_pairs(path: str, rated: bool) -> list[Example]:
    """The lines of a TSV file whose header names text_a, text_b and rating.

    Args:
        path: Of the file.
        rated: Whether there are ratings to be read; without, labels are None.

    Returns:
        Examples whose label is the thresholds that the rating lies above.

    Raises:
        DataError: Names file and line: a column is missing, a text is empty, or a rating is none.
    """
    examples = []
    for number, row in enumerate(read_table(path, format="tsv"), 1):
        texts = [table_value(row, name) for name in ("text_a", "text_b")]
        if not all(text.strip() for text in texts):
            raise DataError(f"{row.source}: a text is empty. Fill it in or remove the line.")
        label = None
        if rated:
            rating = table_value(row, "rating").strip()
            if rating not in RATINGS:
                raise DataError(
                    f"{row.source}: the rating is {error_text(rating)}; it has to be one of "
                    f"{', '.join(RATINGS)}. Correct or remove the line."
                )
            label = THRESHOLDS[: int(rating) - 1]
        examples.append(Example(str(number), *texts, label, row.source))
    return examples


def read_split(name: str, path: str, tokenizer: Tokenizer, max_seq_length: int) -> TaskSplit:
    """The split of a file: "train" and "dev" have ratings, "test" has none.

    The `label_ids` of its batches are float32 [B, 4]: 1 for each threshold below the rating.

    Raises:
        DataError: See `read_pairs`.
    """
    examples = read_pairs(path, rated=name != "test")
    settings = rows.SentenceSettings(max_seq_length)
    features = rows.tokenize_examples(
        tokenizer, examples, SentenceKind.MULTI_LABEL, THRESHOLDS, settings
    )
    texts = rows.sentences_fingerprint(tokenizer, examples, SentenceKind.MULTI_LABEL, settings)
    return TaskSplit(
        name,
        features,
        features_fingerprint([texts, features.label_ids]),
        functools.partial(batching.batching_sources, examples),
        examples,
    )
