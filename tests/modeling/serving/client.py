"""Clients of TensorFlow Serving's predict methods, for tests.

    RestClient("127.0.0.1:8501", "sentiment")("serving_default", text_a=["good"])["label"]
    GrpcClient("127.0.0.1:8500", "sentiment")("serving_default", text_a=["good"])["label"]

Both give arrays by output name with the signature's dtypes, strings as bytes in object arrays, the
same as a SavedModel loaded in Python. They know nothing of the project: any server that speaks TF
Serving's formats will do.
"""

import base64
import json
import urllib.error
import urllib.parse
import urllib.request

import grpc
import numpy as np
import tensorflow as tf
from tensorflow_serving.apis import (
    get_model_metadata_pb2,
    get_model_status_pb2,
    model_service_pb2_grpc,
    predict_pb2,
    prediction_service_pb2_grpc,
)

SECONDS = 300.0


class ServingError(Exception):
    """What a server answered instead of outputs.

    Attributes:
        code: HTTP's status, or the name of gRPC's such as "INVALID_ARGUMENT".
        message: The server's words.
    """

    def __init__(self, code: int | str, message: str):
        super().__init__(f"{code}: {message}")
        self.code, self.message = code, message


class RestClient:
    """REST. Asks in columns, or in rows if so wished: the answers are the same.

    Args:
        address: "host:port".
        model: Its name.
        version: One that is served, or none for the newest.
        rows: Whether to ask "instances" instead of "inputs".
    """

    def __init__(self, address: str, model: str, version: int | None = None, rows: bool = False):
        self.path = f"http://{address}/v1/models/{urllib.parse.quote(model, safe='')}"
        if version is not None:
            self.path += f"/versions/{version}"
        self.rows = rows
        self._signatures: dict | None = None

    def __call__(self, signature: str, /, **inputs) -> dict[str, np.ndarray]:
        return self.read(signature, self.post(self.body(signature, inputs)))

    def body(self, signature: str, inputs: dict) -> bytes:
        """A request as it is sent."""
        columns = {name: _json(value) for name, value in inputs.items()}
        content = {"inputs": columns}
        if self.rows:
            each = zip(*columns.values(), strict=True)
            content = {"instances": [dict(zip(columns, row, strict=True)) for row in each]}
        return json.dumps({"signature_name": signature} | content, ensure_ascii=False).encode()

    def post(self, body: bytes) -> dict:
        """The answer to any bytes, as JSON.

        Raises:
            ServingError: If it is an error.
        """
        return self._open(":predict", body)

    def read(self, signature: str, answer: dict) -> dict[str, np.ndarray]:
        """Arrays of an answer in rows or in columns."""
        if self._signatures is None:
            self._signatures = self.metadata()["metadata"]["signature_def"]["signature_def"]
        outputs = self._signatures[signature]["outputs"]
        dtypes = {name: tf.as_dtype(getattr(tf, _dtype(o))) for name, o in outputs.items()}
        columns = answer.get("outputs")
        if "predictions" in answer:
            columns = answer["predictions"]
            if len(dtypes) > 1:
                columns = {name: [row[name] for row in columns] for name in dtypes}
        if len(dtypes) == 1:
            columns = {next(iter(dtypes)): columns}
        return {name: _array(columns[name], dtype) for name, dtype in dtypes.items()}

    def status(self) -> dict:
        """Of the versions, as the server puts it."""
        return self._open("")

    def metadata(self) -> dict:
        """The signatures, as the server puts them."""
        return self._open("/metadata")

    def _open(self, path: str, body: bytes | None = None) -> dict:
        request = urllib.request.Request(self.path + path, data=body)
        request.add_header("Content-Type", "application/json")
        try:
            with urllib.request.urlopen(request, timeout=SECONDS) as response:
                content = response.read()
        except urllib.error.HTTPError as error:
            with error:
                raise ServingError(error.code, json.loads(error.read())["error"]) from None
        # Strings that aren't UTF-8 go through as they are.
        return json.loads(content.decode("utf-8", "surrogateescape"))


class GrpcClient:
    """gRPC.

    Args:
        address: "host:port".
        model: Its name.
        version: One that is served, or none for the newest.
    """

    def __init__(self, address: str, model: str, version: int | None = None):
        options = [(f"grpc.max_{way}_message_length", -1) for way in ("send", "receive")]
        self._channel = grpc.insecure_channel(address, options)
        self._predict = prediction_service_pb2_grpc.PredictionServiceStub(self._channel)
        self._models = model_service_pb2_grpc.ModelServiceStub(self._channel)
        self.model, self.version = model, version

    def __call__(self, signature: str, /, **inputs) -> dict[str, np.ndarray]:
        return self.read(self.post(self.request(signature, inputs)))

    def request(self, signature: str, inputs: dict) -> predict_pb2.PredictRequest:
        """A request as it is sent."""
        request = self._named(predict_pb2.PredictRequest())
        request.model_spec.signature_name = signature
        for name, value in inputs.items():
            request.inputs[name].CopyFrom(tf.make_tensor_proto(value))
        return request

    def post(self, request: predict_pb2.PredictRequest) -> predict_pb2.PredictResponse:
        """The answer to a request.

        Raises:
            ServingError: If it is an error.
        """
        return self._ask(self._predict.Predict, request)

    @staticmethod
    def read(answer: predict_pb2.PredictResponse) -> dict[str, np.ndarray]:
        return {name: tf.make_ndarray(proto) for name, proto in answer.outputs.items()}

    def status(self) -> get_model_status_pb2.GetModelStatusResponse:
        request = self._named(get_model_status_pb2.GetModelStatusRequest())
        return self._ask(self._models.GetModelStatus, request)

    def metadata(self) -> get_model_metadata_pb2.SignatureDefMap:
        """The signatures."""
        request = self._named(get_model_metadata_pb2.GetModelMetadataRequest())
        request.metadata_field.append("signature_def")
        response = self._ask(self._predict.GetModelMetadata, request)
        signatures = get_model_metadata_pb2.SignatureDefMap()
        response.metadata["signature_def"].Unpack(signatures)
        return signatures

    def close(self) -> None:
        self._channel.close()

    def _named(self, request):
        request.model_spec.name = self.model
        if self.version is not None:
            request.model_spec.version.value = self.version
        return request

    @staticmethod
    def _ask(method, request):
        try:
            return method(request, timeout=SECONDS)
        except grpc.RpcError as error:
            raise ServingError(error.code().name, error.details()) from None


def _json(value):
    """Nested lists of what JSON has; bytes that aren't UTF-8 in base64."""
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [_json(element) for element in value]
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return {"b64": base64.b64encode(value).decode()}
    return value


def _dtype(info: dict) -> str:
    """TensorFlow's name of a dtype: DT_FLOAT is float32."""
    name = info["dtype"].removeprefix("DT_").lower()
    return {"float": "float32", "double": "float64"}.get(name, name)


def _array(value, dtype: tf.DType) -> np.ndarray:
    if dtype != tf.string:
        return np.array(value, dtype.as_numpy_dtype)

    def as_bytes(value):
        if isinstance(value, list):
            return [as_bytes(element) for element in value]
        if isinstance(value, dict):
            return base64.b64decode(value["b64"])
        return value.encode("utf-8", "surrogateescape")

    return np.array(as_bytes(value), object)
