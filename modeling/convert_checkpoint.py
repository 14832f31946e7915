"""Converts a checkpoint to the original release's format, Hugging Face's or KerasHub's.

    python -m modeling.convert_checkpoint --input uncased_L-12_H-768_A-12 --output bert-hf \
        --format huggingface
    python -m modeling.convert_checkpoint --input minilm/model.safetensors --output minilm-tf1 \
        --format tf1
    python -m modeling.convert_checkpoint --input uncased_L-12_H-768_A-12 --output preset \
        --format keras_hub

    python -m modeling.convert_checkpoint --list --input downloads/some-bert

Reads TF1 bundles (bert_model.ckpt), fine-tuned or pre-trained, and .safetensors files, with or
without the `bert.` prefix, in float32, float16 or bfloat16; and other libraries' checkpoints, see
modeling/checkpoints/README.md. Writes bert_model.ckpt.* with bert_config.json, or model.safetensors
with config.json, and vocab.txt; or a preset for KerasHub's BertBackbone, BertTextClassifier,
BertMaskedLM and BertTokenizer. With --list it writes nothing, and tells of each format what it
finds of it, and why it isn't that one.
"""

from modeling import quiet  # noqa: F401  isort: skip

import os
import textwrap

from absl import flags, logging

from data.errors import DataError
from data.files.inputs_survive import check_inputs_survive
from data.files.locks import one_writer
from modeling import checkpoints
from modeling.checkpoints.inspection.listing import describe_release, list_formats
from modeling.errors import ModelingError, run
from modeling.logs import activity

FLAGS = flags.FLAGS


def show_formats(path: str) -> None:
    """What a path could be, a paragraph for each format, and what it would be read as."""
    for row in list_formats(path):
        file = f"{os.path.basename(row.file)}: " if row.file else ""
        text = " ".join(f"{file}{row.verdict}".split())
        start = f"{'yes' if row.is_read else 'no':5}{row.format:21}"
        print(textwrap.fill(text, 110, initial_indent=start, subsequent_indent=" " * 26))
    print("\n".join(describe_release(path)))


def main(_: list[str]) -> None:
    logging.set_verbosity(logging.WARNING)
    if FLAGS.list:
        show_formats(FLAGS.input)
        return
    for name, what in (("output", "the folder to write to"), ("format", "the format to write")):
        if not FLAGS[name].value:
            raise ModelingError(f"--{name} is missing: {what}. Only --list can do without.")
    with activity(f"Converting {FLAGS.input}"):
        read, written = checkpoints.conversion_files(
            FLAGS.input, FLAGS.output, FLAGS.format, FLAGS.bert_config_file
        )
        check_inputs_survive({"input": read}, {"output": written})
        with one_writer({"output": FLAGS.output}):
            result = checkpoints.convert(
                FLAGS.input, FLAGS.output, FLAGS.format, FLAGS.bert_config_file, FLAGS.vocab_file
            )
    print(f"Read {result.source}: {len(result.converted)} weights, {result.ignored} other tensors.")
    for path in result.written:
        print(f"Wrote {path}")
    for name in result.not_converted:
        print(f"Not converted, without a place in the result: {name}")
    for note in result.notes:
        print(f"Note: {note}")


if __name__ == "__main__":
    flags.DEFINE_string(
        "input",
        None,
        "Checkpoint to read: a TF1 prefix such as bert_model.ckpt, a .safetensors file, one of "
        "Model Garden's, TensorFlow Hub's or KerasHub's, or a folder that holds one of them.",
        required=True,
    )
    flags.DEFINE_bool(
        "list", False, "Write nothing; tell which formats --input could be, and why it isn't."
    )
    flags.DEFINE_string("output", None, "Folder to write to; made if absent.")
    flags.DEFINE_enum(
        "format",
        None,
        checkpoints.FORMATS,
        "Format to write: the original's, Hugging Face's, or a KerasHub preset.",
    )
    flags.DEFINE_string(
        "bert_config_file",
        None,
        "The model's configuration, in either format, or a size by name, such as L-4_H-256. "
        "Default: bert_config.json or config.json beside the weights.",
    )
    flags.DEFINE_string("vocab_file", None, "Vocabulary. Default: vocab.txt beside the weights.")
    run(main, DataError, flag_values=FLAGS)
