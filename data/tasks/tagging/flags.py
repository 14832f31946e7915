"""Flags of tagging: which files, how they are read, how their words become rows."""

from absl import flags, logging

from data.files.text_files import placed
from data.tasks.tagging import conll as ner
from data.tasks.tagging import schemes as ner_schemes
from data.tasks.tagging.rows import TaggingSettings


def define_file_flags() -> None:
    """The files and what is in them."""
    flags.DEFINE_string("data_dir", None, "Folder that file names start from.")
    flags.DEFINE_string("train_file", None, "Sentences to train on.")
    flags.DEFINE_string("dev_file", None, "Sentences to evaluate on.")
    flags.DEFINE_string("test_file", None, "Sentences to tag; scored if they have tags.")
    flags.DEFINE_string(
        "token_column", None, "Column of the word, from 0 on; default: the first. JSON: tokens."
    )
    flags.DEFINE_string(
        "tag_column", None, "Column of the tag, from 0 on or from -1 back; the last. JSON: tags."
    )
    flags.DEFINE_string(
        "document_column", "document", "JSON lines: field that names a sentence's document."
    )
    flags.DEFINE_enum(
        "scheme", "auto", ["auto", *ner_schemes.SCHEMES], "Of the files' tags; auto looks at them."
    )
    flags.DEFINE_enum(
        "model_scheme",
        "iob2",
        ner_schemes.MODEL_SCHEMES,
        "Of the tags that are learned and predicted.",
    )
    flags.DEFINE_string(
        "word_separator",
        " ",
        "Between words in the text that places of entities refer to; '' for Chinese characters.",
    )


def define_row_flags() -> None:
    """What becomes of sentences."""
    flags.DEFINE_integer(
        "max_seq_length", 128, "Of a window; longer sentences have several.", lower_bound=3
    )
    flags.DEFINE_integer(
        "window_stride", 0, "Most pieces between windows; 0: half a window.", lower_bound=0
    )
    flags.DEFINE_bool(
        "document_context", False, "Fill windows with the neighbouring sentences of the document."
    )


def read_file(values, path: str, labelled: bool, model_scheme: str) -> list[ner.Sentence]:
    """The sentences of a file, as the flags say; see `ner.read_sentences`.

    Args:
        values: The script's flag values.
        path: From `data_dir` on.
        labelled: Whether there have to be tags.
        model_scheme: What they are converted to.
    """
    path = placed(values.data_dir, path)
    format = ner.TagFormat(
        values.token_column, values.tag_column, values.document_column, values.scheme, model_scheme
    )
    sentences = ner.read_sentences(path, format, labelled)
    documents = ner.number_of_documents(sentences)
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
