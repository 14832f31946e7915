"""An encoder in branches: the same vectors, computed for real tokens only."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from modeling.config import BertConfig
from modeling.layers.execution import PLAIN, Execution
from modeling.models import BertClassifier
from modeling.serving.graph import encoder as graph_encoder
from modeling.serving.graph.encoder import BranchedEncoder
from modeling.serving.storage import Servable

# A hole, a full row, a row of padding alone, and padding in front.
MASK = [[1, 1, 0, 1, 1, 0], [1] * 6, [0] * 6, [0, 0, 1, 1, 1, 1]]
SEQUENCES = [[1, 1, 0, 2, 2, 0], [1, 2, 2, 3, 3, 3], [0] * 6, [0, 0, 1, 1, 1, 2]]
HEADS = 3


def make_model(dtype: str | None = None, **settings) -> BertClassifier:
    """With no vector that is zero or one."""
    keras.utils.set_random_seed(1)
    sizes = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": HEADS}
    sizes |= {"intermediate_size": 34, "max_position_embeddings": 8, "initializer_range": 0.3}
    model = BertClassifier(BertConfig(40, **sizes | settings), 3, dtype=dtype)
    model.build()
    rng = np.random.default_rng(2)
    for weight in model.weights:
        if len(weight.shape) == 1:
            weight.assign(weight + rng.normal(0, 0.3, weight.shape))
    return model


def make_batch(mask, packed: bool = False) -> dict[str, tf.Tensor]:
    ids = np.random.default_rng(0).integers(0, 40, np.shape(mask))
    batch = {"input_ids": tf.constant(ids, tf.int32), "input_mask": tf.constant(mask, tf.int32)}
    batch["segment_ids"] = batch["input_ids"] % 2
    if packed:
        batch["sequence_ids"] = tf.constant(SEQUENCES, tf.int32)
    return batch


def traced(model, batch, execution=PLAIN):
    """A function of batches, with no more known of them than their rank, unless it is one text."""
    rows = 1 if len(batch["input_ids"]) == 1 else None
    spec = tf.TensorSpec([rows, None], tf.int32)
    run = tf.function(lambda **batch: model(batch, execution=execution), autograph=False)
    return run.get_concrete_function(**dict.fromkeys(batch, spec))


def outputs_of(model, batch, execution=PLAIN):
    return traced(model, batch, execution)(**batch)


def in_branches(model, branches: int, in_functions: bool = True) -> Execution:
    served = BranchedEncoder(model.encoder, "float32", branches, in_functions)
    return Execution(inference=True, encoders={id(model.encoder): served})


@pytest.mark.parametrize(
    ("branches", "direction", "packed"),
    [
        (1, "bidirectional", False),
        (2, "left_to_right", True),
        (3, "left_to_right", False),
        (9, "bidirectional", True),
    ],
)
def test_a_model_gives_the_same(branches, direction, packed):
    model = make_model(attention_direction=direction)
    batch = make_batch(MASK, packed)
    plain = outputs_of(model, batch)
    served = outputs_of(model, batch, in_branches(model, branches))
    real = np.array(MASK) == 1
    padding = ~real
    padding[:, 0] = False  # which counts as real
    layers = [plain["encoder_outputs"], served["encoder_outputs"]]
    for expected, found in zip(*layers, strict=True):
        np.testing.assert_allclose(found.numpy()[real], expected.numpy()[real], atol=1e-5)
        assert not found.numpy()[padding].any()
    some = real[:, 0]  # the vector of padding is nothing that anybody reads
    for name in ("pooled_output", "logits"):
        np.testing.assert_allclose(served[name].numpy()[some], plain[name].numpy()[some], atol=1e-5)


@pytest.mark.parametrize(
    ("mask", "act"),
    [
        ([[1] * 5], "gelu"),
        ([[1] * 4] * 3, "gelu"),
        ([[1, 1, 0, 1]], "gelu"),
        ([[1] * 5], "gelu_erf"),
        ([[1] * 4] * 3, "relu"),
    ],
)
def test_one_text_and_texts_of_one_length(mask, act):
    model = make_model(hidden_act=act)
    batch = make_batch(mask)
    served = outputs_of(model, batch, in_branches(model, 2))
    np.testing.assert_allclose(served["logits"], outputs_of(model, batch)["logits"], atol=1e-5)


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
def test_a_model_of_half_precision_stays_one(policy):
    model, batch = make_model(policy), make_batch(MASK[:2])
    servable = Servable(model)
    served = tf.function(lambda **batch: servable(batch))(**batch)
    assert served["sequence_output"].dtype == model.compute_dtype
    np.testing.assert_allclose(served["logits"], model(batch)["logits"], atol=0.1)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8"])
def test_every_weight_is_kept_once(dtype):
    """As many numbers as the model has but for scales and the vectors, which are constants."""
    model = make_model()
    variables = Servable(model, dtype).model_variables
    matrices = [v for v in variables if len(v.shape) == 2 and 1 not in v.shape]
    count = sum(int(np.prod(v.shape)) for v in matrices)
    assert count == sum(int(np.prod(w.shape)) for w in model.weights if len(w.shape) == 2)
    stored = {v.dtype.name for v in matrices}
    assert stored == ({"float32"} if dtype == "float32" else {"float32", dtype})
    assert len({id(v) for v in variables}) == len(variables)


def test_int8_rounds_by_half_a_step():
    model, batch = make_model(), make_batch(MASK)
    servable = Servable(model, "int8")
    served = tf.function(lambda **batch: servable(batch))(**batch)["logits"].numpy()
    exact = model(batch)["logits"].numpy()
    some = np.array(MASK)[:, 0] == 1
    worst = np.abs(served - exact)[some].max()
    assert 0 < worst < 0.1 * np.abs(exact).max()


def test_only_real_tokens_are_multiplied(monkeypatch):
    model = make_model()
    mask = np.arange(8) < np.full((64, 1), 2)
    rows, product = [], graph_encoder._Product.__call__

    def counted(self, x):
        rows.append(int(x.shape[0]))
        return product(self, x)

    monkeypatch.setattr(graph_encoder._Product, "__call__", counted)
    # Not traced: one way is taken.
    model(make_batch(mask), execution=in_branches(model, 2, in_functions=False))
    assert rows == [128] * 16
    rows.clear()
    model(make_batch(np.ones([64, 8])), execution=in_branches(model, 2, in_functions=False))
    assert rows == [512] * 16
