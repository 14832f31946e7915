"""Fine-tunes BERT to tag words: named entities, or whatever else has the form of the CoNLL tasks.

    python run_ner.py --data_dir=$CONLL_DIR --train_file=eng.train --dev_file=eng.testa \\
        --test_file=eng.testb --do_train=True --do_eval=True --do_predict=True \\
        --vocab_file=$BERT_BASE_DIR/vocab.txt --do_lower_case=False \\
        --bert_config_file=$BERT_BASE_DIR/bert_config.json \\
        --init_checkpoint=$BERT_BASE_DIR/bert_model.ckpt --train_batch_size=32 \\
        --learning_rate=5e-5 --num_train_epochs=3.0 --output_dir=/tmp/conll_output/

Files have a word per line, its columns and a blank line behind each sentence, or are JSON lines.
--document_context fills the window with neighbouring sentences. With
--learning_rates=5e-5,3e-5,2e-5 --num_runs=5 it searches as the paper did. --do_predict writes
predictions.txt (word, gold tag, predicted tag: what conlleval reads) and entities.jsonl,
--do_export a SavedModel from text to entities.
"""

from modeling import quiet  # noqa: F401  isort: skip

import dataclasses
import functools
import os

import tensorflow as tf
from absl import flags, logging

from data import batching
from data.errors import DataError
from data.tasks.sentences.predictions import write_text
from data.tasks.tagging import (
    conll as ner,
)
from data.tasks.tagging import flags as ner_flags
from data.tasks.tagging import (
    inputs as ner_inputs,
)
from data.tasks.tagging import (
    metrics as ner_metrics,
)
from data.tasks.tagging import (
    predictions as ner_predictions,
)
from data.tasks.tagging import (
    tags as ner_tags,
)
from data.tasks.tagging.rows import Rows, make_rows
from data.tokenization import Tokenizer, casing
from data.vectors.store import StoredVectors, stored_vectors
from modeling import errors
from modeling.answers.tags import TagNumbers
from modeling.config import BertConfig
from modeling.losses import TaggingLosses
from modeling.models import BertTagger
from modeling.serving import flags as export_flags
from modeling.serving import tagging
from modeling.serving.export import Export
from modeling.training import flags as common_flags
from modeling.training.engine import distribution
from modeling.training.engine.evaluation import Predictor
from modeling.training.runs.reporting import write_results
from modeling.training.runs.session import session
from modeling.training.runs.summary import RunSummary
from modeling.training.search import Trial
from modeling.training.trials import TrainingData, load_weights, run_search, train_trial
from modeling.vectors.extraction import FrozenEncoder
from modeling.vectors.vector_models import VECTOR_LAYERS
from modeling.vectors.vector_tagger import VectorTagger

FLAGS = flags.FLAGS

common_flags.define_run_flags(learning_rate=5e-5, train_batch_size=32, save_steps=1000)
common_flags.define_optimizer_flags()
common_flags.define_hardware_flags()
common_flags.define_fine_tuning_flags()
export_flags.define_export_flags()
common_flags.define_search_flags()
ner_flags.define_file_flags()
ner_flags.define_row_flags()
flags.DEFINE_bool("do_eval", False, "Evaluate on --dev_file.")
flags.DEFINE_bool(
    "feature_based",
    False,
    "Train two layers of LSTM on the vectors of the frozen model (paper, section 5.3).",
)
flags.DEFINE_enum("feature_layers", "concat_last4", VECTOR_LAYERS, "Which layers' vectors that is.")

REQUIRED = ("bert_config_file", "vocab_file", "output_dir")
LABELS_FILE = "labels.json"


@dataclasses.dataclass(frozen=True)
class Split:
    """A file, read and tokenised."""

    path: str
    sentences: list[ner.Sentence]
    rows: Rows
    vectors: StoredVectors | None = None

    @property
    def gold(self) -> list[tuple[str, ...]] | None:
        """Tags of every sentence, if there are any."""
        tags = [sentence.tags for sentence in self.sentences]
        return None if None in tags else tags


def check_flags(config: BertConfig, tokenizer: Tokenizer) -> None:
    """Refuses combinations that can't work, before data is read."""
    if not (FLAGS.do_train or FLAGS.do_eval or FLAGS.do_predict or FLAGS.do_export):
        raise errors.ModelingError(
            "Nothing to do: give at least one of --do_train, --do_eval, --do_predict, --do_export."
        )
    searching = FLAGS.do_train and len(common_flags.search_trials(FLAGS)) > 1
    evaluating = FLAGS.do_eval or FLAGS.eval_steps or searching
    for wanted, flag in (
        (FLAGS.do_train, "train_file"),
        (evaluating, "dev_file"),
        (FLAGS.do_predict, "test_file"),
    ):
        if wanted and not FLAGS[flag].value:
            raise errors.ModelingError(
                f"--{flag} is missing: a file with a word and its tag per line, or JSON lines."
            )
    common_flags.check_model_fits(FLAGS, config, tokenizer.vocab_size)
    if FLAGS.feature_based and not FLAGS.init_checkpoint:
        raise errors.ModelingError(
            "--feature_based needs --init_checkpoint: the model that the vectors come from."
        )


def tagger_checkpoint() -> str | None:
    """What the trained weights may start from: none if --init_checkpoint is the frozen model."""
    return None if FLAGS.feature_based else FLAGS.init_checkpoint


# ---- Data ----


def tokenise(
    path: str, sentences, tokenizer: Tokenizer, tags: ner_tags.TagSet, frozen: FrozenEncoder | None
) -> Split:
    rows = make_rows(tokenizer, sentences, tags, ner_flags.tagging_settings(FLAGS))
    logging.info(
        "%s: %d rows; %d words without a piece", path, len(rows.features), rows.words_without_piece
    )
    vectors = None
    if frozen:
        folder = os.path.join(FLAGS.output_dir, "features")
        name = os.path.basename(path)
        extractor = frozen.extractor
        vectors = stored_vectors(
            folder, name, rows.features, frozen.fingerprint, frozen.width, extractor
        )
    return Split(path, sentences, rows, vectors)


def known_tags(train: list[ner.Sentence] | None) -> ner_tags.TagSet:
    """Those of the training set, which are kept with the model, or those kept before."""
    path = os.path.join(FLAGS.output_dir, LABELS_FILE)
    if train:
        tags = ner_tags.make_tag_set(train, FLAGS.model_scheme)
        if distribution.is_chief():
            ner_tags.save_tags(path, tags)
        return tags
    if not tf.io.gfile.exists(path) and FLAGS.init_checkpoint:
        path = os.path.join(os.path.dirname(FLAGS.init_checkpoint.rstrip("/")), LABELS_FILE)
    return ner_tags.load_tags(path)


def dataset(split: Split, batch_size: int, seed: int | None = None) -> tf.data.Dataset:
    """This process's batches of rows, in order; with a seed endless ones to train on."""
    share = distribution.share(batch_size)
    static = FLAGS.xla or distribution.on_tpu() or not FLAGS.length_buckets
    # What several workers have predicted of one batch must fit together.
    static = static or (seed is None and share.num_parts > 1)
    shape = batching.Batching(
        batch_size,
        None if static else batching.default_buckets(FLAGS.max_seq_length),
        num_parts=share.num_parts,
        parts=share.parts,
    )
    order = (shape, seed is not None, seed or 0)
    if split.vectors:
        return split.vectors.batches(split.rows.features, *order)
    return batching.batches(split.rows.features, *order)


# ---- Training ----


def training_data(train: Split, trial: Trial) -> TrainingData:
    """What a trial trains on."""
    number = len(train.rows.features)
    return TrainingData(
        lambda: dataset(train, trial.batch_size, trial.seed),
        number / trial.batch_size,
        number,
        f"{describe_data(train)}, batch {trial.batch_size}, seed {trial.seed}",
        train.rows.describe,
    )


def describe_data(train: Split) -> str:
    """Names the data and how it is read; other data make another run."""
    features = f", features {train.vectors.path}" if train.vectors else ""
    settings = ner_flags.tagging_settings(FLAGS)
    return f"{train.path} {len(train.sentences)} sentences, {settings}{features}"


class Evaluator:
    """Tags a split and, if it has gold tags, scores it; `predicted` are the last tags."""

    names = (*(f"eval_{name}" for name in ner_metrics.NAMES), "eval_loss")

    def __init__(self, model, split: Split, tags: ner_tags.TagSet, batch_size: int):
        self.split = split
        self.tags = tags
        self.batch_size = batch_size
        self.predictor = Predictor(TagNumbers(model), "tagged")
        self.predicted: list[list[str]] = []

    def __call__(self, step: int = 0) -> dict[str, float]:
        """Results of the model as it is, whatever the step; {} without gold tags."""
        rows = self.split.rows
        tagged = self.predictor(dataset(self.split, self.batch_size))
        self.predicted = rows.tags_of_words(tagged[..., 0].astype(int), self.tags)
        if self.split.gold is None:
            return {}
        scores = ner_metrics.evaluate(self.split.gold, self.predicted)
        return {f"eval_{name}": value for name, value in scores.items()} | {
            "eval_loss": rows.mean_of_labelled(tagged[..., 1])
        }


def search(make_model, make_evaluator, train: Split, trials) -> None:
    """The paper's search; leaves the best weights in best/ of the output folder."""

    def train_one(model, trial: Trial, folder: str) -> tuple[int, dict[str, float], bool]:
        evaluator = make_evaluator(model)
        data = training_data(train, trial)
        step, results = train_trial(
            *(FLAGS, model, TaggingLosses(), trial, data, folder, evaluator),
            init_checkpoint=tagger_checkpoint(),
        )
        degenerate = len({tag for tags in evaluator.predicted for tag in tags}) == 1
        return step, results, degenerate

    run_search(FLAGS, Evaluator.names, describe_data(train), trials, make_model, train_one)


# ---- Results ----


def report(evaluator: Evaluator, results: dict[str, float], name: str) -> None:
    """NAME_results.txt, and the scores by type."""
    write_results(FLAGS.output_dir, f"{name}_results.txt", results)
    if distribution.is_chief():
        text = ner_metrics.report(evaluator.split.gold, evaluator.predicted)
        logging.info("%s by type\n%s", evaluator.split.path, text)
        write_text(os.path.join(FLAGS.output_dir, f"{name}_report.txt"), text + "\n")


def write_predictions(evaluator: Evaluator) -> None:
    """predictions.txt and entities.jsonl."""
    path = os.path.join(FLAGS.output_dir, "predictions.txt")
    sentences, predicted = evaluator.split.sentences, evaluator.predicted
    ner_predictions.write_columns(path, sentences, predicted)
    logging.info("Wrote the tags of %d sentences to %s", len(sentences), path)
    path = os.path.join(FLAGS.output_dir, "entities.jsonl")
    ner_predictions.write_entities(path, sentences, predicted, FLAGS.word_separator)
    logging.info("Wrote their entities to %s", path)


def export_model(model, tokenizer: Tokenizer, tags: ner_tags.TagSet) -> None:
    """A SavedModel from text or words to tags and entities."""
    lengths = {"max_seq_length": FLAGS.max_seq_length, "window_stride": FLAGS.window_stride}
    folder = tagging.export_tagger(
        model,
        Export.from_flags(FLAGS),
        functools.partial(ner_inputs.from_texts, tokenizer, **lengths),
        functools.partial(
            ner_inputs.from_words, tokenizer, separator=FLAGS.word_separator, **lengths
        ),
        tags.names,
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
    check_flags(config, tokenizer)
    trials = common_flags.search_trials(FLAGS)
    searching = FLAGS.do_train and len(trials) > 1
    train = None
    if FLAGS.do_train:
        train = ner_flags.read_file(FLAGS, FLAGS.train_file, True, FLAGS.model_scheme)
    tags = known_tags(train)
    frozen = None
    if FLAGS.feature_based:
        frozen = FrozenEncoder(config, FLAGS.feature_layers, FLAGS.init_checkpoint)
    train = tokenise(FLAGS.train_file, train, tokenizer, tags, frozen) if train else None

    def read(path: str, labelled: bool) -> Split:
        sentences = ner_flags.read_file(FLAGS, path, labelled, tags.scheme)
        return tokenise(path, sentences, tokenizer, tags, frozen)

    dev = None
    if FLAGS.do_eval or FLAGS.eval_steps or searching:
        dev = read(FLAGS.dev_file, True)
    test = read(FLAGS.test_file, False) if FLAGS.do_predict else None

    # ---- Model ----
    def make_model():
        if frozen:
            model = VectorTagger(config, frozen.width, len(tags))
        else:
            model = BertTagger(config, len(tags), remat=FLAGS.remat)
        model.build()
        return model

    def make_evaluator(model) -> Evaluator:
        return Evaluator(model, dev, tags, FLAGS.eval_batch_size)

    # ---- Train ----
    if searching:
        search(make_model, make_evaluator, train, trials)
    model = make_model()
    evaluator = make_evaluator(model) if dev else None
    results = {}
    if train and not searching:
        data = training_data(train, trials[0])
        step, results = train_trial(
            *(FLAGS, model, TaggingLosses(), trials[0], data, FLAGS.output_dir, evaluator),
            *(summary,),
            init_checkpoint=tagger_checkpoint(),
        )
    else:
        step = load_weights(FLAGS, model, searching, init_checkpoint=tagger_checkpoint())
        summary.attach(model=model)

    # ---- Evaluate, predict, export ----
    if FLAGS.do_eval:
        results = results or evaluator()
        report(evaluator, results | {"global_step": step, "loss": results["eval_loss"]}, "eval")
    if test:
        evaluator = Evaluator(model, test, tags, FLAGS.predict_batch_size)
        results = {name.replace("eval", "test"): value for name, value in evaluator().items()}
        if results:
            report(evaluator, results | {"global_step": step}, "test")
        if distribution.is_chief():
            write_predictions(evaluator)
    if FLAGS.do_export and distribution.is_chief():
        export_model(frozen.with_tagger(model) if frozen else model, tokenizer, tags)


if __name__ == "__main__":
    flags.mark_flags_as_required(REQUIRED)
    errors.run(main, DataError)
