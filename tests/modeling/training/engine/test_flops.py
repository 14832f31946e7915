"""Operations are held against what TensorFlow's graph holds."""

import pytest
import tensorflow as tf

from modeling.config import BertConfig
from modeling.models import BertClassifier, BertPretrainer
from modeling.training.engine.flops import forward_flops, train_step_flops

B, T, P = 3, 16, 5
CONFIG = BertConfig(
    vocab_size=101,
    hidden_size=24,
    num_hidden_layers=2,
    num_attention_heads=4,
    intermediate_size=56,
    max_position_embeddings=T,
    type_vocab_size=2,
)
# Segments are looked up by a product with a one-hot matrix, which isn't counted as a product.
LOOKUP = 2 * B * T * 2 * 24


def products(graph: tf.Graph) -> int:
    """Operations of all matrix products in a graph, by the shapes of their factors."""
    total = 0
    for op in graph.get_operations():
        if op.type == "MatMul":
            rows, inner = op.inputs[0].shape
            if op.get_attr("transpose_a"):
                rows, inner = inner, rows
            total += 2 * rows * inner * op.outputs[0].shape[1]
        elif op.type in ("BatchMatMul", "BatchMatMulV2"):
            inner = op.inputs[0].shape[-2 if op.get_attr("adj_x") else -1]
            total += 2 * op.outputs[0].shape.num_elements() * inner
    return total


def inputs():
    ids = tf.ones([B, T], tf.int32)
    return {"input_ids": ids, "input_mask": ids, "masked_lm_positions": tf.ones([B, P], tf.int32)}


@pytest.mark.parametrize(
    "model, predictions, labels",
    [(BertPretrainer, P, 2), (lambda config: BertClassifier(config, 7), 0, 7)],
    ids=["pretrainer", "classifier"],
)
def test_forward_is_what_the_graph_computes(model, predictions, labels):
    model = model(CONFIG)
    model.build()
    graph = tf.function(lambda: model(inputs())).get_concrete_function().graph
    expected = products(graph) - LOOKUP
    assert forward_flops(CONFIG, B, T, predictions, labels) == expected


def test_training_step_is_what_the_graph_computes():
    model = BertPretrainer(CONFIG, next_sentence=False)
    model.build()

    def step():
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(model(inputs())["masked_lm_logits"])
        weights = [v.value for v in model.trainable_variables]
        return [g for g in tape.gradient(loss, weights) if g is not None]

    graph = tf.function(step).get_concrete_function().graph
    pooler = 2 * B * CONFIG.hidden_size**2  # in the graph, but nothing uses it
    assert train_step_flops(CONFIG, B, T, P) == products(graph) - 2 * LOOKUP - pooler


def test_base_by_hand():
    """12 layers of 12·768² weights and 2·128·768 for attention, two operations each."""
    config = BertConfig.named("base", 30522)
    expected = 2 * 8 * 128 * 12 * (12 * 768**2 + 2 * 128 * 768)
    assert forward_flops(config, 8, 128) == expected
    assert train_step_flops(config, 8, 128) == 3 * expected
    assert isinstance(train_step_flops(config, 8, 128, 20, 2), int)
