"""What masks drawn while training cost: steps on masked records, on fresh masks, on raw text.

    python -m tests.benchmarks.dynamic_masking --corpus='enwiki/train/*' --vocab_file=vocab.txt

Records of the corpus' first files are made with the defaults of data.create_pretraining_data. One
and the same training step of a 4-layer model, 256 wide, then takes --calls times --steps batches
of 32 × 128 from each way of reading, in turns, so that what else the machine does meets them all.
"""

from modeling import quiet  # noqa: F401  isort: skip

import os
import statistics
import tempfile
import time

import keras
from absl import app, flags

from data.pretraining import corpus
from data.pretraining.batches import pipeline, text_stream
from data.pretraining.corpus import parts
from data.pretraining.instances.masking import MaskingVocabulary, MaskSettings
from data.pretraining.instances.settings import InstanceSettings
from data.pretraining.writing import jobs, local
from data.tokenization import Tokenizer
from modeling.config import BertConfig
from modeling.losses import PretrainingLosses
from modeling.models import BertPretrainer
from modeling.training.engine.precision import set_precision
from modeling.training.engine.setup import EngineSettings, make_train_step

FLAGS = flags.FLAGS
LENGTH, PREDICTIONS = 128, 20


def make_datasets(folder: str) -> dict[str, object]:
    """The ways of reading, the one that others are compared with first."""
    files = corpus.expand(FLAGS.corpus)[: FLAGS.files]
    settings = InstanceSettings(max_seq_length=LENGTH, max_predictions_per_seq=PREDICTIONS)
    output = os.path.join(folder, "made.tfrecord")
    job = jobs.plan_job(files, [output], FLAGS.vocab_file, settings, name=output)
    local.write_job_locally(job, 1)
    tokenizer = Tokenizer(FLAGS.vocab_file)
    vocabulary = MaskingVocabulary.from_tokenizer(tokenizer)

    def stored(**options):
        return pipeline.pretraining_dataset(
            [output],
            LENGTH,
            PREDICTIONS,
            len(tokenizer.vocab),
            batch_size=FLAGS.batch_size,
            training=True,
            **options,
        )

    masks = MaskSettings(vocabulary)
    whole_words = MaskSettings(vocabulary, do_whole_word_mask=True, max_ngram=3)
    divided = parts.divide_corpus(files, text_stream.number_of_stream_parts)
    return {
        "masked records": stored(),
        "fresh masks": stored(dynamic_masking=masks),
        "fresh spans of words": stored(dynamic_masking=whole_words),
        "raw text": text_stream.stream_instances(
            divided, tokenizer, settings, masks, batch_size=FLAGS.batch_size, seed=1
        ),
    }


def main(_: list[str]) -> None:
    set_precision(FLAGS.dtype)
    keras.utils.set_random_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        datasets = make_datasets(folder)
        config = BertConfig(
            len(Tokenizer(FLAGS.vocab_file).vocab),
            hidden_size=256,
            num_hidden_layers=4,
            num_attention_heads=4,
            intermediate_size=1024,
            max_position_embeddings=LENGTH,
        )
        model = BertPretrainer(config)
        model.build()
        settings = EngineSettings(1e-4, 10**6, 10, seed=0)
        step = make_train_step(model, PretrainingLosses(True), settings)
        # The step knows one signature: index is for messages only.
        iterators = {
            name: iter(data.map(lambda batch: {k: v for k, v in batch.items() if k != "index"}))
            for name, data in datasets.items()
        }
        times: dict[str, list[float]] = {name: [] for name in iterators}
        for call in range(FLAGS.calls + 1):
            for name, iterator in iterators.items():
                start = time.perf_counter()
                step.run(iterator, FLAGS.steps)
                if call:  # the first one compiles and fills buffers
                    times[name].append((time.perf_counter() - start) / FLAGS.steps)
        first = times[next(iter(times))]
        print(f"| {FLAGS.dtype} | ms a step | against masked records |\n|---|---:|---:|")
        for name, seconds in times.items():
            ratios = [mine / other for mine, other in zip(seconds, first, strict=True)]
            print(
                f"| {name} | {1000 * statistics.median(seconds):.1f} "
                f"| {statistics.median(ratios) - 1:+.1%} ({min(ratios) - 1:+.1%} to "
                f"{max(ratios) - 1:+.1%}) |"
            )


if __name__ == "__main__":
    flags.DEFINE_string("corpus", None, "Globs of text files.")
    flags.DEFINE_string("vocab_file", None, "The vocabulary.")
    flags.DEFINE_integer("files", 8, "How many of the files are read.")
    flags.DEFINE_integer("batch_size", 32, "Records a step.")
    flags.DEFINE_integer("calls", 9, "Timed calls of each way.")
    flags.DEFINE_integer("steps", 10, "Steps a call.")
    flags.DEFINE_string("dtype", "float32", "float32 or bfloat16.")
    flags.mark_flags_as_required(["corpus", "vocab_file"])
    app.run(main)
