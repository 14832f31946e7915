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
from modeling import checkpoints, errors
from modeling.config import BertConfig
from modeling.losses import classifier_losses
from modeling.models import BertClassifier
from modeling.serving import export
from modeling.training import common_flags, distribution, run_state
from modeling.training.evaluation import Evaluator, predict
from modeling.training.loop import make_iterator, train
from modeling.training.optimizers import BertAdam
from modeling.training.reporting import Reporter, write_results
from modeling.training.schedules import warmup_linear_decay
from modeling.training.step import TrainStep

FLAGS = flags.FLAGS

common_flags.define_run_flags(learning_rate=5e-5, train_batch_size=32, save_steps=1000)
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
flags.DEFINE_integer(
    "eval_steps", 0, "Also evaluate every so many steps of training; 0: never.", lower_bound=0
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
    # A TPU compiles a program per shape; elsewhere, batches of like length compute less padding.
    buckets = None if FLAGS.use_tpu else batching.default_buckets(FLAGS.max_seq_length)
    dataset = batching.examples_dataset(
        tokenizer,
        examples,
        task.labels,
        FLAGS.max_seq_length,
        batch_size,
        training,
        FLAGS.random_seed,
        buckets,
    )
    return examples, dataset


def main(_) -> None:
    run_state.prepare_directory(FLAGS.output_dir)
    keras.utils.set_random_seed(FLAGS.random_seed)
    strategy = distribution.get_strategy(
        FLAGS.use_tpu,
        FLAGS.tpu_name,
        FLAGS.tpu_zone,
        FLAGS.gcp_project,
        FLAGS.master,
        FLAGS.num_tpu_cores,
    )
    distribution.check_batch_sizes(
        strategy,
        FLAGS.use_tpu,
        train_batch_size=FLAGS.train_batch_size,
        eval_batch_size=FLAGS.eval_batch_size,
        predict_batch_size=FLAGS.predict_batch_size,
    )
    distribution.set_precision(FLAGS.dtype)

    # ---- Data ----
    config = BertConfig.from_json_file(FLAGS.bert_config_file)
    casing.check(FLAGS.do_lower_case, FLAGS.init_checkpoint)
    tokenizer = Tokenizer(FLAGS.vocab_file, FLAGS.do_lower_case)
    check_flags(config, tokenizer)
    task = glue.get_task(FLAGS.task_name)
    num_train_steps, train_data, eval_data, test_data = 1, None, None, None
    if FLAGS.do_train:
        examples, train_data = make_dataset(
            tokenizer, task, "train", FLAGS.train_batch_size, training=True
        )
        num_train_steps = FLAGS.num_train_steps or int(
            len(examples) / FLAGS.train_batch_size * FLAGS.num_train_epochs
        )
    if FLAGS.do_eval or FLAGS.eval_steps:
        _, eval_data = make_dataset(tokenizer, task, "dev", FLAGS.eval_batch_size)
    if FLAGS.do_predict:
        test_examples, test_data = make_dataset(tokenizer, task, "test", FLAGS.predict_batch_size)

    # ---- Model and training state ----
    with strategy.scope():
        model = BertClassifier(config, num_labels=len(task.labels))
        model.build()
        reporter = Reporter(FLAGS.output_dir, num_train_steps, FLAGS.train_batch_size)
        if FLAGS.do_train:
            weights = {n: w.value for n, w in checkpoints.weights_by_name(model).items()}
            schedule = warmup_linear_decay(
                FLAGS.learning_rate,
                num_train_steps,
                int(num_train_steps * FLAGS.warmup_proportion),
            )
            train_step = TrainStep(
                model, classifier_losses, BertAdam(weights, schedule), FLAGS.random_seed
            )
            iterator, can_be_saved = make_iterator(
                train_data, run_state.latest_step(FLAGS.output_dir)
            )
            state = run_state.RunState(
                FLAGS.output_dir,
                train_step,
                iterator if can_be_saved else None,
                f"{task.name} {len(examples)} examples, length {FLAGS.max_seq_length}, "
                f"batch {FLAGS.train_batch_size}, seed {FLAGS.random_seed}",
            )
            run_state.start_or_resume(state, reporter, FLAGS.init_checkpoint)
        else:
            step = run_state.load_trained(model, FLAGS.output_dir, FLAGS.init_checkpoint)

        # ---- Train ----
        evaluate = Evaluator(model, classifier_losses)

        def evaluate_now(step: int) -> dict[str, float]:
            results = evaluate(eval_data)
            results = {"eval_accuracy": results["accuracy"], "eval_loss": results["loss"]}
            reporter.write("eval", step, results)
            logging.info("dev set at step %d: %s", step, results)
            return results

        if FLAGS.do_train:
            train(
                train_step,
                iterator,
                state,
                reporter,
                num_train_steps=num_train_steps,
                save_checkpoints_steps=FLAGS.save_checkpoints_steps,
                steps_per_call=FLAGS.iterations_per_loop,
                log_steps=FLAGS.log_steps,
                eval_steps=FLAGS.eval_steps,
                evaluate=evaluate_now,
            )
            step = int(train_step.global_step.numpy())

        # ---- Evaluate ----
        if FLAGS.do_eval:
            results = evaluate_now(step)
            results |= {"global_step": step, "loss": results["eval_loss"]}
            write_results(FLAGS.output_dir, "eval_results.txt", results)

        # ---- Predict ----
        if FLAGS.do_predict:
            logits = predict(model, test_data, "logits")
            probabilities = tf.nn.softmax(logits).numpy()
            path = os.path.join(FLAGS.output_dir, "test_results.tsv")
            predictions.write_test_results(path, probabilities)
            logging.info("Wrote the probabilities of %d examples to %s", len(test_examples), path)

    # ---- Export ----
    if FLAGS.do_export:
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
