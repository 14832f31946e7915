"""Fine-tunes BERT to answer questions about texts: SQuAD 1.1 and 2.0, and whatever has their form.

    python run_squad.py --vocab_file=$BERT_BASE_DIR/vocab.txt \\
        --bert_config_file=$BERT_BASE_DIR/bert_config.json \\
        --init_checkpoint=$BERT_BASE_DIR/bert_model.ckpt --do_train=True \\
        --train_file=$SQUAD_DIR/train-v1.1.json --do_predict=True \\
        --predict_file=$SQUAD_DIR/dev-v1.1.json --train_batch_size=12 --learning_rate=3e-5 \\
        --num_train_epochs=2.0 --max_seq_length=384 --doc_stride=128 --output_dir=/tmp/squad_base/
From nothing, in a few minutes, on what is installed:
    python run_squad.py --demo

Writes predictions.json, nbest_predictions.json and, for SQuAD 2.0, null_odds.json; where the file
has answers also eval_results.json with exact match and F1. --eval_steps and a search evaluate on
--predict_file. With --do_export a SavedModel that takes question and context.
"""

from absl import flags

from data.tasks import flags as task_flags
from data.tasks.questions import flags as question_flags
from modeling import flags as model_flags
from modeling.serving import flags as export_flags
from modeling.training import flags as training_flags
from modeling.training.engine import flags as hardware_flags

FLAGS = flags.FLAGS

question_flags.define_question_flags()
model_flags.define_model_flags()
model_flags.define_student_flags()
training_flags.define_fine_tuning_flags()
training_flags.define_student_command_flag()
hardware_flags.define_hardware_flags()
export_flags.define_export_flags("student")
REQUIRED = ("output_dir",)

if __name__ == "__main__":
    # Before TensorFlow is imported, which takes seconds.
    model_flags.answer_help(FLAGS, __doc__)

from modeling import quiet  # noqa: F401  isort: skip

import dataclasses
import functools
import itertools
import json
import os

import numpy as np
import tensorflow as tf
from absl import logging

from data import progress
from data.demo import arguments, comparison
from data.errors import DataError
from data.files.locks import one_run
from data.tasks import kept
from data.tasks.questions import answers as answer_files
from data.tasks.questions import (
    mistakes,
    original,
    original_answers,
    reading,
    scoring,
    windows,
)
from data.tasks.questions.rows import make_question_rows
from data.tokenization import Tokenizer
from modeling import checkpoints, errors, from_pretrained
from modeling.answers.confidence import PlattCalibration, fit_platt_calibration
from modeling.answers.spans import SpanLogits, SpanSearch, merge_span_arrays
from modeling.checkpoints.heads import head_checksum
from modeling.config import BertConfig
from modeling.logs import activity
from modeling.losses import SpanLosses
from modeling.models import BertQuestionAnswering
from modeling.serving.export import Export
from modeling.serving.question_answering import export_question_answering
from modeling.training.distillation.students import run_students
from modeling.training.engine.distribution import is_chief
from modeling.training.engine.evaluation import ReplicaPredictor
from modeling.training.fine_tuning import fine_tune
from modeling.training.given_model import check_training_fits_model
from modeling.training.reports.contents import MOST_MISTAKES, Mistake, TaskReport
from modeling.training.reports.questions import question_fields
from modeling.training.runs.reporting import tell_of_earlier_results
from modeling.training.runs.run_state import load_trained_run
from modeling.training.runs.session import run_outputs, task_session
from modeling.training.settings import FineTuningSettings, fine_tuning_settings
from modeling.training.task import TaskEvaluation

CALIBRATION = "answer_calibration.json"
_SCORED = ("eval_results.json", "model_card.md", "report.html")


class QuestionAnswering:
    """Spans as answers, as `modeling.training.task.Task` wants it; answers come one by one."""

    losses = SpanLosses()

    def __init__(self, tokenizer: Tokenizer, config: BertConfig):
        self.tokenizer = tokenizer
        self.config = config.with_head("spans")
        # What lies beside the weights that training begins with is of none of the trained ones.
        self.initial = None if FLAGS.do_train else FLAGS.init_checkpoint
        self.scoring = scoring.Scoring(FLAGS, self.initial)
        self.model = None
        self.settings = reading.question_settings(FLAGS)
        self.read_in_parts = self.full_questions = 0
        exact = "eval_exact" if self.scoring.version_2 else "eval_exact_match"
        self.result_names = ["eval_f1", exact]
        self.identity = {
            "bert_config_file": config.encoder_dict(),
            "version_2_with_negative": self.scoring.version_2,
            "epochs_per_file": FLAGS.epochs_per_file,
            "original_step_count": FLAGS.original_step_count,
        }
        names = ("n_best_size", "max_answer_length", "null_score_diff_threshold", "characters")
        names += ("original_postprocessing", *(f.name for f in dataclasses.fields(self.settings)))
        self.judging = {name: FLAGS[name].value for name in names}

    def read(self, purpose: str) -> list:
        positions = self.config.max_position_embeddings
        if purpose == "train":
            splits = reading.read_training_questions(FLAGS, self.tokenizer, positions)
            if FLAGS.transfer_file:
                unlabelled = reading.read_unlabelled_questions(FLAGS, self.tokenizer, positions)
                splits[-1] = splits[-1].with_unlabelled(unlabelled)
            return splits
        split = reading.read_to_answer(FLAGS, purpose, self.tokenizer, positions)
        lacking = self.scoring.without_answers(split.examples)
        if purpose == "test" and lacking:
            self.scoring.threshold()  # else that there is none would be noticed after training
        if purpose == "dev" and lacking:
            raise errors.ModelingError(
                f"{FLAGS.predict_file} doesn't say what the right answers to {lacking} of its "
                f"{len(split.examples)} questions are, so that there is nothing to evaluate on "
                f"while training; leave out --eval_steps and the search."
            )
        return [split]

    def read_with(self, tokenizer: Tokenizer) -> None:
        return None  # spans of other pieces are other spans

    def make_model(self):
        model = BertQuestionAnswering(self.config, remat=FLAGS.remat)
        model.build()
        return model

    def predictor(self, model):
        """Alone while training; in the end together with the models of --ensemble."""
        self.model = model

        @functools.cache
        def of(*models):
            if FLAGS.original_postprocessing:
                return ReplicaPredictor(SpanLogits(models), "span_logits")
            search = SpanSearch(models, FLAGS.n_best_size, FLAGS.max_answer_length)
            return ReplicaPredictor(search, "spans")

        def predict(split, batches):
            predictor = of(model, *(self.ensemble() if split.name == "test" else ()))
            answer = self._as_original if FLAGS.original_postprocessing else self._slices
            return answer(predictor, split, batches)

        return predict

    @functools.cache  # noqa: B019
    def ensemble(self) -> list:
        models = []
        for path in FLAGS.ensemble:
            models.append(self.make_model())
            checkpoints.check_vocabulary(path, FLAGS.vocab_file)
            folder = tf.io.gfile.isdir(path)
            load_trained_run(models[-1], path if folder else "", None if folder else path)
        return models

    @property
    def weights(self) -> str:
        """What answers: checksums of the models, and whether the original's way."""
        models = [head_checksum(model) for model in (self.model, *self.ensemble())]
        return " ".join([*models, *["original"] * FLAGS.original_postprocessing])

    def _slices(self, predictor, split, batches):
        """Answers as slices of their contexts, some questions at a time."""
        self.read_in_parts = self.full_questions = 0
        with activity("Answering", "questions", len(split.examples)) as shown:
            for begin in range(0, len(split.examples), reading.QUESTIONS_AT_ONCE):
                some = split.examples[begin : begin + reading.QUESTIONS_AT_ONCE]
                rows = make_question_rows(self.tokenizer, some, self.settings, training=False)
                spans = predictor(batches(dataclasses.replace(split, features=rows.features)))
                merged = merge_span_arrays(spans, rows.counts)
                self.read_in_parts += int((rows.counts > 1).sum())
                self.full_questions += rows.questions_of_length(FLAGS.max_query_length)
                yield from answer_files.read_answers(some, rows, merged, self.scoring.version_2)
                shown.add(len(some))

    def _as_original(self, predictor, split, batches):
        """Answers as the original puts them together."""
        examples = original.read_squad_examples(split.examples, False, self.scoring.version_2)
        lengths = dataclasses.astuple(self.settings)
        features = original.build_squad_features(examples, self.tokenizer, False, *lengths)

        def with_logits():
            while some := list(itertools.islice(features, reading.QUESTIONS_AT_ONCE)):
                rows = original.squad_feature_rows(
                    some, FLAGS.max_seq_length, self.tokenizer.pad_id
                )
                # Its n best are of all places, padding too.
                slice_ = dataclasses.replace(split, features=rows, fixed_shapes=True)
                logits = predictor(batches(slice_))
                for feature, (starts, ends) in zip(some, logits.transpose(0, 2, 1), strict=True):
                    yield feature, starts, ends

        settings = original_answers.OriginalSettings(
            FLAGS.n_best_size, FLAGS.max_answer_length, self.scoring.version_2
        )
        return original_answers.predict_as_original(
            examples, with_logits(), self.tokenizer, settings
        )

    def evaluate(self, split, answers) -> TaskEvaluation:
        best_texts, null_odds = {}, {}
        for answered in answers:
            best_texts[answered.id] = answered.best_text
            null_odds[answered.id] = answered.null_odds
        threshold = self.scoring.threshold(split.examples, best_texts, null_odds)
        results = self.scoring.results(split.examples, best_texts, null_odds, threshold)
        odds = null_odds if self.scoring.version_2 else {}
        texts = set(answer_files.predicted_answers(best_texts, odds, threshold).values())
        named = {f"eval_{name}": value for name, value in results.items()}
        constant = len(texts) == 1 < len(best_texts)
        return TaskEvaluation(named, f"the text {texts.pop()!r}" if constant else "")

    def write_predictions(self, split, answers, step: int, first: bool) -> TaskReport | None:
        """The original's files; eval_results.json where the right answers are known."""
        directory = FLAGS.output_dir if is_chief() else None
        with answer_files.AnswerFiles(directory, self.scoring.version_2) as files:
            log_odds = {}
            for answered in answers:
                n_best, odds = answered.n_best(), answered.null_odds or 0.0
                files.add(answered.id, n_best, answered.best_text, odds)
                texts = (answered.best_text, "")
                log_odds[answered.id] = {
                    text: answer_files.answer_log_odds(n_best, text) for text in texts
                }
            answered = (split.examples, files.best_texts, files.null_odds)
            threshold = self.scoring.threshold(*answered, weights=self.weights)
            texts = files.finish(threshold)
        logging.info("Answered %d questions, in %s", len(split.examples), FLAGS.output_dir)
        lacking = self.scoring.without_answers(split.examples)
        if lacking:
            logging.info("Not scored: %d of the questions have no answers in the file.", lacking)
            tell_of_earlier_results(FLAGS.output_dir, _SCORED)
            return None
        results = self.scoring.results(*answered, threshold) | split.left_out
        for name, value in results.items():
            logging.info("  %s = %.4f", name, value)
        if directory is None:
            return None
        answer_files.write_squad_json(os.path.join(directory, "eval_results.json"), results)
        given = np.array([log_odds[key][text] for key, text in texts.items()])
        scores = self.scoring.of_answers(split.examples, texts)
        fitted = fit_platt_calibration(given, scores[:, 0])
        # What is exported answers alone, and with slices.
        alone = not FLAGS.ensemble and not FLAGS.original_postprocessing
        self.scoring.keep(threshold, self.weights if alone else None)
        if alone:
            weights = among_n_best(self.weights)
            kept.keep_numbers(directory, CALIBRATION, fitted._asdict(), weights)
        return self._judged(split, texts, scores, given, fitted, results)

    def _judged(self, split, texts, scores, log_odds, fitted, results) -> TaskReport:
        """What card and page say of the answers given."""
        questions, exact = split.examples, self.result_names[1].removeprefix("eval_")
        confidence = fitted.of(log_odds)
        kinds = {
            "By what is asked": [mistakes.question_word(q.question) for q in questions],
            "By the right answer": [mistakes.answer_kind(q) for q in questions],
        }
        contexts = [question.context for question in questions]
        limits = [
            f"{self.read_in_parts:,} of {len(questions):,} contexts were read in more than one "
            f"window of {FLAGS.max_seq_length} pieces; no context was cut.",
            f"{self.full_questions:,} of {len(questions):,} questions fill the "
            f"{FLAGS.max_query_length} pieces that are read of one, and may have been cut.",
        ]
        parts = ("HasAns_exact", "HasAns_f1", "NoAns_exact", "NoAns_f1")
        return TaskReport(
            **question_fields(scores, log_odds, fitted, contexts, kinds, exact),
            data=os.path.basename(FLAGS.predict_file),
            results={name: results[name] for name in (exact, "f1", *parts) if name in results},
            limits=[] if FLAGS.original_postprocessing else limits,
            mistakes=[
                Mistake(
                    questions[n].source,
                    " / ".join(dict.fromkeys(a.text for a in questions[n].answers)) or "none",
                    texts[questions[n].id] or "none",
                    float(confidence[n]),
                    [("question", questions[n].question), ("context", questions[n].context)],
                )
                for n in mistakes.worst_answers(scores[:, 1], confidence, MOST_MISTAKES)
            ],
            example=json.dumps(
                {"question": questions[0].question, "context": questions[0].context},
                ensure_ascii=False,
            ),
        )

    def export(self, model) -> str:
        """A SavedModel from question and context to answer."""
        settings = dataclasses.asdict(self.settings)
        weights = head_checksum(model)
        numbers = kept.kept_numbers(
            *(FLAGS.output_dir, self.initial, CALIBRATION, PlattCalibration._fields),
            "It is written where questions with answers are answered, for one --n_best_size. Do "
            "that again, or remove it.",
            among_n_best(weights),
            earlier=weights,
        )
        return export_question_answering(
            model,
            Export.from_flags(FLAGS),
            functools.partial(windows.make_windows, self.tokenizer, **settings),
            n_best=FLAGS.n_best_size,
            max_answer_length=FLAGS.max_answer_length,
            version_2=self.scoring.version_2,
            threshold=self.scoring.threshold(weights=weights),
            max_windows=FLAGS.export_max_windows,
            calibration=PlattCalibration(*(numbers or ())),
        )


def among_n_best(weights: str) -> str:
    """What a calibration is of: the odds of an answer depend on how many it is compared with."""
    return f"{weights} n_best_size={FLAGS.n_best_size}"


def check_flags(settings: FineTuningSettings) -> None:
    """Refuses combinations that can't work, before anything is read."""
    needed = {"train_file": settings.do_train}
    needed["predict_file"] = settings.do_predict or settings.evaluating
    for flag, is_needed in needed.items():
        if is_needed and not FLAGS[flag].value:
            raise errors.ModelingError(f"--{flag} is missing: a file in the form of SQuAD's.")
    windows.check_question_lengths(FLAGS.max_seq_length, FLAGS.max_query_length, FLAGS.doc_stride)
    reading.question_epochs_per_file(FLAGS)
    for path in FLAGS.ensemble:
        # Else that there is none would be noticed after training.
        if not tf.io.gfile.isdir(path):
            checkpoints.open_contents(path)


def main(_) -> None:
    if FLAGS.demo:
        comparison.run_demo(FLAGS, __file__, arguments, arguments.make_argument_demo)
        return
    if FLAGS.student:
        run_students(FLAGS, __file__, comparison.run_shown)
        return
    if FLAGS.verbose_logging:
        logging.set_verbosity(logging.DEBUG)
    settings = fine_tuning_settings(FLAGS)
    check_flags(settings)
    with (
        one_run(FLAGS, *run_outputs(FLAGS)),
        task_session(FLAGS, settings) as (settings, summary),
    ):
        tokenizer = Tokenizer(FLAGS.vocab_file, FLAGS.do_lower_case, (), FLAGS.strip_accents)
        config = settings.config
        check_training_fits_model(FLAGS, config, tokenizer.vocab_size)
        task = QuestionAnswering(tokenizer, config)
        if settings.do_train and settings.do_export and not settings.do_predict:
            # Else that there is none would be noticed after training.
            task.scoring.threshold()
        fine_tune(task, settings, summary, from_pretrained)


if __name__ == "__main__":
    task_flags.mark_required_unless_demo(REQUIRED)
    progress.show_with(activity)
    errors.run(main, DataError, flag_values=FLAGS)
