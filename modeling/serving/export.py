"""Writes SavedModels that TF Serving loads: text in, answers out.

export = Export("/models/reviews", {"vocab.txt": vocab_file}, dtype)
servable = export.servable(model)
def answer(text): return {"score": servable(preprocess(text))["logits"][:, 0]}
signatures = {"serving_default": Signature(answer, {"text": tf.TensorSpec([None], tf.string)})}
folder = export.write(servable, signatures)

    /models/reviews/1/saved_model.pb
                      variables/
                      assets/          vocab.txt, bert_config.json, labels.json
                      assets.extra/    tf_serving_warmup_requests

The text side comes in as a callable, since this package knows no tokenizer.
"""

import dataclasses
import json
import os
from collections.abc import Callable, Mapping, Sequence

import tensorflow as tf

from modeling.checkpoints.files import join, remove_abandoned, temporary_folder
from modeling.checkpoints.model_folder import CONFIG_NAME
from modeling.errors import ModelingError
from modeling.logs import activity, only_warnings
from modeling.serving import warm_up
from modeling.serving.buckets import real_lengths
from modeling.serving.flags import BRANCHES
from modeling.serving.graph.encoder import XLA_LENGTHS
from modeling.serving.on_device import lite_model, write_lite_model
from modeling.serving.prediction import LISTS
from modeling.serving.storage import Servable

IDS = {
    name: tf.TensorSpec([None, None], tf.int32)
    for name in ("input_ids", "input_mask", "segment_ids")
}
"""Inputs of the signature `tokenized`: int32 [B, T]."""

EXAMPLES, TOKENIZED = "examples", "tokenized"

_FEWER = "Send fewer at once, or the long ones by themselves."

MOST_PLACES = 2**22
"""Most places of lists that are filled up to the longest of a request."""

# TF Serving has TensorFlow's own operations and those of TF Text that its `ops_lib` links. It can't
# run Python, and the files of the machine that exported are not there.
TEXT_OPERATIONS = ("FastBertNormalize", "FastWordpieceTokenizeWithOffsets")
"""Of TF Text's, those that our text side uses."""

HOST_OPERATIONS = {
    "PyFunc", "PyFuncStateless", "EagerPyFunc", "HostConst", "ReadFile", "WriteFile",
    "MatchingFiles", "Print", "PrintV2", "XlaLaunch",
}  # fmt: skip
"""Of TensorFlow's, those that need the process or the machine that exported."""

# Reading and writing of the variables, which a SavedModel brings along.
_OF_SAVED_MODELS = ("MergeV2Checkpoints", "SaveV2", "RestoreV2", "ShardedFilename")


@dataclasses.dataclass(frozen=True)
class Signature:
    """A function as clients see it.

    Attributes:
        call: Inputs by name → outputs by name; the first axis of all is the batch.
        inputs: Their shapes and dtypes.
        sample: Any text → what a real request holds, for the warm-up requests; None: the text.
        of_examples: What the serialized examples hold that are its input.
        lists: Outputs [B, (longest), ...] that are filled up alike; the first of each are texts,
            "" only where there is nothing.
    """

    call: Callable[..., Mapping[str, tf.Tensor]]
    inputs: Mapping[str, tf.TensorSpec]
    sample: Callable[[str], str] | None = None
    of_examples: Mapping[str, tf.TensorSpec] | None = None
    lists: Sequence[Sequence[str]] = ()


@dataclasses.dataclass(frozen=True)
class Export:
    """Where and how a model is exported.

    Attributes:
        directory: The model's folder, which has a folder per version; its last part is the name
            that TF Serving knows the model by.
        assets: File name → path of files to keep with the model, such as the vocabulary.
        dtype: See `Servable`.
        max_seq_length: Longest input, for the warm-up requests.
        branches, xla: See `Servable`.
        format: Of `EXPORT_FORMATS`. "tflite" writes `model.tflite`, see `serving.on_device`, in
            place of a SavedModel and its warm-up requests.
    """

    directory: str
    assets: Mapping[str, str]
    dtype: str | None = None
    max_seq_length: int = 128
    branches: int = BRANCHES
    format: str = "saved_model"
    xla: bool = False

    @classmethod
    def from_flags(cls, values, vocab_file: str | None = None) -> "Export":
        """As a script's flags say.

        Args:
            values: The flags' values.
            vocab_file: If it isn't the flags'.
        """
        assets = {"vocab.txt": vocab_file or values.vocab_file}
        directory = values.export_dir or os.path.join(values.output_dir, "export")
        form = values.export_dtype, values.max_seq_length, values.export_branches
        return cls(directory, assets, *form, values.export_format, values.export_xla)

    def servable(self, model) -> Servable:
        """A model in the form that is to be written."""
        if self.format == "tflite":
            return Servable(model, "float32", branches=1, in_functions=False)
        return Servable(model, self.dtype, self.branches, xla=self.xla)

    def write(
        self,
        servable: Servable,
        signatures: Mapping[str, Signature],
        texts: Mapping[str, Sequence[str] | Mapping[str, str]] | None = None,
    ) -> str:
        """Saves under a temporary name, then renames to the next free version.

        Where serving_default has strings alone, a signature `examples` takes the same as
        serialized tf.Examples. Warm-up requests for all signatures are stored with the model.

        Args:
            servable: The model's variables.
            signatures: By name.
            texts: Further assets: file name → strings, or strings by name, written as JSON.

        Returns:
            The folder of the new version.

        Raises:
            ModelingError: The graph has operations that TF Serving lacks, or the disk refuses.
        """
        texts = dict(texts or {})
        if self.format == "tflite":
            with activity(f"Converting to {self.directory}"):
                content = lite_model(signatures[TOKENIZED], servable, self.dtype or "float32")
            return self._published(
                lambda folder: write_lite_model(folder, content), servable, texts
            )
        signatures = dict(signatures)
        default = signatures["serving_default"]
        if all(spec.dtype == tf.string for spec in default.inputs.values()):
            default = dataclasses.replace(default, call=in_function(default.call))
            signatures |= {"serving_default": default, EXAMPLES: _from_examples(default)}
        functions = {}
        with activity("Tracing the export", "signatures", len(signatures)) as progress:
            for name, signature in signatures.items():
                specs = {
                    key: tf.TensorSpec(spec.shape, spec.dtype, key)
                    for key, spec in signature.inputs.items()
                }
                call = checked_request(signature.call, servable.config)
                function = tf.function(call, autograph=False)
                functions[name] = function.get_concrete_function(**specs)
                progress.add(1)
        for name, function in functions.items():
            check_operations(function.graph.as_graph_def(), f"The signature {name}")
        lists = [[name, part] for name, signature in signatures.items() for part in signature.lists]
        if lists:
            texts[LISTS] = lists

        def save(folder: str) -> None:
            try:
                with only_warnings():
                    tf.saved_model.save(servable, folder, signatures=functions)
            except AssertionError as error:  # what TensorFlow raises for it
                raise ModelingError(
                    f"A signature reads a variable that the export doesn't keep ({error}). In a "
                    f"signature call what Export.servable gives, not the model itself."
                ) from error
            vocab_file = self.assets.get("vocab.txt")
            words = warm_up.warm_up_words(vocab_file) if vocab_file else None
            lengths = self.max_seq_length, XLA_LENGTHS if self.xla else ()
            logs = warm_up.warm_up_requests(self._name, signatures, *lengths, words)
            warm_up.write_warm_up(folder, logs)

        with activity(f"Writing the SavedModel to {self.directory}"):
            return self._published(save, servable, texts)

    @property
    def _name(self) -> str:
        """Of the model."""
        return os.path.basename(self.directory.rstrip("/"))

    def _published(self, save: Callable[[str], None], servable: Servable, texts: Mapping) -> str:
        """The next version, of what `save` writes into a folder, and the assets."""
        try:
            return self._next_version(save, servable, texts)
        except (tf.errors.OpError, OSError) as error:
            raise ModelingError(
                f"The export can't be written to {self.directory}: {error}. Check that the "
                f"folder may be written and that the disk isn't full."
            ) from error

    def _next_version(self, save, servable: Servable, texts: Mapping) -> str:
        tf.io.gfile.makedirs(self.directory)
        remove_abandoned(self.directory)
        with temporary_folder(self.directory) as temporary:
            save(temporary)
            folder = join(temporary, "assets")
            tf.io.gfile.makedirs(folder)
            for name, path in self.assets.items():
                tf.io.gfile.copy(path, join(folder, name), overwrite=True)
            for name, content in texts.items():
                content = dict(content) if isinstance(content, Mapping) else list(content)
                with tf.io.gfile.GFile(join(folder, name), "w") as file:
                    file.write(json.dumps(content, ensure_ascii=False) + "\n")
            if servable.config is not None:
                with tf.io.gfile.GFile(join(folder, CONFIG_NAME), "w") as file:
                    file.write(servable.config.to_json_string())
            # The folder of the highest version is what a server loads; it has to appear whole.
            target = join(self.directory, str(_last_version(self.directory) + 1))
            tf.io.gfile.rename(temporary, target)
        return target


def in_function(call: Callable) -> Callable:
    """`call` as a function of the graph, traced once for all signatures that call it."""
    return tf.function(call, autograph=False)


def checked_request(call: Callable, config=None) -> Callable:
    """`call` with checks before it, which fail with InvalidArgument (400 in REST).

    All inputs must have equally many rows. Where there are `input_ids`, the inputs of pieces must
    have one shape, the length must be one that the model has positions for, and ids must be in its
    tables: on accelerators others would give some vector instead of an error.

    Args:
        call: Inputs by name → outputs by name.
        config: The model's `BertConfig`, for ids.
    """

    def call_checked(**inputs: tf.Tensor):
        checks = [*_equal_rows(inputs)]
        if "input_ids" in inputs and config is not None:
            with tf.control_dependencies(checks):
                checks += [*_pieces(inputs, config)]
        with tf.control_dependencies(checks):
            return call(**{name: tf.identity(value) for name, value in inputs.items()})

    return call_checked


def _equal_rows(inputs: Mapping[str, tf.Tensor]):
    (first, value), *others = inputs.items()
    rows = tf.shape(value)[0]
    for name, other in others:
        other_rows = tf.shape(other)[0]
        words = [f"{first} has", rows, f"rows, but {name} has", other_rows, ". Give equally many."]
        yield tf.debugging.Assert(rows == other_rows, words)


def _pieces(inputs: Mapping[str, tf.Tensor], config):
    ids = inputs["input_ids"]
    for name in ("input_mask", "segment_ids"):
        shapes = tf.shape(ids), tf.shape(inputs[name])
        words = ["input_ids has the shape", shapes[0], f"but {name} has", shapes[1], "."]
        yield tf.debugging.Assert(tf.reduce_all(shapes[0] == shapes[1]), words)
    length, most = tf.shape(ids)[-1], config.max_position_embeddings
    words = ["input_ids has the shape", tf.shape(ids), f"; a row has 1 to {most} pieces."]
    fine = (tf.shape(ids)[0] == 0) | (tf.size(ids) > 0) & (length <= most)
    yield tf.debugging.Assert(fine, words)
    if "masked_lm_positions" in inputs:
        # Each costs as much as the vocabulary has tokens.
        places = inputs["masked_lm_positions"]
        count = tf.shape(places)[-1]
        words = ["The rows of masked_lm_positions have", count, f"places; at most {most} may be."]
        yield tf.debugging.Assert(count <= most, words)
        # Beyond its own pieces a place would be one of the next row.
        lengths = real_lengths(inputs["input_mask"])
        fine = (places >= 0) & (places < lengths[:, tf.newaxis])
        words = ["masked_lm_positions count from 0 and have to be of real pieces, but are", places]
        words += ["in rows of", lengths, "pieces."]
        yield tf.debugging.Assert(tf.reduce_all(fine), words)
    limits = {
        "input_ids": config.vocab_size,
        "input_mask": 2,
        "segment_ids": config.type_vocab_size,
    }
    for name, limit in limits.items():
        value = inputs[name]
        low, high = tf.reduce_min(value), tf.reduce_max(value)
        fine = (tf.size(value) == 0) | ((low >= 0) & (high < limit))
        words = [f"{name} may be from 0 to {limit - 1}, but goes from", low, "to", high, "."]
        yield tf.debugging.Assert(fine, words)


def refuse_large_request(what: str, rows, longest, most: int, remedy: str) -> tf.Operation:
    """Fails with InvalidArgument if `rows` lists, filled up to the longest, have too many places.

    A few short texts beside a long one would take memory that no size of theirs explains.

    Args:
        what: Of what there are `rows`.
        rows, longest: int; how many lists, and how long they are.
        most: Places that there may be.
        remedy: A sentence.
    """
    rows, longest = tf.cast(rows, tf.int64), tf.cast(longest, tf.int64)
    words = [f"The {what} are", rows, "lists of", longest, "places, filled up to the longest; "]
    words.append(f"this model takes {most} places at once. {remedy}")
    return tf.debugging.Assert(rows * longest <= most, words)


def _from_examples(signature: Signature) -> Signature:
    """The same from serialized tf.Examples, whose features have the inputs' names.

    An Example without one of them is refused.
    """

    def call(examples):
        # Of a list there has to be something, too.
        parsed = tf.io.parse_example(
            examples, {name: tf.io.RaggedFeature(tf.string) for name in signature.inputs}
        )
        return signature.call(
            **{
                name: _of_examples(name, parsed[name], spec.shape.rank)
                for name, spec in signature.inputs.items()
            }
        )

    of_strings = {EXAMPLES: tf.TensorSpec([None], tf.string)}
    return dataclasses.replace(
        signature, call=call, inputs=of_strings, of_examples=signature.inputs
    )


def _of_examples(name: str, values: tf.RaggedTensor, rank: int) -> tf.Tensor:
    """string [B] or, filled up with "", [B, (longest)]."""
    counts = values.row_lengths()
    wrong = counts < 1 if rank > 1 else counts != 1
    first = tf.argmax(tf.concat([wrong, [True]], 0), output_type=tf.int32)
    wanted = "strings" if rank > 1 else "one string"
    words = ["Example", first, f"(from 0) has no feature '{name}' with {wanted} in it, which this "]
    words.append("model takes.")
    checks = [tf.debugging.Assert(~tf.reduce_any(wrong), words)]
    if rank > 1:
        longest = tf.reduce_max(tf.concat([counts, [0]], 0))
        checks.append(
            refuse_large_request(f"feature '{name}'", values.nrows(), longest, MOST_PLACES, _FEWER)
        )
    with tf.control_dependencies(checks):
        return values.to_tensor("") if rank > 1 else tf.identity(values.values)


def _graph_operations(graph_def) -> set[str]:
    """Names of the operations in a GraphDef and its functions."""
    functions = {function.signature.name for function in graph_def.library.function}
    nodes = {node.op for node in graph_def.node}
    for function in graph_def.library.function:
        nodes |= {node.op for node in function.node_def}
    return nodes - functions


def check_operations(graph_def, where: str) -> None:
    """Raises ModelingError if TF Serving couldn't run a graph."""
    used = _graph_operations(graph_def)
    known = {name for name in used if hasattr(tf.raw_ops, name) and name not in HOST_OPERATIONS} | {
        *TEXT_OPERATIONS,
        *_OF_SAVED_MODELS,
    }
    if used - known:
        raise ModelingError(
            f"{where} can't be served: its graph holds {', '.join(sorted(used - known))}, which "
            f"TF Serving doesn't have. Take TensorFlow's own operations, or of TF Text's "
            f"{', '.join(TEXT_OPERATIONS)}."
        )


def _last_version(directory: str) -> int:
    """0 without one."""
    names = (name.rstrip("/") for name in tf.io.gfile.listdir(directory))
    return max((int(name) for name in names if name.isdigit()), default=0)
