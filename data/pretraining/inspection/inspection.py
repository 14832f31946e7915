"""Looks through pre-training records: reads files of any kind, checks each record, counts.

    from data.pretraining.inspection import inspection
    result = inspection.inspect_record_files(["train.tfrecord"])
    result.statistics.summary(), result.problems

Takes the records of `records.schema` and the original release's, of any length, also without the
masked_lm_* features (not masked yet), in plain and in GZIP-compressed TFRecord files. Records are
parsed and checked in batches, so memory stays the same however many they are.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import tensorflow as tf
from absl import logging

from data.errors import DataError
from data.pretraining.inspection.statistics import Statistics
from data.pretraining.instances.masking import MaskingVocabulary
from data.pretraining.records.record_files import DamagedRecordError, read_record_files
from data.pretraining.records.record_sets import RecordSets, examine_sets
from data.pretraining.records.schema import (
    AGAIN,
    decode_records,
    feature_description,
    record_layout,
)
from data.pretraining.writing import manifest
from data.tokenization import vocabulary

KEPT_PROBLEMS = 100
"""So many damaged records are remembered one by one."""

MAX_VOCAB_SIZE = 2**24
"""Larger ids are damage even where the vocabulary is not known."""

_SHOW_SECONDS = 10


@dataclass(frozen=True, slots=True)
class RecordProblem:
    """What is wrong with a record (counted from 0 in its file), as the rest of a sentence."""

    file: str
    record: int
    text: str

    def __str__(self) -> str:
        return f"{self.file}: record {self.record} {self.text}"


@dataclass(frozen=True, slots=True)
class InspectedTokens:
    """The special pieces' ids, and how many pieces there are and may be drawn as random ones."""

    pad: int
    cls: int
    sep: int
    mask: int
    vocab_size: int
    replacements: int

    @classmethod
    def from_tokens(cls, tokens: Sequence[str]) -> "InspectedTokens":
        """Args: tokens: a BERT vocabulary, see `vocabulary.load_vocab`."""
        ids = vocabulary.token_ids(tokens)
        special = (vocabulary.PAD, vocabulary.CLS, vocabulary.SEP, vocabulary.MASK)
        drawn = len(MaskingVocabulary.from_tokens(list(tokens)).replacements)
        return cls(*(ids[token] for token in special), len(tokens), drawn)


@dataclass(slots=True)
class Inspection:
    """What `inspect_record_files` found.

    Attributes:
        files: Paths, all that were to be looked at.
        statistics: Of the sound records.
        records: Records looked at, sound or not.
        damaged: How many of these are damaged.
        problems: The first `KEPT_PROBLEMS` of them, one for each.
        complete: Whether all records of all files were looked at. A file whose bytes are damaged
            can't be read on from there.
    """

    files: list[str]
    statistics: Statistics
    records: int = 0
    damaged: int = 0
    problems: list[RecordProblem] = field(default_factory=list)
    complete: bool = True

    def add_problem(self, problem: RecordProblem) -> None:
        """Counts a damaged record."""
        self.damaged += 1
        if len(self.problems) < KEPT_PROBLEMS:
            self.problems.append(problem)

    def check(self) -> None:
        """Raises DataError if there is a damaged record."""
        if self.damaged:
            some = "1 record is" if self.damaged == 1 else f"{self.damaged:,} records are"
            raise DataError(
                f"{some} damaged of {self.records:,} that were looked at."
                f"{' The first:' if self.damaged > 1 else ''} {self.problems[0]}"
            )


def inspect_record_files(
    files: Sequence[str], specials: InspectedTokens | None = None, max_records: int | None = None
) -> Inspection:
    """Checks and counts records.

    Args:
        files: Paths of TFRecord files.
        specials: Of the vocabulary that the records were made with; without it, ids are checked
            less, and which id is [MASK] is concluded from what stands at the predictions.
        max_records: Look at so many at most.

    Raises:
        DataError: If a file is missing or may not be read. Damage is part of the result.
    """
    inspection = Inspection(list(files), Statistics(specials.mask if specials else None))
    start = shown = time.monotonic()
    for number, path in enumerate(files):
        layout = None
        left = None if max_records is None else max_records - inspection.records
        try:
            for first, batch in read_record_files(path, left):
                inspection.records += len(batch)
                rows, layout = _sound_rows(path, first, batch, layout, specials, inspection)
                if rows:
                    inspection.statistics.add(rows)
                if time.monotonic() - shown > _SHOW_SECONDS:
                    shown = time.monotonic()
                    logging.info(
                        "Looked at %s records, %s a second; in file %d of %d",
                        f"{inspection.records:,}",
                        f"{inspection.records / (shown - start):,.0f}",
                        number + 1,
                        len(files),
                    )
        except DamagedRecordError as error:
            inspection.records += 1
            inspection.complete = False
            inspection.add_problem(RecordProblem(path, error.record, error.text))
        if max_records is not None and inspection.records >= max_records:
            inspection.complete = False
            break
    return inspection


def inspect_sets(
    files: Sequence[str], tokens: Sequence[str] | None = None, vocab_file: str | None = None
) -> RecordSets:
    """Whether the files are whole sets, by manifests, names and marks; see `record_sets`.

    Args:
        files: Paths of TFRecord files.
        tokens, vocab_file: The records' vocabulary and where it is from, if they are known.
    """
    try:
        described, problem = manifest.verify_manifest(files, None, None, vocab_file), []
    except DataError as error:
        described, problem = set(files), [str(error)]
    checksum = vocabulary.vocabulary_checksum(tokens) if tokens else None
    sets = examine_sets(files, checksum, described, vocab_file)
    sets.problems[:0] = problem
    return sets


def _sound_rows(
    path: str,
    first: int,
    batch: np.ndarray,
    layout: tuple[int, int | None] | None,
    specials: InspectedTokens | None,
    inspection: Inspection,
) -> tuple[dict[str, np.ndarray], tuple[int, int | None] | None]:
    """Parses and checks a batch; the file's layout is that of its first sound record."""
    wrong: dict[int, str] = {}
    values, numbers = None, range(len(batch))
    if layout is None:
        layout = next(
            (record_layout(v) for v, problem in map(decode_records, batch) if not problem), None
        )
    # Parsing would pass over features that the layout does not have.
    more = layout and layout[1] is None and any(b"masked_lm_" in record for record in batch)
    if layout and not more:
        try:
            parsed = tf.io.parse_example(
                batch, feature_description(*layout, masked=layout[1] is not None)
            )
            values = {name: value.numpy() for name, value in parsed.items()}
        except tf.errors.InvalidArgumentError:
            pass
    if values is None:
        decoded = {}
        for row, record in enumerate(batch):
            one, problem = decode_records(record)
            if problem is None and record_layout(one) != layout:
                problem = (
                    f"has {_words(record_layout(one))}, but the file begins with {_words(layout)}."
                    f" {AGAIN}"
                )
            if problem:
                wrong[row] = problem
            else:
                decoded[row] = one
        numbers = list(decoded)
        values = {
            name: np.stack([one[name] for one in decoded.values()])
            for name in next(iter(decoded.values()), ())
        }
    if values:
        bad = record_problems(values, specials)
        wrong |= {numbers[row]: text for row, text in bad.items()}
        if bad:
            sound = np.setdiff1d(np.arange(len(numbers)), list(bad))
            values = {name: value[sound] for name, value in values.items()}
    for row in sorted(wrong):
        inspection.add_problem(RecordProblem(path, first + row, wrong[row]))
    return values, layout


def _words(layout: tuple[int, int | None]) -> str:
    length, predictions = layout
    masks = "no masked_lm features" if predictions is None else f"{predictions} predictions"
    return f"{length} pieces and {masks}"


def record_problems(
    values: dict[str, np.ndarray], specials: InspectedTokens | None = None
) -> dict[int, str]:
    """Checks a batch whose features have the right kinds and lengths.

    Args:
        values: integers [n, S], [n, P] or [n, 1], weights float32 [n, P]; the masked_lm features
            may be absent.
        specials: See `inspect_record_files`.

    Returns:
        For each row where something is wrong, the first such thing, as the rest of a sentence.
    """
    ids, mask, segments = values["input_ids"], values["input_mask"], values["segment_ids"]
    label = values["next_sentence_labels"][:, 0]
    column = np.arange(ids.shape[1])
    wrong: dict[int, str] = {}

    def report(bad: np.ndarray, text: str) -> None:
        """Args: bad: bool [n] or [n, k]."""
        if bad.any():
            for row in np.flatnonzero(bad.reshape(len(ids), -1).any(axis=1)).tolist():
                wrong.setdefault(row, f"{text} {AGAIN}")

    def report_ids(name: str) -> None:
        pieces = values[name]
        limit = specials.vocab_size if specials else MAX_VOCAB_SIZE
        bad = (pieces < 0) | (pieces >= limit)
        what = f"the vocabulary has {limit:,} pieces" if specials else "no vocabulary has it"
        if bad.any():
            for row in np.flatnonzero(bad.any(axis=1)).tolist():
                wrong.setdefault(
                    row,
                    f"has the value {pieces[row][bad[row]][0]} in {name}, but {what}. Use the"
                    " vocabulary that the data was made with.",
                )

    report_ids("input_ids")
    lengths = (mask == 1).sum(axis=1)
    real = column < lengths[:, None]
    report(mask != real, "has an input_mask that isn't ones, then zeros.")
    report((ids != 0) & ~real, "has ids other than 0 in the padding.")
    a_lengths = ((segments == 0) & real).sum(axis=1)
    report(
        segments != (real & (column >= a_lengths[:, None])),
        "has segment_ids that aren't zeros, then ones, then zeros in the padding.",
    )
    report(a_lengths < 2, "has no first segment of [CLS] and [SEP] at least.")
    report((label != 0) & (label != 1), "has a next-sentence label other than 0 and 1.")
    report(
        (label == 1) & (a_lengths == lengths),
        "has the next-sentence label 1, but no second segment.",
    )
    ends = (np.maximum(a_lengths, 1) - 1, lengths - 1)
    if "masked_lm_positions" in values:
        at, weights = values["masked_lm_positions"], values["masked_lm_weights"]
        used = weights == 1
        report((weights != 0) & ~used, "has masked_lm_weights other than 0 and 1.")
        report(
            used != (np.arange(at.shape[1]) < used.sum(axis=1)[:, None]),
            "has masked_lm_weights that aren't ones, then zeros.",
        )
        report(
            (at < 0) | (at >= ids.shape[1]) | (used & (at >= lengths[:, None])),
            "has one of the masked_lm_positions outside of the sequence.",
        )
        # By the places, since the original release may put any piece there at random.
        report(
            used & ((at == 0) | (at == ends[0][:, None]) | (at == ends[1][:, None])),
            "has one of the masked_lm_positions on [CLS] or [SEP].",
        )
        report(
            used[:, 1:] & (at[:, 1:] <= at[:, :-1]),
            "has masked_lm_positions that don't ascend.",
        )
        report_ids("masked_lm_ids")
        if specials:
            special = (specials.pad, specials.cls, specials.sep, specials.mask)
            report(
                used & np.isin(values["masked_lm_ids"], special),
                "has a special piece among the masked_lm_ids.",
            )
    if specials:
        report(ids[:, 0] != specials.cls, "doesn't begin with [CLS].")
        for end in ends:
            report(
                ids[np.arange(len(ids)), end] != specials.sep,
                "has a segment that doesn't end with [SEP].",
            )
    return wrong
