"""Which number format --dtype stands for."""

import keras
import pytest
import tensorflow as tf

from modeling.config import BertConfig
from modeling.errors import ModelingError
from modeling.models import BertModel
from modeling.training.engine import precision
from modeling.training.engine.precision import (
    clear_session_keeping_precision,
    fastest_dtype,
    make_loss_scale,
    set_precision,
)


@pytest.fixture(autouse=True)
def policy():
    yield
    keras.config.set_dtype_policy("float32")


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """A machine with these devices, whose processor says this of itself."""

    def make(flags="", capabilities=(), tpus=0, vendor="AuthenticAMD"):
        gpus = [f"GPU {number}" for number in range(len(capabilities))]
        details = dict(zip(gpus, capabilities, strict=True))
        monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: gpus)
        monkeypatch.setattr(tf.config, "list_logical_devices", lambda kind: ["TPU"] * tpus)
        monkeypatch.setattr(
            tf.config.experimental,
            "get_device_details",
            lambda gpu: {"compute_capability": details[gpu]} if details[gpu] else {},
        )
        path = tmp_path / "cpuinfo"
        if flags is not None:
            text = f"vendor_id\t: {vendor}\nmodel name\t: X\nflags\t\t: fpu {flags} sse\n"
            path.write_text(text, encoding="utf-8")
        monkeypatch.setattr(precision, "_CPUINFO", str(path))

    return make


@pytest.mark.parametrize(
    ("devices", "expected"),
    [
        ({"tpus": 8}, "bfloat16"),
        ({"capabilities": [(8, 0), (9, 0)]}, "bfloat16"),
        ({"capabilities": [(8, 0), (7, 5)], "flags": "avx512_bf16"}, "float32"),
        ({"capabilities": [None]}, "float32"),
        ({"flags": "avx512f avx512_bf16"}, "bfloat16"),
        ({"flags": "avx512_bf16 avx512_fp16"}, "bfloat16"),
        ({"flags": "avx512_bf16", "vendor": "GenuineIntel"}, "bfloat16"),
        ({"flags": "avx512_bf16 avx512_fp16", "vendor": "GenuineIntel"}, "float32"),
        ({"flags": "amx_bf16 avx512_bf16 avx512_fp16", "vendor": "GenuineIntel"}, "bfloat16"),
        ({"flags": "amx_bf16 amx_tile"}, "bfloat16"),
        ({"flags": "avx2 avx512f"}, "float32"),
        ({"flags": None}, "float32"),
    ],
    ids=[
        *("TPU", "Ampere", "one old GPU", "unknown GPU", "AVX-512", "AMD with FP16"),
        *("Cooper Lake", "AMX hidden", "AMX and AVX-512", "AMX", "AVX2", "no /proc"),
    ],
)
def test_auto_is_the_fastest_format_of_the_machine(machine, devices, expected):
    machine(**devices)
    assert fastest_dtype() == expected
    set_precision("auto")
    assert keras.config.dtype_policy().compute_dtype == expected
    assert keras.config.dtype_policy().variable_dtype == "float32"
    assert make_loss_scale(keras.Sequential()) is None


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_a_name_is_what_it_says(dtype):
    set_precision(dtype)
    assert keras.config.dtype_policy().compute_dtype == dtype
    assert (make_loss_scale(keras.Sequential()) is not None) == (dtype == "float16")


def test_a_model_of_float16_alone_has_a_loss_scale():
    """Without, all its gradients are too small for the format."""
    model = BertModel(BertConfig.named("tiny", 30), dtype="mixed_float16")
    assert keras.config.dtype_policy().compute_dtype == "float32"
    assert make_loss_scale(model) is not None


def test_another_name_is_refused():
    with pytest.raises(ModelingError, match="got 'half'"):
        set_precision("half")


@pytest.mark.slow
def test_forgetting_a_model_keeps_the_format():
    set_precision("bfloat16")
    clear_session_keeping_precision()  # of other tests' models
    first = keras.layers.Dense(1).name
    clear_session_keeping_precision()
    assert keras.config.dtype_policy().name == "mixed_bfloat16"
    assert keras.layers.Dense(1).name == first
