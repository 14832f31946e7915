"""The mapping op fed with our own model, and the frozen Unicode tables."""

import json
import random
import unicodedata

import pytest
import tensorflow as tf
import tensorflow_text as tf_text

from data.tokenization import unicode_tables
from data.tokenization.normalizer import Normalizer
from data.tokenization.normalizer_model import _build_double_array, build_normalizer_model
from tests.data.tokenization import make_unicode_tables


def test_folding_equals_the_record(golden):
    table = json.loads((golden / "tokenization_codepoints_py311.json").read_text(encoding="utf-8"))
    recorded = {chr(int(code, 16)): text for code, text in table["lower_strip"].items()}
    assert len(recorded) > 5000
    got = Normalizer(True).normalize(tf.constant(list(recorded))).numpy()
    wrong = {
        char: text.decode()
        for (char, wanted), text in zip(recorded.items(), got, strict=True)
        # White space is folded too, in the original's other function.
        if text.decode() != wanted and not char.isspace()
    }
    assert wrong == {}


def test_hangul_becomes_jamo():
    syllables = [chr(code) for code in range(0xAC00, 0xD7A4)]
    got = Normalizer(True).normalize(tf.constant(syllables)).numpy()
    assert [text.decode() for text in got] == [unicodedata.normalize("NFD", s) for s in syllables]
    assert Normalizer(False).normalize(tf.constant(["가"])).numpy()[0].decode() == "가"


@pytest.mark.slow
def test_tables_equal_a_fresh_computation():
    if unicodedata.unidata_version != unicode_tables.UNICODE_VERSION:
        pytest.skip("this Python carries other Unicode tables")
    assert make_unicode_tables.build_tables() == unicode_tables.load_tables()


def test_case_tables_equal_python():
    """`str.lower` of a sigma shows for each character how it is looked upon."""
    if unicodedata.unidata_version != unicode_tables.UNICODE_VERSION:
        pytest.skip("this Python carries other Unicode tables")
    tables = unicode_tables.load_tables()
    cased = set(unicode_tables.code_points(tables.cased))
    ignorable = set(unicode_tables.code_points(tables.case_ignorable))
    for code in range(0x30000):
        if 0xD800 <= code < 0xE000:
            continue
        final_after = f"A{chr(code)}\u03a3".lower()[-1] == "\u03c2"
        assert final_after == (code in cased or code in ignorable), hex(code)
        final_before = f"A\u03a3{chr(code)}B".lower()[1] == "\u03c2"
        assert final_before == (code not in cased and code not in ignorable), hex(code)


def test_model_of_any_mapping():
    draw = random.Random(3)
    chars = [chr(code) for code in range(1, 0x3000)] + [chr(c) for c in range(0x10000, 0x10400)]
    mapping = {
        char: "".join(draw.choices(chars, k=draw.randrange(4))) for char in draw.sample(chars, 3000)
    }
    mapping["\0"] = "zero"
    model = build_normalizer_model({c.encode(): text.encode() for c, text in mapping.items()})
    op = tf_text.FastBertNormalizer(model_buffer=tf.constant(list(model), tf.uint8))
    texts = ["".join(draw.choices([*chars, "\0"], k=40)) for _ in range(500)]
    got = [text.decode() for text in op.normalize(tf.constant(texts)).numpy()]
    assert got == ["".join(mapping.get(char, char) for char in text) for text in texts]


def test_replacements_have_a_limit():
    with pytest.raises(ValueError, match="63"):
        build_normalizer_model({b"a": b"b" * 64})


def test_double_array_finds_exactly_its_keys():
    draw = random.Random(4)
    keys = {bytes(draw.choices(range(1, 256), k=draw.randrange(1, 5))) for _ in range(4000)}
    values = {key: index for index, key in enumerate(sorted(keys))}
    units = _build_double_array(values).tolist()

    def find(key: bytes) -> int | None:
        place, unit = 0, units[0]
        for byte in key:
            place ^= (unit >> 10) ^ byte
            unit = units[place]
            if unit & 0x800000FF != byte:
                return None
        return units[place ^ unit >> 10] & 0x7FFFFFFF if unit & 0x100 else None

    assert {key: find(key) for key in values} == values
    others = {bytes(draw.choices(range(1, 256), k=draw.randrange(1, 5))) for _ in range(20000)}
    assert [key for key in others - keys if find(key) is not None] == []
