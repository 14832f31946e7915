"""The SavedModel of a pre-trained model: words for [MASK], next sentences, how likely a text is."""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import tensorflow as tf

from modeling.config import BIDIRECTIONAL, LEFT_TO_RIGHT
from modeling.models import BertPretrainer
from modeling.serving.buckets import PIECES, in_buckets
from modeling.serving.export import IDS, Export, Signature, in_function

MOST_LOGITS = 2**26
"""Of masked places together, in one step."""

ROWS_AT_ONCE = 32
"""Rows that a text's likelihood is computed in; a text has one for each of its pieces."""

TEXT = {"text": tf.TensorSpec([None], tf.string)}
PAIR = {name: tf.TensorSpec([None], tf.string) for name in ("text_a", "text_b")}

Inputs = Mapping[str, tf.Tensor]


class ServingVocabulary(Protocol):
    """What the export asks of the tokenizer."""

    vocab: Sequence[str]
    mask_id: int
    cls_id: int
    sep_id: int


def export_pretrainer(
    model: BertPretrainer,
    export: Export,
    preprocess: Callable[..., Inputs],
    vocabulary: ServingVocabulary,
    top_k: int,
) -> str:
    """Exports a pre-trained model as the next version; returns its folder.

    Signatures, with any batch size; M is the most [MASK]s that a text of the batch has:
        serving_default: string `text` [B] → `words` string [B, M, K] and `scores` float32
            [B, M, K], the likeliest tokens for each [MASK] and their probabilities; "" and 0 where
            a text has fewer. Of a left-to-right model the likeliest next tokens, [B, K], of a
            right-to-left one those before the text.
        log_likelihood: string `text` [B] → `log_likelihood` float32 [B], `num_pieces` int32 [B],
            `perplexity` float32 [B]. The sum of each piece's natural log probability given all
            others, masked one at a time (Salazar et al. 2020, "Masked Language Model Scoring");
            of a model in one direction given those before it, or after it. Costs a row per piece.
        next_sentence: string `text_a`, `text_b` [B] → `is_next` float32 [B], the probability that
            B follows A. Only of models with that head.
        examples: serialized tf.Examples with `text` → as serving_default.
        tokenized: int32 `input_ids`, `input_mask`, `segment_ids` [B, T], `masked_lm_positions`
            [B, P] → `words`, `scores` [B, P, K].

    Args:
        model: The pre-trained model.
        export: Where, and with what.
        preprocess: One or two string tensors [B] → the model's inputs, in the graph; keeps [MASK].
            Its argument `long_text` says what stays of too long a text, its head or its tail.
        vocabulary: Of the tokens.
        top_k: K, how many tokens per place.
    """
    servable, ends = export.servable(model), functools.partial(preprocess, long_text="tail")
    preprocess = in_function(preprocess)
    tokens = tf.constant(list(vocabulary.vocab), tf.string)
    one_way = model.config.attention_direction != BIDIRECTIONAL
    left_to_right = model.config.attention_direction == LEFT_TO_RIGHT

    def likeliest(inputs: Inputs) -> dict[str, tf.Tensor]:
        probabilities = tf.nn.softmax(servable(inputs)["masked_lm_logits"])
        # A configuration may have rows behind the vocabulary's, which stand for no token.
        scores, ids = tf.math.top_k(probabilities[..., : len(vocabulary.vocab)], top_k)
        return {"scores": scores, "ids": ids}

    def of_positions(cut=PIECES, **inputs) -> dict[str, tf.Tensor]:
        shape = tf.shape(inputs["masked_lm_positions"])
        # A number for each token of the vocabulary at each place.
        most_rows = MOST_LOGITS // (len(vocabulary.vocab) * tf.maximum(shape[1], 1))
        zeros = tf.zeros([shape[0], shape[1], top_k])
        zeros = {"scores": zeros, "ids": tf.cast(zeros, tf.int32)}
        candidates = in_buckets(likeliest, inputs, zeros, cut, most_rows)
        return {"words": tf.gather(tokens, candidates["ids"]), "scores": candidates["scores"]}

    def of_masks(text):
        inputs = preprocess(text)
        at = tf.where(inputs["input_ids"] == vocabulary.mask_id)
        rows = tf.size(text, tf.int64)
        masks = tf.RaggedTensor.from_value_rowids(at[:, 1], at[:, 0], rows, validate=False)
        # A place at least, as the model can't do without.
        lacking = tf.maximum(1 - tf.reduce_max(tf.concat([masks.row_lengths(), [0]], 0)), 0)
        positions = tf.pad(tf.cast(masks.to_tensor(), tf.int32), [[0, 0], [0, lacking]])
        is_mask = tf.sequence_mask(masks.row_lengths(), tf.shape(positions)[1])[..., tf.newaxis]
        # A text has no more [MASK]s than pieces.
        cut = (*PIECES, "masked_lm_positions")
        candidates = of_positions(cut, **inputs, masked_lm_positions=positions)
        most = tf.shape(positions, tf.int64)[1] - lacking
        return {
            "words": tf.where(is_mask, candidates["words"], "")[:, :most],
            "scores": tf.where(is_mask, candidates["scores"], 0.0)[:, :most],
        }

    def of_ends(text):
        inputs = ends(text) if left_to_right else preprocess(text)
        # The last piece, before [SEP], predicts what comes next, the first what comes before.
        last = tf.reduce_sum(inputs["input_mask"], 1, keepdims=True) - 2
        end = last if left_to_right else tf.ones_like(last)
        candidates = of_positions(**inputs, masked_lm_positions=end)
        return {name: value[:, 0] for name, value in candidates.items()}

    def log_likelihood(text):
        inputs = preprocess(text)
        ids = inputs["input_ids"]
        words = (
            (inputs["input_mask"] != 0) & (ids != vocabulary.cls_id) & (ids != vocabulary.sep_id)
        )
        places = tf.where(words)
        if one_way:
            scores = _one_way_scores(servable, inputs, left_to_right)
        else:
            scores = _masked_scores(servable, inputs, places, vocabulary.mask_id)
        count = tf.size(text, tf.int64)
        total = tf.math.unsorted_segment_sum(scores, places[:, 0], count)
        number = tf.math.unsorted_segment_sum(tf.ones_like(places[:, 0]), places[:, 0], count)
        mean = tf.math.divide_no_nan(total, tf.cast(number, tf.float32))
        return {
            "log_likelihood": total,
            "num_pieces": tf.cast(number, tf.int32),
            "perplexity": tf.exp(-mean),
        }

    def is_next(inputs: Inputs):
        return {"is_next": tf.nn.softmax(servable(inputs)["next_sentence_logits"])[:, 0]}

    def next_sentence(text_a, text_b):
        inputs = preprocess(text_a, text_b)
        return in_buckets(is_next, inputs, {"is_next": tf.zeros(tf.shape(text_a))})

    def masked(text: str) -> str:
        return text if one_way else f"{text} [MASK]"

    def short(text: str) -> str:
        return " ".join(text.split()[:4])

    ids = IDS | {"masked_lm_positions": tf.TensorSpec([None, None], tf.int32)}
    signatures = {
        "serving_default": Signature(
            *(of_ends if one_way else of_masks, TEXT, masked),
            lists=() if one_way else [["words", "scores"]],
        ),
        "log_likelihood": Signature(log_likelihood, TEXT, short),
        "tokenized": Signature(of_positions, ids),
    }
    if model.next_sentence is not None:
        signatures["next_sentence"] = Signature(next_sentence, PAIR)
    return export.write(servable, signatures)


def _masked_scores(servable, inputs: Inputs, places: tf.Tensor, mask_id: int) -> tf.Tensor:
    """Log probability of each piece at `places` int64 [n, 2] when it alone is masked: [n]."""
    lengths = tf.reduce_sum(inputs["input_mask"], 1)

    def part(first):
        chosen = places[first : first + ROWS_AT_ONCE]
        rows, columns = chosen[:, 0], chosen[:, 1:]
        longest = tf.reduce_max(tf.gather(lengths, rows))
        batch = {name: tf.gather(inputs[name], rows)[:, :longest] for name in IDS}
        at = tf.concat([tf.range(tf.size(rows, tf.int64))[:, tf.newaxis], columns], 1)
        originals = tf.gather_nd(batch["input_ids"], at)
        batch["input_ids"] = tf.tensor_scatter_nd_update(
            batch["input_ids"], at, tf.fill([tf.size(rows)], mask_id)
        )
        batch["masked_lm_positions"] = tf.cast(columns, tf.int32)
        logits = servable(batch)["masked_lm_logits"][:, 0]
        return -tf.nn.sparse_softmax_cross_entropy_with_logits(originals, logits)

    return _in_parts(part, tf.shape(places)[0], ROWS_AT_ONCE)


def _one_way_scores(servable, inputs: Inputs, left_to_right: bool) -> tf.Tensor:
    """Log probability of each piece of all texts, given those on one side: [n]."""

    def part(row):
        batch = {name: inputs[name][row : row + 1, : lengths[row]] for name in IDS}
        ids = batch["input_ids"][0]
        batch["masked_lm_positions"] = tf.range(lengths[row] - 1)[tf.newaxis]
        if not left_to_right:
            batch["masked_lm_positions"] += 1
        logits = servable(batch)["masked_lm_logits"][0]
        predicted = ids[1:] if left_to_right else ids[:-1]
        scores = -tf.nn.sparse_softmax_cross_entropy_with_logits(predicted, logits)
        # Without [SEP] or [CLS], as without them the places count.
        return scores[:-1] if left_to_right else scores[1:]

    lengths = tf.reduce_sum(inputs["input_mask"], 1)
    return _in_parts(part, tf.shape(lengths)[0], 1)


def _in_parts(part: Callable, count: tf.Tensor, size: int) -> tf.Tensor:
    """Joins what `part` gives from 0, size, … on: float32 vectors."""
    # Not by joining in each step, which copies all that is there.
    parts = tf.TensorArray(
        tf.float32, -(-count // size), infer_shape=False, element_shape=tf.TensorShape([None])
    )

    def body(first, parts):
        return first + size, parts.write(first // size, part(first))

    _, parts = tf.while_loop(
        lambda first, _: first < count, body, (tf.constant(0), parts), parallel_iterations=1
    )
    return parts.concat()
