"""Models for LiteRT (formerly TensorFlow Lite): one text's ids in, what the export answers out.

LiteRT's interpreter (ai_edge_litert.interpreter) runs `export/1/model.tflite`. Its one signature
takes int32 [1, T] `input_ids`, `input_mask` and `segment_ids`, T of any length that the model has.

float32: the weights as they are; float16: in half the bytes; int8: matrices in a quarter, a scale
per output, products of whole numbers with the ranges of each call ("dynamic range").
"""

import re

import tensorflow as tf

from modeling.checkpoints.files import join
from modeling.errors import ModelingError
from modeling.logs import only_warnings
from modeling.serving.prediction import LITE_NAME
from modeling.serving.storage import Servable


def lite_model(signature, servable: Servable, dtype: str) -> bytes:
    """The file's content.

    Args:
        signature: `modeling.serving.export.Signature` of numbers, [B, T]; B is 1 here.
        servable: In float32.
        dtype: "float32", "float16" or "int8".

    Raises:
        ModelingError: LiteRT has no form of an operation, which the message names.
    """
    if any(spec.shape.rank > 2 for spec in signature.inputs.values()):
        raise ModelingError(
            "This model computes an example of several rows (choices, or windows of a long text), "
            "and leaves out their padding, on a condition that LiteRT has no form of. Export it "
            "with --export_format=saved_model."
        )
    specs = {
        name: tf.TensorSpec([1, *spec.shape[1:]], spec.dtype, name)
        for name, spec in signature.inputs.items()
    }
    function = tf.function(signature.call, autograph=False).get_concrete_function(**specs)
    converter = tf.lite.TFLiteConverter.from_concrete_functions([function], servable)
    if dtype != "float32":
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
    if dtype == "float16":
        converter.target_spec.supported_types = [tf.float16]
    try:
        with only_warnings():
            return converter.convert()
    except Exception as error:  # its own class isn't public
        lacking = sorted(set(re.findall(r"'tf\.(\w+)' op", str(error))))
        raise ModelingError(
            f"This model has no form for LiteRT, which can't take {', '.join(lacking) or 'it'}: "
            f"{str(error).strip().splitlines()[0][-200:]}. Export it with "
            f"--export_format=saved_model."
        ) from error


def write_lite_model(folder: str, content: bytes) -> None:
    """Into a version's folder."""
    with tf.io.gfile.GFile(join(folder, LITE_NAME), "wb") as file:
        file.write(content)
