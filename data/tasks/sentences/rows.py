"""Examples of sentence tasks to rows of pieces, tokenised once.

settings = SentenceSettings(max_seq_length=128)
features = tokenize_examples(tokenizer, examples, SentenceKind.CLASSES, ["0", "1"], settings)
"""

import dataclasses
import functools
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from data.errors import DataError
from data.features import (
    Features,
    cached_features,
    concatenated_features,
    feature_row_splits,
    features_fingerprint,
)
from data.progress import portions
from data.tasks import lengths
from data.tasks.sentences.examples import Example, SentenceKind
from data.tasks.sentences.labelled import check_sentence_labels
from data.tokenization import Tokenizer, long_texts
from data.tokenization.inputs import check_token_length, pack_inputs, pack_piece_windows

_TEXTS_AT_ONCE = 1024
# Of stored pieces; to be counted up when the same text gives other ones.
_FORMAT = 2


@dataclasses.dataclass(frozen=True)
class SentenceSettings:
    """How texts become rows.

    Attributes:
        max_seq_length: Of a row.
        long_text: What becomes of longer texts, see `tokenization.long_texts`.
        window_stride, max_windows: With "windows".
    """

    max_seq_length: int
    long_text: str = "head"
    window_stride: int = 0
    max_windows: int = long_texts.MAX_WINDOWS


def tokenize_examples(
    tokenizer: Tokenizer,
    examples: Sequence[Example],
    kind: SentenceKind,
    labels: Sequence[str],
    settings: SentenceSettings,
) -> Features:
    """Tokenises and truncates examples, about a thousand at a time in the graph.

    Raises:
        DataError: An example's label isn't among `labels`, or the settings contradict.
    """
    choices = kind is SentenceKind.CHOICES
    windows = settings.long_text == "windows"
    # Here, as what is raised in the graph's Python is no DataError any more.
    check_token_length(settings.max_seq_length)
    long_texts.check_long_text(
        settings.long_text, settings.window_stride, settings.max_seq_length, settings.max_windows
    )
    if choices and windows:
        raise DataError(
            "long_text windows is not for multiple choice, where each choice is a row already; "
            "take head, tail or head_tail."
        )

    pack = _packing_function(tokenizer, settings)
    pairs = _pairs(examples, kind)
    # One portion at least, be it empty.
    whole = concatenated_features(
        pack(*tf.transpose(tf.reshape(tf.constant(some, tf.string), [-1, 2])))
        for some in (portions("Tokenising", "texts", pairs, _TEXTS_AT_ONCE) if pairs else [pairs])
    )
    rows = [len(example.choices) for example in examples] if choices else whole["counts"]
    return Features(
        ids=whole["ids"],
        splits=feature_row_splits(whole["lengths"]),
        first_lengths=whole["first_lengths"],
        row_splits=feature_row_splits(rows),
        label_ids=sentence_label_ids(examples, kind, labels),
        max_seq_length=settings.max_seq_length,
        pad_id=tokenizer.pad_id,
        several_rows=choices or windows,
    )


@functools.lru_cache(maxsize=2)
def _packing_function(tokenizer: Tokenizer, settings: SentenceSettings):
    """The graph of `tokenize_examples`, the same for all files of a run."""

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)] * 2, autograph=False)
    def pack(texts_a, texts_b):
        pieces = tokenizer.tokenize(texts_a), tokenizer.tokenize(texts_b)
        if settings.long_text == "windows":
            ids, segments, counts = pack_piece_windows(
                tokenizer,
                *pieces,
                max_seq_length=settings.max_seq_length,
                stride=settings.window_stride,
                max_windows=settings.max_windows,
            )
        else:
            ids, segments = pack_inputs(
                tokenizer,
                *pieces,
                max_seq_length=settings.max_seq_length,
                long_text=settings.long_text,
            )
            counts = tf.ones([tf.size(texts_a)], tf.int64)
        row_lengths = tf.cast(ids.row_lengths(), tf.int32)
        return {
            "ids": ids.values,
            "lengths": row_lengths,
            "first_lengths": row_lengths - tf.reduce_sum(segments, 1),
            "counts": counts,
        }

    return pack


def _pairs(examples: Sequence[Example], kind: SentenceKind) -> list[tuple[str, str]]:
    """What is joined to a row each, or to windows; "" for no second text."""
    if kind is SentenceKind.CHOICES:
        return [(example.text_a, choice) for example in examples for choice in example.choices]
    return [(example.text_a, example.text_b or "") for example in examples]


def _whole_lengths(
    tokenizer: Tokenizer,
    examples: Sequence[Example],
    kind: SentenceKind,
    settings: SentenceSettings,
    features: Features,
) -> np.ndarray:
    """Pieces of each pair with its special tokens before anything is cut, int64 [N].

    Only those whose row is full are tokenised once more.
    """
    pairs = _pairs(examples, kind)
    windows = settings.long_text == "windows"
    found = features.lengths.copy() if windows else np.diff(features.splits)
    full = np.flatnonzero(found >= settings.max_seq_length)
    first, second = (
        lengths.piece_counts(tokenizer, [pairs[place][text] for place in full]) for text in (0, 1)
    )
    found[full] = first + second + 2 + (second > 0)
    return found


def tell_sentence_lengths(
    name: str,
    tokenizer: Tokenizer,
    examples: Sequence[Example],
    kind: SentenceKind,
    settings: SentenceSettings,
    features: Features,
    max_positions: int | None = None,
) -> None:
    """Logs how many texts are longer than a row, see `lengths.tell_lengths`.

    Args:
        name: Of the split.
        tokenizer, examples, kind, settings, features: See `tokenize_examples`.
        max_positions: The longest row that the model takes; None for any.
    """
    windows = settings.long_text == "windows"
    found = _whole_lengths(tokenizer, examples, kind, settings, features)
    more = " --long_text says which part of them is read; windows reads all of it."
    if windows:
        most = features.num_rows[found >= settings.max_seq_length] == settings.max_windows
        more = f" {most.sum()} of them fill all --max_windows={settings.max_windows}."
    lengths.tell_lengths(
        name,
        "pairs" if any(second for _, second in _pairs(examples, kind)) else "texts",
        found,
        settings.max_seq_length,
        becomes="are read in several windows" if windows else "are cut",
        most=max_positions,
        more="" if kind is SentenceKind.CHOICES else more,
    )


def count_cut_sentences(
    tokenizer: Tokenizer,
    examples: Sequence[Example],
    kind: SentenceKind,
    settings: SentenceSettings,
    features: Features,
) -> int:
    """How many of the examples have more pieces than their rows took in."""
    if settings.long_text != "windows":
        whole = _whole_lengths(tokenizer, examples, kind, settings, features)
        choices = kind is SentenceKind.CHOICES
        owners = np.repeat(
            np.arange(len(examples)), [len(e.choices) if choices else 1 for e in examples]
        )
        return np.unique(owners[whole > settings.max_seq_length]).size
    # Those that fill their windows are made into rows again, with room for one more.
    full = np.flatnonzero(features.num_rows >= settings.max_windows)
    if not len(full):
        return 0
    again = [dataclasses.replace(examples[place], label=None) for place in full]
    wider = dataclasses.replace(settings, max_windows=settings.max_windows + 1)
    longer = tokenize_examples(tokenizer, again, kind, (), wider)
    return int((longer.num_rows > settings.max_windows).sum())


def sentence_label_ids(
    examples: Sequence[Example], kind: SentenceKind, labels: Sequence[str]
) -> np.ndarray:
    """Labels as numbers, see `Features.label_ids`.

    Raises:
        DataError: See `check_sentence_labels`; of numbers that what float32 rounds off is as much
            as a thousandth of their standard deviation.
    """
    if kind in (SentenceKind.CLASSES, SentenceKind.MULTI_LABEL):
        check_sentence_labels(
            (example for example in examples if example.label is not None), labels
        )
    numbers = {label: index for index, label in enumerate(labels)}
    shape = (len(examples), len(labels)) if kind is SentenceKind.MULTI_LABEL else (len(examples),)
    whole_numbers = kind in (SentenceKind.CLASSES, SentenceKind.CHOICES)
    ids = np.zeros(shape, np.int32 if whole_numbers else np.float32)
    for index, example in enumerate(examples):
        if example.label is None:
            continue
        if kind is SentenceKind.MULTI_LABEL:
            ids[index, [numbers[label] for label in example.label]] = 1
        else:
            ids[index] = numbers[example.label] if kind is SentenceKind.CLASSES else example.label
    if kind is SentenceKind.REGRESSION:
        _check_rounding(examples, ids)
    return ids


def _check_rounding(examples: Sequence[Example], ids: np.ndarray) -> None:
    """Numbers far from 0 with small differences, such as times, would be learned as the same."""
    places = [index for index, example in enumerate(examples) if example.label is not None]
    exact = np.array([examples[place].label for place in places], np.float64)
    rounding = np.abs(ids[places] - exact).max(initial=0)
    # What was computed may differ by what float64 rounds off.
    differ = len(places) and np.ptp(exact) > 1e-12 * np.abs(exact).max()
    if differ and rounding > 1e-3 * exact.std():
        raise DataError(
            f"The labels from {examples[places[0]].source} on are numbers from"
            f" {exact.min():.17g} to {exact.max():.17g}. They are kept with some seven digits,"
            f" which takes up to {rounding:.3g} from them, and their standard deviation is no more"
            f" than {exact.std():.3g}. Subtract the same number from all of them."
        )


def cached_sentence_rows(
    folder: str | None,
    name: str,
    tokenizer: Tokenizer,
    examples: Sequence[Example],
    kind: SentenceKind,
    labels: Sequence[str],
    settings: SentenceSettings,
) -> Features:
    """`tokenize_examples`, or what it gave before for the same texts; see `cached_features`.

    Labels aren't kept, so that other ones need no new pieces.
    """

    def tokenise() -> Features:
        features = tokenize_examples(tokenizer, examples, kind, labels, settings)
        return dataclasses.replace(features, label_ids=np.zeros(len(features), np.int32))

    identity = sentences_fingerprint(tokenizer, examples, kind, settings)
    features = cached_features(folder, name, identity, tokenise)
    return dataclasses.replace(features, label_ids=sentence_label_ids(examples, kind, labels))


def sentences_fingerprint(
    tokenizer: Tokenizer,
    examples: Sequence[Example],
    kind: SentenceKind,
    settings: SentenceSettings,
) -> str:
    """The identity of the pieces: of texts, vocabulary and settings."""
    # Files of before there was a choice stay valid.
    unusual = tokenizer.strip_accents != tokenizer.do_lower_case
    accents = [tokenizer.strip_accents] if unusual else []
    return features_fingerprint(
        [
            [_FORMAT, kind.value, dataclasses.astuple(settings)],
            [tokenizer.do_lower_case, tokenizer.vocab, tokenizer.never_split, *accents],
            *([example.text_a, example.text_b, *example.choices] for example in examples),
        ]
    )
