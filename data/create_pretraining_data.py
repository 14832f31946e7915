r"""Makes pre-training TFRecords from text; the original release's command, with its flags.

    python -m data.create_pretraining_data \
        --input_file='corpus/*.txt' --output_file=records/train.tfrecord \
        --vocab_file=vocab.txt --do_lower_case=True \
        --max_seq_length=128 --max_predictions_per_seq=20 --dupe_factor=5 \
        --num_shards=64 --num_workers=0

Input: one sentence per line and a blank line between documents, WikiExtractor's output, JSON lines
or Parquet; all but the last may be compressed (gzip, bzip2, xz, zstd). A corpus may be of any size:
memory stays the same, a command that was killed goes on when it is run again, and the records
don't depend on the number of workers. With --runner the same work is done by Apache Beam on a
cluster.
"""

from modeling import quiet  # noqa: F401  isort: skip

import os

from absl import flags, logging

from data import flags as data_flags
from data.errors import DataError
from data.files.inputs_survive import check_inputs_survive
from data.files.locks import one_writer
from data.pretraining import corpus
from data.pretraining import flags as pretraining_flags
from data.pretraining.instances import settings
from data.pretraining.writing import beam_pipeline, jobs, local, manifest, shards
from modeling import errors
from modeling.checkpoints.vocabularies import kept_folding
from modeling.training.given_model import take_text_folding

FLAGS = flags.FLAGS

flags.DEFINE_string("input_file", None, "Text files: a comma-separated list of globs.")
flags.DEFINE_string(
    "output_file",
    None,
    "TFRecord files: a comma-separated list; or one name, which --num_shards numbers.",
)
flags.DEFINE_string("vocab_file", None, "The vocabulary that the BERT model is trained with.")
flags.DEFINE_integer(
    "max_seq_length",
    128,
    "Pieces per instance, with [CLS] and [SEP].",
    upper_bound=pretraining_flags.MOST_PIECES,
)
flags.DEFINE_integer(
    "max_predictions_per_seq",
    20,
    "Masked-LM predictions per instance, at most.",
    upper_bound=pretraining_flags.MOST_PIECES,
)
flags.DEFINE_integer("random_seed", 12345, "Seed of all random choices.")
pretraining_flags.define_raw_text_flags()
# Beyond the original's flags.
flags.DEFINE_enum(
    "objective",
    settings.MLM_NSP,
    settings.RECORD_OBJECTIVES,
    "mlm_nsp: pairs of segments; mlm: one full-length segment per instance, no next sentences.",
)
flags.DEFINE_bool(
    "dynamic_masking", False, "Records without masks, for run_pretraining.py --dynamic_masking."
)
flags.DEFINE_integer(
    "num_shards",
    0,
    "Files: NAME-00000-of-00064.tfrecord and so on; 0: as --output_file says.",
    upper_bound=99_999,  # as the names have five digits
)
flags.DEFINE_enum("compression", "none", shards.COMPRESSIONS, "Of the record files.")
flags.DEFINE_bool("drop_duplicates", False, "Of equal documents, use only the first.")
flags.DEFINE_float(
    "near_duplicates",
    0.0,
    "Leave out documents that share so much of their runs of five words with an earlier one, as "
    "in 0.8; 0: none.",
    lower_bound=0,
    upper_bound=1,
)
flags.DEFINE_list(
    "languages", [], "Leave out documents that are in none of these, as in en,de; default: none."
)
flags.DEFINE_integer(
    "boilerplate_documents",
    0,
    "Leave out lines that stand in at least so many documents, as in 20; 0: none.",
    lower_bound=0,
)
pretraining_flags.define_pretraining_worker_flags()
flags.adopt_module_key_flags(data_flags)
flags.adopt_module_key_flags(pretraining_flags)
flags.DEFINE_string(
    "runner", "local", "local, or a runner of Apache Beam: DirectRunner, DataflowRunner, …"
)
flags.DEFINE_string("beam_options", "", "Beam's own options, in one string.")


def main(_: list[str]) -> None:
    take_text_folding(FLAGS, kept_folding(os.path.dirname(FLAGS.vocab_file) or "."))
    files = corpus.expand(FLAGS.input_file)
    logging.info("Reading %d files: %s%s", len(files), files[0], " …" if files[1:] else "")
    name, output_files = shards.name_shards(FLAGS.output_file, FLAGS.num_shards)
    replaced = [name, *output_files, *manifest.files_beside_records(name)]
    check_inputs_survive(
        {"input_file": files, "vocab_file": [FLAGS.vocab_file]}, {"output_file": replaced}
    )
    with one_writer(files={"output_file": [name, *output_files]}):
        write(files, name, output_files)


def write(files: list[str], name: str, output_files: list[str]) -> None:
    """Plans the job and does it."""
    idle = [f"--{name}" for name in pretraining_flags.MASKING if FLAGS[name].present]
    if FLAGS.dynamic_masking and idle:
        logging.warning(
            "%s: nothing is masked here with --dynamic_masking. Give it to run_pretraining.py.",
            ", ".join(idle),
        )
    job = jobs.plan_job(
        files,
        output_files,
        FLAGS.vocab_file,
        settings.InstanceSettings(
            max_seq_length=FLAGS.max_seq_length,
            max_predictions_per_seq=FLAGS.max_predictions_per_seq,
            random_seed=FLAGS.random_seed,
            objective=FLAGS.objective,
            dynamic_masking=FLAGS.dynamic_masking,
            **pretraining_flags.pretraining_instance_settings(FLAGS),
        ),
        name=name,
        text_field=FLAGS.text_field,
        compression=FLAGS.compression,
        drop_duplicates=FLAGS.drop_duplicates,
        near_duplicates=FLAGS.near_duplicates,
        languages=FLAGS.languages,
        boilerplate_documents=FLAGS.boilerplate_documents,
    )
    logging.info(
        "%.1f MB of text in %d parts, to %d files",
        job.corpus.text_bytes / 1e6,
        len(job.corpus),
        len(output_files),
    )
    if FLAGS.runner == "local":
        summary = local.write_job_locally(job, FLAGS.num_workers)
    else:
        summary = beam_pipeline.write_records_with_beam(job, FLAGS.runner, FLAGS.beam_options)
    logging.info("Done: %s.", summary)
    for path in output_files:
        logging.info("Wrote %s", path)
    logging.info("Wrote %s", manifest.manifest_path(name))


if __name__ == "__main__":
    flags.mark_flags_as_required(["input_file", "output_file", "vocab_file"])
    errors.run(main, DataError, flag_values=FLAGS)
