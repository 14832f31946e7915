"""Model Garden's layouts, made of plain variables that lie and are called as its own do."""

import numpy as np
import pytest
import tensorflow as tf

from modeling import checkpoints
from modeling.checkpoints.formats.garden import garden_file
from modeling.checkpoints.heads import checkpoint_head
from modeling.config import BertConfig
from modeling.errors import ModelingError
from modeling.models import BertClassifier

HEADS, SIZE, INNER, WORDS = 2, 3, 5, 11
WIDTH = HEADS * SIZE
TABLES = {
    "_embedding_layer": ("word_embeddings/embeddings", WORDS),
    "_position_embedding_layer": ("position_embedding/embeddings", 7),
    "_type_embedding_layer": ("type_embeddings/embeddings", 2),
}


class Node(tf.Module):
    """Anything with attributes."""

    def __init__(self, **attributes):
        super().__init__()
        for name, value in attributes.items():
            setattr(self, name, value)


def _variable(name, *shape):
    values = np.random.default_rng(len(name)).normal(size=shape).astype(np.float32)
    return tf.Variable(values, name=name)


def _dense(name, inputs, outputs):
    return Node(
        kernel=_variable(f"{name}/kernel", *inputs, *outputs),
        bias=_variable(f"{name}/bias", *outputs),
    )


def _norm(name):
    gamma, beta = (_variable(f"{name}/{part}", WIDTH) for part in ("gamma", "beta"))
    return Node(gamma=gamma, beta=beta)


def _layer(scope):
    split = {
        f"_{part}_dense": _dense(f"{scope}/self_attention/{part}", [WIDTH], [HEADS, SIZE])
        for part in ("query", "key", "value")
    }
    output = _dense(f"{scope}/self_attention/attention_output", [HEADS, SIZE], [WIDTH])
    return Node(
        _attention_layer=Node(**split, _output_dense=output),
        _attention_layer_norm=_norm(f"{scope}/self_attention_layer_norm"),
        _intermediate_dense=_dense(f"{scope}/intermediate", [WIDTH], [INNER]),
        _output_dense=_dense(f"{scope}/output", [INNER], [WIDTH]),
        _output_layer_norm=_norm(f"{scope}/output_layer_norm"),
    )


def _encoder(prefix="bert_encoder_v2/"):
    return Node(
        **{
            attribute: Node(embeddings=_variable(f"{prefix}{name}", rows, WIDTH))
            for attribute, (name, rows) in TABLES.items()
        },
        _embedding_norm_layer=_norm(f"{prefix}embeddings/layer_norm"),
        _transformer_layers=[_layer(f"{prefix}transformer/layer_{i}") for i in range(2)],
        _pooler_layer=_dense(f"{prefix}pooler_transform", [WIDTH], [WIDTH]),
    )


def _open(folder, **roots):
    tf.train.Checkpoint(**roots).write(str(folder / "ckpt"))
    return checkpoints.open_contents(folder)


def test_pretraining(tmp_path):
    encoder = _encoder()
    masked = Node(
        # The tied table lies under the head, whose way to it is the shorter one.
        embedding_table=encoder._embedding_layer.embeddings,
        dense=_dense("bert/cls/predictions/transform/dense", [WIDTH], [WIDTH]),
        layer_norm=_norm("bert/cls/predictions/transform/LayerNorm"),
        bias=_variable("bert/cls/predictions/output_bias/bias", WORDS),
    )
    head = Node(
        dense=_dense("bert/next_sentence/pooler_dense", [WIDTH], [WIDTH]),
        out_proj=_dense("bert/next_sentence/logits", [WIDTH], [2]),
    )
    slot = _variable("Adam/m/bert_encoder_v2/word_embeddings/embeddings", WORDS, WIDTH)
    held = _open(
        tmp_path,
        encoder=encoder,
        masked_lm=masked,
        model=Node(classification_heads=[head]),
        optimizer=Node(_variables=[slot]),
        global_step=tf.Variable(3, dtype=tf.int64),
    )
    words = encoder._embedding_layer.embeddings
    assert held.file_names["bert/embeddings/word_embeddings"].startswith("masked_lm/")
    np.testing.assert_array_equal(held.read("bert/embeddings/word_embeddings"), words)
    np.testing.assert_array_equal(held.read("bert/pooler/dense/kernel"), head.dense.kernel)
    nsp = held.read("cls/seq_relationship/output_weights")
    np.testing.assert_array_equal(nsp, tf.transpose(head.out_proj.kernel))
    attention = encoder._transformer_layers[1]._attention_layer
    query = held.read("bert/encoder/layer_1/attention/self/query/kernel")
    np.testing.assert_array_equal(query, tf.reshape(attention._query_dense.kernel, [WIDTH, -1]))
    output = held.read("bert/encoder/layer_1/attention/output/dense/kernel")
    np.testing.assert_array_equal(output, tf.reshape(attention._output_dense.kernel, [-1, WIDTH]))
    assert "cls/predictions/transform/LayerNorm/beta" in held.shapes
    assert held.shapes["cls/predictions/output_bias"] == (WORDS,)
    # The encoder's own pooler, which such a head doesn't use.
    assert [name.split("/")[1] for name in held.unmapped] == ["_pooler_layer", "_pooler_layer"]
    assert len(held.ignored) == 2
    assert held.num_attention_heads == HEADS


@pytest.mark.parametrize(
    ("attribute", "in_network", "weight", "head"),
    [
        ("span_labeling", True, "cls/squad/output_weights", None),
        ("classification", True, "cls/seq_relationship/output_weights", None),  # 2020's pre-trainer
        ("classifier", True, "output_weights", None),  # 2020's classifier
        ("classifier", False, "output_weights", "tags"),
    ],
)
def test_heads_of_one_name_in_several_places(tmp_path, attribute, in_network, weight, head):
    dense = _dense("predictions/transform/logits", [WIDTH], [2])
    part = Node(part=dense) if in_network else dense
    held = _open(tmp_path, model=Node(network=_encoder(""), **{attribute: part}))
    np.testing.assert_array_equal(held.read(weight), tf.transpose(dense.kernel))
    assert len(held.shapes) == 39 + 2
    assert held.head == head


def test_one_output_is_a_number(tmp_path):
    head = Node(out_proj=_dense("sentence_prediction/logits", [WIDTH], [1]))
    held = _open(tmp_path, model=Node(network=_encoder(""), classifier=head))
    config = checkpoints.config_of_checkpoint(held)
    assert checkpoint_head(held.shapes, config, held.head) == "regression"


def test_other_encoders_are_refused_by_name(tmp_path):
    projection = _dense("embedding_projection", [WIDTH], [WIDTH])
    with pytest.raises(ModelingError, match=r"embedding_projection/kernel"):
        _open(tmp_path, model=_encoder(), projection=projection)
    with pytest.raises(ModelingError, match=r"word_embeddings twice"):
        _open(tmp_path, one=_encoder(), other=_encoder())


def test_other_number_of_heads_is_refused(tmp_path):
    held = _open(tmp_path, model=_encoder())
    config = checkpoints.config_of_checkpoint(held)
    assert (config.num_hidden_layers, config.num_attention_heads) == (2, HEADS)
    assert (config.vocab_size, config.intermediate_size) == (WORDS, INNER)
    model = BertClassifier(BertConfig(**{**vars(config), "num_attention_heads": 3}), 2)
    with pytest.raises(ModelingError, match=r"2 attention heads.*num_attention_heads 3"):
        checkpoints.load(model, tmp_path)


def test_which_one_is_meant(tmp_path):
    encoder = tf.train.Checkpoint(model=_encoder())
    for name in ("one", "two"):
        encoder.write(str(tmp_path / name))
    with pytest.raises(ModelingError, match=r"several checkpoints: .*one, .*two"):
        checkpoints.open_contents(tmp_path)
    assert garden_file(str(tmp_path / "one.index")) == str(tmp_path / "one")
    assert garden_file(str(tmp_path / "three")) is None


@pytest.mark.parametrize("ending", ["index", "data-00000-of-00001"])
@pytest.mark.parametrize("damage", ["truncated", "shuffled"])
def test_damaged(tmp_path, ending, damage):
    _open(tmp_path, model=_encoder())
    file = tmp_path / f"ckpt.{ending}"
    content = file.read_bytes()
    half = len(content) // 2
    file.write_bytes(content[:half] if damage == "truncated" else content[half:] + content[:half])
    with pytest.raises(ModelingError, match=r"ckpt") as raised:
        held = checkpoints.open_contents(tmp_path)
        for weight in held.shapes:
            held.read(weight)
    assert "\n\n" not in str(raised.value)
