"""Predictions of sentence-level tasks as files.

test_results.tsv is the original's; predictions.tsv and errors.tsv are for people and spreadsheets:
tab-separated, UTF-8, a header, no quoting. What is escaped in their cells, so that every row is one
line and no spreadsheet runs one, `text_files.tsv_line` says; `raw_cells` leaves the latter out.
"""

import json
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from data.files import atomic
from data.files.text_files import tsv_line
from data.tasks.sentences.examples import Example, Label, SentenceKind

# From this probability on a label of a multi-label task is predicted.
THRESHOLD = 0.5

# What errors.tsv shows of a text, in characters.
_SHOWN = 2000


def write_sentence_test_results(path: str, probabilities: Iterable[Sequence[float]]) -> None:
    """Writes test_results.tsv as the original: a line per example, probabilities, tabs.

    There is no header and no label: the columns are the classes in the order of their ids.
    """
    atomic.write_text(path, "".join("\t".join(str(p) for p in row) + "\n" for row in probabilities))


def write_predictions(
    path: str,
    examples: Sequence[Example],
    kind: SentenceKind,
    labels: Sequence[str],
    outputs: np.ndarray,
    raw_cells: bool = False,
    thresholds: Sequence[float] | float = THRESHOLD,
) -> None:
    """Writes predictions.tsv: a line per example, in order, below a header.

    The columns are id; gold where at least one example has a label; the prediction, called
    "label", for several of them "labels", for a number "prediction"; and the probabilities, a
    column each, named as the class, or choice_0, choice_1 … A class that is called like one of
    the other columns gets "probability_" before its name. Labels are joined by commas. Numbers
    read back as the same float32.

    Args:
        path: Where to.
        examples: N of them.
        kind: What the outputs are.
        labels: Names of the classes in the order of their ids; not used for numbers and choices.
        outputs: float32. Probabilities [N, classes]; numbers [N]; or probabilities
            [N, choices], where examples of fewer choices have zeros.
        raw_cells: See `text_files.tsv_line`.
        thresholds: From which probability on each label of several is predicted.

    Raises:
        DataError: The file can't be written.
    """
    outputs = _checked(examples, kind, labels, outputs)
    predicted = predicted_labels(kind, labels, outputs, thresholds)
    known = any(example.label is not None for example in examples)
    name = {SentenceKind.MULTI_LABEL: "labels", SentenceKind.REGRESSION: "prediction"}.get(
        kind, "label"
    )
    fixed = ["id", *(["gold"] if known else []), name]
    columns = list(labels)
    if kind is SentenceKind.CHOICES:
        columns = [f"choice_{number}" for number in range(outputs.shape[1])]
    elif kind is SentenceKind.REGRESSION:
        columns = []
    rows = [fixed + [f"probability_{c}" if c in fixed else c for c in columns]]
    for example, label, output in zip(examples, predicted, outputs, strict=True):
        row = [example.guid, *([label_text(example.label)] if known else []), label_text(label)]
        rows.append(row + ([] if kind is SentenceKind.REGRESSION else [str(p) for p in output]))
    atomic.write_text(path, "".join(f"{tsv_line(row, raw_cells)}\n" for row in rows))


def write_sentence_errors(
    path: str,
    examples: Sequence[Example],
    kind: SentenceKind,
    labels: Sequence[str],
    outputs: np.ndarray,
    limit: int = 20,
    raw_cells: bool = False,
) -> None:
    """Writes errors.tsv: the wrong predictions that the model was surest of, the worst first.

    The columns are source (file:line), id, gold, predicted, confidence, text_a, and text_b or
    choice_0, choice_1 … where there are any. The confidence is the probability of the class or
    choice predicted; for several labels that of the worst mistake: of the label that is wrong,
    or of the absence of one that is missing. For numbers the column is "error", the absolute
    difference. Examples without label are left out, texts cut after 2,000 characters.

    At most `limit` rows; the other arguments and errors are those of `write_predictions`.
    """
    mistakes = worst_sentence_mistakes(examples, kind, labels, outputs, limit)
    pairs = any(example.text_b is not None for example in examples)
    choices = max((len(example.choices) for example in examples), default=0)
    header = ["source", "id", "gold", "predicted"]
    header += ["error" if kind is SentenceKind.REGRESSION else "confidence", "text_a"]
    rows = [header + ["text_b"] * pairs + [f"choice_{number}" for number in range(choices)]]
    for example, predicted, confidence in mistakes:
        row = [example.source, example.guid, label_text(example.label), predicted, str(confidence)]
        texts = [example.text_a, *([example.text_b or ""] if pairs else []), *example.choices]
        texts += [""] * (choices - len(example.choices))
        rows.append([*row, *map(_shown, texts)])
    atomic.write_text(path, "".join(f"{tsv_line(row, raw_cells)}\n" for row in rows))


class SentenceMistake(NamedTuple):
    """A wrong prediction.

    Attributes:
        example: The example.
        predicted: What was predicted of it, as text.
        confidence: See `write_sentence_errors`.
    """

    example: Example
    predicted: str
    confidence: np.float32

    def texts(self) -> list[tuple[str, str]]:
        """Name and text of each text, cut after 2,000 characters."""
        example = self.example
        texts = [("text_a", example.text_a), ("text_b", example.text_b or "")]
        texts += [(f"choice_{number}", choice) for number, choice in enumerate(example.choices)]
        return [(name, _shown(text)) for name, text in texts if text]


def worst_sentence_mistakes(
    examples: Sequence[Example],
    kind: SentenceKind,
    labels: Sequence[str],
    outputs: np.ndarray,
    limit: int,
) -> list[SentenceMistake]:
    """The wrong predictions that the model was surest of; see `write_sentence_errors`."""
    outputs = _checked(examples, kind, labels, outputs)
    predicted = predicted_labels(kind, labels, outputs)
    mistakes = [
        (_mistake(kind, labels, example.label, label, output), number)
        for number, (example, label, output) in enumerate(
            zip(examples, predicted, outputs, strict=True)
        )
        if example.label is not None
    ]
    # Of equal ones the first in the file comes first.
    mistakes = sorted((m for m in mistakes if m[0] > 0), key=lambda m: (-m[0], m[1]))[:limit]
    return [SentenceMistake(examples[n], label_text(predicted[n]), value) for value, n in mistakes]


def predicted_labels(
    kind: SentenceKind,
    labels: Sequence[str],
    outputs: np.ndarray,
    thresholds: Sequence[float] | float = THRESHOLD,
) -> list[Label]:
    """The label of every example, as an example of that kind has it.

    Of equal probabilities the first class wins; a multi-label prediction holds all labels whose
    probability is at least their threshold, and may be empty.
    """
    if kind is SentenceKind.REGRESSION:
        return list(outputs)
    if kind is SentenceKind.MULTI_LABEL:
        chosen = outputs >= np.asarray(thresholds, np.float32)
        names = np.array(labels, object)
        return [tuple(names[row]) for row in chosen]
    best = [int(number) for number in np.argmax(outputs, axis=-1)]
    return best if kind is SentenceKind.CHOICES else [labels[number] for number in best]


def asked_sentence(example: Example) -> str:
    """The example as a line of input to an exported model, JSON."""
    asked: dict[str, object] = {"text_a": example.text_a}
    if example.text_b is not None:
        asked["text_b"] = example.text_b
    if example.choices:
        asked = {"context": example.text_a, "choices": list(example.choices)}
    return json.dumps(asked, ensure_ascii=False)


def _checked(
    examples: Sequence[Example], kind: SentenceKind, labels: Sequence[str], outputs: np.ndarray
) -> np.ndarray:
    outputs = np.asarray(outputs, np.float32)
    width = {SentenceKind.REGRESSION: (), SentenceKind.CHOICES: outputs.shape[1:2]}.get(
        kind, (len(labels),)
    )
    if outputs.shape != (len(examples), *width) or (
        kind is SentenceKind.CHOICES and outputs.ndim != 2
    ):
        raise ValueError(
            f"outputs are of shape {outputs.shape}; {len(examples)} examples of kind "
            f"{kind.value} and {len(labels)} labels are given."
        )
    return outputs


def _mistake(
    kind: SentenceKind, labels: Sequence[str], gold: Label, predicted: Label, output: np.ndarray
) -> np.float32:
    """How sure of a wrong prediction the model was; 0 if it is right."""
    if kind is SentenceKind.REGRESSION:
        return np.float32(abs(output - np.float32(gold)))
    if kind is SentenceKind.MULTI_LABEL:
        wrong = [
            p if label in predicted else 1 - p
            for label, p in zip(labels, output, strict=True)
            if (label in predicted) != (label in gold)
        ]
        return max(wrong, default=np.float32(0))
    return np.float32(0) if predicted == gold else np.max(output)


def label_text(label: Label | None) -> str:
    """A label as files have it, nothing where there is none.

    Several are joined by commas or, where one of them holds a comma, are a list in JSON.
    """
    if label is None:
        return ""
    if not isinstance(label, tuple):
        return str(label)
    if any("," in part for part in label):
        return json.dumps(label, ensure_ascii=False)
    return ",".join(label)


def _shown(text: str) -> str:
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"
