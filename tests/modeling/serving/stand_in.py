"""A test double of TensorFlow Serving. For tests only: it is no server to deploy.

    with StandIn({"sentiment": "exports/sentiment"}) as server:
        RestClient(server.rest, "sentiment")("serving_default", text_a=["good"])

In a process of its own, until its standard input ends (prints the two addresses in JSON):

    python -m tests.modeling.serving.stand_in --model=sentiment=exports/sentiment

It answers as TF Serving's documentation and observed behaviour say: REST's predict (rows and
columns), status and metadata; gRPC's PredictionService.Predict and GetModelMetadata and
ModelService.GetModelStatus. Unlike TF Serving it runs graphs through Python's loader, takes no
labels, classify, regress or chunked bodies, checks that a JSON body is UTF-8 (TF Serving hands
wrong bytes to the graph) and has a limit on requests' sizes. Batching isn't imitated.
"""

from modeling import quiet  # noqa: F401  isort: skip

import concurrent.futures
import contextlib
import http.server
import json
import pathlib
import re
import subprocess
import sys
import threading
import urllib.parse
from collections.abc import Iterator, Mapping

import grpc
import tensorflow as tf
import tensorflow_text  # noqa: F401  registers its ops
from absl import logging
from google.protobuf import json_format
from tensorflow_serving.apis import (
    get_model_metadata_pb2,
    model_service_pb2_grpc,
    predict_pb2,
    prediction_service_pb2_grpc,
)

from tests.modeling.serving.rest_json import (
    Code,
    Refused,
    parse_json,
    read_inputs,
    write_outputs,
    wrong,
)
from tests.modeling.serving.stand_in_models import DEFAULT_SIGNATURE, Model, missing_model

HTTP = {
    Code.INVALID_ARGUMENT: 400,
    Code.FAILED_PRECONDITION: 400,
    Code.OUT_OF_RANGE: 400,
    Code.NOT_FOUND: 404,
    Code.RESOURCE_EXHAUSTED: 429,
    Code.UNIMPLEMENTED: 501,
    Code.UNAVAILABLE: 503,
    Code.DEADLINE_EXCEEDED: 504,
}
PREDICT = re.compile(r"(?i)/v1/models/([^/:]+)(?:/versions/(\d+))?:predict")
STATUS = re.compile(r"(?i)/v1/models/([^/:]+)(?:/versions/(\d+))?(/metadata)?")


# ---- Servers ----


class _Handler(http.server.BaseHTTPRequestHandler):
    """REST. `models` and `most_bytes` come from `StandIn`."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    timeout = 60
    models: Mapping[str, Model]
    most_bytes: int

    def do_GET(self) -> None:
        self._answer(self._get)

    def do_POST(self) -> None:
        self._answer(self._post)

    do_PUT = do_DELETE = do_PATCH = do_HEAD = do_GET  # noqa: N815  none of them matches a path

    def log_message(self, *_) -> None:
        """Nothing per request."""

    def send_error(self, code, message=None, explain=None) -> None:
        """For lines that aren't HTTP."""
        self.close_connection = True
        self._send(code, {"error": f"Malformed request: {message or explain or code}"})

    def _answer(self, make) -> None:
        try:
            self._send(200, make())
        except Refused as error:
            self._send(HTTP.get(error.code, 500), {"error": str(error)})
        except ConnectionError:
            self.close_connection = True
        except _TooLarge as error:
            self._send(413, {"error": str(error)})
        except Exception as error:
            logging.exception("The stand-in failed")
            self._send(500, {"error": f"{type(error).__name__}: {error}"})

    def _send(self, status: int, document: dict) -> None:
        content = json.dumps(document, ensure_ascii=False).encode("utf-8", "surrogateescape")
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def _place(self, pattern: re.Pattern) -> tuple[str, int | None, re.Match]:
        match = pattern.fullmatch(self.path)
        if not match:
            raise wrong(f"Malformed request: {self.command} {self.path}")
        version = int(match[2]) if match[2] else None
        if version is not None and version >= 2**63:
            raise wrong(f"Failed to convert version: {version} to numeric.")
        return urllib.parse.unquote(match[1]), version, match

    def _body(self) -> bytes:
        """What can't be taken is read to its end, so that the client reads the answer."""
        length = self.headers.get("Content-Length", "")
        if not (length.isascii() and length.isdigit()):
            self.close_connection = True
            raise wrong("Malformed request: a Content-Length is needed")
        left = int(length)
        if left <= self.most_bytes:
            return self.rfile.read(left)
        while left > 0 and (chunk := self.rfile.read(min(left, 1 << 20))):
            left -= len(chunk)
        raise _TooLarge(f"Request body of {length} bytes exceeds the limit of {self.most_bytes}")

    def _post(self) -> dict:
        body = self._body()
        name, number, _ = self._place(PREDICT)
        document = parse_json(body)
        signature = document.get("signature_name", DEFAULT_SIGNATURE)
        if not isinstance(signature, str):
            raise wrong("'signature_name' key must be a string value.")
        version = find(self.models, name, number).version
        definition = version.definitions.get(signature or DEFAULT_SIGNATURE)
        if definition is None:
            raise wrong(f'Serving signature name: "{signature}" not found in signature def')
        outputs = version.run(
            signature or DEFAULT_SIGNATURE, read_inputs(document, definition.inputs)
        )
        return write_outputs(outputs, rows="instances" in document)

    def _get(self) -> dict:
        if self.command != "GET":
            raise wrong(f"Malformed request: {self.command} {self.path}")
        name, number, match = self._place(STATUS)
        if not match[3]:
            return _as_json(status(self.models, name, number))
        response = metadata(self.models, name, number)
        signatures = get_model_metadata_pb2.SignatureDefMap()
        response.metadata["signature_def"].Unpack(signatures)
        return {
            "model_spec": _as_json(response.model_spec),
            "metadata": {"signature_def": _as_json(signatures)},
        }


class _TooLarge(Exception):  # noqa: N818
    """A body beyond the limit, which TF Serving hasn't."""


def _as_json(message) -> dict:
    return json_format.MessageToDict(
        message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )


def find(models: Mapping[str, Model], name: str, number: int | None) -> Model:
    model = models.get(name)
    if model is None or model.version is None or number not in (None, model.number):
        raise missing_model(name, number)
    return model


def status(models: Mapping[str, Model], name: str, number: int | None):
    if name not in models:
        raise Refused(Code.NOT_FOUND, f"Could not find any versions of model {name}")
    return models[name].status(number)


def metadata(models: Mapping[str, Model], name: str, number: int | None):
    model = find(models, name, number)
    response = get_model_metadata_pb2.GetModelMetadataResponse()
    response.model_spec.name = name
    response.model_spec.version.value = model.number
    signatures = get_model_metadata_pb2.SignatureDefMap()
    for key, definition in model.version.definitions.items():
        signatures.signature_def[key].CopyFrom(definition)
    response.metadata["signature_def"].Pack(signatures)
    return response


class _Services(
    prediction_service_pb2_grpc.PredictionServiceServicer,
    model_service_pb2_grpc.ModelServiceServicer,
):
    """gRPC's methods; both services are one object."""

    def __init__(self, models: Mapping[str, Model]):
        self.models = models

    def _answer(self, request, context, make):
        try:
            if not request.HasField("model_spec"):
                raise wrong("Missing ModelSpec")
            spec = request.model_spec
            return make(spec.name, spec.version.value if spec.HasField("version") else None)
        except Refused as error:
            context.abort(error.code, str(error))

    def Predict(self, request, context):  # noqa: N802
        def make(name, number):
            model = find(self.models, name, number)
            response = predict_pb2.PredictResponse()
            response.model_spec.name = name
            response.model_spec.version.value = model.number
            response.model_spec.signature_name = (
                request.model_spec.signature_name or DEFAULT_SIGNATURE
            )
            for key, array in model.version.predict(request).items():
                response.outputs[key].CopyFrom(tf.make_tensor_proto(array))
            return response

        return self._answer(request, context, make)

    def GetModelMetadata(self, request, context):  # noqa: N802
        def make(name, number):
            if list(request.metadata_field) != ["signature_def"]:
                raise wrong("metadata_field has to be signature_def")
            return metadata(self.models, name, number)

        return self._answer(request, context, make)

    def GetModelStatus(self, request, context):  # noqa: N802
        return self._answer(
            request, context, lambda name, number: status(self.models, name, number)
        )


class StandIn:
    """Serves models on free ports while its context lasts.

    Args:
        models: Name → folder of versions.
        host: Where to listen.
        warm_up: Whether a version's warm-up requests are replayed before it counts as available.
        most_bytes: Of a request; a larger one gets 413, or RESOURCE_EXHAUSTED from gRPC.

    Attributes:
        rest, grpc: Addresses, "host:port".
        models: Name → `Model`.
    """

    def __init__(
        self,
        models: Mapping[str, str],
        host: str = "127.0.0.1",
        warm_up: bool = True,
        most_bytes: int = 64 << 20,
    ):
        self.models = {name: Model(name, str(path), warm_up) for name, path in models.items()}
        handler = type("Handler", (_Handler,), {"models": self.models, "most_bytes": most_bytes})
        server = type("Server", (http.server.ThreadingHTTPServer,), {"request_queue_size": 128})
        self._http = server((host, 0), handler)
        self._pool = concurrent.futures.ThreadPoolExecutor(32)
        options = [("grpc.max_receive_message_length", most_bytes), ("grpc.so_reuseport", 0)]
        options += [("grpc.max_send_message_length", -1)]
        self._grpc = grpc.server(self._pool, options=options)
        services = _Services(self.models)
        prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(services, self._grpc)
        model_service_pb2_grpc.add_ModelServiceServicer_to_server(services, self._grpc)
        self.rest = f"{host}:{self._http.server_port}"
        self.grpc = f"{host}:{self._grpc.add_insecure_port(f'{host}:0')}"

    def __enter__(self) -> "StandIn":
        self._thread = threading.Thread(target=self._http.serve_forever, daemon=True)
        self._thread.start()
        self._grpc.start()
        return self

    def __exit__(self, *_) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._grpc.stop(None).wait()
        self._pool.shutdown()


@contextlib.contextmanager
def started(
    models: Mapping[str, str], most_bytes: int = 64 << 20, warm_up: bool = True
) -> Iterator[tuple[subprocess.Popen, dict[str, str]]]:
    """A stand-in in a process of its own, and its addresses "rest" and "grpc"."""
    command = [sys.executable, "-m", "tests.modeling.serving.stand_in"]
    command += [f"--model={name}={folder}" for name, folder in models.items()]
    command += [f"--most_bytes={most_bytes}", f"--warm_up={warm_up}"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    root = pathlib.Path(__file__).resolve().parents[3]
    with subprocess.Popen(command, cwd=root, text=True, **pipes) as process:
        line = process.stdout.readline()
        if not line:
            raise RuntimeError(f"The stand-in ended with {process.wait()} before it answered")
        # Leaving the context closes its standard input, which ends it.
        yield process, json.loads(line)


def main(_) -> None:
    models = dict(one.split("=", 1) for one in FLAGS.model)
    with StandIn(models, warm_up=FLAGS.warm_up, most_bytes=FLAGS.most_bytes) as server:
        print(json.dumps({"rest": server.rest, "grpc": server.grpc}), flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    from absl import app, flags

    FLAGS = flags.FLAGS
    flags.DEFINE_multi_string("model", [], "NAME=DIR of a model's versions.")
    flags.DEFINE_bool("warm_up", True, "Whether warm-up requests are replayed.")
    flags.DEFINE_integer("most_bytes", 64 << 20, "Of a request.")
    app.run(main)
