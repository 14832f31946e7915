"""Learns a WordPiece vocabulary from a corpus:

python -m data.learn_vocabulary --input_file='corpus/*.txt' --output_file=vocab.txt

or puts a domain's words into the [unusedN] places of a released one:

python -m data.learn_vocabulary --extend=uncased_L-12_H-768_A-12/vocab.txt \\
    --input_file='domain/*.jsonl' --output_file=vocab.txt
"""

from modeling import quiet  # noqa: F401  isort: skip

from absl import flags, logging

from data import flags as data_flags
from data.errors import DataError
from data.files.inputs_survive import check_inputs_survive
from data.files.locks import one_writer
from data.pretraining import corpus
from data.tokenization import vocabulary
from data.tokenization.learning import extension, learner
from modeling import errors

FLAGS = flags.FLAGS
MOST_TOKENS = 10_000_000
"""Of a vocabulary: so many strings are held."""

flags.DEFINE_string(
    "input_file",
    None,
    "Corpus files: comma list of globs; plain text, WikiExtractor's output or JSON lines, or gzip "
    "of these.",
)
flags.DEFINE_string("text_field", corpus.TEXT_FIELD, "Field of JSON lines that holds the text.")
flags.DEFINE_string("output_file", None, "The vocabulary, one token per line.")
flags.DEFINE_integer("vocab_size", 30522, "Number of tokens, met exactly.", upper_bound=MOST_TOKENS)
data_flags.define_text_folding_flags()
flags.adopt_module_key_flags(data_flags)
flags.DEFINE_integer(
    "min_frequency", 2, "Pieces that occur less often are not learned.", lower_bound=1
)
flags.DEFINE_float(
    "character_coverage", 0.99999, "Share of all characters that the alphabet has to make up.", 0, 1
)
flags.DEFINE_list("reserved_tokens", [], "Tokens to include in any case.")
flags.DEFINE_integer(
    "num_unused",
    None,
    "Least number of [unusedN] tokens; default 99 from 20,000 tokens on, otherwise none. With "
    "--extend: how many stay free, default none.",
    lower_bound=0,
    upper_bound=MOST_TOKENS,
)
flags.DEFINE_float(
    "heldout_share", 0.01, "Share of the documents on which the vocabulary is tested instead."
)
flags.DEFINE_string(
    "extend",
    None,
    "A vocabulary whose [unusedN] tokens give way to words of --input_file and "
    "--reserved_tokens; its size and all other ids stay.",
)


def main(_: list[str]) -> None:
    files = corpus.expand(FLAGS.input_file or "") if FLAGS.input_file or not FLAGS.extend else []
    inputs = {"input_file": files, "extend": [FLAGS.extend]}
    check_inputs_survive(inputs, {"output_file": [FLAGS.output_file]})
    vocabulary.check_writable(FLAGS.output_file)
    with one_writer(files={"output_file": [FLAGS.output_file]}):
        learn(files)


def learn(files: list[str]) -> None:
    """From the corpus to the vocabulary's file."""
    options = {
        "do_lower_case": FLAGS.do_lower_case,
        "strip_accents": FLAGS.strip_accents,
        "heldout_share": FLAGS.heldout_share,
        "text_field": FLAGS.text_field,
        "reserved_tokens": FLAGS.reserved_tokens,
        "min_frequency": FLAGS.min_frequency,
    }
    if FLAGS.extend:
        extended = extension.extend_from_files(
            FLAGS.extend,
            files,
            vocab_size=FLAGS.vocab_size if FLAGS["vocab_size"].present else None,
            num_unused=FLAGS.num_unused or 0,
            **options,
        )
        vocabulary.write_replaced_vocabulary(FLAGS.extend, extended.replaced, FLAGS.output_file)
        tokens, report = extended.tokens, extended.report()
    else:
        tokens, coverage = learner.learn_from_files(
            files,
            FLAGS.vocab_size,
            num_unused=FLAGS.num_unused,
            character_coverage=FLAGS.character_coverage,
            **options,
        )
        vocabulary.write_vocab(tokens, FLAGS.output_file)
        report = coverage.report()
    logging.info("Wrote %d tokens to %s", len(tokens), FLAGS.output_file)
    print(f"{FLAGS.output_file}: {len(tokens)} tokens; {report}")


if __name__ == "__main__":
    flags.mark_flags_as_required(["output_file"])
    errors.run(main, DataError, flag_values=FLAGS)
