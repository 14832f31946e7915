"""What runs say at their start: each thing once, and nothing that only looks like a defect."""

import re

import numpy as np
import pytest
from absl import logging

from modeling import checkpoints
from modeling.checkpoints import tf1
from tests import test_run_classifier, test_run_ner
from tests.modeling.training.test_training import tiny_model
from tests.scripts import succeed
from tests.test_run_classifier import command

folder, ner_folder = test_run_classifier.folder, test_run_ner.folder

TRAIN = ("--do_train", "--num_train_steps=2")


@pytest.fixture(scope="module")
def logs(folder):
    """Of an evaluation, as it is and at debug level: a blank line ends the vocabulary."""
    blank = folder / "blank.txt"
    blank.write_text((folder / "vocab.txt").read_text() + "\n")
    config = (folder / "config.json").read_text().replace('"vocab_size": 14', '"vocab_size": 15')
    (folder / "blank.json").write_text(config)
    more = (f"--vocab_file={blank}", f"--bert_config_file={folder}/blank.json")
    succeed(*command(folder, "lines", *TRAIN, *more))
    line = command(folder, "lines", "--do_eval", *more)
    return succeed(*line), succeed(*line, "--verbosity=1")


@pytest.mark.slow
def test_what_every_checkpoint_and_vocabulary_has_is_no_news(logs):
    usual, asked = logs
    assert len(re.findall(r"Loaded \d+ weights", usual)) == 1
    assert "no weight" not in usual
    assert "blank line" not in usual
    # Whoever asks is told.
    assert re.search("adam_m|slots", asked)
    assert "blank line" in asked


@pytest.mark.slow
def test_one_is_no_plural(logs):
    for log in logs:
        assert not re.search(r"\b1 (\w+ )?(lines|tensors|tokens|weights)\b", log)


def test_one_tensor_that_is_no_weight(tmp_path, caplog):
    """As most released checkpoints have one."""
    model = tiny_model()
    weights = checkpoints.weights_by_name(model)
    tensors = {name: weight.value.numpy() for name, weight in weights.items()}
    tf1.write_bundle(str(tmp_path / "model.ckpt"), tensors | {"global_step": np.int64(7)})
    with caplog.at_level("INFO"):
        checkpoints.load(model, tmp_path / "model.ckpt")
    assert "Loaded" in caplog.text and "no weight" not in caplog.text
    logging.set_verbosity(logging.DEBUG)
    try:
        checkpoints.load(model, tmp_path / "model.ckpt")
    finally:
        logging.set_verbosity(logging.INFO)
    assert "1 tensor " in caplog.text and "1 tensors" not in caplog.text


@pytest.mark.slow
def test_frozen_weights_are_reported_once(ner_folder):
    files = ("--train_file=train.txt", "--dev_file=dev.txt")
    succeed(*test_run_ner.command(ner_folder, "first", *files, *TRAIN))
    frozen = ("--feature_based", "--feature_layers=last", f"--init_checkpoint={ner_folder}/first")
    log = succeed(*test_run_ner.command(ner_folder, "frozen", *files, *TRAIN, *frozen))
    assert len(re.findall(r"Loaded \d+ weights", log)) == 1
