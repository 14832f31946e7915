"""Fine-tunes BERT to tag words: named entities, or whatever else has the form of the CoNLL tasks.

    python run_ner.py --data_dir=$CONLL_DIR --train_file=eng.train --dev_file=eng.testa \\
        --test_file=eng.testb --do_train=True --do_eval=True --do_predict=True \\
        --vocab_file=$BERT_BASE_DIR/vocab.txt \\
        --bert_config_file=$BERT_BASE_DIR/bert_config.json \\
        --init_checkpoint=$BERT_BASE_DIR/bert_model.ckpt --train_batch_size=32 \\
        --learning_rate=5e-5 --num_train_epochs=3.0 --output_dir=/tmp/conll_output/
From nothing, in a few minutes, on what is installed:
    python run_ner.py --demo

Files have a word per line, its columns and a blank line behind each sentence, or a sentence per
line, its words, a tab and their tags, or are JSON lines. --split_characters tags characters.
--document_context fills the window with neighbouring sentences. With
--learning_rates=5e-5,3e-5,2e-5 --num_runs=5 it searches as the paper did. --do_predict writes
predictions.txt (word, gold tag, predicted tag: what conlleval reads) and entities.jsonl,
--do_export a SavedModel from text to entities.
"""

from absl import flags

from data.tasks import flags as task_flags
from data.tasks.tagging import flags as tagging_flags
from modeling import flags as model_flags
from modeling.serving import flags as export_flags
from modeling.training import flags as training_flags
from modeling.training.engine import flags as hardware_flags

FLAGS = flags.FLAGS

tagging_flags.define_tagging_flags()
model_flags.define_model_flags()
model_flags.define_student_flags()
model_flags.define_tagger_model_flags()
training_flags.define_fine_tuning_flags()
training_flags.define_student_command_flag()
training_flags.define_training_evaluation_flag()
training_flags.define_head_flag()
hardware_flags.define_hardware_flags()
export_flags.define_export_flags("student")
REQUIRED = ("output_dir",)

if __name__ == "__main__":
    # Before TensorFlow is imported, which takes seconds.
    model_flags.answer_help(FLAGS, __doc__)

from modeling import quiet  # noqa: F401  isort: skip

import copy
import dataclasses
import functools
import json
import os

import numpy as np
from absl import logging

from data import progress
from data.demo import code_words, comparison
from data.errors import DataError
from data.files import atomic
from data.files.bad_rows import BadRows
from data.files.locks import one_run
from data.tasks import labels
from data.tasks.splits import first_examples
from data.tasks.tagging import inputs, metrics, mistakes, predictions, reading, tags
from data.tasks.tagging.rows import TaggingSettings
from data.tokenization import Tokenizer
from data.vectors.store import stored_vectors
from modeling import errors, from_pretrained
from modeling.answers.tags import TagsFromLogits
from modeling.config import BertConfig
from modeling.layers.heads import class_log_priors
from modeling.logs import activity
from modeling.losses import TaggingLosses
from modeling.models import BertTagger
from modeling.serving.export import Export
from modeling.serving.tagging import export_tagger
from modeling.training.distillation.students import run_students
from modeling.training.engine.distribution import is_chief
from modeling.training.engine.evaluation import ReplicaPredictor
from modeling.training.fine_tuning import fine_tune
from modeling.training.given_model import check_training_fits_model
from modeling.training.reports.contents import MOST_MISTAKES, Mistake, ReportMatrix, TaskReport
from modeling.training.reports.tagging import tagging_fields
from modeling.training.runs import identity
from modeling.training.runs.reporting import tell_of_earlier_results, write_run_results
from modeling.training.runs.run_folder import holds_model
from modeling.training.runs.session import run_outputs, task_session
from modeling.training.settings import FineTuningSettings, fine_tuning_settings
from modeling.training.task import TaskEvaluation
from modeling.vectors.extraction import FrozenEncoder, FrozenEncoderTagger
from modeling.vectors.vector_tagger import VectorTagger

FILES = {"train": "train_file", "dev": "dev_file", "test": "test_file"}


class Tagging:
    """Tags for words, as `modeling.training.task.Task` wants it; its answers are tags of words."""

    losses = TaggingLosses()
    result_names = (*(f"eval_{name}" for name in metrics.NAMES), "eval_loss")

    def __init__(self, tokenizer: Tokenizer, config: BertConfig, frozen: FrozenEncoder | None):
        self.tokenizer = tokenizer
        self.frozen = frozen
        self.settings = TaggingSettings(
            FLAGS.max_seq_length, FLAGS.window_stride, FLAGS.document_context
        )
        self.bad_rows = BadRows(FLAGS.skip_bad_rows)
        self.sentences = {}
        self.split_for = tokenizer  # of characters; a teacher's pieces are of the same words
        self.train_labels = None
        characters = FLAGS.split_characters
        if FLAGS.do_train:
            sentences = self._sentences("train", FLAGS.model_scheme, characters)
            self.sentences["train"] = sentences
            self.tags = tags.make_tag_set(sentences, FLAGS.model_scheme, characters)
            content, folder = tags.saved_tags(self.tags), FLAGS.output_dir
            labels.keep_labels(folder, content, is_chief(), holds_model(folder))
        else:
            # Of a frozen model's checkpoint the tagger beside it isn't this one.
            checkpoint = None if frozen else FLAGS.init_checkpoint
            check_frozen_encoder(frozen, FLAGS.output_dir, FLAGS.init_checkpoint)
            places = (FLAGS.output_dir, checkpoint)
            self.tags = tags.load_tags(*places, config.labels, characters)
        self.separator = "" if self.tags.split_characters else FLAGS.word_separator
        self.config = config.with_head("tags", self.tags.names)
        self.identity = {
            "labels": self.tags.names,
            "bert_config_file": config.encoder_dict(),
            "vectors": frozen.fingerprint if frozen else None,
            "original_head": FLAGS.original_head,
            **{name: FLAGS[name].value for name in ("token_column", "tag_column", "scheme")},
        }

    def _sentences(self, purpose: str, scheme: str, split_characters: bool) -> list:
        path, labelled = FLAGS[FILES[purpose]].value, purpose != "test"
        how = (scheme, self.bad_rows, self.split_for if split_characters else None)
        return reading.read_tagging_file(FLAGS, path, labelled, *how)

    def read(self, purpose: str) -> list:
        sentences = self.sentences.get(purpose) or self._sentences(
            purpose, self.tags.scheme, self.tags.split_characters
        )
        most = {"train": FLAGS.max_train_examples, "dev": FLAGS.max_eval_examples}
        sentences = first_examples(sentences, most.get(purpose, 0), purpose)
        how = (self.tokenizer, self.tags, self.settings, self.bad_rows)
        how = (*how, self.config.max_position_embeddings)
        split = reading.tokenised_tagging(purpose, sentences, *how)
        if purpose == "train" and FLAGS.transfer_file:
            split = split.with_unlabelled(self._unlabelled(how))
        if self.frozen:
            vectors = stored_vectors(
                os.path.join(FLAGS.output_dir, "features"),
                purpose,
                split.features,
                self.frozen.fingerprint,
                self.frozen.width,
                self.frozen.extractor,
            )
            split = dataclasses.replace(split, vectors=vectors)
        if purpose == "train" and not FLAGS.original_head:
            labels_of_pieces = split.features.piece_labels
            self.train_labels = labels_of_pieces[labels_of_pieces >= 0]
        return [split]

    def read_with(self, tokenizer: Tokenizer) -> list:
        other = copy.copy(self)
        other.tokenizer, other.frozen = tokenizer, None
        return other.read("train")

    def _unlabelled(self, how):
        """The sentences of --transfer_file; tags that they have don't count."""
        split_for = self.split_for if self.tags.split_characters else None
        more = (self.tags.scheme, self.bad_rows, split_for)
        sentences = reading.read_tagging_file(FLAGS, FLAGS.transfer_file, False, *more)
        sentences = [dataclasses.replace(sentence, tags=None) for sentence in sentences]
        split = reading.tokenised_tagging("transfer", sentences, *how)
        rows = split.rows.unlabelled()
        return dataclasses.replace(split, features=rows.features, rows=rows)

    def make_model(self):
        if self.frozen:
            model = VectorTagger(self.config, self.frozen.width, len(self.tags))
        else:
            model = BertTagger(self.config, len(self.tags), remat=FLAGS.remat)
        model.build()
        if self.train_labels is not None:
            counts = np.bincount(self.train_labels, minlength=len(self.tags))
            model.output_bias.assign(class_log_priors(counts))
        return model

    def predictor(self, model):
        """Answers are tags of every sentence's words, their probabilities, and the mean loss."""
        predictor = ReplicaPredictor(TagsFromLogits(model), "tagged")

        def predict(split, batches):
            tagged = predictor(batches(split))
            predicted = split.rows.tags_of_words(tagged[..., 0].astype(int), self.tags)
            scores = split.rows.of_sentences(tagged[..., 1], 1.0)
            return predicted, scores, split.rows.mean_of_labelled(tagged[..., 2])

        return predict

    def evaluate(self, split, answers) -> TaskEvaluation:
        predicted, _, loss = answers
        gold = reading.gold_tags(split)
        if gold is None:
            return TaskEvaluation({})
        scores = metrics.evaluate_tags(gold, predicted)
        results = {f"eval_{name}": value for name, value in scores.items()} | {"eval_loss": loss}
        answered, right = ({t for words in tagged for t in words} for tagged in (predicted, gold))
        constant = len(answered) == 1 < len(right)
        return TaskEvaluation(results, f"the tag {answered.pop()}" if constant else "")

    def write_evaluation(self, split, answers, results, first: bool) -> TaskReport | None:
        """eval_results.txt, and the scores by type."""
        self._report("eval", split, answers, results)
        if not is_chief():
            return None
        return self._judged(split, *answers[:2], results)

    def _judged(self, split, predicted, scores, results) -> TaskReport:
        """What card and page say."""
        gold, sentences, rows = reading.gold_tags(split), split.examples, split.rows
        fields = tagging_fields(
            mistakes.count_entities(gold, predicted),
            mistakes.right_words(gold, predicted),
            scores,
            mistakes.entity_scores(gold, predicted, scores),
            [sentence.document for sentence in sentences],
        )
        limits = [
            f"No sentence was cut; {rows.sentences_in_parts:,} of {len(sentences):,} were read in "
            f"more than one window of {FLAGS.max_seq_length} pieces.",
            f"Words that vanish in tokenisation, always O: {rows.words_without_piece:,}.",
        ]
        worst = mistakes.worst_tagged(gold, predicted, MOST_MISTAKES, scores)
        return TaskReport(
            **{**fields, "limits": limits + fields["limits"]},
            data=os.path.basename(FLAGS[FILES[split.name]].value),
            results={name: results[name] for name in self.result_names},
            matrices=[
                ReportMatrix("What words are taken for", *mistakes.tag_confusions(gold, predicted))
            ],
            mistakes=[
                Mistake(
                    sentences[n].source,
                    mistakes.listed_entities(sentences[n].words, gold[n]),
                    mistakes.listed_entities(sentences[n].words, predicted[n]),
                    value,
                    [("", self.separator.join(sentences[n].words))],
                )
                for n, value in worst
            ],
            example=json.dumps(
                {"text": self.separator.join(sentences[0].words)}, ensure_ascii=False
            ),
        )

    def _report(self, name: str, split, answers, results) -> None:
        write_run_results(FLAGS.output_dir, f"{name}_results.txt", {**results, **split.left_out})
        if is_chief():
            report = metrics.report_by_type(reading.gold_tags(split), answers[0])
            logging.info("%s by type\n%s", FLAGS[FILES[split.name]].value, report)
            path = os.path.join(FLAGS.output_dir, f"{name}_report.txt")
            atomic.write_text(path, report + "\n")

    def write_predictions(self, split, answers, step: int, first: bool) -> None:
        """predictions.txt and entities.jsonl; scores as well, where there are gold tags."""
        results = self.evaluate(split, answers).results
        if results:
            named = {name.replace("eval", "test"): value for name, value in results.items()}
            self._report("test", split, answers, named | {"global_step": step})
        else:
            tell_of_earlier_results(FLAGS.output_dir, ("test_results.txt", "test_report.txt"))
        if not is_chief():
            return
        path = os.path.join(FLAGS.output_dir, "predictions.txt")
        predictions.write_tag_columns(path, split.examples, answers[0])
        logging.info("Wrote the tags of %d sentences to %s", len(split.examples), path)
        path = os.path.join(FLAGS.output_dir, "entities.jsonl")
        predictions.write_entities(path, split.examples, *answers[:2], self.separator)
        logging.info("Wrote their entities to %s", path)

    def export(self, model) -> str:
        """A SavedModel from text or words to tags and entities."""
        lengths = {
            "max_seq_length": FLAGS.max_seq_length,
            "window_stride": FLAGS.window_stride,
            "max_windows": FLAGS.export_max_windows,
        }
        from_texts = inputs.tag_inputs_from_texts
        if self.tags.split_characters:
            from_texts = inputs.tag_inputs_from_characters
        return export_tagger(
            FrozenEncoderTagger(self.frozen.model, model) if self.frozen else model,
            Export.from_flags(FLAGS),
            functools.partial(from_texts, self.tokenizer, **lengths),
            functools.partial(
                inputs.tag_inputs_from_words,
                self.tokenizer,
                separator=self.separator,
                **lengths,
            ),
            self.tags.names,
        )


def check_files(settings: FineTuningSettings) -> None:
    """Refuses a job without its file, before anything is read."""
    needed = {"train": settings.do_train, "dev": settings.evaluating, "test": settings.do_predict}
    for purpose, flag in FILES.items():
        if needed[purpose] and not FLAGS[flag].value:
            raise errors.ModelingError(
                f"--{flag} is missing: a file with a word and its tag per line, a sentence per "
                "line, or JSON lines."
            )
    if FLAGS.feature_based and not FLAGS.init_checkpoint:
        raise errors.ModelingError(
            "--feature_based needs --init_checkpoint: the model that the vectors come from."
        )
    student = (FLAGS.student_layers, FLAGS.student_num_layers, FLAGS.student_hidden_size)
    if FLAGS.feature_based and any(student):
        raise errors.ModelingError(
            "--feature_based trains no encoder, so that a student of one would stay as it was "
            "cut: leave the flags of a student out."
        )
    if FLAGS.feature_based and (FLAGS.freeze_layers or FLAGS.layerwise_lr_decay != 1.0):
        raise errors.ModelingError(
            "--feature_based trains no encoder, so that --freeze_layers and --layerwise_lr_decay "
            "would change nothing: leave them out."
        )


def check_frozen_encoder(frozen: FrozenEncoder | None, folder: str, init_checkpoint: str) -> None:
    """A trained tagger answers from the vectors that it was trained on, and no others."""
    trained_on = identity.read_identity(folder).get("vectors") if frozen else None
    if trained_on and not frozen.is_of(trained_on):
        raise DataError(
            f"The tagger in {folder} was trained on the vectors of another encoder than "
            f"{init_checkpoint}, or of other layers. Give the --init_checkpoint and "
            f"--feature_layers of its training."
        )


def main(_) -> None:
    if FLAGS.demo:
        comparison.run_demo(FLAGS, __file__, code_words, code_words.make_code_word_demo)
        return
    if FLAGS.student:
        run_students(FLAGS, __file__, comparison.run_shown)
        return
    settings = fine_tuning_settings(FLAGS)
    check_files(settings)
    with (
        one_run(FLAGS, *run_outputs(FLAGS)),
        task_session(FLAGS, settings) as (settings, summary),
    ):
        tokenizer = Tokenizer(FLAGS.vocab_file, FLAGS.do_lower_case, (), FLAGS.strip_accents)
        config = settings.config
        check_training_fits_model(FLAGS, config, tokenizer.vocab_size)
        frozen = None
        if FLAGS.feature_based:
            frozen = FrozenEncoder(config, FLAGS.feature_layers, FLAGS.init_checkpoint)
            # What is trained begins with random weights.
            settings = dataclasses.replace(settings, init_checkpoint=None)
        fine_tune(Tagging(tokenizer, config, frozen), settings, summary, from_pretrained)


if __name__ == "__main__":
    task_flags.mark_required_unless_demo(REQUIRED)
    progress.show_with(activity)
    errors.run(main, DataError, flag_values=FLAGS)
