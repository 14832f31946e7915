"""What answers to questions are worth, and above which odds none is given.

scoring = Scoring(values)
threshold = scoring.threshold(questions, best_texts, null_odds)
results = scoring.results(questions, best_texts, null_odds, threshold)
"""

import json
import math
import os
from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf
from absl import logging

from data.errors import DataError
from data.tasks.questions import metrics
from data.tasks.questions.answers import write_squad_json
from data.tasks.questions.squad import Question

_FILE = "null_score_diff_threshold.json"
_KEY = "null_score_diff_threshold"


class Scoring:
    """Scores as the flags ask for them.

    Args:
        values: The flag values: whether questions may have no answer, the threshold for that, and
            whether characters are scored; and the output folder, where a threshold is kept.

    Raises:
        DataError: The threshold is neither a number nor "auto".
    """

    def __init__(self, values):
        self.version_2 = values.version_2_with_negative
        self.characters = values.characters
        self.path = os.path.join(values.output_dir, _FILE)
        self.fixed = None
        if values.null_score_diff_threshold != "auto":
            try:
                self.fixed = float(values.null_score_diff_threshold)
            except ValueError:
                self.fixed = math.nan
            if not math.isfinite(self.fixed):
                raise DataError(
                    f"--null_score_diff_threshold is {values.null_score_diff_threshold}; it has "
                    f"to be a number or auto."
                )

    def threshold(
        self,
        questions: Sequence[Question] = (),
        best_texts: Mapping[str, str] | None = None,
        null_odds: Mapping[str, float] | None = None,
    ) -> float:
        """Odds above which no answer is given; 0 where every question has one.

        With "auto" the best one for the questions, if their right answers are known, else the one
        that was kept.

        Raises:
            DataError: None was kept.
        """
        if not self.version_2:
            return 0.0
        if self.fixed is not None:
            return self.fixed
        if questions and with_answers(questions):
            return metrics.best_threshold(
                questions, best_texts, null_odds, characters=self.characters
            )
        return self._kept()

    def results(
        self,
        questions: Sequence[Question],
        best_texts: Mapping[str, str],
        null_odds: Mapping[str, float],
        threshold: float,
    ) -> dict[str, float]:
        """See `metrics.evaluate_answers`; with SQuAD 2.0 also the threshold."""
        odds = null_odds if self.version_2 else None
        results = metrics.evaluate_answers(
            questions,
            best_texts,
            odds,
            threshold,
            version_2=self.version_2,
            characters=self.characters,
        )
        return results | ({"threshold": threshold} if self.version_2 else {})

    def of_answers(self, questions: Sequence[Question], texts: Mapping[str, str]) -> np.ndarray:
        """Exact match and F1 of the answers given, by question id; see `metrics.answer_scores`."""
        return metrics.answer_scores(questions, texts, self.version_2, self.characters)

    def keep(self, threshold: float) -> None:
        """Keeps a threshold that was found, for questions whose answers aren't known."""
        if self.version_2 and self.fixed is None:
            write_squad_json(self.path, {_KEY: threshold})
            logging.info("Best threshold: %.4f, kept in %s", threshold, self.path)

    def _kept(self) -> float:
        try:
            with tf.io.gfile.GFile(self.path, "r") as file:
                return float(json.load(file)[_KEY])
        except (tf.errors.OpError, ValueError, KeyError, TypeError) as error:
            raise DataError(
                f"The threshold for the empty answer isn't known: {self.path} can't be read "
                f"({type(error).__name__}). It is written when questions with answers are answered "
                f"with the threshold auto; do that first, or give a number."
            ) from error


def with_answers(questions: Sequence[Question]) -> bool:
    """Whether their file says what the right answers are."""
    return all(question.answers or question.is_impossible for question in questions)
