r"""Shows pre-training records as text with the masks marked, checks them and counts:

    python -m data.inspect_records records/*.tfrecord \
        --vocab_file=vocab.txt --plot=records.png --json=records.json

Takes the records of data.create_pretraining_data and the original release's, of any length, masked
or not, compressed or not. Ends with exit code 1 if a record is damaged or a file is missing.
"""

from modeling import quiet  # noqa: F401  isort: skip

import shutil
import sys

from absl import flags

from data.errors import DataError
from data.files.inputs_survive import check_inputs_survive
from data.files.locks import one_writer
from data.pretraining import corpus
from data.pretraining.inspection import inspection, record_text, reports
from data.tokenization import vocabulary
from modeling import errors

FLAGS = flags.FLAGS

flags.DEFINE_list("input_file", [], "TFRecord files: globs. May be given without the flag's name.")
flags.DEFINE_string("vocab_file", None, "The records' vocabulary. Without it, ids are shown.")
flags.DEFINE_integer("num_records", 3, "Show so many records.", lower_bound=0)
flags.DEFINE_list(
    "record",
    [],
    "Show these records instead, and nothing else unless --json or --plot is given: NUMBER in the "
    "first file, counted from 0, or FILE:NUMBER.",
)
flags.DEFINE_integer("max_records", None, "Count no more than so many records.", lower_bound=0)
flags.DEFINE_string("plot", None, "Draw histograms into this PNG.")
flags.DEFINE_string("json", None, "Write the numbers into this file.")


def main(argv: list[str]) -> None:
    files = corpus.expand([*FLAGS.input_file, *argv[1:]])
    outputs = {"plot": [FLAGS.plot], "json": [FLAGS.json]}
    reports.check_writable([FLAGS.plot, FLAGS.json], files)
    check_inputs_survive({"input_file": files, "vocab_file": [FLAGS.vocab_file]}, outputs)
    with one_writer(files=outputs):
        inspect(files)


def inspect(files: list[str]) -> None:
    """Shows, counts and writes."""
    tokens = vocabulary.load_vocab(FLAGS.vocab_file) if FLAGS.vocab_file else None
    specials = inspection.InspectedTokens.from_tokens(tokens) if tokens else None
    sys.stdout.reconfigure(errors="replace")  # for terminals that can't show every piece
    for text in record_text.show_records(
        files,
        tokens,
        count=FLAGS.num_records,
        chosen=FLAGS.record,
        width=max(40, min(shutil.get_terminal_size((100, 0)).columns, 120)),
        color=sys.stdout.isatty(),
    ):
        print(f"{text}\n", flush=True)
    if FLAGS.record and not (FLAGS.json or FLAGS.plot):
        return
    inspected = inspection.inspect_record_files(files, specials, FLAGS.max_records)
    sets = inspection.inspect_sets(files, tokens, FLAGS.vocab_file)
    replacements = specials.replacements if specials else None
    summary = reports.summarize_inspection(inspected, tokens, replacements, sets)
    print(reports.text_report(summary))
    if FLAGS.json:
        reports.write_inspection_json(summary, FLAGS.json)
    if FLAGS.plot:
        reports.write_inspection_png(inspected, FLAGS.plot)
    inspected.check()
    sets.check()


if __name__ == "__main__":
    errors.run(main, DataError, flag_values=FLAGS, positional=True)
