"""run_pretraining.py as a user runs it: raw text to checkpoint, resumed runs, bad input."""

import json
import os
import shutil
import stat

import numpy as np
import pytest
import tensorflow as tf

from data.pretraining.records import record_files, schema
from modeling.config import BertConfig
from modeling.training.engine.flops import train_step_flops
from tests.scripts import fail, messages, run, served, succeed

SENTENCES = ("the cat sat on the mat", "a dog ran over the hill", "birds sing in the old tree")
CONFIG = {
    "vocab_size": 60,
    "hidden_size": 8,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 16,
    "max_position_embeddings": 32,
    "type_vocab_size": 2,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A corpus, a configuration, and a first run made from them."""
    folder = tmp_path_factory.mktemp("pretraining")
    rng = np.random.default_rng(0)
    documents = [
        "\n".join(" ".join(rng.permutation(rng.choice(SENTENCES).split())) for _ in range(6))
        for _ in range(40)
    ]
    (folder / "corpus.txt").write_text("\n\n".join(documents) + "\n", encoding="utf-8")
    (folder / "config.json").write_text(json.dumps(CONFIG))
    (folder / "log").write_text(succeed(*command(folder, "out", "--num_train_steps=8")))
    return folder


def command(folder, out, *more):
    """The command line of a small run on the corpus."""
    return (
        "run_pretraining.py",
        f"--corpus_file={folder}/corpus.txt",
        f"--bert_config_file={folder}/config.json",
        f"--output_dir={folder}/{out}",
        *("--do_train", "--do_eval", "--max_seq_length=24", "--max_predictions_per_seq=4"),
        *("--train_batch_size=4", "--num_warmup_steps=2", "--log_steps=2"),
        *("--save_checkpoints_steps=4", "--eval_steps=4", "--dupe_factor=2", *more),
    )


def from_records(folder, *more, out="bad"):
    """The command line of a run on existing records."""
    return (
        "run_pretraining.py",
        f"--input_file={folder}/out/records/train-*",
        f"--bert_config_file={folder}/config.json",
        f"--output_dir={folder}/{out}",
        *("--do_train", "--max_seq_length=24", "--max_predictions_per_seq=4"),
        *("--num_train_steps=2", "--num_warmup_steps=1", *more),
    )


@pytest.mark.slow
def test_output_folder_holds_the_release_and_the_results(folder):
    out = folder / "out"
    assert json.loads((out / "bert_config.json").read_text())["vocab_size"] == 60
    assert len((out / "vocab.txt").read_text().splitlines()) == 60
    names = {name for name, _ in tf.train.list_variables(str(out / "bert_model.ckpt"))}
    assert "bert/encoder/layer_0/attention/self/query/kernel" in names
    assert "cls/seq_relationship/output_weights" in names
    assert not any("adam" in name for name in names)
    lines = (out / "eval_results.txt").read_text().splitlines()
    assert [line.split(" = ")[0] for line in lines] == [
        "global_step",
        "loss",
        "masked_lm_accuracy",
        "masked_lm_loss",
        "next_sentence_accuracy",
        "next_sentence_loss",
    ]
    assert (out / "pretraining.png").stat().st_size > 5000
    assert list(out.glob("events.out.tfevents.*"))


def test_log_says_what_a_user_wants_to_know(folder):
    log = (folder / "log").read_text()
    assert "Start: random weights" in log
    for word in ("step 8/8", "mlm_loss", "nsp_loss", "mlm_accuracy", "lr ", "examples/s", "ETA"):
        assert word in log
    assert "held out at step 4" in log


@pytest.mark.slow
def test_interrupted_run_goes_on_to_the_same_numbers(folder):
    succeed(*command(folder, "parted", "--num_train_steps=8", "--max_eval_steps=0"))
    # As if it had been killed after its first checkpoint.
    parted = folder / "parted"
    for path in [*parted.glob("model.ckpt-8.*"), *parted.glob("bert_model.ckpt.*")]:
        path.unlink()
    log = succeed(*command(folder, "parted", "--num_train_steps=8"))
    assert "model.ckpt-4, step 4, because --output_dir holds a checkpoint" in log
    assert "are in" in log and "already" in log  # the records aren't made again
    whole = tf.train.load_checkpoint(str(folder / "out" / "model.ckpt-8"))
    again = tf.train.load_checkpoint(str(parted / "model.ckpt-8"))
    for name in whole.get_variable_to_shape_map():
        np.testing.assert_array_equal(whole.get_tensor(name), again.get_tensor(name), name)


@pytest.mark.slow
def test_parts_side_by_side(folder, monkeypatch):
    """On two cores, with the numbers of the whole; not with threads that a user gave."""
    for name in ("TF_NUM_INTEROP_THREADS", "TF_NUM_INTRAOP_THREADS"):
        monkeypatch.delenv(name, raising=False)
    log = succeed(*command(folder, "parts", "--num_train_steps=8"))
    assert ("Computing 2 parts of each batch" in log) == (len(os.sched_getaffinity(0)) == 2)
    monkeypatch.setenv("TF_NUM_INTRAOP_THREADS", "1")
    log = succeed(*command(folder, "own", "--num_train_steps=8"))
    assert "side by side" not in log
    parts, own = (tf.train.load_checkpoint(f"{folder}/{n}/model.ckpt-8") for n in ("parts", "own"))
    for name in parts.get_variable_to_shape_map():
        if "key/bias" not in name:  # its true gradient is zero; Adam amplifies the rounding
            one, other = parts.get_tensor(name), own.get_tensor(name)
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6, err_msg=name)


@pytest.mark.slow
def test_a_budget_of_operations(folder):
    """The same steps as by their number, to the last bit, and kept when it goes on."""
    per_step = train_step_flops(BertConfig.from_json_file(folder / "config.json"), 4, 24, 4, 2)
    more = ("--num_train_steps=80", "--num_warmup_steps=20", f"--flops={8.2 * per_step}")
    log = succeed(*command(folder, "budget", *more, "--max_eval_steps=0"))
    assert "holds 8 steps, at " in log and "step 8/8" in log
    whole = tf.train.load_checkpoint(str(folder / "out" / "model.ckpt-8"))
    again = tf.train.load_checkpoint(str(folder / "budget" / "model.ckpt-8"))
    for name in whole.get_variable_to_shape_map():
        np.testing.assert_array_equal(whole.get_tensor(name), again.get_tensor(name), name)
    log = succeed(*command(folder, "budget", *more))
    assert "The steps are those of" in log and "the run is at step 8" in log


@pytest.mark.slow
def test_a_budget_of_minutes(folder):
    rarely = ("--eval_steps=0", "--save_checkpoints_steps=100000", "--log_steps=100")
    log = succeed(*command(folder, "minutes", "--num_train_steps=80", "--minutes=0.05", *rarely))
    [steps] = json.loads((folder / "minutes" / "budget.json").read_text())["steps"]
    assert f"--minutes=0.05 holds {steps:,} steps" in log and f"step {steps}/{steps}" in log
    assert f"global_step = {steps}\n" in (folder / "minutes" / "eval_results.txt").read_text()


@pytest.mark.slow
def test_records_as_input_hold_out_a_share(folder):
    start = f"--init_checkpoint={folder}/out/bert_model.ckpt"
    log = succeed(*from_records(folder, "--do_eval", start, out="other"))
    assert "Start: weights of" in log and "eval_results" in log
    kept = (folder / "other" / "vocab.txt").read_text()
    assert kept == (folder / "out" / "vocab.txt").read_text()


@pytest.fixture
def record_file(folder):
    """A copy of one record file, to be spoiled."""
    (source,) = (folder / "out" / "records").glob("train-00000-of-*.tfrecord")
    copy = folder / "copy.tfrecord"
    copy.write_bytes(source.read_bytes())
    return copy


def test_missing_files_are_named(folder):
    assert "nowhere.txt" in fail(*command(folder, "bad", f"--corpus_file={folder}/nowhere.txt"))
    assert "nowhere.tfrecord" in fail(*from_records(folder, "--input_file=nowhere.tfrecord"))
    assert "nowhere.json" in fail(*command(folder, "bad", "--bert_config_file=nowhere.json"))


def test_empty_corpus_is_refused(folder):
    (folder / "empty.txt").write_text("\n\n")
    message = fail(*command(folder, "bad", f"--corpus_file={folder}/empty.txt"))
    assert "documents" in message


def test_vocabulary_of_another_size_is_refused(folder):
    vocab = folder / "small_vocab.txt"
    vocab.write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abc"] * 20) + "\n")
    message = fail(*command(folder, "bad", f"--vocab_file={vocab}"))
    assert "small_vocab.txt has 160 tokens" in message and "vocab_size 60" in message


def test_records_of_another_length_are_refused(folder):
    message = fail(*from_records(folder, "--max_seq_length=16"))
    assert "train-00000" in message and "24" in message and "16" in message


def test_id_out_of_range_is_found(folder, record_file):
    raw = [r.numpy() for r in tf.data.TFRecordDataset(str(record_file))]
    example = tf.train.Example.FromString(raw[3])
    example.features.feature["input_ids"].int64_list.value[2] = 60
    raw[3] = example.SerializeToString()
    with tf.io.TFRecordWriter(str(record_file)) as writer:
        for record in raw:
            writer.write(record)
    message = fail(*from_records(folder, f"--input_file={record_file}"))
    assert "copy.tfrecord" in message and "record 3" in message and "input_ids" in message


@pytest.mark.slow
def test_truncated_file_is_found(folder, record_file):
    assert record_files.count_records(str(record_file)) > 3
    record_file.write_bytes(record_file.read_bytes()[:-7])
    message = fail(*from_records(folder, f"--input_file={record_file}"))
    assert "copy.tfrecord" in message and "truncated" in message


def test_heads_that_do_not_divide_the_width_are_refused(folder):
    (folder / "bad.json").write_text(json.dumps(CONFIG | {"num_attention_heads": 3}))
    message = fail(*command(folder, "bad", f"--bert_config_file={folder}/bad.json"))
    assert "bad.json" in message and "'hidden_size' (8)" in message


def test_folder_that_cannot_be_written_is_refused(folder):
    locked = folder / "locked"
    locked.mkdir(exist_ok=True)
    locked.chmod(stat.S_IRUSR | stat.S_IXUSR)
    if os.access(locked, os.W_OK):  # root writes everywhere; a file in the way stops it too
        (folder / "a_file").write_text("")
        locked = folder / "a_file" / "out"
    message = fail(*command(folder, "bad", f"--output_dir={locked}"))
    assert str(locked) in message and "can't be written" in message


def test_random_weights_are_not_evaluated(folder):
    message = fail(*(a for a in command(folder, "bad") if a != "--do_train"))
    assert "no weights to evaluate" in message


def test_flags_without_work_are_refused(folder, tmp_path):
    assert "Nothing to do" in fail("run_pretraining.py", f"--output_dir={tmp_path}/x")
    nothing = fail("run_pretraining.py", "--do_train", f"--output_dir={folder}/bad")
    assert "--input_file" in nothing and "got none" in nothing
    for path in (folder / "out").glob("bert_model.ckpt.*"):  # and no vocab.txt
        shutil.copy(path, tmp_path)
    start = f"--init_checkpoint={tmp_path}/bert_model.ckpt"
    assert "needs the --vocab_file" in fail(*command(folder, "bad", start))
    idle = fail(*from_records(folder, "--mask_share=0.5", "--dupe_factor=3"))
    assert "--dupe_factor, --mask_share would change nothing" in idle


SERVED = """
def answer(loaded, asked):
    words = loaded.signatures["serving_default"](text=tf.constant(asked))["words"].numpy()
    scores = loaded.signatures["log_likelihood"](text=tf.constant(asked))
    return {"words": [[[w.decode() for w in m] for m in row] for row in words],
            "pieces": scores["num_pieces"].numpy().tolist()}
"""


@pytest.mark.slow
def test_a_trained_model_is_exported(folder, tmp_path):
    start = ("run_pretraining.py", f"--output_dir={folder}/out", "--do_export")
    elsewhere = f"--output_dir={tmp_path}/out"
    message = fail(*start, elsewhere, f"--bert_config_file={folder}/config.json")
    assert "There are no weights to evaluate" in message
    # The folder of the run tells the rest.
    length = "--max_seq_length=24"
    succeed(*start, length, "--export_top_k=2", f"--export_dir={tmp_path}/export")
    text = " ".join(SENTENCES[0].split()[:2])
    asked = [f"{text} [MASK]", text, ""]
    got = served(SERVED, tmp_path / "export/1", asked, tmp_path)
    entries = {*(folder / "out/vocab.txt").read_text().splitlines()}
    assert [[len(mask) for mask in row] for row in got["words"]] == [[2], [2], [2]]
    assert {*got["words"][0][0]} <= entries and got["words"][1] == [["", ""]]
    assert got["pieces"][0] == got["pieces"][1] + 1 and got["pieces"][2] == 0


@pytest.mark.slow
@pytest.mark.hours
def test_demo(tmp_path):
    fewer = "--num_train_steps=1000"
    result = run("run_pretraining.py", "--demo", fewer, f"--output_dir={tmp_path}", timeout=900)
    assert result.returncode == 0, result.stderr[-3000:]
    results = dict(
        line.split(" = ") for line in (tmp_path / "eval_results.txt").read_text().splitlines()
    )
    assert "Masked words guessed right" in result.stdout
    baseline = float(result.stdout.split("frequent, gets ")[1].split("%")[0]) / 100
    assert float(results["masked_lm_accuracy"]) > 2 * baseline
    assert result.stdout.count("guessed:") == 5
    for name in ("bert_model.ckpt.index", "bert_config.json", "vocab.txt", "pretraining.png"):
        assert (tmp_path / name).exists()


@pytest.mark.slow
def test_two_phases_left_to_right_with_everything_on(folder):
    """Options that change how a model is trained, together; then fine-tuning's view of it."""
    options = (
        *("--phases=16:6:4,24:6:8", "--objective=ltr", "--optimizer=lamb", "--remat", "--xla"),
        *("--lr_schedule=polynomial", "--gradient_accumulation_steps=2", "--dtype=bfloat16"),
        *("--layerwise_lr_decay=0.9", "--save_checkpoints_minutes=10", "--eval_steps=4"),
        *("--best_metric=masked_lm_perplexity", "--mask_share=0.5", "--random_share=0.5"),
        "--initialization=local",
    )
    log = succeed(*command(folder, "phases", *options))
    out = folder / "phases"
    assert "Stage 1 of 2, steps 0 to 6" in log and "Stage 2 of 2, steps 6 to 12" in log
    assert (out / "length-16/records/made.json").exists()
    assert not (out / "length-24/records/vocab.txt").exists()  # the first phase's is used
    config = json.loads((out / "bert_config.json").read_text())
    assert config["attention_direction"] == "left_to_right"
    names = {name for name, _ in tf.train.list_variables(str(out / "bert_model.ckpt"))}
    assert not any("seq_relationship" in name for name in names)
    results = (out / "eval_results.txt").read_text()
    assert "next_sentence" not in results
    best = json.loads((out / "best/best.json").read_text())
    assert best["step"] in (8, 12)  # of the last phase's evaluations
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    evaluated = [line["step"] for line in lines if line["kind"] == "eval"]
    assert evaluated[:3] == [4, 8, 12]
    assert f"global_step = {best['step']}\n" in results
    (session,) = json.loads((out / "run_summary.json").read_text())["sessions"]
    assert (session["ended"], session["from_step"], session["to_step"]) == ("finished", 0, 12)
    assert session["flags"]["phases"]["value"] == "16:6:4,24:6:8"
    again = succeed(*command(folder, "phases", *options))
    assert "Nothing to train" in again
    both_sides = [o for o in command(folder, "phases", options[0]) if o != "--do_train"]
    for objective in ("mlm", "rtl"):
        message = fail(*both_sides, f"--objective={objective}")
        assert "The weights were trained to read left_to_right" in message
    options = ("--phases=16:8:4,24:4:8", *options[1:])
    assert "phases was" in fail(*command(folder, "phases", *options)).replace("\n", " ")


@pytest.mark.slow
def test_loss_that_is_not_finite_names_the_records(folder):
    options = ("--learning_rate=1e38", "--num_train_steps=20", "--save_checkpoints_steps=10")
    message = fail(*from_records(folder, *options, out="diverged"))
    assert "The loss is nan at step 2 (learning rate 9e+37" in message
    assert f"No checkpoint was written to {folder}/diverged yet." in message
    # Lines are also broken behind hyphens.
    batch = f"The batch held {folder}/out/records/train-0000"
    assert batch in message.replace("- ", "-")
    message = fail(*from_records(folder, *options, "--rollback", out="diverged"))
    assert "The loss is nan at step 2" in message and "--rollback finds no checkpoint" in message


def test_spoilt_weights_are_not_saved(folder):
    """The loss that belongs to the last good weights was finite, the update after it was not."""
    options = ("--learning_rate=1e38", "--num_train_steps=20", "--save_checkpoints_steps=1")
    message = fail(*from_records(folder, *options, out="spoilt"))
    assert "variables are not finite" in message and "The last good checkpoint, step 1" in message
    assert [p.name for p in (folder / "spoilt").glob("model.ckpt-*.index")] == [
        "model.ckpt-1.index"
    ]


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ("--gradient_accumulation_steps=5", "multiple of 5"),
        ("--mask_share=0.9 --random_share=0.2", "must not be above 1"),
        ("--minutes=1 --flops=1e9", "two budgets"),
        ("--minutes=1 --estimate", "Leave one of them out"),
        ("--initialization=local --init_checkpoint=a", "is for a new model"),
    ],
)
def test_options_that_cannot_work(folder, option, words):
    assert words in fail(*command(folder, "refused", *option.split()))


def without_masks(path):
    """Rewrites a record file as records that are to be masked while training."""
    raw = [r.numpy() for r in tf.data.TFRecordDataset(str(path))]
    with tf.io.TFRecordWriter(str(path)) as writer:
        for record in raw:
            example = tf.train.Example.FromString(record)
            features = example.features.feature
            ids = features["input_ids"].int64_list.value
            names = ("masked_lm_positions", "masked_lm_ids", "masked_lm_weights")
            lists = [features[name] for name in names]
            values = [list(f.int64_list.value or f.float_list.value) for f in lists]
            for position, label, weight in zip(*values, strict=True):
                if weight:
                    ids[position] = label
            # Of other records, so it isn't a second copy of that shard.
            for name in [*names, *(name for name in features if name.startswith("shard_"))]:
                del features[name]
            writer.write(example.SerializeToString())
    return path


@pytest.mark.slow
def test_interrupted_dynamic_masking_goes_on_to_the_same_numbers(folder, record_file):
    files = f"--input_file={folder}/out/records/train-*,{without_masks(record_file)}"
    masks = ("--dynamic_masking", f"--vocab_file={folder}/out/vocab.txt", "--max_ngram=2")
    more = ("--do_eval", "--num_train_steps=8", "--save_checkpoints_steps=4")
    out = folder / "dynamic"

    def trained():
        reader = tf.train.load_checkpoint(str(out / "model.ckpt-8"))
        return {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}

    assert "held out at step 8" in succeed(
        *from_records(folder, files, *masks, *more, out="dynamic")
    )
    whole = trained()
    # As if it had been killed after its first checkpoint.
    for path in [*out.glob("model.ckpt-8.*"), *out.glob("bert_model.ckpt.*")]:
        path.unlink()
    log = succeed(*from_records(folder, files, *masks, *more, out="dynamic"))
    assert "model.ckpt-4, step 4, because --output_dir holds a checkpoint" in log
    again = trained()
    for name, values in whole.items():
        np.testing.assert_array_equal(values, again[name], name)
    # Other masks would be seen.
    shutil.rmtree(out)
    succeed(*from_records(folder, files, *masks[:2], *more, out="dynamic"))
    name = "bert/encoder/layer_0/output/dense/kernel"
    assert (trained()[name] != whole[name]).any()


@pytest.mark.slow
def test_dynamic_masking_of_raw_text(folder):
    log = succeed(*command(folder, "dynamic_text", "--num_train_steps=4", "--dynamic_masking"))
    assert "held out at step 4" in log
    for name, masked in (("train-00000-of-*", False), ("heldout", True)):
        (path,) = (folder / "dynamic_text" / "records").glob(f"{name}.tfrecord")
        schema.check_record_file(str(path), 24, 4, 60, masked)


def test_dynamic_masking_that_cannot_work(folder, record_file):
    without = f"--input_file={without_masks(record_file)}"
    vocab = f"--vocab_file={folder}/out/vocab.txt"
    options = [
        ("--dynamic_masking",),
        ("--dynamic_masking", vocab, "--objective=ltr"),
        ("--dynamic_masking", vocab, "--mask_share=0.5", "--dupe_factor=3"),
        ("--max_ngram=2",),
        ("--dynamic_masking", vocab, "--mask_share=0.95"),
        (without,),
    ]
    lines = [from_records(folder, *more)[1:] for more in options]
    missing, ltr, idle, spans, shares, unmasked = messages("run_pretraining.py", *lines)
    assert "--vocab_file is missing: with --dynamic_masking" in missing
    assert "--objective=ltr predicts every token" in ltr
    assert idle.startswith("--dupe_factor would change nothing")
    assert spans.startswith("--max_ngram would change nothing")
    assert "must not be above 1" in shares
    assert "copy.tfrecord: record 0 holds no masks" in unmasked
    assert "Give --dynamic_masking" in unmasked


@pytest.mark.slow
def test_evaluations_of_other_text_do_not_choose_the_best_weights(folder):
    texts = (folder / "corpus.txt").read_text().split("\n\n")
    for name, some in (("a", texts[:9]), ("b", texts[9:18])):
        (folder / f"held_{name}.txt").write_text("\n\n".join(some))
    best = ("--best_metric=masked_lm_loss", "--num_train_steps=8")
    one, other = (f"--eval_corpus_file={folder}/held_{name}.txt" for name in "ab")
    succeed(*command(folder, "best", *best, one))

    def evaluations():
        lines = map(json.loads, (folder / "best/metrics.jsonl").read_text().splitlines())
        return [line for line in lines if line["kind"] == "eval"]

    before = evaluations()
    alone = [a for a in command(folder, "best", other) if a != "--do_train"]
    log = succeed(*alone)
    assert evaluations() == before and "held out at step 8" in log
    sessions = json.loads((folder / "best/run_summary.json").read_text())["sessions"]
    assert sessions[-1]["final"]["eval"]["masked_lm_loss"] != before[-1]["masked_lm_loss"]
    message = fail(*command(folder, "best", *best, other, "--max_eval_steps=1"))
    for said in ("other settings", "eval_corpus_file", "max_eval_steps", "--overwrite_output_dir"):
        assert said in message


@pytest.mark.slow
def test_a_stream_goes_on_though_its_file_was_copied(folder):
    """The position hangs on the text, not on where it lies and since when."""
    texts = [f"{words} {number}." for number, words in enumerate(SENTENCES * 400)]
    corpus = folder / "long.txt"
    corpus.write_text("\n\n".join(texts) + "\n")
    more = ("--objective=mlm", "--dynamic_masking", f"--vocab_file={folder}/out/vocab.txt")
    parts = [f"--corpus_file={corpus}", f"--eval_corpus_file={folder}/corpus.txt"]
    succeed(*command(folder, "stream", "--num_train_steps=8", *more, *parts))
    whole = tf.train.load_checkpoint(str(folder / "stream" / "model.ckpt-8"))
    whole = {name: whole.get_tensor(name) for name in whole.get_variable_to_shape_map()}
    for path in [*(folder / "stream").glob("*-8.*"), *(folder / "stream").glob("bert_model.ckpt*")]:
        path.unlink()
    os.utime(corpus, (1, 1))
    (folder / "linked").symlink_to(folder)
    parts[0] = f"--corpus_file={folder}/linked/long.txt"
    log = succeed(*command(folder, "stream", "--num_train_steps=8", *more, *parts))
    assert "model.ckpt-4, step 4" in log and "can't be restored" not in log
    again = tf.train.load_checkpoint(str(folder / "stream" / "model.ckpt-8"))
    for name, value in whole.items():
        np.testing.assert_array_equal(value, again.get_tensor(name), name)


@pytest.mark.slow
def test_a_bad_record_is_named_while_a_budget_is_measured(folder, record_file):
    first, *others = [r.numpy() for r in tf.data.TFRecordDataset(str(record_file))]
    with tf.io.TFRecordWriter(str(record_file)) as writer:
        writer.write(first)
        for record in others:
            example = tf.train.Example.FromString(record)
            example.features.feature["input_ids"].int64_list.value[2] = 60
            writer.write(example.SerializeToString())
    held_out = f"--eval_file={folder}/out/records/heldout.tfrecord"
    more = (f"--input_file={record_file}", held_out, "--train_batch_size=2", "--flops=1e9")
    message = fail(*from_records(folder, *more))
    assert "copy.tfrecord" in message and "record 1" in message and "input_ids" in message


@pytest.mark.slow
@pytest.mark.parametrize(
    "masks",
    [(), pytest.param(("--dynamic_masking", "--objective=mlm"), marks=pytest.mark.hours)],
)
def test_a_place_in_other_instances_is_not_taken(folder, masks):
    """Records made anew with other settings, and text of which others are made."""
    (folder / "more.txt").write_text(
        "\n\n".join(f"{w} {n}." for n, w in enumerate(SENTENCES * 400))
    )
    text = (f"--corpus_file={folder}/more.txt", f"--eval_corpus_file={folder}/corpus.txt")
    more = (*masks, *text, f"--vocab_file={folder}/out/vocab.txt", "--num_train_steps=8")
    out = folder / f"place{len(masks)}"
    succeed(*command(folder, out.name, *more))
    for path in [*out.glob("*-8.*"), *out.glob("bert_model.ckpt*")]:
        path.unlink()
    log = succeed(*command(folder, out.name, *more, "--max_predictions_per_seq=5"))
    assert "model.ckpt-4, step 4" in log and "can't be restored" in log and "step 8/8" in log
