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
With --estimate it prints what such a run takes and costs, and does nothing.
"""

from absl import flags

from data.pretraining import flags as pretraining_flags
from modeling import flags as model_flags
from modeling.serving import flags as export_flags
from modeling.training import flags as training_flags
from modeling.training.engine import flags as hardware_flags

FLAGS = flags.FLAGS

pretraining_flags.define_pretraining_flags()
model_flags.define_model_flags()
model_flags.define_student_flags()
training_flags.define_pretraining_flags()
training_flags.define_teacher_flags(pretraining=True)
hardware_flags.define_hardware_flags()
export_flags.define_export_flags()
export_flags.define_export_fill_mask_flag()

if __name__ == "__main__":
    # Before TensorFlow is imported, which takes seconds.
    model_flags.answer_help(FLAGS, __doc__)

from modeling import quiet  # noqa: F401  isort: skip

import functools
import math
import os

import tensorflow as tf
from absl import logging

from data.errors import DataError
from data.files.locks import one_run
from data.pretraining import corpus, demo, domain, from_text, judged_text, rehearsal
from data.pretraining.batches import pipeline
from data.pretraining.instances.masking import MaskSettings
from data.pretraining.instances.settings import MLM, MLM_NSP, InstanceSettings
from data.tokenization import Tokenizer, build_inputs
from modeling import checkpoints, errors, from_pretrained
from modeling.answers.fill_mask import fill_masks
from modeling.checkpoints import model_folder
from modeling.config import BertConfig
from modeling.costs.estimate import estimate_run, gains_from_parts
from modeling.layers.local_start import start_locally
from modeling.losses import PretrainingLosses
from modeling.models import BertPretrainer
from modeling.serving.export import Export
from modeling.serving.pretraining import export_pretrainer
from modeling.training import given_model
from modeling.training import settings as training_settings
from modeling.training.adaptation.adapting import Adaptation
from modeling.training.adaptation.plan import set_adaptation_flags
from modeling.training.distillation.pretraining import taught_pretraining
from modeling.training.engine import distribution
from modeling.training.engine.evaluation import Evaluator
from modeling.training.engine.setup import make_train_step
from modeling.training.given_student import take_student
from modeling.training.phases import Phase, check_phases_fit, given_phases, phase_folders
from modeling.training.recipes import set_recipe_flags
from modeling.training.runs import run_folder, run_state
from modeling.training.runs.best import load_best
from modeling.training.runs.budget import budgeted_phases
from modeling.training.runs.charts import PRETRAINING_CURVES
from modeling.training.runs.fit import RunStage, fit_run
from modeling.training.runs.reporting import Reporter, reported_evaluation, write_run_results
from modeling.training.runs.session import run_outputs, session
from modeling.training.runs.summary import RunSummary


def check_flags() -> None:
    """Refuses combinations that can't work, before anything is read or written."""
    training_settings.check_pretraining_run(FLAGS)
    if not FLAGS.do_train:
        run_state.check_weights(FLAGS.output_dir, FLAGS.init_checkpoint)
    reading = FLAGS.do_train or FLAGS.do_eval
    if reading:
        pretraining_flags.check_pretraining_sources(FLAGS)
    if not FLAGS.demo:
        given_model.open_given_model(FLAGS, learns_vocabulary=reading)
    if reading:
        pretraining_flags.check_pretraining_flags(FLAGS)
    if FLAGS.input_file:
        pretraining_flags.check_idle_pretraining_flags(FLAGS, exporting=FLAGS.do_export)
    if FLAGS.do_export and not FLAGS.vocab_file and FLAGS.input_file:
        raise errors.ModelingError("--vocab_file is missing: the exported model reads texts by it.")
    if FLAGS.init_checkpoint and not FLAGS.input_file and not FLAGS.vocab_file:
        raise errors.ModelingError(
            f"--init_checkpoint={FLAGS.init_checkpoint} needs the --vocab_file that it was trained "
            f"with. A vocabulary learned from the text would give its words other ids."
        )


def read_config(phases: list[Phase]) -> BertConfig:
    """The model's configuration, checked against the length of the records."""
    if FLAGS.demo and not FLAGS.bert_config_file:
        config = BertConfig.named("tiny", demo.VOCAB_SIZE, **demo.CONFIG)
    else:
        config = given_model.open_given_model(FLAGS, learns_vocabulary=True)
    check_phases_fit(phases, config.max_position_embeddings, FLAGS.bert_config_file)
    return training_settings.config_for_objective(FLAGS, config)


def raw_text(files: str | None) -> from_text.PretrainingText | None:
    """The text of files that a flag names."""
    if not files:
        return None
    return from_text.PretrainingText(corpus.expand(files), text_field=FLAGS.text_field)


def find_records(
    config: BertConfig, phase: Phase, directory: str, vocab_file: str | None, besides=None
) -> from_text.RecordsFromText:
    """The training and held-out records of a phase, made from raw text where that was given."""
    if FLAGS.input_file and not FLAGS.demo:
        place = {"max_seq_length": phase.max_seq_length}
        return from_text.existing_records_not_from_text(
            from_text.fill_in_pretraining_length(FLAGS.input_file, place),
            from_text.fill_in_pretraining_length(FLAGS.eval_file, place),
            vocab_file,
            config.vocab_size,
            phase.max_seq_length,
            None if FLAGS.dynamic_masking else phase.max_predictions_per_seq,
            FLAGS.objective,
        )
    settings = InstanceSettings(
        max_seq_length=phase.max_seq_length,
        max_predictions_per_seq=phase.max_predictions_per_seq,
        random_seed=FLAGS.random_seed,
        objective=MLM_NSP if FLAGS.objective == MLM_NSP else MLM,
        dynamic_masking=FLAGS.dynamic_masking,
        **pretraining_flags.pretraining_instance_settings(FLAGS),
    )
    text, held_out = map(raw_text, (FLAGS.corpus_file, FLAGS.eval_corpus_file))
    return from_text.make_records_from_text(
        demo.demo_text() if FLAGS.demo else text,
        *(directory, config.vocab_size, settings, vocab_file, held_out),
        # Weights that were trained with a vocabulary keep it, even if the text has changed since.
        kept_vocab_file=run_folder.trained_vocabulary(FLAGS.output_dir),
        num_workers=FLAGS.num_workers,
        besides=besides,
    )


def make_dataset(
    phase: Phase, records: from_text.RecordsFromText, config: BertConfig, masks, seed: int | None
):
    """Batches of a phase: endless ones by a seed, or without one its held-out records once.

    `masks` says how to mask dynamically, None not to.
    """
    training = seed is not None
    share = distribution.share_of_worker(phase.batch_size if training else FLAGS.eval_batch_size)
    dataset = records.batches(
        training,
        phase.max_seq_length,
        phase.max_predictions_per_seq,
        config.vocab_size,
        batch_size=share.batch_size,
        seed=seed if training else FLAGS.random_seed,
        num_shards=share.num_shards,
        shard_index=share.shard_index,
        objective=FLAGS.objective,
        dynamic_masking=masks,
        pack_sequences=FLAGS.pack_sequences,
    )
    if not training and FLAGS.max_eval_steps:
        dataset = dataset.take(FLAGS.max_eval_steps * distribution.batches_per_step())
    return dataset


def make_model(config: BertConfig) -> BertPretrainer:
    """With the heads that the objective trains."""
    model = BertPretrainer(config, FLAGS.objective == MLM_NSP, remat=FLAGS.remat)
    model.build()
    if FLAGS.initialization == "local":
        start_locally(model.encoder, FLAGS.random_seed)
    return model


def load_weights(model: BertPretrainer) -> int:
    """Those of an earlier run or of --init_checkpoint; returns the step they are of."""
    step = run_state.load_pretrained_run(model, FLAGS.output_dir, FLAGS.init_checkpoint)
    return load_best(model, FLAGS.output_dir) if FLAGS.best_metric else step


def export(model: BertPretrainer, vocab_file: str) -> None:
    """A SavedModel that fills in [MASK] and scores texts."""
    tokenizer = Tokenizer(vocab_file, FLAGS.do_lower_case, ["[MASK]"], FLAGS.strip_accents)
    folder = export_pretrainer(
        model,
        Export.from_flags(FLAGS, vocab_file),
        functools.partial(
            build_inputs, tokenizer, max_seq_length=FLAGS.max_seq_length, pad_to="longest"
        ),
        tokenizer,
        FLAGS.export_top_k,
    )
    logging.info("Wrote the SavedModel %s", folder)


def adapt(summary: RunSummary) -> None:
    """From a released model and own text to a model of that text, with a report."""
    distribution.check_text_for_one_worker()
    sides = from_text.PretrainingSides(*map(raw_text, (FLAGS.corpus_file, FLAGS.eval_corpus_file)))
    general = raw_text(FLAGS.general_corpus_file)
    texts = judged_text.held_out_texts(sides, general)
    extended = os.path.join(FLAGS.output_dir, run_folder.ADAPTED_VOCABULARY, "vocab.txt")
    trained = run_folder.trained_vocabulary(FLAGS.output_dir)
    how = FLAGS.do_lower_case, FLAGS.strip_accents, trained, general
    found = domain.study_domain(sides, FLAGS.vocab_file, extended, *how)
    most = FLAGS.general_share * found.characters
    rehearsed = rehearsal.rehearse(sides, general, FLAGS.output_dir, most, begun=bool(trained))
    adaptation = Adaptation(FLAGS, found, texts, from_pretrained, rehearsed)
    adaptation.begin()
    step = run(summary, rehearsed.text)
    adaptation.finish(summary, step)


def main(_) -> None:
    if FLAGS.demo:
        demo.set_demo_flags(FLAGS)
    set_recipe_flags(FLAGS)
    if FLAGS.estimate:
        phases = given_phases(FLAGS)
        files = corpus.expand(FLAGS.corpus_file) if FLAGS.corpus_file else []
        print(estimate_run(FLAGS, read_config(phases), phases, files))
        return
    if FLAGS.adapt:
        set_adaptation_flags(FLAGS)
    check_flags()
    phases = [] if FLAGS.adapt else given_phases(FLAGS)  # an adaptation looks at its text first
    parts = bool(phases) and gains_from_parts(FLAGS, read_config(phases), phases)
    outputs = run_outputs(FLAGS, FLAGS.do_train)
    with one_run(FLAGS, *outputs), session(FLAGS, parts=parts) as summary:
        take_student(FLAGS)
        if FLAGS.adapt:
            adapt(summary)
        elif FLAGS.do_train or FLAGS.do_eval:
            run(summary)
        else:
            model = make_model(read_config(given_phases(FLAGS)))
            given_model.check_run_vocabulary(FLAGS)
            load_weights(model)
            export(model, FLAGS.vocab_file)


def run(summary: RunSummary, besides: from_text.PretrainingText | None = None) -> int:
    """Everything, with text `besides` the flags'; returns the step of the model that is left."""
    if not FLAGS.input_file:
        distribution.check_text_for_one_worker()
    # ---- Data ----
    phases = given_phases(FLAGS)
    config = read_config(phases)
    for phase in phases:
        distribution.check_replica_batch_sizes(
            FLAGS.gradient_accumulation_steps,
            phase.batch_size,
            eval_batch_size=FLAGS.eval_batch_size,
        )
    records: list[from_text.RecordsFromText] = []
    for phase, name in zip(phases, phase_folders(phases), strict=True):
        folder = os.path.join(FLAGS.output_dir, name) if len(phases) > 1 else FLAGS.output_dir
        vocab_file = records[0].vocab_file if records else FLAGS.vocab_file
        records.append(find_records(config, phase, folder, vocab_file, besides))
    start = run_folder.latest_run_checkpoint(FLAGS.output_dir) or FLAGS.init_checkpoint
    vocab_file = records[0].vocab_file
    vocabulary = checkpoints.agreed_vocabulary(start, vocab_file, records[0].vocabulary)
    masks = MaskSettings.from_flags(FLAGS, vocab_file) if FLAGS.dynamic_masking else None
    eval_sets = [
        make_dataset(phase, found, config, masks, None)
        for phase, found in zip(phases, records, strict=True)
    ]
    if FLAGS.max_eval_steps:
        most = f"first {FLAGS.max_eval_steps} batches of {FLAGS.eval_batch_size} held-out records"
        logging.info("Evaluations take the %s at most; --max_eval_steps=0 takes all.", most)

    # ---- Model ----
    model = make_model(config)
    logging.info("The model has %s parameters.", f"{model.count_params():,}")
    losses = PretrainingLosses(model.next_sentence is not None)
    folding = given_model.known_text_folding(FLAGS)
    how = training_settings.teaching_settings(FLAGS), from_pretrained, FLAGS.teacher_places
    longest = max(phase.max_seq_length for phase in phases)
    taught, teaching = taught_pretraining(losses, model, *how, vocabulary, folding, longest)
    make_step = functools.partial(make_train_step, model, taught)
    # Each phase has an order of its own, so that a later one doesn't begin with the same texts.
    seeds = [FLAGS.random_seed + 1_000_003 * number for number in range(len(phases))]
    batches = [
        functools.partial(make_dataset, phase, found, config, masks, seed)
        for phase, found, seed in zip(phases, records, seeds, strict=True)
    ]
    try:
        phases, num_warmup_steps, keep_budget = budgeted_phases(FLAGS, phases, make_step, batches)
        num_train_steps = phases[-1].last_step
        reporter = Reporter(FLAGS.output_dir, num_train_steps, phases[0].batch_size)
        evaluator = Evaluator(model, losses)

        def held_out(step: int) -> dict[str, float]:
            """On the held-out records of the phase that the step belongs to."""
            results = evaluator(eval_sets[sum(step > phase.last_step for phase in phases[:-1])])
            loss = min(results["masked_lm_loss"], 700.0)
            return results | {"masked_lm_perplexity": math.exp(loss)}

        evaluate = reported_evaluation(held_out, reporter, "held out", FLAGS.do_train)

        # ---- Train ----
        if FLAGS.do_train:
            kept = FLAGS.output_dir, config, vocab_file, folding
            keep_model_files = functools.partial(model_folder.keep_model_files, *kept)
            keep_model_files(write=False)

            def begin(_: bool) -> None:
                keep_model_files(write=distribution.is_chief())
                keep_budget()

            settings = training_settings.training_settings(FLAGS, num_train_steps, num_warmup_steps)
            stages, how = [], f", masking {masks}" * bool(masks) + ", packed" * FLAGS.pack_sequences
            for number, (phase, found) in enumerate(zip(phases, records, strict=True)):
                sizes = f"length {phase.max_seq_length} batch {phase.batch_size}"
                order = f"{sizes} seed {seeds[number]}{how}"
                told = functools.partial(pipeline.describe_pretraining_batch, found.train_files)
                stage = RunStage(
                    phase.last_step,
                    batches[number],
                    f"{found.describe()}\n{order}",
                    phase.batch_size,
                    told if found.train_files else None,
                    phase.max_seq_length,
                    f"{found.describe(former=True)}\n{order}",
                )
                stages.append(stage)
            made = records[0].settings.identity() if records[0].settings else {}
            data = num_warmup_steps, [found.fingerprint() for found in records], made, masks
            identity = training_settings.pretraining_identity(FLAGS, phases, *data)
            step = fit_run(
                make_step(settings),
                stages,
                FLAGS.output_dir,
                FLAGS.init_checkpoint,
                reporter,
                training_settings.training_loop_options(FLAGS),
                evaluate,
                summary,
                result_names=lambda: [*evaluator.names(eval_sets[-1]), "masked_lm_perplexity"],
                identity=identity | teaching,
                judged_by=training_settings.pretraining_judges(FLAGS, records),
                vocabulary=vocabulary,
                begin=begin,
            )
            if distribution.is_chief():
                checkpoints.save(model, FLAGS.output_dir, vocab_file, folding=folding)
                logging.info("Wrote bert_model.ckpt and bert_config.json to %s", FLAGS.output_dir)
        else:
            step = load_weights(model)
            summary.attach(model=model, reporter=reporter)

        # ---- Evaluate ----
        if FLAGS.do_eval:
            results = evaluate(step)
            # The original's keys.
            written = {k: v for k, v in results.items() if k != "masked_lm_perplexity"}
            write_run_results(FLAGS.output_dir, "eval_results.txt", written | {"global_step": step})
        reporter.plot("pretraining.png", PRETRAINING_CURVES)
    except (tf.errors.InvalidArgumentError, tf.errors.DataLossError) as error:
        # If text or a record is to blame, this raises the error that names its place.
        masked = None if masks or FLAGS.objective in training_settings.DIRECTIONS else True
        vocab_size = len(masks.vocabulary.continues_word) if masks else config.vocab_size
        for phase, found in zip(phases, records, strict=True):
            sizes = (phase.max_seq_length, phase.max_predictions_per_seq, vocab_size)
            found.diagnose(error, *sizes, masked=masked)
        raise
    if FLAGS.do_export and distribution.is_chief():
        export(model, vocab_file)
    if FLAGS.demo and FLAGS.do_eval and FLAGS.objective not in training_settings.DIRECTIONS:
        tokenizer = Tokenizer(vocab_file, FLAGS.do_lower_case, (), FLAGS.strip_accents)
        fill, accuracy = functools.partial(fill_masks, model), results["masked_lm_accuracy"]
        sizes = phases[0].max_seq_length, FLAGS.random_seed
        demo.show_demo(fill, tokenizer, eval_sets[0], accuracy, *sizes)
    return step


if __name__ == "__main__":
    errors.run(main, DataError, flag_values=FLAGS)
