"""From the values of flags to the settings of records and of masking."""

from data.pretraining.flags import MASKING, SETTINGS
from data.pretraining.instances import masking
from data.tokenization.vocabulary import load_vocab


def settings(values) -> dict:
    """The flags `SETTINGS`, by name."""
    return {name: getattr(values, name) for name in SETTINGS}


def mask_settings(values, vocab_file: str | None) -> masking.MaskSettings | None:
    """How `pipeline.pretraining_dataset` masks with --dynamic_masking; None without.

    Raises:
        DataError: Flags out of range, or a vocabulary that can't be read.
    """
    if not values.dynamic_masking:
        return None
    vocabulary = masking.MaskingVocabulary.from_tokens(load_vocab(vocab_file), vocab_file)
    return masking.MaskSettings(vocabulary, **{name: getattr(values, name) for name in MASKING})
