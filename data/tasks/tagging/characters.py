"""Characters as words, for tagging text that isn't written in words, in files and in the graph.

Every character but white space is a word. Training splits the words of its files and an exported
model its texts, both by the rule here, so that the same text is the same words.
"""

import dataclasses
import itertools

import tensorflow as tf

from data.tasks.tagging.conll import ConllSentence
from data.tasks.tagging.schemes import Entity, decode_entities, encode_entities

# What str.isspace() says of Unicode, spelled out for the graph.
SPACES = "\t\n\x0b\x0c\r\x1c\x1d\x1e\x1f \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006"
SPACES += "\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000"


def split_sentence(sentence: ConllSentence, scheme: str) -> ConllSentence:
    """The sentence with a word for each character of its words, and the same entities.

    Args:
        sentence: With tags of that scheme, or without.
        scheme: See `schemes.encode_entities`.
    """
    split = [[one for one in word if one not in SPACES] for word in sentence.words]
    words = tuple(itertools.chain.from_iterable(split))
    if sentence.tags is None:
        return dataclasses.replace(sentence, words=words)
    begins = list(itertools.accumulate(map(len, split), initial=0))
    entities = (
        Entity(entity.type, begins[entity.start], begins[entity.end])
        for entity in decode_entities(sentence.tags)
    )
    # Of words of white space nothing is left.
    entities = [entity for entity in entities if entity.start < entity.end]
    return dataclasses.replace(
        sentence, words=words, tags=tuple(encode_entities(entities, len(words), scheme))
    )


def split_texts(texts: tf.Tensor) -> tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor]:
    """The characters of texts and where they lie, in the graph.

    Args:
        texts: string [N].

    Returns:
        string [N, (characters)], and int32 of the same shape twice: from which byte to before
        which one. Bytes that aren't UTF-8 are U+FFFD each.
    """
    characters, starts = tf.strings.unicode_split_with_offsets(texts, "UTF-8")
    row = starts.value_rowids()
    size = tf.size(starts.values)
    last = tf.concat([row[1:] != row[:-1], [True]], 0)[:size]
    following = tf.concat([starts.values[1:], [0]], 0)[:size]
    whole = tf.gather(tf.cast(tf.strings.length(texts), tf.int64), row)
    ends = tf.where(last, whole, following)
    kept = characters.with_values(~tf.strings.regex_full_match(characters.values, f"[{SPACES}]"))
    return tuple(
        tf.ragged.boolean_mask(found, kept)
        for found in (
            characters,
            starts.with_values(tf.cast(starts.values, tf.int32)),
            starts.with_values(tf.cast(ends, tf.int32)),
        )
    )
