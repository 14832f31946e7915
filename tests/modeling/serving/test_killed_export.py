"""Exports killed at random moments never leave a version that a server would load."""

import os
import pathlib
import random
import signal
import subprocess
import sys
import time

import pytest
import tensorflow as tf

from tests.scripts import ROOT

# Exports again and again, and says when each begins.
PROGRAM = """
import pathlib, sys
import numpy as np
import tensorflow as tf
from modeling.config import BertConfig
from modeling.models import BertClassifier
from modeling.serving.export import Export
from modeling.serving.sentences import export_sentence_model

model = BertClassifier(BertConfig(30_000, 256, 2, 4, 1024), num_labels=2)
model.build()

def preprocess(text):
    ids = tf.strings.length(text)[:, tf.newaxis] + tf.zeros([1, 4], tf.int32)
    return {"input_ids": ids, "input_mask": ids * 0 + 1, "segment_ids": ids * 0}

while True:
    print("begin", flush=True)
    export = Export(sys.argv[1], {"vocab.txt": sys.argv[2]})
    export_sentence_model(model, export, "classes", preprocess, ["no", "yes"], False)
"""
FILES = {
    *("assets.extra/tf_serving_warmup_requests", "assets/bert_config.json"),
    *("assets/labels.json", "assets/vocab.txt"),
    *("fingerprint.pb", "saved_model.pb"),
    *("variables/variables.data-00000-of-00001", "variables/variables.index"),
}


@pytest.mark.slow
@pytest.mark.parametrize("times", [4, pytest.param(12, marks=pytest.mark.hours)])
def test_what_a_killed_export_leaves(tmp_path, times):
    vocab = tmp_path / "vocab.txt"
    vocab.write_text("one\ntwo\nthree\n")
    folder = tmp_path / "model"
    draw = random.Random(20)
    halves = 0
    for number in range(times):
        with subprocess.Popen(
            [sys.executable, "-c", PROGRAM, folder, vocab],
            cwd=ROOT,
            env=os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3"},
            stdout=subprocess.PIPE,
        ) as process:
            # The first one tells how long one takes; then somewhere in the second.
            assert process.stdout.readline()
            begun = time.monotonic()
            assert process.stdout.readline()
            longest = time.monotonic() - begun
            if number % 2:
                time.sleep(draw.uniform(0, longest))
            else:
                # Somewhere while it writes, which is a small part of it.
                while not list(folder.glob(".saving-*")) and process.poll() is None:
                    time.sleep(0.001)
                time.sleep(draw.uniform(0, 0.2))
            process.send_signal(signal.SIGKILL)
        names = [path.name for path in folder.iterdir()]
        halves += any(name.startswith(".saving-") for name in names)
        assert all(name.isdigit() or name.startswith(".saving-") for name in names), names
    versions = [path for path in folder.iterdir() if path.name.isdigit()]
    assert len(versions) >= times - 2 and halves > 0
    for path in versions:
        found = {str(p.relative_to(path)) for p in path.rglob("*") if p.is_file()}
        assert found == FILES, path
        loaded = tf.saved_model.load(str(path)).signatures["serving_default"]
        assert loaded(text_a=tf.constant(["a", "bb"]))["probabilities"].shape == (2, 2)
    # The next one clears away what the last left.
    assert len([p for p in folder.iterdir() if p.name.startswith(".saving-")]) <= 1
    assert pathlib.Path(versions[0], "assets/vocab.txt").read_text() == vocab.read_text()
