"""Tag schemes of entities over words: read, checked, repaired and converted.

    decode_entities(["B-PER", "I-PER", "O"])          # [Entity("PER", 0, 2)]
    encode_entities(entities, 3, "iobes")             # ["B-PER", "E-PER", "O"]

A tag is O, outside of all entities, or a letter, a hyphen and the entity's type. IOB1 (Ramshaw and
Marcus 1995) has I in entities, and B only where one follows directly on another of its type, IOB2
has B at every first word. IOBES also marks the last word (E) and entities of one word (S); BMES
calls I M; BILOU calls E L and S U.

Whatever the scheme, a sequence is read by one rule, that of the CoNLL tasks' scorer conlleval with
S added: an entity begins at B and S, and at any other letter that can't go on an entity of its
type, since there is none before it or it ended in E or S; it ends before whatever can't go on. So
every sequence has a reading, those that the scheme doesn't allow too. To repair one is to write
down what was read.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from data.errors import DataError, error_text

OUTSIDE = "O"
SCHEMES = {"iob1": "BI", "iob2": "BI", "iobes": "BIES", "bmes": "BMES", "bilou": "BILU"}
"""The letters of each scheme, besides O: of a first word, inner, last and only one."""

MODEL_SCHEMES = ("iob2", "iobes")
"""Schemes that a model predicts: those where a word's tag doesn't depend on the entity before."""

_MEANING = {"M": "I", "L": "E", "U": "S"}


class Entity(NamedTuple):
    """An entity of a sentence: its type, its first word, and the one behind its last."""

    type: str
    start: int
    end: int


def split_tag(tag: str) -> tuple[str, str]:
    """("B", "PER") of "B-PER"; ("O", "") of "O"; M, L and U become I, E and S."""
    letter, _, kind = tag.partition("-")
    return _MEANING.get(letter, letter), kind


def decode_entities(tags: Sequence[str]) -> list[Entity]:
    """The entities of a sentence of valid tags, by the rule above, in order."""
    entities: list[Entity] = []
    start, going, before = 0, None, "O"  # the type of the entity that goes on, or None
    for place, tag in enumerate([*tags, OUTSIDE]):
        letter, kind = split_tag(tag)
        goes_on = going == kind and letter in "IE" and before in "BI"
        if going is not None and not goes_on:
            entities.append(Entity(going, start, place))
            going = None
        if letter != OUTSIDE and not goes_on:
            start, going = place, kind
        before = letter
    return entities


def encode_entities(entities: Iterable[Entity], length: int, scheme: str) -> list[str]:
    """Tags of a sentence of `length` words with these entities, which are in order."""
    tags = [OUTSIDE] * length
    first, inner = SCHEMES[scheme][:2]
    last, only = SCHEMES[scheme][2:] or (inner, first)
    previous = None
    for entity in entities:
        size = entity.end - entity.start
        letters = [first, *[inner] * (size - 2), last] if size > 1 else [only]
        if scheme == "iob1":
            follows = previous and previous.type == entity.type and previous.end == entity.start
            letters = [first if follows else inner, *[inner] * (size - 1)]
        # A type may be absent: B, I and O alone.
        kind = f"-{entity.type}" if entity.type else ""
        tags[entity.start : entity.end] = [letter + kind for letter in letters]
        previous = entity
    return tags


def is_tag(tag: str, scheme: str) -> bool:
    """Whether it is a tag of the scheme, or of any if that is "auto"."""
    letter, hyphen, kind = tag.partition("-")
    return tag == OUTSIDE or (letter in _letters(scheme) and bool(kind or not hyphen))


def _letters(scheme: str) -> set[str]:
    return {*"".join(SCHEMES.values())} if scheme == "auto" else {*SCHEMES[scheme]}


def check_tag(tag: str, scheme: str, source: str) -> None:
    """Raises DataError for what is no tag of the scheme, or of any if that is "auto"."""
    if is_tag(tag, scheme):
        return
    letters = _letters(scheme)
    called = "any scheme" if scheme == "auto" else scheme.upper()
    raise DataError(
        f"{source}: the tag is {error_text(tag)}, which isn't one of {called}; expected O, or one "
        f"of {', '.join(sorted(letters))} with a hyphen and a type behind it, such as "
        f"{sorted(letters)[0]}-PER. Name the column that holds the tags with --tag_column and "
        f"their scheme with --scheme, or correct the line. For running text, which has "
        f"no tags, ask the export of --do_export with python -m modeling.predict."
    )


def detect_scheme(sentences: Sequence[Sequence[str]], where: str) -> str:
    """The scheme that fits the tags of a file best.

    Their letters leave one scheme, or IOB1 and IOB2; of these the one is taken in which fewer
    tags would have to be changed, IOB2 if it is the same.

    Args:
        sentences: Tags of its sentences, each of some scheme.
        where: The file, for messages.

    Raises:
        DataError: Letters come from different schemes.
    """
    tags = {tag for sentence in sentences for tag in sentence}
    letters = {tag.partition("-")[0] for tag in tags} - {OUTSIDE}
    fitting = [name for name in ("iob2", "iob1") if letters <= {*SCHEMES[name]}]
    if fitting:
        return min(fitting, key=lambda name: sum(len(misfitting_tags(s, name)) for s in sentences))
    for name in ("iobes", "bmes", "bilou"):
        if letters <= {*SCHEMES[name]}:
            return name
    raise DataError(
        f"{where}: the tags begin with {', '.join(sorted(letters))}, which no scheme has together: "
        + "; ".join(f"{name} has {', '.join(use)}" for name, use in SCHEMES.items())
        + ". Check that --tag_column is the column of the tags."
    )


def scheme_marks_ends(scheme: str) -> bool:
    """Whether the scheme has letters of its own for an entity's last and only word."""
    return len(SCHEMES[scheme]) > 2


def misfitting_tags(tags: Sequence[str], scheme: str) -> list[int]:
    """Places of the tags that the scheme wouldn't have in a sequence with these entities."""
    right = encode_entities(decode_entities(tags), len(tags), scheme)
    return [place for place, (a, b) in enumerate(zip(tags, right, strict=True)) if a != b]
