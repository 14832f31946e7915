"""Exports for LiteRT: its interpreter gives the model's answers, of every family with a form."""

import pathlib

import keras
import numpy as np
import pytest
import tensorflow as tf
from ai_edge_litert.interpreter import Interpreter

from data.tokenization import Tokenizer, build_choice_inputs, build_inputs
from data.vectors.serving_inputs import vector_serving_inputs
from modeling.config import BertConfig
from modeling.errors import ModelingError
from modeling.models import (
    BertClassifier,
    BertMultipleChoice,
    BertPretrainer,
    BertQuestionAnswering,
    BertTagger,
)
from modeling.serving.export import Export
from modeling.serving.prediction import LITE_NAME, version_folder
from modeling.serving.pretraining import export_pretrainer
from modeling.serving.question_answering import export_question_answering
from modeling.serving.sentences import export_sentence_model
from modeling.serving.tagging import export_tagger
from modeling.serving.vectors import export_embeddings
from modeling.vectors.vector_models import BertVectors

VOCAB = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghijk"]
LENGTH = 24
NAMES = ["O", "B-X", "I-X"]
# Of probabilities.
NEAR = {"float32": 1e-5, "float16": 1e-2, "int8": 5e-2}


def made(kind, *arguments, act: str = "gelu", **settings):
    keras.utils.set_random_seed(1)
    config = BertConfig(len(VOCAB), 32, 2, 4, 64, hidden_act=act, max_position_embeddings=LENGTH)
    model = kind(BertConfig.from_dict(config.to_dict() | settings), *arguments)
    model.build()
    rng = np.random.default_rng(3)
    for weight in model.weights:
        weight.assign(weight + rng.normal(0, 0.2, weight.shape))
    return model


def lite(tmp_path, dtype: str = "float32") -> Export:
    vocab = tmp_path / "vocab.txt"
    vocab.write_text("\n".join(VOCAB))
    return Export(str(tmp_path / "m"), {"vocab.txt": str(vocab)}, dtype, LENGTH, format="tflite")


def batches():
    """One text each, of several lengths; the last has padding."""
    rng = np.random.default_rng(0)
    for length in (3, 11, LENGTH):
        ids = rng.integers(0, len(VOCAB), (1, length)).astype(np.int32)
        mask = np.ones_like(ids)
        mask[:, LENGTH - 4 :] = 0
        yield {"input_ids": ids, "input_mask": mask, "segment_ids": (ids % 2).astype(np.int32)}


def single(*texts):
    tokenizer = Tokenizer.from_vocab(VOCAB)
    return build_inputs(tokenizer, *texts, max_seq_length=LENGTH, pad_to="longest")


def answers(folder: str, batch):
    return Interpreter(f"{folder}/{LITE_NAME}", num_threads=1).get_signature_runner()(**batch)


@pytest.mark.parametrize("dtype", list(NEAR))
def test_classes(dtype, tmp_path):
    model = made(BertClassifier, 3)
    folder = export_sentence_model(model, lite(tmp_path, dtype), "classes", single, NAMES, False)
    assert folder == str(tmp_path / "m/1")
    files = {str(p.relative_to(folder)) for p in pathlib.Path(folder).rglob("*") if p.is_file()}
    assets = {f"assets/{name}" for name in ("vocab.txt", "labels.json", "bert_config.json")}
    assert files == {LITE_NAME, *assets}
    for path in (folder, str(tmp_path / "m")):
        with pytest.raises(ModelingError, match=r"m/1 holds model.tflite, .*--export_format"):
            version_folder(path)
    for batch in batches():
        got = answers(folder, batch)
        wanted = tf.nn.softmax(model(batch)["logits"]).numpy()
        np.testing.assert_allclose(got["probabilities"], wanted, atol=NEAR[dtype])
        assert got["labels"].tolist() == [[name.encode() for name in NAMES]]
        assert got["label"][0] == NAMES[got["probabilities"][0].argmax()].encode()


@pytest.mark.slow
def test_fewer_bytes(tmp_path):
    """Kernels and tables; the models of LiteRT begin with some 100 kB of graph."""
    sizes = {}
    for dtype in NEAR:
        model = made(BertClassifier, 3, hidden_size=128, intermediate_size=512)
        (tmp_path / dtype).mkdir()
        export = lite(tmp_path / dtype, dtype)
        folder = export_sentence_model(model, export, "classes", single, NAMES, False)
        sizes[dtype] = pathlib.Path(folder, LITE_NAME).stat().st_size
    assert sizes["float16"] < 0.6 * sizes["float32"]
    assert sizes["int8"] < 0.4 * sizes["float32"]


@pytest.mark.parametrize("act", ["gelu_erf", "relu"])
def test_several_labels(act, tmp_path):
    model = made(BertClassifier, 3, act=act)
    export = lite(tmp_path)
    thresholds = [0.3, 0.5, 0.7]
    folder = export_sentence_model(
        model, export, "multi_label", single, NAMES, False, label_thresholds=thresholds
    )
    for batch in batches():
        got = answers(folder, batch)
        wanted = tf.sigmoid(model(batch)["logits"]).numpy()
        np.testing.assert_allclose(got["probabilities"], wanted, atol=1e-5)
        names = np.where(wanted >= thresholds, NAMES, "").tolist()
        assert [[name.decode() for name in row] for row in got["predicted"]] == names


def test_a_number(tmp_path):
    model = made(BertClassifier, 1)
    folder = export_sentence_model(model, lite(tmp_path), "regression", single, [], True)
    for batch in batches():
        np.testing.assert_allclose(
            answers(folder, batch)["score"], model(batch)["logits"][:, 0], atol=1e-4
        )


def test_tags(tmp_path):
    model = made(BertTagger, 3)
    folder = export_tagger(model, lite(tmp_path), None, None, NAMES)
    for batch in batches():
        got, real = answers(folder, batch), batch["input_mask"][0] == 1
        wanted = tf.nn.softmax(model(batch)["logits"]).numpy()
        np.testing.assert_allclose(got["scores"][0, real], wanted.max(-1)[0, real], atol=1e-5)
        assert got["tags"].shape == real[np.newaxis].shape
        tags = [NAMES[number].encode() for number in wanted.argmax(-1)[0, real]]
        assert got["tags"][0, real].tolist() == tags


def test_questions(tmp_path):
    model = made(BertQuestionAnswering)
    options = {"n_best": 3, "max_answer_length": 5, "version_2": False, "threshold": 0.0}
    folder = export_question_answering(model, lite(tmp_path), None, **options)
    for batch in batches():
        got, real = answers(folder, batch), batch["input_mask"] == 1
        for name in ("start_logits", "end_logits"):
            np.testing.assert_allclose(got[name][real], model(batch)[name][real], atol=1e-4)


def test_vectors(tmp_path):
    model = made(BertVectors)

    def pieces(text):
        return vector_serving_inputs(Tokenizer.from_vocab(VOCAB), LENGTH, text)

    folder = export_embeddings(model, lite(tmp_path), pieces, "mean")
    for batch in batches():
        real = batch["input_mask"][..., np.newaxis]
        vectors = tf.squeeze(model(batch)["vectors"], 2).numpy() * real
        mean = vectors.sum(1) / real.sum(1)
        wanted = mean / np.linalg.norm(mean, axis=-1, keepdims=True)
        np.testing.assert_allclose(answers(folder, batch)["embedding"], wanted, atol=1e-5)


def test_words(tmp_path):
    model, tokenizer = made(BertPretrainer), Tokenizer.from_vocab(VOCAB)
    folder = export_pretrainer(model, lite(tmp_path), single, tokenizer, 3)
    for batch in batches():
        batch["masked_lm_positions"] = np.array([[1, 2]], np.int32)
        got = answers(folder, batch)
        probabilities = tf.nn.softmax(model(batch)["masked_lm_logits"]).numpy()
        likeliest = np.argsort(probabilities)[..., :-4:-1]
        wanted = np.take_along_axis(probabilities, likeliest, -1)
        np.testing.assert_allclose(got["scores"], wanted, atol=1e-5)
        words = np.char.decode(got["words"].astype(bytes))
        assert words.tolist() == np.array(VOCAB)[likeliest].tolist()


@pytest.mark.slow
def test_what_has_no_form_is_refused(tmp_path):
    def choices(*texts):
        return build_choice_inputs(Tokenizer.from_vocab(VOCAB), *texts, LENGTH, "longest")

    with pytest.raises(ModelingError, match=r"several rows .* no form .*--export_format"):
        model = made(BertMultipleChoice)
        export_sentence_model(model, lite(tmp_path), "choices", choices, [], False)
    with pytest.raises(ModelingError, match=r"no form for LiteRT, which can't take TensorList"):
        model = made(BertClassifier, 3, True)  # with an LSTM, whose loops keep lists
        export_sentence_model(model, lite(tmp_path), "classes", single, NAMES, False)
    assert not [p for p in tmp_path.rglob("*") if "temporary" in p.name]
