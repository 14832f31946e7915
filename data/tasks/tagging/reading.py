"""From the values of flags to sentences with tags, and to splits, read and tokenised."""

from absl import logging

from data.features import fingerprint
from data.files.text_files import placed
from data.tasks.splits import TaskSplit
from data.tasks.tagging import conll
from data.tasks.tagging.rows import TaggingSettings, make_rows
from data.tasks.tagging.tags import TagSet
from data.tokenization import Tokenizer


def read_file(values, path: str, labelled: bool, model_scheme: str) -> list[conll.Sentence]:
    """The sentences of a file, as the flags say; see `conll.read_sentences`.

    Args:
        values: The script's flag values.
        path: From `data_dir` on.
        labelled: Whether there have to be tags.
        model_scheme: What they are converted to.
    """
    path = placed(values.data_dir, path)
    format = conll.TagFormat(
        values.token_column, values.tag_column, values.document_column, values.scheme, model_scheme
    )
    sentences = conll.read_sentences(path, format, labelled)
    documents = conll.number_of_documents(sentences)
    logging.info(
        "%s: %d documents, %d sentences, %d words",
        path,
        documents,
        len(sentences),
        sum(len(sentence.words) for sentence in sentences),
    )
    if values.document_context and documents == 1:
        logging.warning(
            "%s says nothing of documents (lines with -DOCSTART-, in JSON lines the field of "
            "--document_column): all of it counts as one, each sentence as context of the next.",
            path,
        )
    return sentences


def tagging_settings(values) -> TaggingSettings:
    """How sentences become rows, read from the script's flag values."""
    return TaggingSettings(values.max_seq_length, values.window_stride, values.document_context)


def tokenised(
    name: str,
    sentences: list[conll.Sentence],
    tokenizer: Tokenizer,
    tags: TagSet,
    settings: TaggingSettings,
) -> TaskSplit:
    """The split of these sentences; its `rows` lead back to words.

    Args:
        name: "train", "dev" or "test".
        sentences: See `read_file`.
        tokenizer: The tokenizer.
        tags: Those that the model knows.
        settings: How sentences become rows.
    """
    rows = make_rows(tokenizer, sentences, tags, settings)
    logging.info(
        "%s: %d rows; %d words without a piece", name, len(rows.features), rows.words_without_piece
    )
    features = rows.features
    arrays = (features.ids, features.splits, features.first_lengths, features.piece_labels)
    content = fingerprint([*arrays, tags.names, *(sentence.tags for sentence in sentences)])
    return TaskSplit(name, features, content, rows.describe, sentences, rows, by_piece=True)


def gold_tags(split: TaskSplit) -> list[tuple[str, ...]] | None:
    """Tags of every sentence of a split, if there are any."""
    tags = [sentence.tags for sentence in split.examples]
    return None if None in tags else tags
