"""Pre-training records made by hand and at random, for tests of what looks at them."""

import tensorflow as tf

VOCAB = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "house", "tree", "##s", "fell", "."]
VOCAB += ["", "房", *(f"word{i}" for i in range(40))]
PAD, UNK, CLS, SEP, MASK, THE, HOUSE, TREE, S, FELL, DOT, EMPTY = range(12)
WORDS = range(12, len(VOCAB))


def padded(values, length):
    return [*values, *[0] * (length - len(values))]


def features(a, b=None, label=0, predictions=(), s=16, p=4):
    """One record's features by the original's rules; predictions: (position, id)."""
    ids = [CLS, *a, SEP, *([*b, SEP] if b else [])]
    made = {
        "input_ids": padded(ids, s),
        "input_mask": padded([1] * len(ids), s),
        "segment_ids": padded([0] * (len(a) + 2) + [1] * (len(ids) - len(a) - 2), s),
        "next_sentence_labels": [label],
    }
    if predictions is not None:
        made["masked_lm_positions"] = padded([at for at, _ in predictions], p)
        made["masked_lm_ids"] = padded([label for _, label in predictions], p)
        made["masked_lm_weights"] = padded([1.0] * len(predictions), p)
    return made


def example(made):
    def feature(name, values):
        if name == "masked_lm_weights":
            return tf.train.Feature(float_list=tf.train.FloatList(value=values))
        return tf.train.Feature(int64_list=tf.train.Int64List(value=values))

    by_name = {name: feature(name, values) for name, values in made.items()}
    return tf.train.Example(features=tf.train.Features(feature=by_name)).SerializeToString()


def random_features(rng, s=16, p=4, masked=True, vocab=WORDS):
    """A sound record of random lengths, replaced 80/10/10."""
    n = int(rng.integers(2, s - 2))
    border = int(rng.integers(1, n))
    text = [int(i) for i in rng.choice(vocab, n)]
    both = rng.random() < 0.9
    a, b = (text[:border], text[border:]) if both else (text, None)
    made = features(a, b, int(both and rng.random() < 0.5), None, s, p)
    if masked:
        ids = made["input_ids"]
        real = [i for i, piece in enumerate(ids) if piece not in (PAD, CLS, SEP)]
        count = int(rng.integers(0, min(p, len(real)) + 1))
        chosen = sorted(int(i) for i in rng.permutation(real)[:count])
        made |= {
            "masked_lm_positions": padded(chosen, p),
            "masked_lm_ids": padded([ids[i] for i in chosen], p),
            "masked_lm_weights": padded([1.0] * count, p),
        }
        for i in chosen:
            u = rng.random()
            ids[i] = MASK if u < 0.8 else int(rng.choice(vocab)) if u < 0.9 else ids[i]
    return made


def write(path, records, compression=""):
    with tf.io.TFRecordWriter(str(path), compression) as writer:
        for record in records:
            writer.write(record if isinstance(record, bytes) else example(record))
    return str(path)


SHOWN = features(
    [THE, MASK, S, FELL, TREE],
    [HOUSE, HOUSE, S, 13, DOT],
    1,
    [(2, HOUSE), (5, HOUSE), (7, HOUSE), (9, S)],
)
