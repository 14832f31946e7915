"""Single texts by programs of XLA: the same answers, few programs, in whatever serves them."""

import functools
import sys

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2
from tensorflow_serving.apis import prediction_log_pb2

from modeling.errors import ModelingError
from modeling.layers.execution import Execution
from modeling.serving import warm_up
from modeling.serving.buckets import in_buckets
from modeling.serving.export import IDS, Export, Signature
from modeling.serving.graph.encoder import XLA_LENGTHS, BranchedEncoder, filled_length
from modeling.serving.storage import Servable
from tests.modeling.serving.graph.test_encoder import make_batch, make_model, traced
from tests.modeling.serving.graph.test_whole_numbers import CLIENT, question
from tests.scripts import served

LENGTH = 40
MASKS = [[[1] * n] for n in (1, 17, LENGTH)] + [[[1, 1, 0, 1, 0, 0]], [[0] * 3]]
SEVERAL = [[1, 1, 1, 0], [1, 0, 0, 0], [1, 1, 1, 1]]


def test_lengths_are_few():
    found = [int(filled_length(tf.constant(n))) for n in (1, 16, 17, 200, 512, 513, 1025)]
    assert found == [16, 16, 32, 256, 512, 1024, 1536]


@pytest.mark.parametrize(
    "direction", ["bidirectional", pytest.param("left_to_right", marks=pytest.mark.slow)]
)
def test_a_text_gives_the_same(direction):
    model = make_model(attention_direction=direction, max_position_embeddings=LENGTH)
    encoder = BranchedEncoder(model.encoder, "float32", 2, xla=True)
    execution = Execution(inference=True, encoders={id(model.encoder): encoder})
    batch = make_batch(MASKS[0])
    answer_plainly, answer = traced(model, batch), traced(model, batch, execution)
    for mask in MASKS:
        batch = make_batch(mask)
        plain, found = answer_plainly(**batch), answer(**batch)
        real = np.array(mask) == 1
        for expected, rows in zip(plain["encoder_outputs"], found["encoder_outputs"], strict=True):
            assert rows.shape == expected.shape
            np.testing.assert_allclose(rows.numpy()[real], expected.numpy()[real], atol=1e-5)
        if real[0, 0]:
            np.testing.assert_allclose(found["logits"], plain["logits"], atol=1e-5)


def test_bfloat16():
    model, batch = make_model(max_position_embeddings=LENGTH), make_batch([[1] * 20])
    servable = Servable(model, "bfloat16", xla=True)
    logits = tf.function(lambda **batch: servable(batch))(**batch)["logits"]
    np.testing.assert_allclose(logits, model(batch)["logits"], atol=0.1)


def test_whole_numbers_are_refused():
    with pytest.raises(ModelingError, match="float32 or bfloat16"):
        Servable(make_model(), "int8", xla=True)


@pytest.fixture(scope="module")
def export(tmp_path_factory) -> str:
    """From ids to logits, by two signatures."""
    export = Export(str(tmp_path_factory.mktemp("xla")), {}, None, LENGTH, xla=True)
    servable = export.servable(make_model(max_position_embeddings=LENGTH))

    def logits(**batch):
        rows = tf.shape(batch["input_ids"])[0]
        return in_buckets(servable, batch, {"logits": tf.zeros([rows, 3])})

    signatures = {name: Signature(logits, IDS) for name in ("serving_default", "again")}
    return export.write(servable, signatures)


def test_signatures_share_one_program_of_each_length(export):
    with tf.io.gfile.GFile(f"{export}/saved_model.pb", "rb") as file:
        graph = saved_model_pb2.SavedModel.FromString(file.read()).meta_graphs[0].graph_def
    compiled = [f for f in graph.library.function if f.attr["_XlaMustCompile"].b]
    assert len(compiled) == 1


def test_warm_up_requests_have_every_program_made(export):
    path = f"{export}/{warm_up.FOLDER}/{warm_up.FILE}"
    lengths = {"serving_default": set(), "again": set()}
    for record in tf.data.TFRecordDataset(path):
        log = prediction_log_pb2.PredictionLog.FromString(record.numpy())
        request = log.predict_log.request
        rows, length = tf.make_ndarray(request.inputs["input_ids"]).shape
        assert length <= LENGTH
        if rows == 1:
            filled = int(filled_length(tf.constant(length)))
            lengths[request.model_spec.signature_name].add(filled)
    assert set(map(frozenset, lengths.values())) == {frozenset(XLA_LENGTHS[:3])}


def check(ask) -> None:
    """`ask` gives the logits of batches as the model does: single texts, several, none."""
    model = make_model(max_position_embeddings=LENGTH)
    batches = [make_batch(mask) for mask in ([[1] * 16], [[1] * 17], [[1] * LENGTH], SEVERAL)]
    *answers, nothing = ask([*batches, dict.fromkeys(IDS, np.zeros([0, 4], np.int32))])
    for batch, answer in zip(batches, answers, strict=True):
        np.testing.assert_allclose(answer, model(batch)["logits"], atol=1e-5)
    assert np.shape(nothing)[0] == 0


@pytest.mark.slow
@pytest.mark.parametrize("python", [None, pytest.param("tensorflow-2.12", id="2.12")])
def test_a_process_without_the_project(python, export, peer_python, tmp_path):
    python = peer_python(python) if python else sys.executable

    def ask(batches):
        asked = [question("again", **batch) for batch in batches]
        return [a["logits"] for a in served(CLIENT, export, asked, tmp_path, python)]

    check(ask)


@pytest.mark.slow
def test_the_loader_of_tf_serving(export, load_in_cpp):
    load = functools.partial(load_in_cpp, export, "serving_default")
    check(lambda batches: [load(**batch)["logits"] for batch in batches])
