"""From the values of flags to a task on sentences, and to its splits, read and tokenised.

task = open_sentence_task(values, train=True)
splits = read_sentence_splits(task, "dev", tokenizer, SentenceSettings(128), data_dir)
"""

import dataclasses
import functools
from collections.abc import Sequence

from absl import logging

from data import batching
from data.errors import DataError
from data.features import features_fingerprint
from data.tasks import labels
from data.tasks.sentences import delimited, glue, multiple_choice, rows
from data.tasks.sentences.examples import Example, SentenceKind, SentenceTask
from data.tasks.sentences.flags import OWN_FILES, TASKS
from data.tasks.sentences.labelled import warn_of_sentence_labels
from data.tasks.sentences.rows import SentenceSettings
from data.tasks.splits import TaskSplit, first_examples, tell_unknown_pieces
from data.tokenization import Tokenizer


def open_sentence_task(
    values, train: bool, head: str | None = None, names: Sequence[str] | None = None
) -> SentenceTask:
    """The task that the flags name, or else the one that a trained model was trained on.

    Args:
        values: The script's flag values, `output_dir` and `init_checkpoint` among them.
        train: Whether it will be trained; otherwise own files have the labels that were saved
            with the model.
        head, names: Kind and names of the model's labels as its configuration tells them; they
            count where no labels were saved.

    Raises:
        DataError: There is no such task, or its flags are incomplete.
    """
    folders = (values.output_dir, values.init_checkpoint)
    place = None if train else labels.find_labels(*folders)
    saved = delimited.load_sentence_labels(place) if place else None
    # Classes without names are what --labels says.
    named = names or head not in ("classes", "multi_label")
    if not saved and not train and named and head in [kind.value for kind in SentenceKind]:
        saved = delimited.SavedSentenceLabels(SentenceKind(head), list(names or ()))
    name = (values.task_name or (saved and (saved.task_name or OWN_FILES)) or "").lower()
    if not name:
        raise DataError(
            f"--task_name is missing: one of {', '.join(TASKS)}, or {OWN_FILES} for own files. It "
            f"can be left out where a trained model in --init_checkpoint or --output_dir tells it."
        )
    if name not in (OWN_FILES, *TASKS):
        raise DataError(
            f"There is no task {name!r}: --task_name may be one of {', '.join(TASKS)}, or "
            f"{OWN_FILES} for own files."
        )
    if name == OWN_FILES:
        return delimited.make_sentence_task(
            text_columns=values.text_columns,
            label_column=values.label_column,
            id_column=values.id_column,
            train_file=values.train_file,
            dev_files=values.dev_file,
            test_file=values.test_file,
            kind=values.label_kind,
            labels=values.labels or None,
            saved_labels=saved,
            searched=() if train else labels.task_label_places(*folders),
            label_separator=values.label_separator,
            has_header=values.header,
            dev_fraction=values.dev_fraction,
            format=values.file_format,
            data_dir=values.data_dir,
            skip_bad_rows=values.skip_bad_rows,
            delimiter=values.delimiter,
            encoding=values.encoding,
        )
    if name in multiple_choice.NAMES:
        files = (values.train_file, values.dev_file, values.test_file)
        return multiple_choice.get_task(name, *files, values.skip_bad_rows)
    if not values.data_dir:
        raise DataError(
            f"--data_dir is missing: the folder that holds the files of {name} as published."
        )
    return glue.get_task(name, values.skip_bad_rows)


def check_idle_sentence_flags(values, name: str) -> None:
    """Refuses flags of own files for a task that has its own, which they would not change.

    Args:
        values: The script's flags.
        name: Of the task.
    """
    if name == OWN_FILES:
        return
    idle = ["dev_fraction", "label_kind", "labels", "label_column", "label_separator", "id_column"]
    if name not in multiple_choice.NAMES:
        idle += ["train_file", "dev_file", "test_file"]
    if name in multiple_choice.NAMES or not values.transfer_file:
        idle += ["text_columns", "header", "file_format", "delimiter", "encoding"]
    given = [f"--{flag}" for flag in idle if values[flag].present]
    if given:
        raise DataError(
            f"{', '.join(given)} would change nothing: --task_name={name} has files of a form of "
            f"its own. Leave it out, or give --task_name={OWN_FILES} for own files."
        )


def read_sentence_splits(
    task: SentenceTask,
    purpose: str,
    tokenizer: Tokenizer,
    settings: SentenceSettings,
    data_dir: str | None = None,
    cache: str | None = None,
    budget: int = 0,
    most: int = 0,
    max_positions: int | None = None,
) -> list[TaskSplit]:
    """Reads what a task has for "train", "dev" or "test", the main split first.

    A further split whose file is absent, such as GLUE's diagnostic set, is left out.

    Pieces are kept in the folder `cache`, see `rows.cached_sentence_rows`; for the budget see
    `TaskSplit`. Of each split the first `most` examples count; 0: all. How many
    texts are longer than a row is logged, with a length of up to `max_positions` that would do.
    """
    # A task without that split says so itself.
    main, *further = task.splits(purpose) or (purpose,)
    # Only tasks of published files know splits that needn't be there.
    exists = getattr(task, "exists", lambda data_dir, name: True)
    splits = []
    for name in [main, *(name for name in further if exists(data_dir, name))]:
        everything = task.read(data_dir, name)
        examples = first_examples(everything, most, name)
        if len(examples) < len(everything) and name == "train" and task.labels:
            # A file that is sorted by label shows here.
            warn_of_sentence_labels(f"The first {most} examples", examples, task.labels)
        splits.append(
            _tokenised(name, task, examples, tokenizer, settings, cache, budget, max_positions)
        )
    return splits


def _tokenised(
    name: str,
    task: SentenceTask,
    examples: Sequence[Example],
    tokenizer: Tokenizer,
    settings: SentenceSettings,
    cache: str | None,
    budget: int,
    max_positions: int | None,
) -> TaskSplit:
    """The split of some examples; the log tells of their lengths and what is odd about them."""
    features = rows.cached_sentence_rows(
        cache, name, tokenizer, examples, task.kind, task.labels, settings
    )
    logging.info("%s: %d examples of %s", name, len(examples), task.name)
    empty = [example.source for example in examples if not example.text_a.strip()]
    if empty:
        logging.warning(
            f"{name}: {len(empty)} of {len(examples)} examples have an empty text:"
            f" {', '.join(empty[:5])}{', …' if empty[5:] else ''}. They count like"
            " any other; if they are a mistake, take them out of the file."
        )
    tell_unknown_pieces(name, features, tokenizer)
    rows.tell_sentence_lengths(
        name, tokenizer, examples, task.kind, settings, features, max_positions
    )
    texts = rows.sentences_fingerprint(tokenizer, examples, task.kind, settings)
    return TaskSplit(
        name,
        features,
        features_fingerprint([texts, features.label_ids, task.labels]),
        functools.partial(batching.batching_sources, examples),
        examples,
        budget=budget,
        # "file:line", of Parquet "file: row 3"; a part that is held out is of a file, too.
        skipped=task.bad_rows.skipped.get(examples[0].source.rpartition(":")[0], 0),
    )


def read_unlabelled_sentences(
    values,
    task: SentenceTask,
    tokenizer: Tokenizer,
    settings: SentenceSettings,
    cache: str | None = None,
    max_positions: int | None = None,
) -> TaskSplit:
    """The texts of --transfer_file, tokenised; labels that it has don't count.

    It is read as own files are, --text_columns naming its columns; of multiple choice in one of
    its layouts.

    Raises:
        DataError: It can't be read so, or has single texts for a task of pairs, or pairs.
    """
    if task.kind is SentenceKind.CHOICES:
        files = (None, [], values.transfer_file)
        reader = multiple_choice.get_task("multiple_choice", *files, values.skip_bad_rows)
    else:
        reader = delimited.make_sentence_task(
            text_columns=values.text_columns or getattr(task, "text_columns", ()),
            test_file=values.transfer_file,
            kind=task.kind,
            labels=task.labels or None,
            has_header=values.header,
            format=values.file_format,
            data_dir=values.data_dir if task.name == OWN_FILES else None,
            skip_bad_rows=values.skip_bad_rows,
            delimiter=values.delimiter,
            encoding=values.encoding,
        )
    if reader.pairs != task.pairs:
        raise DataError(
            f"--transfer_file={values.transfer_file}: --text_columns names "
            f"{len(reader.text_columns)} column(s), but an example of {task.name} has "
            f"{1 + task.pairs} text(s). Name as many columns."
        )
    read = reader.read(values.data_dir, "test")
    examples = [dataclasses.replace(example, label=None) for example in read]
    name = "transfer"
    return _tokenised(name, task, examples, tokenizer, settings, cache, 0, max_positions)
