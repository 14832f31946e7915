"""Characters as words, for tagging text that isn't written in words, in files and in the graph.

Every character but white space is a word, together with those behind it that the tokenizer deletes:
marks over and under letters (where accents are), joiners, variation selectors. By themselves they
would have no piece, be O, and cut every entity that holds them. Training splits the words of its
files and an exported model its texts, both by the rule here, so that the same text is the same
words.
"""

import dataclasses
import functools
import itertools

import tensorflow as tf

from data.tasks.tagging.conll import ConllSentence
from data.tasks.tagging.schemes import Entity, decode_entities, encode_entities
from data.tokenization import Tokenizer, unicode_tables

# What str.isspace() says of Unicode, spelled out for the graph.
SPACES = "\t\n\x0b\x0c\r\x1c\x1d\x1e\x1f \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006"
SPACES += "\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000"


def split_sentence(sentence: ConllSentence, scheme: str, tokenizer: Tokenizer) -> ConllSentence:
    """The sentence with a word for each character of its words, and the same entities.

    Args:
        sentence: With tags of that scheme, or without.
        scheme: See `schemes.encode_entities`.
        tokenizer: Says which characters are deleted.
    """
    deleted = _code_points(tokenizer.deleted)
    split = [_characters(word, deleted) for word in sentence.words]
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


@functools.lru_cache(maxsize=2)
def _code_points(ranges: unicode_tables.Ranges) -> frozenset[str]:
    return frozenset(map(chr, unicode_tables.code_points(ranges)))


def _characters(word: str, deleted: frozenset[str]) -> list[str]:
    found: list[str] = []
    after_space = True
    for one in word:
        if one in SPACES:
            after_space = True
        elif one in deleted and not after_space:
            found[-1] += one
        else:
            found.append(one)
            after_space = False
    return found


def split_texts(
    texts: tf.Tensor, tokenizer: Tokenizer
) -> tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor]:
    """The characters of texts and where they lie, in the graph.

    Args:
        texts: string [N].
        tokenizer: Says which characters are deleted.

    Returns:
        string [N, (characters)], and int32 of the same shape twice: from which byte to before
        which one. Bytes that aren't UTF-8 are U+FFFD each.
    """
    characters, starts = tf.strings.unicode_split_with_offsets(texts, "UTF-8")
    row, ones = starts.value_rowids(), characters.values
    size = tf.size(ones)
    first = tf.concat([[True], row[1:] != row[:-1]], 0)[:size]
    last = tf.concat([row[1:] != row[:-1], [True]], 0)[:size]
    following = tf.concat([starts.values[1:], [0]], 0)[:size]
    whole = tf.gather(tf.cast(tf.strings.length(texts), tf.int64), row)
    ends = tf.where(last, whole, following)

    in_word = ~tf.strings.regex_full_match(ones, f"[{SPACES}]")
    after_space = first | tf.concat([[True], ~in_word[:-1]], 0)[:size]
    deleted = f"[{unicode_tables.regex_class(tokenizer.deleted)}]"
    begins = in_word & (after_space | ~tf.strings.regex_full_match(ones, deleted))
    number = tf.cumsum(tf.cast(begins, tf.int64)) - 1
    words = tf.strings.unsorted_segment_join(
        tf.boolean_mask(ones, in_word),
        tf.boolean_mask(number, in_word),
        tf.reduce_sum(tf.cast(begins, tf.int64)),
    )
    # What goes on isn't where a word ends.
    goes_on = tf.concat([(in_word & ~begins)[1:], [False]], 0)[:size]
    rows = tf.boolean_mask(row, begins)
    return tuple(
        tf.RaggedTensor.from_value_rowids(found, rows, starts.nrows(), validate=False)
        for found in (
            words,
            tf.cast(tf.boolean_mask(starts.values, begins), tf.int32),
            tf.cast(tf.boolean_mask(ends, in_word & ~goes_on), tf.int32),
        )
    )
