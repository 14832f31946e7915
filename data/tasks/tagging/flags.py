"""Flags of tagging: which files, how they are read, how their words become rows.

Defined without TensorFlow, since --help needs none.
"""

from absl import flags

from data.flags import define_encoding_flag, define_text_folding_flags
from data.tasks.flags import (
    define_bad_row_flags,
    define_demo_flag,
    define_limit_flags,
    define_transfer_flag,
)
from data.tasks.tagging.schemes import MODEL_SCHEMES, SCHEMES


def define_tagging_flags() -> None:
    """All of them."""
    define_bad_row_flags()
    define_limit_flags()
    define_transfer_flag("sentences")
    define_demo_flag("Learn from installed docstrings which words are code; see README.")
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
        "scheme", "auto", ["auto", *SCHEMES], "Of the files' tags; auto looks at them."
    )
    flags.DEFINE_enum(
        "model_scheme",
        "iob2",
        MODEL_SCHEMES,
        "Of the tags that are learned and predicted.",
    )
    flags.DEFINE_string(
        "word_separator",
        " ",
        "Between words in the text that places of entities refer to; '' for Chinese characters, "
        "and always with --split_characters.",
    )
    flags.DEFINE_bool(
        "split_characters",
        False,
        "Tag characters: the words of files and the texts of the exported model are split into "
        "them. What was trained so stays so.",
    )
    define_encoding_flag()
    # What becomes of sentences.
    define_text_folding_flags()
    flags.DEFINE_integer(
        "max_seq_length", 128, "Of a window; longer sentences have several.", lower_bound=3
    )
    flags.DEFINE_integer(
        "window_stride", 0, "Most pieces between windows; 0: half a window.", lower_bound=0
    )
    flags.DEFINE_integer(
        "export_max_windows",
        1024,
        "Texts of more windows are refused by the exported model; 0: none is.",
        lower_bound=0,
    )
    flags.DEFINE_bool(
        "document_context", False, "Fill windows with the neighbouring sentences of the document."
    )
