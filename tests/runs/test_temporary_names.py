"""Temporary names tell hosts that share a folder, their processes and their files apart."""

import os
import pathlib
import re
import socket

import numpy as np
import pytest
import tensorflow as tf

from data.files import atomic
from data.prediction.outputs import PredictionOutputs
from data.pretraining.inspection import reports
from data.pretraining.writing import jobs
from data.tasks.questions import (
    answers as squad_answers,
)
from data.tasks.sentences.examples import Example, SentenceKind
from data.tasks.sentences.rows import SentenceSettings, cached_sentence_rows
from data.tokenization import Tokenizer, vocabulary
from data.vectors.store import stored_vectors
from data.vectors.texts import LineVectors
from data.vectors.vector_files import open_vector_file
from modeling.checkpoints.files import staged, write_staged_text
from modeling.models import BertClassifier
from modeling.serving.export import Export
from modeling.serving.sentences import export_sentence_model
from tests.data.vectors.test_store import WIDTH, Extract, rows
from tests.modeling.serving.test_export import LABELS, VOCAB, randomised, small

HOST = re.sub(r"[^\w.]", "_", socket.gethostname())


def checkpoint(folder):
    with staged(folder) as temporary:
        write_staged_text(os.path.join(temporary, "file"), "x")


def pieces(folder):
    examples, settings = [Example("1", "the dog", None, None, "f:1")], SentenceSettings(8)
    tokenizer = Tokenizer.from_vocab(VOCAB)
    cached_sentence_rows(
        folder, "train", tokenizer, examples, SentenceKind.REGRESSION, [], settings
    )


def vectors(folder):
    stored_vectors(folder, "train", rows(), "w", WIDTH, Extract())


def extracted(folder):
    with open_vector_file("jsonl", f"{folder}/o.jsonl", [-1], 3, pooled=True) as writer:
        writer.write([LineVectors(0, np.zeros((1, 1, 3), np.float32))])


def answers(folder):
    with squad_answers.AnswerFiles(folder, version_2=True) as files:
        files.add("1", [], "a", 0.0)
        files.finish(0.0)


def predicted(folder):
    with PredictionOutputs(f"{folder}/o.jsonl", "jsonl", {"p": tf.TensorSpec([None])}):
        pass


def copies(folder):
    class Job:
        pass

    Job.folder = folder
    jobs.write_job_copies(Job, 0, np.arange(2))


def export(folder):
    model = randomised(BertClassifier(small(), num_labels=len(LABELS)))
    pathlib.Path(folder, "vocab.txt").write_text("\n".join(VOCAB))

    def preprocess(text):
        ids = tf.strings.length(text)[:, tf.newaxis] + tf.zeros([1, 4], tf.int32)
        return {"input_ids": ids, "input_mask": ids * 0 + 1, "segment_ids": ids * 0}

    made = Export(f"{folder}/model", {"vocab.txt": f"{folder}/vocab.txt"})
    export_sentence_model(model, made, "classes", preprocess, LABELS, False)


WRITERS = {
    "checkpoint": checkpoint,
    "pieces of texts": pieces,
    "vectors of frozen features": vectors,
    "extracted features": extracted,
    "SQuAD's answers": answers,
    "predictions of an export": predicted,
    "text": lambda folder: atomic.write_text(f"{folder}/o.txt", "x"),
    "vocabulary": lambda folder: vocabulary.write_vocab(VOCAB, f"{folder}/vocab.txt"),
    "report on records": lambda folder: reports.write_inspection_json({}, f"{folder}/o.json"),
    "note of a job": lambda folder: jobs.write_job_note(f"{folder}/note", {}),
    "copies among documents": copies,
    "export": export,
}


@pytest.mark.parametrize("name", WRITERS)
def test_host_process_and_chance_are_in_the_name(tmp_path, monkeypatch, name):
    renamed = []

    def noting(rename):
        def noted(source, *target, **options):
            renamed.append(str(source))
            return rename(source, *target, **options)

        return noted

    for module, function in ((tf.io.gfile, "rename"), (os, "rename"), (os, "replace")):
        monkeypatch.setattr(module, function, noting(getattr(module, function)))
    sources = []
    for number in range(2):
        folder = tmp_path / str(number)
        folder.mkdir()
        del renamed[:]
        WRITERS[name](str(folder))
        assert renamed
        sources.append([os.path.relpath(source, folder) for source in renamed])
    # The same files in two folders: names that are the same again hold nothing random.
    assert not set(sources[0]) & set(sources[1])
    for source in sources[0] + sources[1]:
        assert HOST in source, source
        assert str(os.getpid()) in re.findall(r"\d+", source.replace(HOST, "")), source
