"""Documents that are nearly copies of earlier ones, found by MinHash (Broder 1997).

    write_job_signatures(job, part)  # for every part, by whoever
    copies = find_near_copies(job)

Two documents are as similar as their shingles, runs of five words, are the same: the number that
both have by the number that either has (Jaccard). A signature of 128 hashes estimates that, with a
standard error of 0.04 at most. A document is compared only with documents whose signatures agree
in a whole band of hashes: with the first of those, and with the one right before it, so that the
work grows with the number of documents. Signatures lie on disk, part by part; memory holds those of
64 parts (of fewer, where they are large), and of every document some numbers. Of larger corpora the
parts with candidates are read once for every 62 parts.
"""

import functools
import os
import re
from collections.abc import Iterator

import numpy as np
import tensorflow as tf

from data.files import atomic
from data.pretraining.corpus import Document
from data.pretraining.writing.jobs import Job

HASHES = 128
SHINGLE_WORDS = 5
# Chinese and Japanese have no spaces: each of their characters counts as a word.
_IDEOGRAPH = "\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_WORD = re.compile(rf"[{_IDEOGRAPH}]|[^\W{_IDEOGRAPH}]+")
_AT_ONCE = 4096  # shingles
_PARTS_HELD = 64
_BYTES_HELD = 2**29


def shingles(document: Document) -> Iterator[bytes]:
    """Runs of five words in lower case, across sentences; what is shorter is one run."""
    text = " ".join(document.sentences).lower()
    words = _WORD.findall(text) or [text]
    for start in range(max(1, len(words) - SHINGLE_WORDS + 1)):
        yield " ".join(words[start : start + SHINGLE_WORDS]).encode("utf-8", "surrogatepass")


@functools.cache
def _sketch():
    from datasketch import MinHash  # only jobs that need it wait for its import

    # Named, as another version of the package may have another scheme by default.
    return MinHash(HASHES, seed=1, scheme="affine32")


def document_signature(document: Document) -> np.ndarray:
    """MinHash of a document's shingles, uint32 [128]; the same on every machine."""
    sketch, batch = _sketch(), []
    sketch.clear()
    for shingle in shingles(document):
        batch.append(shingle)
        if len(batch) == _AT_ONCE:
            sketch.update_batch(batch)
            batch.clear()
    if batch:
        sketch.update_batch(batch)
    return sketch.hashvalues.astype(np.uint32)


def write_job_signatures(job: Job, part: int) -> None:
    """Writes the signatures of a part's documents, uint32 [128, documents], if they are missing."""
    path = _signatures_file(job, part)
    if tf.io.gfile.exists(path):
        return
    rows = [document_signature(document) for document in job.clean_documents(part)]
    with atomic.writing(path) as file:
        file.write(np.array(rows, np.uint32).reshape(-1, HASHES).T.tobytes())


def find_near_copies(job: Job) -> list[np.ndarray]:
    """For each part the numbers of its documents that are like an earlier one.

    Args:
        job: Whose `near_duplicates` is the least similarity, by the signatures; of all parts
            these are there.
    """
    paths = [_signatures_file(job, part) for part in range(len(job.corpus))]
    counts = [tf.io.gfile.stat(path).length // (4 * HASHES) for path in paths]
    starts = np.cumsum([0, *counts])
    is_copy = np.zeros(starts[-1], bool)
    rows = band_rows(job.near_duplicates)
    for first in range(0, HASHES, rows):
        keys = [_band_keys(*part, first, rows) for part in zip(paths, counts, strict=True)]
        ours, others = _candidates(np.concatenate(keys))
        left = ~is_copy[ours]
        like = _similarities(paths, starts, ours[left], others[left]) >= job.near_duplicates
        is_copy[ours[left][like]] = True
    return [np.flatnonzero(part) for part in np.split(is_copy, starts[1:-1])]


def band_rows(similarity: float) -> int:
    """Hashes in a band, so that pairs somewhat less alike than `similarity` mostly share one.

    With r rows, pairs of similarity s share one of the 128/r bands with probability
    1 − (1 − s^r)^(128/r), which is steepest about (r/128)^(1/r).
    """
    fitting = [r for r in (1, 2, 4, 8, 16) if (r / HASHES) ** (1 / r) <= 0.9 * similarity]
    return max(fitting, default=1)


def _signatures_file(job: Job, part: int) -> str:
    return os.path.join(job.folder, f"part-{part:05d}.signatures")


def _band_keys(path: str, count: int, first: int, rows: int) -> np.ndarray:
    """One number for each document's hashes first … first + rows − 1, uint64 [documents]."""
    with tf.io.gfile.GFile(path, "rb") as file:
        file.seek(4 * first * count)
        band = np.frombuffer(file.read(4 * rows * count), np.uint32).reshape(rows, count)
    keys = np.zeros(count, np.uint64)
    for row in band:
        keys = (keys ^ row) * np.uint64(0x9E3779B97F4A7C15)
        keys ^= keys >> np.uint64(29)
    return keys


def _candidates(keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Pairs (document, earlier one) with the same key: the one right before, and the first."""
    order = np.argsort(keys, kind="stable")
    same = np.flatnonzero(keys[order][1:] == keys[order][:-1]) + 1
    is_first = np.ones(len(order), bool)
    is_first[same] = False
    first_of = np.maximum.accumulate(np.where(is_first, np.arange(len(order)), 0))
    ours = np.concatenate([order[same], order[same]])
    return ours, np.concatenate([order[same - 1], order[first_of[same]]])


def _similarities(paths, starts, ours: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Share of equal hashes of pairs of documents."""

    largest = 4 * HASHES * int(np.diff(starts).max())
    held = max(3, min(_PARTS_HELD, _BYTES_HELD // max(1, largest)))

    @functools.lru_cache(held)
    def signatures(part: int) -> np.ndarray:
        with tf.io.gfile.GFile(paths[part], "rb") as file:
            return np.frombuffer(file.read(), np.uint32).reshape(HASHES, -1)

    found = np.zeros(len(ours))
    parts = [np.searchsorted(starts, side, "right") - 1 for side in (ours, others)]
    # Together what lies in the same two parts; and as many parts in turn as are held, so that the
    # others are read once for all of these.
    order = np.lexsort([*parts, parts[0] // (held - 2)])
    ends = np.flatnonzero(np.any([np.diff(part[order]) for part in parts], axis=0)) + 1
    for at in np.split(order, ends) if len(order) else ():
        sides = [
            signatures(part[at[0]])[:, side[at] - starts[part[at[0]]]]
            for part, side in zip(parts, (ours, others), strict=True)
        ]
        found[at] = (sides[0] == sides[1]).mean(0)
    return found
