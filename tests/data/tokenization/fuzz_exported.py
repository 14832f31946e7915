"""Random byte strings through the exported tokenizer.

    python -m tests.data.tokenization.fuzz_exported --strings=1000000

Exports a SavedModel, loads it, and feeds it bytes that are text, nearly text, or nothing of the
kind. Whatever comes, there must be no error; ids and offsets must be within bounds and in order;
and ids must be those of the plain Python tokenizer on what is left after dropping broken UTF-8.
"""

from modeling import quiet  # noqa: F401  isort: skip

import itertools
import random
import tempfile
import time

import numpy as np
import tensorflow as tf
from absl import app, flags

from data.tokenization import Tokenizer
from data.tokenization.inputs import build_inputs
from tests.reference.plain_tokenizer import HAS_UNICODE_14, plain_ids

LETTERS = "etaoinshrdlucmfwypvbgkqjxz"
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
VOCAB = [
    *SPECIAL,
    *LETTERS,
    *(f"##{c}" for c in LETTERS),
    "the",
    "##ing",
    "漢",
    "字",
    "ος",
    "ᄀ",
    ".",
]
LENGTH = 32
# Pieces of broken UTF-8: lone continuations and leads, cut and overlong characters, surrogates,
# numbers beyond the last code point, bytes that are in no UTF-8 at all.
BROKEN = [
    *(b"\x80", b"\xbf", b"\xc3", b"\xe4\xbd", b"\xf0\x90\x80", b"\xc0\xaf", b"\xe0\x80\xaf"),
    *(b"\xed\xa0\x80", b"\xed\xbf\xbf", b"\xf4\x90\x80\x80", b"\xf8\x88\x80\x80\x80", b"\xff\xfe"),
]
CHARS = [
    *LETTERS,
    *" \t\n\r.,'-#[]",
    *"\0\x01\x11\x7f\x85\u00a0\u00ad\u0301\u0345\u200b\u2028\u3000\ufeff\ufffd",
    *"ΣςσÀÉßİẞ漢字가각한アがｱ①ﬁ😀👨\u200d🇩\u0e01\u0e34\u0915\u093f\u0627\u064b",
    *"\U0001d165\U0001d16d\u302e\U000e0001\U0010fffd",
]


class Exported(tf.Module):
    """What a serving model does with texts before the encoder."""

    def __init__(self, tokenizer: Tokenizer):
        super().__init__()
        self.tokenizer = tokenizer

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
    def serve(self, texts):
        pieces = self.tokenizer.tokenize_with_offsets(texts)
        inputs = build_inputs(self.tokenizer, texts, texts, LENGTH)
        parts = {"ids": pieces.ids, "starts": pieces.starts, "ends": pieces.ends}
        flat = {name: part.values for name, part in parts.items()}
        return flat | {"splits": pieces.ids.row_splits} | inputs


def random_text(draw: random.Random) -> bytes:
    kind = draw.random()
    size = draw.choice((0, 1, 2, 3, 5, 8, 13, 21, 34, 55))
    if kind < 0.3:
        return draw.randbytes(size)
    chars = "".join(draw.choices(CHARS, k=size))
    if kind < 0.6:
        return chars.encode()
    if kind < 0.9:
        data = bytearray(chars.encode())
        for _ in range(draw.randrange(1, 5)):
            place = draw.randrange(len(data) + 1)
            data[place:place] = draw.choice(BROKEN)
        return bytes(data)
    if kind < 0.97:
        return "".join(chr(draw.randrange(0xD800)) for _ in range(size)).encode()
    word = draw.choice(("a", "é", "漢", "\u0301", "가", "\U0001d165", "\0"))
    return (word * draw.choice((199, 200, 201, 799, 801, 3000))).encode()


def huge_texts() -> list[bytes]:
    """A megabyte each: one word, marks only, broken bytes only, zeros, words."""
    return [piece * (2**20 // len(piece)) for piece in (b"a", b"\xcc\x81", b"\xff", b"\0", b"ab ")]


def check(model: Exported, texts: list[bytes], sampled: int, *folding: bool) -> None:
    """Raises AssertionError where a result can't be right."""
    got = {name: value.numpy() for name, value in model.serve(tf.constant(texts)).items()}
    ids, starts, ends, splits = (got[name] for name in ("ids", "starts", "ends", "splits"))
    assert len(splits) == len(texts) + 1 and splits[-1] == len(ids) == len(starts) == len(ends)
    assert ((ids >= 0) & (ids < len(VOCAB))).all()
    lengths = np.repeat([len(text) for text in texts], np.diff(splits))
    assert ((starts >= 0) & (starts < ends) & (ends <= lengths)).all()
    follows = np.ones(len(ids), bool)
    follows[splits[:-1][np.diff(splits) > 0]] = False
    assert (starts[1:] >= starts[:-1])[follows[1:]].all()
    assert got["input_ids"].shape == got["segment_ids"].shape == (len(texts), LENGTH)
    if not HAS_UNICODE_14:
        return
    vocab = {token: index for index, token in enumerate(VOCAB)}
    for number in range(0, len(texts), sampled):
        expected = plain_ids(texts[number].decode("utf-8", "ignore"), vocab, *folding)
        row = ids[splits[number] : splits[number + 1]]
        assert row.tolist() == expected, (texts[number], row, expected)


def fuzz(strings: int, seed: int, sampled: int = 200, batch: int = 5000) -> None:
    for mode, (lower, strip) in enumerate(itertools.product((False, True), repeat=2)):
        draw = random.Random(seed + mode)
        with tempfile.TemporaryDirectory() as folder:
            tokenizer = Tokenizer.from_vocab(VOCAB, lower, strip_accents=strip)
            tf.saved_model.save(Exported(tokenizer), folder)
            model = tf.saved_model.load(folder)
        start = time.perf_counter()
        check(model, huge_texts(), 1, lower, strip)
        for begin in range(0, strings // 4, batch):
            number = min(batch, strings // 4 - begin)
            check(model, [random_text(draw) for _ in range(number)], sampled, lower, strip)
        print(
            f"{'lower-cased' if lower else 'cased'}, {'without' if strip else 'with'} accents: "
            f"{strings // 4} strings and {len(huge_texts())} of a megabyte, no failure, "
            f"{time.perf_counter() - start:.0f} s"
        )


def main(_) -> None:
    fuzz(flags.FLAGS.strings, flags.FLAGS.seed)


if __name__ == "__main__":
    flags.DEFINE_integer("strings", 1_000_000, "Random strings, a quarter of them per mode.")
    flags.DEFINE_integer("seed", 1, "Of the strings.")
    app.run(main)
