"""What answers to questions are worth, and above which odds none is given.

scoring = Scoring(values)
threshold = scoring.threshold(questions, best_texts, null_odds)
results = scoring.results(questions, best_texts, null_odds, threshold)
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np
from absl import logging

from data.errors import DataError
from data.tasks.kept import keep_numbers, kept_numbers
from data.tasks.questions import metrics
from data.tasks.questions.squad import Question

_FILE = "null_score_diff_threshold.json"
_KEY = "null_score_diff_threshold"
_REMEDY = (
    "It is written when questions with answers are answered with the threshold auto, by one model "
    "and not as the original; do that first, or give a number."
)


class Scoring:
    """Scores as the flags ask for them.

    Args:
        values: The flag values: whether questions may have no answer, the threshold for that, and
            whether characters are scored; and the output folder, where a threshold is kept.
        init_checkpoint: Of weights beside which one may be kept as well.

    Raises:
        DataError: The threshold is neither a number nor "auto".
    """

    def __init__(self, values, init_checkpoint: str | None = None):
        self.version_2 = values.version_2_with_negative
        self.characters = values.characters
        self.folders = values.output_dir, init_checkpoint
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
        *,
        weights: str | None = None,
    ) -> float:
        """Odds above which no answer is given; 0 where every question has one.

        With "auto" the best one for the questions, if their right answers are known, else the one
        that was kept for weights of this checksum.

        Raises:
            DataError: None was kept.
        """
        if not self.version_2:
            return 0.0
        if self.fixed is not None:
            return self.fixed
        if questions and not self.without_answers(questions):
            return metrics.best_threshold(
                questions, best_texts, null_odds, characters=self.characters
            )
        return self._kept(weights)

    def without_answers(self, questions: Sequence[Question]) -> int:
        """How many questions have no right answer in their file, so that none can be scored."""
        return sum(not (q.answers or (self.version_2 and q.is_impossible)) for q in questions)

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

    def keep(self, threshold: float, weights: str | None) -> None:
        """Keeps a threshold that was found, for questions whose answers aren't known.

        Args:
            threshold: Of `threshold`.
            weights: Checksum of those that it is for; None: they answer together with others, or
                as the original does, which an export can't; it is told then, and not kept.
        """
        if not self.version_2 or self.fixed is not None:
            return
        if weights is None:
            logging.info("Best threshold: %.4f, not kept: give it as --%s", threshold, _KEY)
            return
        keep_numbers(self.folders[0], _FILE, {_KEY: threshold}, weights)
        logging.info("Best threshold: %.4f, kept in %s", threshold, _FILE)

    def _kept(self, weights: str | None) -> float:
        numbers = kept_numbers(*self.folders, _FILE, [_KEY], _REMEDY, weights)
        if numbers is None:
            raise DataError(
                f"The threshold for the empty answer isn't known: there is no {_FILE} beside the "
                f"weights. {_REMEDY}"
            )
        return numbers[0]
