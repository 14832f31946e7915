"""The models of `stand_in`: versions of a folder, loaded, warmed up and asked."""

import pathlib
from collections.abc import Mapping

import numpy as np
import tensorflow as tf
import tensorflow_text  # noqa: F401  registers its ops
from absl import logging
from tensorflow.core.protobuf import meta_graph_pb2, saved_model_pb2
from tensorflow_serving.apis import (
    get_model_status_pb2,
    predict_pb2,
    prediction_log_pb2,
)

from tests.modeling.serving.rest_json import Code, Refused, wrong

CODES = {code.value[0]: code for code in Code}
DEFAULT_SIGNATURE = "serving_default"
WARM_UP = "assets.extra/tf_serving_warmup_requests"
MOST_WARM_UP_RECORDS = 1000


def missing_model(name: str, version: int | None) -> Refused:
    asked = f"Latest({name})" if version is None else f"Specific({name}, {version})"
    return Refused(Code.NOT_FOUND, f"Servable not found for request: {asked}")


class Version:
    """A loaded SavedModel."""

    def __init__(self, folder: pathlib.Path, warm_up: bool):
        if not (folder / "saved_model.pb").is_file():
            raise Refused(Code.NOT_FOUND, f"Could not find SavedModel .pb at {folder}")
        content = saved_model_pb2.SavedModel.FromString((folder / "saved_model.pb").read_bytes())
        graphs = [g for g in content.meta_graphs if "serve" in g.meta_info_def.tags]
        if not graphs:
            raise Refused(Code.NOT_FOUND, f"No graph with the tag serve in {folder}")
        self.definitions: dict[str, meta_graph_pb2.SignatureDef] = dict(graphs[0].signature_def)
        self._loaded = tf.saved_model.load(str(folder))
        if warm_up and (folder / WARM_UP).is_file():
            self._replay(str(folder / WARM_UP))

    def _replay(self, path: str) -> None:
        """A record that fails keeps the version from being served, as in TF Serving."""
        for number, record in enumerate(tf.data.TFRecordDataset(path).as_numpy_iterator(), 1):
            if number > MOST_WARM_UP_RECORDS:
                raise wrong(
                    f"Number of warmup records exceeds the maximum ({MOST_WARM_UP_RECORDS})"
                )
            try:
                log = prediction_log_pb2.PredictionLog.FromString(record)
            except Exception as error:
                raise wrong(f"Failed to parse warmup record {number} from {path}") from error
            if log.WhichOneof("log_type") != "predict_log":
                raise wrong(f"Unsupported log_type for warmup: {log.WhichOneof('log_type')}")
            self.predict(log.predict_log.request)

    def predict(self, request: predict_pb2.PredictRequest) -> dict[str, np.ndarray]:
        """Outputs by name for gRPC's request, whatever model it names."""
        name = request.model_spec.signature_name or DEFAULT_SIGNATURE
        if name not in self.definitions:
            raise Refused(Code.FAILED_PRECONDITION, f'Serving signature key "{name}" not found.')
        tensors = {}
        for key, proto in request.inputs.items():
            try:
                tensors[key] = tf.make_ndarray(proto)
            except (ValueError, TypeError, MemoryError) as error:
                raise wrong(f"tensor parsing error: {key}: {error}") from error
        outputs = self.run(name, tensors)
        unknown = set(request.output_filter) - set(outputs)
        if unknown:
            raise wrong(
                f"output tensor alias not found in signature: {','.join(sorted(unknown))} "
                f"Outputs expected to be in the set {{{','.join(sorted(outputs))}}}."
            )
        return {key: outputs[key] for key in request.output_filter or outputs}

    def run(self, signature: str, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """As TF Serving, this checks names and types; shapes are left to the graph."""
        expected = self.definitions[signature].inputs
        if set(inputs) != set(expected):
            extra, missing = set(inputs) - set(expected), set(expected) - set(inputs)
            raise wrong(
                f"input size does not match signature: {len(inputs)}!={len(expected)}. Sent extra: "
                f"{{{','.join(sorted(extra))}}}. Missing but required: "
                f"{{{','.join(sorted(missing))}}}."
            )
        tensors = {}
        for name, info in expected.items():
            tensors[name], wanted = tf.constant(inputs[name]), tf.as_dtype(info.dtype)
            if tensors[name].dtype != wanted:
                got = tensors[name].dtype.name
                raise wrong(f"input {name} is expected to be {wanted.name} but is {got}")
        try:
            outputs = self._loaded.signatures[signature](**tensors)
        except tf.errors.OpError as error:
            raise Refused(CODES[error.error_code], error.message) from error
        except UnicodeDecodeError as error:
            # Python's own trouble with a message that shows an input's bytes; its code is lost.
            raise wrong(error.object.decode("utf-8", "replace")) from error
        return {name: tensor.numpy() for name, tensor in outputs.items()}


class Model:
    """The newest version under a folder, as TF Serving's default policy says.

    Only folders whose names are numbers are versions. If the newest can't be loaded an older one
    isn't taken instead, unless it was being served already: `refresh` looks again.
    """

    def __init__(self, name: str, base_path: str, warm_up: bool):
        self.name, self.base_path, self.warm_up = name, pathlib.Path(base_path), warm_up
        self.version: Version | None = None
        self.number = -1
        self.failures: dict[int, Refused] = {}
        self.refresh()

    def refresh(self) -> None:
        folders = list(self.base_path.iterdir()) if self.base_path.is_dir() else []
        numbered = [f for f in folders if f.name.isascii() and f.name.isdigit() and f.is_dir()]
        newest = max(numbered, key=lambda folder: int(folder.name), default=None)
        if newest is None or int(newest.name) == self.number:
            return
        number = int(newest.name)
        try:
            self.version, self.number = Version(newest, self.warm_up), number
        except Refused as error:
            self.failures[number] = error
        except Exception as error:  # whatever the loader says about a broken folder
            self.failures[number] = Refused(Code.INTERNAL, f"{newest}: {error}")
        if number in self.failures and self.number != number:
            logging.error("%s, version %d: %s", self.name, number, self.failures[number])

    def status(self, asked: int | None) -> get_model_status_pb2.GetModelStatusResponse:
        response = get_model_status_pb2.GetModelStatusResponse()
        for number in sorted({*self.failures, self.number} - {-1}, reverse=True):
            if asked in (None, number):
                one = response.model_version_status.add(version=number)
                one.state = one.AVAILABLE if number == self.number else one.END
                one.status.SetInParent()
                if number != self.number:
                    one.status.error_code = self.failures[number].code.value[0]
                    one.status.error_message = str(self.failures[number])
        if not response.model_version_status:
            which = "any versions" if asked is None else f"version {asked}"
            raise Refused(Code.NOT_FOUND, f"Could not find {which} of model {self.name}")
        return response
