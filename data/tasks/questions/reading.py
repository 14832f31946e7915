"""From the values of flags to questions, and to splits: read, tokenised, cut into windows."""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
from absl import logging

from data.errors import DataError
from data.features import features_fingerprint
from data.files.bad_rows import BadRows
from data.tasks.lengths import piece_counts, tell_lengths
from data.tasks.questions import original, squad
from data.tasks.questions.rows import (
    QuestionSettings,
    make_question_rows,
    training_question_rows,
)
from data.tasks.splits import TaskSplit, first_examples, tell_unknown_pieces
from data.tokenization import Tokenizer

QUESTIONS_AT_ONCE = 1000
"""Questions whose windows are held in memory when answering."""


def question_settings(values) -> QuestionSettings:
    """How questions become rows."""
    return QuestionSettings(values.max_seq_length, values.doc_stride, values.max_query_length)


def question_epochs_per_file(values) -> list[float | None]:
    """Passes over each training file; None where --num_train_epochs holds.

    Raises:
        DataError: There isn't a number for each, or --num_train_steps says the same of all.
    """
    if not values.epochs_per_file:
        return [None] * len(values.train_file)
    try:
        epochs = [float(number) for number in values.epochs_per_file]
    except ValueError:
        epochs = []
    fits = all(0 < number < math.inf for number in epochs)
    if len(epochs) != len(values.train_file) or not fits:
        raise DataError(
            f"--epochs_per_file is {','.join(values.epochs_per_file)}; it needs a number above 0 "
            f"for each of the {len(values.train_file)} training files."
        )
    if values.num_train_steps:
        raise DataError(
            f"--epochs_per_file and --num_train_steps={values.num_train_steps}, which is for each "
            f"of the training files, were both given; give one of them."
        )
    return epochs


def tell_question_lengths(
    name: str,
    tokenizer: Tokenizer,
    questions: Sequence[squad.Question],
    settings: QuestionSettings,
    max_positions: int | None = None,
) -> None:
    """Logs how many questions are cut, and how many need several windows for their contexts.

    Args:
        name: Of the split.
        tokenizer: For the pieces.
        questions: Some.
        settings: What they become rows by.
        max_positions: The longest row that the model takes; None for any.
    """
    asked = piece_counts(tokenizer, [question.question for question in questions])
    # A context has many questions, and is the same text for all of them.
    contexts = list(dict.fromkeys(question.context for question in questions))
    of_context = dict(zip(contexts, piece_counts(tokenizer, contexts), strict=True))
    tell_lengths(
        name,
        "questions",
        asked,
        settings.max_query_length,
        becomes="are cut",
        flag="max_query_length",
        most=settings.max_seq_length - 4,
    )
    whole = np.minimum(asked, settings.max_query_length) + 3
    whole += np.array([of_context[question.context] for question in questions], np.int64)
    tell_lengths(
        name,
        "questions with their contexts",
        whole,
        settings.max_seq_length,
        becomes=f"are read in several windows, --doc_stride={settings.doc_stride} apart",
        most=max_positions,
    )


def read_training_questions(
    values, tokenizer: Tokenizer, max_positions: int | None = None
) -> list[TaskSplit]:
    """A split for each training file; for the lengths see `tell_question_lengths`."""
    version_2, as_original = values.version_2_with_negative, values.original_postprocessing
    settings = question_settings(values)
    bad_rows = BadRows(values.skip_bad_rows)
    splits = []
    for path, epochs in zip(values.train_file, question_epochs_per_file(values), strict=True):
        # The original looks for answers in its own way.
        questions = squad.read_squad(
            path,
            version_2=version_2,
            training=not as_original,
            max_contexts=values.max_contexts,
            bad_rows=bad_rows,
        )
        questions = first_examples(questions, values.max_train_examples, "train")
        tell_question_lengths(path, tokenizer, questions, settings, max_positions)
        count = len(questions)
        if as_original:
            examples = original.read_squad_examples(questions, True, version_2)
            count = len(examples)
            lengths = dataclasses.astuple(settings)
            windows = list(original.build_squad_features(examples, tokenizer, True, *lengths))
            if not windows:
                raise DataError(
                    f"{path}: none of its {len(questions)} questions can be trained on as the"
                    " original release does it (--original_postprocessing): the words of the"
                    " contexts don't hold their answers at answer_start, or have no pieces."
                    " Correct the file, or leave the flag out: then answers are looked for"
                    " elsewhere in the context, too."
                )
            features = original.squad_feature_rows(windows, values.max_seq_length, tokenizer.pad_id)
        else:
            features = training_question_rows(tokenizer, questions, settings)
        logging.info("%s: %d questions, %d windows", path, count, len(features))
        tell_unknown_pieces(path, features, tokenizer)
        splits.append(
            TaskSplit(
                path,
                features,
                features_fingerprint([features.ids, features.splits, features.label_ids]),
                lambda index, path=path: f"{path}: windows {', '.join(map(str, index))}",
                epochs=epochs,
                epoch_size=count if values.original_step_count else None,
            )
        )
    return splits


def read_unlabelled_questions(
    values, tokenizer: Tokenizer, max_positions: int | None = None
) -> TaskSplit:
    """The questions of --transfer_file and their windows; answers that it has don't count.

    Raises:
        DataError: It can't be read, or windows are to be made as the original makes them.
    """
    path = values.transfer_file
    if values.original_postprocessing:
        raise DataError(
            f"--transfer_file={path} can't be read with --original_postprocessing, whose windows "
            f"to train on are of questions with answers. Leave one of the two out."
        )
    questions = squad.read_squad(
        path,
        version_2=values.version_2_with_negative,
        training=False,
        max_contexts=values.max_contexts,
        bad_rows=BadRows(values.skip_bad_rows),
    )
    settings = question_settings(values)
    tell_question_lengths(path, tokenizer, questions, settings, max_positions)
    features = make_question_rows(tokenizer, questions, settings, training=False).features
    logging.info("%s: %d questions, %d windows", path, len(questions), len(features))
    tell_unknown_pieces(path, features, tokenizer)
    return TaskSplit(
        path,
        features,
        features_fingerprint([features.ids, features.splits]),
        lambda index: f"{path}: windows {', '.join(map(str, index))}",
    )


def read_to_answer(
    values, name: str, tokenizer: Tokenizer, max_positions: int | None = None
) -> TaskSplit:
    """The questions of --predict_file; their rows are made some at a time while answering.

    For the lengths see `tell_question_lengths`.
    """
    bad_rows, path = BadRows(values.skip_bad_rows), values.predict_file
    version_2 = values.version_2_with_negative
    questions = squad.read_squad(path, version_2=version_2, training=False, bad_rows=bad_rows)
    questions = first_examples(questions, values.max_eval_examples, name)
    settings = question_settings(values)
    tell_question_lengths(name, tokenizer, questions, settings, max_positions)
    content = features_fingerprint(dataclasses.astuple(question)[:5] for question in questions)
    skipped = bad_rows.skipped.get(path, 0)
    return TaskSplit(name, None, content, str, questions, skipped=skipped)
