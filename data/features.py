"""Examples of sentence tasks as arrays of pieces: tokenised once, without padding.

settings = TextSettings(max_seq_length=128)
features = tokenize_examples(tokenizer, examples, Kind.CLASSES, ["0", "1"], settings)
features = cached(folder, "train", tokenizer, examples, Kind.CLASSES, ["0", "1"], settings)
"""

import contextlib
import dataclasses
import hashlib
import io
import json
import os
from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf
from absl import logging

from data.errors import DataError
from data.tasks.sentences.examples import Example, Kind
from data.tokenization import Tokenizer, long_texts
from data.tokenization.inputs import check_length, pack_inputs, pack_windows

_TEXTS_AT_ONCE = 1024
# Of stored features; to be counted up when the same text gives other pieces.
_FORMAT = 1


@dataclasses.dataclass(frozen=True)
class Features:
    """Tokenised examples. An example has one row, or several: its choices or its windows.

    Attributes:
        ids: int32 [all pieces of all rows].
        splits: int64 [rows + 1]; row r is ids[splits[r]:splits[r + 1]].
        first_lengths: int32 [rows]; how many of its pieces are of segment 0.
        row_splits: int64 [N + 1]; example i has the rows row_splits[i] to row_splits[i + 1].
        label_ids: int32 [N]: class or choice; float32 [N]: number; float32 [N, L]: 1 for each
            label of several. 0 where there is no label.
        max_seq_length: What the rows were truncated to.
        pad_id: Id that fills rows up.
        several_rows: Whether batches have an axis for rows.
        extra: Further arrays [N, …], which batches have under the same names; 0 in filling rows.
        piece_labels: int32 [all pieces of all rows] or None: labels of single pieces, which
            batches then have as `piece_labels` of the shape of `input_ids`; -1 at padding.
    """

    ids: np.ndarray
    splits: np.ndarray
    first_lengths: np.ndarray
    row_splits: np.ndarray
    label_ids: np.ndarray
    max_seq_length: int
    pad_id: int
    several_rows: bool = False
    extra: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)
    piece_labels: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.label_ids)

    @property
    def lengths(self) -> np.ndarray:
        """int64 [N], pieces of the example's longest row, [CLS] and [SEP] counted."""
        lengths = np.diff(self.splits)
        return np.maximum.reduceat(lengths, self.row_splits[:-1]) if len(self) else lengths

    @property
    def num_rows(self) -> np.ndarray:
        """int64 [N]."""
        return np.diff(self.row_splits)


@dataclasses.dataclass(frozen=True)
class TextSettings:
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
    kind: Kind,
    labels: Sequence[str],
    settings: TextSettings,
) -> Features:
    """Tokenises and truncates examples, about a thousand at a time in the graph.

    Raises:
        DataError: An example's label isn't among `labels`, or the settings contradict.
    """
    choices = kind is Kind.CHOICES
    windows = settings.long_text == "windows"
    # Here, as what is raised in the graph's Python is no DataError any more.
    check_length(settings.max_seq_length)
    long_texts.check(
        settings.long_text, settings.window_stride, settings.max_seq_length, settings.max_windows
    )
    if choices and windows:
        raise DataError(
            "long_text windows is not for multiple choice, where each choice is a row already; "
            "take head, tail or head_tail."
        )

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)] * 2, autograph=False)
    def pack(texts_a, texts_b):
        pieces = tokenizer.tokenize(texts_a), tokenizer.tokenize(texts_b)
        if windows:
            ids, segments, counts = pack_windows(
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
        lengths = tf.cast(ids.row_lengths(), tf.int32)
        return ids.values, lengths, lengths - tf.reduce_sum(segments, 1), counts

    if choices:
        pairs = [(example.text_a, choice) for example in examples for choice in example.choices]
    else:
        pairs = [(example.text_a, example.text_b or "") for example in examples]
    ids, lengths, first_lengths = ([np.zeros(0, np.int32)] for _ in range(3))
    counts = [np.zeros(0, np.int64)]
    for begin in range(0, len(pairs), _TEXTS_AT_ONCE):
        texts_a, texts_b = zip(*pairs[begin : begin + _TEXTS_AT_ONCE], strict=True)
        results = pack(tf.constant(texts_a), tf.constant(texts_b))
        for whole, result in zip((ids, lengths, first_lengths, counts), results, strict=True):
            whole.append(result.numpy())
    rows = np.concatenate(counts)
    if choices:
        rows = np.array([len(example.choices) for example in examples], np.int64)
    return Features(
        ids=np.concatenate(ids),
        splits=_splits(np.concatenate(lengths)),
        first_lengths=np.concatenate(first_lengths),
        row_splits=_splits(rows),
        label_ids=label_ids(examples, kind, labels),
        max_seq_length=settings.max_seq_length,
        pad_id=tokenizer.pad_id,
        several_rows=choices or windows,
    )


def label_ids(examples: Sequence[Example], kind: Kind, labels: Sequence[str]) -> np.ndarray:
    """Labels as numbers, see `Features.label_ids`.

    Raises:
        DataError: A label isn't among `labels`; names the example's place.
    """
    numbers = {label: index for index, label in enumerate(labels)}

    def number(example: Example, label: str) -> int:
        if label not in numbers:
            raise DataError(
                f"{example.source}: the label is {label!r}; the labels are {', '.join(labels)}."
            )
        return numbers[label]

    shape = (len(examples), len(labels)) if kind is Kind.MULTI_LABEL else (len(examples),)
    whole_numbers = kind in (Kind.CLASSES, Kind.CHOICES)
    found = np.zeros(shape, np.int32 if whole_numbers else np.float32)
    for index, example in enumerate(examples):
        if example.label is None:
            continue
        if kind is Kind.CLASSES:
            found[index] = number(example, example.label)
        elif kind is Kind.MULTI_LABEL:
            found[index, [number(example, label) for label in example.label]] = 1
        else:
            found[index] = example.label
    return found


def cached(
    folder: str | None,
    name: str,
    tokenizer: Tokenizer,
    examples: Sequence[Example],
    kind: Kind,
    labels: Sequence[str],
    settings: TextSettings,
) -> Features:
    """`tokenize_examples`, or what it gave before for the same examples.

    Args:
        folder: Where to keep the arrays, in `NAME-HASH.npz`; None keeps nothing. The hash is of
            texts, vocabulary and settings, so that whatever changes makes a new file; the old
            ones of that name are removed. Labels aren't kept.
        name: Of the split.
    """
    if not folder:
        return tokenize_examples(tokenizer, examples, kind, labels, settings)
    path = os.path.join(folder, f"{name}-{_fingerprint(tokenizer, examples, kind, settings)}.npz")
    stored = _load(path, len(examples))
    if stored:
        logging.info("Pieces of %d examples of %s: from %s", len(examples), name, path)
        return Features(label_ids=label_ids(examples, kind, labels), **stored)
    features = tokenize_examples(tokenizer, examples, kind, labels, settings)
    tf.io.gfile.makedirs(folder)
    content = io.BytesIO()
    arrays = dataclasses.asdict(features)
    del arrays["label_ids"], arrays["extra"], arrays["piece_labels"]
    np.savez(content, **arrays)
    temporary = f"{path}.tmp-{os.getpid()}"
    with tf.io.gfile.GFile(temporary, "wb") as file:
        file.write(content.getvalue())
    tf.io.gfile.rename(temporary, path, overwrite=True)
    remove_others(path, name)
    return features


def remove_others(path: str, name: str) -> None:
    """Removes the files of that name with other hashes than the one at `path`."""
    folder, extension = os.path.dirname(path), os.path.splitext(path)[1]
    for old in tf.io.gfile.glob(os.path.join(folder, f"{name}-{'[0-9a-f]' * 16}{extension}")):
        if os.path.basename(old) != os.path.basename(path):
            # Other processes, such as the workers of one run, may be at it as well.
            with contextlib.suppress(tf.errors.NotFoundError):
                tf.io.gfile.remove(old)


def _fingerprint(tokenizer, examples, kind, settings) -> str:
    digest = hashlib.blake2b(digest_size=8)
    digest.update(json.dumps([_FORMAT, kind.value, dataclasses.astuple(settings)]).encode())
    digest.update(json.dumps([tokenizer.do_lower_case, tokenizer.vocab]).encode())
    for example in examples:
        texts = [example.text_a, example.text_b, *example.choices]
        digest.update(json.dumps(texts).encode())
    return digest.hexdigest()


def _load(path: str, number: int) -> dict | None:
    """The arrays of a file, None where there is none that can be read."""
    if not tf.io.gfile.exists(path):
        return None
    try:
        with tf.io.gfile.GFile(path, "rb") as file:
            stored = dict(np.load(io.BytesIO(file.read())))
        for name, of in (("max_seq_length", int), ("pad_id", int), ("several_rows", bool)):
            stored[name] = of(stored[name])
        return stored if len(stored["row_splits"]) == number + 1 else None
    # Of a damaged archive zipfile and NumPy raise nearly anything, EOFError and KeyError too.
    except Exception:
        logging.warning("%s can't be read; the texts are tokenised again.", path)
        return None


def _splits(lengths: np.ndarray) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
