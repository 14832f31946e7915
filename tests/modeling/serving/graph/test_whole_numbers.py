"""Products in whole numbers: exact sums, in every server that oneDNN computes in, floats elsewhere.

Whether oneDNN computes is settled when TensorFlow starts, so what is asked of it is an export, in
processes of their own.
"""

import sys

import numpy as np
import pytest
import tensorflow as tf

from modeling.layers.dense import ACTIVATIONS
from modeling.serving.export import IDS, Export, Signature
from modeling.serving.graph import encoder
from modeling.serving.graph.matrices import StoredMatrix
from modeling.serving.graph.whole_numbers import can_multiply, least_value, whole_numbers
from modeling.serving.storage import Servable
from tests.modeling.serving.graph.test_encoder import MASK, make_batch, make_model
from tests.scripts import served

ON, OFF = ({"TF_ENABLE_ONEDNN_OPTS": value} for value in "10")
SHAPES = ((1, 3, 2), (7, 64, 5), (16, 3072, 40), (130, 384, 96))
"""Rows, inputs, outputs."""

CLIENT = """
def answer(loaded, asked):
    found = []
    for name, inputs in asked:
        call = loaded.signatures[name]
        given = call.structured_input_signature[1]
        inputs = {k: tf.constant(v, given[k].dtype, shape) for k, (v, shape) in inputs.items()}
        found.append({k: v.numpy().tolist() for k, v in call(**inputs).items()})
    return found
"""


def question(name: str, **inputs) -> tuple:
    """As `CLIENT` is asked."""
    arrays = {key: np.asarray(value) for key, value in inputs.items()}
    return name, {key: (array.ravel().tolist(), array.shape) for key, array in arrays.items()}


def factors(rows: int, inputs: int, outputs: int) -> tuple[np.ndarray, np.ndarray]:
    """Usual ones, and those whose sums are as large as can be."""
    rng = np.random.default_rng(inputs)
    x = rng.normal(0, 1, [rows, inputs]) * 10.0 ** rng.integers(-4, 5, [rows, 1])
    matrix = rng.normal(0, 1, [inputs, outputs])
    x[-1], matrix[:, -1] = 1, 1
    x[0] = 0 if rows > 1 else -3
    matrix[:, 0] = -1
    return x.astype(np.float32), matrix.astype(np.float32)


class Products(tf.Module):
    """Of whole numbers, of both signs or not below a least value."""

    def __init__(self, least: float | None):
        super().__init__()
        self.least = least
        self.matrices = [StoredMatrix(factors(*s)[1], "int8", largest=63) for s in SHAPES]
        self.model_variables = [v for matrix in self.matrices for v in matrix.variables]

    def call(self, number: int, x):
        rounded = whole_numbers(x, self.least)
        return {
            "values": tf.cast(tf.bitcast(rounded.values, tf.uint8), tf.int32),
            "scales": rounded.scales,
            "product": rounded.times(self.matrices[number]),
            "can": can_multiply(tf.size(x))[tf.newaxis],
        }


@pytest.fixture(scope="module", params=[None, -0.17, 0.0])
def least(request) -> float | None:
    return request.param


@pytest.fixture(scope="module")
def products(least, tmp_path_factory) -> str:
    made = Products(least)
    folder = str(tmp_path_factory.mktemp("products"))
    signatures = {}
    for number, (_, inputs, _) in enumerate(SHAPES):
        call = tf.function(
            lambda x, number=number: made.call(number, x),
            input_signature=[tf.TensorSpec([None, inputs], tf.float32, "x")],
            autograph=False,
        )
        signatures[f"product_{number}"] = call.get_concrete_function()
    tf.saved_model.save(made, folder, signatures)
    return folder


@pytest.mark.slow
def test_products_are_exact_but_for_rounding(products, least, tmp_path):
    def given(*shape):
        x, matrix = factors(*shape)
        return (x if least is None else np.maximum(x, np.float32(least))), matrix

    asked = [question(f"product_{n}", x=given(*shape)[0]) for n, shape in enumerate(SHAPES)]
    answered = served(CLIENT, products, asked, tmp_path, environment=ON)
    for shape, found in zip(SHAPES, answered, strict=True):
        inputs = shape[1]
        x, matrix = given(*shape)
        found = {name: np.array(value) for name, value in found.items()}
        assert found["can"] == [True]
        values, scales = found["values"], found["scales"]
        if least is None:
            values = values - 128
            assert np.abs(values).max() == 127
        else:
            assert values.min() >= 0 and values.max() <= 255
        lowest = least or 0.0
        assert np.all(np.abs(values * scales + lowest - x) <= 0.5001 * scales + 1e-7 * abs(lowest))
        steps = np.abs(matrix).max(0) / 63
        whole = np.rint(matrix / steps).astype(np.int64)
        moved = lowest * whole.sum(0)
        # Sums with what 128 adds to them are below 2^26, which float32 has every fourth number of.
        unit = 4 if inputs > 1000 else 1e-6
        exact = (values @ whole * scales + moved) * steps
        allowed = 1e-6 * np.abs(exact) + (unit * scales + 1e-6 * np.abs(moved)) * steps
        assert np.all(np.abs(found["product"] - exact) <= allowed)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_the_least_that_an_activation_gives(name):
    # Of x·Φ(x), its approximations and their kin; the others go far below 0, or nowhere else.
    known = {"gelu": -0.17004, "gelu_erf": -0.16997, "quick_gelu": -0.16359, "relu": 0.0}
    known |= {"silu": -0.27846, "mish": -0.30884}
    found = least_value(ACTIVATIONS[name])
    if name not in known:
        assert found is None
        return
    assert known[name] - 2e-4 < found < known[name]
    rng = np.random.default_rng(0)
    x = tf.constant(rng.normal(0, 3, 100_000), tf.float32)
    assert found < tf.reduce_min(ACTIVATIONS[name](x))


@pytest.fixture(scope="module")
def export(tmp_path_factory) -> str:
    return export_of(make_model(), tmp_path_factory.mktemp("int8"))


def export_of(model, folder) -> str:
    """In int8, from ids to logits."""
    export = Export(str(folder), {}, "int8", 8)
    servable = export.servable(model)

    def logits(**batch):
        return {"logits": servable(batch)["logits"]}

    return export.write(servable, {"serving_default": Signature(logits, IDS)})


@pytest.mark.slow
@pytest.mark.parametrize("python", [None, pytest.param("tensorflow-2.12", id="2.12")])
def test_an_export_is_served_with_and_without_onednn(
    python, export, peer_python, tmp_path, monkeypatch
):
    python = peer_python(python) if python else sys.executable
    model = make_model()
    batches = [make_batch(mask) for mask in (MASK, [[1] * 5], [[1] * 8] * 16)]
    nothing = dict.fromkeys(IDS, np.zeros([0, 4], int))
    asked = [question("serving_default", **batch) for batch in (*batches, nothing)]
    whole, floats = (
        served(CLIENT, export, asked, tmp_path, python, environment) for environment in (ON, OFF)
    )
    monkeypatch.setattr(encoder, "can_multiply", lambda number: number < 0)
    rounded = Servable(model, "int8")
    *whole, nothing = whole
    assert nothing["logits"] == floats.pop()["logits"] == []
    for batch, *both in zip(batches, whole, floats, strict=True):
        exact = model(batch)["logits"].numpy()
        some = batch["input_mask"].numpy()[:, 0] == 1
        size = np.abs(exact).max()
        products, others = (np.array(found["logits"])[some] for found in both)
        # Rounded here as there; a test of whole numbers must not see those of floats.
        assert 1e-5 * size < np.abs(products - others).max() < 0.1 * size
        assert np.abs(products - exact[some]).max() < 0.1 * size
        wanted = tf.function(rounded)(batch)["logits"].numpy()[some]
        np.testing.assert_allclose(others, wanted, atol=1e-5)
