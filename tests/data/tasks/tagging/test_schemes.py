"""Tag schemes: reading, checking, converting; against seqeval's and conlleval's own readings."""

import random

import pytest
from seqeval.metrics.sequence_labeling import get_entities

from data.errors import DataError
from data.tasks.tagging.schemes import (
    SCHEMES,
    Entity,
    check_tag,
    decode_entities,
    detect_scheme,
    encode_entities,
    misfitting_tags,
)

EXAMPLES = {
    "iob1": "I-PER I-PER O I-LOC B-LOC I-LOC I-ORG",
    "iob2": "B-PER I-PER O B-LOC B-LOC I-LOC B-ORG",
    "iobes": "B-PER E-PER O S-LOC B-LOC E-LOC S-ORG",
    "bmes": "B-PER E-PER O S-LOC B-LOC E-LOC S-ORG",
    "bilou": "B-PER L-PER O U-LOC B-LOC L-LOC U-ORG",
}
ENTITIES = [Entity("PER", 0, 2), Entity("LOC", 3, 4), Entity("LOC", 4, 6), Entity("ORG", 6, 7)]


@pytest.mark.parametrize("scheme", SCHEMES)
def test_written_by_hand(scheme):
    tags = EXAMPLES[scheme].split()
    assert decode_entities(tags) == ENTITIES
    assert encode_entities(ENTITIES, 7, scheme) == tags
    assert misfitting_tags(tags, scheme) == []


def random_entities(draw, length):
    entities, place = [], 0
    while place < length:
        size = draw.choice([1, 1, 2, 3, 4])
        if draw.random() < 0.6 and place + size <= length:
            entities.append(Entity(draw.choice(["PER", "B-x", "O"]), place, place + size))
            place += size
        else:
            place += 1
    return entities


def test_round_trips_and_detection():
    draw = random.Random(0)
    for _ in range(300):
        length = draw.randrange(12)
        entities = random_entities(draw, length)
        for scheme in SCHEMES:
            tags = encode_entities(entities, length, scheme)
            assert len(tags) == length and decode_entities(tags) == entities
            for tag in tags:
                check_tag(tag, scheme, "here")
    for scheme in SCHEMES:
        sentences = [encode_entities(random_entities(draw, 20), 20, scheme) for _ in range(30)]
        assert detect_scheme(sentences, "here") == scheme


def test_any_sequence_is_read_as_seqeval_reads_it():
    """Which for B, I and O is what conlleval does."""
    draw = random.Random(1)
    tags = ["O", *(f"{letter}-{kind}" for letter in "BIES" for kind in ("PER", "LOC"))]
    for _ in range(2000):
        sequence = draw.choices(tags, k=draw.randrange(1, 9))
        theirs = [(kind, start, end + 1) for kind, start, end in get_entities(sequence)]
        assert [tuple(entity) for entity in decode_entities(sequence)] == theirs, sequence
        # Writing down what was read doesn't change it, and fits.
        for scheme in SCHEMES:
            right = encode_entities(decode_entities(sequence), len(sequence), scheme)
            assert (
                decode_entities(right) == decode_entities(sequence)
                and misfitting_tags(right, scheme) == []
            )


@pytest.mark.parametrize(
    ("tags", "scheme", "wrong"),
    [
        ("O I-PER", "iob2", [1]),
        ("B-PER I-LOC", "iob2", [1]),
        ("I-PER I-LOC B-LOC", "iob1", []),
        ("I-PER B-LOC", "iob1", [1]),
        ("B-PER O", "iobes", [0]),
        ("S-PER E-PER", "iobes", [1]),
        ("B-PER I-PER", "iobes", [1]),
        ("O M-PER E-PER", "bmes", [1]),
    ],
)
def test_misfits(tags, scheme, wrong):
    assert misfitting_tags(tags.split(), scheme) == wrong


def test_without_types():
    assert decode_entities(["B", "I", "O", "I"]) == [Entity("", 0, 2), Entity("", 3, 4)]
    assert encode_entities([Entity("", 0, 2)], 3, "iobes") == ["B", "E", "O"]


@pytest.mark.parametrize("tag", ["", "o", "PER", "B-", "-PER", "X-PER", "B_PER", "S-PER"])
def test_no_tag(tag):
    with pytest.raises(DataError, match=r"f:3.*--tag_column"):
        check_tag(tag, "iob2", "f:3")


def test_letters_of_no_scheme():
    with pytest.raises(DataError, match=r"B, M, U.*--tag_column"):
        detect_scheme([["B-A", "M-A", "U-B"]], "f")
