"""Lines of any file, as they are and as they come."""

import gzip
import os
import threading
import tracemalloc

import pytest

from data.errors import DataError
from data.files import lines
from data.files.lines import check_decoded, number_of_lines, numbered_lines, open_lines


def written(tmp_path, content: bytes):
    path = tmp_path / "a.txt"
    path.write_bytes(content)
    return str(path)


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_lines(pack, tmp_path):
    content = "\ufeffa\r\nb\u2028c\rd\n\n é".encode()
    stream = open_lines(written(tmp_path, pack(content)))
    assert stream.first_character() == "a"
    assert list(stream.lines()) == ["a", "b\u2028c", "d", "", " é"]
    assert stream.done == stream.size == len(pack(content))
    assert not stream.live
    kept = open_lines(written(tmp_path, pack(content))).lines(keep_ends=True)
    assert list(kept) == ["a\r\n", "b\u2028c\r", "d\n", "\n", " é"]


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
@pytest.mark.parametrize("content", [b"", b"\n", b"a", b"a\n", b"a\r\n\nb", b"a\rb\n" * 200_000])
def test_number_of_lines(tmp_path, pack, content):
    path = written(tmp_path, pack(content))
    assert number_of_lines(path) == len(list(numbered_lines(path)))


def test_bytes_that_are_not_utf8_are_said_by_line(tmp_path):
    good, bad = open_lines(written(tmp_path, b"\xc3\xa9\nna\xefve\n")).lines()
    assert check_decoded("f:1", good) == "é"
    with pytest.raises(DataError, match=r"f:2: found the bytes b'\\xef'"):
        check_decoded("f:2", bad)


def test_what_can_not_be_read(tmp_path, monkeypatch):
    for path in (tmp_path / "absent", tmp_path):
        with pytest.raises(DataError, match="can't be read"):
            list(open_lines(str(path)).lines())
    packed = gzip.compress(bytes(range(256)) * 400)
    for damaged in (packed[:-20], packed[:100], b"\x1f\x8b no gzip"):
        with pytest.raises(DataError, match="damaged"):
            list(open_lines(written(tmp_path, damaged)).lines())
    monkeypatch.setattr(lines, "MAX_LINE_CHARACTERS", 100)
    assert len(list(open_lines(written(tmp_path, b"a" * 98 + b"\nb")).lines())) == 2
    with pytest.raises(DataError, match=r"a\.txt:2: this line has 100 characters"):
        list(open_lines(written(tmp_path, b"a\n" + b"a" * 200)).lines())


def test_named_pipe_gives_lines_as_they_come(tmp_path):
    path = str(tmp_path / "pipe")
    os.mkfifo(path)
    answered = threading.Event()

    def write():
        with open(path, "wb", buffering=0) as file:
            file.write(b"  {first\n")
            # The second line is written only after the first one has been read.
            assert answered.wait(60)
            file.write(b"second\n")

    writer = threading.Thread(target=write)
    writer.start()
    stream = open_lines(path)
    assert stream.live and stream.size is None
    assert stream.first_character() == "{"
    lines = stream.lines()
    assert next(lines) == "  {first"
    answered.set()
    assert list(lines) == ["second"]
    writer.join()


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_memory_does_not_grow_with_the_file(pack, tmp_path):
    path = written(tmp_path, pack(b"some words in a line\n" * 200_000))
    tracemalloc.start()
    assert sum(1 for _ in open_lines(path).lines()) == 200_000
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2**20


def test_lines_of_another_encoding(tmp_path):
    text = '{"a": "é"}\r\nœ\n'
    for encoding in ("utf-16", "cp1252", "utf-8"):
        stream = open_lines(written(tmp_path, text.encode(encoding)), encoding)
        assert stream.first_character() == "{"
        assert [check_decoded("f", line, encoding) for line in stream.lines()] == [
            '{"a": "é"}',
            "œ",
        ]
    *_, bad = open_lines(written(tmp_path, b"a\nb\x81\n"), "cp1252").lines()
    with pytest.raises(DataError, match=r"f:2: .*x81'.*byte 2 of the line.*not cp1252.*latin-1"):
        check_decoded("f:2", bad, "cp1252")
    stream = open_lines(written(tmp_path, "a\nb".encode("utf-16") + b"\0\xd8\0\0"), "utf-16")
    with pytest.raises(DataError, match=r"a\.txt:\d: found the bytes .*not utf-16"):
        list(stream.lines())
    *_, bad = open_lines(written(tmp_path, "a\nGröße".encode("utf-16") + b"\xe9"), "utf-16").lines()
    with pytest.raises(DataError, match=r"f:2: found the bytes b'\\xe9', which are not utf-16, as"):
        check_decoded("f:2", bad, "utf-16")
    with pytest.raises(DataError, match="--encoding is 'utf-9'"):
        open_lines(str(tmp_path / "a.txt"), "utf-9")
