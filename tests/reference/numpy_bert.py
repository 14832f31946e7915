"""BERT in float64 NumPy: the oracle that the Keras model and optimizer are checked against.

Written from the paper (Devlin et al. 2019; Vaswani et al. 2017 for the layer) and from the
documented numerics of the original release; it shares no code with the package. Weights are a
dictionary of TF1 variable names to arrays, the configuration is a plain dictionary with the keys
of bert_config.json. Clarity before speed: it is meant for a few short sequences.
"""

import math
import re
from collections.abc import Mapping, Sequence

import numpy as np

Weights = Mapping[str, np.ndarray]


# --- weights ------------------------------------------------------------------------------------


def variable_shapes(config: Mapping, heads: Sequence[str] = ("pretraining",), labels: int = 2):
    """Names and shapes of a model's variables, as a dict in the original's creation order.

    Args:
        config: Keys of bert_config.json.
        heads: Any of "pretraining", "classifier", "squad".
        labels: Number of classes of the classifier head.
    """
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    shapes = {
        "bert/embeddings/word_embeddings": (config["vocab_size"], hidden),
        "bert/embeddings/token_type_embeddings": (config["type_vocab_size"], hidden),
        "bert/embeddings/position_embeddings": (config["max_position_embeddings"], hidden),
        **_norm("bert/embeddings", hidden),
    }
    for i in range(config["num_hidden_layers"]):
        layer = f"bert/encoder/layer_{i}"
        for part in ("query", "key", "value"):
            shapes |= _dense(f"{layer}/attention/self/{part}", hidden, hidden)
        shapes |= _dense(f"{layer}/attention/output/dense", hidden, hidden)
        shapes |= _norm(f"{layer}/attention/output", hidden)
        shapes |= _dense(f"{layer}/intermediate/dense", hidden, inner)
        shapes |= _dense(f"{layer}/output/dense", inner, hidden)
        shapes |= _norm(f"{layer}/output", hidden)
    shapes |= _dense("bert/pooler/dense", hidden, hidden)
    if "pretraining" in heads:
        shapes |= _dense("cls/predictions/transform/dense", hidden, hidden)
        shapes |= _norm("cls/predictions/transform", hidden)
        shapes["cls/predictions/output_bias"] = (config["vocab_size"],)
        shapes |= _two_rows("cls/seq_relationship/", 2, hidden)
    if "classifier" in heads:
        shapes |= _two_rows("", labels, hidden)
    if "squad" in heads:
        shapes |= _two_rows("cls/squad/", 2, hidden)
    return shapes


def _dense(scope: str, inputs: int, outputs: int) -> dict:
    return {f"{scope}/kernel": (inputs, outputs), f"{scope}/bias": (outputs,)}


def _norm(scope: str, size: int) -> dict:
    return {f"{scope}/LayerNorm/beta": (size,), f"{scope}/LayerNorm/gamma": (size,)}


def _two_rows(scope: str, rows: int, hidden: int) -> dict:
    return {f"{scope}output_weights": (rows, hidden), f"{scope}output_bias": (rows,)}


def random_weights(
    config: Mapping,
    seed: int = 0,
    heads: Sequence[str] = ("pretraining",),
    labels: int = 2,
    scale: float = 0.15,
) -> dict[str, np.ndarray]:
    """Random float32 weights, far from the initial values: no bias is 0 and no gamma is 1.

    `scale` is large enough that attention and gelu leave their linear range, so that a wrong
    formula shows up in the outputs.
    """
    rng = np.random.default_rng(seed)
    weights = {}
    for name, shape in variable_shapes(config, heads, labels).items():
        centre = 1.0 if name.endswith("gamma") else 0.0
        weights[name] = rng.normal(centre, scale, shape).astype(np.float32)
    return weights


def random_inputs(config: Mapping, batch: int, length: int, predictions: int, seed: int = 0):
    """A batch of record-shaped int32 inputs (weights float32) with padding and padded slots."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(max(2, length // 2), length + 1, batch)
    lengths[0] = length
    mask = (np.arange(length) < lengths[:, None]).astype(np.int32)
    segments = rng.integers(0, config["type_vocab_size"], (batch, length)) * mask
    positions = np.stack([rng.integers(0, n, predictions) for n in lengths])
    weights = np.ones((batch, predictions), np.float32)
    weights[-1, predictions // 2 :] = 0.0
    return {
        "input_ids": (rng.integers(0, config["vocab_size"], (batch, length)) * mask).astype("i4"),
        "input_mask": mask,
        "segment_ids": segments.astype("i4"),
        "masked_lm_positions": positions.astype("i4"),
        "masked_lm_ids": rng.integers(0, config["vocab_size"], positions.shape).astype("i4"),
        "masked_lm_weights": weights,
        "next_sentence_labels": rng.integers(0, 2, (batch, 1)).astype("i4"),
    }


# --- forward ------------------------------------------------------------------------------------


def forward(weights: Weights, config: Mapping, inputs: Mapping) -> dict:
    """The inference-mode forward pass in float64.

    Args:
        weights: TF1 names to arrays of any float dtype.
        config: Keys of bert_config.json; hidden_act "gelu" is the tanh form, "gelu_erf" the exact.
        inputs: input_ids [B, T]; optionally input_mask and segment_ids [B, T], position_ids and
            sequence_ids [B, T] (tokens see their own number only), and masked_lm_positions [B, P].

    Returns:
        embedding_output [B, T, H], encoder_outputs and attention_probs (lists, one per layer,
        [B, T, H] and [B, A, T, T]), sequence_output, pooled_output [B, H]; where the weights hold
        the head, masked_lm_log_probs [B, P, V], next_sentence_log_probs [B, 2], logits
        [B, labels], start_logits and end_logits [B, T].
    """
    w = {name: np.asarray(value, np.float64) for name, value in weights.items()}
    ids = np.asarray(inputs["input_ids"])
    batch, length = ids.shape
    mask = np.asarray(inputs.get("input_mask", np.ones_like(ids)), np.float64)
    segments = np.asarray(inputs.get("segment_ids", np.zeros_like(ids)))
    places = np.asarray(inputs.get("position_ids", np.arange(length)))
    sequences = np.asarray(inputs.get("sequence_ids", np.zeros_like(ids)))
    act = ACTIVATIONS[config.get("hidden_act", "gelu")]
    epsilon = config.get("layer_norm_eps", 1e-12)
    heads = config["num_attention_heads"]

    def norm(x, scope, epsilon=epsilon):
        return layer_norm(x, w[f"{scope}/gamma"], w[f"{scope}/beta"], epsilon)

    def dense(x, scope):
        return x @ w[f"{scope}/kernel"] + w[f"{scope}/bias"]

    # Segments go through a one-hot product in the original: an id out of range adds nothing.
    table = w["bert/embeddings/token_type_embeddings"]
    segment_one_hot = (segments[..., None] == np.arange(len(table))).astype(np.float64)
    x = (
        w["bert/embeddings/word_embeddings"][ids]
        + segment_one_hot @ table
        + w["bert/embeddings/position_embeddings"][places]
    )
    x = norm(x, "bert/embeddings/LayerNorm")
    result = {"embedding_output": x, "encoder_outputs": [], "attention_probs": []}

    visible = mask[:, None, :] * (sequences[:, :, None] == sequences[:, None, :])
    adder = (1.0 - visible)[:, None] * -10000.0
    for i in range(config["num_hidden_layers"]):
        layer = f"bert/encoder/layer_{i}"
        query, key, value = (
            dense(x, f"{layer}/attention/self/{part}")
            .reshape(batch, length, heads, -1)
            .transpose(0, 2, 1, 3)
            for part in ("query", "key", "value")
        )
        scores = query @ key.transpose(0, 1, 3, 2) / math.sqrt(query.shape[-1]) + adder
        probs = np.exp(log_softmax(scores))
        context = (probs @ value).transpose(0, 2, 1, 3).reshape(batch, length, -1)
        attended = dense(context, f"{layer}/attention/output/dense")
        x = norm(x + attended, f"{layer}/attention/output/LayerNorm")
        inner = act(dense(x, f"{layer}/intermediate/dense"))
        x = norm(x + dense(inner, f"{layer}/output/dense"), f"{layer}/output/LayerNorm")
        result["encoder_outputs"].append(x)
        result["attention_probs"].append(probs)
    result["sequence_output"] = x
    pooled = np.tanh(dense(x[:, 0], "bert/pooler/dense"))
    result["pooled_output"] = pooled

    if "cls/predictions/output_bias" in w and "masked_lm_positions" in inputs:
        positions = np.asarray(inputs["masked_lm_positions"])
        chosen = np.take_along_axis(x, positions[..., None], axis=1)
        act = ACTIVATIONS[config.get("masked_lm_hidden_act", config.get("hidden_act", "gelu"))]
        chosen = act(dense(chosen, "cls/predictions/transform/dense"))
        epsilon = config.get("masked_lm_layer_norm_eps", epsilon)
        chosen = norm(chosen, "cls/predictions/transform/LayerNorm", epsilon)
        logits = chosen @ w["bert/embeddings/word_embeddings"].T + w["cls/predictions/output_bias"]
        result["masked_lm_log_probs"] = log_softmax(logits)
    if "cls/seq_relationship/output_weights" in w:
        logits = _head(pooled, w, "cls/seq_relationship/")
        result["next_sentence_log_probs"] = log_softmax(logits)
    if "output_weights" in w:
        result["logits"] = _head(pooled, w, "")
    if "cls/squad/output_weights" in w:
        spans = _head(x, w, "cls/squad/")
        result["start_logits"], result["end_logits"] = spans[..., 0], spans[..., 1]
    return result


def losses(outputs: Mapping, inputs: Mapping) -> dict[str, float]:
    """masked_lm_loss, next_sentence_loss and their sum, as the original defines them."""
    log_probs, ids = outputs["masked_lm_log_probs"], np.asarray(inputs["masked_lm_ids"])
    nll = -np.take_along_axis(log_probs, ids[..., None], axis=-1)[..., 0]
    slot_weights = np.asarray(inputs["masked_lm_weights"], np.float64)
    masked_lm = float((slot_weights * nll).sum() / (slot_weights.sum() + 1e-5))
    labels = np.asarray(inputs["next_sentence_labels"]).reshape(-1)
    chosen = outputs["next_sentence_log_probs"][np.arange(len(labels)), labels]
    next_sentence = float(-chosen.mean())
    return {
        "masked_lm_loss": masked_lm,
        "next_sentence_loss": next_sentence,
        "total_loss": masked_lm + next_sentence,
    }


def _head(x: np.ndarray, w: Weights, scope: str) -> np.ndarray:
    return x @ w[f"{scope}output_weights"].T + w[f"{scope}output_bias"]


def layer_norm(x: np.ndarray, gamma: np.ndarray, beta: np.ndarray, epsilon: float) -> np.ndarray:
    """Normalises the last axis with its biased variance."""
    centred = x - x.mean(-1, keepdims=True)
    variance = (centred**2).mean(-1, keepdims=True)
    return centred / np.sqrt(variance + epsilon) * gamma + beta


def log_softmax(x: np.ndarray) -> np.ndarray:
    """Logarithm of the softmax over the last axis."""
    shifted = x - x.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


_erf = np.vectorize(math.erf, otypes=[np.float64])

ACTIVATIONS = {
    "gelu": lambda x: 0.5 * x * (1.0 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "gelu_erf": lambda x: 0.5 * x * (1.0 + _erf(x / math.sqrt(2.0))),
    "quick_gelu": lambda x: x / (1.0 + np.exp(-1.702 * x)),
    "relu": lambda x: np.maximum(x, 0.0),
    "silu": lambda x: x / (1.0 + np.exp(-x)),
    "mish": lambda x: x * np.tanh(np.log1p(np.exp(x))),
    "tanh": np.tanh,
    "linear": lambda x: x,
}


# --- optimizer ----------------------------------------------------------------------------------

NO_DECAY = ("LayerNorm", "layer_norm", "bias")


def learning_rate(step: int, initial: float, train_steps: int, warmup_steps: int) -> float:
    """Linear decay to 0 over `train_steps`; below `warmup_steps` a linear rise replaces it.

    `step` is the number of updates done. At the end of warm-up the rate drops, as in the original.
    """
    if step < warmup_steps:
        return initial * step / warmup_steps
    return initial * (1.0 - min(step, train_steps) / train_steps)


def global_norm(gradients: Mapping[str, np.ndarray]) -> float:
    """Euclidean norm of all gradients together."""
    return math.sqrt(sum(float((np.asarray(g, np.float64) ** 2).sum()) for g in gradients.values()))


def adam_step(
    weights: dict[str, np.ndarray],
    gradients: Mapping[str, np.ndarray],
    slots: dict[str, tuple[np.ndarray, np.ndarray]],
    rate: float,
    *,
    clip_norm: float | None = 1.0,
    decay: float = 0.01,
    no_decay: Sequence[str] = NO_DECAY,
    beta_1: float = 0.9,
    beta_2: float = 0.999,
    epsilon: float = 1e-6,
    norm: float | None = None,
) -> None:
    """One step of the original's Adam on float64 `weights` and `slots`, both changed in place.

    No bias correction, epsilon outside the root, decay decoupled (added to the update, so scaled
    by the rate) and left out where any of `no_decay` is found in the full variable name.

    Args:
        weights: TF1 names to float64 arrays.
        gradients: The same names to dense gradients.
        slots: Name to (m, v); filled with zeros at the first step.
        rate: Learning rate of this step.
        clip_norm: Limit of the global norm, or None.
        norm: The norm to clip with, when it isn't that of `gradients` (the original measures a
            sparse embedding gradient before its duplicate rows are summed).
    """
    factor = 1.0
    if clip_norm is not None:
        factor = clip_norm / max(norm if norm is not None else global_norm(gradients), clip_norm)
    for name, gradient in gradients.items():
        g = np.asarray(gradient, np.float64) * factor
        m, v = slots.get(name, (np.zeros_like(g), np.zeros_like(g)))
        m = beta_1 * m + (1.0 - beta_1) * g
        v = beta_2 * v + (1.0 - beta_2) * g * g
        slots[name] = (m, v)
        update = m / (np.sqrt(v) + epsilon)
        if not any(re.search(pattern, name) for pattern in no_decay):
            update = update + decay * weights[name]
        weights[name] = weights[name] - rate * update
