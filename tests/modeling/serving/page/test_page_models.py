"""What the page makes of exports: families, names, answers that are the SavedModel's."""

import numpy as np
import pytest
import tensorflow as tf

from modeling.errors import ModelingError
from modeling.serving.page import models as page_models
from modeling.serving.page.families import FAMILIES
from modeling.serving.page.models import PageModel, load_page_models
from tests.modeling.serving.page.conftest import each_family
from tests.scripts import ROOT

OF_VARIANTS = {"pair": "classes", "unanswered": "questions"}


def inputs_of(model: PageModel, number: int = 0) -> dict:
    return dict(zip(model.family.fields, model.family.examples[number], strict=True))


def asked_directly(path: str, signature: str, inputs: dict) -> dict[str, np.ndarray]:
    """The outputs of a SavedModel for one example."""
    loaded = tf.saved_model.load(path)
    given = {name: tf.constant([value], tf.string) for name, value in inputs.items()}
    outputs = loaded.signatures[signature](**given)
    return {name: np.asarray(value.numpy()[0]) for name, value in outputs.items()}


def same(got, wanted: np.ndarray) -> None:
    if wanted.dtype.kind == "f":
        np.testing.assert_allclose(got, wanted, atol=1e-5)
    elif wanted.dtype.kind in "OS":
        assert np.char.encode(got).tolist() == wanted.tolist()
    else:
        assert np.array(got).tolist() == wanted.tolist()


@each_family("classes", "tags")
def test_answers_are_the_saved_models(name, models, export):
    model = models[name]
    assert model.family.name == OF_VARIANTS.get(name, name)
    inputs = inputs_of(model)
    got, milliseconds = model.answer(inputs)
    assert milliseconds > 0
    if name == "similar":
        loaded = tf.saved_model.load(export(name)).signatures["serving_default"]
        vectors = loaded(text=[inputs["text"], *inputs["texts"]])["embedding"].numpy()
        norms = np.linalg.norm(vectors, axis=1)
        np.testing.assert_allclose(
            got["scores"], vectors[1:] @ vectors[0] / norms[1:] / norms[0], atol=1e-5
        )
        return
    signatures = ["serving_default"]
    if model.family.name == "questions":
        signatures.append("n_best")
    wanted = {}
    for signature in signatures:
        wanted |= asked_directly(export(name), signature, inputs)
    assert got.keys() == wanted.keys()
    for key, value in wanted.items():
        same(got[key], value)
    if name == "unanswered":
        assert got["answer"] == "" and got["answers"][0]
    if name == "masks":
        assert len(got["words"]) == 1 and len(got["words"][0]) == 5


@pytest.mark.parametrize("name", ["tags", pytest.param("masks", marks=pytest.mark.slow)])
def test_lists_have_their_own_length(name, models):
    none, _ = models[name].answer({"text": " \n" if name == "tags" else "the door"})
    assert none["words"] == none["scores"] == none.get("entity_types", []) == []


@pytest.mark.parametrize(
    ("name", "inputs", "says"),
    [
        ("classes", {}, "takes text_a, but got nothing"),
        ("classes", {"text": "a"}, "takes text_a, but got text"),
        ("classes", "a", "takes text_a, but got something else"),
        ("classes", {"text_a": ["a"]}, "takes a text as 'text_a'"),
        ("classes", {"text_a": 7}, "takes a text as 'text_a'"),
        ("choices", {"context": "a", "choices": "b"}, "takes a list of texts as 'choices'"),
        ("choices", {"context": "a", "choices": ["b", None]}, "takes a list of texts"),
        ("choices", {"context": "a", "choices": []}, "'choices' has 0 texts; give 1 to 1,000"),
        ("choices", {"context": "a", "choices": ["b"] * 1001}, "'choices' has 1,001 texts"),
        pytest.param(
            *("questions", {"question": "a", "context": "the " * 9000}, "windows"),
            marks=pytest.mark.slow,
        ),
    ],
)
def test_what_is_refused(name, inputs, says, models):
    with pytest.raises(ModelingError, match=says):
        models[name].answer(inputs)
    models[name].answer(inputs_of(models[name]))


def test_halves_of_surrogate_pairs_count_as_one_character(models):
    for half in ("\ud800", "\udfff"):
        got, _ = models["classes"].answer({"text_a": f"a {half} b"})
        wanted, _ = models["classes"].answer({"text_a": "a \ufffd b"})
        assert got == wanted


@pytest.mark.slow
def test_answers_count_characters_as_the_page_does(models):
    context = "\ud83d\ude00 the \ud800 tower"
    got, _ = models["questions"].answer({"question": "what", "context": context})
    assert got["answer"] == "😀 the \ufffd tower"[got["start"] : got["end"]] != ""


def test_numbers_that_json_lacks():
    value = {"a": np.array([1.5, np.nan, np.inf], np.float32), "b": b"\xff", "c": np.int32(3)}
    plain = {name: page_models._plain(part) for name, part in value.items()}
    assert plain == {"a": [1.5, None, None], "b": "\ufffd", "c": 3}


def test_a_busy_model(models, monkeypatch):
    monkeypatch.setattr(page_models, "WAITING_SECONDS", 0.01)
    model = models["classes"]
    with model._one_at_a_time, pytest.raises(page_models.BusyError, match="busy"):
        model.answer(inputs_of(model))
    model.answer(inputs_of(model))


def test_names():
    paths = ["out/reviews/export", "/a/small/export/12", "b/small/export/", "big", "/", "export"]
    assert page_models._names(paths) == [
        *("reviews", "/a/small/export/12", "b/small/export/", "big", "/", "export")
    ]


class Lengths(tf.Module):
    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "text")])
    def serve(self, text):
        return {"length": tf.strings.length(text)}


def test_models_that_are_unknown(tmp_path):
    module = Lengths()
    tf.saved_model.save(module, str(tmp_path / "1"), signatures=module.serve)
    with pytest.raises(ModelingError, match="takes text and gives length"):
        load_page_models([str(tmp_path)])
    with pytest.raises(ModelingError, match="absent doesn't exist"):
        load_page_models([str(tmp_path / "absent")])


def test_the_picture_in_the_documents_is_small():
    assert (ROOT / "modeling/serving/page.png").stat().st_size < 60_000


def test_the_page_knows_every_family():
    page = (ROOT / "modeling/serving/page/page.html").read_text("utf-8")
    for family in FAMILIES:
        assert f"\n  {family.name}(" in page and f"\n  {family.form}: {{" in page
        assert {*map(len, family.examples)} == {len(family.fields)}
