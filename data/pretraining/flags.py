"""Flags of making records for pre-training: how raw text becomes instances.

Those of `python -m data.create_pretraining_data`, which run_pretraining.py has too. Defined without
TensorFlow, since --help needs none. `flag_values` are absl's: `flag_values[name].value`.
"""

from absl import flags, logging

from data.errors import DataError
from data.flags import define_text_folding_flags

OBJECTIVES = ("mlm_nsp", "mlm", "ltr", "rtl")
MASKING = ("masked_lm_prob", "mask_share", "random_share", "do_whole_word_mask", "max_ngram")
FOLDING = ("do_lower_case", "strip_accents")
SETTINGS = (*FOLDING, "dupe_factor", "short_seq_prob", "word_boundaries", *MASKING)
MOST_PIECES = 32_768
"""Of a record: more can't be meant, and would take all memory."""
NAMES = ("text_field", *SETTINGS)


def define_pretraining_flags() -> None:
    """Those of run_pretraining.py: which records or raw text it reads, and what it learns."""
    flags.DEFINE_integer(
        "max_seq_length", 128, "Tokens per record, as the records were made.", 1, MOST_PIECES
    )
    flags.DEFINE_integer(
        "max_predictions_per_seq", 20, "Masked tokens per record at most, as made.", 1, MOST_PIECES
    )
    flags.DEFINE_enum(
        "objective",
        "mlm_nsp",
        OBJECTIVES,
        "mlm_nsp: BERT; mlm: without next sentences; ltr, rtl: one way, every token predicted.",
    )
    flags.DEFINE_bool("demo", False, "Pre-train a small BERT on installed docstrings; see README.")
    define_raw_text_flags()
    define_pretraining_worker_flags()
    flags.DEFINE_string(
        "input_file",
        None,
        "TFRecords: globs, separated by commas; {max_seq_length} in it stands for the phase's.",
    )
    flags.DEFINE_string(
        "eval_file", None, "Held-out TFRecords; default: a share of the input kept from training."
    )
    flags.DEFINE_string(
        "corpus_file", None, "Raw text instead of --input_file: globs, separated by commas."
    )
    flags.DEFINE_string(
        "eval_corpus_file",
        None,
        "Raw text to evaluate on; default: a share of --corpus_file's documents.",
    )
    flags.DEFINE_bool(
        "adapt",
        False,
        "Adapt --init_checkpoint to --corpus_file: look at it, add its words to the vocabulary "
        "where that pays, choose lengths and steps, train, and report what it has changed.",
    )
    flags.DEFINE_string(
        "general_corpus_file",
        None,
        "With --adapt: text that is not of the domain, to measure how much of it is forgotten. "
        "What lies behind the measured beginning is trained on besides, see --general_share.",
    )
    flags.DEFINE_float(
        "general_share",
        0.1,
        "Characters of --general_corpus_file to train on besides for each of own text; 0: none.",
        lower_bound=0.0,
    )
    flags.DEFINE_bool(
        "dynamic_masking",
        False,
        "Mask while training, anew whenever a record is read, whether it is masked already or not.",
    )
    flags.DEFINE_bool(
        "pack_sequences",
        False,
        "Train on several short instances in a row, each for itself; with --objective=mlm.",
    )


def define_raw_text_flags() -> None:
    """The flags `NAMES`."""
    flags.DEFINE_string(
        "text_field",
        "text",
        "Field (JSON lines) or column (Parquet) that holds the text.",
    )
    define_text_folding_flags()
    flags.DEFINE_bool("do_whole_word_mask", False, "Mask whole words instead of single WordPieces.")
    flags.DEFINE_enum(
        "word_boundaries",
        "wordpiece",
        ["wordpiece", "whitespace"],
        "What a whole word is: wordpiece: a piece and the ## pieces behind it; whitespace: what "
        "stands between blanks in the text, for Chinese that is split into words.",
    )
    flags.DEFINE_integer(
        "max_ngram",
        1,
        "Mask spans of up to so many whole words, short ones more often; 1: no spans.",
        lower_bound=1,
        upper_bound=1000,
    )
    flags.DEFINE_integer(
        "dupe_factor",
        10,
        "How often the text is gone through, with other masks.",
        upper_bound=100_000,
    )
    flags.DEFINE_float("masked_lm_prob", 0.15, "Share of the pieces to predict.")
    flags.DEFINE_float("mask_share", 0.8, "Share of the predicted pieces that become [MASK].")
    flags.DEFINE_float(
        "random_share",
        0.1,
        "Share of the predicted pieces that become a random piece; those that neither share takes "
        "stay as they are.",
    )
    flags.DEFINE_float("short_seq_prob", 0.1, "Share of instances shorter than the full length.")


def define_pretraining_worker_flags() -> None:
    """How many processes make records."""
    flags.DEFINE_integer(
        "num_workers", 1, "Processes that make records; 0: one for each CPU.", 0, 10_000
    )


def pretraining_instance_settings(values) -> dict:
    """The values of the flags `SETTINGS`, by name."""
    return {name: getattr(values, name) for name in SETTINGS}


def check_pretraining_flags(flag_values) -> None:
    """Refuses --dynamic_masking and --pack_sequences where they can't work."""
    dynamic = flag_values["dynamic_masking"].value
    objective = flag_values["objective"].value
    packed = flag_values["pack_sequences"].value
    check_pretraining_objective(objective, f"--objective={objective}", dynamic, packed)
    if dynamic and flag_values["input_file"].value and not flag_values["vocab_file"].value:
        raise DataError(
            "--vocab_file is missing: with --dynamic_masking it tells which pieces of the records "
            "are words and which are special. Give the vocabulary that they were made with."
        )


def check_pretraining_objective(
    objective: str, called: str, dynamic_masking: bool, pack_sequences: bool
) -> None:
    """Raises DataError for an unknown objective (`called` so), or one that the others don't fit."""
    if objective not in OBJECTIVES:
        raise DataError(
            f"The objective is {objective!r}, but one of {', '.join(OBJECTIVES)} was expected."
        )
    if pack_sequences and objective != "mlm":
        raise DataError(
            f"--pack_sequences goes with --objective=mlm only, because a row of several sequences "
            f"has no next sentence; received {called}."
        )
    if dynamic_masking and objective in ("ltr", "rtl"):
        raise DataError(
            f"--dynamic_masking would change nothing: {called} predicts every token and masks "
            f"none. Leave --dynamic_masking out, or choose another --objective."
        )


def check_idle_pretraining_flags(flag_values, exporting: bool) -> None:
    """Refuses flags of raw text where records are made already.

    With `exporting` texts are read all the same, by an exported model.
    """
    needed = MASKING if flag_values["dynamic_masking"].value else ()
    if exporting:
        needed = (*needed, *FOLDING)
    idle = [f"--{name}" for name in NAMES if flag_values[name].present and name not in needed]
    if idle:
        raise DataError(
            f"{', '.join(idle)} would change nothing: they say how records are made from raw text, "
            f"but those of --input_file are made already. Leave them out, or give them to "
            f"data.create_pretraining_data."
        )


def check_pretraining_sources(flag_values) -> None:
    """Refuses what isn't one source with what goes with it."""
    sources = [name for name in ("demo", "input_file", "corpus_file") if flag_values[name].value]
    if len(sources) != 1:
        raise DataError(
            f"Give exactly one of --input_file (TFRecords), --corpus_file (raw text) and --demo; "
            f"got {', '.join('--' + name for name in sources) or 'none'}."
        )
    pairs = [("eval_file", "input_file"), ("eval_corpus_file", "corpus_file")]
    pairs += [("general_corpus_file", "adapt"), ("general_share", "general_corpus_file")]
    for name, needed in pairs:
        flag = flag_values[name]
        if flag.value and flag.value != flag.default and not flag_values[needed].value:
            raise DataError(f"--{name} goes with --{needed}, and that isn't given.")
    if "{max_seq_length}" in (flag_values.input_file or "") and not flag_values.eval_file:
        logging.warning(
            "A part of each length's records is held out by itself: the same text may be trained "
            "on at the other length. Give --eval_file, records of other text, to evaluate on."
        )
