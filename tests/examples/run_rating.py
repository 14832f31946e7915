"""Fine-tunes BERT to rate pairs of texts from 1 to 5: how well does a review fit a product?

    python -m tests.examples.run_rating --train_file=train.tsv --dev_file=dev.tsv \\
        --test_file=test.tsv --do_train --do_eval --do_predict \\
        --vocab_file=$BERT_BASE_DIR/vocab.txt \\
        --bert_config_file=$BERT_BASE_DIR/bert_config.json \\
        --init_checkpoint=$BERT_BASE_DIR/bert_model.ckpt --output_dir=/tmp/rating_output/

Files are TSV with a header: text_a, text_b and rating. --do_predict writes predictions.tsv,
--do_export a SavedModel from text_a and text_b to rating.
"""

from absl import flags

from modeling import flags as model_flags
from modeling.serving import flags as export_flags
from modeling.training import flags as training_flags
from modeling.training.engine import flags as hardware_flags
from tests.examples.rating import flags as rating_flags

FLAGS = flags.FLAGS

rating_flags.define_rating_flags()
model_flags.define_model_flags()
training_flags.define_fine_tuning_flags()
training_flags.define_training_evaluation_flag()
hardware_flags.define_hardware_flags()
export_flags.define_export_flags()
REQUIRED = ("output_dir",)

if __name__ == "__main__":
    # Before TensorFlow is imported, which takes seconds.
    model_flags.answer_help(FLAGS, __doc__)

from modeling import quiet  # noqa: F401  isort: skip

import os

import tensorflow as tf
from absl import logging

from data.errors import DataError
from data.files.locks import one_run
from data.tokenization import Tokenizer, build_inputs
from modeling import errors
from modeling.config import BertConfig
from modeling.losses import MultiLabelLosses
from modeling.models import BertClassifier
from modeling.serving.buckets import in_buckets
from modeling.serving.export import Export, Signature
from modeling.training.engine.distribution import is_chief
from modeling.training.engine.evaluation import ReplicaPredictor
from modeling.training.fine_tuning import fine_tune
from modeling.training.given_model import check_training_fits_model
from modeling.training.reports.contents import MOST_MISTAKES, Mistake, TaskReport
from modeling.training.reports.intervals import wilson_interval
from modeling.training.runs.reporting import write_run_results
from modeling.training.runs.session import run_outputs, task_session
from modeling.training.settings import fine_tuning_settings
from modeling.training.task import TaskEvaluation
from tests.examples.rating import ratings, reading

FILES = {"train": "train_file", "dev": "dev_file", "test": "test_file"}


class Rating:
    """Ratings of pairs, as `modeling.training.task.Task` wants it; its answers are logits."""

    losses = MultiLabelLosses()
    result_names = (*(f"eval_{name}" for name in ratings.NAMES), "eval_loss")

    def __init__(self, tokenizer: Tokenizer, config: BertConfig):
        self.tokenizer = tokenizer
        self.config = config
        self.identity = {"bert_config_file": config.encoder_dict()}

    def read(self, purpose: str) -> list:
        path = FLAGS[FILES[purpose]].value
        if not path:
            raise DataError(
                f"--{FILES[purpose]} is missing: a TSV file with the columns text_a and text_b, "
                f"and rating to train and to evaluate."
            )
        return [reading.read_split(purpose, path, self.tokenizer, FLAGS.max_seq_length)]

    def make_model(self):
        model = BertClassifier(self.config, len(reading.THRESHOLDS), remat=FLAGS.remat)
        model.build()
        return model

    def predictor(self, model):
        predictor = ReplicaPredictor(model)
        return lambda split, batches: predictor(batches(split))

    def evaluate(self, split, logits) -> TaskEvaluation:
        label_ids = split.features.label_ids
        predicted = ratings.of(logits)
        scores = ratings.evaluate(ratings.of(label_ids), predicted)
        losses, _ = self.losses({"logits": logits}, {"label_ids": label_ids})
        scores["loss"] = float(losses["loss"].result())
        return TaskEvaluation(
            {f"eval_{name}": value for name, value in scores.items()},
            constant=f"the rating {predicted[0]}" if len(set(predicted)) == 1 else "",
        )

    def write_evaluation(self, split, logits, results, first: bool) -> TaskReport:
        """Writes eval_results.txt; returns what card and page say."""
        write_run_results(FLAGS.output_dir, "eval_results.txt", results)
        gold, predicted = ratings.of(split.features.label_ids), ratings.of(logits)
        error, pairs = abs(predicted - gold), split.examples
        worst = (-error).argsort(kind="stable")[: min(MOST_MISTAKES, (error > 0).sum())]
        return TaskReport(
            task="text-classification",
            described="a rating from 1 to 5",
            data=os.path.basename(FLAGS.dev_file),
            examples=len(pairs),
            unit="pairs",
            results={name: results[name] for name in self.result_names},
            intervals={"eval_accuracy": wilson_interval((error == 0).sum(), len(pairs))},
            outcomes=error,
            outcome="absolute error",
            lengths=split.features.lengths,
            numbers=(gold, predicted),
            mistakes=[
                Mistake(
                    pairs[n].source,
                    str(gold[n]),
                    str(predicted[n]),
                    float(error[n]),
                    [("text_a", pairs[n].text_a), ("text_b", pairs[n].text_b)],
                )
                for n in worst
            ],
            mistake_value="absolute error",
            example=f"{pairs[0].text_a}\t{pairs[0].text_b}",
        )

    def write_predictions(self, split, logits, step: int, first: bool) -> None:
        if is_chief():
            path = os.path.join(FLAGS.output_dir, "predictions.tsv")
            ratings.write_predictions(path, split.examples, logits)
            logging.info("Wrote the ratings of %d pairs to %s", len(logits), path)

    def export(self, model) -> str:
        """A SavedModel from text_a and text_b to rating and its mean by the probabilities."""
        export = Export.from_flags(FLAGS)
        servable = export.servable(model)

        def answer(text_a, text_b):
            inputs = build_inputs(
                self.tokenizer, text_a, text_b, FLAGS.max_seq_length, pad_to="longest"
            )
            empty = tf.zeros([tf.size(text_a), len(reading.THRESHOLDS)])
            logits = in_buckets(servable, inputs, {"logits": empty})["logits"]
            return {
                "rating": 1 + tf.reduce_sum(tf.cast(logits > 0, tf.int32), 1),
                "expected": 1 + tf.reduce_sum(tf.sigmoid(logits), 1),
            }

        text = tf.TensorSpec([None], tf.string)
        signature = Signature(answer, {"text_a": text, "text_b": text})
        return export.write(servable, {"serving_default": signature})


def main(_) -> None:
    settings = fine_tuning_settings(FLAGS)
    with (
        one_run(FLAGS, *run_outputs(FLAGS)),
        task_session(FLAGS, settings) as (settings, summary),
    ):
        tokenizer = Tokenizer(FLAGS.vocab_file, FLAGS.do_lower_case, (), FLAGS.strip_accents)
        check_training_fits_model(FLAGS, settings.config, tokenizer.vocab_size)
        fine_tune(Rating(tokenizer, settings.config), settings, summary)


if __name__ == "__main__":
    flags.mark_flags_as_required(REQUIRED)
    errors.run(main, DataError, flag_values=FLAGS)
