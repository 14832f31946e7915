"""Fine-tunes BERT to classify sentences and pairs: GLUE tasks, XNLI.

    python run_classifier.py --task_name=MRPC --do_train=true --do_eval=true \\
        --data_dir=$GLUE_DIR/MRPC --vocab_file=$BERT_BASE_DIR/vocab.txt \\
        --bert_config_file=$BERT_BASE_DIR/bert_config.json \\
        --init_checkpoint=$BERT_BASE_DIR/bert_model.ckpt --max_seq_length=128 \\
        --train_batch_size=32 --learning_rate=2e-5 --num_train_epochs=3.0 \\
        --output_dir=/tmp/mrpc_output/

With --do_predict it writes test_results.tsv, with --do_export a SavedModel that takes raw text.
"""

from modeling import quiet  # noqa: F401  isort: skip

import os

import keras
import tensorflow as tf
from absl import flags, logging

from data import batching
from data.errors import DataError
from data.tasks import glue, predictions
from data.tokenization import Tokenizer, casing
from data.tokenization.inputs import build_inputs
from modeling import errors
from modeling.config import BertConfig
from modeling.losses import classifier_losses
from modeling.models import BertClassifier
from modeling.serving import export
from modeling.training import common_flags, distribution, precision, run_folder, run_state
from modeling.training.best import load_best
from modeling.training.evaluation import Evaluator, predict
from modeling.training.fit import Stage, fit
from modeling.training.reporting import Reporter, write_results
from modeling.training.setup import make_train_step
from modeling.training.summary import RunSummary, given_flags

FLAGS = flags.FLAGS

common_flags.define_run_flags(learning_rate=5e-5, train_batch_size=32, save_steps=1000)
common_flags.define_optimizer_flags()
common_flags.define_hardware_flags()
flags.DEFINE_string("data_dir", None, "Folder with the task's .tsv files, named as published.")
flags.DEFINE_string("task_name", None, f"One of {', '.join(glue.task_names())}.")
flags.DEFINE_string("vocab_file", None, "The vocabulary that the model was pre-trained with.")
flags.DEFINE_bool(
    "do_lower_case", True, "Lower-case the text and strip accents; False for cased models."
)
flags.DEFINE_integer("max_seq_length", 128, "Longer inputs are truncated.", lower_bound=3)
flags.DEFINE_bool("do_train", False, "Fine-tune on the training set.")
flags.DEFINE_bool("do_eval", False, "Evaluate on the dev set.")
flags.DEFINE_bool("do_predict", False, "Write probabilities for the test set.")
flags.DEFINE_integer("predict_batch_size", 8, "Over all replicas.", lower_bound=1)
flags.DEFINE_float("num_train_epochs", 3.0, "Passes over the training set.", lower_bound=0)
flags.DEFINE_float(
    "warmup_proportion", 0.1, "Share of the steps that warm up.", lower_bound=0, upper_bound=1
)
# Beyond the original's flags.
flags.DEFINE_bool("do_export", False, "Write a SavedModel that takes raw text.")
flags.DEFINE_string("export_dir", None, "Where to; default: export/ in the output folder.")
flags.DEFINE_integer(
    "num_train_steps",
    0,
    "Train so many steps instead of num_train_epochs; 0: as the epochs say.",
    lower_bound=0,
)
flags.DEFINE_bool(
    "bilstm", False, "Classify by a new BiLSTM over the encoder's outputs (paper, section 5.1)."
)

# The original's command line requires these.
REQUIRED = ("data_dir", "bert_config_file", "task_name", "vocab_file", "output_dir")


def check_flags(config: BertConfig, tokenizer: Tokenizer) -> None:
    """Refuses combinations that can't work, before data is read."""
    if not (FLAGS.do_train or FLAGS.do_eval or FLAGS.do_predict or FLAGS.do_export):
        raise errors.ModelingError(
            "Nothing to do: give at least one of --do_train, --do_eval, --do_predict, --do_export."
        )
    if FLAGS.max_seq_length > config.max_position_embeddings:
        raise errors.ModelingError(
            f"--max_seq_length is {FLAGS.max_seq_length}, but the model was made for "
            f"max_position_embeddings {config.max_position_embeddings} "
            f"({FLAGS.bert_config_file})."
        )
    if tokenizer.vocab_size > config.vocab_size:
        raise errors.ModelingError(
            f"The vocabulary {FLAGS.vocab_file} has {tokenizer.vocab_size} tokens, but vocab_size "
            f"in {FLAGS.bert_config_file} is {config.vocab_size}. Use the vocabulary that the "
            f"model was pre-trained with."
        )


def make_dataset(tokenizer, task, split, batch_size, training=False):
    """(examples, data set) of one split."""
    examples = task.read(FLAGS.data_dir, split)
    logging.info("%s: %d examples of %s", split, len(examples), task.name)
    # XLA, on a TPU too, compiles a program per shape; elsewhere batches of like length compute
    # less padding.
    static = FLAGS.xla or distribution.on_tpu()
    share = distribution.share(batch_size)
    dataset = batching.examples_dataset(
        tokenizer,
        examples,
        task.labels,
        FLAGS.max_seq_length,
        batch_size,
        training,
        FLAGS.random_seed,
        None if static else batching.default_buckets(FLAGS.max_seq_length),
        num_parts=share.num_parts,
        parts=share.parts,
    )
    return examples, dataset


def make_model(config: BertConfig, task) -> BertClassifier:
    """The encoder with the task's head."""
    model = BertClassifier(
        config, num_labels=len(task.labels), bilstm=FLAGS.bilstm, remat=FLAGS.remat
    )
    model.build()
    return model


def train_model(model, tokenizer, task, evaluate, summary) -> int:
    """Fine-tunes from where --output_dir or --init_checkpoint stands; returns the step."""
    examples, dataset = make_dataset(
        tokenizer, task, "train", FLAGS.train_batch_size, training=True
    )
    num_train_steps = FLAGS.num_train_steps or int(
        len(examples) / FLAGS.train_batch_size * FLAGS.num_train_epochs
    )
    settings = common_flags.training_settings(
        FLAGS, num_train_steps, int(num_train_steps * FLAGS.warmup_proportion)
    )
    reporter = Reporter(FLAGS.output_dir, num_train_steps, FLAGS.train_batch_size)
    data_id = (
        f"{task.name} {len(examples)} examples, length {FLAGS.max_seq_length}, "
        f"batch {FLAGS.train_batch_size}, seed {FLAGS.random_seed}"
    )
    stage = Stage(
        num_train_steps,
        lambda: dataset,
        data_id,
        FLAGS.train_batch_size,
        lambda index: batching.sources(examples, index),
    )

    def evaluate_and_report(step: int) -> dict[str, float]:
        results = evaluate()
        reporter.write("eval", step, results)
        values = "  ".join(f"{name} {value:.4f}" for name, value in results.items())
        logging.info("dev set at step %d: %s", step, values)
        return results

    return fit(
        make_train_step(model, classifier_losses, settings),
        [stage],
        FLAGS.output_dir,
        FLAGS.init_checkpoint,
        reporter,
        common_flags.loop_options(FLAGS),
        evaluate_and_report,
        summary,
    )


def main(_) -> None:
    run_folder.prepare_directory(FLAGS.output_dir)
    keras.utils.set_random_seed(FLAGS.random_seed)
    strategy = common_flags.make_strategy(FLAGS)
    precision.set_precision(FLAGS.dtype)
    summary = RunSummary(FLAGS.output_dir, flags=given_flags(FLAGS))
    with strategy.scope(), summary:
        distribution.check_batch_sizes(
            FLAGS.gradient_accumulation_steps,
            FLAGS.train_batch_size,
            eval_batch_size=FLAGS.eval_batch_size,
            predict_batch_size=FLAGS.predict_batch_size,
        )
        run(summary)


def run(summary: RunSummary) -> None:
    """Everything, in the strategy's scope."""
    # ---- Data ----
    config = BertConfig.from_json_file(FLAGS.bert_config_file)
    casing.check(FLAGS.do_lower_case, FLAGS.init_checkpoint)
    tokenizer = Tokenizer(FLAGS.vocab_file, FLAGS.do_lower_case)
    check_flags(config, tokenizer)
    task = glue.get_task(FLAGS.task_name)
    if FLAGS.do_eval or FLAGS.eval_steps:
        _, eval_data = make_dataset(tokenizer, task, "dev", FLAGS.eval_batch_size)
    if FLAGS.do_predict:
        test_examples, test_data = make_dataset(tokenizer, task, "test", FLAGS.predict_batch_size)

    # ---- Model ----
    model = make_model(config, task)
    evaluator = Evaluator(model, classifier_losses)

    def evaluate() -> dict[str, float]:
        results = evaluator(eval_data)
        return {"eval_accuracy": results["accuracy"], "eval_loss": results["loss"]}

    # ---- Train ----
    if FLAGS.do_train:
        step = train_model(model, tokenizer, task, evaluate, summary)
    else:
        step = run_state.load_trained(model, FLAGS.output_dir, FLAGS.init_checkpoint)
        if FLAGS.best_metric:
            step = load_best(model, FLAGS.output_dir)
        summary.attach(model=model)

    # ---- Evaluate ----
    if FLAGS.do_eval:
        results = evaluate()
        results |= {"global_step": step, "loss": results["eval_loss"]}
        write_results(FLAGS.output_dir, "eval_results.txt", results)

    # ---- Predict ----
    if FLAGS.do_predict:
        logits = predict(model, test_data, "logits")
        probabilities = tf.nn.softmax(logits).numpy()
        path = os.path.join(FLAGS.output_dir, "test_results.tsv")
        if distribution.is_chief():
            predictions.write_test_results(path, probabilities)
        logging.info("Wrote the probabilities of %d examples to %s", len(test_examples), path)

    # ---- Export ----
    if FLAGS.do_export and distribution.is_chief():
        folder = export.export_classifier(
            model,
            FLAGS.export_dir or os.path.join(FLAGS.output_dir, "export"),
            lambda *texts: build_inputs(
                tokenizer, *texts, max_seq_length=FLAGS.max_seq_length, pad_to="longest"
            ),
            task.labels,
            pairs=task.pairs,
            assets={"vocab.txt": FLAGS.vocab_file, "bert_config.json": FLAGS.bert_config_file},
        )
        logging.info("Wrote the SavedModel %s", folder)


if __name__ == "__main__":
    flags.mark_flags_as_required(REQUIRED)
    errors.run(main, DataError)
