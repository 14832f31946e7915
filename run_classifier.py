"""Fine-tunes BERT on sentences and pairs: GLUE, XNLI, multiple choice, your own files.

    python run_classifier.py --task_name=MRPC --do_train=true --do_eval=true \\
        --data_dir=$GLUE_DIR/MRPC --vocab_file=$BERT_BASE_DIR/vocab.txt \\
        --bert_config_file=$BERT_BASE_DIR/bert_config.json \\
        --init_checkpoint=$BERT_BASE_DIR/bert_model.ckpt --max_seq_length=128 \\
        --train_batch_size=32 --learning_rate=2e-5 --num_train_epochs=3.0 \\
        --output_dir=/tmp/mrpc_output/

With --learning_rates=5e-5,4e-5,3e-5,2e-5 --num_runs=5 it searches as the paper did. --do_predict
writes test_results.tsv and predictions.tsv, --do_export a SavedModel that takes raw text.
"""

from modeling import quiet  # noqa: F401  isort: skip

import dataclasses
import os

import tensorflow as tf
from absl import flags, logging

from data import batching
from data.errors import DataError
from data.tasks.sentences import delimited, glue_submission, predictions
from data.tasks.sentences import flags as task_flags
from data.tasks.sentences.examples import Kind, Task
from data.tasks.sentences.splits import Split, read_splits
from data.tokenization import Tokenizer, build_choices, build_inputs, casing
from modeling import errors, metrics
from modeling.config import BertConfig
from modeling.serving import flags as export_flags
from modeling.serving.export import Export
from modeling.serving.sentences import export_sentence_model
from modeling.training import flags as common_flags
from modeling.training.engine import distribution
from modeling.training.engine.evaluation import Predictor
from modeling.training.fine_tuning import (
    SentenceEvaluator,
    SentenceHead,
    load_second_encoder,
)
from modeling.training.runs import charts
from modeling.training.runs.reporting import write_results
from modeling.training.runs.session import session
from modeling.training.runs.summary import RunSummary
from modeling.training.search import Trial
from modeling.training.trials import TrainingData, load_weights, run_search, train_trial

FLAGS = flags.FLAGS

common_flags.define_run_flags(learning_rate=5e-5, train_batch_size=32, save_steps=1000)
common_flags.define_optimizer_flags()
common_flags.define_hardware_flags()
common_flags.define_fine_tuning_flags()
common_flags.define_search_flags()
export_flags.define_export_flags()
task_flags.define_task_flags()
task_flags.define_text_flags()
flags.DEFINE_integer("max_seq_length", 128, "Longer inputs are truncated.", lower_bound=3)
flags.DEFINE_bool("do_eval", False, "Evaluate on the dev set.")
# Beyond the original's flags.
flags.DEFINE_bool(
    "bilstm", False, "Classify by a new BiLSTM over the encoder's outputs (paper, section 5.1)."
)
flags.DEFINE_string(
    "second_bert_config_file",
    None,
    "A second encoder's sizes: classify both encoders' vectors side by side (paper, section 5.1).",
)
flags.DEFINE_string("second_init_checkpoint", None, "Weights that the second one starts from.")
flags.DEFINE_bool("glue_submission", False, "With --do_predict: also files for the GLUE server.")
flags.DEFINE_bool(
    "wnli_majority", True, "In WNLI's submission the majority class, as the paper (appendix B.1)."
)
flags.DEFINE_list(
    "class_weights", [], '"balanced", or a number per class: how much its examples count.'
)
# Batches.
flags.DEFINE_integer(
    "train_batch_tokens",
    0,
    "Places of a training batch, padding counted, in place of --train_batch_size.",
    lower_bound=0,
)
flags.DEFINE_bool("cache_features", True, "Keep the pieces of the texts in the output folder.")

# The original's command line requires these, and data_dir, which own files can do without.
REQUIRED = ("bert_config_file", "task_name", "vocab_file", "output_dir")


def check_flags(config: BertConfig, tokenizer: Tokenizer) -> None:
    """Refuses combinations that can't work, before data is read."""
    if not (FLAGS.do_train or FLAGS.do_eval or FLAGS.do_predict or FLAGS.do_export):
        raise errors.ModelingError(
            "Nothing to do: give at least one of --do_train, --do_eval, --do_predict, --do_export."
        )
    common_flags.check_model_fits(FLAGS, config, tokenizer.vocab_size)


def read_second_config(config: BertConfig, tokenizer: Tokenizer) -> BertConfig | None:
    """The second encoder's configuration, if there is to be one."""
    if not FLAGS.second_bert_config_file:
        if FLAGS.second_init_checkpoint:
            raise errors.ModelingError(
                "--second_init_checkpoint needs --second_bert_config_file, the sizes that the "
                "second encoder has."
            )
        return None
    second = BertConfig.from_json_file(FLAGS.second_bert_config_file)
    if second.num_hidden_layers != config.num_hidden_layers:
        raise errors.ModelingError(
            f"{FLAGS.second_bert_config_file} has {second.num_hidden_layers} layers, "
            f"{FLAGS.bert_config_file} has {config.num_hidden_layers}; two encoders side by side "
            f"need equally many."
        )
    path = FLAGS.second_bert_config_file
    common_flags.check_model_fits(FLAGS, second, tokenizer.vocab_size, path)
    return second


def batch_shape(batch_size: int, tokens: int = 0) -> batching.Batching:
    """Batches of like lengths, or of one shape where each shape is compiled."""
    # XLA, on a TPU too, compiles a program per shape; elsewhere batches of like length compute
    # less padding.
    static = FLAGS.xla or distribution.on_tpu() or not FLAGS.length_buckets
    replicas = tf.distribute.get_strategy().num_replicas_in_sync
    return batching.Batching(
        batch_size,
        None if static else batching.default_buckets(FLAGS.max_seq_length),
        tokens,
        replicas * FLAGS.gradient_accumulation_steps,
    )


def dataset(split: Split, shape: batching.Batching, seed: int | None = None) -> tf.data.Dataset:
    """This process's batches, in order; with a seed endless ones to train on."""
    share = distribution.share(shape.batch_size)
    shape = dataclasses.replace(shape, num_parts=share.num_parts, parts=share.parts)
    return batching.batches(split.features, shape, seed is not None, seed or 0)


def make_head(task: Task, train: Split | None) -> SentenceHead:
    """What the task's labels mean for the model."""
    weights = FLAGS.class_weights or None
    if weights == ["balanced"]:
        weights = delimited.balanced_class_weights(train.examples, task.labels) if train else None
    elif weights:
        try:
            weights = [float(weight) for weight in weights]
        except ValueError as error:
            raise errors.ModelingError(
                f"--class_weights is {','.join(weights)}; it has to be balanced or numbers."
            ) from error
    return SentenceHead(task.kind.value, len(task.labels), weights)


# ---- Training ----


def training_data(train: Split, trial: Trial) -> TrainingData:
    """What a trial trains on."""
    shape = batch_shape(trial.batch_size, FLAGS.train_batch_tokens)
    return TrainingData(
        lambda: dataset(train, shape, trial.seed),
        batching.steps_per_epoch(train.features, shape),
        len(train.examples),
        f"{describe_data(train)}, batch {shape.tokens or trial.batch_size}, seed {trial.seed}",
        lambda index: batching.sources(train.examples, index),
    )


def describe_data(train: Split) -> str:
    """Names the data and how it is read; other data make another run."""
    text = f"{FLAGS.task_name.lower()} {len(train.examples)} examples, {FLAGS.max_seq_length}"
    return text + ("" if FLAGS.long_text == "head" else f" {FLAGS.long_text}")


def search(make_model, make_evaluator, head: SentenceHead, train: Split, trials) -> None:
    """The paper's search; leaves the best weights in best/ of the output folder."""

    def train_one(model, trial: Trial, folder: str) -> tuple[int, dict[str, float], bool]:
        evaluator = make_evaluator(model)
        data = training_data(train, trial)
        step, results = train_trial(
            *(FLAGS, model, head.losses, trial, data, folder, evaluator),
            init_checkpoint=FLAGS.init_checkpoint,
        )
        outputs = head.probabilities(evaluator.logits)
        return step, results, metrics.is_degenerate(outputs, evaluator.label_ids)

    names = make_evaluator(None).names
    about = describe_data(train)
    if FLAGS.second_init_checkpoint:
        about += f", beside {FLAGS.second_init_checkpoint}"
    run_search(FLAGS, names, about, trials, make_model, train_one)


# ---- Results ----


def suffix(split: Split, first: Split) -> str:
    """What tells the files of a further split from those of the main one."""
    return "" if split is first else f"_{split.name}"


def report(task: Task, head: SentenceHead, split: Split, logits, results, end: str) -> None:
    """eval_results.txt and what people read: report by class, confusion matrix, worst errors."""
    write_results(FLAGS.output_dir, f"eval_results{end}.txt", results)
    if not distribution.is_chief():
        return
    outputs, labels = head.probabilities(logits), split.features.label_ids
    path = os.path.join(FLAGS.output_dir, "{}" + end + "{}")
    if task.kind in (Kind.CLASSES, Kind.MULTI_LABEL):
        text = metrics.format_report(metrics.class_report(outputs, labels, task.labels))
        logging.info("%s by class\n%s", split.name, text)
        predictions.write_text(path.format("class_report", ".txt"), text + "\n")
    if task.kind is Kind.CLASSES:
        matrix = metrics.confusion_matrix(outputs, labels, len(task.labels))
        charts.confusion_png(matrix, task.labels, path.format("confusion", ".png"))
    errors_file = path.format("errors", ".tsv")
    predictions.write_errors(errors_file, split.examples, task.kind, task.labels, outputs)


def write_predictions(task: Task, head: SentenceHead, split: Split, logits, end: str) -> None:
    """test_results.tsv, predictions.tsv and, if wanted, the GLUE server's file."""
    outputs = head.probabilities(logits)
    path = os.path.join(FLAGS.output_dir, f"test_results{end}.tsv")
    columns = outputs[:, None] if task.kind is Kind.REGRESSION else outputs
    predictions.write_test_results(path, columns)
    path = os.path.join(FLAGS.output_dir, f"predictions{end}.tsv")
    predictions.write_predictions(path, split.examples, task.kind, task.labels, outputs)
    logging.info("Wrote the predictions of %d examples to %s", len(outputs), path)
    if FLAGS.glue_submission:
        folder = os.path.join(FLAGS.output_dir, "glue_submission")
        majority = FLAGS.wnli_majority and task.name == "wnli"
        path = glue_submission.write_submission(folder, task.name, split.name, outputs, majority)
        logging.info("Wrote %s", path)


def export_model(model, task: Task, tokenizer: Tokenizer) -> None:
    """A SavedModel from raw text to answers."""

    def preprocess(*texts):
        if task.kind is Kind.CHOICES:
            return build_choices(tokenizer, *texts, FLAGS.max_seq_length, "longest")
        return build_inputs(
            tokenizer,
            *texts,
            max_seq_length=FLAGS.max_seq_length,
            pad_to="longest",
            long_text=FLAGS.long_text,
            window_stride=FLAGS.window_stride,
            max_windows=FLAGS.max_windows,
        )

    export = Export.from_flags(FLAGS)
    folder = export_sentence_model(
        model, export, task.kind.value, preprocess, task.labels, task.pairs
    )
    logging.info("Wrote the SavedModel %s", folder)


def main(_) -> None:
    with session(
        FLAGS,
        [trial.batch_size for trial in common_flags.search_trials(FLAGS)],
        eval_batch_size=FLAGS.eval_batch_size,
        predict_batch_size=FLAGS.predict_batch_size,
    ) as summary:
        run(summary)


def run(summary: RunSummary) -> None:
    """Everything, in the strategy's scope."""
    # ---- Data ----
    config = BertConfig.from_json_file(FLAGS.bert_config_file)
    casing.check(FLAGS.do_lower_case, FLAGS.init_checkpoint)
    tokenizer = Tokenizer(FLAGS.vocab_file, FLAGS.do_lower_case)
    second = read_second_config(config, tokenizer)
    check_flags(config, tokenizer)
    task = task_flags.open_task(FLAGS, FLAGS.do_train)
    trials = common_flags.search_trials(FLAGS)
    searching = FLAGS.do_train and len(trials) > 1
    chief = distribution.is_chief()
    cache = os.path.join(FLAGS.output_dir, "features") if FLAGS.cache_features and chief else None

    def read(purpose: str) -> list[Split]:
        settings = task_flags.text_settings(FLAGS)
        return read_splits(task, purpose, tokenizer, settings, FLAGS.data_dir, cache)

    train, *_ = read("train") if FLAGS.do_train else [None]
    dev = read("dev") if FLAGS.do_eval or FLAGS.eval_steps or searching else []
    test = read("test") if FLAGS.do_predict else []
    if train and task.name == task_flags.OWN_FILES and chief:
        path = os.path.join(FLAGS.output_dir, task_flags.LABELS_FILE)
        delimited.save_labels(path, task)

    # ---- Model ----
    head = make_head(task, train)

    def make_model():
        model = head.make_model(config, FLAGS.bilstm, FLAGS.window_pooling, FLAGS.remat, second)
        if FLAGS.second_init_checkpoint:
            load_second_encoder(model, FLAGS.second_init_checkpoint)
        return model

    def make_evaluator(model, split: Split | None = None) -> SentenceEvaluator:
        split = split or dev[0]
        batches = dataset(split, batch_shape(FLAGS.eval_batch_size))
        return SentenceEvaluator(model, head, batches, split.features.label_ids, task.metrics)

    # ---- Train ----
    if searching:
        search(make_model, make_evaluator, head, train, trials)
    model = make_model()
    evaluator = make_evaluator(model) if dev else None
    results = {}
    if train and not searching:
        data = training_data(train, trials[0])
        step, results = train_trial(
            *(FLAGS, model, head.losses, trials[0], data, FLAGS.output_dir, evaluator, summary),
            init_checkpoint=FLAGS.init_checkpoint,
        )
    else:
        step = load_weights(FLAGS, model, searching, init_checkpoint=FLAGS.init_checkpoint)
        summary.attach(model=model)

    # ---- Evaluate, predict, export ----
    for split in dev if FLAGS.do_eval else []:
        if split is not dev[0]:
            evaluator = make_evaluator(model, split)
        if split is not dev[0] or not results:
            results = evaluator()
        extra = {"global_step": step, "loss": results["eval_loss"]}
        report(task, head, split, evaluator.logits, results | extra, suffix(split, dev[0]))
    predictor = evaluator.predictor if evaluator else Predictor(model)
    for split in test:
        logits = predictor(dataset(split, batch_shape(FLAGS.predict_batch_size)))
        if chief:
            write_predictions(task, head, split, logits, suffix(split, test[0]))
    if FLAGS.do_export and chief:
        export_model(model, task, tokenizer)


if __name__ == "__main__":
    flags.mark_flags_as_required(REQUIRED)
    errors.run(main, DataError)
