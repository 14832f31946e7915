"""From which probability on each label of several is predicted: 0.5, or tuned for its F1."""

import numpy as np

from modeling.metrics import THRESHOLD


def tune_label_thresholds(probabilities, labels) -> np.ndarray:
    """The threshold of each label with the best F1 on these examples; a label is predicted from it.

    It lies halfway between two examples, so that neither is lost to rounding. Of several that are
    equally good it is the one nearest to 0.5, the lower one of two as near; 0.5 itself where that
    is as good as any, and for labels that no example has. (Lipton et al., "Optimal thresholding of
    classifiers to maximize F1 measure", 2014, is on what such thresholds do: where a model knows
    little of a label they fall, and the label is predicted often.)

    Args:
        probabilities: float32 [N, L]. What isn't finite counts as 0.
        labels: [N, L], 0 or 1.

    Returns:
        float32 [L].
    """
    values = np.nan_to_num(np.asarray(probabilities, np.float32), posinf=0.0, neginf=0.0)
    columns = zip(values.T, np.asarray(labels).T > 0, strict=True)
    return np.array([_tuned(*column) for column in columns], np.float32)


def _tuned(values: np.ndarray, gold: np.ndarray) -> np.float32:
    if not gold.any():
        return np.float32(THRESHOLD)
    steps = np.unique(values)
    candidates = np.append(
        (steps + np.append(np.float32(0), steps[:-1])) / 2, np.float32(THRESHOLD)
    )
    # Between neighbouring floats there is none.
    candidates[:-1] = np.where(candidates[:-1] > np.append(-1, steps[:-1]), candidates[:-1], steps)
    order = np.argsort(values, kind="stable")
    before = np.searchsorted(values[order], candidates, "left")
    right = np.append(np.cumsum(gold[order][::-1])[::-1], 0)[before]
    above, below = 2 * right, len(values) - before + gold.sum()
    best = np.argmax(above / below)
    # As fractions of whole numbers, so that equal scores are equal.
    equal = candidates[above * below[best] == above[best] * below]
    return min(equal, key=lambda candidate: (abs(candidate - np.float32(THRESHOLD)), candidate))


def halves_predicted(probabilities, labels) -> np.ndarray:
    """Bool [N, L]: each half of the examples as predicted with thresholds of the other half.

    What tuned thresholds are worth on examples that they weren't tuned on. Arguments are those of
    `tune_label_thresholds`.
    """
    probabilities, labels = np.asarray(probabilities, np.float32), np.asarray(labels)
    predicted = np.zeros(probabilities.shape, bool)
    for half, other in halves_drawn(len(labels)):
        thresholds = tune_label_thresholds(probabilities[other], labels[other])
        predicted[half] = probabilities[half] >= thresholds
    return predicted


def halves_drawn(count: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Numbers of the examples of each half and of the other one, drawn with seed 0."""
    # Every other example wouldn't do where a file has its labels in turns.
    order = np.random.default_rng(0).permutation(count)
    halves = np.sort(order[: count // 2]), np.sort(order[count // 2 :])
    return [halves, halves[::-1]]
