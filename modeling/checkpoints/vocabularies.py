"""Which vocabulary a checkpoint's weights belong to, and how texts are folded for it.

Beside each checkpoint of a run, CHECKPOINT, lies CHECKPOINT.vocabulary, which tells it:

    {"tokens": 30522, "checksum": "…", "unused": [[1, 99], …], "checksum_of_used": "…"}

Where only the records were known that it was trained on, there is nothing but the checksum.
Beside a release, the original's included, lies its vocab.txt itself. Words that take the place of
[unused…] tokens, or stand behind all others, make no other vocabulary: the ids keep their meaning.
Folding is what tokenizer_config.json tells, as Hugging Face writes it.
"""

import hashlib
import itertools
import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow as tf
from absl import logging

from modeling.checkpoints.files import folders_of_checkpoint, write_staged_text
from modeling.checkpoints.formats.hub import HUB, hub_do_lower_case, hub_vocabulary
from modeling.checkpoints.formats.keras_hub import (
    KERAS_HUB,
    keras_hub_folding,
    keras_hub_vocabulary,
)
from modeling.checkpoints.inspection.releases import case_of_release
from modeling.checkpoints.inspection.tokenizer_files import (
    source_of_vocabulary,
    told_folding,
    vocabulary_beside,
    vocabulary_tokens,
)
from modeling.checkpoints.loading import find
from modeling.errors import ModelingError

ENDING = ".vocabulary"
Description = Mapping[str, Any]
_UNUSED = re.compile(r"\[unused\d+\]")


class TextFolding(NamedTuple):
    """How a model's texts are folded before they are cut into pieces.

    Attributes:
        do_lower_case: Whether case is folded; None if unknown.
        strip_accents: Whether accents are dropped; None: as `do_lower_case`.
    """

    do_lower_case: bool | None = None
    strip_accents: bool | None = None

    @property
    def drops_accents(self) -> bool | None:
        """What `strip_accents` comes to."""
        return self.do_lower_case if self.strip_accents is None else self.strip_accents


def describe_vocabulary(vocab_file: str | os.PathLike) -> Description:
    """What a checkpoint tells of a vocabulary file, see above.

    Raises:
        ModelingError: The file can't be read.
    """
    tokens = vocabulary_tokens(os.fspath(vocab_file))
    unused = [number for number, token in enumerate(tokens) if _UNUSED.fullmatch(token)]
    ranges = [
        [ids[0], ids[-1]]
        for _, group in itertools.groupby(enumerate(unused), lambda pair: pair[1] - pair[0])
        for ids in [[number for _, number in group]]
    ]
    return {
        "tokens": len(tokens),
        "checksum": _checksum(tokens),
        "unused": ranges,
        "checksum_of_used": _checksum(_used(tokens, len(tokens), ranges)),
    }


def stage_vocabulary(path: str, vocabulary: Description | None) -> None:
    """Writes the note beside the checkpoint `path`, whose folder is `staged`; None: none."""
    if vocabulary is not None:
        write_staged_text(f"{path}{ENDING}", json.dumps(vocabulary) + "\n")


def check_vocabulary(path: str | os.PathLike, vocab_file: str | os.PathLike) -> None:
    """Refuses a vocabulary whose ids mean other tokens than those of a checkpoint.

    Args:
        path: A checkpoint, as `checkpoints.load` takes it.
        vocab_file: The vocabulary that it is to be used with.

    Raises:
        ModelingError: It is another one, or there is no checkpoint, or a file can't be read.
    """
    known, source = vocabulary_of(path)
    if known is None:
        logging.info("Not checked: whether %s was made with %s; it doesn't tell.", path, vocab_file)
        return
    tokens = vocabulary_tokens(os.fspath(vocab_file))
    if known["checksum"] == _checksum(tokens):
        return
    size, unused = known.get("tokens", len(tokens)), known.get("unused", [])
    used = _checksum(_used(tokens, size, unused))
    if len(tokens) >= size and used == known.get("checksum_of_used"):
        logging.info("%s has words of its own in place of unused tokens of %s.", vocab_file, source)
        return
    raise ModelingError(
        f"The checkpoint {path} belongs to another vocabulary than {vocab_file}, as {source} "
        f"tells. It has {len(tokens)} tokens, but they aren't the same, so ids would mean other "
        f"words than those that the weights were trained with. Give the vocab.txt of the "
        f"checkpoint."
    )


def agreed_vocabulary(
    path: str | None, vocab_file: str | None, checksum: str | None
) -> Description | None:
    """What is known of a run's vocabulary, None if nothing is.

    Args:
        path: The checkpoint that the run starts from, None without one.
        vocab_file: The vocabulary, None if only its checksum may be known.
        checksum: What the records tell of it.

    Raises:
        ModelingError: The checkpoint belongs to another one.
    """
    if vocab_file:
        if path:
            check_vocabulary(path, vocab_file)
        return describe_vocabulary(vocab_file)
    known, source = vocabulary_of(path) if path and checksum else (None, "")
    if known and known["checksum"] != checksum:
        raise ModelingError(
            f"The records were made with another vocabulary than the checkpoint {path} belongs to, "
            f"by what their first records and {source} tell. Make them again with the checkpoint's "
            f"vocabulary; or give --vocab_file, if only unused tokens have become words."
        )
    return {"checksum": checksum} if checksum else None


def vocabulary_of(path: str | os.PathLike) -> tuple[Description | None, str]:
    """What a checkpoint's vocabulary is, None if nothing tells it, and the file that does.

    Raises:
        ModelingError: There is no checkpoint.
    """
    format_, file = find(path)
    note, release = f"{file}{ENDING}", vocabulary_file(format_, file)
    if tf.io.gfile.exists(note):
        try:
            with tf.io.gfile.GFile(note, "r") as opened:
                known = json.loads(opened.read())
            if isinstance(known, dict) and "checksum" in known:
                return known, note
        except ValueError:
            pass
        logging.warning("%s is damaged: it doesn't tell the checkpoint's vocabulary.", note)
        return None, note
    if release:
        return describe_vocabulary(release), source_of_vocabulary(release)
    return None, ""


def vocabulary_file(format: str, file: str) -> str | None:
    """The vocabulary beside or inside a checkpoint, as `find` names it; None if there is none."""
    inside = {HUB: hub_vocabulary, KERAS_HUB: keras_hub_vocabulary}.get(format, lambda _: None)
    beside = map(vocabulary_beside, folders_of_checkpoint(file))
    return inside(file) or next(filter(None, beside), None)


def text_folding(path: str | os.PathLike, by_name: bool = False) -> TextFolding:
    """How the texts of the model at `path` are folded, as the files beside its weights tell.

    That is tokenizer_config.json or tokenizer.json, what a TF-Hub SavedModel holds, or a KerasHub
    preset's tokenizer.

    Args:
        path: As `checkpoints.load` takes it.
        by_name: Whether the name of a release's folder counts where nothing else tells. Scripts
            that read texts have `check_casing` instead.

    Raises:
        ModelingError: There is no checkpoint, or such a file is damaged.
    """
    format_, file = find(path)
    told = TextFolding()
    if format_ == HUB:
        told = TextFolding(hub_do_lower_case(file))
    if format_ == KERAS_HUB:
        told = TextFolding(*keras_hub_folding(file))
    for folder in folders_of_checkpoint(file):
        if told == TextFolding():
            told = kept_folding(folder)
    if by_name and told == TextFolding():
        told = TextFolding(case_of_release(file))
    return told


def check_casing(do_lower_case: bool, init_checkpoint: str | None) -> None:
    """Refuses a case that contradicts the name of a released model's folder, as the original does.

    Raises:
        ModelingError: The model was trained on text of the other kind.
    """
    expected = case_of_release(init_checkpoint)
    if expected not in (None, do_lower_case):
        raise ModelingError(
            f"--do_lower_case is {do_lower_case}, but the checkpoint {init_checkpoint} was "
            f"trained on {'lower-cased' if expected else 'cased'} text. Give "
            f"--do_lower_case={expected}."
        )


def kept_folding(folder: str) -> TextFolding:
    """What tokenizer_config.json, or else tokenizer.json, in a folder tells.

    Raises:
        ModelingError: See `told_folding`.
    """
    return TextFolding(*told_folding(folder))


def tokenizer_config(folding: TextFolding, max_length: int) -> str:
    """The contents of tokenizer_config.json."""
    values = {
        "model_max_length": max_length,
        "strip_accents": folding.strip_accents,
        "tokenizer_class": "BertTokenizer",
    }
    if folding.do_lower_case is not None:
        values["do_lower_case"] = folding.do_lower_case
    return json.dumps(values, indent=2, sort_keys=True) + "\n"


def _checksum(tokens: Sequence[str]) -> str:
    return hashlib.sha256("\n".join(tokens).encode()).hexdigest()[:32]


def _used(tokens: Sequence[str], size: int, unused: Iterable[Sequence[int]]) -> list[str]:
    """The first `size` tokens, nothing in place of the unused ones."""
    used = list(tokens[:size])
    for first, last in unused:
        used[first : last + 1] = [""] * (last + 1 - first)
    return used
