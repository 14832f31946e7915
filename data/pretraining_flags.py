"""Flags of making records for pre-training: how raw text becomes instances.

Those of `python -m data.create_pretraining_data`, which run_pretraining.py has too.
"""

from absl import flags

from data.errors import DataError
from data.pretraining import corpus, masking

NAMES = (
    *("text_field", "do_lower_case", "do_whole_word_mask", "dupe_factor", "masked_lm_prob"),
    *("mask_share", "random_share", "short_seq_prob"),
)


def define_source_flags() -> None:
    """What run_pretraining.py reads: records or raw text."""
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


def define_raw_text_flags() -> None:
    """The flags `NAMES`."""
    flags.DEFINE_string("text_field", corpus.TEXT_FIELD, "Field of JSON lines that holds the text.")
    flags.DEFINE_bool(
        "do_lower_case",
        True,
        "Lower-case the text and strip accents; False for cased vocabularies.",
    )
    flags.DEFINE_bool("do_whole_word_mask", False, "Mask whole words instead of single WordPieces.")
    flags.DEFINE_integer("dupe_factor", 10, "How often the text is gone through, with other masks.")
    flags.DEFINE_float("masked_lm_prob", 0.15, "Share of the pieces to predict.")
    flags.DEFINE_float(
        "mask_share", masking.MASK_SHARE, "Share of the predicted pieces that become [MASK]."
    )
    flags.DEFINE_float(
        "random_share",
        masking.RANDOM_SHARE,
        "Share of the predicted pieces that become a random piece; those that neither share takes "
        "stay as they are.",
    )
    flags.DEFINE_float("short_seq_prob", 0.1, "Share of instances shorter than the full length.")


def settings(values) -> dict:
    """The flags `NAMES` but for text_field and do_lower_case, by name."""
    return {name: getattr(values, name) for name in NAMES[2:]}


def check_idle(given, exporting: bool) -> None:
    """Refuses flags of raw text where records are made already.

    Args:
        given: The flags; `given[name].present` tells whether one is on the command line.
        exporting: Whether texts are read all the same, by an exported model.
    """
    idle = [f"--{name}" for name in NAMES if given[name].present]
    if exporting and "--do_lower_case" in idle:
        idle.remove("--do_lower_case")
    if idle:
        raise DataError(
            f"{', '.join(idle)} would change nothing: they say how records are made from raw text, "
            f"but those of --input_file are made already. Leave them out, or give them to "
            f"data.create_pretraining_data."
        )


def check_sources(given) -> None:
    """Refuses what isn't one source with what goes with it.

    Args:
        given: The flags; `given[name].value`.
    """
    sources = [name for name in ("demo", "input_file", "corpus_file") if given[name].value]
    if len(sources) != 1:
        raise DataError(
            f"Give exactly one of --input_file (TFRecords), --corpus_file (raw text) and --demo; "
            f"got {', '.join('--' + name for name in sources) or 'none'}."
        )
    for name, needed in (("eval_file", "input_file"), ("eval_corpus_file", "corpus_file")):
        if given[name].value and not given[needed].value:
            raise DataError(f"--{name} goes with --{needed}, but --{sources[0]} is given.")
