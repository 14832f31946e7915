"""Converts a checkpoint to the original release's format, Hugging Face's or KerasHub's.

    python -m modeling.convert_checkpoint --input uncased_L-12_H-768_A-12 --output bert-hf \
        --format huggingface
    python -m modeling.convert_checkpoint --input minilm/model.safetensors --output minilm-tf1 \
        --format tf1
    python -m modeling.convert_checkpoint --input uncased_L-12_H-768_A-12 --output preset \
        --format keras_hub

    python -m modeling.convert_checkpoint --list --input downloads/some-bert
    python -m modeling.convert_checkpoint --input uncased_L-12_H-768_A-12 --output student \
        --format tf1 --student_num_layers 6

Reads TF1 bundles (bert_model.ckpt), fine-tuned or pre-trained, and .safetensors files, with or
without the `bert.` prefix, in float32, float16 or bfloat16; and other libraries' checkpoints, see
modeling/checkpoints/README.md. Writes bert_model.ckpt.* with bert_config.json, or model.safetensors
with config.json, and vocab.txt; or a preset for KerasHub's BertBackbone, BertTextClassifier,
BertMaskedLM and BertTokenizer. With --list it writes nothing, and tells of each format what it
finds of it, and why it isn't that one. With flags of a student it writes a smaller model, which
begins as a part of the one that it reads.
"""

from modeling import quiet  # noqa: F401  isort: skip

import os
import textwrap

from absl import flags, logging

from data.errors import DataError
from data.files.inputs_survive import check_inputs_survive
from data.files.locks import one_writer
from modeling import checkpoints
from modeling import flags as model_flags
from modeling.checkpoints.files import join, temporary_folder
from modeling.checkpoints.inspection.listing import describe_release, list_formats
from modeling.checkpoints.students.making import Student, make_student
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


def convert_given() -> tuple[list[str], checkpoints.Conversion]:
    """What was read, in words, and what became of it: the whole model, or a student of it."""
    files = FLAGS.bert_config_file, FLAGS.vocab_file
    config = checkpoints.config_of_checkpoint(checkpoints.open_contents(FLAGS.input), files[0])
    student = Student.from_flags(FLAGS, config)
    if student is None:
        result = checkpoints.convert(FLAGS.input, FLAGS.output, FLAGS.format, *files)
        weights = f"{len(result.converted)} weights, {result.ignored} other tensors"
        return [f"Read {result.source}: {weights}."], result
    with temporary_folder(FLAGS.output) as temporary:
        folder = join(temporary, "student")
        _, lines = make_student(FLAGS.input, folder, *student, *files)
        return lines, checkpoints.convert(folder, FLAGS.output, FLAGS.format)


def main(_: list[str]) -> None:
    logging.set_verbosity(logging.WARNING)
    if FLAGS.list:
        writing = ["output", "format", "bert_config_file", "vocab_file"]
        writing += [flag.name for flag in FLAGS.get_flags_for_module(model_flags.__name__)]
        idle = [f"--{name}" for name in writing if FLAGS[name].present]
        if idle:
            raise ModelingError(f"--list writes nothing, so that {', '.join(idle)} says nothing.")
        show_formats(FLAGS.input)
        return
    for name, what in (("output", "the folder to write to"), ("format", "the format to write")):
        if not FLAGS[name].value:
            raise ModelingError(f"--{name} is missing: {what}. Only --list can do without.")
    with activity(f"Converting {FLAGS.input}"):
        read, written = checkpoints.conversion_files(
            *(FLAGS.input, FLAGS.output, FLAGS.format, FLAGS.bert_config_file, FLAGS.vocab_file)
        )
        check_inputs_survive({"input": read}, {"output": written})
        with one_writer({"output": FLAGS.output}):
            lines, result = convert_given()
    print("\n".join(lines))
    for path in result.written:
        print(f"Wrote {path}")
    for name in result.not_converted:
        print(f"Not converted, without a place in the result: {name}")
    for note in result.notes:
        if note not in lines:
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
    model_flags.define_student_flags()
    run(main, DataError, flag_values=FLAGS)
