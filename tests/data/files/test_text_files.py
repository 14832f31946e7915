"""What all readers of text share: names, paths, encodings, ends of lines, words of messages."""

import gzip
import json
import sys

import pytest

from data.errors import DataError, error_list, error_text
from data.files.text_files import (
    expand,
    file_extension,
    json_object,
    lines_of,
    named_file_row,
    placed_file,
    read_bytes,
    read_text,
    split_file_names,
    stem,
    tsv_line,
)


@pytest.fixture
def written(tmp_path):
    def write(content):
        path = tmp_path / "a.tsv"
        path.write_bytes(content)
        return str(path)

    return write


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_text_without_byte_order_mark(pack, written):
    path = written(pack("\ufeffä\ufeff\r\n".encode()))
    assert read_text(path) == "ä\ufeff\r\n"


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_line_of_what_is_not_utf8(end, pack, written):
    path = written(pack(b"\xef\xbb\xbfa" + end + end + b"b\xe9cdef"))
    with pytest.raises(DataError) as error:
        read_text(path)
    assert f"{path}:3: found the bytes b'\\xe9cde'" in str(error.value)


def test_hint_ends_the_message(tmp_path):
    for read in (read_text, read_bytes):
        with pytest.raises(DataError, match=r"x can't be read \(NotFoundError\)\. Look there\.$"):
            read(str(tmp_path / "x"), "Look there.")
        with pytest.raises(DataError, match=r"can't be read .* Check the name"):
            read(str(tmp_path))


def test_damaged_gzip(written):
    for content in (gzip.compress(b"text" * 99)[:-9], b"\x1f\x8bnone"):
        with pytest.raises(DataError, match="damaged"):
            read_text(written(content))


def test_lines_end_at_three_ends_only():
    assert lines_of("a\r\nb\rc\n\nd\u2028\x0b\x85 \n\r\n\r") == [
        "a",
        "b",
        "c",
        "",
        "d\u2028\x0b\x85 ",
    ]
    assert lines_of("") == lines_of("\n\n") == []


def test_paths():
    assert stem("gs://b/dir.x/My set.tsv.gz") == "My set"
    assert stem("a.parquet") == "a"
    assert stem(".tsv") == ".tsv"
    assert file_extension("b/A.TSV.gz") == ".tsv" and file_extension("a.ndjson") == ".ndjson"
    assert file_extension("a.txt") == file_extension("a.tsv/b") == ""
    assert placed_file(None, "a.tsv") == placed_file("", "a.tsv") == "a.tsv"
    assert placed_file("gs://b/d", "c/a.tsv") == "gs://b/d/c/a.tsv"
    for whole in ("/x/a.tsv", "gs://c/a.tsv"):
        assert placed_file("gs://b/d", whole) == placed_file("/d", whole) == whole


def test_names_of_splits():
    paths = ["a.tsv", "x/my set.tsv", "y/my_set.csv.gz", "my-set"]
    names = ["dev", "dev_my_set", "dev_my_set_2", "dev_my-set"]
    assert split_file_names("dev", paths) == dict(zip(names, paths, strict=True))
    assert split_file_names("test", []) == {}


def test_number_of_columns():
    assert named_file_row("f:2", ["a", "b"], ["1", ""], ",") == {"a": "1", "b": ""}
    with pytest.raises(
        DataError, match="f:2: this row has 1 tab-separated columns, the header has 2"
    ):
        named_file_row("f:2", ["a", "b"], ["1"], "\t")
    with pytest.raises(DataError, match=r"3 comma-separated columns, the first row has 2.*'1,2,3'"):
        named_file_row("f:2", ["a", "b"], ["1", "2", "3"], ",", "first row")


def test_words_of_messages():
    assert error_text("a" * 61) == repr("a" * 60 + "…")
    assert error_text("a'b") == '"a\'b"'
    assert error_text({"ä": [True, None]}) == '{"ä": [true, null]}'
    assert error_text([1] * 99, 5) == "[1, 1…"
    assert error_text(b"x") == "\"b'x'\""
    assert error_list("abc") == "a, b, c" and error_list("abc", 2) == "a, b and 1 more"
    # As when a column of texts is taken for labels, or a row for the header.
    assert error_list(["a" * 99, "b"]) == "a" * 70 + "…, b"


def _read_back(line):
    """The cells of a line, as whoever knows the rules reads them."""
    for cell in line.split("\t"):
        text = json.loads('"' + cell.replace('"', '\\"') + '"')
        guarded = text.startswith("'") and text.lstrip("'" + "".join(SPACES)).startswith(SIGNS)
        yield text[1:] if guarded else text


SIGNS = ("=", "+", "-", "@", "＝", "＋", "－", "＠")
SPACES = [chr(c) for c in range(sys.maxunicode + 1) if chr(c).isspace()]


def test_cells_come_back_as_they_went_in():
    texts = [
        form.format(space) for space in SPACES for form in ("{}a", "a{}", "a{}b", "{}", "{}=a")
    ]
    texts += [
        form.format(sign) for sign in SIGNS for form in ("{}", "{}1+1", "'{}x", "''{}", "a{}")
    ]
    texts += ["", "'", "'a'", '"', '"a\\', "\\n", "\x00\x1b\x7f", "-0.5", "+1e-7", "漢字", "😀"]
    line = tsv_line(texts)
    assert line.splitlines() == [line]
    assert list(_read_back(line)) == texts
    assert len(SPACES) > 24


def test_no_cell_is_a_formula():
    for text in ("=1+1", "+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", " =1", "\t=1", "\r=1", "＝1"):
        assert tsv_line([text]) == "'" + tsv_line([text], raw=True)
    numbers = ["-0.5", "+3", "-1e-07", "-inf", "-Infinity", "nan", "-.5", "1=1", "a@b", "it's"]
    assert tsv_line(numbers).split("\t") == numbers
    assert tsv_line(["-1_0", "-٣", "-", "--1"]).split("\t") == ["'-1_0", "'-٣", "'-", "'--1"]


@pytest.mark.parametrize(
    "value", ["[" * 50_000 + "]" * 50_000, '{"a":' * 50_000 + "1" + "}" * 50_000], ids=["[", "{"]
)
def test_a_deep_value_in_a_field_that_is_not_read(value):
    with pytest.raises(
        DataError, match=r"f\.jsonl:7: .* nested too deeply, in a field .*; it begins"
    ):
        json_object("f.jsonl:7", f'{{"text": "a", "unused": {value}}}')


def test_a_file_of_nearly_the_name_is_named(tmp_path):
    (tmp_path / "train.tsv").write_text("a")
    for read in (read_bytes, expand):
        with pytest.raises(DataError, match=r"\(did you mean 'train\.tsv'\?\)\."):
            read(str(tmp_path / "trian.tsv"))
        for other in ("nothing_like_it", "absent/train.tsv"):
            with pytest.raises(DataError) as error:
                read(str(tmp_path / other))
            assert "did you mean" not in str(error.value)
