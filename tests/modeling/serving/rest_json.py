"""TF Serving's JSON: tensors out of requests, answers into documents, and its refusals."""

import base64
import json
import math
from collections.abc import Mapping

import grpc
import numpy as np
import tensorflow as tf

Code = grpc.StatusCode


class Refused(Exception):  # noqa: N818  a word of its own
    """An answer that is an error.

    Args:
        code: gRPC's; `HTTP` translates it.
        message: What the client is told.
    """

    def __init__(self, code: Code, message: str):
        super().__init__(message)
        self.code = code


def wrong(message: str) -> Refused:
    return Refused(Code.INVALID_ARGUMENT, message)


def parse_json(body: bytes) -> dict:
    if not body:
        raise wrong("JSON Parse error: The document is empty")
    try:
        document = json.loads(body.decode())
        # A lone half of a surrogate pair has no bytes.
        json.dumps(document, ensure_ascii=False).encode()
    except RecursionError as error:
        raise wrong("JSON Parse error: nested too deeply") from error
    except ValueError as error:
        raise wrong(f"JSON Parse error: {error}") from error
    if not isinstance(document, dict):
        raise wrong(f"JSON Value: {_shown(document)} Is not object")
    return document


def _shown(value) -> str:
    """TF Serving shows all of a value."""
    text = json.dumps(value)
    return text if len(text) <= 200 else f"{text[:200]}..."


def _is_binary(value) -> bool:
    return isinstance(value, dict) and list(value) == ["b64"] and isinstance(value["b64"], str)


def _leaf(value, dtype: tf.DType):
    """One element of a tensor."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if dtype == tf.string and isinstance(value, str):
        return value.encode()
    if dtype == tf.string and isinstance(value, dict):
        if not _is_binary(value):
            raise wrong(f"JSON Value: {_shown(value)} not formatted correctly for base64 data")
        try:
            padded = value["b64"] + "=" * (-len(value["b64"]) % 4)
            return base64.b64decode(padded, validate=True)
        except ValueError as error:
            raise wrong(f"Unable to base64 decode {_shown(value)}") from error
    if dtype.is_bool and isinstance(value, bool):
        return value
    if dtype.is_integer and number and isinstance(value, int) and dtype.min <= value <= dtype.max:
        return value
    if dtype in (tf.float32, tf.float64) and number:
        whole = 2 ** np.finfo(dtype.as_numpy_dtype).nmant * 2
        largest = whole - 1 if isinstance(value, int) else float(dtype.max)
        if math.isfinite(value) and abs(value) > largest:
            raise wrong(f"Cannot convert JSON value: {value} to {dtype.name} without loss")
        return value
    raise wrong(
        f"JSON Value: {_shown(value)} Type: {type(value).__name__} is not of expected type: "
        f"{dtype.name}"
    )


def _tensor(value, dtype: tf.DType) -> np.ndarray:
    """A dense tensor from lists; the first of each level say its shape."""
    shape, level = [], value
    while isinstance(level, list):
        shape.append(len(level))
        level = level[0] if level else None
    flat = []

    def fill(value, depth: int) -> None:
        if not isinstance(value, list):
            if depth != len(shape):
                raise wrong(f"JSON Value: {_shown(value)} found at incorrect level: {depth + 1}")
            flat.append(_leaf(value, dtype))
            return
        if depth >= len(shape):
            raise wrong(f"Encountered list at unexpected level: {depth} expected < {len(shape)}")
        if len(value) != shape[depth]:
            raise wrong(
                f"Encountered list at unexpected size: {len(value)} at level: {depth} "
                f"expected size: {shape[depth]}"
            )
        for element in value:
            fill(element, depth + 1)

    fill(value, 0)
    return np.array(flat, object if dtype == tf.string else dtype.as_numpy_dtype).reshape(shape)


def read_inputs(document: dict, expected: Mapping) -> dict[str, np.ndarray]:
    """The tensors of a request in JSON, from rows or from columns."""
    dtypes = {name: tf.as_dtype(info.dtype) for name, info in expected.items()}
    if ("instances" in document) == ("inputs" in document):
        raise wrong("JSON Value: expecting exactly one of 'inputs' or 'instances' keys to exist")
    if "inputs" in document:
        columns = document["inputs"]
        if not isinstance(columns, dict) or _is_binary(columns):
            if len(dtypes) > 1:
                raise wrong(
                    "inputs is a plain value/list, but expecting an object as multiple input "
                    f"tensors required: {','.join(sorted(dtypes))}"
                )
            columns = {next(iter(dtypes)): columns}
        for name in sorted(set(dtypes) - set(columns)):
            raise wrong(f"Missing named input: {name} in 'inputs' object.")
        # What else is there is ignored, as TF Serving does.
        return {name: _named(name, columns[name], dtype) for name, dtype in dtypes.items()}
    rows = document["instances"]
    if not isinstance(rows, list) or not rows:
        raise wrong("Expecting 'instances' to be a list/array with at least one value")
    named = isinstance(rows[0], dict) and not _is_binary(rows[0])
    if not named and len(dtypes) > 1:
        raise wrong(
            "instances is a plain list, but expecting list of objects as multiple input tensors "
            f"required: {','.join(sorted(dtypes))}"
        )
    columns = {name: [] for name in dtypes}
    for number, row in enumerate(rows):
        if named != (isinstance(row, dict) and not _is_binary(row)):
            raise wrong(f"instances mixes objects with values or lists at item {number}")
        row = row if named else {next(iter(dtypes)): row}
        if set(row) != set(dtypes):
            raise wrong(
                f"Failed to process element: {number} of 'instances' list. JSON object: "
                f"{_shown(row)} keys must be equal to: {','.join(sorted(dtypes))}"
            )
        for name, dtype in dtypes.items():
            try:
                tensor = _named(name, row[name], dtype)
            except Refused as error:
                raise wrong(
                    f"Failed to process element: {number} key: {name} of 'instances' list. "
                    f"Error: {error}"
                ) from error
            first = columns[name][0] if columns[name] else tensor
            if tensor.shape != first.shape:
                raise wrong(
                    f"Failed to process element: {number} key: {name} of 'instances' list. Error: "
                    f"Expecting shape {list(first.shape)} but got: {list(tensor.shape)}"
                )
            columns[name].append(tensor)
    return {name: np.stack(tensors) for name, tensors in columns.items()}


def _named(name: str, value, dtype: tf.DType) -> np.ndarray:
    try:
        return _tensor(value, dtype)
    except Refused as error:
        # TF Serving doesn't say which input.
        raise wrong(f"{error} (input {name})") from error


def write_outputs(outputs: Mapping[str, np.ndarray], rows: bool) -> dict:
    """The answer as a JSON document."""
    plain = {name: _plain(name, array) for name, array in outputs.items()}
    if not rows:
        return {"outputs": next(iter(plain.values())) if len(plain) == 1 else plain}
    sizes = {array.shape[:1] for array in outputs.values()}
    if len(sizes) > 1 or () in sizes:
        shapes = {name: list(array.shape) for name, array in outputs.items()}
        raise wrong(f"Outputs have inconsistent batch sizes: {shapes}")
    if len(plain) == 1:
        return {"predictions": next(iter(plain.values()))}
    each = zip(*plain.values(), strict=True)
    return {"predictions": [dict(zip(plain, row, strict=True)) for row in each]}


def _plain(name: str, array: np.ndarray):
    """Nested lists of what JSON has. Strings are bytes where the output's name says so."""
    if array.dtype == object:
        binary = name.endswith("_bytes")
        flat = [
            {"b64": base64.b64encode(text).decode()}
            if binary
            else text.decode("utf-8", "surrogateescape")
            for text in array.ravel()
        ]
    elif array.dtype.kind == "f":
        # The shortest that gives the same number in its own precision.
        flat = [float(str(number)) for number in array.ravel()]
    elif array.dtype.kind in "iub":
        flat = array.ravel().tolist()
    else:
        raise wrong(f"Failed to write JSON value for tensor type: {array.dtype} of {name}")
    nested = np.empty(array.size, object)
    nested[:] = flat
    return nested.reshape(array.shape).tolist()
