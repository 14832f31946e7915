"""A part of a task's data, read, tokenised and ready to be batched: the same for every task.

split = TaskSplit("dev", features, fingerprint([features.ids, labels]), describe, examples)
for batch in split.batches(batch_size=32): …
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from absl import logging

from data import batching
from data.features import Features, features_fingerprint
from data.tokenization import Tokenizer
from data.tokenization.vocabulary import warn_of_unknown_pieces
from data.vectors.store import StoredVectors

IS_LABELLED = "is_labelled"


def first_examples(examples: Sequence[Any], most: int, name: str) -> list[Any]:
    """The first `most` examples of a split, in their order, which the log says; 0: all."""
    if not 0 < most < len(examples):
        return list(examples)
    flag = "max_train_examples" if name == "train" else "max_eval_examples"
    logging.info("%s: the first %d of %d examples (--%s)", name, most, len(examples), flag)
    return list(examples[:most])


def tell_unknown_pieces(name: str, features: Features, tokenizer: Tokenizer) -> None:
    """Logs if many pieces of a split are [UNK], see `vocabulary.warn_of_unknown_pieces`."""
    unknown = int((features.ids == tokenizer.unk_id).sum())
    warn_of_unknown_pieces(name, unknown, len(features.ids))


@dataclasses.dataclass(frozen=True)
class TaskSplit:
    """A part of a task's data.

    Attributes:
        name: "train", "dev", "test" or, of a further one, with more behind it: "dev_mismatched".
        features: The rows that batches are made of; None if they are made later, in portions.
        fingerprint: Checksum of all that batches depend on: texts, labels, vocabulary, lengths.
        describe: Says where the examples come from that the `index` of a batch names.
        examples: As they were read, of the task's own kind.
        rows: What leads from the rows back to the examples, of the task's own kind.
        budget: Places of a training batch, padding counted, in place of a number of examples; 0
            for none.
        vectors: A frozen encoder's, which stand beside the pieces in every batch; None for none.
        by_piece: Whether there is an output for every piece, so that what several workers have
            computed of one batch only fits together if it is of one length.
        fixed_shapes: Whether all batches have one shape, whatever is asked for.
        epochs: Passes of training over it, if not as many as the run asks for.
        epoch_size: Examples that count as one pass, if not all.
        skipped: Bad rows of its file that were left out, and aren't scored.
    """

    name: str
    features: Features | None
    fingerprint: str
    describe: Callable[[np.ndarray], str]
    examples: Sequence[Any] = ()
    rows: Any = None
    budget: int = 0
    vectors: StoredVectors | None = None
    by_piece: bool = False
    fixed_shapes: bool = False
    epochs: float | None = None
    epoch_size: int | None = None
    skipped: int = 0

    def __len__(self) -> int:
        return len(self.features)

    def with_unlabelled(self, other: "TaskSplit") -> "TaskSplit":
        """Behind its examples those of a split whose labels aren't known.

        Batches then have `is_labelled` float32 [B], 0 for these, but for labels of pieces, which
        say so themselves.
        """
        mine, others = self.features, other.features
        if mine.piece_labels is None:
            mine, others = (
                dataclasses.replace(
                    features,
                    extra={
                        **features.extra,
                        IS_LABELLED: np.full(len(features), known, np.float32),
                    },
                )
                for features, known in ((mine, 1), (others, 0))
            )
        count = len(mine)

        def describe(index: np.ndarray) -> str:
            parts = (self, index[index < count]), (other, index[index >= count] - count)
            return "; ".join(split.describe(some) for split, some in parts if len(some))

        return dataclasses.replace(
            self,
            features=mine.joined(others),
            fingerprint=features_fingerprint([self.fingerprint, "unlabelled", other.fingerprint]),
            describe=describe,
            examples=[*self.examples, *other.examples],
            rows=self.rows.joined(other.rows) if self.rows is not None else None,
        )

    def places_in(self, other: "TaskSplit") -> Sequence[np.ndarray]:
        """Where a split of the same texts in other pieces answers what this one does.

        For each example int64 [T, 2]: which example there, and which of its places; −1 for none.
        """
        return self.rows.places_in(other.rows)

    @property
    def left_out(self) -> dict[str, int]:
        """What results have to say besides: `skipped_rows`, if there are any."""
        return {"skipped_rows": self.skipped} if self.skipped else {}

    def batches(
        self,
        batch_size: int,
        seed: int | None = None,
        *,
        fixed_shapes: bool = False,
        multiple: int = 1,
        num_parts: int = 1,
        parts: Sequence[int] = (0,),
    ) -> tf.data.Dataset:
        """Every example once, or, with a seed, endless batches to train on in an order of it.

        Args:
            batch_size: Examples, over all processes.
            seed: See above.
            fixed_shapes: Whether all batches have one shape, as compilers want it.
            multiple, num_parts, parts: See `batching.Batching`.
        """
        training = seed is not None
        fixed_shapes = fixed_shapes or self.fixed_shapes
        fixed_shapes = fixed_shapes or (self.by_piece and not training and num_parts > 1)
        shape = dataclasses.replace(
            self._shape(batch_size, fixed_shapes, multiple if training else 1),
            num_parts=num_parts,
            parts=parts,
        )
        if self.vectors:
            return self.vectors.batches(self.features, shape, training, seed or 0)
        return batching.batches(self.features, shape, training, seed or 0)

    def steps_per_epoch(
        self, batch_size: int, fixed_shapes: bool = False, multiple: int = 1
    ) -> float:
        """Training batches of a pass; the arguments are those of `batches`."""
        if self.epoch_size is not None:
            return self.epoch_size / batch_size
        shape = self._shape(batch_size, fixed_shapes, multiple)
        return batching.batches_per_epoch(self.features, shape)

    def _shape(self, batch_size: int, fixed_shapes: bool, multiple: int) -> batching.Batching:
        buckets = (
            None if fixed_shapes else batching.batching_length_buckets(self.features.max_seq_length)
        )
        return batching.Batching(batch_size, buckets, self.budget, multiple)
