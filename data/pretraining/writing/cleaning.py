"""What a corpus is rid of besides copies: other languages, and lines that many documents have.

    cleaner = Cleaner(folder, languages=("en", "de"), boilerplate_documents=20)
    cleaner.scan(part, documents)        # for every part, by whoever
    cleaner.find_boilerplate(parts)
    cleaner.clean(part, documents)

Menus, notices and footers are the lines that documents have in common. A line is known by 64 bits
of BLAKE2b of its words in lower case. The hashes lie on disk, part by part and in order, and are
counted range by range, so that memory holds some 20 million of them, or a 256th.
"""

import dataclasses
import functools
import hashlib
import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import tensorflow as tf

from data.errors import DataError
from data.files import atomic, text_files
from data.pretraining.corpus import Document

LANGUAGE_CHARACTERS = 2000
"""What a document's language is told by; more costs time and tells no more."""
_RANGES = 256
_AT_ONCE = 20_000_000  # hashes
_INDEX = np.dtype(np.int64).itemsize * (_RANGES + 1)
_LINE = np.dtype(np.uint64).itemsize + np.dtype(np.uint32).itemsize


@dataclasses.dataclass(frozen=True)
class Cleaner:
    """Rids the documents of a corpus's parts of what isn't wanted.

    Attributes:
        folder: Where it keeps what it found out, part by part.
        languages: Those that documents may be in, by their codes; () lets all be.
        boilerplate_documents: Lines that stand in so many documents are left out of all; 0: none.
    """

    folder: str
    languages: tuple[str, ...] = ()
    boilerplate_documents: int = 0

    def __bool__(self) -> bool:
        return bool(self.languages or self.boilerplate_documents)

    def scan(self, part: int, documents: Iterable[Document]) -> None:
        """Finds out languages and lines of a part's documents, unless that was done before."""
        path = self._path(part, "lines")
        if tf.io.gfile.exists(path):
            return
        languages, lines = [], [np.zeros(0, np.uint64)]
        for document in documents:
            if self.languages:
                languages.append(document_language(document))
            if self.boilerplate_documents and self._wanted(languages[-1:]):
                hashes = np.fromiter(map(line_hash, document.sentences), np.uint64)
                lines.append(np.unique(hashes))
        if self.languages:
            atomic.write_text(self._path(part, "languages"), json.dumps(languages))
        hashes, counts = np.unique(np.concatenate(lines), return_counts=True)
        starts = np.searchsorted(hashes, np.arange(_RANGES, dtype=np.uint64) << np.uint64(56))
        with atomic.writing(path) as file:
            file.write(np.append(starts, len(hashes)).astype(np.int64).tobytes())
            file.write(hashes.tobytes())
            file.write(counts.astype(np.uint32).tobytes())

    def find_boilerplate(self, parts: int) -> None:
        """Writes the hashes of all lines that are in too many documents, uint64, in order."""
        if not self.boilerplate_documents or tf.io.gfile.exists(self._boilerplate):
            return
        paths = [self._path(part, "lines") for part in range(parts)]
        total = sum(tf.io.gfile.stat(path).length - _INDEX for path in paths) // _LINE
        step = max(1, _RANGES * _AT_ONCE // max(1, total))
        found = []
        for first in range(0, _RANGES, step):
            last = min(first + step, _RANGES)
            found.append(_common(paths, first, last, self.boilerplate_documents))
        with atomic.writing(self._boilerplate) as file:
            file.write(np.concatenate(found).tobytes())

    def clean(
        self, part: int, documents: Iterable[Document], left_out: Counter[str] | None = None
    ) -> Iterator[Document]:
        """A part's documents without what isn't wanted, after the two methods above.

        Args:
            part: Number of the part.
            documents: All of it.
            left_out: Where to count what is left out, in words.
        """
        left_out = Counter() if left_out is None else left_out
        languages: list[str] = []
        if self.languages:
            languages = json.loads(text_files.read_bytes(self._path(part, "languages")))
        boilerplate: frozenset[int] = frozenset()
        if self.boilerplate_documents:
            with tf.io.gfile.GFile(self._boilerplate, "rb") as file:
                common = np.frombuffer(file.read(), np.uint64)
            own, _ = _lines_of_part(self._path(part, "lines"), 0, _RANGES)
            boilerplate = frozenset(np.intersect1d(common, own).tolist())
        for number, document in enumerate(documents):
            if not self._wanted(languages[number : number + 1]):
                left_out[f"documents in {languages[number]}"] += 1
                continue
            kept = document.sentences
            if boilerplate:
                kept = [line for line in kept if line_hash(line) not in boilerplate]
                left_out["lines of boilerplate"] += len(document.sentences) - len(kept)
            if kept:
                yield dataclasses.replace(document, sentences=kept)
            else:
                left_out["documents of boilerplate alone"] += 1

    def _wanted(self, language: Sequence[str]) -> bool:
        return not self.languages or language[0] in self.languages

    @property
    def _boilerplate(self) -> str:
        return os.path.join(self.folder, "part-boilerplate")

    def _path(self, part: int, kind: str) -> str:
        return os.path.join(self.folder, f"part-{part:05d}.{kind}")


def _lines_of_part(path: str, first: int, last: int) -> tuple[np.ndarray, np.ndarray]:
    """Hashes, uint64, and in how many documents they are, uint32, of the ranges from … to."""
    with tf.io.gfile.GFile(path, "rb") as file:
        index = np.frombuffer(file.read(_INDEX), np.int64)
        start, end, total = (int(index[n]) for n in (first, last, -1))
        file.seek(_INDEX + 8 * start)
        hashes = np.frombuffer(file.read(8 * (end - start)), np.uint64)
        file.seek(_INDEX + 8 * total + 4 * start)
        return hashes, np.frombuffer(file.read(4 * (end - start)), np.uint32)


def _common(paths: Sequence[str], first: int, last: int, least: int) -> np.ndarray:
    """The hashes of some ranges that stand in so many documents, uint64, in order."""
    hashes, counts = zip(*(_lines_of_part(path, first, last) for path in paths), strict=True)
    values, places = np.unique(np.concatenate(hashes), return_inverse=True)
    # Exact below 2⁵³.
    sums = np.bincount(places, weights=np.concatenate(counts), minlength=len(values))
    return values[sums >= least]


def line_hash(line: str) -> int:
    """64 bits of a line; equal where only letters' case and the width of spaces differ."""
    text = " ".join(line.lower().split())
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8)
    return int.from_bytes(digest.digest(), "big")


@functools.cache
def _identifier():
    import py3langid  # only jobs that need it wait for its import

    return py3langid


def document_language(document: Document) -> str:
    """The code of a document's language, such as "en", told by its beginning."""
    text, size = [], 0
    for sentence in document.sentences:
        text.append(sentence)
        size += len(sentence) + 1
        if size >= LANGUAGE_CHARACTERS:
            break
    return _identifier().classify(" ".join(text)[:LANGUAGE_CHARACTERS])[0]


def check_languages(languages: Sequence[str]) -> None:
    """Raises DataError for a code that no document can be found to have."""
    if not languages:
        return
    known = sorted(code for code, _ in _identifier().rank(""))
    for code in languages:
        if code not in known:
            raise DataError(
                f"--languages has {code!r}, but one of these codes was expected: "
                f"{', '.join(known)}."
            )


def left_out_text(left_out: Counter[str]) -> str:
    """What `Cleaner.clean` counted, the most first: "documents in de: 12, documents in fr: 3"."""
    ordered = sorted(left_out.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{what}: {count:,}" for what, count in ordered if count) or "nothing"
