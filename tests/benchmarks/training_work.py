"""What `tests.benchmarks.training_speed` trains on: shapes, batches of ids, lengths of texts."""

import dataclasses
import os
from collections.abc import Mapping, Sequence

import numpy as np

from data.batching import Batching, batches, batching_length_buckets
from data.features import Features
from data.pretraining.batches.pipeline import pretraining_dataset
from data.pretraining.corpus import expand
from data.pretraining.instances.settings import MLM
from data.tasks.sentences import glue
from data.tasks.sentences.rows import SentenceSettings, tokenize_examples
from data.tokenization import Tokenizer
from modeling.training.engine.flops import train_step_flops
from tests.benchmarks.peers.training_ours import config_of
from tests.benchmarks.peers.training_worker import Shape

BATCHES = 4
PACKED = "packed"
"""A workload that only ours trains on."""
MAX_SEQ_LENGTH = 128
# Of the logarithm of a text's length, where there are no real texts.
MEAN_LENGTH, DEVIATION, SHORTEST = 25, 0.6, 4

Batch = dict[str, np.ndarray]


@dataclasses.dataclass(frozen=True)
class Work:
    """A model and the size of its batches.

    Attributes:
        title: In tables.
        shape: Of the model.
        batch_size, length: Rows and places in each; all are real.
        predictions: Masked words of a row, where the model has no classes.
    """

    title: str
    shape: Shape
    batch_size: int
    length: int
    predictions: int = 0

    @property
    def tokens(self) -> int:
        """Of a step."""
        return self.batch_size * self.length

    @property
    def flops(self) -> int:
        """Of the matrix products of a step."""
        config = config_of(self.shape)
        labels = self.shape.labels
        return train_step_flops(config, self.batch_size, self.length, self.predictions, labels)

    def random_batches(self, number: int = BATCHES, seed: int = 0) -> list[Batch]:
        """Batches of ids that are never 0, with random labels."""
        rng = np.random.default_rng(seed)
        made = []
        for _ in range(number):
            batch = _random_ids(rng, self.shape, self.batch_size, self.length)
            if self.predictions:
                places = np.argsort(rng.random((self.batch_size, self.length)))
                places = np.sort(places[:, : self.predictions])
                batch["masked_lm_positions"] = places
                batch["masked_lm_ids"] = rng.integers(1, self.shape.vocab_size, places.shape)
            else:
                batch["label_ids"] = rng.integers(0, self.shape.labels, self.batch_size)
            made.append(batch)
        return made


def _random_ids(rng: np.random.Generator, shape: Shape, rows: int, length: int) -> Batch:
    ids = rng.integers(1, shape.vocab_size, (rows, length))
    segments = np.broadcast_to(np.arange(length) >= length // 2, ids.shape).astype(np.int64)
    return {"input_ids": ids, "input_mask": np.ones_like(ids), "segment_ids": segments}


SMALL = Shape(4, 512, 8, 2048)
TASKS = {
    "minilm": Work("classes, 6×384, 32×128", Shape(6, 384, 12, 1536), 32, 128),
    "small": Work("classes, 4×512, 32×128", SMALL, 32, 128),
    "base": Work("classes, 12×768, 8×128", Shape(12, 768, 12, 3072), 8, 128),
    "masked_lm": Work(
        "masked words, 4×512, 32×128", dataclasses.replace(SMALL, labels=0), 32, 128, 20
    ),
    "half_hour": Work(
        "masked words, 4×256, 32×64", Shape(4, 256, 4, 1024, 0, 16_000, 64), 32, 64, 10
    ),
}
BASE, LARGE = (Shape(12, 768, 12, 3072, labels=0), Shape(24, 1024, 16, 4096, labels=0))
GPU_TASKS = {
    "base_128": Work("masked words, 12×768, 256×128", BASE, 256, 128, 20),
    "base_512": Work("masked words, 12×768, 64×512", BASE, 64, 512, 76),
    "large_128": Work("masked words, 24×1024, 128×128", LARGE, 128, 128, 20),
    "classes_128": Work("classes, 12×768, 64×128", dataclasses.replace(BASE, labels=2), 64, 128),
}
"""Too large for a CPU."""


# ---- Lengths of texts ----


def random_features(number: int, shape: Shape, seed: int = 0) -> Features:
    """Texts of random ids whose lengths are spread as those of GLUE's sentences are, roughly.

    Lognormal, so that the mean is `MEAN_LENGTH`, but from `SHORTEST` to `MAX_SEQ_LENGTH`.
    """
    rng = np.random.default_rng(seed)
    center = np.log(MEAN_LENGTH) - DEVIATION**2 / 2
    lengths = np.rint(rng.lognormal(center, DEVIATION, number)).astype(np.int64)
    lengths = np.clip(lengths, SHORTEST, MAX_SEQ_LENGTH)
    return Features(
        ids=rng.integers(1, shape.vocab_size, lengths.sum()).astype(np.int32),
        splits=np.concatenate([[0], np.cumsum(lengths)]),
        first_lengths=lengths.astype(np.int32),
        row_splits=np.arange(number + 1),
        label_ids=rng.integers(0, shape.labels, number).astype(np.int32),
        max_seq_length=MAX_SEQ_LENGTH,
        pad_id=0,
    )


def real_features(data_dir: str, vocab_file: str, number: int, seed: int = 0) -> Features:
    """Examples drawn from a GLUE task's training set.

    Args:
        data_dir: Named as the task, e.g. ".../SST-2".
        vocab_file: Of the tokenizer.
        number: How many.
        seed: Of the draw.
    """
    task = glue.get_task(os.path.basename(os.path.normpath(data_dir)).lower())
    examples = task.read(data_dir, "train")
    drawn = np.random.default_rng(seed).choice(len(examples), number, replace=False)
    examples = [examples[place] for place in sorted(drawn)]
    settings = SentenceSettings(max_seq_length=MAX_SEQ_LENGTH)
    return tokenize_examples(Tokenizer(vocab_file), examples, task.kind, task.labels, settings)


def length_workloads(features: Features, batch_size: int, seed: int = 0) -> dict[str, list[Batch]]:
    """One epoch in batches, by how rows are padded.

    Returns:
        "padded": to `MAX_SEQ_LENGTH`, `BATCHES` batches, for all take as long; "longest": to the
        longest of the batch; "buckets": the project's batches of like lengths.
    """
    number = len(features) // batch_size

    def epoch(batching: Batching, steps: int) -> list[Batch]:
        taken = batches(features, batching, training=True, seed=seed).take(steps)
        names = ("input_ids", "input_mask", "segment_ids", "label_ids")
        return [{name: batch[name].numpy() for name in names} for batch in taken]

    full = epoch(Batching(batch_size), number)
    return {
        "padded": full[:BATCHES],
        "longest": [trimmed(batch) for batch in full],
        "buckets": epoch(Batching(batch_size, batching_length_buckets(MAX_SEQ_LENGTH)), number),
    }


def record_workloads(records: str, task: Work, seed: int = 0) -> dict[str, list[Batch]]:
    """Batches of masked instances from TFRecords of pre-training.

    Args:
        records: Comma-separated globs, as of run_pretraining.py.
        task: Of masked words; its length and predictions have to be those of the records.
        seed: Of their order.

    Returns:
        `BATCHES` batches each. "records": an instance in a row, as its record has it; "packed":
        several short ones in a row.
    """

    def made(packed: bool) -> list[Batch]:
        dataset = pretraining_dataset(
            expand(records),
            task.length,
            task.predictions,
            task.shape.vocab_size,
            task.batch_size,
            training=True,
            seed=seed,
            objective=MLM,
            pack_sequences=packed,
        )
        unused = ("index", "is_real_example", "next_sentence_labels")
        taken = dataset.take(BATCHES)
        return [{k: v.numpy() for k, v in batch.items() if k not in unused} for batch in taken]

    return {"records": made(False), PACKED: made(True)}


def trimmed(batch: Batch) -> Batch:
    """Without the columns that are padding in every row."""
    width = int(batch["input_mask"].sum(1).max())
    return {name: x[:, :width] if x.ndim == 2 else x for name, x in batch.items()}


def real_tokens(workload: Sequence[Batch]) -> int:
    """Places that aren't padding."""
    return sum(int(batch["input_mask"].sum()) for batch in workload)


def describe_lengths(workloads: Mapping[str, Sequence[Batch]]) -> str:
    """How long the texts are and what they are padded to."""
    described = []
    for padding, made in workloads.items():
        rows = sum(len(batch["input_ids"]) for batch in made)
        places = sum(batch["input_ids"].size for batch in made)
        described.append(f"{padding} {real_tokens(made) / rows:.1f} of {places / rows:.1f}")
    return f"tokens of places in a row: {', '.join(described)}"


# ---- Curves ----

TOKENS = 4096
LENGTHS = (32, 64, 128, 256, 512)
BATCH_SIZES = (1, 2, 4, 8, 16, 32, 64)
LAYERS = (1, 2, 4, 8, 12)


def curve_points() -> dict[tuple[str, int], Work]:
    """(axis, value) → what to train there; around 4 layers, 512 wide, 32 × 128."""
    points = {}
    for length in LENGTHS:
        points["length", length] = Work("", SMALL, TOKENS // length, length)
    for batch_size in BATCH_SIZES:
        points["batch", batch_size] = Work("", SMALL, batch_size, 128)
    for layers in LAYERS:
        shape = dataclasses.replace(SMALL, layers=layers)
        points["layers", layers] = Work("", shape, TOKENS // 128, 128)
    return points
