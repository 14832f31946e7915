"""The stand-in answers in TF Serving's formats, and the clients read them."""

import base64
import http.client
import json
import shutil

import grpc
import numpy as np
import pytest
import tensorflow as tf
from tensorflow_serving.apis import predict_pb2, prediction_log_pb2, prediction_service_pb2_grpc

from tests.modeling.serving.client import GrpcClient, RestClient, ServingError
from tests.modeling.serving.stand_in import StandIn
from tests.modeling.serving.stand_in_models import WARM_UP

MEGABYTE = 1 << 20


class Echo(tf.Module):
    """Signatures of every kind of input and output that exports have."""

    def __init__(self):
        super().__init__()
        self.calls = tf.Variable(0)

    @tf.function(
        input_signature=[
            tf.TensorSpec([None], tf.string, "text"),
            tf.TensorSpec([None, 2], tf.int32, "ids"),
        ]
    )
    def several(self, text, ids):
        # Fails in the graph where the batch sizes differ.
        length = tf.strings.length(text) + ids[:, 0]
        return {
            "echo": text,
            "echo_bytes": text,
            "length": length,
            "third": tf.cast(ids, tf.float32) / 3,
        }

    @tf.function(input_signature=[tf.TensorSpec([None], tf.float32, "x")])
    def single(self, x):
        return {"y": x / 3}

    @tf.function(input_signature=[tf.TensorSpec([], tf.bool, "yes")])
    def total(self, yes):
        return {"calls": self.calls.assign_add(tf.cast(yes, tf.int32))}


def save(folder) -> None:
    echo = Echo()
    signatures = {"serving_default": echo.several, "single": echo.single, "total": echo.total}
    tf.saved_model.save(echo, str(folder), signatures=signatures)


def warm_up(folder, *signatures: str, name: str = "yes") -> None:
    (folder / WARM_UP).parent.mkdir()
    with tf.io.TFRecordWriter(str(folder / WARM_UP)) as writer:
        for signature in signatures:
            log = prediction_log_pb2.PredictionLog()
            request = log.predict_log.request
            request.model_spec.signature_name = signature
            request.inputs[name].CopyFrom(tf.make_tensor_proto(True))
            writer.write(log.SerializeToString())


@pytest.fixture(scope="module")
def export(tmp_path_factory):
    folder = tmp_path_factory.mktemp("echo")
    save(folder / "7")
    return folder


@pytest.fixture(scope="module")
def server(export):
    with StandIn({"echo": str(export)}, most_bytes=MEGABYTE) as server:
        yield server


def refused(call, *arguments, **inputs) -> ServingError:
    with pytest.raises(ServingError) as error:
        call(*arguments, **inputs)
    return error.value


def post(server, body, path: str = "/v1/models/echo:predict", method: str = "POST"):
    """Status and document for what no client would send."""
    connection = http.client.HTTPConnection(server.rest, timeout=30)
    connection.request(method, path, body)
    response = connection.getresponse()
    document = json.loads(response.read())
    connection.close()
    return response.status, document


def test_the_clients_give_what_the_loaded_model_gives(server, export):
    inputs = {"text": ["a", "", "ü 中"], "ids": [[1, 2], [3, 4], [5, 7]]}
    loaded = tf.saved_model.load(str(export / "7")).signatures["serving_default"]
    expected = {
        k: v.numpy() for k, v in loaded(**{k: tf.constant(inputs[k]) for k in inputs}).items()
    }
    clients = [
        RestClient(server.rest, "echo"),
        RestClient(server.rest, "echo", rows=True),
        RestClient(server.rest, "echo", version=7),
        GrpcClient(server.grpc, "echo"),
        GrpcClient(server.grpc, "echo", version=7),
    ]
    for client in clients:
        answer = client("serving_default", **inputs)
        assert answer.keys() == expected.keys()
        for name, array in expected.items():
            np.testing.assert_array_equal(answer[name], array)
            assert answer[name].dtype == array.dtype


def test_one_output_and_strings_that_are_no_utf_8(server):
    binary, x = b"\xff\xfe\x00a", np.array([1, 2], np.float32)
    for client in (
        RestClient(server.rest, "echo"),
        RestClient(server.rest, "echo", rows=True),
        GrpcClient(server.grpc, "echo"),
    ):
        np.testing.assert_array_equal(client("single", x=x)["y"], x / 3)
        answer = client("serving_default", text=[binary], ids=np.zeros([1, 2], np.int32))
        assert answer["echo"].tolist() == answer["echo_bytes"].tolist() == [binary]


TEXT = {"text": "a", "ids": [1, 2]}
ANSWER = {"echo": "a", "echo_bytes": {"b64": "YQ=="}, "length": 2, "third": [0.33333334, 0.6666667]}


@pytest.mark.parametrize(
    "asked, answered",
    [
        ({"instances": [TEXT]}, {"predictions": [ANSWER]}),
        (
            {"inputs": {"text": ["a"], "ids": [[1, 2]]}, "signature_name": "serving_default"},
            {"outputs": {name: [value] for name, value in ANSWER.items()}},
        ),
        ({"instances": [TEXT | {"text": {"b64": "YQ=="}}]}, {"predictions": [ANSWER]}),
        # Bare values where there is one input or output.
        ({"instances": [3, 6.0], "signature_name": "single"}, {"predictions": [1.0, 2.0]}),
        ({"instances": [{"x": 3}], "signature_name": "single"}, {"predictions": [1.0]}),
        ({"inputs": [3, 6], "signature_name": "single"}, {"outputs": [1.0, 2.0]}),
        ({"inputs": {"x": [3]}, "signature_name": "single"}, {"outputs": [1.0]}),
        ({"inputs": [], "signature_name": "single"}, {"outputs": []}),
        ({"inputs": False, "signature_name": "total"}, {"outputs": 0}),
        # Names that the signature hasn't are ignored among columns, and only there.
        ({"inputs": {"x": [3], "z": 1}, "signature_name": "single"}, {"outputs": [1.0]}),
    ],
)
def test_rows_and_columns(server, asked, answered):
    status, document = post(server, json.dumps(asked))
    assert (status, document) == (200, answered)


def single(x) -> dict:
    return {"inputs": {"x": x}, "signature_name": "single"}


@pytest.mark.parametrize(
    "body, says",
    [
        (b"", "JSON Parse error: The document is empty"),
        (b'{"instances": [1, 2', "JSON Parse error"),
        (b'{"instances": ["\xff"]}', "JSON Parse error: 'utf-8' codec can't decode byte 0xff"),
        (b'{"instances": ["\\ud800"]}', "JSON Parse error"),
        (b"[" * 200000, "JSON Parse error: nested too deeply"),
        (b"[1]", "Is not object"),
        ({}, "expecting exactly one of 'inputs' or 'instances'"),
        ({"inputs": {}, "instances": []}, "expecting exactly one of"),
        ({"instances": []}, "at least one value"),
        ({"instances": {"x": 1}}, "to be a list"),
        ({"instances": [TEXT], "signature_name": "other"}, '"other" not found in signature def'),
        ({"instances": [TEXT], "signature_name": 3}, "'signature_name' key must be a string"),
        ({"instances": ["a"]}, "expecting list of objects .*: ids,text"),
        ({"instances": [TEXT, {"text": "a"}]}, "element: 1 .* keys must be equal to: ids,text"),
        ({"instances": [TEXT | {"more": 1}]}, "keys must be equal to: ids,text"),
        ({"instances": [TEXT, 3]}, "mixes objects with values .* item 1"),
        ({"instances": [TEXT, TEXT | {"ids": [1]}]}, r"key: ids .* shape \[2\] but got: \[1\]"),
        ({"instances": [TEXT | {"text": 5}]}, "key: text .* Value: 5 .*type: string"),
        ({"instances": [TEXT | {"text": None}]}, "Value: null .*type: string"),
        ({"instances": [TEXT | {"text": {"b64": "!"}}]}, "Unable to base64 decode"),
        ({"instances": [TEXT | {"text": {"c": 1}}]}, "not formatted correctly for base64"),
        ({"inputs": ["a"]}, "inputs is a plain value/list"),
        ({"inputs": {"text": ["a"]}}, "Missing named input: ids"),
        ({"inputs": {"text": ["a"], "ids": [[1, 2], [3]]}}, "unexpected size: 1 at level: 1"),
        ({"inputs": {"text": ["a"], "ids": [[1, [2]]]}}, "unexpected level: 2"),
        ({"inputs": {"text": ["a"], "ids": [[1, 2], 3]}}, "incorrect level"),
        ({"inputs": {"text": ["a"], "ids": [[1.5, 2]]}}, "1.5 .* expected type: int32"),
        ({"inputs": {"text": ["a"], "ids": [[2**31, 2]]}}, "expected type: int32"),
        ({"inputs": {"text": ["a"], "ids": [[True, 2]]}}, "true .* expected type: int32"),
        (single(["3"]), '"3" .* expected type: float32'),
        (single([2**24 + 1]), "without loss"),
        (single([1e39]), "without loss"),
        # In the graph: the batch sizes differ.
        ({"inputs": {"text": ["a"] * 2, "ids": [[1, 2]] * 3}}, "Incompatible shapes"),
        ({"instances": [False], "signature_name": "total"}, "[Ss]hape|inconsistent batch"),
    ],
)
def test_wrong_bodies_are_told_what_is_wrong(server, body, says):
    status, document = post(server, body if isinstance(body, bytes) else json.dumps(body))
    assert status == 400
    assert document.keys() == {"error"}
    with pytest.raises(AssertionError, match=says):
        raise AssertionError(document["error"])


def test_paths_that_are_not_there(server):
    body = json.dumps({"instances": [TEXT]})
    for path, asked in (("other", "Latest(other)"), ("echo/versions/8", "Specific(echo, 8)")):
        status, document = post(server, body, f"/v1/models/{path}:predict")
        assert (status, document["error"]) == (404, f"Servable not found for request: {asked}")
        status, document = post(server, None, f"/v1/models/{path}", "GET")
        assert status == 404
        assert "Could not find" in document["error"]
        assert post(server, None, f"/v1/models/{path}/metadata", "GET")[0] == 404
    for path, method in (
        ("/v1/models/echo", "POST"),
        ("/v1/models/echo:predict", "GET"),
        ("/v1/models/echo:predict", "PUT"),
        ("/v1/models/echo/versions/x:predict", "POST"),
        (f"/v1/models/echo/versions/{2**63}:predict", "POST"),
        ("/", "GET"),
    ):
        status, document = post(server, body, path, method)
        assert status == 400
        assert "Malformed request" in document["error"] or "to numeric" in document["error"]


def test_bodies_without_length_or_beyond_the_limit(server):
    connection = http.client.HTTPConnection(server.rest, timeout=30)
    connection.putrequest("POST", "/v1/models/echo:predict")
    connection.endheaders()
    response = connection.getresponse()
    assert response.status == 400
    assert "Content-Length" in json.loads(response.read())["error"]
    connection.close()
    status, document = post(server, b" " * (MEGABYTE * 9))
    assert status == 413
    assert f"{MEGABYTE * 9} bytes exceeds the limit of {MEGABYTE}" in document["error"]
    client = GrpcClient(server.grpc, "echo")
    error = refused(client, "serving_default", text=["a" * MEGABYTE], ids=[[1, 2]])
    assert error.code == "RESOURCE_EXHAUSTED"
    assert str(MEGABYTE) in error.message
    assert client("serving_default", text=["a"], ids=[[1, 2]])["length"].tolist() == [2]


@pytest.mark.parametrize(
    "signature, inputs, code, says",
    [
        ("other", {}, "FAILED_PRECONDITION", '"other" not found'),
        ("single", {}, "INVALID_ARGUMENT", "Missing but required: {x}"),
        ("single", {"x": [1.0], "z": 1}, "INVALID_ARGUMENT", "Sent extra: {z}"),
        ("single", {"z": [1.0]}, "INVALID_ARGUMENT", "extra: {z}. Missing but required: {x}"),
        ("single", {"x": ["a"]}, "INVALID_ARGUMENT", "x is expected to be float32 but is string"),
        ("single", {"x": [1]}, "INVALID_ARGUMENT", "x is expected to be float32 but is int32"),
        (
            "serving_default",
            {"text": ["a"] * 2, "ids": [[1, 2]] * 3},
            "INVALID_ARGUMENT",
            "Incompatible shapes",
        ),
    ],
)
def test_wrong_grpc_requests_are_told_what_is_wrong(server, signature, inputs, code, says):
    error = refused(GrpcClient(server.grpc, "echo"), signature, **inputs)
    assert error.code == code
    assert says in error.message


def test_grpc_requests_that_no_client_would_send(server):
    error = refused(GrpcClient(server.grpc, "other"), "single", x=[1.0])
    assert (error.code, error.message) == (
        "NOT_FOUND",
        "Servable not found for request: Latest(other)",
    )
    error = refused(GrpcClient(server.grpc, "echo", 8), "single", x=[1.0])
    assert (error.code, error.message[-17:]) == ("NOT_FOUND", "Specific(echo, 8)")
    client = GrpcClient(server.grpc, "echo")
    request = client.request("single", {"x": np.ones(3, np.float32)})
    request.inputs["x"].tensor_content = b"abc"
    error = refused(client.post, request)
    assert error.code == "INVALID_ARGUMENT"
    assert "tensor parsing error: x" in error.message
    request = client.request("single", {"x": [1.0]})
    request.output_filter.append("z")
    assert "not found in signature: z" in refused(client.post, request).message
    request.output_filter[:] = ["y"]
    assert list(client.post(request).outputs) == ["y"]
    with grpc.insecure_channel(server.grpc) as channel:
        stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
        with pytest.raises(grpc.RpcError, match="Missing ModelSpec"):
            stub.Predict(predict_pb2.PredictRequest())


def test_status_and_metadata(server):
    one = {
        "version": "7",
        "state": "AVAILABLE",
        "status": {"error_code": "OK", "error_message": ""},
    }
    for version in (None, 7):
        rest = RestClient(server.rest, "echo", version)
        assert rest.status() == {"model_version_status": [one]}
        document = rest.metadata()
        assert document["model_spec"]["name"] == "echo"
        assert document["model_spec"]["version"] == "7"
        signature = document["metadata"]["signature_def"]["signature_def"]["serving_default"]
        assert signature["method_name"] == "tensorflow/serving/predict"
        ids = signature["inputs"]["ids"]
        assert ids["dtype"] == "DT_INT32"
        assert [dim["size"] for dim in ids["tensor_shape"]["dim"]] == ["-1", "2"]
        client = GrpcClient(server.grpc, "echo", version)
        (status,) = client.status().model_version_status
        assert (status.version, status.state) == (7, status.AVAILABLE)
        definition = client.metadata().signature_def["single"]
        assert definition.inputs["x"].dtype == tf.float32.as_datatype_enum
    assert refused(GrpcClient(server.grpc, "other").status).code == "NOT_FOUND"
    assert refused(GrpcClient(server.grpc, "other").metadata).code == "NOT_FOUND"


def test_only_folders_named_by_numbers_are_versions(export, tmp_path):
    shutil.copytree(export / "7", tmp_path / "9")
    shutil.copytree(export / "7", tmp_path / "10")
    for name in (".saving-123", "99.tmp", "v11", "-12"):
        shutil.copytree(export / "7", tmp_path / name)
    (tmp_path / "13").write_text("a file")
    with StandIn({"echo": str(tmp_path), "none": str(tmp_path / "none")}) as server:
        assert server.models["echo"].number == 10
        assert refused(RestClient(server.rest, "none").status).code == 404
        assert refused(RestClient(server.rest, "none"), "single", x=[1]).code == 404
        # The newest has nothing to load: what is served stays, and the reason is told.
        (tmp_path / "14" / "variables").mkdir(parents=True)
        server.models["echo"].refresh()
        assert server.models["echo"].number == 10
        broken, served = RestClient(server.rest, "echo").status()["model_version_status"]
        assert (served["version"], served["state"]) == ("10", "AVAILABLE")
        assert (broken["version"], broken["state"]) == ("14", "END")
        assert broken["status"]["error_code"] == "NOT_FOUND"
        shutil.copytree(export / "7", tmp_path / "15")
        server.models["echo"].refresh()
        assert RestClient(server.rest, "echo", 15)("single", x=[3])["y"].tolist() == [1]
        assert refused(RestClient(server.rest, "echo", 10), "single", x=[3]).code == 404
    with StandIn({"echo": str(tmp_path / "14")}) as server:
        assert server.models["echo"].number == -1


def test_a_broken_version_is_not_replaced_by_an_older_one(export, tmp_path):
    shutil.copytree(export / "7", tmp_path / "1")
    shutil.copytree(export / "7", tmp_path / "2")
    shutil.rmtree(tmp_path / "2" / "variables")
    with StandIn({"echo": str(tmp_path)}) as server:
        client = RestClient(server.rest, "echo")
        assert refused(client, "single", x=[3]).code == 404
        (status,) = client.status()["model_version_status"]
        assert (status["version"], status["state"]) == ("2", "END")
        assert "variables" in status["status"]["error_message"]


def test_warm_up_requests_are_replayed(export, tmp_path):
    folder = tmp_path / "1"
    shutil.copytree(export / "7", folder)
    warm_up(folder, "total", "total")
    for replay, calls in ((True, 3), (False, 1)):
        with StandIn({"echo": str(tmp_path)}, warm_up=replay) as server:
            assert RestClient(server.rest, "echo")("total", yes=True)["calls"] == calls


@pytest.mark.parametrize(
    "signatures, name, says",
    [
        (["total", "other"], "yes", '"other" not found'),
        (["total"], "no", "Missing but required: {yes}"),
        (["total"] * 1001, "yes", "exceeds the maximum"),
    ],
)
def test_a_warm_up_request_that_fails_keeps_the_version_away(
    export, tmp_path, signatures, name, says
):
    folder = tmp_path / "1"
    shutil.copytree(export / "7", folder)
    warm_up(folder, *signatures, name=name)
    with StandIn({"echo": str(tmp_path)}) as server:
        client = RestClient(server.rest, "echo")
        assert refused(client, "total", yes=True).code == 404
        (status,) = client.status()["model_version_status"]
        assert status["state"] == "END"
        assert says in status["status"]["error_message"]


def test_base64_without_padding(server):
    coded = base64.b64encode(b"ab").decode().rstrip("=")
    status, document = post(
        server, json.dumps({"instances": [{"text": {"b64": coded}, "ids": [0, 0]}]})
    )
    assert (status, document["predictions"][0]["echo"]) == (200, "ab")
