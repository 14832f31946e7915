"""From the values of flags to sentences with tags, and to splits, read and tokenised."""

from absl import logging

from data.features import features_fingerprint
from data.files.bad_rows import BadRows
from data.files.text_files import placed_file
from data.tasks.lengths import tell_lengths
from data.tasks.splits import TaskSplit, tell_unknown_pieces
from data.tasks.tagging import conll
from data.tasks.tagging.characters import split_sentence
from data.tasks.tagging.rows import TaggingSettings, make_tagging_rows
from data.tasks.tagging.tags import TagSet
from data.tokenization import Tokenizer


def read_tagging_file(
    values,
    path: str,
    labelled: bool,
    model_scheme: str,
    bad_rows: BadRows,
    split_for: Tokenizer | None = None,
) -> list[conll.ConllSentence]:
    """The sentences of a file in `data_dir`, as the flags say; see `conll.read_conll_sentences`.

    Whether characters are their words the model may say, so that it is no matter of the flags: if
    they are, the tokenizer `split_for` reads them.
    """
    path = placed_file(values.data_dir, path)
    format = conll.TagFormat(
        values.token_column,
        values.tag_column,
        values.document_column,
        values.scheme,
        model_scheme,
        values.encoding,
    )
    sentences = conll.read_conll_sentences(path, format, labelled, bad_rows)
    if split_for:
        sentences = [split_sentence(sentence, model_scheme, split_for) for sentence in sentences]
    documents = conll.number_of_conll_documents(sentences)
    words = sum(len(sentence.words) for sentence in sentences)
    logging.info(f"{path}: {documents} documents, {len(sentences)} sentences, {words} words")
    if values.document_context and documents == 1:
        logging.warning(
            f"{path} says nothing of documents (lines with -DOCSTART-, in JSON lines the field of "
            "--document_column): all of it counts as one, each sentence as context of the next."
        )
    return sentences


def tokenised_tagging(
    name: str,
    sentences: list[conll.ConllSentence],
    tokenizer: Tokenizer,
    tags: TagSet,
    settings: TaggingSettings,
    bad_rows: BadRows,
    max_positions: int | None = None,
) -> TaskSplit:
    """The split of that name with these sentences; its `rows` lead back to words.

    How many are longer than a row is logged, with a length of up to `max_positions` that would do.
    """
    skipped = bad_rows.skipped.get(sentences[0].source.rpartition(":")[0], 0)
    rows = make_tagging_rows(tokenizer, sentences, tags, settings)
    logging.info(
        "%s: %d rows; %d words without a piece", name, len(rows.features), rows.words_without_piece
    )
    tell_lengths(
        name,
        "documents" if settings.document_context else "sentences",
        rows.lengths,
        settings.max_seq_length,
        becomes="are tagged in several windows, whole",
        most=max_positions,
    )
    untagged = [sentence.source for sentence in sentences if sentence.tags is None]
    if 0 < len(untagged) < len(sentences):
        logging.warning(
            "%s: %d of %d sentences have no tags, the first at %s, so that nothing is scored.",
            *(name, len(untagged), len(sentences), untagged[0]),
        )
    features = rows.features
    tell_unknown_pieces(name, features, tokenizer)
    arrays = (features.ids, features.splits, features.first_lengths, features.piece_labels)
    content = features_fingerprint(
        [*arrays, tags.names, *(sentence.tags for sentence in sentences)]
    )
    return TaskSplit(
        name, features, content, rows.describe, sentences, rows, by_piece=True, skipped=skipped
    )


def gold_tags(split: TaskSplit) -> list[tuple[str, ...]] | None:
    """Tags of every sentence of a split; None unless all have them."""
    tags = [sentence.tags for sentence in split.examples]
    return None if None in tags else tags
