"""Tables of every format, and what is refused in them with which words."""

import csv
import gzip
import json

import pyarrow
import pyarrow.parquet
import pytest

from data.errors import DataError, did_you_mean
from data.files.tables import parse_delimiter, read_table, table_value


def rows(path, **options):
    return [(row.source, row.fields) for row in read_table(str(path), **options)]


@pytest.fixture
def written(tmp_path):
    def write(name, content):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8"))
        return path

    return write


def test_tsv_splits_at_tabs_only(written):
    path = written("a.tsv", '\ufefftext\tlabel\r\n"a, b\tx\r\nc\u2028d"\ty\r\n')
    assert rows(path) == [
        (f"{path}:2", {"text": '"a, b', "label": "x"}),
        (f"{path}:3", {"text": 'c\u2028d"', "label": "y"}),
    ]


def test_csv_embedded_newlines_and_quotes(written):
    path = written(
        "a.csv", '\ufefftext,label\r\n"one\ntwo, ""three""\r\nfour",x\r\nplain "q",y\r\n"z",w'
    )
    assert rows(path) == [
        (f"{path}:2", {"text": 'one\ntwo, "three"\r\nfour', "label": "x"}),
        (f"{path}:5", {"text": 'plain "q"', "label": "y"}),
        (f"{path}:6", {"text": "z", "label": "w"}),
    ]


def test_json_lines(written):
    path = written("a.jsonl", '{"text": "a\\nb", "n": 1}\n\n  \n{"text": "\\ud800x", "l": []}\n')
    assert rows(path) == [
        (f"{path}:1", {"text": "a\nb", "n": 1}),
        (f"{path}:4", {"text": "\ufffdx", "l": []}),
    ]
    assert rows(written("b.ndjson", '{"a": null}')) == [(f"{path.parent}/b.ndjson:1", {"a": None})]


def test_parquet(tmp_path):
    path = tmp_path / "a.parquet"
    count = 1500  # More than one batch.
    columns = {
        "text": [f"t{i}" for i in range(count)],
        "labels": [["x"], None] * (count // 2),
        "value": [i / 2 for i in range(count)],
    }
    pyarrow.parquet.write_table(pyarrow.table(columns), path)
    got = rows(path)
    assert len(got) == count
    assert got[0] == (f"{path}: row 1", {"text": "t0", "labels": ["x"], "value": 0.0})
    assert got[-1] == (f"{path}: row 1500", {"text": "t1499", "labels": None, "value": 749.5})

    pyarrow.parquet.write_table(
        pyarrow.Table.from_arrays([pyarrow.array(["a"])] * 2, names=["t", "t"]), path
    )
    with pytest.raises(DataError, match="name twice: 't'"):
        rows(path)
    broken = pyarrow.array([b"good", b"caf\xe9"]).view(pyarrow.string())
    pyarrow.parquet.write_table(pyarrow.table({"t": broken}), path)
    with pytest.raises(DataError, match=r"a\.parquet: row 2: .*xe9.*UTF-8"):
        rows(path)
    path.write_bytes(b"PAR1 no")
    with pytest.raises(DataError, match="is a damaged or truncated Parquet"):
        rows(path)


def test_gzip_and_explicit_format(written):
    path = written("a.TSV.gz", gzip.compress(b"t\nx\n"))
    assert rows(path) == [(f"{path}:2", {"t": "x"})]
    path = written("a.txt", "t,u\nx,y\n")
    assert rows(path, format="csv")[0][1] == {"t": "x", "u": "y"}
    with pytest.raises(DataError, match=r"a\.txt.*\.tsv, \.csv.*tsv, csv, jsonl, parquet"):
        rows(path)
    with pytest.raises(DataError, match=r"'xls'.*tsv, csv, jsonl, parquet"):
        rows(path, format="xls")
    with pytest.raises(DataError, match="damaged"):
        rows(written("b.csv.gz", gzip.compress(b"t\nx\n" * 99)[:-9]))


def test_without_header(written):
    path = written("a.tsv", "x\ty\nz\tw\n")
    assert rows(path, has_header=False) == [
        (f"{path}:1", {"0": "x", "1": "y"}),
        (f"{path}:2", {"0": "z", "1": "w"}),
    ]


@pytest.mark.parametrize("name", ["a.tsv", "a.csv"])
def test_blank_lines(name, written):
    path = written(name, "text\na\n\nb\n\n\n")
    assert rows(path) == [
        (f"{path}:{line}", {"text": text}) for line, text in ((2, "a"), (3, ""), (4, "b"))
    ]
    separator = "," if name == "a.csv" else "\t"
    path = written(name, f"text{separator}label\n\na{separator}b\n")
    with pytest.raises(DataError, match=rf"{name}:2: this row has 1 .*has 2"):
        rows(path)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.tsv", "t\tl\nx\ty\nshort\n", ["a.tsv:3:", "has 1 tab-sep", "has 2", "'short'"]),
        ("a.tsv", "t\tl\nx\ty\tz\n", ["a.tsv:2:", "has 3 tab", "has 2", "x\\ty\\tz"]),
        ("a.csv", 't,l\n"x\nx",y\n' + "s" * 99 + "\n", ["a.csv:4:", "has 1 comma", "sss…"]),
        ("a.csv", 't,l\n"a"b,c\n', ["a.csv:2:", "isn't CSV"]),
        ("a.csv", 't,l\na,b\n"open,c\nd,e\n', ["a.csv:3:", "isn't CSV", "end of data"]),
        ("a.jsonl", '{"t": 1}\n{"t": \n', ["a.jsonl:2:", "isn't JSON", "one object"]),
        ("a.json", '[{"t": 1}]\n', ["a.json:1:", "not an object"]),
        ("a.jsonl", '{"t": 1, "t": 2}\n', ["a.jsonl:1:", "'t' occurs twice"]),
        ("a.tsv", "t\tl\tt\nx\ty\tz\n", ["a.tsv:1:", "name twice: 't'"]),
        ("a.tsv", b"t\nx\ncaf\xe9\n", ["a.tsv:3:", "xe9", "not UTF-8"]),
        ("a.csv", b"\xef\xbb\xbft\r\ncaf\xe9\r\n", ["a.csv:2:", "b'\\xe9\\r\\n'", "not UTF-8"]),
        ("a.jsonl", b"{}\r\r\xff", ["a.jsonl:3:", "not UTF-8"]),
        ("a.tsv", "", ["a.tsv is empty"]),
        ("a.csv", "t,l\n\n", ["a.csv is empty", "below its header"]),
        ("a.jsonl", "\n\n", ["a.jsonl is empty"]),
    ],
)
def test_bad_files_are_named(name, content, words, written):
    path = written(name, content)
    with pytest.raises(DataError) as error:
        rows(path)
    assert str(path) in str(error.value)
    for word in words:
        assert word in str(error.value)


def test_columns_of_long_names_are_shortened(written):
    (row,) = read_table(str(written("a.tsv", f"{'some text ' * 20}\tlabel\nb\tx\n")))
    with pytest.raises(
        DataError, match=r"a\.tsv:2: .*'text'; the columns are '[a-z ]{60}…', 'label'"
    ):
        table_value(row, "text")


def test_missing_file(tmp_path):
    with pytest.raises(DataError, match=r"none\.tsv can't be read"):
        rows(tmp_path / "none.tsv")


@pytest.mark.parametrize("name", ["a.tsv", "a.csv", "a.jsonl"])
def test_cell_of_ten_megabytes(name, written):
    text = "word " * (2 * 2**20)
    if name == "a.jsonl":
        path = written(name, json.dumps({"text": text, "label": "x"}))
    elif name == "a.csv":
        path = written(name, f'text,label\n"{text}",x\n')
    else:
        path = written(name, f"text\tlabel\n{text}\tx\n")
    before = csv.field_size_limit(1000)
    try:
        (row,) = read_table(str(path))
    finally:
        csv.field_size_limit(before)
    assert row.fields == {"text": text, "label": "x"}


def test_nearest():
    assert "'text'" in did_you_mean("Txt", ["label", "text"])
    assert did_you_mean("zzz", ["label", "text"]) == ""


@pytest.mark.parametrize(
    ("given", "meant"),
    [("tab", "\t"), ("\\t", "\t"), ("\t", "\t"), ("Semicolon", ";"), ("|", "|"), (None, None)],
)
def test_delimiters(given, meant):
    assert parse_delimiter(given) == meant


@pytest.mark.parametrize("given", ["", ";;", "x", "7", '"', "\n", "colon"])
def test_what_is_no_delimiter(given):
    with pytest.raises(DataError, match=r"--delimiter is .*; expected tab, comma, semicolon, pipe"):
        parse_delimiter(given)


def test_files_with_another_delimiter_and_encoding(written):
    text = 't;l\n"café; thé";a,b\n'
    path = str(written("a.csv", text.encode("cp1252")))
    found = list(read_table(path, delimiter=";", encoding="cp1252"))
    assert [row.fields for row in found] == [{"t": "café; thé", "l": "a,b"}]
    path = str(written("a.tsv", 't|l\n"a|b\n'))
    assert [row.fields for row in read_table(path, delimiter="|")] == [{"t": '"a', "l": "b"}]
    path = str(written("b.csv", "t;l\na;b;c\n"))
    with pytest.raises(DataError, match=r"has 3 semicolon-sep.* a semicolon inside .* needs quot"):
        list(read_table(path, delimiter=";"))


@pytest.mark.parametrize(
    ("name", "header", "called"),
    [
        ("a.csv", "text;l", "semicolon"),
        ("a.tsv", "text,l", "comma"),
        ("a.csv", "a|b", "pipe"),
    ],
)
def test_a_wrong_delimiter_is_told_by_the_header(name, header, called, written):
    (row,) = read_table(str(written(name, f"{header}\nx\n")))
    with pytest.raises(DataError, match=f"If {called}s separate .* --delimiter={called}"):
        table_value(row, "text")
    (row,) = read_table(str(written("b.csv", "body\nx\n")))
    with pytest.raises(DataError, match=r"Name one that is there\.$"):
        table_value(row, "text")
