"""Regression and multi-label cases of real text, and linear models on words to compare with.

Nothing of the linear models is the project's: words in brackets of NumPy, least squares with a
ridge, logistic regression.
"""

import csv
import json
import pathlib
import re
from collections import Counter

import numpy as np

TYPES = ("LOC", "MISC", "ORG", "PER")
WORDS = 3000  # the most frequent ones, which linear models know


def similarities(data: pathlib.Path, split: str) -> list[dict]:
    """STS-B from 1 to 100 in place of 0 to 5."""
    with open(data / f"glue/STS-B/{split}.tsv", encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    return [{"a": row[7], "b": row[8], "label": 1 + 19.8 * float(row[9])} for row in rows[1:]]


def entity_types(data: pathlib.Path, split: str) -> list[dict]:
    """CoNLL's sentences: `types` that occur, and the number of words that are part of a person."""
    text = (data / f"conll2003/eng.{split}").read_text(encoding="utf-8")
    rows = []
    for sentence in text.split("\n\n"):
        words = [line.split() for line in sentence.splitlines() if line]
        words = [(word, tag.rpartition("-")[2]) for word, *_, tag in words if word != "-DOCSTART-"]
        if words:
            tags = Counter(tag for _, tag in words)
            row = {"a": " ".join(word for word, _ in words), "persons": tags["PER"]}
            rows.append(row | {"types": [name for name in TYPES if tags[name]]})
    return rows


def write_rows(path: pathlib.Path, rows: list[dict]) -> None:
    """JSON lines."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


class Words:
    """Which words a text has: float32 [texts, words + 1], the last column 1."""

    def __init__(self, texts: list[str]):
        counts = Counter(word for text in texts for word in self._words(text))
        self.columns = {word: at for at, (word, _) in enumerate(counts.most_common(WORDS))}

    @staticmethod
    def _words(text: str) -> list[str]:
        return re.findall(r"\w+|[^\w\s]", text.lower())

    def __call__(self, texts: list[str]) -> np.ndarray:
        matrix = np.zeros((len(texts), len(self.columns) + 1), np.float32)
        matrix[:, -1] = 1
        for row, text in enumerate(texts):
            for word in self._words(text):
                if word in self.columns:
                    matrix[row, self.columns[word]] += 1
        return matrix


def ridge(train: np.ndarray, labels: np.ndarray, dev: np.ndarray, penalty: float = 5.0):
    """Least squares' predictions for `dev`; the mean isn't punished."""
    mean = labels.mean()
    gram = train.T @ train + penalty * np.eye(train.shape[1], dtype=np.float32)
    return dev @ np.linalg.solve(gram, train.T @ (labels - mean)) + mean


def logistic(train: np.ndarray, labels: np.ndarray, dev: np.ndarray, penalty: float = 1.0):
    """Logits [dev, labels] of a logistic regression for each column of 0 and 1."""
    weights = ahead = np.zeros((train.shape[1], labels.shape[1]), np.float32)
    # Accelerated gradient descent; the curvature is at most a quarter of the data's.
    vector = np.ones(train.shape[1], np.float32)
    for _ in range(20):
        vector = train.T @ (train @ vector)
        norm = np.linalg.norm(vector)
        vector /= norm
    rate = 1 / (norm / 4 + penalty)
    for step in range(300):
        slope = train.T @ (1 / (1 + np.exp(-(train @ ahead))) - labels) + penalty * ahead
        after = ahead - rate * slope
        weights, ahead = after, after + step / (step + 3) * (after - weights)
    return dev @ weights


def pearson(predictions: np.ndarray, labels: np.ndarray) -> float:
    return float(np.corrcoef(predictions, labels)[0, 1])


def micro_f1(predicted: np.ndarray, labels: np.ndarray) -> float:
    """Of two arrays of 0 and 1."""
    return float(2 * (predicted * labels).sum() / max((predicted + labels).sum(), 1))
