"""The identity of weights, of every format that is read."""

import pytest

from modeling.training.runs.identity import weights_identity

FORMATS = (
    *("TFBertModel.h5", "TFBertModel.safetensors", "hf_checkpoint", "kh_classifier", "kh_keras"),
    *("kh_preset", "mg_classifier", "mg_release", "mg_trainer", "pytorch_bin"),
    *("pytorch_safetensors", "tfhub"),
)


@pytest.mark.parametrize("name", FORMATS)
def test_weights_of_every_format_have_one(golden, name):
    """Fine-tuning asks for it, whatever it begins with."""
    found = weights_identity(str(golden / "formats" / name))
    assert len(found) == 32 and found == weights_identity(str(golden / "formats" / name))
