"""Fine-tunes BERT on sentences and pairs: GLUE, XNLI, multiple choice, your own files.

    python run_classifier.py --task_name=MRPC --do_train=true --do_eval=true \\
        --data_dir=$GLUE_DIR/MRPC --vocab_file=$BERT_BASE_DIR/vocab.txt \\
        --bert_config_file=$BERT_BASE_DIR/bert_config.json \\
        --init_checkpoint=$BERT_BASE_DIR/bert_model.ckpt --max_seq_length=128 \\
        --train_batch_size=32 --learning_rate=2e-5 --num_train_epochs=3.0 \\
        --output_dir=/tmp/mrpc_output/
From nothing, in a few minutes, on what is installed:
    python run_classifier.py --demo

With --learning_rates=5e-5,4e-5,3e-5,2e-5 --num_runs=5 it searches as the paper did. --do_predict
writes test_results.tsv and predictions.tsv, and test_results.txt where the right labels are known;
--do_export a SavedModel that takes raw text.
"""

from absl import flags

from data.tasks import flags as task_flags
from data.tasks.sentences import flags as sentence_flags
from modeling import flags as model_flags
from modeling.serving import flags as export_flags
from modeling.training import flags as training_flags
from modeling.training.engine import flags as hardware_flags

FLAGS = flags.FLAGS

sentence_flags.define_sentence_flags()
model_flags.define_model_flags()
model_flags.define_student_flags()
model_flags.define_classifier_model_flags()
training_flags.define_fine_tuning_flags()
training_flags.define_student_command_flag()
training_flags.define_training_evaluation_flag()
training_flags.define_class_weights_flag()
training_flags.define_head_flag()
hardware_flags.define_hardware_flags()
export_flags.define_export_flags("student")
# What the original requires besides, the folder of a trained model tells.
REQUIRED = ("output_dir",)

if __name__ == "__main__":
    # Before TensorFlow is imported, which takes seconds.
    model_flags.answer_help(FLAGS, __doc__)

from modeling import quiet  # noqa: F401  isort: skip

import copy
import functools
import os

import numpy as np
from absl import logging

from data import progress
from data.demo import comparison, libraries
from data.errors import DataError
from data.files import atomic
from data.files.locks import one_run
from data.tasks import labels
from data.tasks.sentences import delimited, glue_submission, predictions, reading, tuned
from data.tasks.sentences.examples import SentenceKind, SentenceTask
from data.tasks.sentences.flags import OWN_FILES
from data.tasks.sentences.predictions import THRESHOLD
from data.tasks.sentences.rows import SentenceSettings, count_cut_sentences
from data.tokenization import Tokenizer, build_choice_inputs, build_inputs
from modeling import checkpoints, errors, from_pretrained, metrics
from modeling.checkpoints.heads import head_checksum
from modeling.config import BertConfig
from modeling.logs import activity
from modeling.serving.export import Export
from modeling.serving.sentences import export_sentence_model
from modeling.training.distillation.students import run_students
from modeling.training.engine.distribution import is_chief
from modeling.training.engine.evaluation import ReplicaPredictor
from modeling.training.fine_tuning import fine_tune
from modeling.training.given_model import check_training_fits_model
from modeling.training.reports.contents import MOST_MISTAKES, Mistake, TaskReport
from modeling.training.reports.sentences import positive_label_note, sentence_fields
from modeling.training.runs import charts
from modeling.training.runs.identity import weights_identity
from modeling.training.runs.reporting import tell_of_earlier_results, write_run_results
from modeling.training.runs.run_folder import holds_model
from modeling.training.runs.session import run_outputs, task_session
from modeling.training.sentences import SentenceHead, load_second_encoder, read_second_config
from modeling.training.settings import fine_tuning_settings, training_class_weights
from modeling.training.task import TaskEvaluation


class SentenceClassification:
    """One of the tasks on sentences, as `modeling.training.task.Task` wants it."""

    def __init__(self, task: SentenceTask, tokenizer: Tokenizer, config: BertConfig):
        self.task = task
        self.tokenizer = tokenizer
        self.config = config.with_head(task.kind.value, task.labels)
        self.second = read_second_config(FLAGS, config)
        if self.second:
            path = FLAGS.second_bert_config_file
            check_training_fits_model(FLAGS, self.second, tokenizer.vocab_size, path)
            if FLAGS.second_init_checkpoint:
                checkpoints.check_vocabulary(FLAGS.second_init_checkpoint, FLAGS.vocab_file)
        self.settings = SentenceSettings(
            FLAGS.max_seq_length, FLAGS.long_text, FLAGS.window_stride, FLAGS.max_windows
        )
        # Several workers would write the same file.
        self.cache = FLAGS.cache_features and is_chief()
        self.head = SentenceHead(task.kind.value, len(task.labels))
        self.result_names = [*(f"eval_{name}" for name in task.metrics), "eval_loss"]
        self.tuned = self.model = None
        names = ("bilstm", "window_pooling", "class_weights", "train_batch_tokens")
        names += ("original_head",)
        self.identity = {
            "task_name": task.name,
            "label_column": FLAGS.label_column,
            "labels": task.labels,
            "label_kind": task.kind.value,
            "bert_config_file": config.encoder_dict(),
            "second_bert_config_file": self.second and self.second.encoder_dict(),
            "second_init_checkpoint": weights_identity(FLAGS.second_init_checkpoint),
            **{name: FLAGS[name].value for name in names},
        }

    def read(self, purpose: str) -> list:
        cache = os.path.join(FLAGS.output_dir, "features") if self.cache else None
        positions = self.config.max_position_embeddings
        splits = reading.read_sentence_splits(
            self.task,
            purpose,
            self.tokenizer,
            self.settings,
            FLAGS.data_dir,
            cache,
            FLAGS.train_batch_tokens if purpose == "train" else 0,
            {"train": FLAGS.max_train_examples, "dev": FLAGS.max_eval_examples}.get(purpose, 0),
            positions,
        )
        if purpose == "train":
            self.head = SentenceHead(
                self.task.kind.value,
                len(self.task.labels),
                self._weights(splits[0]),
                None if FLAGS.original_head else splits[0].features.label_ids,
            )
            content = delimited.saved_sentence_labels(self.task)
            labels.keep_labels(FLAGS.output_dir, content, is_chief(), holds_model(FLAGS.output_dir))
            if FLAGS.transfer_file:
                how = (self.task, self.tokenizer, self.settings, cache, positions)
                unlabelled = reading.read_unlabelled_sentences(FLAGS, *how)
                splits[0] = splits[0].with_unlabelled(unlabelled)
        return splits

    def read_with(self, tokenizer: Tokenizer) -> list:
        other = copy.copy(self)
        other.tokenizer, other.cache = tokenizer, False
        return other.read("train")

    def _weights(self, train) -> list[float] | None:
        """What --class_weights says."""
        if FLAGS.class_weights == ["balanced"]:
            return delimited.balanced_sentence_weights(train.examples, self.task.labels)
        return training_class_weights(FLAGS)

    @property
    def losses(self):
        return self.head.losses

    def make_model(self):
        model = self.head.make_model(
            self.config, FLAGS.bilstm, FLAGS.window_pooling, FLAGS.remat, self.second
        )
        if FLAGS.second_init_checkpoint:
            load_second_encoder(model, FLAGS.second_init_checkpoint)
        return model

    def predictor(self, model):
        predictor, self.model = ReplicaPredictor(model), model
        self.target_scale = getattr(model, "target_scale", None)
        return lambda split, batches: predictor(batches(split))

    def evaluate(self, split, logits) -> TaskEvaluation:
        known = _with_label(split)
        if not known.any():
            return TaskEvaluation({})
        logits, label_ids = logits[known], split.features.label_ids[known]
        scale = 1.0 if self.target_scale is None else float(self.target_scale.numpy()[0])
        results = self.head.evaluate(logits, label_ids, self.task.metrics, scale)
        outputs = self.head.probabilities(logits)
        return TaskEvaluation(
            results, self.head.constant_answer(outputs, label_ids, self.task.labels)
        )

    def write_evaluation(self, split, logits, results, first: bool) -> TaskReport | None:
        """eval_results.txt, and for people: report by class, confusion matrix, worst errors."""
        end = "" if first else f"_{split.name}"
        write_run_results(FLAGS.output_dir, f"eval_results{end}.txt", {**results, **split.left_out})
        self._report(split, logits, end)
        if first:
            self._tune(split, logits)
        return self._judged(split, logits, results) if is_chief() else None

    def _tune(self, split, logits) -> None:
        """Thresholds or a temperature; all workers find the same."""
        known = _with_label(split)
        self.tuned = self.head.tune(logits[known], split.features.label_ids[known])
        if is_chief():
            weights = head_checksum(self.model)
            tuned.keep_tuned(FLAGS.output_dir, self.task.labels, self.tuned, weights)

    @property
    def answering(self) -> dict:
        """What is tuned and asked for by its flag, see `SentenceHead.tune`; else nothing."""
        if "tuned" not in (FLAGS.label_thresholds, FLAGS.temperature):
            return {}
        if self.tuned is None:
            weights = head_checksum(self.model)
            self.tuned = tuned.kept_tuned(FLAGS, self.task.kind, self.task.labels, weights)
        return self.tuned

    def _judged(self, split, logits, results) -> TaskReport:
        """What card and page say of the examples that have a label."""
        known, kind, names = _with_label(split), self.task.kind, self.task.labels
        outputs = self.head.probabilities(logits)
        examples = [example for example in split.examples if example.label is not None]
        fields = sentence_fields(
            kind.value, outputs[known], split.features.label_ids[known], names, self.task.metrics
        )
        worst = predictions.worst_sentence_mistakes(
            split.examples, kind, names, outputs, MOST_MISTAKES
        )
        cut = count_cut_sentences(
            self.tokenizer, split.examples, kind, self.settings, split.features
        )
        limits = [
            f"{cut:,} of {len(split.examples):,} examples were cut (--long_text="
            f"{self.settings.long_text}, --max_seq_length={self.settings.max_seq_length})."
        ]
        data = f"{self.task.name}, {split.name}"
        if self.task.name in (OWN_FILES, "multiple_choice"):
            data = os.path.basename(examples[0].source.rpartition(":")[0])
        return TaskReport(
            **{**fields, "limits": limits + fields["limits"]},
            data=data,
            unit="examples",
            results={name: results[name] for name in self.result_names},
            lengths=split.features.lengths[known],
            mistakes=[
                Mistake(
                    m.example.source, predictions.label_text(m.example.label), *m[1:], m.texts()
                )
                for m in worst
            ],
            example=predictions.asked_sentence(examples[0]),
        )

    def _report(self, split, logits, end: str) -> None:
        """Files for people about the examples that have a label."""
        if not is_chief():
            return
        known = _with_label(split)
        outputs = self.head.probabilities(logits)
        judged, label_ids = outputs[known], split.features.label_ids[known]
        path = os.path.join(FLAGS.output_dir, "{}" + end + "{}")
        kind, names = self.task.kind, self.task.labels
        if kind in (SentenceKind.CLASSES, SentenceKind.MULTI_LABEL):
            report = metrics.format_metrics_report(
                metrics.class_metrics_report(judged, label_ids, names)
            )
            logging.info("%s by class\n%s", split.name, report)
            if "f1" in self.task.metrics:
                logging.info("%s", positive_label_note(names))
            atomic.write_text(path.format("class_report", ".txt"), report + "\n")
        if kind is SentenceKind.CLASSES:
            matrix = metrics.confusion_matrix(judged, label_ids, len(names))
            charts.confusion_png(matrix, names, path.format("confusion", ".png"))
        path = path.format("errors", ".tsv")
        raw = FLAGS.raw_cells
        predictions.write_sentence_errors(path, split.examples, kind, names, outputs, raw_cells=raw)

    def _write_scores(self, split, logits, step: int, end: str) -> None:
        """test_results.txt, and what people read, where the file has labels."""
        results = self.evaluate(split, logits).results
        if not results:
            files = ("class_report_{}.txt", "confusion_{}.png", "errors_{}.tsv")
            names = [f"test_results{end}.txt", *(file.format(split.name) for file in files)]
            tell_of_earlier_results(FLAGS.output_dir, names)
            return
        known = int(_with_label(split).sum())
        if known < len(split.examples):
            results = {**results, "scored_rows": known}
            logging.warning(
                "%s: %d of %d rows have a label; only these are scored.",
                split.name,
                known,
                len(split.examples),
            )
        named = {name.replace("eval_", "test_"): value for name, value in results.items()}
        named |= {"global_step": step, **split.left_out}
        write_run_results(FLAGS.output_dir, f"test_results{end}.txt", named)
        self._report(split, logits, f"_{split.name}")

    def write_predictions(self, split, logits, step: int, first: bool) -> None:
        """test_results.tsv, predictions.tsv, scores, and what the GLUE server wants."""
        end = "" if first else f"_{split.name}"
        self._write_scores(split, logits, step, end)
        if not is_chief():
            return
        outputs = self.head.probabilities(logits, self.answering.get("temperature", 1.0))
        columns = outputs[:, None] if self.task.kind is SentenceKind.REGRESSION else outputs
        predictions.write_sentence_test_results(
            os.path.join(FLAGS.output_dir, f"test_results{end}.tsv"), columns
        )
        path = os.path.join(FLAGS.output_dir, f"predictions{end}.tsv")
        predictions.write_predictions(
            path,
            split.examples,
            self.task.kind,
            self.task.labels,
            outputs,
            FLAGS.raw_cells,
            self.answering.get("label_thresholds", THRESHOLD),
        )
        logging.info("Wrote the predictions of %d examples to %s", len(outputs), path)
        if FLAGS.glue_submission:
            folder = os.path.join(FLAGS.output_dir, "glue_submission")
            majority = FLAGS.wnli_majority and self.task.name == "wnli"
            path = glue_submission.write_submission(
                folder, self.task.name, split.name, outputs, majority
            )
            logging.info("Wrote %s", path)

    def export(self, model) -> str:
        """A SavedModel from raw text to answers."""
        if self.task.kind is SentenceKind.CHOICES:
            preprocess = functools.partial(
                build_choice_inputs,
                self.tokenizer,
                max_seq_length=FLAGS.max_seq_length,
                pad_to="longest",
                long_text=FLAGS.long_text,
            )
        else:
            preprocess = functools.partial(
                build_inputs,
                self.tokenizer,
                max_seq_length=FLAGS.max_seq_length,
                pad_to="longest",
                long_text=FLAGS.long_text,
                window_stride=FLAGS.window_stride,
                max_windows=FLAGS.max_windows,
            )
        kind, names = self.task.kind.value, self.task.labels
        export = Export.from_flags(FLAGS)
        # Only of own files the columns have names that the user knows.
        columns = getattr(self.task, "columns", None)
        return export_sentence_model(
            model, export, kind, preprocess, names, self.task.pairs, columns, **self.answering
        )


def _with_label(split) -> np.ndarray:
    """Which examples have one, bool [N]."""
    return np.array([example.label is not None for example in split.examples], bool)


def main(_) -> None:
    if FLAGS.demo:
        comparison.run_demo(FLAGS, __file__, libraries, libraries.make_library_demo)
        return
    if FLAGS.student:
        run_students(FLAGS, __file__, comparison.run_shown)
        return
    settings = fine_tuning_settings(FLAGS)
    with (
        one_run(FLAGS, *run_outputs(FLAGS)),
        task_session(FLAGS, settings) as (settings, summary),
    ):
        tokenizer = Tokenizer(FLAGS.vocab_file, FLAGS.do_lower_case, (), FLAGS.strip_accents)
        config = settings.config
        check_training_fits_model(FLAGS, config, tokenizer.vocab_size)
        task = reading.open_sentence_task(FLAGS, FLAGS.do_train, config.head, config.labels)
        reading.check_idle_sentence_flags(FLAGS, task.name)
        tuned.check_tuned_flags(FLAGS, task.kind)
        fine_tune(
            SentenceClassification(task, tokenizer, config), settings, summary, from_pretrained
        )


if __name__ == "__main__":
    task_flags.mark_required_unless_demo(REQUIRED)
    progress.show_with(activity)
    errors.run(main, DataError, flag_values=FLAGS)
