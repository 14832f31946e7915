"""Exports of two hosts into one folder, such as a network file system's."""

import signal

import pytest

from tests.scripts import Script

# Exports as the host that the arguments name; dies while it writes if they say so.
PROGRAM = """
import os, platform, signal, socket, sys
folder, vocab, host, dies = sys.argv[1:]
socket.gethostname = platform.node = lambda: host
import tensorflow as tf
from modeling.config import BertConfig
from modeling.models import BertClassifier
from modeling.serving.export import Export
from modeling.serving.sentences import export_sentence_model

save = tf.saved_model.save

def save_and_die(*arguments, **options):
    save(*arguments, **options)
    os.kill(os.getpid(), signal.SIGKILL)

if dies == "yes":
    tf.saved_model.save = save_and_die
model = BertClassifier(BertConfig(10, 16, 1, 2, 16), num_labels=2)
model.build()

def preprocess(text):
    ids = tf.strings.length(text)[:, tf.newaxis] + tf.zeros([1, 4], tf.int32)
    return {"input_ids": ids, "input_mask": ids * 0 + 1, "segment_ids": ids * 0}

export = Export(folder, {"vocab.txt": vocab})
export_sentence_model(model, export, "classes", preprocess, ["no", "yes"], False)
"""


@pytest.mark.slow
@pytest.mark.parametrize(("host", "stays"), [("elsewhere", True), ("here", False)])
def test_only_leftovers_of_the_own_host_go(tmp_path, host, stays):
    vocab, folder = tmp_path / "vocab.txt", tmp_path / "model"
    vocab.write_text("one\n")
    died = Script("-c", PROGRAM, folder, vocab, host, "yes").wait()
    assert died.returncode == -signal.SIGKILL, died.stderr[-3000:]
    (left,) = folder.iterdir()
    ended = Script("-c", PROGRAM, folder, vocab, "here", "no").wait()
    assert ended.returncode == 0, ended.stderr[-3000:]
    # No process of that number runs here. That says nothing about another host.
    assert (left in set(folder.iterdir())) == stays
    assert (folder / "1" / "saved_model.pb").exists()
