"""General text that a model is trained on beside a domain's, which keeps it from forgetting it.

    rehearsal = rehearse(sides, general, "out", 0.1 * domain.characters)
    records = make_records_from_text(text, "out", ..., besides=rehearsal.text)

A little of what was learned before among what is to be learned is called rehearsal (Robins 1995,
"Catastrophic forgetting, rehearsal and pseudorehearsal").
"""

import dataclasses
import hashlib
import os
from collections.abc import Iterator

import tensorflow as tf
from absl import logging

from data.errors import DataError
from data.files import atomic
from data.pretraining import judged_text
from data.pretraining.corpus import (
    Document,
    corpus_document_hash,
    corpus_format,
    is_held_out_of_corpus,
)
from data.pretraining.from_text import HELD_OUT_SHARE, PretrainingSides, PretrainingText
from data.pretraining.writing import shards


@dataclasses.dataclass(frozen=True)
class Rehearsal:
    """What is trained on besides.

    Attributes:
        text: One file; None where there is nothing.
        characters: Of its sentences.
        wanted: How many characters were asked for.
    """

    text: PretrainingText | None = None
    characters: int = 0
    wanted: float = 0


def rehearse(
    sides: PretrainingSides,
    general: PretrainingText | None,
    directory: str,
    characters: float,
    begun: bool = False,
) -> Rehearsal:
    """Takes general text to train on, in its order, behind what `judged_text` measures.

    Copies of what is measured or evaluated on are left out, and so are documents that would be
    held out if they were the domain's. White space becomes single spaces; the last document is cut
    where there is enough.

    Args:
        sides: Of the domain.
        general: Text of none, if there is any.
        directory: The run's output folder, where `records/general.txt` is written unless it holds
            these documents already.
        characters: So many, as far as there are any.
        begun: Whether the run has trained weights already.

    Raises:
        DataError: The run that would go on was trained on what would now be measured as unseen.
    """
    if general is None:
        return Rehearsal()
    path = os.path.join(directory, "records", "general.txt")
    measured = sides.held_out_hashes()
    for document in judged_text.beginning(general.read()):
        measured |= _hashes(document, _as_written(document))
    if begun and tf.io.gfile.exists(path):
        _check_unseen(path, measured)
    if not characters:
        return Rehearsal()

    def documents() -> Iterator[Document]:
        left, rest, first = characters, iter(general.read()), True
        for _ in judged_text.beginning(rest):
            pass
        for whole in rest:
            document = judged_text.first_characters(_as_written(whole), left)
            # A first line such as '{"' would make all of the file another format.
            fits = document.sentences and (
                not first or corpus_format(document.sentences[0]) == "plain"
            )
            if not fits or not measured.isdisjoint(_hashes(whole, document)):
                continue
            if any(is_held_out_of_corpus(each, HELD_OUT_SHARE) for each in (whole, document)):
                continue
            yield document
            first = False
            left -= sum(map(len, document.sentences))
            if left <= 0:
                return

    digest, number, found = hashlib.sha256(), 0, 0
    for document in documents():
        digest.update(_plain_text(document))
        number += 1
        found += sum(map(len, document.sentences))
    logging.info(
        "General text to train on besides: %s characters of %d documents", f"{found:,}", number
    )
    if found < characters:
        logging.warning(
            "--general_share asks for %s characters of general text to train on besides. Behind "
            "the first %s of --general_corpus_file, which are measured, there are %s. Give more of "
            "it, so that less is forgotten, or --general_share=0.",
            *(f"{round(n):,}" for n in (characters, judged_text.MOST_CHARACTERS, found)),
        )
    if not number:
        return Rehearsal(None, 0, characters)
    if not tf.io.gfile.exists(path) or shards.shard_sha256(path) != digest.hexdigest():
        atomic.make_folder(path)
        with atomic.writing(path) as file:
            for document in documents():
                file.write(_plain_text(document))
    return Rehearsal(PretrainingText([path]), found, characters)


def _check_unseen(path: str, measured: set[int]) -> None:
    common = sum(corpus_document_hash(d) in measured for d in PretrainingText([path]).read())
    if common:
        raise DataError(
            f"{path}, on which the run in this folder was trained, has {common} of the documents "
            f"that would be measured as unseen now: --general_corpus_file or --eval_corpus_file "
            f"has other text than when the run began, or in another order. Give what it began "
            f"with, or another --output_dir."
        )


def _hashes(*documents: Document) -> set[int]:
    return set(map(corpus_document_hash, documents))


def _as_written(document: Document) -> Document:
    """A document whose lines are read as they are written, whatever file they come from."""
    lines = (
        " ".join(sentence.replace("\0", " ").split()).encode("utf-8", "replace").decode("utf-8")
        for sentence in document.sentences
    )
    return Document([line for line in lines if line], document.source)


def _plain_text(document: Document) -> bytes:
    return "\n".join([*document.sentences, "", ""]).encode("utf-8")
