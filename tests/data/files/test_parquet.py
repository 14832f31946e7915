"""Parquet as a corpus: ranges of rows, kinds of columns, errors by row."""

import random
import sys

import pyarrow
import pyarrow.parquet
import pytest

from data.errors import DataError
from data.files import parquet
from data.pretraining.corpus import CorpusProgress, Document, formats, read_documents
from data.pretraining.corpus.sources import open_source

TEXTS = ["Dr. Smith came. He left.\r\n\nA heading", "", "日本語。次。", " \n", "Ü\u2028x"]
SENTENCES = [["Dr. Smith came.", "He left.", "A heading"], ["日本語。", "次。"], ["Ü\u2028x"]]


def write(path, columns, **options):
    pyarrow.parquet.write_table(pyarrow.table(columns), path, **options)
    return str(path)


def documents(path, **options):
    return [d.sentences for d in read_documents([path], **options)]


def test_rows_are_documents(tmp_path):
    path = write(tmp_path / "a", {"id": range(5), "text": TEXTS}, row_group_size=2)
    assert documents(path) == SENTENCES
    assert [d.source for d in read_documents([path])] == [f"{path}: row {n}" for n in (1, 3, 5)]
    other = write(tmp_path / "b", {"text": [5] * 5, "body": TEXTS})
    assert documents(other, text_field="body") == SENTENCES


@pytest.mark.parametrize("group", [1, 3, 7, 1000])
def test_every_cut(tmp_path, monkeypatch, group):
    monkeypatch.setattr(parquet, "_BATCH_ROWS", 2)
    texts = [f"Row {i}." for i in range(40)]
    source = open_source(write(tmp_path / "a", {"text": texts}, row_group_size=group))
    assert source.format == "parquet" and source.size == 40 and source.divisible
    generator = random.Random(group)
    cuts = [[cut] for cut in range(41)]
    cuts += [sorted(generator.choices(range(41), k=5)) for _ in range(20)]
    for cut in cuts:
        read = []
        bounds = zip([0, *cut], [*cut, None], strict=True)
        found = [
            s for b, e in bounds for d in source.documents(b, e, read.append) for s in d.sentences
        ]
        assert found == texts
        assert sum(read) == source.stored
    assert list(source.documents(40, 50)) == list(source.documents(7, 7)) == []


@pytest.mark.parametrize(
    "kind",
    [
        pyarrow.string(),
        pyarrow.large_string(),
        pyarrow.binary(),
        pyarrow.dictionary(pyarrow.int32(), pyarrow.string()),
    ],
)
@pytest.mark.parametrize("codec", ["none", "snappy", "zstd"])
def test_kinds_of_columns(tmp_path, kind, codec):
    column = pyarrow.array(TEXTS).cast(kind)
    assert documents(write(tmp_path / "a", {"text": column}, compression=codec)) == SENTENCES


def test_weight_is_the_text_before_compression(tmp_path):
    text = ["The same sentence again and again. " * 100] * 50
    columns = {"id": range(50), "text": text, "more": text}
    path = write(tmp_path / "a", columns, use_dictionary=False, compression="zstd")
    source = open_source(path)
    assert source.weight == pytest.approx(50 * 3500, rel=0.05)
    assert source.stored < source.weight / 5


def test_memory_stays_bounded_within_one_row_group(tmp_path, monkeypatch):
    """Neither Arrow's pool nor a single read has more than some megabytes of a column of 80."""
    generator = random.Random(1)
    texts = [generator.randbytes(4000).hex() for _ in range(10_000)]
    path = write(tmp_path / "a", {"text": texts}, use_dictionary=False, compression="none")
    assert open_source(path).weight > 79e6
    # Splitting sentences is what would take time here.
    monkeypatch.setattr(
        formats, "corpus_document", lambda text, source: Document([text[:9]], source)
    )
    asked, read = [], parquet._Seekable.read
    monkeypatch.setattr(
        parquet._Seekable, "read", lambda self, size=-1: asked.append(size) or read(self, size)
    )
    before = largest = pyarrow.total_allocated_bytes()
    for _ in read_documents([path]):
        largest = max(largest, pyarrow.total_allocated_bytes())
    assert largest - before < 30e6
    assert sum(asked) > 79e6 and max(asked) < 1e7  # A page is read at once.


def test_bad_rows_are_named(tmp_path, monkeypatch):
    path = write(tmp_path / "a", {"text": ["a"] * 1500 + [None]}, row_group_size=700)
    with pytest.raises(DataError, match=r"a: row 1501: the column 'text' holds null"):
        documents(path)
    with pytest.raises(DataError, match=r"a: row 1501:"):
        list(open_source(path).documents(1400))
    assert len(list(open_source(path).documents(0, 1500))) == 1500
    broken = pyarrow.array([b"good", b"caf\xe9"]).view(pyarrow.string())
    with pytest.raises(DataError, match=r"b: row 2: .*byte 0xe9 at byte 3 .* isn't valid UTF-8"):
        documents(write(tmp_path / "b", {"text": broken}))
    monkeypatch.setattr(formats, "MAX_DOCUMENT_CHARACTERS", 1000)
    with pytest.raises(DataError, match=r"c: row 2: the document that starts here"):
        documents(write(tmp_path / "c", {"text": ["x", "x" * 1001]}))


def test_bad_columns_are_named(tmp_path):
    path = write(tmp_path / "a", {"body": ["x"], "title": ["y"]})
    with pytest.raises(
        DataError, match=r"no column 'text'; its columns: 'body', 'title'\. .*_field"
    ):
        open_source(path)
    path = write(tmp_path / "a", {f"c{i}": [1] for i in range(30)})
    with pytest.raises(DataError, match=r"'c9' and 20 more"):
        open_source(path)
    for values in ([1], [["x"]], [{"text": "x"}]):
        with pytest.raises(DataError, match=r"'text' holds values of type .*; strings"):
            open_source(write(tmp_path / "a", {"text": values}))
    twice = pyarrow.Table.from_arrays([pyarrow.array(["a"])] * 2, names=["text", "text"])
    pyarrow.parquet.write_table(twice, tmp_path / "b")
    with pytest.raises(DataError, match="several columns 'text'"):
        open_source(str(tmp_path / "b"))


def test_values_that_python_has_not(tmp_path):
    """They matter where they are wanted alone, and are told by their row."""
    times = pyarrow.array([1_000_000_000, 1_700_000_000_123_456_789], pyarrow.timestamp("ns"))
    path = write(tmp_path / "a.parquet", {"text": ["x", "y"], "at": times})
    rows = [*parquet.read_rows(path, {"text"})]
    assert rows == [(f"{path}: row {n}", {"text": t, "at": None}) for n, t in ((1, "x"), (2, "y"))]
    with pytest.raises(DataError) as error:
        [*parquet.read_rows(path)]
    assert str(error.value).startswith(f"{path}: row 2: a value can't be read (")
    assert "'at' (timestamp[ns])" in str(error.value)


def test_damaged_files_and_wrong_names(tmp_path):
    path = tmp_path / "a.parquet"
    write(path, {"text": [f"{i} " * 500 for i in range(1000)]}, compression="zstd")
    content = path.read_bytes()
    path.write_bytes(content[:-100])
    with pytest.raises(DataError, match=r"a\.parquet is a damaged or truncated Parquet"):
        open_source(str(path))
    path.write_bytes(content[:4000] + bytes(1000) + content[5000:])
    with pytest.raises(DataError, match=r"a\.parquet is a damaged or truncated Parquet"):
        documents(str(path))
    path.write_text("A text.\n")
    with pytest.raises(DataError, match=r"a\.parquet isn't a Parquet file"):
        open_source(str(path))


def test_a_file_of_no_rows_and_progress(tmp_path):
    empty = write(tmp_path / "a", {"text": pyarrow.array([], pyarrow.string())})
    assert documents(empty) == [] and open_source(empty).weight >= 0
    path = write(tmp_path / "b", {"text": TEXTS * 100})
    progress = CorpusProgress([path], "Reading")
    list(read_documents([path], on_read=progress))
    assert progress.done == progress.total


def test_a_missing_package_is_named(tmp_path, monkeypatch):
    path = write(tmp_path / "a", {"text": TEXTS})
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(DataError, match=r"a: reading Parquet needs .*pip install pyarrow"):
        open_source(path)
