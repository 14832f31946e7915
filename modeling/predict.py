"""Asks an exported model: lines of a file or of standard input in, JSON lines out.

    python -m modeling.predict --saved_model=/tmp/export --input_file=reviews.tsv \
        --output_file=answers.jsonl
    echo "A delight from start to end." | python -m modeling.predict --saved_model=/tmp/export

Any SavedModel will do whose signature takes texts, lists of texts or numbers. The answers have the
order of the lines. Texts of like length are computed together; memory doesn't grow with the input.
Lines from a terminal or a pipe are answered as they come.
"""

from modeling import quiet  # noqa: F401  isort: skip

import math
import time

from absl import flags, logging

from data.errors import DataError
from data.files.inputs_survive import check_inputs_survive
from data.files.locks import one_writer
from data.flags import define_delimiter_flag, define_encoding_flag
from data.prediction.formats import FORMATS as INPUT_FORMATS
from data.prediction.inputs import PredictionInputs, number_of_prediction_inputs
from data.prediction.outputs import FORMATS as OUTPUT_FORMATS
from data.prediction.outputs import PredictionOutputs
from modeling import errors
from modeling.logs import activity
from modeling.serving import prediction
from modeling.side_by_side import divide_threads

FLAGS = flags.FLAGS

flags.DEFINE_string(
    "saved_model",
    None,
    "The exported model: a SavedModel's folder, or one with numbered versions in it, of which the "
    "highest is taken.",
)
flags.DEFINE_string("signature", "serving_default", "Which of the model's signatures to ask.")
flags.DEFINE_string(
    "input_file",
    "-",
    "What to ask: comma list of globs, packed or not; - for standard input.",
)
flags.DEFINE_enum(
    "input_format",
    "auto",
    INPUT_FORMATS,
    "text: a line is a text, or several between tabs; tsv, csv: below a header that names the "
    "model's inputs, or the columns it was trained on; jsonl: objects with these names. auto: as "
    "the file's name ends, else jsonl for lines that begin with {, else text.",
)
define_delimiter_flag()
define_encoding_flag()
flags.DEFINE_string("output_file", "-", "The answers; - for standard output.")
flags.DEFINE_enum("output_format", "jsonl", OUTPUT_FORMATS, "tsv: single values only.")
flags.DEFINE_integer("batch_size", 32, "Most lines that are computed at once.", 1, 10_000)
flags.DEFINE_bool(
    "skip_bad_lines", False, "Write an error in place of an answer, and go on; else stop."
)
flags.DEFINE_bool(
    "raw_cells",
    False,
    "TSV with cells that begin with = + - @ as they are; else an apostrophe keeps a spreadsheet "
    "from running them.",
)

WINDOW_BATCHES = 32
"""So many batches are read before lines of like length are put together."""

LIVE_WINDOW_BATCHES = 4
"""From a terminal or a pipe at most so many, since somebody may wait for the first answer."""

WIDE = 256
"""So many numbers for each piece make a line of megabytes: a batch is answered at a time."""


def main(_: list[str]) -> None:
    # Who asks line by line waits for each answer; all threads are for it.
    if FLAGS.input_file != "-":
        divide_threads()
    with activity(f"Loading {FLAGS.saved_model}"):
        signature = prediction.load_signature(
            prediction.version_folder(FLAGS.saved_model), FLAGS.signature
        )
    inputs = PredictionInputs(
        FLAGS.input_file,
        signature.inputs,
        FLAGS.input_format,
        FLAGS.skip_bad_lines,
        FLAGS.delimiter,
        FLAGS.encoding,
        signature.columns,
    )
    begin = time.monotonic()
    written = [] if FLAGS.output_file == "-" else [FLAGS.output_file]
    model = prediction.saved_model_files(FLAGS.saved_model)
    check_inputs_survive({"saved_model": model}, {"output_file": written})
    try:
        with (
            activity("Predicting", "examples") as progress,
            one_writer(files={"output_file": written}),
            PredictionOutputs(
                FLAGS.output_file,
                FLAGS.output_format,
                signature.outputs,
                FLAGS.skip_bad_lines,
                inputs.paths,
                FLAGS.raw_cells,
            ) as outputs,
        ):
            predictor = prediction.SavedModelPredictor(signature, FLAGS.batch_size, progress.add)
            batches = LIVE_WINDOW_BATCHES if inputs.live else WINDOW_BATCHES
            batches = 1 if _has_wide_answers(signature) else batches
            for window in inputs.windows(batches * FLAGS.batch_size):
                progress.total = number_of_prediction_inputs(outputs.done + len(window), window[-1])
                outputs.write(window, predictor([e for e in window if e.error is None]))
    except BrokenPipeError:
        return  # as "| head" ends it
    seconds = time.monotonic() - begin
    logging.info(
        "%s examples in %.1f s, %.1f a second%s%s",
        f"{outputs.done:,}",
        seconds,
        outputs.done / max(seconds, 1e-6),
        f", {outputs.bad:,} bad" if outputs.bad else "",
        "" if FLAGS.output_file == "-" else f": {FLAGS.output_file}",
    )


def _has_wide_answers(signature: prediction.LoadedSignature) -> bool:
    """Whether there are vectors of pieces among the outputs, [B, T, …, D]."""
    shapes = [spec.shape for spec in signature.outputs.values()]
    return any(s.rank > 2 and math.prod(n or 1 for n in s[1:]) >= WIDE for s in shapes if s.rank)


if __name__ == "__main__":
    flags.mark_flags_as_required(["saved_model"])
    errors.run(main, DataError, flag_values=FLAGS)
