"""run_squad.py as a user runs it: the original's command-line results, and what goes beyond."""

import json

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_text  # noqa: F401 for the ops of exports

from data.tasks.questions import metrics as squad_metrics
from data.tasks.questions import squad
from tests.scripts import messages, served, succeed

CLIENT = """
def answer(loaded, asked):
    texts = {name: tf.constant(values) for name, values in asked.items()}
    given = loaded.signatures["serving_default"](**texts)
    several = loaded.signatures["n_best"](**texts)
    plain = lambda tensor: [x.decode() for x in tensor.numpy().ravel()]
    numbers = ("start", "end", "start_byte", "end_byte", "score", "null_score", "probability")
    return {"answer": plain(given["answer"]), "answers": plain(several["answers"]),
            **{name: given[name].numpy().tolist() for name in numbers}}
"""


def answers_of(export, questions, folder):
    asked = {"question": [q.question for q in questions], "context": [q.context for q in questions]}
    return served(CLIENT, export, asked, folder)


def read(path):
    return json.loads(path.read_text(encoding="utf-8"))


def golden_command(golden, shared_data, version, out, *more):
    return (
        "run_squad.py",
        "--do_predict",
        f"--predict_file={golden}/squad/synth_v{version}.json",
        f"--vocab_file={shared_data}/vocab/bert-uncased-en/vocab.txt",
        f"--bert_config_file={golden}/tiny2/bert_config.json",
        f"--init_checkpoint={golden}/tiny2/model.ckpt",
        f"--output_dir={out}",
        *("--max_seq_length=96", "--doc_stride=32", "--max_query_length=24"),
        *(("--version_2_with_negative",) if version == 2 else ()),
        *more,
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("version", "name", "more"),
    [
        (1, "squad_v1", ()),
        (
            2,
            "squad_v2_nbest60_thr1.5",
            ("--n_best_size=60", "--null_score_diff_threshold=1.5"),
        ),
    ],
)
def test_the_originals_own_results(golden, shared_data, tmp_path, version, name, more):
    original, ours = tmp_path / "original", tmp_path / "ours"
    lines = (
        golden_command(golden, shared_data, version, original, "--original_postprocessing", *more),
        golden_command(golden, shared_data, version, ours, "--do_export", *more),
    )
    assert messages("run_squad.py", *(line[1:] for line in lines)) == ["", ""]
    recorded = golden / "e2e" / name
    assert read(original / "predictions.json") == read(recorded / "predictions.json")
    theirs = read(recorded / "nbest_predictions.json")
    got = read(original / "nbest_predictions.json")
    assert list(got) == list(theirs)
    for key, entries in theirs.items():
        assert [entry["text"] for entry in got[key]] == [entry["text"] for entry in entries]
        for mine, entry in zip(got[key], entries, strict=True):
            assert list(mine) == list(entry)
            for field in ("probability", "start_logit", "end_logit"):
                assert mine[field] == pytest.approx(entry[field], abs=1e-5)
    if version == 2:
        odds = read(recorded / "null_odds.json")
        assert read(original / "null_odds.json") == pytest.approx(odds, abs=1e-5)

    # Our own way: slices of the context, at least as often right.
    path = str(golden / "squad" / f"synth_v{version}.json")
    questions = squad.read_squad(path, version_2=version == 2, training=False)
    predictions = read(ours / "predictions.json")
    for question in questions:
        assert predictions[question.id] in question.context
    name = "exact" if version == 2 else "exact_match"
    theirs = squad_metrics.evaluate_answers(
        questions, read(original / "predictions.json"), version_2=version == 2
    )
    assert read(ours / "eval_results.json")[name] >= theirs[name]

    answers = answers_of(ours / "export" / "1", questions, tmp_path)
    assert answers["answer"] == [predictions[question.id] for question in questions]
    for number, question in enumerate(questions):
        text, start, end = (answers[key][number] for key in ("answer", "start", "end"))
        assert text == (question.context[start:end] if text else "")
        start, end = (answers[key][number] for key in ("start_byte", "end_byte"))
        assert text == (question.context.encode()[start:end].decode() if text else "")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Contexts where the word behind "is" is the answer to everything: quickly learned."""
    folder = tmp_path_factory.mktemp("squad")
    names = [f"n{number}" for number in range(12)]
    words = ["who", "is", "it", "the", "man", "was", "here", "and", "gone"]
    vocab = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *names, *words]
    (folder / "vocab.txt").write_text("\n".join(vocab) + "\n")
    config = {"vocab_size": len(vocab), "hidden_size": 32, "num_hidden_layers": 2}
    config |= {"num_attention_heads": 2, "intermediate_size": 64, "max_position_embeddings": 64}
    config |= {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    (folder / "config.json").write_text(json.dumps(config))
    for file, count, impossible in (("train", 300, 0), ("dev", 40, 0), ("v2", 300, 3)):
        draw = np.random.default_rng(len(file) + count)
        paragraphs = []
        for number in range(count):
            text = list(draw.choice([*words[2:], *names], draw.integers(4, 40)))
            place = int(draw.integers(0, len(text) - 1))
            there = not impossible or number % impossible
            if there:
                text[place : place + 2] = ["is", str(draw.choice(names))]
            context = " ".join(text)
            start = len(" ".join(text[: place + 1])) + 1
            answers = [{"text": text[place + 1], "answer_start": start}] if there else []
            question = {"id": f"{file}{number}", "question": "who is it", "answers": answers}
            if impossible:
                question["is_impossible"] = not there
            paragraphs.append({"context": context, "qas": [question]})
        data = {"version": "x", "data": [{"title": "t", "paragraphs": paragraphs}]}
        (folder / f"{file}.json").write_text(json.dumps(data))
    return folder


def command(folder, out, *more):
    return (
        "run_squad.py",
        f"--vocab_file={folder}/vocab.txt",
        f"--bert_config_file={folder}/config.json",
        f"--output_dir={folder}/{out}",
        *("--max_seq_length=32", "--doc_stride=8", "--max_query_length=8", *more),
    )


TRAIN = ("--do_train", "--learning_rate=2e-3", "--train_batch_size=16", "--num_train_epochs=4")


@pytest.mark.slow
def test_training_two_files_ensemble_and_bad_input(folder):
    train = (*TRAIN, f"--train_file={folder}/v2.json,{folder}/train.json", "--optimizer=adamw")
    train += ("--learning_rate=5e-3",)
    predict = ("--do_predict", f"--predict_file={folder}/dev.json")
    v2 = ("--version_2_with_negative", "--null_score_diff_threshold=auto")
    odd = json.loads((folder / "dev.json").read_text())
    odd["data"][0]["paragraphs"][1]["qas"][0]["id"] = "dev0"
    (folder / "twice.json").write_text(json.dumps(odd))
    (folder / "broken.json").write_text('{"data": [\n{"title": "t", }]}')
    long = {"context": "the man " * 50_000, "qas": [{"id": "0", "question": "who", "answers": []}]}
    (folder / "long.json").write_text(json.dumps({"data": [{"title": "", "paragraphs": [long]}]}))
    lines = {
        "trained": command(folder, "a", *train, *predict, *v2, "--epochs_per_file=8,4"),
        "again": command(folder, "b", *train, "--random_seed=3", *v2, "--epochs_per_file=8,4"),
        "ensemble": command(folder, "a", *predict, *v2, f"--ensemble={folder}/b"),
        "twice": command(folder, "a", "--do_predict", f"--predict_file={folder}/twice.json"),
        "broken": command(folder, "a", "--do_predict", f"--predict_file={folder}/broken.json"),
        "2.0 file": command(folder, "c", *TRAIN, f"--train_file={folder}/v2.json"),
        "epochs": command(folder, "c", *train, "--epochs_per_file=1"),
        "file": command(folder, "c", "--do_predict"),
        "long": command(folder, "a", "--do_predict", f"--predict_file={folder}/long.json", *v2),
        "query": command(folder, "c", *train, "--max_query_length=30"),
        "no threshold": command(folder, "c", *train, *v2, "--do_export"),
        "no answers": command(
            folder, "c", *train, *v2, "--do_predict", f"--predict_file={folder}/long.json"
        ),
        "fewer": command(folder, "a", "--do_export", "--n_best_size=3"),
    }
    said = messages("run_squad.py", *(line[1:] for line in lines.values()), timeout=600)
    said = dict(zip(lines, said, strict=True))
    for name in ("trained", "again", "ensemble", "long"):
        assert said[name] == "", name
    results = read(folder / "a" / "eval_results.json")
    # Of the ensemble: the long context's question has no known answer.
    assert results["total"] == 40 and results["exact"] > 50, results
    assert "dev0" in said["twice"] and "broken.json:2" in said["broken"]
    assert "--version_2_with_negative" in said["2.0 file"]
    assert "--epochs_per_file" in said["epochs"] and "--predict_file" in said["file"]
    assert "max_query_length 30" in said["query"]
    assert "The threshold for the empty answer isn't known" in said["no threshold"]
    assert "The threshold for the empty answer isn't known" in said["no answers"]
    assert not list((folder / "c").glob("model.ckpt*"))  # said before training
    assert "for one --n_best_size" in said["fewer"]
    threshold = read(folder / "a" / "null_score_diff_threshold.json")
    assert np.isfinite(threshold["null_score_diff_threshold"])
    assert len(threshold["weights"]) == 32  # of the one model
    assert (folder / "a" / "training.png").exists()


@pytest.mark.slow
def test_calibrations_are_of_the_weights_that_are_exported(folder):
    """Not of those that training began with, which have one beside them."""
    train = (*TRAIN, f"--train_file={folder}/train.json", "--do_export")
    succeed(*command(folder, "first", *train))
    flat = {"slope": 0.0, "intercept": 2.0}  # whatever the answer is
    (folder / "first" / "answer_calibration.json").write_text(json.dumps(flat))
    more = ("--num_train_epochs=1", f"--init_checkpoint={folder}/first")
    succeed(*command(folder, "further", *train, *more))
    succeed(*command(folder, "same", f"--init_checkpoint={folder}/first", "--do_export"))
    sure = 1 / (1 + np.exp(-2))
    for name, is_flat in (("first", False), ("further", False), ("same", True)):
        loaded = tf.saved_model.load(str(folder / name / "export" / "1"))
        given = {"question": tf.constant(["who is it"]), "context": tf.constant(["it is n1"])}
        confidence = loaded.signatures["serving_default"](**given)["confidence"].numpy()
        assert bool(np.allclose(confidence, sure, atol=1e-6)) == is_flat, name


def thinned(path, to, every):
    """Writes a file of every so-manyth question, and reads it."""
    content = read(path)
    number = 0
    for article in content["data"]:
        for paragraph in article["paragraphs"]:
            kept = []
            for qa in paragraph["qas"]:
                kept += [qa] if number % every == 0 else []
                number += 1
            paragraph["qas"] = kept
    to.write_text(json.dumps(content))
    return squad.read_squad(str(to), training=False)


@pytest.mark.slow
@pytest.mark.hours
def test_minilm_learns_squad_and_is_served(shared_data, minilm, load_in_cpp, tmp_path):
    """Real weights, real questions; the C++ loader gives each of 529 the predicted answer."""
    questions = thinned(shared_data / "squad/dev-v1.1.json", tmp_path / "dev.json", 20)
    assert len(questions) == 529
    thinned(shared_data / "squad/train-v1.1.json", tmp_path / "train.json", 20)
    command = (
        "run_squad.py",
        f"--vocab_file={minilm}/vocab.txt",
        f"--bert_config_file={minilm}/config.json",
        f"--init_checkpoint={minilm}/model.safetensors",
        f"--output_dir={tmp_path}",
        *("--max_seq_length=128", "--doc_stride=64", "--optimizer=adamw"),
    )
    train = (f"--train_file={tmp_path}/train.json", "--train_batch_size=16")
    train += ("--do_train", "--num_train_steps=150", "--learning_rate=2e-4", "--dtype=auto")
    succeed(*command, *train, timeout=800)
    predict = (f"--predict_file={tmp_path}/dev.json", "--predict_batch_size=32")
    succeed(*command, *predict, "--do_predict", "--do_export", timeout=600)
    assert read(tmp_path / "eval_results.json")["f1"] > 15
    predictions = read(tmp_path / "predictions.json")
    for begin in range(0, len(questions), 64):
        some = questions[begin : begin + 64]
        answers = load_in_cpp(
            tmp_path / "export" / "1",
            "serving_default",
            question=[one.question.encode() for one in some],
            context=[one.context.encode() for one in some],
        )
        for one, text, start, end in zip(
            some, *(answers[name] for name in ("answer", "start", "end")), strict=True
        ):
            assert text.decode() == predictions[one.id] == one.context[start:end]
