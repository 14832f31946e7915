"""A trained model's labels are found beside its checkpoint, whatever the output folder is."""

import json

import pytest

from tests.fine_tuning.tiny_tasks import (
    classifier,
    sentences,
    tagger,
    write_model,
    write_rows,
    write_tags,
)
from tests.scripts import messages, succeed

TRAIN = ("--do_train", "--num_train_steps=4", "--eval_steps=4")
# Weights of one step, by what --init_checkpoint may name.
PLACES = {
    "prefix": "trained/model.ckpt-4",
    "folder": "trained",
    "slash": "trained/",
    "best_prefix": "trained/best/model.ckpt-4",
    "best_folder": "trained/best",
}


def elsewhere(script, line, folder, *do):
    """Runs `line` in other output folders from each of PLACES; what it said by place."""
    lines = [
        line(folder, name, f"--init_checkpoint={folder}/{place}", *do)
        for name, place in PLACES.items()
    ]
    said = messages(script, *(line[1:] for line in lines))
    return dict(zip(PLACES, said, strict=True))


@pytest.fixture(scope="module")
def sentence_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sentences")
    write_model(folder)
    write_rows(folder / "train.tsv", sentences(24, 0))
    write_rows(folder / "dev.tsv", sentences(8, 1))
    files = ("--train_file=train.tsv", "--dev_file=dev.tsv", "--test_file=dev.tsv")
    columns = ("--text_columns=text", "--label_column=verdict")
    best = ("--best_metric=eval_accuracy", "--do_eval", "--do_predict")
    succeed(*classifier(folder, "trained", *TRAIN, *files, *columns, *best))
    return folder


@pytest.mark.slow
def test_sentences(sentence_folder):
    """Text columns are among what the labels' file holds."""
    folder = sentence_folder
    do = ("--do_predict", "--test_file=dev.tsv")
    do += ("--do_eval", "--dev_file=dev.tsv", "--label_column=verdict")
    said = elsewhere("run_classifier.py", classifier, folder, *do)
    assert said == dict.fromkeys(PLACES, "")
    expected = (folder / "trained" / "predictions.tsv").read_text()
    assert expected.splitlines()[0].split("\t") == ["id", "gold", "label", "bad", "good"]
    for name in PLACES:
        assert (folder / name / "predictions.tsv").read_text() == expected


@pytest.mark.slow
def test_export_of_sentences(sentence_folder):
    start = f"--init_checkpoint={sentence_folder}/{PLACES['best_prefix']}"
    succeed(*classifier(sentence_folder, "exported", start, "--do_export"))
    assets = sentence_folder / "exported" / "export" / "1" / "assets"
    assert json.loads((assets / "labels.json").read_text()) == ["bad", "good"]


@pytest.mark.slow
@pytest.mark.hours
def test_tags(tmp_path):
    folder = tmp_path
    write_model(folder)
    write_tags(folder / "train.txt", 12, 0)
    write_tags(folder / "dev.txt", 4, 1)
    files = ("--train_file=train.txt", "--dev_file=dev.txt", "--test_file=dev.txt")
    best = ("--best_metric=eval_f1", "--do_eval", "--do_predict")
    succeed(*tagger(folder, "trained", *TRAIN, *files, *best))
    do = ("--do_predict", "--do_eval", *files[1:])
    said = elsewhere("run_ner.py", tagger, folder, *do)
    assert said == dict.fromkeys(PLACES, "")
    expected = (folder / "trained" / "predictions.txt").read_text()
    for name in PLACES:
        assert (folder / name / "predictions.txt").read_text() == expected


def test_where_there_are_none_the_places_are_named(sentence_folder):
    """Without a file of labels no head may be given names by chance."""
    folder = sentence_folder
    bare = folder / "bare"
    bare.mkdir()
    for path in (folder / "trained").glob("model.ckpt-4.*"):
        (bare / path.name).write_bytes(path.read_bytes())
    start = f"--init_checkpoint={bare}/model.ckpt-4"
    line = classifier(folder, "none", start, "--do_predict", "--test_file=dev.tsv")
    (message,) = messages("run_classifier.py", (*line[1:], "--text_columns=text"))
    assert "labels.json" in message and str(bare) in message
