"""Flags of ratings: files, how texts are read. Without TensorFlow, since --help needs none."""

from absl import flags

from data.flags import define_text_folding_flags


def define_rating_flags() -> None:
    """All of them."""
    flags.DEFINE_string("train_file", None, "TSV with text_a, text_b and rating to train on.")
    flags.DEFINE_string("dev_file", None, "The same to evaluate on.")
    flags.DEFINE_string("test_file", None, "TSV with text_a and text_b to rate.")
    define_text_folding_flags()
    flags.DEFINE_integer("max_seq_length", 128, "Longer pairs are truncated.", lower_bound=3)
