"""The same models on Keras's JAX backend, where TensorFlow isn't installed."""

import os
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from modeling.layers.execution import INFERENCE
from tests.modeling.other_backend import KEY, cases
from tests.scripts import ROOT


@pytest.mark.slow
def test_outputs_and_gradients_are_tensorflows(tmp_path):
    """With dropout, packed rows, remat, a left-to-right model and a BiLSTM."""
    rng = np.random.default_rng(1)
    weights, expected = {}, {}
    for case, (model, inputs, output) in cases().items():
        model.build()
        for weight in model.weights:
            weight.assign(rng.normal(scale=0.2, size=weight.shape))
        inputs = {name: tf.constant(values) for name, values in inputs.items()}
        with tf.GradientTape() as tape:
            logits = model(inputs, dropout_key=tf.constant(KEY))[output]
            loss = tf.reduce_sum(logits**2)
        names = [f"{case}/{weight.path.split('/', 1)[1]}" for weight in model.weights]
        values = [weight.value for weight in model.weights]
        gradients = tape.gradient(loss, values, unconnected_gradients="zero")
        weights |= {name: value.numpy() for name, value in zip(names, values, strict=True)}
        expected |= {
            name: tf.convert_to_tensor(g).numpy() for name, g in zip(names, gradients, strict=True)
        }
        expected[case] = logits.numpy()
        expected[f"{case} evaluated"] = model(inputs, execution=INFERENCE)[output].numpy()
    np.savez(tmp_path / "weights.npz", **weights)
    files = [str(tmp_path / "weights.npz"), str(tmp_path / "results.npz")]
    subprocess.run(
        [sys.executable, "-m", "tests.modeling.other_backend", *files],
        env=os.environ | {"KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu"},
        check=True,
    )
    results = np.load(files[1])
    assert set(results.files) == set(expected)
    for name, value in expected.items():
        # Gradients are sums of many terms.
        atol = 1e-5 * max(1.0, np.abs(value).max()) if "/" in name else 1e-5
        np.testing.assert_allclose(results[name], value, rtol=1e-5, atol=atol, err_msg=name)


@pytest.mark.slow
def test_scripts_compute_with_tensorflow_whatever_keras_is_set_to():
    code = "import modeling.quiet, keras, sys; print(keras.config.backend(), 'jax' in sys.modules)"
    environment = os.environ | {"KERAS_BACKEND": "jax"}
    shown = subprocess.check_output([sys.executable, "-c", code], cwd=ROOT, env=environment)
    assert shown.decode() == "tensorflow False\n"
