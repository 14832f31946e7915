"""Warm-up requests are ones that every model answers, see `test_export.py` for a whole export's."""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow_serving.apis import prediction_log_pb2

from modeling.serving.export import IDS, Signature
from modeling.serving.warm_up import warm_up_requests


@pytest.mark.parametrize("length", [3, 8, 10, 11, 128])
def test_ids_that_every_model_has(length):
    """A model may have a single segment, and few positions."""
    signatures = {"tokenized": Signature(dict, IDS)}
    longest = set()
    for record in warm_up_requests("name", signatures, length):
        request = prediction_log_pb2.PredictionLog.FromString(record).predict_log.request
        inputs = {name: tf.make_ndarray(value) for name, value in request.inputs.items()}
        assert not inputs["segment_ids"].any() and inputs["segment_ids"].dtype == np.int32
        assert (inputs["input_mask"] == 1).all() and (inputs["input_ids"] == 1).all()
        longest.add(inputs["input_ids"].shape[1])
    assert max(longest) <= length
