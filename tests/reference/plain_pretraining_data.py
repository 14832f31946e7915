"""Making pre-training data as the original release does, in plain Python, from its description.

One piece, one coin and one record at a time; everything in memory. Nothing is shared with the
code that it is held against, and nothing is fast. It makes the original's pairs and masks, with
what is accidental in them.
"""

import collections
import random

import tensorflow as tf

from tests.reference.plain_tokenizer import plain_words

CLS, SEP, MASK = "[CLS]", "[SEP]", "[MASK]"
Instance = collections.namedtuple("Instance", "tokens segment_ids positions labels is_random_next")


def tokenize(text: str, vocab: dict[str, int]) -> list[str]:
    """Lower-cased pieces: of each word the longest known beginning, again and again."""
    pieces = []
    for word in plain_words(text, lower=True):
        found, begin = [], 0
        while begin < len(word):
            end = len(word)
            while end > begin and ("##" * (begin > 0) + word[begin:end]) not in vocab:
                end -= 1
            if end == begin:
                found = ["[UNK]"]
                break
            found.append("##" * (begin > 0) + word[begin:end])
            begin = end
        pieces += found
    return pieces


def read(paths, vocab: dict[str, int], rng: random.Random) -> list[list[list[str]]]:
    """Documents as lists of tokenized sentences, shuffled."""
    documents = [[]]
    for path in paths:
        with open(path, encoding="utf-8") as file:
            for line in file:
                if not line.strip():
                    documents.append([])
                elif pieces := tokenize(line.strip(), vocab):
                    documents[-1].append(pieces)
    documents = [document for document in documents if document]
    rng.shuffle(documents)
    return documents


def pairs_of(documents, number: int, length: int, short_seq_prob: float, rng: random.Random):
    """(A, B, whether B is random) of one document, truncated."""
    document, longest = documents[number], length - 3
    target = rng.randint(2, longest) if rng.random() < short_seq_prob else longest
    run, size, at = [], 0, 0
    while at < len(document):
        run.append(document[at])
        size += len(document[at])
        if at == len(document) - 1 or size >= target:
            a_end = rng.randint(1, len(run) - 1) if len(run) > 1 else 1
            a = [piece for sentence in run[:a_end] for piece in sentence]
            b = []
            is_random = len(run) == 1 or rng.random() < 0.5
            if is_random:
                other = number
                for _ in range(10):
                    other = rng.randint(0, len(documents) - 1)
                    if other != number:
                        break
                for sentence in documents[other][rng.randint(0, len(documents[other]) - 1) :]:
                    b += sentence
                    if len(b) >= target - len(a):
                        break
                at -= len(run) - a_end
            else:
                b = [piece for sentence in run[a_end:] for piece in sentence]
            while len(a) + len(b) > longest:
                longer = a if len(a) > len(b) else b
                if rng.random() < 0.5:
                    del longer[0]
                else:
                    longer.pop()
            yield a, b, is_random
            run, size = [], 0
        at += 1


def masked(tokens: list[str], words: list[str], prob: float, most: int, rng: random.Random):
    """(tokens with masks, positions, labels)."""
    places = [place for place, token in enumerate(tokens) if token not in (CLS, SEP)]
    rng.shuffle(places)
    output, chosen = list(tokens), []
    for place in places[: min(most, max(1, round(len(tokens) * prob)))]:
        if rng.random() < 0.8:
            output[place] = MASK
        elif rng.random() >= 0.5:
            output[place] = words[rng.randint(0, len(words) - 1)]
        chosen.append(place)
    chosen.sort()
    return output, chosen, [tokens[place] for place in chosen]


def instances(documents, vocab, length, most, dupe_factor, prob, short_seq_prob, rng):
    """All instances of a corpus, shuffled."""
    words, made = list(vocab), []
    for _ in range(dupe_factor):
        for number in range(len(documents)):
            for a, b, is_random in pairs_of(documents, number, length, short_seq_prob, rng):
                tokens = [CLS, *a, SEP, *b, SEP]
                segment_ids = [0] * (len(a) + 2) + [1] * (len(b) + 1)
                output, positions, labels = masked(tokens, words, prob, most, rng)
                made.append(Instance(output, segment_ids, positions, labels, is_random))
    rng.shuffle(made)
    return made


def example(instance: Instance, vocab: dict[str, int], length: int, most: int) -> bytes:
    """The record of an instance."""

    def padded(values, size):
        return list(values) + [0] * (size - len(values))

    ids = [vocab[token] for token in instance.tokens]
    features = {
        "input_ids": padded(ids, length),
        "input_mask": padded([1] * len(ids), length),
        "segment_ids": padded(instance.segment_ids, length),
        "masked_lm_positions": padded(instance.positions, most),
        "masked_lm_ids": padded([vocab[token] for token in instance.labels], most),
        "next_sentence_labels": [int(instance.is_random_next)],
    }
    made = {
        name: tf.train.Feature(int64_list=tf.train.Int64List(value=values))
        for name, values in features.items()
    }
    weights = padded([1.0] * len(instance.labels), most)
    made["masked_lm_weights"] = tf.train.Feature(float_list=tf.train.FloatList(value=weights))
    return tf.train.Example(features=tf.train.Features(feature=made)).SerializeToString()


def write(paths, vocab_file: str, output: str, length=128, most=20, dupe_factor=5, seed=12345):
    """The whole command; returns (tokens of the corpus, instances)."""
    with open(vocab_file, encoding="utf-8") as file:
        vocab = {token.strip(): number for number, token in enumerate(file)}
    rng = random.Random(seed)
    documents = read(paths, vocab, rng)
    made = instances(documents, vocab, length, most, dupe_factor, 0.15, 0.1, rng)
    with tf.io.TFRecordWriter(output) as writer:
        for instance in made:
            writer.write(example(instance, vocab, length, most))
    return sum(len(s) for document in documents for s in document), len(made)
