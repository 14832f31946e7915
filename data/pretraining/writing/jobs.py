"""A job: corpus files to record files, divided into parts that can be made anywhere, in any order.

A corpus is divided into parts (`parts.py`). A part's instances depend on the job and its number
alone, so the same job gives the same bytes, whoever makes which part when. A part writes *pieces*,
one for each shard that it feeds, and then a note with its counts; a shard (an output file) is its
pieces joined. While a job is under way everything lies in a folder beside the output files:

    OUTPUT.parts/job.json                         what is being made; another job starts afresh
    OUTPUT.parts/part-00003.shard-00000           a piece
    OUTPUT.parts/part-00003.json                  the part is done
    OUTPUT.parts/shard-00000.json                 size and checksum of a finished shard
"""

import dataclasses
import functools
import hashlib
import itertools
import json
import math
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf
from absl import logging

from data import progress
from data.errors import DataError
from data.files import atomic, text_files
from data.pretraining import corpus
from data.pretraining.corpus import Document
from data.pretraining.corpus.parts import PART_BYTES, SEGMENTS, CorpusParts, divide_corpus
from data.pretraining.instances import generate
from data.pretraining.instances.generate import InstanceCounts
from data.pretraining.instances.settings import InstanceSettings
from data.pretraining.records import schema
from data.pretraining.records.shard_marks import ShardMark
from data.pretraining.writing import shards
from data.pretraining.writing.cleaning import Cleaner, check_languages
from data.tokenization import Tokenizer
from data.tokenization.vocabulary import load_vocab

PARTS = ".parts"
_SMALLEST_PART = 2**20
_VERSION = 2  # of the rules by which text becomes records; a change makes old pieces useless


@dataclass(frozen=True)
class Job:
    """Everything that the records depend on. Made by `plan_job`.

    Attributes:
        name: Path that the output is called by: the (first) --output_file.
        corpus: The text, in parts.
        text_sha256: Of each of its files. Sizes and times of change don't tell them apart:
            TensorFlow gives times in whole seconds, and copies keep them.
        output_files: The shards, in order.
        vocab_file, vocab_sha256: The vocabulary.
        settings: See there.
        compression: One of `shards.COMPRESSIONS`.
        drop_duplicates: Whether of equal documents only the first is used.
        near_duplicates: Least similarity to an earlier document of those that are left out, see
            `near_copies`; 0 leaves out none.
        languages, boilerplate_documents: See `cleaning.Cleaner`.
    """

    name: str
    corpus: CorpusParts
    text_sha256: tuple[str, ...]
    output_files: tuple[str, ...]
    vocab_file: str
    vocab_sha256: str
    settings: InstanceSettings
    compression: str
    drop_duplicates: bool
    near_duplicates: float = 0.0
    languages: tuple[str, ...] = ()
    boilerplate_documents: int = 0

    @property
    def leaves_out_copies(self) -> bool:
        """Whether some documents aren't used: those of `job_copies_file`."""
        return bool(self.drop_duplicates or self.near_duplicates)

    @property
    def folder(self) -> str:
        """Where pieces and notes lie while the job is under way."""
        return f"{self.name}{PARTS}"

    def fingerprint(self) -> str:
        """Equal for jobs that make the same bytes under the same names, in whatever folder."""
        text = json.dumps(asked_of_job(self), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    def note(self, kind: str, number: int) -> str:
        """Path of the note that a "part" or "shard" is done."""
        return os.path.join(self.folder, f"{kind}-{number:05d}.json")

    def pieces(self, part: int) -> list[str]:
        """Paths of the pieces that a part writes, in the order of their shards."""
        return [self._piece(part, shard) for shard in self.shards_of(part)]

    def pieces_of_shard(self, shard: int) -> list[str]:
        """Paths of the pieces that make up a shard, in order."""
        return [self._piece(part, shard) for part in self.parts_of(shard)]

    def _piece(self, part: int, shard: int) -> str:
        return os.path.join(self.folder, f"part-{part:05d}.shard-{shard:05d}")

    def shards_of(self, part: int) -> range:
        """Numbers of the shards that a part feeds."""
        parts, shards_ = len(self.corpus), len(self.output_files)
        if parts >= shards_:
            only = part * shards_ // parts
            return range(only, only + 1)
        return range(math.ceil(part * shards_ / parts), math.ceil((part + 1) * shards_ / parts))

    def parts_of(self, shard: int) -> list[int]:
        """Numbers of the parts that feed a shard."""
        parts, shards_ = len(self.corpus), len(self.output_files)
        if parts >= shards_:
            return [*range(-(-shard * parts // shards_), -(-(shard + 1) * parts // shards_))]
        return [shard * parts // shards_]

    @property
    def cleaner(self) -> Cleaner:
        """What rids documents of what isn't wanted in them."""
        return Cleaner(self.folder, self.languages, self.boilerplate_documents)

    def clean_documents(
        self, part: int, left_out: Counter[str] | None = None
    ) -> Iterator[Document]:
        """Streams the documents of one part as its cleaner leaves them."""
        documents = self.corpus.documents(part)
        return self.cleaner.clean(part, documents, left_out) if self.cleaner else documents

    def documents(self, part: int, left_out: Counter[str] | None = None) -> Iterator[Document]:
        """Streams the clean documents of one part, without copies if they are to be dropped."""
        copies = None
        if self.leaves_out_copies:
            with tf.io.gfile.GFile(job_copies_file(self, part), "rb") as file:
                copies = set(np.frombuffer(file.read(), np.int64).tolist())
        for number, document in enumerate(self.clean_documents(part, left_out)):
            if copies is None or number not in copies:
                yield document


def asked_of_job(job: Job) -> dict[str, Any]:
    """What the bytes of a job depend on."""
    asked = dataclasses.asdict(job) | {"version": _VERSION}
    asked["settings"] = job.settings.identity()
    asked["output_files"] = [os.path.basename(path) for path in job.output_files]
    asked["corpus"]["spans"] = len(job.corpus)
    asked["corpus"]["files"] = [path for path, _, _ in job.corpus.files]
    # A copy of the vocabulary elsewhere is the same vocabulary.
    del asked["name"], asked["vocab_file"]
    for name in ("near_duplicates", "languages", "boilerplate_documents"):
        if not asked[name]:  # records of versions that didn't have this stay the same job
            del asked[name]
    return asked


def plan_job(
    files: Sequence[str],
    output_files: Sequence[str],
    vocab_file: str,
    settings: InstanceSettings,
    *,
    name: str | None = None,
    text_field: str = corpus.TEXT_FIELD,
    compression: str = "none",
    drop_duplicates: bool = False,
    near_duplicates: float = 0.0,
    languages: Sequence[str] = (),
    boilerplate_documents: int = 0,
    held_out: tuple[str, float] | None = None,
    part_bytes: int = PART_BYTES,
) -> Job:
    """Divides a corpus into parts; see `Job` for the arguments.

    Raises:
        DataError: Settings out of range, files that can't be read, an output file named twice.
    """
    settings.check()
    check_languages(languages)
    shards.check_output_shards(output_files)
    load_vocab(vocab_file)  # says what is wrong with it
    if compression not in shards.COMPRESSIONS:
        raise DataError(
            f"compression is {compression!r}, but one of {', '.join(shards.COMPRESSIONS)} was "
            f"expected."
        )
    number = functools.partial(_number_of_parts, len(output_files), part_bytes)
    return Job(
        name or output_files[0],
        divide_corpus(files, number, text_field, held_out, max(SEGMENTS, len(output_files))),
        tuple(
            shards.shard_sha256(path)
            for [path] in progress.portions("Reading the text's checksums", "files", files, 1)
        ),
        tuple(output_files),
        vocab_file,
        shards.shard_sha256(vocab_file),
        settings,
        compression,
        drop_duplicates,
        near_duplicates,
        tuple(languages),
        boilerplate_documents,
    )


def _number_of_parts(shards_: int, part_bytes: int, total: int) -> int:
    """As many for every shard, unless there is too little text for that."""
    if total // shards_ >= _SMALLEST_PART:
        return shards_ * max(1, math.ceil(total / (shards_ * part_bytes)))
    return max(1, min(shards_, total // _SMALLEST_PART), math.ceil(total / part_bytes))


@functools.lru_cache(maxsize=2)
def _tokenizer(vocab_file: str, settings: InstanceSettings) -> Tokenizer:
    return settings.make_tokenizer(vocab_file)


def write_job_part(
    job: Job, number: int, on_progress: Callable[[int, int], None] | None = None
) -> InstanceCounts:
    """Makes the pieces of a part, unless they are there; returns what it counted.

    Args:
        job: Whose folder exists.
        number: From 0.
        on_progress: See `generate.generate_instances`.

    Raises:
        DataError: Unreadable text, the only document of a corpus, output that can't be written.
    """
    note = job.note("part", number)
    finished = unless_damaged(read_job_note, note, counts=InstanceCounts, records=list)
    if finished is not None:
        return InstanceCounts(**finished["counts"])
    counts, left_out = InstanceCounts(), Counter()
    batches = generate.generate_instances(
        job.documents(number, left_out),
        _tokenizer(job.vocab_file, job.settings),
        job.settings,
        (number,),
        counts=counts,
        lenders=lambda: itertools.chain.from_iterable(
            map(job.documents, job.corpus.behind(number))
        ),
        on_progress=on_progress,
    )
    with shards.ShardWriters(job.pieces(number)) as writers:
        for batch in batches:
            writers.write(schema.encode_records(batch))
    made = {"counts": dataclasses.asdict(counts), "records": writers.counts, "left_out": left_out}
    write_job_note(note, made)
    return counts


def make_shard(job: Job, number: int, empty: int) -> dict[str, Any]:
    """Joins the pieces of a shard, unless it is there; returns path, records, bytes and sha256.

    Args:
        job: All of whose parts are written.
        number: Of the shard.
        empty: How many of the shards get no record.
    """
    path, note = job.output_files[number], job.note("shard", number)
    finished = unless_damaged(read_job_note, note, path=str, records=int, bytes=int, sha256=str)
    if finished is not None and shards.shard_size(path) == finished["bytes"]:
        return finished
    pieces = job.pieces_of_shard(number)
    atomic.make_folder(path)
    # Among the pieces, so that what a killed process leaves goes with them.
    with atomic.writing(path, folder=job.folder) as file:
        records = sum(
            read_job_note(job.note("part", part))["records"][job.shards_of(part).index(number)]
            for part in job.parts_of(number)
        )
        tokenizer = _tokenizer(job.vocab_file, job.settings)
        unpacked = dataclasses.replace(job, compression="none")  # the same set
        mark = ShardMark.of_job(
            unpacked.fingerprint(), tokenizer.vocab, number, len(job.output_files), empty, records
        )
        sizes = shards.join_shard_pieces(pieces, file, job.compression, mark)
        file.flush()
        shard = {"path": path, "records": records, **sizes}
        write_job_note(note, shard)
    # Only now: a process killed before this line still finds them.
    for piece in pieces:
        tf.io.gfile.remove(piece)
    return shard


def job_copies_file(job: Job, part: int) -> str:
    """Path of the numbers, int64, of a part's documents that are copies of earlier ones."""
    return os.path.join(job.folder, f"part-{part:05d}.copies")


def job_document_hashes(job: Job, number: int) -> np.ndarray:
    """The 64-bit hash of each document of a part, uint64 [documents]."""
    return np.fromiter(map(corpus.corpus_document_hash, job.clean_documents(number)), np.uint64)


def write_job_copies(job: Job, part: int, numbers: np.ndarray) -> None:
    """Writes `job_copies_file`."""
    with atomic.writing(job_copies_file(job, part)) as file:
        file.write(np.sort(np.asarray(numbers, np.int64)).tobytes())


def count_job_copies(job: Job) -> int | None:
    """How many documents are left out as copies; None where none are looked for."""
    if not job.leaves_out_copies:
        return None
    paths = [job_copies_file(job, part) for part in range(len(job.corpus))]
    return sum(tf.io.gfile.stat(path).length for path in paths) // 8


def scan_job_part(job: Job, part: int) -> None:
    """Finds out what the job's cleaner has to know of a part."""
    job.cleaner.scan(part, job.corpus.documents(part))


def find_job_copies(hashes: Sequence[np.ndarray]) -> list[np.ndarray]:
    """From the hashes of each part to the numbers of its documents that came before already."""
    joined = np.concatenate(hashes) if hashes else np.zeros(0, np.uint64)
    first = np.zeros(len(joined), bool)
    first[np.unique(joined, return_index=True)[1]] = True
    ends = np.cumsum([len(h) for h in hashes])[:-1]
    return [np.flatnonzero(~part) for part in np.split(first, ends)]


def read_job_note(path: str, /, **entries: type) -> dict[str, Any] | None:
    """A JSON file, None if it isn't there.

    Args:
        path: Of a note or manifest.
        entries: What it has to hold: name → type.

    Raises:
        DataError: It is damaged.
    """
    if not tf.io.gfile.exists(path):
        return None
    try:
        content = json.loads(text_files.read_bytes(path))
    except (ValueError, RecursionError) as error:
        raise _damaged(path, str(error)) from error
    check_entries(path, content, entries)
    return content


def check_entries(path: str, content: Any, entries: Mapping[str, type]) -> None:
    """Raises DataError unless what stands in a note has these entries, of these types."""
    for name, of in entries.items():
        value = content.get(name) if isinstance(content, dict) else None
        if of is InstanceCounts and isinstance(value, dict):
            names = {field.name for field in dataclasses.fields(InstanceCounts)}
            fits = value.keys() == names and all(isinstance(n, int) for n in value.values())
        else:
            fits = isinstance(value, of)
        if not fits:
            raise _damaged(path, f"no sound {name!r} in {json.dumps(content)[:100]}")


def _damaged(path: str, problem: str) -> DataError:
    return DataError(
        f"{path} is damaged: it isn't the JSON object that was written there ({problem}). Copy it "
        f"again; or remove it, and nothing is known by it."
    )


def unless_damaged(
    read: Callable[..., dict[str, Any] | None], path: str, /, **entries: type
) -> dict[str, Any] | None:
    """What a function reads from a note; None, with a warning, where it is damaged.

    For what can be made again.
    """
    try:
        return read(path, **entries)
    except DataError as error:
        logging.warning("%s What it tells of is made again.", error)
        return None


def write_job_note(path: str, value: Any) -> None:
    """Writes JSON; missing folders are made."""
    atomic.make_folder(path)
    atomic.write_text(path, json.dumps(value, indent=2) + "\n")
