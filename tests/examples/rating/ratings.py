"""Which ratings four logits mean, how good they are, and the file of predictions."""

from collections.abc import Sequence

import numpy as np

from data.files import atomic
from data.tasks.sentences.examples import Example

NAMES = ("mae", "accuracy", "kappa")


def of(thresholds: np.ndarray) -> np.ndarray:
    """Ratings, int64 [N], of [N, 4]: positive where a rating is said to lie above the threshold."""
    return 1 + np.sum(thresholds > 0, axis=1)


def expected(logits: np.ndarray) -> np.ndarray:
    """Means of the ratings by the model's probabilities, float [N] from 1 to 5."""
    return 1 + np.sum(1 / (1 + np.exp(-logits)), axis=1)


def evaluate(gold: np.ndarray, predicted: np.ndarray) -> dict[str, float]:
    """Scores of ratings, each int [N].

    Returns:
        mae: The mean absolute error, in ratings.
        accuracy: The share of exact ones.
        kappa: Cohen's, weighted by the square of the error; 0 where all ratings are the same.
    """
    # It takes a second to import, and only evaluations need it.
    from sklearn.metrics import cohen_kappa_score

    error = np.abs(gold - predicted)
    alike = len({*gold, *predicted}) == 1
    # Told which there are, it takes a rating that doesn't occur for a step as well.
    labels, weights = range(1, 6), "quadratic"
    kappa = 0.0 if alike else cohen_kappa_score(gold, predicted, labels=labels, weights=weights)
    return {
        "mae": float(error.mean()),
        "accuracy": float(np.mean(error == 0)),
        "kappa": float(kappa),
    }


def write_predictions(path: str, examples: Sequence[Example], logits: np.ndarray) -> None:
    """Writes a TSV file: the texts, the rating and its mean by the probabilities.

    Raises:
        DataError: The file can't be written.
    """
    lines = ["text_a\ttext_b\trating\texpected"]
    for example, rating, mean in zip(examples, of(logits), expected(logits), strict=True):
        lines.append(f"{example.text_a}\t{example.text_b}\t{rating}\t{mean:.6f}")
    atomic.write_text(path, "\n".join(lines) + "\n")
