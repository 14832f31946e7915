"""Pre-trains BERT: masked LM and next sentence prediction.

From nothing, in a few minutes, on what is installed:
    python run_pretraining.py --demo
From your own text:
    python run_pretraining.py --corpus_file='corpus/*.txt' --bert_config_file=bert_config.json \\
        --do_train --do_eval --output_dir=/tmp/pretraining_output
From TFRecords, as the original release:
    python run_pretraining.py --input_file=/tmp/tf_examples.tfrecord --do_train --do_eval \\
        --bert_config_file=bert_config.json --init_checkpoint=bert_model.ckpt \\
        --train_batch_size=32 --max_seq_length=128 --max_predictions_per_seq=20 \\
        --num_train_steps=20 --num_warmup_steps=10 --learning_rate=2e-5 \\
        --output_dir=/tmp/pretraining_output
"""

from modeling import quiet  # noqa: F401  isort: skip

import functools
import math

import keras
import tensorflow as tf
from absl import flags, logging

from data.errors import DataError
from data.pretraining import corpus, docstrings, from_text, pipeline, probes
from data.tokenization import Tokenizer
from modeling import checkpoints, errors
from modeling.config import BertConfig
from modeling.losses import pretraining_losses
from modeling.models import BertPretrainer
from modeling.serving.fill_mask import fill_masks
from modeling.training import common_flags, distribution, run_state
from modeling.training.evaluation import Evaluator
from modeling.training.loop import make_iterator, train
from modeling.training.optimizers import BertAdam
from modeling.training.reporting import Reporter, write_results
from modeling.training.schedules import warmup_linear_decay
from modeling.training.step import TrainStep

FLAGS = flags.FLAGS

common_flags.define_run_flags(learning_rate=5e-5, train_batch_size=32, save_steps=1000)
common_flags.define_hardware_flags()
flags.DEFINE_string("input_file", None, "TFRecords: globs, separated by commas.")
flags.DEFINE_integer("max_seq_length", 128, "Tokens per record, as the records were made.")
flags.DEFINE_integer("max_predictions_per_seq", 20, "Masked tokens per record at most, as made.")
flags.DEFINE_bool("do_train", False, "Train.")
flags.DEFINE_bool("do_eval", False, "Evaluate on the held-out records.")
flags.DEFINE_integer("num_train_steps", 100000, "Updates in all.", lower_bound=1)
flags.DEFINE_integer("num_warmup_steps", 10000, "Updates of linear warm-up.", lower_bound=0)
flags.DEFINE_integer(
    "max_eval_steps",
    100,
    "Most batches of an evaluation; 0 evaluates all held-out records.",
    lower_bound=0,
)
# Beyond the original's flags.
flags.DEFINE_string(
    "eval_file", None, "Held-out TFRecords; default: a share of the input kept from training."
)
flags.DEFINE_integer(
    "eval_steps", 0, "Also evaluate every so many steps of training; 0: never.", lower_bound=0
)
flags.DEFINE_string(
    "vocab_file", None, "Vocabulary; needed for raw text unless one is to be learned from it."
)
flags.DEFINE_string(
    "corpus_file", None, "Raw text instead of --input_file: globs, separated by commas."
)
flags.DEFINE_string(
    "eval_corpus_file",
    None,
    "Raw text to evaluate on; default: a share of --corpus_file's documents.",
)
flags.DEFINE_bool("demo", False, "Pre-train a small BERT on installed docstrings; see README.")
# How records are made from raw text: the flags of data.create_pretraining_data.
flags.DEFINE_bool("do_lower_case", True, "Lower-case raw text and strip its accents.")
flags.DEFINE_bool("do_whole_word_mask", False, "Mask all pieces of a word together.")
flags.DEFINE_integer("dupe_factor", 10, "Times that raw text is masked anew.")
flags.DEFINE_float("masked_lm_prob", 0.15, "Share of tokens to predict.")
flags.DEFINE_float("short_seq_prob", 0.1, "Share of instances of random shorter length.")

# A corpus, a vocabulary and a model that two cores get through in under four minutes.
DEMO_CORPUS_BYTES = 5_000_000
DEMO_VOCAB_SIZE = 6000
# Two minutes of training are too few for dropout to help, and a model 128 wide learns sooner
# from larger initial weights than one 768 wide.
DEMO_CONFIG = {
    "max_position_embeddings": 128,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
    "initializer_range": 0.05,
}
DEMO_FLAGS = {
    "output_dir": "output/demo",
    "do_train": True,
    "do_eval": True,
    "max_seq_length": 64,
    "max_predictions_per_seq": 10,
    "dupe_factor": 2,
    "train_batch_size": 32,
    "eval_batch_size": 64,
    "learning_rate": 7e-4,
    "num_train_steps": 3000,
    "num_warmup_steps": 300,
    "max_eval_steps": 0,
    "eval_steps": 500,
    "save_checkpoints_steps": 1000,
    "dtype": "bfloat16",
}


def set_demo_flags() -> None:
    """Gives the demo's values to the flags that the command line leaves alone."""
    for name, value in DEMO_FLAGS.items():
        if not FLAGS[name].present:
            FLAGS[name].value = value


def check_flags() -> None:
    """Refuses combinations that can't work, before anything is read or written."""
    if not FLAGS.do_train and not FLAGS.do_eval:
        raise errors.ModelingError(
            "Nothing to do: give --do_train, --do_eval or both, or --demo for a first run."
        )
    if not FLAGS.output_dir:
        raise errors.ModelingError("--output_dir is missing: the folder for checkpoints.")
    sources = [n for n in ("demo", "input_file", "corpus_file") if FLAGS[n].value]
    if len(sources) != 1:
        raise errors.ModelingError(
            f"Give exactly one of --input_file (TFRecords), --corpus_file (raw text) and --demo; "
            f"got {', '.join('--' + name for name in sources) or 'none'}."
        )
    for name, needed in (("eval_file", "input_file"), ("eval_corpus_file", "corpus_file")):
        if FLAGS[name].value and not FLAGS[needed].value:
            raise errors.ModelingError(
                f"--{name} goes with --{needed}, but --{sources[0]} is given."
            )
    if not FLAGS.demo and not FLAGS.bert_config_file:
        raise errors.ModelingError(
            "--bert_config_file is missing: the JSON file with the model's sizes."
        )
    if FLAGS.init_checkpoint and not FLAGS.input_file and not FLAGS.vocab_file:
        raise errors.ModelingError(
            f"--init_checkpoint={FLAGS.init_checkpoint} needs the --vocab_file that it was trained "
            f"with. A vocabulary learned from the text would give its words other ids."
        )


def read_config() -> BertConfig:
    """The model's configuration, checked against the length of the records."""
    if FLAGS.bert_config_file:
        config = BertConfig.from_json_file(FLAGS.bert_config_file)
    else:
        config = BertConfig.named("tiny", DEMO_VOCAB_SIZE, **DEMO_CONFIG)
    if FLAGS.max_seq_length > config.max_position_embeddings:
        raise errors.ModelingError(
            f"--max_seq_length is {FLAGS.max_seq_length}, but max_position_embeddings in "
            f"{FLAGS.bert_config_file} is {config.max_position_embeddings}."
        )
    return config


@functools.cache
def demo_documents() -> list[corpus.Document]:
    """The embedded corpus: docstrings of the installed packages."""
    logging.info("Reading the docstrings of the installed packages")
    return docstrings.docstring_documents(DEMO_CORPUS_BYTES)


def find_records(config: BertConfig) -> from_text.Records:
    """The training and held-out records, made from raw text where that was given."""
    if FLAGS.input_file and not FLAGS.demo:
        return from_text.existing_records(
            FLAGS.input_file, FLAGS.eval_file, FLAGS.vocab_file, config.vocab_size
        )
    settings = from_text.Settings(
        max_seq_length=FLAGS.max_seq_length,
        max_predictions_per_seq=FLAGS.max_predictions_per_seq,
        dupe_factor=FLAGS.dupe_factor,
        masked_lm_prob=FLAGS.masked_lm_prob,
        short_seq_prob=FLAGS.short_seq_prob,
        do_whole_word_mask=FLAGS.do_whole_word_mask,
        do_lower_case=FLAGS.do_lower_case,
        random_seed=FLAGS.random_seed,
    )
    # Weights that were trained with a vocabulary keep it, even if the text has changed since.
    keep_vocabulary = run_state.latest_step(FLAGS.output_dir) > 0
    if FLAGS.demo:
        return from_text.make_records(
            demo_documents,
            f"docstrings around TensorFlow {tf.__version__}, {len(demo_documents())} documents",
            FLAGS.output_dir,
            config.vocab_size,
            settings,
            FLAGS.vocab_file,
            keep_vocabulary=keep_vocabulary,
        )
    files = corpus.expand(FLAGS.corpus_file)
    eval_files = corpus.expand(FLAGS.eval_corpus_file) if FLAGS.eval_corpus_file else []
    return from_text.make_records(
        lambda: corpus.read_documents(files),
        from_text.describe_files(files + eval_files),
        FLAGS.output_dir,
        config.vocab_size,
        settings,
        FLAGS.vocab_file,
        (lambda: corpus.read_documents(eval_files)) if eval_files else None,
        keep_vocabulary,
    )


def show_demo(model, records: from_text.Records, eval_data, accuracy: float) -> None:
    """Prints the baseline and a few held-out sentences with the model's guesses."""
    baseline = probes.most_frequent_token(eval_data, model.config.vocab_size)
    tokenizer = Tokenizer(records.vocab_file, FLAGS.do_lower_case)
    _, held_out = from_text.split(demo_documents)
    sentences, inputs = probes.masked_sentences(
        held_out(), tokenizer, 5, FLAGS.max_seq_length, FLAGS.random_seed
    )
    ids, probabilities = fill_masks(model, inputs)
    print(
        f"\nMasked words guessed right in held-out text: {accuracy:.1%}; always guessing "
        f"{tokenizer.vocab[baseline.token_id]!r}, the most frequent, gets {baseline.accuracy:.1%}."
    )
    print("Held-out sentences with one word masked, and the three likeliest words:")
    for sentence, words, shares in zip(sentences, ids[:, 0], probabilities[:, 0], strict=True):
        guesses = ", ".join(
            f"{tokenizer.vocab[i]} {p:.0%}" for i, p in zip(words, shares, strict=True)
        )
        print(f"\n  {sentence.text}\n    masked: {sentence.word}    guessed: {guesses}")


def train_model(model, records: from_text.Records, shape, reporter: Reporter, evaluate) -> int:
    """Trains from where --output_dir or --init_checkpoint stands; returns the step reached."""
    dataset = pipeline.pretraining_dataset(
        records.train_files,
        *shape,
        batch_size=FLAGS.train_batch_size,
        training=True,
        seed=FLAGS.random_seed,
        held_out=records.side(training=True),
    )
    weights = {n: w.value for n, w in checkpoints.weights_by_name(model).items()}
    schedule = warmup_linear_decay(
        FLAGS.learning_rate, FLAGS.num_train_steps, FLAGS.num_warmup_steps
    )
    train_step = TrainStep(
        model, pretraining_losses, BertAdam(weights, schedule), FLAGS.random_seed
    )
    iterator, can_be_saved = make_iterator(dataset, run_state.latest_step(FLAGS.output_dir))
    state = run_state.RunState(
        FLAGS.output_dir,
        train_step,
        iterator if can_be_saved else None,
        f"{records.describe()}\nbatch {FLAGS.train_batch_size} seed {FLAGS.random_seed}",
    )
    run_state.start_or_resume(state, reporter, FLAGS.init_checkpoint)
    train(
        train_step,
        iterator,
        state,
        reporter,
        num_train_steps=FLAGS.num_train_steps,
        save_checkpoints_steps=FLAGS.save_checkpoints_steps,
        steps_per_call=FLAGS.iterations_per_loop,
        log_steps=FLAGS.log_steps,
        eval_steps=FLAGS.eval_steps,
        evaluate=evaluate,
    )
    return int(train_step.global_step.numpy())


def main(_) -> None:
    if FLAGS.demo:
        set_demo_flags()
    check_flags()
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
    )
    distribution.set_precision(FLAGS.dtype)

    # ---- Data ----
    config = read_config()
    records = find_records(config)
    shape = (FLAGS.max_seq_length, FLAGS.max_predictions_per_seq, config.vocab_size)
    eval_data = pipeline.pretraining_dataset(
        records.eval_files,
        *shape,
        batch_size=FLAGS.eval_batch_size,
        training=False,
        held_out=records.side(training=False),
    )
    if FLAGS.max_eval_steps:
        logging.info(
            "Evaluations take the first %d batches of %d held-out records at most; "
            "--max_eval_steps=0 takes all.",
            FLAGS.max_eval_steps,
            FLAGS.eval_batch_size,
        )
        eval_data = eval_data.take(FLAGS.max_eval_steps)

    with strategy.scope():
        model = BertPretrainer(config)
        model.build()
        logging.info("The model has %s parameters.", f"{model.count_params():,}")
        reporter = Reporter(FLAGS.output_dir, FLAGS.num_train_steps, FLAGS.train_batch_size)
        evaluate = Evaluator(model, pretraining_losses)

        def evaluate_now(step: int) -> dict[str, float]:
            results = evaluate(eval_data)
            perplexity = math.exp(min(results["masked_lm_loss"], 700.0))
            shown = results | {"masked_lm_perplexity": perplexity}
            reporter.write("eval", step, shown)
            values = "  ".join(f"{name} {value:.4f}" for name, value in shown.items())
            logging.info("held out at step %d: %s", step, values)
            return results

        try:
            # ---- Train ----
            if FLAGS.do_train:
                step = train_model(model, records, shape, reporter, evaluate_now)
                checkpoints.save(model, FLAGS.output_dir, records.vocab_file)
                logging.info("Wrote bert_model.ckpt and bert_config.json to %s", FLAGS.output_dir)
            else:
                step = run_state.load_trained(
                    model, FLAGS.output_dir, FLAGS.init_checkpoint, prefer_directory=True
                )

            # ---- Evaluate ----
            if FLAGS.do_eval:
                results = evaluate_now(step)
                write_results(FLAGS.output_dir, "eval_results.txt", results | {"global_step": step})
        except (tf.errors.InvalidArgumentError, tf.errors.DataLossError):
            # If a record is to blame, this raises the error that names its file and number.
            records.diagnose(*shape)
            raise
    plot = reporter.plot(
        "pretraining.png",
        {
            "Loss": ["masked_lm_loss", "next_sentence_loss"],
            "Accuracy": ["masked_lm_accuracy", "next_sentence_accuracy"],
            "Perplexity": ["masked_lm_perplexity"],
        },
    )
    logging.info("Curves: %s", plot)
    if FLAGS.demo and FLAGS.do_eval:
        show_demo(model, records, eval_data, results["masked_lm_accuracy"])


if __name__ == "__main__":
    errors.run(main, DataError)
