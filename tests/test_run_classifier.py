"""run_classifier.py as a user runs it, against the original's command-line results."""

import json
import os

import numpy as np
import pytest

from tests.scripts import fail, served, succeed

# Loads an export without importing anything of the project.
CLIENT = """
def answer(loaded, asked):
    classify = loaded.signatures["serving_default"]
    answers = classify(**{k: tf.constant(v) for k, v in asked.items()})
    one = classify(**{k: tf.constant(v[:1]) for k, v in asked.items()})
    return {"label": [x.decode() for x in answers["label"].numpy()],
            "probabilities": answers["probabilities"].numpy().tolist(),
            "first": one["probabilities"].numpy().tolist()}
"""


@pytest.mark.slow
def test_golden_mrpc_run_and_export(golden, shared_data, tmp_path):
    """Evaluation, prediction and serving give what the original's own command line gave."""
    log = succeed(
        "run_classifier.py",
        "--task_name=MRPC",
        *("--do_eval", "--do_predict", "--do_export", "--max_seq_length=64"),
        f"--data_dir={golden}/glue/MRPC",
        f"--vocab_file={shared_data}/vocab/bert-uncased-en/vocab.txt",
        f"--bert_config_file={golden}/tiny2/bert_config.json",
        f"--init_checkpoint={golden}/tiny2/model.ckpt",
        f"--output_dir={tmp_path}",
    )
    assert "because --init_checkpoint is given" in log
    expected = _results(golden / "e2e" / "mrpc" / "eval_results.txt")
    results = _results(tmp_path / "eval_results.txt")
    assert set(results) == {*expected, "eval_f1"}
    assert results["eval_accuracy"] == pytest.approx(expected["eval_accuracy"], abs=1e-6)
    assert results["eval_loss"] == pytest.approx(expected["eval_loss"], abs=1e-6)
    probabilities = np.loadtxt(tmp_path / "test_results.tsv", delimiter="\t")
    theirs = np.loadtxt(golden / "e2e" / "mrpc" / "test_results.tsv", delimiter="\t")
    np.testing.assert_allclose(probabilities, theirs, atol=1e-6)

    lines = (golden / "glue/MRPC/test.tsv").read_text(encoding="utf-8-sig").split("\n")[1:]
    rows = [line.split("\t") for line in lines if line]
    texts = {"text_a": [row[3] for row in rows], "text_b": [row[4] for row in rows]}
    answers = served(CLIENT, tmp_path / "export" / "1", texts, tmp_path)
    np.testing.assert_allclose(answers["probabilities"], theirs, atol=1e-6)
    np.testing.assert_allclose(answers["first"], theirs[:1], atol=1e-6)
    assert answers["label"] == [str(label) for label in theirs.argmax(1)]
    assets = tmp_path / "export" / "1" / "assets"
    assert {path.name for path in assets.iterdir()} >= {
        "vocab.txt",
        "bert_config.json",
        "labels.json",
    }


def _results(path):
    return {
        key: float(value)
        for key, value in (line.split(" = ") for line in path.read_text().splitlines())
    }


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A task that can be learned in seconds (a word decides), with vocabulary and model size."""
    folder = tmp_path_factory.mktemp("classifier")
    words = ["good", "bad", "film", "the", "a", "was", "very", "plot", "and"]
    vocab = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words]
    (folder / "vocab.txt").write_text("\n".join(vocab) + "\n")
    config = {"vocab_size": len(vocab), "hidden_size": 16, "num_hidden_layers": 1}
    config |= {"num_attention_heads": 2, "intermediate_size": 32, "max_position_embeddings": 16}
    (folder / "config.json").write_text(json.dumps(config))
    rng = np.random.default_rng(0)
    (folder / "SST-2").mkdir()
    for split, count in (("train", 400), ("dev", 50), ("test", 20)):
        # Sorted by label, which ruins a model if the training set isn't shuffled whole.
        labels = np.sort(rng.integers(0, 2, count))
        lines = ["index\tsentence" if split == "test" else "sentence\tlabel"]
        for index, label in enumerate(labels):
            rest = list(rng.choice(words[2:], rng.integers(2, 9)))
            rest.insert(rng.integers(0, len(rest)), words[1 - label])
            text = " ".join(rest)
            lines.append(f"{index}\t{text}" if split == "test" else f"{text}\t{label}")
        (folder / "SST-2" / f"{split}.tsv").write_text("\n".join(lines) + "\n")
    return folder


def command(folder, out, *more):
    return (
        "run_classifier.py",
        "--task_name=sst-2",
        f"--data_dir={folder}/SST-2",
        f"--vocab_file={folder}/vocab.txt",
        f"--bert_config_file={folder}/config.json",
        f"--output_dir={folder}/{out}",
        *("--max_seq_length=16", *more),
    )


TRAIN = ("--do_train", "--train_batch_size=16", "--learning_rate=3e-3", "--num_train_epochs=8")


@pytest.mark.slow
def test_training_learns_resumes_predicts_and_serves(folder):
    log = succeed(*command(folder, "out", *TRAIN, "--do_eval", "--log_steps=50"))
    assert "Start: random weights" in log and "step 200/200" in log
    assert _results(folder / "out" / "eval_results.txt")["eval_accuracy"] > 0.9

    # The same in two parts gives the same weights.
    parts = command(folder, "parts", *TRAIN, "--save_checkpoints_steps=90")
    succeed(*parts)
    for path in (folder / "parts").glob("model.ckpt-200.*"):
        path.unlink()
    assert "model.ckpt-180, step 180" in succeed(*parts, "--do_eval")
    assert _results(folder / "parts" / "eval_results.txt") == _results(
        folder / "out" / "eval_results.txt"
    )

    log = succeed(*command(folder, "out", "--do_predict", "--do_export"))
    assert "model.ckpt-200, the newest checkpoint" in log
    probabilities = np.loadtxt(folder / "out" / "test_results.tsv", delimiter="\t")
    lines = (folder / "SST-2" / "test.tsv").read_text().splitlines()[1:]
    texts = [line.split("\t")[1] for line in lines]
    answers = served(CLIENT, folder / "out" / "export" / "1", {"text_a": texts}, folder)
    np.testing.assert_allclose(answers["probabilities"], probabilities, atol=1e-6)

    # A later export is a further version.
    succeed(*command(folder, "out", "--do_export"))
    assert sorted(os.listdir(folder / "out" / "export")) == ["1", "2"]


def test_bad_input_is_named(folder, tmp_path):
    assert "nothing" in fail(*command(folder, "bad", "--do_train", "--task_name=nothing"))
    assert "Nothing to do" in fail(*command(folder, "bad"))
    message = fail(*command(folder, "bad", "--do_train", f"--export_dir={tmp_path}/export"))
    assert "--export_dir is where --do_export writes to" in message
    message = fail(*command(folder, "bad", "--do_eval", "--export_dtype=int8"))
    assert "none is without --do_export or --student" in message
    for form in ("--export_dtype=int8", "--export_format=tflite"):
        message = fail(*command(folder, "bad", "--do_export", "--export_xla", form))
        assert "--export_xla is for a saved_model in float32 or bfloat16" in message
    own = ("--test_file=mine.tsv", "--encoding=utf-16")
    message = fail(*command(folder, "bad", "--do_train", "--do_predict", *own))
    assert "--test_file, --encoding would change nothing: --task_name=sst-2 has" in message
    # Nothing is left that would bind the next try to this one's model.
    message = fail(*command(folder, "refused", *TRAIN, "--freeze_layers=99"))
    assert "--freeze_layers" in message
    assert not list((folder / "refused").glob("*.txt")) + list(folder.glob("refused/bert*"))
    message = fail(*command(folder, "empty", "--do_eval"))
    assert "no weights to evaluate" in message
    path = tmp_path / "dev.tsv"
    path.write_text("sentence\tlabel\ngood film\t1\nbad film\t2\n")
    message = fail(*command(folder, "bad", "--do_eval", f"--data_dir={tmp_path}"))
    assert f"{path}:3" in message and "'2'" in message and "0, 1" in message


@pytest.mark.slow
@pytest.mark.parametrize(
    ("steps", "least"), [(100, 0.78), pytest.param(500, 0.85, marks=pytest.mark.hours)]
)
def test_minilm_learns_sst2_and_is_served(shared_data, minilm, tmp_path, steps, least):
    """Real weights, real task, then the served model on the dev set's raw text."""
    command = (
        "run_classifier.py",
        "--task_name=sst-2",
        f"--data_dir={shared_data}/glue/SST-2",
        f"--vocab_file={minilm}/vocab.txt",
        f"--bert_config_file={minilm}/config.json",
        f"--init_checkpoint={minilm}/model.safetensors",
        f"--output_dir={tmp_path}/out",
        *("--train_batch_size=32", "--learning_rate=5e-5", f"--num_train_steps={steps}"),
        "--max_seq_length=64",
    )
    succeed(*command, "--dtype=auto", "--do_train", "--do_export", timeout=1500)
    succeed(*command, "--do_eval")  # In float32, as the export is.
    accuracy = _results(tmp_path / "out" / "eval_results.txt")["eval_accuracy"]
    assert accuracy > least
    lines = (shared_data / "glue/SST-2/dev.tsv").read_text(encoding="utf-8").splitlines()[1:]
    texts, labels = zip(*(line.split("\t") for line in lines), strict=True)
    answers = served(CLIENT, tmp_path / "out" / "export" / "1", {"text_a": list(texts)}, tmp_path)
    right = np.mean([a == b for a, b in zip(answers["label"], labels, strict=True)])
    assert right == pytest.approx(accuracy, abs=1e-6)


@pytest.mark.slow
@pytest.mark.hours
def test_two_directions_side_by_side(folder):
    """Pre-trained left to right and right to left, classified together, served."""
    weights = {}
    for objective in ("ltr", "rtl"):
        out = folder / objective
        corpus = folder / "corpus.txt"
        corpus.write_text("the film was very good\nand a bad plot\n\n" * 8)
        sizes = ("--num_train_steps=20", "--max_seq_length=16", "--max_predictions_per_seq=4")
        succeed(
            "run_pretraining.py",
            f"--corpus_file={corpus}",
            f"--objective={objective}",
            f"--bert_config_file={folder}/config.json",
            f"--vocab_file={folder}/vocab.txt",
            f"--output_dir={out}",
            *("--do_train", "--num_warmup_steps=2", "--train_batch_size=4", *sizes),
        )
        weights[objective] = out
    left, right = weights.values()
    assert json.loads((right / "bert_config.json").read_text())["attention_direction"] == (
        "right_to_left"
    )
    both = (
        f"--bert_config_file={left}/bert_config.json",
        f"--second_bert_config_file={right}/bert_config.json",
    )
    given = (
        f"--init_checkpoint={left}/bert_model.ckpt",
        f"--second_init_checkpoint={right}/bert_model.ckpt",
    )
    log = succeed(*command(folder, "both", *both, *given, *TRAIN, "--do_eval"))
    assert log.count("Loaded ") == 2
    results = _results(folder / "both" / "eval_results.txt")
    assert results["eval_accuracy"] > 0.9
    succeed(*command(folder, "both", *both, "--do_eval", "--do_predict", "--do_export"))
    assert _results(folder / "both" / "eval_results.txt") == results
    lines = (folder / "SST-2" / "test.tsv").read_text().splitlines()[1:]
    texts = [line.split("\t")[1] for line in lines]
    answers = served(CLIENT, folder / "both" / "export" / "1", {"text_a": texts}, folder)
    probabilities = np.loadtxt(folder / "both" / "test_results.tsv", delimiter="\t")
    np.testing.assert_allclose(answers["probabilities"], probabilities, atol=1e-6)
    short = folder / "short.json"
    short.write_text(
        json.dumps(
            json.loads((folder / "config.json").read_text()) | {"max_position_embeddings": 8}
        )
    )
    message = fail(*command(folder, "bad", "--do_train", f"--second_bert_config_file={short}"))
    assert "max_seq_length is 16" in message and "short.json" in message
    message = fail(*command(folder, "bad", both[0], *given, "--do_train"))
    assert "--second_init_checkpoint needs --second_bert_config_file" in message
