"""Learns a WordPiece vocabulary from a corpus:

python -m data.learn_vocabulary --input_file='corpus/*.txt' --output_file=vocab.txt
"""

from modeling import quiet  # noqa: F401  isort: skip

from absl import flags, logging

from data.errors import DataError
from data.pretraining import corpus
from data.tokenization import learner, vocabulary
from modeling import errors

FLAGS = flags.FLAGS

flags.DEFINE_string(
    "input_file", None, "Corpus files: comma list of globs; plain or WikiExtractor text, or gzip."
)
flags.DEFINE_string("output_file", None, "The vocabulary, one token per line.")
flags.DEFINE_integer("vocab_size", 30522, "Number of tokens, met exactly.")
flags.DEFINE_bool("do_lower_case", True, "Whether the vocabulary is for lower-cased text.")
flags.DEFINE_integer("min_frequency", 2, "Pieces that occur less often are not learned.")
flags.DEFINE_float(
    "character_coverage", 0.99999, "Share of all characters that the alphabet has to make up."
)
flags.DEFINE_list("reserved_tokens", [], "Tokens to include in any case.")
flags.DEFINE_integer(
    "num_unused",
    None,
    "Least number of [unusedN] tokens; default 99 from 20,000 tokens on, otherwise none.",
)
flags.DEFINE_float(
    "heldout_share", 0.01, "Share of the documents on which the vocabulary is tested instead."
)


def main(_: list[str]) -> None:
    vocabulary.check_writable(FLAGS.output_file)
    files = corpus.expand(FLAGS.input_file)
    tokens, coverage = learner.learn_from_files(
        files,
        FLAGS.vocab_size,
        do_lower_case=FLAGS.do_lower_case,
        heldout_share=FLAGS.heldout_share,
        reserved_tokens=FLAGS.reserved_tokens,
        num_unused=FLAGS.num_unused,
        min_frequency=FLAGS.min_frequency,
        character_coverage=FLAGS.character_coverage,
    )
    vocabulary.write_vocab(tokens, FLAGS.output_file)
    logging.info("Wrote %d tokens to %s", len(tokens), FLAGS.output_file)
    print(
        f"{FLAGS.output_file}: {len(tokens)} tokens; on {coverage.words} held-out words "
        f"{coverage.pieces_per_word:.4f} pieces per word, {coverage.unknown_share:.4%} [UNK]"
    )


if __name__ == "__main__":
    flags.mark_flags_as_required(["input_file", "output_file"])
    errors.run(main, DataError)
