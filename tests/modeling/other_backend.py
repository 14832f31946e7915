"""Models on Keras's JAX backend: reads inputs and weights, writes outputs and gradients.

    KERAS_BACKEND=jax python -m tests.modeling.other_backend WEIGHTS.npz RESULTS.npz

Here alone JAX is imported, and TensorFlow can't be, as if it weren't installed.
"""

import sys

import numpy as np

SIZES = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
SIZES |= {"vocab_size": 40, "intermediate_size": 32, "max_position_embeddings": 24}
MASK = np.arange(12) < [[12], [7], [9]]
INPUTS = {
    "input_ids": np.random.default_rng(0).integers(0, 40, MASK.shape).astype(np.int32),
    "input_mask": MASK.astype(np.int32),
    "segment_ids": (np.arange(12) > [[5], [3], [4]]).astype(np.int32),
}
# Two sequences in each row.
SECOND = np.arange(12) >= [[6], [4], [3]]
PACKED = INPUTS | {
    "masked_lm_positions": np.array([[1, 3], [2, 0], [4, 5]], np.int32),
    "sequence_ids": ((1 + SECOND) * MASK).astype(np.int32),
    "position_ids": (np.arange(12) - SECOND * [[6], [4], [3]]).astype(np.int32),
}
KEY = np.array([1, 2, 3], np.int32)


def cases() -> dict:
    """Name → (model, inputs, the output that gradients are taken of)."""
    from modeling.config import BertConfig
    from modeling.models import BertClassifier, BertPretrainer

    one_way = BertConfig(**SIZES, attention_direction="left_to_right", hidden_act="gelu_erf")
    pretrainer = BertPretrainer(BertConfig(**SIZES), next_sentence=False, remat=True)
    return {
        "packed": (pretrainer, PACKED, "masked_lm_logits"),
        "pooled": (BertClassifier(one_way, num_labels=3), INPUTS, "logits"),
        "bilstm": (BertClassifier(BertConfig(**SIZES), 3, bilstm=True), INPUTS, "logits"),
    }


def main(weights_file: str, results_file: str) -> None:
    sys.modules["tensorflow"] = None
    import jax

    from modeling.layers.execution import INFERENCE

    weights, results = np.load(weights_file), {}
    for case, (model, inputs, output) in cases().items():
        model.build()
        for weight in model.weights:
            weight.assign(weights[f"{case}/{weight.path.split('/', 1)[1]}"])

        def call(values, model=model, inputs=inputs, output=output):
            outputs, _ = model.stateless_call(values, [], inputs, dropout_key=KEY)
            return (outputs[output] ** 2).sum(), outputs[output]

        values = [weight.value for weight in model.trainable_weights]
        gradients, results[case] = jax.jit(jax.grad(call, has_aux=True))(values)
        for weight, gradient in zip(model.trainable_weights, gradients, strict=True):
            results[f"{case}/{weight.path.split('/', 1)[1]}"] = gradient
        results[f"{case} evaluated"] = model(inputs, execution=INFERENCE)[output]
    np.savez(results_file, **results)


if __name__ == "__main__":
    main(*sys.argv[1:])
