"""Students of the fine-tuning scripts: what teachers add to a run, from the command line."""

import json
import pathlib
import signal
import time

import numpy as np
import pytest
import tensorflow as tf

import modeling
from modeling import checkpoints
from modeling.config import BertConfig
from modeling.models import BertClassifier, BertQuestionAnswering, BertTagger
from modeling.training.distillation import stored_answers
from tests.fine_tuning.tiny_tasks import (
    answerer,
    classifier,
    results,
    sentences,
    tagger,
    write_model,
    write_questions,
    write_rows,
    write_tags,
)
from tests.scripts import Script, messages, succeed

COLUMNS = ("--train_file=train.tsv", "--dev_file=dev.tsv", "--text_columns=text")
COLUMNS += ("--label_column=verdict",)
TRAIN = ("--do_train", "--do_eval", "--num_train_steps=150", "--learning_rate=0.003")
TAGS = ("--train_file=train.txt", "--dev_file=dev.txt")
STEPS = ("--do_train", "--num_train_steps=30", "--learning_rate=0.003")


def questions(folder, train: str = "train") -> tuple[str, ...]:
    return (f"--train_file={folder}/{train}.json", f"--predict_file={folder}/dev.json")


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> pathlib.Path:
    """Files of three tasks, and a teacher of sentences: twice as wide as the model and deeper."""
    folder = tmp_path_factory.mktemp("taught")
    write_model(folder)
    config = json.loads((folder / "config.json").read_text()) | {"initializer_range": 0.2}
    (folder / "config.json").write_text(json.dumps(config))
    deeper = {"num_hidden_layers": 2, "hidden_size": 32, "initializer_range": 0.1}
    (folder / "deeper.json").write_text(json.dumps(config | deeper))
    for name, count, seed in (("train", 160, 0), ("dev", 40, 1), ("few", 12, 2)):
        write_rows(folder / f"{name}.tsv", sentences(count, seed))
        write_tags(folder / f"{name}.txt", count, seed)
        write_questions(folder / f"{name}.json", count, seed)
    large = f"--bert_config_file={folder}/deeper.json"
    succeed(*classifier(folder, "sentences", *COLUMNS, *TRAIN, large))
    assert results(folder / "sentences/eval_results.txt")["eval_accuracy"] == 1
    return folder


@pytest.fixture(scope="module")
def other_pieces(folder) -> pathlib.Path:
    """A folder like it, whose vocabulary has other ids and knows some words by their parts only."""
    other = folder / "other"
    other.mkdir()
    tokens = (folder / "vocab.txt").read_text().split()
    cut = {"good": ["go", "##od"], "plot": ["pl", "##ot"], "oslo": ["os", "##lo"]}
    parts = [part for word in cut for part in cut[word]]
    words = [token for token in tokens[5:] if token not in cut]
    vocab = [*tokens[:5], *parts, *reversed(words)]
    (other / "vocab.txt").write_text("\n".join(vocab) + "\n")
    config = json.loads((folder / "deeper.json").read_text()) | {"vocab_size": len(vocab)}
    (other / "config.json").write_text(json.dumps(config))
    for name in ("train", "dev"):
        for ending in ("tsv", "txt"):
            (other / f"{name}.{ending}").symlink_to(folder / f"{name}.{ending}")
    return other


def losses(out: pathlib.Path) -> list[dict]:
    rows = map(json.loads, (out / "metrics.jsonl").read_text().splitlines())
    return [row for row in rows if row["kind"] == "train"]


def stored(out: pathlib.Path, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Numbers and places of the only file of answers."""
    (path,) = (out / "teacher").iterdir()
    content = path.read_bytes()[:-16]
    behind = count * stored_answers._PLACES.itemsize
    return np.frombuffer(content[:-behind], "<f4"), np.frombuffer(
        content[-behind:], stored_answers._PLACES
    )


@pytest.mark.slow
def test_a_student_learns_without_labels(folder):
    """Its teacher's answers alone say what is right; they are computed once, for all runs."""
    taught = (f"--teacher={folder}/sentences", "--label_share=0", "--log_steps=10")
    taught += ("--num_runs=2",)
    log = succeed(*classifier(folder, "student", *COLUMNS, *TRAIN, *taught))
    assert "Teacher: " in log and log.count("Computing the teacher's answers to 160") == 1
    assert results(folder / "student/eval_results.txt")["eval_accuracy"] == 1
    runs = [path.parent for path in (folder / "student").glob("runs/*/metrics.jsonl")]
    assert len(runs) == 2
    for run in runs:
        rows = losses(run)
        assert {row["label_loss"] for row in rows} == {0.0}
        assert rows[-1]["teacher_loss"] < 0.3 * rows[0]["teacher_loss"]
        assert rows[-1]["loss"] == pytest.approx(rows[-1]["teacher_loss"], rel=1e-4)

    # What is stored is what the teacher says live.
    teacher = modeling.from_pretrained(folder / "sentences")
    values, places = stored(folder / "student", 160)
    texts = [row["text"] for row in sentences(160, 0)]
    ids = teacher.tokenizer.tokenize(texts).to_tensor(0).numpy()
    for number in (0, 7, 159):
        row = np.concatenate([[2], ids[number][ids[number] > 0], [3]])[np.newaxis]
        live = teacher.model({"input_ids": row.astype(np.int32)})["logits"]
        start, count = places[number]
        assert count == 1
        np.testing.assert_allclose(values.reshape(-1, 2)[start], live[0], atol=1e-5)


@pytest.mark.slow
def test_a_run_with_a_teacher_is_another_run(folder):
    """What was trained without one isn't taken for it, nor the other way round."""
    succeed(*classifier(folder, "untaught", *COLUMNS, *TRAIN, "--num_train_steps=2"))
    taught = (f"--teacher={folder}/sentences", "--num_train_steps=2")
    more = classifier(folder, "untaught", *COLUMNS, *TRAIN, *taught)
    (said,) = messages("run_classifier.py", more[1:])
    assert "was trained with other settings: teacher" in said


@pytest.mark.hours
@pytest.mark.slow
def test_texts_without_labels_make_up_for_few_labels(folder):
    files = ("--train_file=few.tsv", *COLUMNS[1:])
    few = (*files, *TRAIN)
    succeed(*classifier(folder, "alone", *few))
    taught = (f"--teacher={folder}/sentences", f"--transfer_file={folder}/train.tsv")
    log = succeed(*classifier(folder, "transfer", *few, *taught))
    assert "train: 12 examples" in log and "transfer: 160 examples" in log
    alone, with_more = (
        results(folder / out / "eval_results.txt")["eval_accuracy"] for out in ("alone", "transfer")
    )
    assert with_more == 1 > alone


@pytest.mark.slow
def test_tags_and_spans(folder):
    large = f"--bert_config_file={folder}/deeper.json"
    succeed(*tagger(folder, "tags", *TAGS, *STEPS, "--do_eval", large))
    assert results(folder / "tags/eval_results.txt")["eval_f1"] == 1
    log = succeed(*answerer(folder, "spans", *questions(folder), *STEPS, "--do_predict", large))
    assert "of the weights before this training" not in log
    taught = (
        f"--teacher={folder}/tags",
        f"--transfer_file={folder}/train.txt",
        "--label_share=0.1",
    )
    files = ("--train_file=few.txt", TAGS[1])
    log = succeed(*tagger(folder, "tagger", *files, *TRAIN, *taught))
    assert "train: 12 rows" in log and "transfer: 160 rows" in log
    assert results(folder / "tagger/eval_results.txt")["eval_f1"] == 1
    values, places = stored(folder / "tagger", 172)
    tags = len(modeling.from_pretrained(folder / "tags").config.labels)
    assert places["count"].sum() * tags == len(values)

    taught = (f"--teacher={folder}/spans", f"--transfer_file={folder}/train.json")
    taught += ("--label_share=0.1", "--num_train_steps=100", *STEPS[::2])
    run = answerer(folder, "answerer", *questions(folder, "few"), *taught, "--do_predict")
    succeed(*run)
    assert json.loads((folder / "answerer/eval_results.json").read_text())["f1"] > 90
    values, places = stored(folder / "answerer", 172)
    assert places["count"].sum() * 2 == len(values)


@pytest.mark.hours
@pytest.mark.slow
def test_a_teacher_with_another_vocabulary(folder, other_pieces):
    """Sentences align by examples, tags by words; spans don't."""
    large = f"--bert_config_file={other_pieces}/config.json"
    succeed(*classifier(other_pieces, "sentences", *COLUMNS, *TRAIN, large))
    succeed(*tagger(other_pieces, "tags", *TAGS, *TRAIN, large))
    taught = (f"--teacher={folder}/sentences,{other_pieces}/sentences", "--label_share=0")
    log = succeed(*classifier(folder, "of two", *COLUMNS, *TRAIN, *taught))
    assert "reads the texts in pieces of its own vocabulary" in log
    assert results(folder / "of two/eval_results.txt")["eval_accuracy"] == 1
    taught = (f"--teacher={other_pieces}/tags", "--label_share=0")
    succeed(*tagger(folder, "by words", *TAGS, *TRAIN, *taught))
    assert results(folder / "by words/eval_results.txt")["eval_f1"] == 1


@pytest.mark.hours
@pytest.mark.slow
def test_layers_like_the_teachers(folder):
    taught = (f"--teacher={folder}/sentences", "--match_relations=0:1", "--log_steps=10")
    succeed(*classifier(folder, "relations", *COLUMNS, *TRAIN, *taught))
    rows = losses(folder / "relations")
    assert rows[-1]["relation_loss"] < rows[0]["relation_loss"]
    # Of the same width its hidden states too; no answers are asked for.
    large = f"--bert_config_file={folder}/deeper.json"
    taught = (f"--teacher={folder}/sentences", "--match_hidden_states=even", "--label_share=1")
    succeed(*classifier(folder, "hidden", *COLUMNS, *TRAIN, *taught, "--log_steps=10", large))
    rows = losses(folder / "hidden")
    assert rows[-1]["hidden_loss"] < 0.5 * rows[0]["hidden_loss"]
    assert not (folder / "hidden/teacher").exists()


@pytest.mark.slow
def test_killed_and_resumed(folder):
    """In the middle of training and of computing the answers: the same weights, bit for bit."""
    taught = (f"--teacher={folder}/sentences", "--match_relations=even", "--num_train_steps=120")
    taught += ("--save_checkpoints_steps=10", "--iterations_per_loop=10", "--do_train")
    succeed(*classifier(folder, "whole", *COLUMNS, *taught))
    command = classifier(folder, "killed", *COLUMNS, *taught)
    out, kills = folder / "killed", 0
    process = Script(*command)
    while "Computing the teacher's" not in process.read("stderr") and process.poll() is None:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    assert process.wait().returncode == -signal.SIGKILL
    assert not list(out.glob("teacher/*.answers"))
    for _ in range(3):
        process = Script(*command)
        before = set(out.glob("model.ckpt-*.index"))
        while set(out.glob("model.ckpt-*.index")) == before and process.poll() is None:
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        kills += process.wait().returncode == -signal.SIGKILL
    assert kills >= 2
    log = succeed(*command)
    assert "Computing the teacher's" not in log
    whole, killed = (
        tf.train.load_checkpoint(str(folder / name / "model.ckpt-120"))
        for name in ("whole", "killed")
    )
    for name in whole.get_variable_to_shape_map():
        np.testing.assert_array_equal(whole.get_tensor(name), killed.get_tensor(name))


@pytest.mark.slow
def test_what_is_refused(folder, tmp_path):
    taught = classifier(folder, "refused", *COLUMNS, *TRAIN)
    run = answerer(folder, "refused", *questions(folder), *STEPS)
    config = BertConfig.from_json_file(folder / "config.json")
    made = {
        "renamed": BertClassifier(config.with_head("classes", ["fine", "awful"]), 2),
        "bare": BertClassifier(config.with_head("classes", ["bad", "good"]), 2),
        "tags": BertTagger(config.with_head("tags", ["O", "B-LOC"]), 2),
        "spans": BertQuestionAnswering(config.with_head("spans")),
    }
    vocab = (folder / "vocab.txt").read_text().split()
    (tmp_path / "vocab.txt").write_text("\n".join([*vocab[:5], *reversed(vocab[5:])]) + "\n")
    for name, model in made.items():
        model.build()
        file = {"bare": None, "spans": tmp_path / "vocab.txt"}.get(name, folder / "vocab.txt")
        checkpoints.save(model, tmp_path / name, file)
    teacher = f"--teacher={folder}/sentences"
    said = messages(
        "run_classifier.py",
        [*taught[1:], "--teacher_temperature=3"],
        [*taught[1:], f"--transfer_file={folder}/dev.tsv"],
        [*taught[1:], f"--teacher={tmp_path}/tags"],
        [*taught[1:], f"--teacher={tmp_path}/renamed"],
        [*taught[1:], f"--teacher={tmp_path}/bare"],
        [*taught[1:], teacher, "--label_share=1"],
        [*taught[1:], teacher, "--match_weight=2"],
        [*classifier(folder, "refused", *COLUMNS, "--do_eval")[1:], teacher],
        [*taught[1:], teacher, "--match_relations=0:2"],
        [*taught[1:], teacher, "--match_hidden_states=0:1"],
        [*taught[1:], f"{teacher},{folder}/sentences", "--match_relations=0:1"],
    )
    for text, parts in zip(
        said,
        (
            ("--teacher_temperature", "give --teacher"),
            ("--transfer_file", "give --teacher"),
            ("tags answers tags, and what", "answers classes"),
            ("renamed knows other labels: it lacks bad, good", "awful"),
            ("No vocabulary lies beside --teacher=", "bare"),
            ("--label_share is 1", "nothing to learn"),
            ("--match_weight says", "none are to be matched"),
            ("teaches what is trained", "give --do_train"),
            ("--match_relations has '0:2'", "the teacher 2"),
            ("16 wide, the teacher's 32", "relations"),
            ("layers of one teacher", "names 2"),
        ),
        strict=True,
    ):
        assert all(part in text for part in parts), (text, parts)
    said = messages("run_squad.py", [*run[1:], f"--teacher={tmp_path}/spans"])
    assert "says nothing of others" in said[0]
