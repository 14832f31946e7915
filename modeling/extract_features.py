"""Turns texts into the encoder's vectors: of pieces, of words or of whole texts.

    python -m modeling.extract_features --input_file=input.txt --output_file=output.jsonl \
        --vocab_file=$BERT_BASE_DIR/vocab.txt \
        --bert_config_file=$BERT_BASE_DIR/bert_config.json \
        --init_checkpoint=$BERT_BASE_DIR/bert_model.ckpt --layers=-1,-2,-3,-4 \
        --max_seq_length=128 --batch_size=8

Every line of the input is a text, or a pair with " ||| " between its texts. The output has its
order, in the original's JSON lines, as TFRecords or as NumPy arrays. Memory doesn't grow with the
input. With --export_dir also, or only, a SavedModel from text to vectors.
"""

from modeling import quiet  # noqa: F401  isort: skip

import contextlib
import functools

from absl import flags, logging

from data import batching
from data import flags as data_flags
from data.errors import DataError
from data.files.inputs_survive import check_inputs_survive, input_files
from data.files.lines import number_of_lines
from data.files.locks import one_writer
from data.tokenization import Tokenizer
from data.vectors import serving_inputs, texts, vector_files
from data.vectors.array_batches import array_batches
from modeling import checkpoints, errors
from modeling import flags as model_flags
from modeling.config import BertConfig
from modeling.logs import activity
from modeling.serving import flags as export_flags
from modeling.serving.export import Export
from modeling.serving.vectors import export_embeddings
from modeling.training import settings
from modeling.training.engine import distribution, precision
from modeling.training.engine import flags as hardware_flags
from modeling.training.given_model import check_training_fits_model, open_given_model
from modeling.vectors import vector_models
from modeling.vectors.extraction import Extractor

FLAGS = flags.FLAGS

hardware_flags.define_engine_device_flags()
model_flags.define_model_flags()
flags.DEFINE_string("input_file", None, "Texts, one a line.")
flags.DEFINE_string("output_file", None, "Where the vectors are written.")
flags.DEFINE_list(
    "layers",
    ["-1", "-2", "-3", "-4"],
    "Layers to write: -1 is the last, 0 the first. By default the last four, or as many as there "
    f"are. Or one of {', '.join(vector_models.VECTOR_LAYERS)}.",
)
flags.DEFINE_integer("max_seq_length", 128, "Longer texts are cut.", lower_bound=3)
data_flags.define_text_folding_flags()
flags.adopt_module_key_flags(data_flags)
flags.DEFINE_integer("batch_size", 32, "Over all replicas.", lower_bound=1, upper_bound=10_000)
flags.DEFINE_bool("use_one_hot_embeddings", False, "No effect; the original's, for TPUs.")
# Beyond the original's flags.
flags.DEFINE_enum(
    "pooling",
    "none",
    vector_models.POOLINGS,
    "One vector per text: that of [CLS], mean or maximum over all pieces; none: one per piece.",
)
flags.DEFINE_enum(
    "word_pooling",
    None,
    texts.WORD_POOLINGS,
    "One vector per word, as white space separates them: of its pieces the mean, maximum, first.",
)
flags.DEFINE_bool(
    "normalize",
    False,
    "Scale the vectors of --output_file to length 1; an export's are so for texts.",
)
flags.DEFINE_enum(
    "output_format", "jsonl", vector_files.FORMATS, "Of the output file; numpy needs NAME.npy."
)
flags.DEFINE_string("export_dir", None, "Also write a SavedModel there: text to vectors.")
export_flags.define_export_form("export_dir")

REQUIRED = ("init_checkpoint",)
VALUES_AT_ONCE = 2**25
"""Numbers that are held in memory where every piece has vectors; 128 MB."""


def _check_flags() -> None:
    """Refuses combinations that can't work, before anything is read."""
    if bool(FLAGS.input_file) != bool(FLAGS.output_file):
        raise errors.ModelingError("--input_file and --output_file have to be given together.")
    if not (FLAGS.input_file or FLAGS.export_dir):
        raise errors.ModelingError(
            "Nothing to do: give --input_file and --output_file, or --export_dir."
        )
    if FLAGS.word_pooling and FLAGS.pooling != "none":
        raise errors.ModelingError(
            f"--word_pooling={FLAGS.word_pooling} is for a vector per word, --pooling="
            f"{FLAGS.pooling} for one per text; give one of the two."
        )
    if FLAGS.export_dir and FLAGS.word_pooling not in (None, "mean"):
        raise errors.ModelingError(
            f"--word_pooling={FLAGS.word_pooling} is for --output_file; the words of an export are "
            f"the means of their pieces. Write the export in a command of its own, or give "
            f"--word_pooling=mean."
        )
    if distribution.num_workers() > 1:
        raise errors.ModelingError(
            "Features are extracted by one process; cut the input file for several machines."
        )


def _make_model(config: BertConfig, **settings) -> vector_models.BertVectors:
    """The encoder with its weights."""
    layers = vector_models.parse_layers(
        FLAGS.layers, config.num_hidden_layers, only_existing=not FLAGS["layers"].present
    )
    model = vector_models.BertVectors(config, layers, **settings)
    model.build()
    checkpoints.load(model, FLAGS.init_checkpoint, required=checkpoints.ENCODER)
    return model


def _extract(config: BertConfig, tokenizer: Tokenizer) -> None:
    """From --input_file to --output_file."""
    # Unit vectors of pieces don't add up to those of words.
    normalize = FLAGS.normalize and not FLAGS.word_pooling
    model = _make_model(config, pooling=FLAGS.pooling, normalize=normalize)
    extractor = Extractor(model)
    layers, width = extractor.shape
    pooled = FLAGS.pooling != "none"
    settings = texts.VectorTextSettings(
        FLAGS.max_seq_length,
        0 if pooled else VALUES_AT_ONCE // (layers * width),
        FLAGS.word_pooling,
        FLAGS.normalize,
    )
    static = distribution.strategy_on_tpu()
    shape = batching.Batching(
        FLAGS.batch_size,
        None if static else batching.batching_length_buckets(FLAGS.max_seq_length),
    )
    chunks = texts.read_vector_texts(FLAGS.input_file, tokenizer, settings)
    with (
        activity("Extracting", "lines") as progress,
        vector_files.open_vector_file(
            FLAGS.output_format,
            FLAGS.output_file,
            model.layer_names,
            width,
            words=bool(FLAGS.word_pooling),
            pooled=pooled,
        ) as writer,
    ):
        progress.total = number_of_lines(FLAGS.input_file)
        for chunk in chunks:
            batches = array_batches(chunk.features, shape, progress.add)
            writer.write(chunk.rows(extractor(batches, chunk.features.lengths)))
        if not progress.done:
            raise DataError(
                f"{FLAGS.input_file} is empty: it has no line, and so no text to make vectors of. "
                f"Give a file with a text on every line; an empty line is an empty text."
            )
    logging.info("Wrote the vectors of %d lines to %s", progress.done, FLAGS.output_file)


def _export(config: BertConfig, tokenizer: Tokenizer) -> None:
    """A SavedModel from text to vectors."""
    folder = export_embeddings(
        _make_model(config),
        Export.from_flags(FLAGS),
        functools.partial(serving_inputs.vector_serving_inputs, tokenizer, FLAGS.max_seq_length),
        pooling="mean" if FLAGS.pooling == "none" else FLAGS.pooling,
    )
    logging.info("Wrote the SavedModel %s", folder)


def main(_: list[str]) -> None:
    strategy = settings.make_strategy(FLAGS)
    precision.set_precision(FLAGS.dtype)
    with strategy.scope(), contextlib.ExitStack() as writers:
        _check_flags()
        written = vector_files.output_files(FLAGS.output_format, FLAGS.output_file)
        check_inputs_survive(input_files(FLAGS), {"output_file": written})
        writers.enter_context(
            one_writer({"export_dir": FLAGS.export_dir}, {"output_file": written})
        )
        config = open_given_model(FLAGS)
        tokenizer = Tokenizer(FLAGS.vocab_file, FLAGS.do_lower_case, (), FLAGS.strip_accents)
        check_training_fits_model(FLAGS, config, tokenizer.vocab_size)
        if FLAGS.input_file:
            _extract(config, tokenizer)
        if FLAGS.export_dir:
            _export(config, tokenizer)


if __name__ == "__main__":
    flags.mark_flags_as_required(REQUIRED)
    errors.run(main, DataError, flag_values=FLAGS)
