"""Files of extracted vectors: the original's JSON lines, TFRecords, NumPy arrays.

with open_vector_file("jsonl", "out.jsonl", layers=[-1, -2], width=768, pooled=False) as writer:
    writer.write(rows)

All of them are written row by row, under temporary names until they are complete.
"""

import abc
import contextlib
import json
import shutil
import tempfile
from collections.abc import Iterable, Sequence

import numpy as np
import tensorflow as tf

from data.errors import DataError
from data.files import atomic
from data.vectors.texts import LineVectors

FORMATS = ("jsonl", "tfrecord", "numpy")

_DIGITS = 6  # behind the point in JSON, as the original


class VectorWriter(abc.ABC):
    """What all formats share: files that appear only when they are complete.

    Args:
        path: Of the output file.
        layers: Their numbers or names, in the order of the vectors.
        width: Of a vector.
        words: Whether the vectors are of words.
        pooled: Whether they are of whole lines.
    """

    def __init__(
        self, path: str, layers: Sequence[int | str], width: int, words: bool, pooled: bool
    ):
        self.path = path
        self.layers = list(layers)
        self.width = width
        self.words = words
        self.pooled = pooled
        self._stack = contextlib.ExitStack()
        # All files are closed before the first one gets its name.
        self._names = self._stack.enter_context(contextlib.ExitStack())
        self._files = self._stack.enter_context(contextlib.ExitStack())

    def __enter__(self) -> "VectorWriter":
        with self._stack:
            atomic.make_folder(self.path)
            self._open()
            self._stack = self._stack.pop_all()
        return self

    def write(self, rows: Iterable[LineVectors]) -> None:
        """Appends rows; raises DataError where that isn't possible."""
        for row in rows:
            with atomic.name_failing_file(self.path):
                self._write(row)

    def __exit__(self, *error) -> None:
        self._stack.__exit__(*error)

    def _temporary(self, path: str) -> str:
        return self._names.enter_context(atomic.replacing(path))

    @abc.abstractmethod
    def _open(self) -> None:
        """Opens the files, under temporary names."""

    @abc.abstractmethod
    def _write(self, row: LineVectors) -> None:
        """Appends a row."""


class VectorJsonWriter(VectorWriter):
    """A line per line of text, as the original: six digits, its key linex_index.

    {"linex_index": 0, "features": [{"token": "[CLS]", "layers": [{"index": -1, "values": […]}]}]}

    Words have `start` and `end` as well. Of pooled lines there is `layers` in place of `features`.
    """

    def _open(self):
        self._file = self._files.enter_context(tf.io.gfile.GFile(self._temporary(self.path), "w"))

    def _write(self, row):
        # In float64, where the rounded numbers have no further digits.
        values = np.round(row.vectors.astype(np.float64), _DIGITS).tolist()

        def layers(vectors):
            pairs = zip(self.layers, vectors, strict=True)
            return [{"index": layer, "values": vector} for layer, vector in pairs]

        line = {"linex_index": row.index}
        if row.tokens is None:
            line["layers"] = layers(values[0])
        else:
            line["features"] = [{"token": token} for token in row.tokens]
            for place, feature in enumerate(line["features"]):
                if row.spans is not None:
                    feature["start"], feature["end"] = row.spans[place].tolist()
                feature["layers"] = layers(values[place])
        self._file.write(json.dumps(line) + "\n")


class _RecordWriter(VectorWriter):
    """A `tf.train.Example` per line.

    linex_index int64 [1]; shape int64 [3]: vectors, layers, width; values float [their product];
    layers bytes [layers]; tokens bytes [vectors], but of pooled lines; of words also starts and
    ends int64 [vectors].
    """

    def _open(self):
        writer = tf.io.TFRecordWriter(self._temporary(self.path))
        self._file = self._files.enter_context(writer)

    def _write(self, row):
        def integers(values):
            return tf.train.Feature(int64_list=tf.train.Int64List(value=values))

        def strings(values):
            encoded = [str(value).encode() for value in values]
            return tf.train.Feature(bytes_list=tf.train.BytesList(value=encoded))

        features = {
            "linex_index": integers([row.index]),
            "shape": integers(row.vectors.shape),
            "layers": strings(self.layers),
            "values": tf.train.Feature(
                float_list=tf.train.FloatList(value=row.vectors.ravel().tolist())
            ),
        }
        if row.tokens is not None:
            features["tokens"] = strings(row.tokens)
        if row.spans is not None:
            features["starts"] = integers(row.spans[:, 0].tolist())
            features["ends"] = integers(row.spans[:, 1].tolist())
        example = tf.train.Example(features=tf.train.Features(feature=features))
        self._file.write(example.SerializeToString())


class NumpyWriter(VectorWriter):
    """Arrays that `numpy.load` can also map: float32 [lines, layers, width] of pooled lines.

    Otherwise [vectors, layers, width], and beside NAME.npy there are NAME.splits.npy, int64
    [lines + 1]: line i has the vectors splits[i] to splits[i + 1]; and NAME.ids.npy, int32
    [vectors]: pieces, or of words NAME.spans.npy, int32 [vectors, 2]: characters of the line.
    """

    def _open(self):
        shape = (len(self.layers), self.width)
        self._vectors = self._array(self.path, "<f4", shape)
        if self.pooled:
            return
        base = self.path.removesuffix(".npy")
        self._splits = self._array(f"{base}.splits.npy", "<i8")
        self._splits.append(np.zeros(1))
        if self.words:
            self._details = self._array(f"{base}.spans.npy", "<i4", (2,))
        else:
            self._details = self._array(f"{base}.ids.npy", "<i4")

    def __exit__(self, *error):
        super().__exit__(*error)
        if error[0] is not None:
            return
        base = self.path.removesuffix(".npy")
        written = () if self.pooled else ("splits", "spans" if self.words else "ids")
        for part in {"splits", "spans", "ids"}.difference(written):
            # Of an earlier extraction, whose vectors these aren't.
            if tf.io.gfile.exists(f"{base}.{part}.npy"):
                tf.io.gfile.remove(f"{base}.{part}.npy")

    def _array(self, name: str, dtype: str, shape: tuple[int, ...] = ()) -> "_GrowingArray":
        return self._files.enter_context(_GrowingArray(self._temporary(name), dtype, shape))

    def _write(self, row):
        self._vectors.append(row.vectors)
        if not self.pooled:
            self._splits.append(np.array([self._vectors.count]))
            self._details.append(row.spans if self.words else row.ids)


class _GrowingArray:
    """A .npy file of which the first dimension is known only in the end.

    Its header leaves room for that. It is written again, so the file has to be local: one for
    another file system is copied there in the end.
    """

    def __init__(self, path: str, dtype: str, shape: tuple[int, ...]):
        self.path = path
        self.dtype = dtype
        self.shape = shape
        self.count = 0
        self._remote = "://" in path
        # What is opened here is closed by __exit__.
        self._file = tempfile.TemporaryFile() if self._remote else open(path, "wb")  # noqa: SIM115
        self._header()

    def __enter__(self) -> "_GrowingArray":
        return self

    def append(self, values: np.ndarray) -> None:
        self._file.write(np.ascontiguousarray(values, self.dtype).tobytes())
        self.count += len(values)

    def __exit__(self, *_) -> None:
        try:
            self._file.seek(0)
            self._header()
            if self._remote:
                self._file.seek(0)
                with tf.io.gfile.GFile(self.path, "wb") as file:
                    shutil.copyfileobj(self._file, file)
        finally:
            self._file.close()

    def _header(self) -> None:
        shape = (self.count, *self.shape)
        header = {"descr": self.dtype, "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(self._file, header)


def output_files(format: str, path: str | None) -> list[str]:
    """What `open_vector_file` may write under a name; nothing under none."""
    if not path or format != "numpy":
        return [path] if path else []
    base = path.removesuffix(".npy")
    return [path, *(f"{base}.{part}.npy" for part in ("splits", "ids", "spans"))]


_WRITERS = {"jsonl": VectorJsonWriter, "tfrecord": _RecordWriter, "numpy": NumpyWriter}


def open_vector_file(
    format: str,
    path: str,
    layers: Sequence[int | str],
    width: int,
    *,
    words: bool = False,
    pooled: bool = False,
) -> VectorWriter:
    """The writer of a format; a context manager. See the classes here.

    Raises:
        DataError: On entering: the file can't be written, or a NumPy file has another ending.
    """
    if format == "numpy" and not path.endswith(".npy"):
        raise DataError(f"The output file is {path}; the name of a NumPy file ends in .npy.")
    return _WRITERS[format](path, layers, width, words, pooled)
