"""Checkpoints that `tf.train.Checkpoint` wrote of Hugging Face's TensorFlow classes.

On disk the tensors are called after their place in the program that wrote them. The object graph
beside them says what each variable is called, and those are the names of tf_model.h5.
"""

from modeling.checkpoints import names
from modeling.checkpoints.contents import Contents
from modeling.checkpoints.formats.object_graph import (
    ObjectCheckpoint,
    bundles_at,
    is_object_checkpoint,
)
from modeling.checkpoints.huggingface import huggingface_contents
from modeling.errors import ModelingError

HF_OBJECTS = "huggingface_objects"


def hf_objects_file(path: str) -> str | None:
    """The prefix of a Hugging Face object checkpoint at a prefix, one of its files or a folder.

    Raises:
        ModelingError: A damaged object checkpoint, several of these in the folder, or a
            `checkpoint` file that isn't one.
    """
    found = [prefix for prefix in bundles_at(path) if _is_huggingface(prefix)]
    if len(found) > 1:
        raise ModelingError(
            f"The folder {path} holds several checkpoints of Hugging Face's TensorFlow classes: "
            f"{', '.join(found[:6])}. Give the one to read instead of the folder."
        )
    return found[0] if found else None


def _is_huggingface(prefix: str) -> bool:
    return is_object_checkpoint(prefix) and any(
        "/layer_._" in variable.name and names.from_huggingface(variable.name)
        for variable in ObjectCheckpoint(prefix).variables
    )


def hf_objects_contents(file: str) -> Contents:
    """What the checkpoint holds, under the original's names.

    Raises:
        ModelingError: A damaged checkpoint, or two models in it.
    """
    held = ObjectCheckpoint(file)
    called = {variable.key: variable.name for variable in held.variables}
    counters = [key for key in called if held.shapes[key] == ()]
    found = huggingface_contents(
        file,
        HF_OBJECTS,
        dict.fromkeys(called, held),
        translate=lambda key: names.from_huggingface(called[key]),
        ignored=counters,
    )
    found.ignored = sorted([*found.ignored, *held.ignored])
    return found
