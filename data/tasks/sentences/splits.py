"""The parts of a task's data, read and tokenised."""

import dataclasses
from collections.abc import Sequence

from absl import logging

from data import features
from data.features import Features, TextSettings
from data.tasks.sentences.examples import Example, Task
from data.tokenization import Tokenizer


@dataclasses.dataclass(frozen=True)
class Split:
    """A part of the task's data.

    Attributes:
        name: "train", "dev", "test" or, of a further one, with more behind it.
        examples: As read.
        features: Their pieces.
    """

    name: str
    examples: Sequence[Example]
    features: Features


def read_splits(
    task: Task,
    purpose: str,
    tokenizer: Tokenizer,
    settings: TextSettings,
    data_dir: str | None = None,
    cache: str | None = None,
) -> list[Split]:
    """Reads what a task has for "train", "dev" or "test", the main split first.

    A further split whose file is absent, such as GLUE's diagnostic set, is left out.

    Args:
        task, purpose: See `Task.splits`.
        tokenizer: The tokenizer.
        settings: How texts become rows.
        data_dir: Folder that file names start from.
        cache: Folder for pieces, see `features.cached`.
    """
    # A task without that split says so itself.
    main, *further = task.splits(purpose) or (purpose,)
    # Only tasks of published files know splits that needn't be there.
    exists = getattr(task, "exists", lambda data_dir, name: True)
    splits = []
    for name in [main, *(name for name in further if exists(data_dir, name))]:
        examples = task.read(data_dir, name)
        pieces = features.cached(cache, name, tokenizer, examples, task.kind, task.labels, settings)
        logging.info("%s: %d examples of %s", name, len(examples), task.name)
        splits.append(Split(name, examples, pieces))
    return splits
