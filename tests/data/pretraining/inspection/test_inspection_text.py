"""Records as text: against hand-written ones, and the original's own instances."""

import gzip
import json
import re

import pytest
import tensorflow as tf

from data.errors import DataError
from data.pretraining.inspection import inspection, record_text
from tests.data.pretraining.inspection.made_records import (
    DOT,
    EMPTY,
    FELL,
    HOUSE,
    MASK,
    SHOWN,
    THE,
    TREE,
    VOCAB,
    S,
    example,
    features,
    padded,
    write,
)


def test_text():
    """The 房 and the out-of-vocabulary piece are for `test_text_of_odd_records`."""
    assert record_text.show_record("a:0", example(SHOWN), VOCAB) == (
        "a:0  13 of 16 pieces, 4 predictions, B is random (label 1)\n"
        "  A  the [MASK→house]s fell [random: tree→house]\n"
        "  B  [kept: house] house[kept: ##s] word0 ."
    )
    assert record_text.show_record("a:0", example(SHOWN)) == (
        "a:0  13 of 16 pieces, 4 predictions, B is random (label 1)\n"
        f"  A  {THE} [{MASK}→{HOUSE}] {S} {FELL} [{TREE}→{HOUSE}]\n"
        f"  B  [kept: {HOUSE}] {HOUSE} [kept: {S}] 13 {DOT}"
    )
    unmasked = features([S, THE, HOUSE, S], None, 0, None)
    assert record_text.show_record("a:1", example(unmasked), VOCAB) == (
        "a:1  6 of 16 pieces, not masked, one segment\n  A  ##s the houses"
    )
    colored = record_text.show_record("a:0", example(SHOWN), VOCAB, color=True)
    assert "\x1b[1;33m[random: tree→house]\x1b[0m" in colored and "\x01" not in colored


def test_text_breaks_between_words_but_not_within_marks():
    made = features([THE] * 40, [TREE] * 20, 0, [(i, HOUSE) for i in range(42, 62)], 64, 20)
    lines = record_text.show_record("a:0", example(made), VOCAB, width=50).splitlines()
    assert max(map(len, lines[1:])) <= 50 and len(lines) > 10
    assert sum(line.count("[random: tree→house]") for line in lines) == 20
    assert all(line.startswith(("a:0", "  A  the", "  B  [", "     ")) for line in lines)


def test_text_of_odd_records():
    """Whatever is in a record is shown, and what is wrong with it said."""

    def show(made, tokens=VOCAB):
        record = made if isinstance(made, bytes) else example(made)
        return record_text.show_record("a:0", record, tokens, width=300)

    strange = features([9999, -7, EMPTY, 12], [TREE], 0, [(2, 12345)])
    text = show(strange)
    assert "A  <9999> [random: <-7>→<12345>] <11> 房\n  B  tree" in text
    assert "Damaged: it has the value 9999 in input_ids, but the vocabulary has 53" in text
    assert "9999 [-7→12345] 11 12" in show(strange, None)
    assert "isn't a tf.train.Example" in show(b"\xff\xfe\x00 nonsense")
    assert "lacks the feature input_ids (it has none)" in show(b"")
    short = features([THE, HOUSE], [TREE], 0, [(90, 5)])
    short["segment_ids"] = short["segment_ids"][:3]
    text = show(short)
    assert "3 values of segment_ids, but 16" in text and "the house" in text
    empty = {name: [] for name in SHOWN}
    assert "has empty features" in show(empty)
    nothing_real = SHOWN | {"input_mask": [0] * 16}
    assert "no first segment" in show(nothing_real) or "ids other than 0" in show(nothing_real)
    del short["input_ids"]
    assert "lacks the feature input_ids" in show(short)
    words = {k: tf.train.Feature(bytes_list=tf.train.BytesList(value=[b"x"])) for k in SHOWN}
    record = tf.train.Example(features=tf.train.Features(feature=words)).SerializeToString()
    assert "has input_ids as bytes_list, but int64_list" in show(record)


def test_chosen_records(tmp_path):
    files = [
        write(tmp_path / "a", [features([THE], [w], 0, None) for w in range(12, 32)]),
        write(tmp_path / "b", [features([TREE], [w], 0, None) for w in range(12, 15)]),
    ]

    def show(**options):
        return list(record_text.show_records(files, VOCAB, **options))

    assert [text.split("  ")[0] for text in show(count=2)] == [f"{files[0]}:{i}" for i in (0, 1)]
    assert [text.split("  ")[0] for text in show(count=99)] == [
        *(f"{files[0]}:{i}" for i in range(20)),
        *(f"{files[1]}:{i}" for i in range(3)),
    ]
    assert show(count=0) == []
    chosen = show(chosen=["19", "b:2", f"{files[1]}:1"])
    assert [text.splitlines()[-1] for text in chosen] == ["  B  word18", "  B  word1", "  B  word0"]
    for wrong in ("20", "b:3"):
        with pytest.raises(DataError, match="has no record"):
            show(chosen=[wrong])
    for wrong in ("x", "-1", "c:1", "b:", ":", "²"):
        with pytest.raises(DataError, match="There is no record"):
            show(chosen=[wrong])


def test_original_instances(golden, tmp_path):
    """Instances that the original made: nothing is wrong with them, and the text is theirs."""
    with gzip.open(golden / "instances_small_wp.json.gz", "rt") as file:
        instances = json.load(file)
    tokens = dict.fromkeys(VOCAB[:5])
    for pieces, _, _, _, labels in instances:
        tokens |= dict.fromkeys([*pieces, *labels])
    tokens = list(tokens)
    ids = {token: i for i, token in enumerate(tokens)}
    records = [
        {
            "input_ids": padded([ids[piece] for piece in pieces], 128),
            "input_mask": padded([1] * len(pieces), 128),
            "segment_ids": padded(segments, 128),
            "masked_lm_positions": padded(positions, 20),
            "masked_lm_ids": padded([ids[label] for label in labels], 20),
            "masked_lm_weights": padded([1.0] * len(positions), 20),
            "next_sentence_labels": [int(is_random)],
        }
        for pieces, segments, is_random, positions, labels in instances
    ]
    path = write(tmp_path / "original", records)
    found = inspection.inspect_record_files([path], inspection.InspectedTokens.from_tokens(tokens))
    assert found.problems == [] and found.statistics.records == len(instances) == 400
    summary = found.statistics.summary()
    predictions = [
        (instance[0][at], label)
        for instance in instances
        for at, label in zip(instance[3], instance[4], strict=True)
    ]
    assert summary["predictions"] == len(predictions)
    assert summary["replaced"]["mask"]["count"] == sum(
        piece == "[MASK]" for piece, _ in predictions
    )
    assert summary["replaced"]["seen_as_kept"] == sum(a == b for a, b in predictions)
    assert summary["next_sentence"]["random"]["share"] == sum(i[2] for i in instances) / 400

    shown = record_text.show_records([path], tokens, count=400, width=10**6)
    for text, (pieces, segments, is_random, positions, labels) in zip(
        shown, instances, strict=True
    ):
        heading, a, b = text.split("\n")
        assert heading.endswith("B is random (label 1)" if is_random else "B follows A (label 0)")
        whole = list(pieces)
        for at, label in zip(positions, labels, strict=True):
            whole[at] = label
        border = segments.index(1)
        for line, part in ((a, whole[1 : border - 1]), (b, whole[border:-1])):
            restored = re.sub(r"\[(?:MASK→|random: \S+?→|kept: )(\S+?)\]", _glue, line[5:])
            assert restored == re.sub(r" ##", "", " ".join(part))


def _glue(match):
    before = match.string[: match.start()]
    return match[1].removeprefix("##") if before and not before.endswith(" ") else match[1]
