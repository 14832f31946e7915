"""--adapt as a user runs it: from a released model and own text to a release and a report."""

import json
import math
import shutil
import types

import numpy as np
import pytest
import tensorflow as tf

import modeling
from data.pretraining import judged_text
from data.pretraining.from_text import PretrainingSides, PretrainingText
from modeling.checkpoints import tf1
from modeling.training.adaptation.page import adaptation_html
from tests.data.pretraining.test_domain import TOKENS
from tests.reference import numpy_bert
from tests.scripts import fail, succeed

WORDS = ["the", "cell", "mitosis", "genome", "divides", "kinase"]
CONFIG = {
    "vocab_size": len(TOKENS),
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 64,
    "type_vocab_size": 2,
    "hidden_dropout_prob": 0.1,
    "attention_probs_dropout_prob": 0.1,
}


def write_text(path, words, seed, count=60):
    rng = np.random.default_rng(seed)
    documents = [
        "\n".join(" ".join(rng.choice(words, 6)) for _ in range(rng.integers(2, 5)))
        for _ in range(count)
    ]
    path.write_text("\n\n".join(documents) + "\n")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two releases, with both heads and with none, own text and general text; and a first run."""
    folder = tmp_path_factory.mktemp("adapt")
    for name, heads in (("released", ["pretraining"]), ("bare", [])):
        weights = numpy_bert.random_weights(CONFIG, heads=heads, labels=2)
        tf1.write_bundle(folder / name / "bert_model.ckpt", weights)
        (folder / name / "bert_config.json").write_text(json.dumps(CONFIG))
        (folder / name / "vocab.txt").write_text("\n".join(TOKENS) + "\n")
    write_text(folder / "own.txt", WORDS, 1)
    write_text(folder / "general.txt", ["the", "never", "ever", "was"], 2)
    more = "--num_train_steps=8", f"--general_corpus_file={folder}/general.txt"
    (folder / "log").write_text(succeed(*command(folder, "out", *more)))
    return folder


def command(folder, out, *more, model="released"):
    return (
        *("run_pretraining.py", "--adapt", f"--corpus_file={folder}/own.txt"),
        *(f"--init_checkpoint={folder}/{model}", f"--output_dir={folder}/{out}"),
        *("--save_checkpoints_steps=4", "--train_batch_size=4", *more),
    )


def test_it_starts_with_the_new_words(folder):
    found = json.loads((folder / "out/adaptation.json").read_text())
    start = folder / "out/adapted_vocabulary"
    assert found["start"] == str(start) and found["model"] == str(folder / "released")
    words = found["domain"]["new_words"]
    assert sorted(words) == ["genome", "kinase", "mitosis"]
    vocab = (folder / "out/vocab.txt").read_text().splitlines()
    assert (start / "vocab.txt").read_text().splitlines() == vocab
    old, new = (
        tf.train.load_checkpoint(str(path / "bert_model.ckpt"))
        for path in (folder / "released", start)
    )
    before, after = (r.get_tensor("bert/embeddings/word_embeddings") for r in (old, new))
    for word in words:
        pieces = [TOKENS.index(p) for p in (word[0], *(f"##{c}" for c in word[1:]))]
        row = after[vocab.index(word)]
        np.testing.assert_allclose(row, before[pieces].astype(np.float64).mean(0), rtol=1e-6)
    kept = [i for i, token in enumerate(TOKENS) if token == vocab[i]]
    np.testing.assert_array_equal(before[kept], after[kept])


@pytest.mark.slow
def test_the_plan(folder):
    log = (folder / "log").read_text()
    assert "Plan: --objective=mlm_nsp --max_seq_length=32 --max_predictions_per_seq=5" in log
    assert "--optimizer=adamw --learning_rate=0.0001 --lr_schedule=linear_from_peak" in log
    assert "--num_train_steps=8 --num_warmup_steps=1" in log
    assert "side by side" not in log  # as it doesn't know its lengths when threads are divided
    # Without a number of steps minutes count, and passes over the text.
    write_text(folder / "much.txt", ["the", "never", "ever", "was"], 4, count=6000)
    more = f"--general_corpus_file={folder}/much.txt", "--general_share=0.5"
    log = succeed(*command(folder, "passes", "--flops=1e30", "--train_batch_size=64", *more))
    [line] = [line for line in log.splitlines() if "Plan: " in line]
    pieces = json.loads((folder / "passes/adaptation.json").read_text())["domain"]["pieces"]
    steps = math.ceil(40 * 1.5 * pieces / (64 * 32))
    assert f"--num_train_steps={steps} " in line and f"step {steps}/{steps}" in log


def oracle(tmp_path, folder, text, length):
    """Loss per masked word, by NumPy in float64."""
    _, tokenizer, config = modeling.from_pretrained(folder)
    given = modeling.from_pretrained(text.with_name("released")).tokenizer
    sides = PretrainingSides(PretrainingText(files=[str(text.with_name("own.txt"))]))
    general = PretrainingText(files=[str(text)]) if text.name == "general.txt" else None
    texts = judged_text.held_out_texts(sides, general)
    masked = texts["general" if general else "domain"](
        tokenizer, given, str(tmp_path / "m"), length
    )
    reader = tf.train.load_checkpoint(str(folder / "bert_model.ckpt"))
    weights = {
        name: reader.get_tensor(name).astype(np.float64)
        for name in reader.get_variable_to_shape_map()
        if reader.get_tensor(name).dtype == np.float32
    }
    total = words = 0
    for batch in masked.batches.as_numpy_iterator():
        logs = numpy_bert.forward(weights, config.to_dict(), batch)["masked_lm_log_probs"]
        ids = batch["masked_lm_ids"]
        each = -np.take_along_axis(logs, ids[..., None], -1)[..., 0]
        total += (each * batch["masked_lm_weights"]).sum()
        begins = np.array([not t.startswith("##") for t in tokenizer.vocab])
        words += (begins[ids] * batch["masked_lm_weights"]).sum()
    return total / words


def test_losses_before_and_after(folder, tmp_path):
    found = json.loads((folder / "out/adaptation.json").read_text())
    for when, model in (("before", folder / "released"), ("after", folder / "out")):
        for name, text in (("domain", "own.txt"), ("general", "general.txt")):
            wanted = oracle(tmp_path, model, folder / text, 32)
            np.testing.assert_allclose(found[when][name]["loss_per_word"], wanted, rtol=1e-5)
    assert found["after"]["domain"]["loss_per_word"] < found["before"]["domain"]["loss_per_word"]
    assert found["cost"]["steps"] == 8 and found["has_masked_lm_head"]


def test_the_result_is_a_release_with_its_report(folder):
    model, tokenizer, config = modeling.from_pretrained(folder / "out")
    assert config.head == "pretraining" and config.hidden_dropout_prob == 0.1
    assert "mitosis" in tokenizer.vocab and model is not None
    page = (folder / "out/report.html").read_text()
    for text in ("adapted to a domain", "loss per masked word", "kinase", "8 steps", "mlm_nsp"):
        assert text in page
    assert "was not measured" not in page and "have no head" not in page


def test_text_that_changed_meanwhile_is_told(folder):
    found = json.loads((folder / "out/adaptation.json").read_text())
    facts = dict.fromkeys(("name", "model", "date", "machine", "made"), "") | {"step": 8}
    facts = types.SimpleNamespace(**facts, settings={})
    assert "changed meanwhile" not in adaptation_html(found, facts)
    found["after"]["general"]["checksum"] = "another"
    assert "of general text isn" in adaptation_html(found, facts)


@pytest.mark.slow
def test_an_interrupted_adaptation_goes_on(folder):
    out = folder / "parted"
    more = "--num_train_steps=8", f"--general_corpus_file={folder}/general.txt"
    succeed(*command(folder, "parted", *more))
    whole = json.loads((folder / "out/adaptation.json").read_text())
    for path in [*out.glob("model.ckpt-8.*"), *out.glob("bert_model.ckpt.*")]:
        path.unlink()
    (out / "adaptation.json").unlink()
    summary = json.loads((out / "run_summary.json").read_text())
    summary["sessions"][0] |= {"ended": None, "wall_seconds": None}  # as after SIGKILL
    (out / "run_summary.json").write_text(json.dumps(summary))
    log = succeed(*command(folder, "parted", *more))
    assert "model.ckpt-4, step 4" in log
    again = json.loads((out / "adaptation.json").read_text())
    assert whole["cost"]["killed_sessions"] == 0 and again["cost"]["killed_sessions"] == 1
    assert "without what killed sessions took (1)" in (out / "report.html").read_text()
    for name in ("before", "after", "neighbours", "plan"):
        assert again[name] == whole[name]


@pytest.mark.slow
@pytest.mark.hours
def test_general_text_is_rehearsed(folder):
    """What lies behind the measured 300,000 characters is trained on; to the last bit resumable."""
    write_text(folder / "long.txt", ["the", "never", "ever", "was"], 3, count=6000)
    more = "--num_train_steps=8", f"--general_corpus_file={folder}/long.txt"
    log = succeed(*command(folder, "rehearsed", *more))
    alone = succeed(*command(folder, "alone", *more, "--general_share=0"))
    assert "General text to train on besides: " in log and "besides" not in alone
    out, text = folder / "rehearsed", folder / "rehearsed/records/general.txt"
    assert not (folder / "alone/records/general.txt").exists()
    found, other = (
        json.loads((folder / name / "adaptation.json").read_text())
        for name in ("rehearsed", "alone")
    )
    assert found["before"] == other["before"] and found["after"] != other["after"]
    rehearsed = text.read_text().split("\n")
    characters = sum(map(len, rehearsed))
    assert found["rehearsed_characters"] == characters and not other["rehearsed_characters"]
    wanted = found["rehearsed_characters_wanted"]
    assert wanted == round(found["domain"]["characters"] / 10)
    assert characters == math.ceil(found["domain"]["characters"] / 10)
    assert set(" ".join(rehearsed).split()[:-1]) == {"the", "never", "ever", "was"}
    time = text.stat().st_mtime_ns
    for path in [*out.glob("model.ckpt-8.*"), *out.glob("bert_model.ckpt.*")]:
        path.unlink()
    assert "model.ckpt-4, step 4" in succeed(*command(folder, "rehearsed", *more))
    again = json.loads((out / "adaptation.json").read_text())
    assert again["after"] == found["after"] and text.stat().st_mtime_ns == time


@pytest.mark.slow
def test_weights_without_a_head_and_without_general_text(folder):
    more = ("--num_train_steps=4", f"--eval_corpus_file={folder}/general.txt", "--pack_sequences")
    log = succeed(*command(folder, "headless", *more, model="bare"))
    assert "--objective=mlm " in log
    found = json.loads((folder / "headless/adaptation.json").read_text())
    assert list(found["after"]) == ["domain"] and not found["has_masked_lm_head"]
    page = (folder / "headless/report.html").read_text()
    assert "--general_corpus_file" in page and "have no head for masked words" in page


@pytest.mark.slow
def test_the_result_says_how_its_texts_are_folded(folder):
    """Of a release that says so by its name alone, and nothing of accents."""
    named = folder / "uncased_L-2_H-16_A-2"
    shutil.copytree(folder / "released", named)
    kept = succeed(
        *command(
            folder, "accents", "--strip_accents=False", "--num_train_steps=2", model=named.name
        )
    )
    assert "3 words in place of [unused…] tokens" in kept
    told = json.loads((folder / "accents/tokenizer_config.json").read_text())
    assert (told["do_lower_case"], told["strip_accents"]) == (True, False)


def test_what_it_refuses(folder, tmp_path):
    run = ("run_pretraining.py", "--adapt", f"--output_dir={tmp_path}/out")
    own, model = f"--corpus_file={folder}/own.txt", f"--init_checkpoint={folder}/released"
    assert "--adapt needs --init_checkpoint" in fail(*run, own)
    assert "--adapt needs --corpus_file" in fail(*run, model)
    said = fail(*run, own, model, "--phases=32:8:4", "--student_num_layers=1", "--teacher=any")
    assert "--adapt and --phases, --student_num_layers, --teacher exclude each other" in said
    assert "--adapt and --objective=ltr exclude each" in fail(*run, own, model, "--objective=ltr")
    said = fail(
        *run[:1], run[2], own, model, "--do_train", f"--general_corpus_file={folder}/own.txt"
    )
    assert "--general_corpus_file goes with --adapt" in said
    said = fail(*run, own, model, "--general_share=0.2")
    assert "--general_share goes with --general_corpus_file, and that isn't given" in said
    shutil.copy(folder / "own.txt", tmp_path / "own.txt")
    (tmp_path / "own.txt").write_text("one document\n")
    said = fail(*run, f"--corpus_file={tmp_path}/own.txt", model)
    assert "has 1 documents; at least 4 are needed" in said
    assert "--adapt trains, and --do_train is false" in fail(*run, own, model, "--do_train=false")
    assert not (tmp_path / "out/adapted_vocabulary").exists()
