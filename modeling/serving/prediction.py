"""Asks a SavedModel that takes requests one signature over and over, in batches of like lengths.

loaded = load_signature(version_folder("export/"), "serving_default")
answers = SavedModelPredictor(loaded, batch_size=32)(examples)

Needs TensorFlow and TensorFlow Text only, nothing of what made the model.
"""

import dataclasses
import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import tensorflow as tf
from absl import logging

from modeling.checkpoints.files import join
from modeling.errors import ModelingError
from modeling.side_by_side import batches_at_once, side_by_side

# What may be the fault of one example; it is asked alone then.
_REFUSALS = (tf.errors.InvalidArgumentError, tf.errors.ResourceExhaustedError)
_MESSAGE_CHARACTERS = 400
# What TensorFlow's loader raises for files that are cut short or of something else.
_DAMAGE = (
    OSError,
    ValueError,
    RuntimeError,
    LookupError,
    TypeError,
    AttributeError,
    AssertionError,
)

LISTS = "lists.json"
"""The asset of an export that says which outputs of which signature are lists of one length."""

LITE_NAME = "model.tflite"
"""What an export for LiteRT has in place of a SavedModel; nothing here runs it."""

COLUMNS = "columns.json"
"""The asset that says which columns of the training files were the inputs, by the inputs' names."""


class _Askable(Protocol):
    """An example.

    Attributes:
        values: A signature's inputs by name, without the batch dimension: bytes for string [B],
            lists of bytes for string [B, N], arrays for numbers.
        size: How long it is, in any unit; like sizes are computed together.
    """

    values: Mapping[str, bytes | list[bytes] | np.ndarray]
    size: int


@dataclasses.dataclass(frozen=True)
class LoadedSignature:
    """One signature of a SavedModel.

    Attributes:
        name: The signature's.
        function: From tensors by name to tensors by name.
        inputs, outputs: Names → types and shapes, the first dimension being the batch; by name.
        owner: The whole model, which has to live as long as its function.
        lists: See `modeling.serving.export.Signature`.
        columns: Columns of the training files by the names of the inputs; empty if nobody knows.
    """

    name: str
    function: Callable[..., Mapping[str, tf.Tensor]]
    inputs: Mapping[str, tf.TensorSpec]
    outputs: Mapping[str, tf.TensorSpec]
    owner: Any
    lists: Sequence[Sequence[str]] = ()
    columns: Mapping[str, str] = dataclasses.field(default_factory=dict)


def version_folder(path: str) -> str:
    """The folder that holds the SavedModel: this one, or of its numbered versions the highest.

    Raises:
        ModelingError: There is none.
    """
    try:
        if not tf.io.gfile.isdir(path):
            state = "isn't a folder" if tf.io.gfile.exists(path) else "doesn't exist"
            raise ModelingError(
                f"{path} {state}; expected the folder of a SavedModel, or one with its numbered "
                f"versions in it. Check --saved_model."
            )
        if tf.saved_model.contains_saved_model(path):
            return path
        names = [name.rstrip("/") for name in tf.io.gfile.listdir(path)]
    except tf.errors.OpError as error:
        raise ModelingError(
            f"{path} can't be read ({error.message}); expected the folder of a SavedModel."
        ) from error
    versions = sorted((name for name in names if name.isdecimal()), key=int)
    if versions:
        folder = join(path, versions[-1])
        if tf.saved_model.contains_saved_model(folder):
            logging.info("Taking version %s of %s", versions[-1], path)
            return folder
    newest = join(path, versions[-1]) if versions else path
    if tf.io.gfile.exists(join(newest, LITE_NAME)):
        raise ModelingError(
            f"{newest} holds {LITE_NAME}, a model for LiteRT, which its interpreter runs. To ask "
            f"the model here, or with TF Serving, export it with --export_format=saved_model."
        )
    lack = f"its highest version, {versions[-1]}, has neither" if versions else "it has neither"
    raise ModelingError(
        f"{path} isn't a SavedModel: expected saved_model.pb in it, or in a subfolder that is "
        f"called by a number; {lack}. {_hint_of_run(path, names)}"
    )


def _hint_of_run(path: str, names: Sequence[str]) -> str:
    """What to name instead of a folder that isn't an export but may be a run's."""
    if "export" in names:
        return f"The run's export lies in it: --saved_model={join(path, 'export')}."
    if "run_summary.json" in names:
        return "It is a run's folder: export its model with --do_export, and name what that writes."
    return "Name the folder that an export has written."


def saved_model_files(folder: str) -> list[str]:
    """Everything in a SavedModel's folder, or in that of its versions."""
    found = tf.io.gfile.walk(folder)
    return [join(place, name) for place, _, names in found for name in names]


def load_signature(folder: str, name: str) -> LoadedSignature:
    """Loads a SavedModel and looks whether a signature of it can be asked in batches.

    Raises:
        ModelingError: See `load_saved_model` and `signature_of`.
    """
    return signature_of(load_saved_model(folder), folder, name)


def load_saved_model(folder: str) -> Any:
    """What TensorFlow loads from a SavedModel's folder.

    Raises:
        ModelingError: It can't be loaded.
    """
    # Its operations have to be known before a graph with them is loaded.
    import tensorflow_text  # noqa: F401

    try:
        return tf.saved_model.load(folder)
    except (tf.errors.OpError, *_DAMAGE) as error:
        raise ModelingError(
            f"The SavedModel {folder} can't be loaded: {_said(error)} Check that it was "
            f"copied whole, and that it was made by a TensorFlow that isn't newer than "
            f"{tf.__version__}."
        ) from error


def signature_of(model: Any, folder: str, name: str) -> LoadedSignature:
    """A signature of a loaded SavedModel that can be asked in batches.

    Args:
        model: From `load_saved_model`.
        folder: Where it was loaded from.
        name: The signature's.

    Raises:
        ModelingError: There is no such signature (lists those there are), or it takes or gives
            something else than batches of texts, of lists of texts and of numbers.
    """
    signatures = dict(getattr(model, "signatures", {}))
    if name not in signatures:
        raise ModelingError(
            f"The SavedModel {folder} has no signature {name!r}; it has "
            f"{', '.join(sorted(signatures)) or 'none at all'}. Name one of them "
            f"(--signature of modeling.predict)."
        )
    function = signatures[name]
    inputs = function.structured_input_signature[1]
    outputs = function.structured_outputs
    loaded = LoadedSignature(
        name,
        function,
        {key: inputs[key] for key in sorted(inputs)},
        {key: outputs[key] for key in sorted(outputs)},
        model,
        _lists(folder, name),
        _columns(folder, inputs),
    )
    _check(loaded)
    return loaded


def _lists(folder: str, name: str) -> list[list[str]]:
    """Which outputs are lists of one length; none if the export doesn't say."""

    def form(pairs) -> list[list[str]]:
        return [[str(output) for output in part] for owner, part in pairs if owner == name]

    expected = "pairs of a signature and its outputs that are lists of one length"
    return _asset(folder, LISTS, form, expected) or []


def _columns(folder: str, inputs: Iterable[str]) -> dict[str, str]:
    """Columns by the names of these inputs; none if the export doesn't say."""

    def form(columns) -> dict[str, str]:
        return {name: str(column) for name, column in columns.items() if name in inputs}

    return _asset(folder, COLUMNS, form, "an object of columns by the inputs' names") or {}


def _asset(folder: str, name: str, form: Callable, expected: str):
    """What an asset of JSON holds, in the form that a function makes of it; None without it."""
    path = join(join(folder, "assets"), name)
    if not tf.io.gfile.exists(path):
        return None
    try:
        with tf.io.gfile.GFile(path) as file:
            return form(json.load(file))
    except (tf.errors.OpError, ValueError, TypeError, AttributeError) as error:
        raise ModelingError(
            f"{path} can't be read ({error}); expected {expected}, as JSON. Export the model again."
        ) from error


def _check(signature: LoadedSignature) -> None:
    if not signature.inputs:
        raise ModelingError(
            f"The signature {signature.name!r} takes no inputs, so there is nothing to ask."
        )
    for name, spec in signature.inputs.items():
        rank = spec.shape.rank or 0
        numbers = spec.dtype == tf.bool or spec.dtype.is_integer or spec.dtype.is_floating
        if rank and spec.shape[0] is None and (numbers or (spec.dtype == tf.string and rank < 3)):
            continue
        raise ModelingError(
            f"The signature {signature.name!r} can't be asked line by line: its input {name!r} is "
            f"{spec.dtype.name} of shape {spec.shape}. Expected texts of shape [None], lists of "
            f"texts of shape [None, None], or numbers, each for any number of examples. Name "
            f"another signature (--signature of modeling.predict)."
        )


class SavedModelPredictor:
    """Answers examples, like sizes together; a list in an answer has the example's own length.

    An example of which the graph makes an error is asked alone, so that the others of its batch
    are answered. Batches are computed side by side where threads have been divided.

    Args:
        signature: What to ask.
        batch_size: Most examples of a batch.
        on_answered: Called with a number of examples each time that so many more are done.
    """

    def __init__(
        self,
        signature: LoadedSignature,
        batch_size: int,
        on_answered: Callable[[int], None] | None = None,
    ):
        self.signature = signature
        self.batch_size = batch_size
        self._on_answered = on_answered

    def __call__(self, examples: Sequence[_Askable]) -> list[dict[str, np.ndarray] | ModelingError]:
        """The answers in the examples' order.

        Returns:
            For each example its outputs by name, without the batch dimension; or what the graph
            said, if it refuses the example.

        Raises:
            ModelingError: Something is wrong with the model, not with an example.
        """
        # Of one shape only: a model may answer what its inputs are filled up with.
        shapes = [_shapes(example.values) for example in examples]
        order = sorted(
            range(len(examples)), key=lambda place: (shapes[place], examples[place].size)
        )
        # The long ones first, so that no thread has to wait for one of them in the end.
        batches = [*self._batches(order, shapes)][::-1]
        answers: list = [None] * len(examples)
        asked = ([examples[place] for place in places] for places in batches)
        for places, answered in zip(batches, side_by_side(self._answers, asked), strict=True):
            for place, answer in zip(places, answered, strict=True):
                answers[place] = answer
            if self._on_answered:
                self._on_answered(len(places))
        return answers

    def _batches(self, order: Sequence[int], shapes: Sequence) -> Iterator[list[int]]:
        for _, group in itertools.groupby(order, shapes.__getitem__):
            places = list(group)
            size = min(self.batch_size, -(-len(places) // batches_at_once()))
            for begin in range(0, len(places), size):
                yield places[begin : begin + size]

    def _answers(self, examples: Sequence[_Askable]) -> list[dict[str, np.ndarray] | ModelingError]:
        try:
            return self._ask(examples)
        except _REFUSALS as error:
            if len(examples) == 1:
                return [ModelingError(_said(error))]
        return [self._answers([example])[0] for example in examples]

    def _ask(self, examples: Sequence[_Askable]) -> list[dict[str, np.ndarray]]:
        tensors = {
            name: tf.constant(
                np.array(
                    [example.values[name] for example in examples],
                    object if spec.dtype == tf.string else spec.dtype.as_numpy_dtype,
                ),
                spec.dtype,
            )
            for name, spec in self.signature.inputs.items()
        }
        try:
            outputs = self.signature.function(**tensors)
            outputs = {name: outputs[name].numpy() for name in self.signature.outputs}
        except _REFUSALS:
            raise
        except tf.errors.OpError as error:
            raise ModelingError(
                f"The signature {self.signature.name!r} can't be computed: {_said(error)}"
            ) from error
        for name, value in outputs.items():
            shape = np.shape(value)
            if shape[:1] != (len(examples),):
                raise ModelingError(
                    f"The output {name!r} is of shape {shape} for {len(examples)} examples; "
                    f"expected one row for each. Name another signature "
                    f"(--signature of modeling.predict)."
                )
        rows = range(len(examples))
        answers = [{name: value[row] for name, value in outputs.items()} for row in rows]
        for names in self.signature.lists:
            for answer in answers:
                length = _own_length(answer[names[0]])
                answer.update({name: answer[name][:length] for name in names})
        return answers


def _shapes(values: Mapping[str, Any]) -> tuple:
    """Of all inputs of an example, in the order of their names."""
    return tuple(
        (len(value),) if isinstance(value, list) else np.shape(value)
        for _, value in sorted(values.items())
    )


def _own_length(texts: np.ndarray) -> int:
    """Of texts [T, ...], how many there are before nothing but empty ones."""
    there = np.flatnonzero((texts != b"").any(tuple(range(1, texts.ndim))))
    return int(there[-1]) + 1 if len(there) else 0


def _said(error: Exception) -> str:
    """The message without the graph's own places, which say nothing to who asked."""
    text = str(getattr(error, "message", error))
    # A graph says where its node is, then what is wrong, then once more which node it is.
    lines = text.rpartition("<stack traces unavailable>")[2].split("[[{{node")[0].splitlines()
    message = " ".join(line.strip() for line in lines if line.strip()) or type(error).__name__
    return message[:_MESSAGE_CHARACTERS].rstrip(".") + "."
