"""Learns a WordPiece vocabulary from a corpus:

python -m data.learn_vocabulary --input_file='corpus/*.txt' --output_file=vocab.txt

or puts a domain's words into the [unusedN] places of a released one:

python -m data.learn_vocabulary --extend=uncased_L-12_H-768_A-12/vocab.txt \\
    --input_file='domain/*.jsonl' --output_file=vocab.txt

or takes out of one, and out of its model, what a corpus doesn't need:

python -m data.learn_vocabulary --prune=uncased_L-12_H-768_A-12 \\
    --input_file='corpus/*.txt' --output_dir=smaller
"""

from modeling import quiet  # noqa: F401  isort: skip

import os
import tempfile

from absl import flags, logging

from data import flags as data_flags
from data.errors import DataError
from data.files.inputs_survive import check_inputs_survive
from data.files.locks import one_writer
from data.pretraining import corpus
from data.tokenization import vocabulary
from data.tokenization.learning import extension, learner, pruning
from modeling import checkpoints, errors
from modeling.checkpoints.model_folder import open_model_folder
from modeling.checkpoints.vocabularies import TextFolding, kept_folding
from modeling.training.given_model import take_text_folding

FLAGS = flags.FLAGS
MOST_TOKENS = 10_000_000
"""Of a vocabulary: so many strings are held."""

flags.DEFINE_string(
    "input_file",
    None,
    "Corpus files: comma list of globs; plain text, WikiExtractor's output, JSON lines (all may "
    "be packed) or Parquet.",
)
flags.DEFINE_string("text_field", corpus.TEXT_FIELD, "Field or column that holds the text.")
flags.DEFINE_string("output_file", None, "The vocabulary, one token per line.")
flags.DEFINE_integer("vocab_size", 30522, "Number of tokens, met exactly.", upper_bound=MOST_TOKENS)
data_flags.define_text_folding_flags()
flags.adopt_module_key_flags(data_flags)
flags.DEFINE_integer(
    "min_frequency",
    2,
    "Pieces that occur less often are not learned; with --prune, where 1 is the default, not kept.",
    lower_bound=1,
)
flags.DEFINE_float(
    "character_coverage", 0.99999, "Share of all characters that the alphabet has to make up.", 0, 1
)
flags.DEFINE_list("reserved_tokens", [], "Tokens to include, or with --prune to keep, in any case.")
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
flags.DEFINE_string(
    "prune",
    None,
    "A vocabulary of which only what --input_file needs is kept, all of its texts cut into pieces "
    "as before; or, with --output_dir, the model of such a one: whatever --init_checkpoint takes.",
)
flags.DEFINE_string(
    "output_dir",
    None,
    "With --prune of a model: the folder for it and its vocabulary, in the original's format.",
)
_OF_A_CORPUS = ("min_frequency", "heldout_share", "text_field")
_NOT_WITH_PRUNE = ("vocab_size", "character_coverage", "num_unused", "heldout_share")


def check_flags() -> None:
    """Refuses combinations that can't work, before anything is read or written."""
    if not FLAGS.prune:
        if FLAGS.output_dir:
            raise DataError("--output_dir is for a model whose vocabulary is pruned: give --prune.")
        if not FLAGS.output_file:
            raise DataError("--output_file is missing: the file for the vocabulary.")
        if FLAGS.extend and FLAGS["character_coverage"].present:
            raise DataError(
                "--character_coverage would do nothing: --extend adds whole words to a vocabulary "
                "that has its characters. Leave it out."
            )
        idle = [name for name in _OF_A_CORPUS if FLAGS[name].present]
        if FLAGS.extend and not FLAGS.input_file and idle:
            raise DataError(
                f"--{', --'.join(idle)} would do nothing: they are about the texts of "
                f"--input_file, which isn't given. Give it, or leave them out."
            )
        return
    if FLAGS.extend:
        raise DataError(
            "--prune takes tokens out of a vocabulary, and --extend puts words into one: give one "
            "of the two, and its result to the other in a second command."
        )
    idle = [name for name in _NOT_WITH_PRUNE if FLAGS[name].present]
    if idle:
        raise DataError(
            f"--{', --'.join(idle)} would do nothing: with --prune the corpus says which tokens "
            f"stay, and none are added. Leave it out; --min_frequency=2 or more keeps fewer."
        )
    if bool(FLAGS.output_file) == bool(FLAGS.output_dir):
        raise DataError(
            f"--prune={FLAGS.prune} needs either --output_file, for a vocabulary alone, or "
            f"--output_dir, for a model with its vocabulary."
        )
    if not FLAGS.input_file:
        raise DataError("--prune needs --input_file: the texts whose pieces are to stay.")


def main(_: list[str]) -> None:
    check_flags()
    if FLAGS.output_dir:
        prune_model()
        return
    files = corpus.expand(FLAGS.input_file or "") if FLAGS.input_file or not FLAGS.extend else []
    inputs = {"input_file": files, "extend": [FLAGS.extend], "prune": [FLAGS.prune]}
    check_inputs_survive(inputs, {"output_file": [FLAGS.output_file]})
    vocabulary.check_writable(FLAGS.output_file)
    given = FLAGS.prune or FLAGS.extend
    folding = kept_folding(os.path.dirname(given) or ".") if given else TextFolding()
    take_text_folding(FLAGS, folding)
    with one_writer(files={"output_file": [FLAGS.output_file]}):
        if FLAGS.prune:
            pruned = prune(FLAGS.prune, files, folding.do_lower_case is not None)
            vocabulary.write_vocab(pruned.tokens, FLAGS.output_file)
            print(f"{FLAGS.output_file}: {pruned.report()}")
        else:
            learn(files)


def prune(
    vocab_file: str, files: list[str], folding_is_known: bool = False
) -> pruning.PrunedVocabulary:
    """From a vocabulary's file and the corpus to what is left."""
    tokens = vocabulary.load_vocab(vocab_file)
    if not folding_is_known:
        extension.check_vocabulary_case(tokens, FLAGS.do_lower_case)
    return pruning.prune_from_files(
        tokens,
        files,
        do_lower_case=FLAGS.do_lower_case,
        strip_accents=FLAGS.strip_accents,
        reserved_tokens=FLAGS.reserved_tokens,
        min_frequency=FLAGS.min_frequency if FLAGS["min_frequency"].present else 1,
        text_field=FLAGS.text_field,
    )


def prune_model() -> None:
    """From a model and the corpus to a model with fewer tokens."""
    source, folder = FLAGS.prune, FLAGS.output_dir
    known = open_model_folder(source)
    if not known.vocab_file:
        raise DataError(
            f"The model {source} has no vocabulary: no vocab.txt lies beside its weights. Put the "
            f"one there that it was trained with, so that its tokens are known."
        )
    checkpoints.check_vocabulary(source, known.vocab_file)
    spare = checkpoints.spare_rows(source, len(vocabulary.load_vocab(known.vocab_file)))
    take_text_folding(FLAGS, known.folding)
    files = corpus.expand(FLAGS.input_file)
    read, written = checkpoints.conversion_files(source, folder, checkpoints.TF1)
    written.append(os.path.join(folder, "vocab.txt"))
    inputs = {"input_file": files, "prune": [*read, known.vocab_file]}
    check_inputs_survive(inputs, {"output_dir": written})
    with one_writer({"output_dir": folder}), tempfile.TemporaryDirectory() as temporary:
        pruned = prune(known.vocab_file, files, known.folding.do_lower_case is not None)
        vocab_file = os.path.join(temporary, "vocab.txt")
        vocabulary.write_vocab(pruned.tokens, vocab_file)
        result = checkpoints.convert(
            source, folder, checkpoints.TF1, vocab_file=vocab_file, kept_ids=pruned.kept_ids
        )
    sizes = [f"{size / 1e6:,.1f} MB" for size in (result.bytes_before, result.bytes_after)]
    print(f"{folder}: {pruned.report()}; weights: {sizes[0]} before, {sizes[1]} now")
    if spare:
        print(f"{spare} rows beyond the vocabulary were dropped.")
    for name in result.not_converted:
        print(f"Not kept, without a place in the result: {name}")
    for note in result.notes:
        print(f"Note: {note}")


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
    errors.run(main, DataError, flag_values=FLAGS)
