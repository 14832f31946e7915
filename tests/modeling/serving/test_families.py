"""Real inputs of every family: the same answers from everything that can serve them."""

import numpy as np
import pytest

from tests.modeling.serving.client import GrpcClient, RestClient
from tests.modeling.serving.families import Family, make_families
from tests.modeling.serving.stand_in import StandIn
from tests.scripts import served

FEW = 20
VERSIONS = ("2.12", *(pytest.param(v, marks=pytest.mark.hours) for v in ("2.17", "2.20")))
"""Of TensorFlow, each with TF Text of the servers' release; the tests themselves run on a newer."""
FAMILIES = ("classes", "labels", "numbers", "choices", "questions", "tags", "vectors", "words")

# Arrays of strings and of numbers go to and fro as nested lists.
CLIENT = """
def answer(_, asked):
    return [answer_one(tf.saved_model.load(one["path"]), one) for one in asked]

def answer_one(loaded, asked):
    call = loaded.signatures[asked["signature"]]
    answered = []
    for request in asked["requests"]:
        outputs = call(**{name: tf.constant(value) for name, value in request.items()})
        answered.append({
            name: [text.decode() for text in outputs[name].numpy().ravel()]
            if outputs[name].dtype == tf.string else outputs[name].numpy().ravel().tolist()
            for name in asked["outputs"]})
        for name in asked["outputs"]:
            answered[-1][name + "/shape"] = list(outputs[name].shape)
    return answered
"""


@pytest.fixture(scope="module", params=[FEW, pytest.param(500, marks=pytest.mark.hours)])
def families(request, minilm, shared_data, tmp_path_factory) -> dict[str, Family]:
    folder = tmp_path_factory.mktemp("models")
    made = {f.name: f for f in make_families(minilm, shared_data, folder, request.param)}
    assert {family.size for family in made.values()} == {request.param}
    return made


def nested(array: np.ndarray) -> list:
    if array.dtype.kind != "O":
        return array.tolist()
    return np.vectorize(bytes.decode, otypes=[object])(array).tolist()


def question(family: Family, count: int) -> dict:
    """The first so many inputs, as `CLIENT` is asked them."""
    return {
        "path": str(family.path),
        "signature": family.signature,
        "outputs": list(family.wanted),
        "requests": [
            {key: nested(value) for key, value in request.items()}
            for request in family.first(count).requests()
        ],
    }


def answers_of(family: Family, rows) -> list[dict[str, np.ndarray]]:
    """What `CLIENT` answered, as `Family.check` wants it."""
    return [
        {
            key: np.array(
                [v.encode() if isinstance(v, str) else v for v in row[key]],
                family.wanted[key].dtype,
            ).reshape(row[key + "/shape"])
            for key in family.wanted
        }
        for row in rows
    ]


@pytest.mark.slow
@pytest.mark.hours
@pytest.mark.parametrize("name", FAMILIES)
def test_a_process_without_the_project(name, families, tmp_path):
    family = families[name]
    (rows,) = served(CLIENT, family.path, [question(family, family.size)], tmp_path)
    family.check(answers_of(family, rows))


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
def test_versions_of_tensorflow(version, families, peer_python, tmp_path):
    python = peer_python(f"tensorflow-{version}")
    asked = [question(family, FEW) for family in families.values()]
    found = served(CLIENT, families["classes"].path, asked, tmp_path, python)
    for family, rows in zip(families.values(), found, strict=True):
        family.first(FEW).check(answers_of(family, rows))


@pytest.mark.slow
@pytest.mark.parametrize("name", FAMILIES)
def test_the_loader_of_tf_serving(name, families, load_in_cpp):
    family = families[name]
    family.check([load_in_cpp(family.path, family.signature, **family.inputs)])


@pytest.mark.slow
def test_rest_and_grpc(families):
    bases = {name: str(family.path).rpartition("/")[0] for name, family in families.items()}
    with StandIn(bases) as server:
        for name, family in families.items():
            for client in (
                RestClient(server.rest, name),
                RestClient(server.rest, name, rows=True),
                GrpcClient(server.grpc, name),
            ):
                family.check([client(family.signature, **r) for r in family.requests()])


@pytest.mark.slow
def test_wrong_answers_are_seen(families):
    """The negative control of `Family.check`."""
    family = families["classes"]
    right = dict(family.wanted)
    family.check([right])
    with pytest.raises(AssertionError, match="classes probabilities"):
        family.check([right | {"probabilities": right["probabilities"] + np.float32(1e-4)}])
    with pytest.raises(AssertionError, match="label"):
        family.check([right | {"label": right["label"][::-1]}])
