"""Which operations an exported graph may hold: those that a plain TF Serving binary has.

TF Serving has TensorFlow's own operations and those of TF Text that its `ops_lib` links. It can't
run Python, and the files of the machine that exported are not there.
"""

import tensorflow as tf

from modeling.errors import ModelingError

TEXT_OPERATIONS = ("FastBertNormalize", "FastWordpieceTokenizeWithOffsets")
"""Of TF Text's, those that our text side uses."""

HOST_OPERATIONS = (
    *("PyFunc", "PyFuncStateless", "EagerPyFunc", "HostConst", "ReadFile", "WriteFile"),
    *("MatchingFiles", "Print", "PrintV2", "XlaLaunch"),
)
"""Of TensorFlow's, those that need the process or the machine that exported."""

# Reading and writing of the variables, which a SavedModel brings along.
_OF_SAVED_MODELS = ("MergeV2Checkpoints", "SaveV2", "RestoreV2", "ShardedFilename")


def operations(graph_def) -> set[str]:
    """Names of the operations in a GraphDef and its functions."""
    functions = {function.signature.name for function in graph_def.library.function}
    nodes = {node.op for node in graph_def.node}
    for function in graph_def.library.function:
        nodes |= {node.op for node in function.node_def}
    return nodes - functions


def check(graph_def, where: str) -> None:
    """Raises ModelingError if TF Serving couldn't run a graph."""
    found = operations(graph_def)
    known = {
        name for name in found if hasattr(tf.raw_ops, name) and name not in HOST_OPERATIONS
    } | {*TEXT_OPERATIONS, *_OF_SAVED_MODELS}
    if found - known:
        raise ModelingError(
            f"{where} can't be served: its graph holds {', '.join(sorted(found - known))}, which "
            f"TF Serving doesn't have. Take TensorFlow's own operations, or of TF Text's "
            f"{', '.join(TEXT_OPERATIONS)}."
        )
