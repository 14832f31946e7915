"""Exported models as the page asks them: texts by name in, what JSON can hold out."""

import dataclasses
import pathlib
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from absl import logging

from modeling.errors import ModelingError
from modeling.serving.page.families import LISTS, PageFamily, family_of
from modeling.serving.prediction import (
    SavedModelPredictor,
    load_saved_model,
    signature_of,
    version_folder,
)

MOST_TEXTS = 1000
"""Texts that one request may compare, or choices that it may have."""

WAITING_SECONDS = 60.0
"""So long a request waits for those before it."""

_BATCH_SIZE = 32
_SIGNATURE, _N_BEST = "serving_default", "n_best"


class BusyError(Exception):
    """Others have asked the model so much that this request had to wait for too long."""


@dataclasses.dataclass(frozen=True)
class _Asked:
    """See `SavedModelPredictor`."""

    values: Mapping[str, bytes | list[bytes]]
    size: int


class PageModel:
    """A model that one request after the other asks.

    Args:
        name: What the page calls it.
        folder: Of the SavedModel.

    Raises:
        ModelingError: It can't be loaded, or is of no family that the page knows.
    """

    def __init__(self, name: str, folder: str):
        self.name = name
        self.folder = folder
        model = load_saved_model(folder)
        signature = signature_of(model, folder, _SIGNATURE)
        self.family: PageFamily = family_of(signature, folder)
        signatures = [signature]
        if self.family.name == "questions" and _N_BEST in model.signatures:
            signatures.append(signature_of(model, folder, _N_BEST))
        self._predictors = [SavedModelPredictor(s, _BATCH_SIZE) for s in signatures]
        self._one_at_a_time = threading.Lock()

    def description(self) -> dict[str, Any]:
        """What the page has to know of the model, for JSON."""
        return {
            "name": self.name,
            "folder": self.folder,
            "family": self.family.name,
            "form": self.family.form,
            "fields": self.family.fields,
            "examples": self.family.examples,
        }

    def warm_up(self) -> None:
        """Asks the examples: the first requests take longer than all others."""
        for example in self.family.examples:
            self.answer(dict(zip(self.family.fields, example, strict=True)))

    def answer(self, inputs: Mapping[str, Any]) -> tuple[dict[str, Any], float]:
        """Asks the model.

        Args:
            inputs: The family's fields: str, or lists of str for `families.LISTS`. Halves of
                surrogate pairs, which a browser may send, count as U+FFFD.

        Returns:
            The signature's outputs, for JSON: of "similar" `scores`, the cosine of each of
            `texts`; of "questions" those of `n_best` too. And the milliseconds that it took.

        Raises:
            ModelingError: The fields aren't those, or the model refuses them.
            BusyError: See there.
        """
        self._check(inputs)
        if self.family.name == "similar":
            asked = [{"text": text} for text in (inputs["text"], *inputs["texts"])]
        else:
            asked = [inputs]
        examples = [_asked(values) for values in asked]
        if not self._one_at_a_time.acquire(timeout=WAITING_SECONDS):
            raise BusyError(f"{self.name} is busy with other requests; try again in a minute.")
        try:
            begin = time.perf_counter()
            answers = [predictor(examples) for predictor in self._predictors]
            milliseconds = (time.perf_counter() - begin) * 1000
        finally:
            self._one_at_a_time.release()
        outputs: dict[str, Any] = {}
        for rows in answers:
            for row in rows:
                if isinstance(row, ModelingError):
                    raise row
            outputs |= rows[0]
        if self.family.name == "similar":
            vectors = np.stack([row["embedding"] for row in answers[0]])
            outputs = {"scores": vectors[1:] @ vectors[0]}
        return {name: _plain(value) for name, value in outputs.items()}, milliseconds

    def wait(self, seconds: float) -> None:
        """Until the request that is computed now is done, and no longer than `seconds`."""
        if self._one_at_a_time.acquire(timeout=seconds):
            self._one_at_a_time.release()

    def _check(self, inputs: Mapping[str, Any]) -> None:
        fields = self.family.fields
        if not isinstance(inputs, Mapping) or set(inputs) != set(fields):
            got = ", ".join(sorted(inputs)) if isinstance(inputs, Mapping) else "something else"
            raise ModelingError(
                f"{self.name} takes {', '.join(fields)}, but got {got[:200] or 'nothing'}."
            )
        for name, value in inputs.items():
            texts = value if name in LISTS and isinstance(value, list) else [value]
            if (name in LISTS) != isinstance(value, list) or not all(
                isinstance(text, str) for text in texts
            ):
                expected = "a list of texts" if name in LISTS else "a text"
                raise ModelingError(f"{self.name} takes {expected} as {name!r}, nothing else.")
            if not 1 <= len(texts) <= MOST_TEXTS:
                raise ModelingError(
                    f"{name!r} has {len(texts):,} texts; give 1 to {MOST_TEXTS:,} of them."
                )


def load_page_models(paths: Sequence[str]) -> list[PageModel]:
    """Loads models and asks each its examples.

    Args:
        paths: Of SavedModels, or of folders with numbered versions of them.

    Raises:
        ModelingError: One can't be loaded or isn't known, or there are none.
    """
    models = []
    # Before the first is loaded, which takes a while.
    folders = [version_folder(path) for path in paths]
    for folder, name in zip(folders, _names(paths), strict=True):
        model = PageModel(name, folder)
        model.warm_up()
        logging.info("Loaded %s (%s) from %s", name, model.family.name, model.folder)
        models.append(model)
    return models


def _names(paths: Sequence[str]) -> list[str]:
    """The folder that an export lies in: "reviews" of output/reviews/export/1."""
    names = []
    for path in paths:
        parts = [part for part in pathlib.PurePosixPath(path).parts if part != "/"]
        while len(parts) > 1 and (parts[-1].isdecimal() or parts[-1] == "export"):
            parts.pop()
        names.append(parts[-1] if parts else path)
    return [
        name if names.count(name) == 1 else path for name, path in zip(names, paths, strict=True)
    ]


def _asked(inputs: Mapping[str, str | list[str]]) -> _Asked:
    values = {
        name: [_bytes(text) for text in value] if isinstance(value, list) else _bytes(value)
        for name, value in inputs.items()
    }
    return _Asked(values, sum(map(len, values.values())))


def _bytes(text: str) -> bytes:
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()


def _plain(value) -> Any:
    """Of arrays, bytes and numbers what JSON can hold; None for what isn't finite."""
    value = value.tolist() if isinstance(value, np.ndarray | np.generic) else value
    if isinstance(value, list):
        return [_plain(part) for part in value]
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, float) and not np.isfinite(value):
        return None
    return value
