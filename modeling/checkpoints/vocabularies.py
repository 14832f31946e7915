"""Which vocabulary a checkpoint's weights belong to.

Beside each checkpoint of a run, CHECKPOINT, lies CHECKPOINT.vocabulary, which tells it:

    {"tokens": 30522, "checksum": "…", "unused": [[1, 99], …], "checksum_of_used": "…"}

Where only the records were known that it was trained on, there is nothing but the checksum.
Beside a release, the original's included, lies its vocab.txt itself. Words that take the place of
[unused…] tokens, or stand behind all others, make no other vocabulary: the ids keep their meaning.
"""

import hashlib
import itertools
import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import tensorflow as tf
from absl import logging

from modeling.checkpoints.files import join, write_staged_text
from modeling.checkpoints.formats.hub import HUB, hub_vocabulary
from modeling.checkpoints.formats.keras_hub import KERAS_HUB, keras_hub_vocabulary
from modeling.checkpoints.loading import find
from modeling.errors import ModelingError

ENDING = ".vocabulary"
Description = Mapping[str, Any]
_UNUSED = re.compile(r"\[unused\d+\]")


def describe_vocabulary(vocab_file: str | os.PathLike) -> Description:
    """What a checkpoint tells of a vocabulary file, see above.

    Raises:
        ModelingError: The file can't be read.
    """
    tokens = _tokens(os.fspath(vocab_file))
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
    tokens = _tokens(os.fspath(vocab_file))
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
        return describe_vocabulary(release), release
    return None, ""


def vocabulary_file(format: str, file: str) -> str | None:
    """The vocabulary beside or inside a checkpoint, as `find` names it; None if there is none."""
    beside = join(os.path.dirname(file), "vocab.txt")
    inside = {HUB: hub_vocabulary, KERAS_HUB: keras_hub_vocabulary}.get(format, lambda _: None)
    return inside(file) or (beside if tf.io.gfile.exists(beside) else None)


def _tokens(vocab_file: str) -> list[str]:
    """By the original's rule: lines, stripped."""
    try:
        with tf.io.gfile.GFile(vocab_file, "rb") as file:
            text = file.read().decode("utf-8", "ignore")
    except tf.errors.OpError as error:
        raise ModelingError(
            f"The vocabulary file {vocab_file} can't be read ({type(error).__name__}). Give the "
            f"vocab.txt that belongs to the checkpoint."
        ) from error
    return [line.strip() for line in text.removeprefix("\ufeff").removesuffix("\n").split("\n")]


def _checksum(tokens: Sequence[str]) -> str:
    return hashlib.sha256("\n".join(tokens).encode()).hexdigest()[:32]


def _used(tokens: Sequence[str], size: int, unused: Iterable[Sequence[int]]) -> list[str]:
    """The first `size` tokens, nothing in place of the unused ones."""
    used = list(tokens[:size])
    for first, last in unused:
        used[first : last + 1] = [""] * (last + 1 - first)
    return used
