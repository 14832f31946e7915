"""The SavedModel that turns texts into vectors: of texts, of pieces, of words."""

from collections.abc import Callable, Mapping
from typing import Protocol

import tensorflow as tf

from modeling.errors import ModelingError
from modeling.serving.buckets import in_buckets
from modeling.serving.export import IDS, Export, Signature, in_function, refuse_large_request
from modeling.vectors.vector_models import BertVectors, pool_vectors, unit_length

_MOST_NUMBERS = 2**28  # a gigabyte; twice as much is more than gRPC can send


_PLACED = ("starts", "ends", "vectors")


class _PiecesAndWords(Protocol):
    """What the text side gives, in the graph; `data.vectors.serving_inputs` makes it."""

    inputs: Mapping[str, tf.Tensor]
    tokens: tf.Tensor
    starts: tf.Tensor
    ends: tf.Tensor
    word_numbers: tf.Tensor
    words: tf.Tensor
    word_starts: tf.Tensor
    word_ends: tf.Tensor


def export_embeddings(
    model: BertVectors,
    export: Export,
    text_pieces: Callable[[tf.Tensor], _PiecesAndWords],
    pooling: str,
) -> str:
    """Exports an encoder as the next version; returns its folder.

    Signatures, from string `text` [B]; D is the width of all layers' vectors together:
        serving_default: `embedding` float32 [B, D], each of length 1, so that the product of two
            is their cosine.
        pieces: `tokens` string [B, T] ("" at padding), `starts`, `ends` int32 [B, T], characters
            of the text (-1 at [CLS], [SEP] and padding), `vectors` float32 [B, T, D] (0 at
            padding).
        words: `words` string [B, W], what white space separates, if it has a piece within the
            model's length ("" for what is lacking); `starts`, `ends` int32 [B, W] (-1), `vectors`
            float32 [B, W, D], means of the pieces' (0).
        examples: serialized tf.Examples with `text` → as serving_default.
        tokenized: int32 `input_ids`, `input_mask`, `segment_ids` [B, T] → `embedding`.

    Args:
        model: Not pooled and not normalised.
        export: Where, and with what.
        text_pieces: From texts to pieces, in the graph.
        pooling: "cls", "mean" or "max": how the vectors of a text become one.
    """
    if pooling == "none" or model.pooling != "none" or model.normalize:
        raise ModelingError(
            f"An exported encoder pools by itself; it got a model with pooling {model.pooling} and "
            f"the pooling {pooling}."
        )
    servable = export.servable(model)
    width = len(model.layer_names) * model.width

    def of_batch(batch):
        """float32 `vectors` [B, T, D], 0 at padding; `embedding` [B, D]."""
        vectors = tf.cast(servable(batch)["vectors"], tf.float32)
        shape = tf.shape(vectors)
        real = tf.cast(batch["input_mask"], tf.float32)[..., tf.newaxis]
        vectors = tf.reshape(vectors, [shape[0], shape[1], width]) * real
        pooled = pool_vectors(vectors, batch["input_mask"], pooling)
        return {"vectors": vectors, "embedding": unit_length(pooled)}

    @in_function
    def embed_ids(**inputs):
        zeros = tf.zeros([tf.shape(inputs["input_ids"])[0], width])
        return in_buckets(of_batch, inputs, {"embedding": zeros})

    def embed(text):
        return embed_ids(**text_pieces(text).inputs)

    @in_function
    def pieces_and_vectors(text):
        pieces = text_pieces(text)
        shape = tf.shape(pieces.inputs["input_ids"])
        remedy = "Send fewer texts at once, or the long ones by themselves."
        check = refuse_large_request("pieces", shape[0], shape[1], _MOST_NUMBERS // width, remedy)
        with tf.control_dependencies([check]):
            zeros = tf.zeros([shape[0], shape[1], width])
        return pieces, in_buckets(of_batch, pieces.inputs, {"vectors": zeros})["vectors"]

    def of_pieces(text):
        pieces, vectors = pieces_and_vectors(text)
        return {
            "tokens": pieces.tokens,
            "starts": pieces.starts,
            "ends": pieces.ends,
            "vectors": vectors,
        }

    def of_words(text):
        pieces, vectors = pieces_and_vectors(text)
        number = tf.shape(pieces.words)[1]
        row = tf.range(tf.shape(pieces.words)[0])[:, tf.newaxis]
        # What belongs to no word goes to a segment below 0, which is left out.
        segment = tf.where(pieces.word_numbers >= 0, row * number + pieces.word_numbers, -1)
        means = tf.math.unsorted_segment_mean(
            tf.reshape(vectors, [-1, width]),
            tf.reshape(segment, [-1]),
            tf.size(pieces.words),
        )
        return {
            "words": pieces.words,
            "starts": pieces.word_starts,
            "ends": pieces.word_ends,
            "vectors": tf.reshape(means, [tf.shape(pieces.words)[0], number, width]),
        }

    text = {"text": tf.TensorSpec([None], tf.string)}
    signatures = {
        "serving_default": Signature(embed, text),
        "pieces": Signature(of_pieces, text, lists=[["tokens", *_PLACED]]),
        "words": Signature(of_words, text, lists=[["words", *_PLACED]]),
        "tokenized": Signature(embed_ids, IDS),
    }
    return export.write(servable, signatures)
