"""What an exported model answers, found from the names and ranks that its signature has."""

import dataclasses
from collections.abc import Mapping

from modeling.errors import ModelingError
from modeling.serving.prediction import LoadedSignature

LISTS = ("choices", "texts")
"""Fields that are lists of texts; all others are one text."""

_REVIEWS = (
    ("A delight from start to end.",),
    ("The plot is thin and the jokes are old.",),
    ("Well acted, if a little long.",),
)
_PAIRS = (
    ("A man is playing a guitar.", "Someone is making music."),
    ("The shop opens at nine.", "It is closed in the morning."),
)
_CHOICES = (
    (
        "She opened the umbrella because",
        ["it had begun to rain.", "the soup was too hot.", "he plays the piano."],
    ),
    ("The glass fell from the table, and", ["it broke.", "it sang.", "it was Tuesday."]),
)
_TOWER = (
    "The Eiffel Tower was built from 1887 to 1889 as the entrance to a world's fair. It is named "
    "after the engineer Gustave Eiffel, whose company designed and built it. It is 330 metres "
    "tall, about as tall as a building of 81 storeys, and stands in Paris."
)
_QUESTIONS = (
    ("Who was the tower named after?", _TOWER),
    ("How tall is it?", _TOWER),
    ("Who painted it?", _TOWER),
)
_ENTITIES = (
    ("Marie Curie worked in Paris and won two Nobel Prizes.",),
    ("Germany beat Brazil 7-1 in Belo Horizonte, Reuters reported.",),
)
_MASKS = (
    ("The capital of France is [MASK].",),
    ("She put the [MASK] on the table and [MASK] the door.",),
)
_BEGINNINGS = (("The capital of France",), ("She put the cup on the",))
_SIMILAR = (
    (
        "How do I get my money back?",
        [
            "Refunds are paid within a week.",
            "The office is closed on Sundays.",
            "Parcels are sent from Hamburg.",
            "You may return what you don't like.",
        ],
    ),
    (
        "The children are playing outside.",
        ["Kids are having fun in the garden.", "Share prices fell.", "It is raining today."],
    ),
)


@dataclasses.dataclass(frozen=True)
class PageFamily:
    """A kind of model.

    Attributes:
        name: Of the kind; the page draws its answers by it.
        form: Which form of the page asks it; models of one form stand side by side.
        inputs: What the signature takes, all of it.
        outputs: Name → rank of what the page needs; the signature may give more.
        examples: Values for `fields`.
        more_fields: What a request has besides `inputs`.
    """

    name: str
    form: str
    inputs: tuple[str, ...]
    outputs: Mapping[str, int]
    examples: tuple[tuple[str | list[str], ...], ...]
    more_fields: tuple[str, ...] = ()

    @property
    def fields(self) -> tuple[str, ...]:
        """What a request has, in the order of the form."""
        return self.inputs + self.more_fields

    def fits(self, signature: LoadedSignature) -> bool:
        ranks = {name: spec.shape.rank for name, spec in signature.outputs.items()}
        return set(self.inputs) == set(signature.inputs) and all(
            ranks.get(name) == rank for name, rank in self.outputs.items()
        )


_SENTENCES = (
    ("classes", {"label": 1, "labels": 2, "probabilities": 2}),
    ("labels", {"predicted": 2, "labels": 2, "probabilities": 2}),
    ("number", {"score": 1}),
)

FAMILIES = (
    *(PageFamily(name, "text", ("text_a",), gives, _REVIEWS) for name, gives in _SENTENCES),
    *(PageFamily(name, "pair", ("text_a", "text_b"), gives, _PAIRS) for name, gives in _SENTENCES),
    PageFamily(
        *("choices", "choices", ("context", "choices"), {"choice": 1, "probabilities": 2}, _CHOICES)
    ),
    PageFamily(
        *("questions", "questions", ("question", "context")),
        {"answer": 1, "start": 1, "end": 1, "probability": 1},
        _QUESTIONS,
    ),
    PageFamily(
        *("tags", "text", ("text",)),
        {"words": 2, "tags": 2}
        | {f"entity_{name}": 2 for name in ("types", "starts", "ends", "start_words", "end_words")},
        _ENTITIES,
    ),
    PageFamily("masks", "masks", ("text",), {"words": 3, "scores": 3}, _MASKS),
    PageFamily("next", "next", ("text",), {"words": 2, "scores": 2}, _BEGINNINGS),
    PageFamily("similar", "similar", ("text",), {"embedding": 2}, _SIMILAR, ("texts",)),
)
"""The first that fits is a model's."""


def family_of(signature: LoadedSignature, folder: str) -> PageFamily:
    """The family of a model by its signature.

    Raises:
        ModelingError: It is of none.
    """
    for family in FAMILIES:
        if family.fits(signature):
            return family
    raise ModelingError(
        f"The page doesn't know what to do with {folder}: its signature {signature.name!r} takes "
        f"{', '.join(signature.inputs)} and gives {', '.join(signature.outputs)}. Expected an "
        f"export of this project (classes, labels, a number, choices, questions, tags, vectors or "
        f"[MASK]). `python -m modeling.predict` asks any SavedModel."
    )
