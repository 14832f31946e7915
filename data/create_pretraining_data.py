r"""Makes pre-training TFRecords from text; the original release's command, with its flags.

    python -m data.create_pretraining_data \
        --input_file='corpus/*.txt' --output_file=records/train.tfrecord \
        --vocab_file=vocab.txt --do_lower_case=True \
        --max_seq_length=128 --max_predictions_per_seq=20 --dupe_factor=5

Input: one sentence per line and a blank line between documents, or WikiExtractor's output;
either may be gzip-compressed.
"""

from modeling import quiet  # noqa: F401  isort: skip

from absl import flags, logging

from data import pretraining_flags
from data.errors import DataError
from data.pretraining import corpus, generate
from data.tokenization import Tokenizer
from modeling import errors

FLAGS = flags.FLAGS

flags.DEFINE_string("input_file", None, "Text files: a comma-separated list of globs.")
flags.DEFINE_string(
    "output_file", None, "TFRecord files: a comma-separated list, written round-robin."
)
flags.DEFINE_string("vocab_file", None, "The vocabulary that the BERT model is trained with.")
flags.DEFINE_integer("max_seq_length", 128, "Pieces per instance, with [CLS] and [SEP].")
flags.DEFINE_integer("max_predictions_per_seq", 20, "Masked-LM predictions per instance, at most.")
flags.DEFINE_integer("random_seed", 12345, "Seed of all random choices.")
pretraining_flags.define_raw_text_flags()


def main(_: list[str]) -> None:
    generate.check_settings(
        FLAGS.max_seq_length,
        FLAGS.max_predictions_per_seq,
        FLAGS.dupe_factor,
        FLAGS.masked_lm_prob,
        FLAGS.short_seq_prob,
        FLAGS.mask_share,
        FLAGS.random_share,
    )
    files = corpus.expand(FLAGS.input_file)
    logging.info("Reading %d files: %s%s", len(files), files[0], " …" if files[1:] else "")
    summary = generate.create_pretraining_records(
        files,
        Tokenizer(FLAGS.vocab_file, FLAGS.do_lower_case),
        [path.strip() for path in FLAGS.output_file.split(",") if path.strip()],
        max_seq_length=FLAGS.max_seq_length,
        max_predictions_per_seq=FLAGS.max_predictions_per_seq,
        random_seed=FLAGS.random_seed,
        **pretraining_flags.settings(FLAGS),
        text_field=FLAGS.text_field,
    )
    logging.info("Done: %s.", summary)
    for path in summary.output_files:
        logging.info("Wrote %s", path)


if __name__ == "__main__":
    flags.mark_flags_as_required(["input_file", "output_file", "vocab_file"])
    errors.run(main, DataError)
