"""Fine-tunes BERT to answer questions about texts: SQuAD 1.1 and 2.0, and whatever has their form.

    python run_squad.py --vocab_file=$BERT_BASE_DIR/vocab.txt \\
        --bert_config_file=$BERT_BASE_DIR/bert_config.json \\
        --init_checkpoint=$BERT_BASE_DIR/bert_model.ckpt --do_train=True \\
        --train_file=$SQUAD_DIR/train-v1.1.json --do_predict=True \\
        --predict_file=$SQUAD_DIR/dev-v1.1.json --train_batch_size=12 --learning_rate=3e-5 \\
        --num_train_epochs=2.0 --max_seq_length=384 --doc_stride=128 --output_dir=/tmp/squad_base/

Writes predictions.json, nbest_predictions.json and, for SQuAD 2.0, null_odds.json; where the file
has answers also eval_results.json with exact match and F1. With --do_export a SavedModel that
takes question and context.
"""

from modeling import quiet  # noqa: F401  isort: skip

import dataclasses
import functools
import itertools
import os

import tensorflow as tf
from absl import flags, logging

from data import batching
from data.errors import DataError
from data.features import Features
from data.tasks.questions import (
    metrics as squad_metrics,
)
from data.tasks.questions import (
    original as squad_original,
)
from data.tasks.questions import (
    original_answers as squad_original_answers,
)
from data.tasks.questions import (
    squad,
)
from data.tasks.questions import (
    windows as squad_windows,
)
from data.tasks.questions.answers import (
    AnswerFiles,
    keep_threshold,
    kept_threshold,
    read_answers,
    write_json,
)
from data.tasks.questions.rows import SpanSettings, make_rows, training_rows
from data.tokenization import Tokenizer, casing
from modeling import errors
from modeling.answers.spans import SpanLogits, SpanSearch, merge_arrays
from modeling.config import BertConfig
from modeling.logs import Progress
from modeling.losses import SpanLosses
from modeling.models import BertQuestionAnswering
from modeling.serving import flags as export_flags
from modeling.serving import question_answering
from modeling.serving.export import Export
from modeling.training import flags as common_flags
from modeling.training.engine import distribution
from modeling.training.engine.evaluation import Predictor
from modeling.training.engine.setup import make_train_step
from modeling.training.runs import run_state
from modeling.training.runs.fit import Stage, fit
from modeling.training.runs.reporting import Reporter
from modeling.training.runs.session import session
from modeling.training.runs.summary import RunSummary

FLAGS = flags.FLAGS

common_flags.define_run_flags(learning_rate=5e-5, train_batch_size=32, save_steps=1000)
common_flags.define_optimizer_flags()
common_flags.define_hardware_flags()
common_flags.define_fine_tuning_flags()
export_flags.define_export_flags()
flags.DEFINE_integer(
    "export_max_windows",
    512,
    "Contexts of more windows are refused by the exported model; 0: none is.",
    lower_bound=0,
)
flags.DEFINE_list(
    "train_file", [], "SQuAD-format JSON to train on; several are trained on one after the other."
)
flags.DEFINE_string("predict_file", None, "SQuAD-format JSON to answer.")
flags.DEFINE_integer("max_seq_length", 384, "Of question and window together.", lower_bound=5)
flags.DEFINE_integer("doc_stride", 128, "Pieces from window to window.", lower_bound=1)
flags.DEFINE_integer("max_query_length", 64, "Longer questions are cut.", lower_bound=1)
flags.DEFINE_integer("n_best_size", 20, "Answers in nbest_predictions.json.", lower_bound=1)
flags.DEFINE_integer("max_answer_length", 30, "Most pieces of an answer.", lower_bound=1)
flags.DEFINE_bool("verbose_logging", False, "Name every answer that is out of place.")
flags.DEFINE_bool("version_2_with_negative", False, "Some questions have no answer: SQuAD 2.0.")
flags.DEFINE_string(
    "null_score_diff_threshold",
    "0.0",
    "No answer is given where the empty one's score exceeds the best one's by more. auto: what "
    "gives the best F1 on --predict_file; kept with the model, and used where answers lack.",
)
# Beyond the original's flags.
flags.DEFINE_list("epochs_per_file", [], "For several --train_file; default: num_train_epochs.")
flags.DEFINE_integer(
    "max_contexts", 0, "Train on so many contexts of a question; 0: all.", lower_bound=0
)
flags.DEFINE_bool("original_step_count", False, "Epochs of questions, not of windows.")
flags.DEFINE_bool(
    "original_postprocessing", False, "Features and answers exactly as the original makes them."
)
flags.DEFINE_list("ensemble", [], "Further output folders or checkpoints; logits are averaged.")
flags.DEFINE_bool("characters", False, "Score by characters, for Chinese (as CMRC 2018).")

REQUIRED = ("bert_config_file", "vocab_file", "output_dir")
THRESHOLD_FILE = "null_score_diff_threshold.json"
QUESTIONS_AT_ONCE = 1000
"""Questions whose windows are held in memory when answering."""


def check_flags(config: BertConfig, tokenizer: Tokenizer) -> None:
    """Refuses combinations that can't work, before data is read."""
    if not (FLAGS.do_train or FLAGS.do_predict or FLAGS.do_export):
        raise errors.ModelingError(
            "Nothing to do: give at least one of --do_train, --do_predict, --do_export."
        )
    for wanted, flag in ((FLAGS.do_train, "train_file"), (FLAGS.do_predict, "predict_file")):
        if wanted and not FLAGS[flag].value:
            raise errors.ModelingError(f"--{flag} is missing: a file in the form of SQuAD's.")
    common_flags.check_model_fits(FLAGS, config, tokenizer.vocab_size)
    squad_windows.check(FLAGS.max_seq_length, FLAGS.max_query_length, FLAGS.doc_stride)
    if FLAGS.null_score_diff_threshold != "auto":
        fixed_threshold()
    epochs_per_file()


def fixed_threshold() -> float:
    """The number that --null_score_diff_threshold gives."""
    try:
        return float(FLAGS.null_score_diff_threshold)
    except ValueError as error:
        raise errors.ModelingError(
            f"--null_score_diff_threshold is {FLAGS.null_score_diff_threshold}; it has to be a "
            f"number or auto."
        ) from error


def epochs_per_file() -> list[float]:
    """Passes over each training file."""
    given = FLAGS.epochs_per_file or [FLAGS.num_train_epochs] * len(FLAGS.train_file)
    try:
        epochs = [float(number) for number in given]
    except ValueError:
        epochs = []
    if len(epochs) != len(FLAGS.train_file):
        raise errors.ModelingError(
            f"--epochs_per_file is {','.join(map(str, given))}; it needs a number for each of the "
            f"{len(FLAGS.train_file)} training files."
        )
    return epochs


def span_settings() -> SpanSettings:
    return SpanSettings(FLAGS.max_seq_length, FLAGS.doc_stride, FLAGS.max_query_length)


def dataset(features: Features, batch_size: int, seed: int | None = None, padded: bool = False):
    """This process's batches of rows, in order; with a seed endless ones to train on."""
    static = padded or FLAGS.xla or distribution.on_tpu() or not FLAGS.length_buckets
    share = distribution.share(batch_size)
    shape = batching.Batching(
        batch_size,
        None if static else batching.default_buckets(FLAGS.max_seq_length),
        num_parts=share.num_parts,
        parts=share.parts,
    )
    return batching.batches(features, shape, seed is not None, seed or 0)


# ---- Training ----


def read_training_set(tokenizer: Tokenizer, path: str) -> tuple[Features, int]:
    """(rows, questions) of a file."""
    version_2 = FLAGS.version_2_with_negative
    original = FLAGS.original_postprocessing
    # The original looks for answers in its own way.
    questions = squad.read_squad(
        path, version_2=version_2, training=not original, max_contexts=FLAGS.max_contexts
    )
    if original:
        examples = squad_original.read_examples(questions, True, version_2)
        settings = dataclasses.astuple(span_settings())
        made = squad_original.build_features(examples, tokenizer, True, *settings)
        features = squad_original.as_rows(list(made), FLAGS.max_seq_length, tokenizer.pad_id)
        count = len(examples)
    else:
        features, count = training_rows(tokenizer, questions, span_settings()), len(questions)
    logging.info("%s: %d questions, %d windows", path, count, len(features))
    return features, count


def train_model(model, tokenizer: Tokenizer, summary: RunSummary) -> int:
    """Fine-tunes from where --output_dir or --init_checkpoint stands; returns the step."""
    stages, done = [], 0
    for path, epochs in zip(FLAGS.train_file, epochs_per_file(), strict=True):
        features, questions = read_training_set(tokenizer, path)
        counted = questions if FLAGS.original_step_count else len(features)
        done += FLAGS.num_train_steps or int(counted / FLAGS.train_batch_size * epochs)
        stages.append(
            Stage(
                done,
                functools.partial(
                    dataset, features, FLAGS.train_batch_size, FLAGS.random_seed + len(stages)
                ),
                f"{path}: {len(features)} windows, {span_settings()}, batch "
                f"{FLAGS.train_batch_size}, seed {FLAGS.random_seed}",
                FLAGS.train_batch_size,
                lambda index: f"windows {', '.join(map(str, index))}",
            )
        )
    settings = common_flags.training_settings(FLAGS, done, int(done * FLAGS.warmup_proportion))
    reporter = Reporter(FLAGS.output_dir, done, FLAGS.train_batch_size)
    return fit(
        make_train_step(model, SpanLosses(), settings),
        stages,
        FLAGS.output_dir,
        FLAGS.init_checkpoint,
        reporter,
        common_flags.loop_options(FLAGS),
        summary=summary,
        plot=functools.partial(
            reporter.plot, "training.png", {"Loss": ["loss"], "Both places right": ["accuracy"]}
        ),
    )


# ---- Answering ----


def answer(models: list, tokenizer: Tokenizer, directory: str) -> dict[str, float] | None:
    """Answers --predict_file; writes the files and, if it has answers, returns the scores."""
    version_2 = FLAGS.version_2_with_negative
    questions = squad.read_squad(FLAGS.predict_file, version_2=version_2, training=False)
    labelled = all(question.answers or question.is_impossible for question in questions)
    answer_all = answer_as_original if FLAGS.original_postprocessing else answer_slices
    with AnswerFiles(directory, version_2) as files:
        answer_all(models, tokenizer, questions, files)
        known = questions if labelled else None
        threshold = choose_threshold(files, known) if version_2 else 0.0
        predictions = files.finish(threshold)
    logging.info("Answered %d questions, in %s", len(questions), directory)
    if not labelled:
        return None
    results = squad_metrics.evaluate(
        questions,
        files.best_texts if version_2 else predictions,
        files.null_odds if version_2 else None,
        threshold,
        version_2=version_2,
        characters=FLAGS.characters,
    )
    return results | ({"threshold": threshold} if version_2 else {})


def answer_slices(models: list, tokenizer: Tokenizer, questions: list, files) -> None:
    """Answers as slices of their contexts, some questions at a time."""
    predictor = Predictor(SpanSearch(models, FLAGS.n_best_size, FLAGS.max_answer_length), "spans")
    progress = Progress("questions", len(questions))
    for begin in range(0, len(questions), QUESTIONS_AT_ONCE):
        some = questions[begin : begin + QUESTIONS_AT_ONCE]
        rows = make_rows(tokenizer, some, span_settings(), training=False)
        spans = predictor(dataset(rows.features, FLAGS.predict_batch_size))
        merged = merge_arrays(spans, rows.counts)
        for answered in read_answers(some, rows, merged, FLAGS.version_2_with_negative):
            files.add(
                answered.question.id, answered.n_best(), answered.best_text, answered.null_odds
            )
        progress.add(len(some))


def answer_as_original(models: list, tokenizer: Tokenizer, questions: list, files) -> None:
    """Answers as the original puts them together."""
    version_2 = FLAGS.version_2_with_negative
    examples = squad_original.read_examples(questions, False, version_2)
    predictor = Predictor(SpanLogits(models), "span_logits")
    made = squad_original.build_features(
        examples, tokenizer, False, *dataclasses.astuple(span_settings())
    )
    progress = Progress("windows")

    def windows():
        while some := list(itertools.islice(made, QUESTIONS_AT_ONCE)):
            # Its n best are of all places, padding too.
            rows = squad_original.as_rows(some, FLAGS.max_seq_length, tokenizer.pad_id)
            logits = predictor(dataset(rows, FLAGS.predict_batch_size, padded=True))
            for feature, (starts, ends) in zip(some, logits.transpose(0, 2, 1), strict=True):
                yield feature, starts, ends
            progress.add(len(some))

    settings = squad_original_answers.Settings(
        FLAGS.n_best_size, FLAGS.max_answer_length, version_2
    )
    for one in squad_original_answers.predict(examples, windows(), tokenizer, settings):
        best = next((c.text for c in one.nbest if c.text), "") if version_2 else one.text
        entries = [candidate._asdict() for candidate in one.nbest]
        files.add(one.id, entries, best, one.null_odds or 0.0)


def choose_threshold(files: AnswerFiles | None = None, questions: list | None = None) -> float:
    """What --null_score_diff_threshold says; auto: found on `questions`, or else kept earlier."""
    if FLAGS.null_score_diff_threshold != "auto":
        return fixed_threshold()
    path = os.path.join(FLAGS.output_dir, THRESHOLD_FILE)
    if questions:
        found = squad_metrics.best_threshold(
            questions, files.best_texts, files.null_odds, characters=FLAGS.characters
        )
        if distribution.is_chief():
            keep_threshold(path, found)
        logging.info("Best threshold on %s: %.4f, kept in %s", FLAGS.predict_file, found, path)
        return found
    return kept_threshold(path)


def export(model, tokenizer: Tokenizer) -> None:
    """A SavedModel from question and context to answer."""
    version_2 = FLAGS.version_2_with_negative
    folder = question_answering.export_question_answering(
        model,
        Export.from_flags(FLAGS),
        functools.partial(
            squad_windows.make_windows, tokenizer, **dataclasses.asdict(span_settings())
        ),
        n_best=FLAGS.n_best_size,
        max_answer_length=FLAGS.max_answer_length,
        version_2=version_2,
        threshold=choose_threshold() if version_2 else 0.0,
        max_windows=FLAGS.export_max_windows,
    )
    logging.info("Wrote the SavedModel %s", folder)


def main(_) -> None:
    if FLAGS.verbose_logging:
        logging.set_verbosity(logging.DEBUG)
    sizes = {"predict_batch_size": FLAGS.predict_batch_size}
    with session(FLAGS, [FLAGS.train_batch_size], **sizes) as summary:
        run(summary)


def run(summary: RunSummary) -> None:
    """Everything, in the strategy's scope."""
    config = BertConfig.from_json_file(FLAGS.bert_config_file)
    casing.check(FLAGS.do_lower_case, FLAGS.init_checkpoint)
    tokenizer = Tokenizer(FLAGS.vocab_file, FLAGS.do_lower_case)
    check_flags(config, tokenizer)

    def make_model():
        model = BertQuestionAnswering(config, remat=FLAGS.remat)
        model.build()
        return model

    # ---- Train ----
    model = make_model()
    if FLAGS.do_train:
        train_model(model, tokenizer, summary)
    else:
        run_state.load_trained(model, FLAGS.output_dir, FLAGS.init_checkpoint)
        summary.attach(model=model)
    models = [model]
    for path in FLAGS.ensemble:
        models.append(make_model())
        folder = tf.io.gfile.isdir(path)
        run_state.load_trained(models[-1], path if folder else "", None if folder else path)

    # ---- Predict ----
    if FLAGS.do_predict:
        results = answer(models, tokenizer, FLAGS.output_dir)
        if results:
            for name, value in results.items():
                logging.info("  %s = %.4f", name, value)
            if distribution.is_chief():
                write_json(os.path.join(FLAGS.output_dir, "eval_results.json"), results)

    # ---- Export ----
    if FLAGS.do_export and distribution.is_chief():
        export(model, tokenizer)


if __name__ == "__main__":
    flags.mark_flags_as_required(REQUIRED)
    errors.run(main, DataError)
