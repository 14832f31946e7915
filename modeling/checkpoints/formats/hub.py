"""BERT encoders from TensorFlow Hub: SavedModels that Model Garden's export_tfhub wrote.

On disk the variables have numbers for names; the graph of objects in saved_model.pb says which is
which. The model itself, a TensorFlow program, is never run.
"""

import os

import tensorflow as tf
from google.protobuf.message import DecodeError
from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

from modeling.checkpoints import tf1
from modeling.checkpoints.contents import Contents
from modeling.checkpoints.files import join
from modeling.checkpoints.formats.garden import contents_of_variables, garden_file
from modeling.checkpoints.formats.object_graph import ObjectCheckpoint
from modeling.errors import ModelingError

HUB = "tensorflow hub"
_GRAPH_FILE = "saved_model.pb"


def hub_file(path: str) -> str | None:
    """The saved_model.pb of a BERT encoder at `path`, that file or its folder; None if none is.

    Raises:
        ModelingError: Its variables are damaged.
    """
    folder = path if tf.io.gfile.isdir(path) else os.path.dirname(path) or "."
    file = join(folder, _GRAPH_FILE)
    if path not in (file, folder) or not tf.io.gfile.exists(file):
        return None
    if not tf1.is_tf1_prefix(_variables(file)):
        return None
    tf1.Bundle(_variables(file))
    return file if garden_file(_variables(file)) else None


def hub_contents(file: str) -> Contents:
    """What the SavedModel holds, under the original's names; masked-LM head included, if any.

    Raises:
        ModelingError: A damaged file, or an encoder that isn't BERT's.
    """
    nodes = _objects(file).object_graph_def.nodes
    renamed = {
        number: node.variable.name.removesuffix(":0")
        for number, node in enumerate(nodes)
        if node.WhichOneof("kind") == "variable" and node.variable.name
    }
    return contents_of_variables(ObjectCheckpoint(_variables(file)), HUB, file, renamed)


def hub_vocabulary(file: str) -> str | None:
    """Path of the vocabulary that lies inside the SavedModel, None if none does.

    Raises:
        ModelingError: A damaged saved_model.pb.
    """
    graph = _objects(file)
    nodes = graph.object_graph_def.nodes
    for child in nodes[0].children if nodes else ():
        if child.local_name == "vocab_file" and child.node_id < len(nodes):
            number = nodes[child.node_id].asset.asset_file_def_index
            if number < len(graph.asset_file_def):
                # Never a path, whatever a hostile file says.
                name = os.path.basename(graph.asset_file_def[number].filename)
                vocabulary = join(join(os.path.dirname(file), "assets"), name)
                return vocabulary if name and tf.io.gfile.exists(vocabulary) else None
    return None


def hub_do_lower_case(file: str) -> bool | None:
    """Whether the SavedModel's vocabulary is lower-cased, None if it doesn't tell.

    Raises:
        ModelingError: Damaged variables.
    """
    stored = ObjectCheckpoint(_variables(file))
    number = stored.child("do_lower_case")
    keys = [variable.key for variable in stored.variables if variable.node == number]
    return bool(stored.read(keys[0])) if keys else None


def _variables(file: str) -> str:
    return join(join(os.path.dirname(file), "variables"), "variables")


def _objects(file: str):
    """The meta graph of saved_model.pb that holds the graph of objects."""
    try:
        with tf.io.gfile.GFile(file, "rb") as opened:
            graphs = SavedModel.FromString(opened.read()).meta_graphs
    except (DecodeError, tf.errors.OpError) as error:
        raise ModelingError(
            f"{file} isn't a whole SavedModel: {error}. Copy or download its folder again."
        ) from error
    if not graphs:
        raise ModelingError(
            f"{file} holds no graph, where a SavedModel has one. Copy or download its folder again."
        )
    return graphs[0]
