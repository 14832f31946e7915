"""The SavedModel that tags: texts or words in; words, tags and entities with their places out."""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import tensorflow as tf

from modeling.answers.tags import EntitiesFromTagLogits, TagsFromLogits
from modeling.serving.buckets import in_buckets
from modeling.serving.export import (
    IDS,
    MOST_PLACES,
    Export,
    Signature,
    in_function,
    refuse_large_request,
)

_WORDS = ("words", "tags", "scores", "starts", "ends", "start_bytes", "end_bytes")
_PLACES = ("starts", "ends", "start_bytes", "end_bytes", "start_words", "end_words")
_OF_ENTITY = ("texts", "types", "scores", *_PLACES)
_ENTITIES = tuple(f"entity_{name}" for name in _OF_ENTITY)


class ServingTagInputs(Protocol):
    """What the text side gives, in the graph; `data.tasks.tagging.inputs` makes it.

    Attributes:
        words: string [N, (words)].
        byte_starts, byte_ends, starts, ends: int32 [N, (words)]; where they lie in the texts, in
            bytes and in characters.
        input_ids: int32 [rows, (length)].
        scored: int64 [rows, 2]; from which place in each row to before which one its pieces
            count; together, in order, these are the pieces of all words.
        first_pieces: int64 [K]; which of these pieces are the first of a word.
        tagged_words: int64 [K]; which words these are, counting through all texts. Words that
            have no piece aren't among them.
    """

    words: tf.RaggedTensor
    byte_starts: tf.RaggedTensor
    byte_ends: tf.RaggedTensor
    starts: tf.RaggedTensor
    ends: tf.RaggedTensor
    input_ids: tf.RaggedTensor
    scored: tf.Tensor
    first_pieces: tf.Tensor
    tagged_words: tf.Tensor

    def slices(self, rows: tf.Tensor, begins: tf.Tensor, ends: tf.Tensor) -> tf.Tensor:
        """string [n]: of the texts int64 `rows`, from int32 `begins` to before `ends` in bytes."""


def export_tagger(
    model,
    export: Export,
    from_texts: Callable[[tf.Tensor], ServingTagInputs],
    from_words: Callable[[tf.Tensor], ServingTagInputs],
    tags: Sequence[str],
) -> str:
    """Exports a tagger as the next version; returns its folder.

    Signatures, with any batch size and any length:
        serving_default: string `text` [B].
        words: string `words` [B, W], texts that are split already; shorter ones are filled up
            with "", which is tagged O. Places of entities are those in the words joined, as
            `tag_inputs_from_words` says.
        examples: serialized tf.Examples with `text` → as serving_default.
        tokenized: int32 `input_ids`, `input_mask`, `segment_ids` [B, T] → `tags` string and
            `scores` float32 [B, T], the tag of each piece and its probability.

    The first three give, filled up with "" or -1:
        words, tags: string [B, W]. As many tags as words, always; O for words without a piece.
        scores: float32 [B, W], the probability of each word's tag; 1 for words without a piece.
        starts, ends, start_bytes, end_bytes: int32 [B, W]; where the words lie in the text, from
            and to before, in characters and bytes.
        entity_types, entity_texts: string [B, E].
        entity_scores: float32 [B, E], the score of the entity's least sure word.
        entity_starts, entity_ends, entity_start_bytes, entity_end_bytes: int32 [B, E].
        entity_start_words, entity_end_words: int32 [B, E].

    Args:
        model: `BertTagger`, or whatever takes its inputs.
        export: Where, and with what.
        from_texts, from_words: To the model's inputs, in the graph.
        tags: Their names in the order of their numbers, O among them.
    """
    servable = export.servable(model)
    number, read = TagsFromLogits(servable), EntitiesFromTagLogits(tags)
    names = tf.constant(list(tags), tf.string)
    types = tf.constant(read.types or [""], tf.string)
    outside = [float(list(tags).index("O")), 1.0, 0.0]  # of words without a piece

    @in_function
    def numbers_of(batch: Mapping[str, tf.Tensor]) -> tf.Tensor:
        """float32 [rows, T, 3]: what `TagsFromLogits` gives."""
        zeros = tf.zeros([*tf.unstack(tf.shape(batch["input_ids"])), 3])
        return in_buckets(number, batch, {"tagged": zeros})["tagged"]

    def answer(inputs: ServingTagInputs) -> dict[str, tf.Tensor]:
        longest = tf.reduce_max(tf.concat([inputs.words.row_lengths(), [0]], 0))
        remedy = "Send fewer texts at once, or the long ones by themselves."
        check = refuse_large_request("words", inputs.words.nrows(), longest, MOST_PLACES, remedy)
        with tf.control_dependencies([check]):
            ids = inputs.input_ids.to_tensor()
        place = tf.range(tf.shape(ids, tf.int64)[1])[tf.newaxis]
        mask = tf.cast(place < inputs.input_ids.row_lengths()[:, tf.newaxis], tf.int32)
        batch = {"input_ids": ids, "input_mask": mask, "segment_ids": tf.zeros_like(ids)}
        tagged = numbers_of(batch)
        counts = (place >= inputs.scored[:, :1]) & (place < inputs.scored[:, 1:])
        of_words = tf.tensor_scatter_nd_update(
            tf.tile([outside], [tf.size(inputs.words.values), 1]),
            inputs.tagged_words[:, tf.newaxis],
            tf.gather(tf.boolean_mask(tagged, counts), inputs.first_pieces),
        )
        tags_of_words, scores = tf.cast(of_words[:, 0], tf.int32), of_words[:, 1]
        entities = read(inputs.words.with_values(tags_of_words))
        inside = tf.ragged.range(entities.firsts.values, entities.lasts.values + 1)
        entity_scores = tf.reduce_min(inside.with_values(tf.gather(scores, inside.values)), 1)

        def edges(starts: tf.RaggedTensor, ends: tf.RaggedTensor):
            """Where the entities begin and end, from where words do."""
            return (
                entities.firsts.with_values(tf.gather(starts.values, entities.firsts.values)),
                entities.lasts.with_values(tf.gather(ends.values, entities.lasts.values)),
            )

        starts, ends = edges(inputs.starts, inputs.ends)
        byte_starts, byte_ends = edges(inputs.byte_starts, inputs.byte_ends)
        in_text = tf.cast(
            tf.range(tf.size(scores, tf.int64))
            - tf.gather(inputs.words.row_starts(), inputs.words.value_rowids()),
            tf.int32,
        )
        in_text = inputs.words.with_values(in_text)
        first_words, end_words = edges(in_text, in_text + 1)
        texts = inputs.slices(entities.firsts.value_rowids(), byte_starts.values, byte_ends.values)
        strings = {
            "words": inputs.words,
            "tags": inputs.words.with_values(tf.gather(names, tags_of_words)),
            "entity_types": entities.types.with_values(tf.gather(types, entities.types.values)),
            "entity_texts": entities.firsts.with_values(texts),
        }
        numbers = {
            "scores": inputs.words.with_values(scores),
            "entity_scores": entities.firsts.with_values(entity_scores),
            "starts": inputs.starts,
            "ends": inputs.ends,
            "start_bytes": inputs.byte_starts,
            "end_bytes": inputs.byte_ends,
            "entity_starts": starts,
            "entity_ends": ends,
            "entity_start_bytes": byte_starts,
            "entity_end_bytes": byte_ends,
            "entity_start_words": first_words,
            "entity_end_words": end_words,
        }
        with tf.control_dependencies([check]):
            return {name: value.to_tensor("") for name, value in strings.items()} | {
                name: value.to_tensor(-1) for name, value in numbers.items()
            }

    def from_pieces(**inputs):
        shape = tf.shape(inputs["input_ids"])
        zeros = tf.zeros([shape[0], shape[1], len(tags)])
        probabilities = tf.nn.softmax(in_buckets(servable, inputs, {"logits": zeros})["logits"])
        return {
            "tags": tf.gather(names, tf.argmax(probabilities, -1)),
            "scores": tf.reduce_max(probabilities, -1),
        }

    signatures = {
        "serving_default": Signature(
            lambda text: answer(from_texts(text)),
            {"text": tf.TensorSpec([None], tf.string)},
            lists=(_WORDS, _ENTITIES),
        ),
        "words": Signature(
            lambda words: answer(from_words(words)),
            {"words": tf.TensorSpec([None, None], tf.string)},
            lists=(_ENTITIES,),
        ),
        "tokenized": Signature(from_pieces, IDS),
    }
    return export.write(servable, signatures, {"labels.json": tags})
