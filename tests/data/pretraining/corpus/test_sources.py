"""Ranges of corpus files: however a file is cut, its documents come once each and whole."""

import gzip
import json
import pickle
import random

import pytest

from data.errors import DataError
from data.files import lines, streams
from data.pretraining.corpus import formats, sources
from data.pretraining.corpus.sources import open_source

PLAIN = {
    "usual": b"A b.\nC d.\n\nE.\nF.\n\n\n\nG.\n",
    "no newline at the end": b"A.\n\nB.",
    "blank lines with white space": "\n \nA.\n\u00a0\u2003\t\nB.\n \n  \n\t\nC.\n   ".encode(),
    "carriage returns": b"A.\r\nB.\r\n\r\nC.\r\n \r\nD.",
    "byte order mark": "\ufeffÄ.\n\nB\ufeff.\n\n\ufeff\nC.\n".encode(),
    "byte order mark and a blank line": b"\xef\xbb\xbf\nA.\n\nB.\n",
    "nothing but a byte order mark": b"\xef\xbb\xbf",
    "multi-byte characters": "日本\u2028語。\n\n\U0001f600\u200b\n\n\u3000\nÜ.".encode(),
    "long lines": b"x" * 90 + b"\n" + b"y" * 80 + b"\n\n" + b" " * 70 + b"\n" + b"z" * 60,
    "blank only": b"\n \n\n",
    "one document": b"A.\nB.\nC.\nD.\nE.",
    "empty": b"",
}
WIKI = """

<doc id="1" title="Ä">
Ä

Ein Satz über Öl. Noch ein Satz, 終わり。
</doc>
Text outside of any article has more than six words in it.
<doc id="2" title="Empty">
Empty

</doc>

<doc id="3" title="Last">\r
Another paragraph of more than six words, certainly.\r
\r
And one more paragraph of more than six words.
""".encode()
JSON = "\n".join(
    [
        "",
        '{"text": "Ä b. C d."}',
        " ",
        '{"text": ""}',
        '{"text": "日本語。\\n\\nX."}\r',
        '{"text": "Y"}',
    ]
).encode()
FILES = {**PLAIN, "wiki": WIKI, "json": JSON}


def write(path, content):
    path.write_bytes(content)
    return open_source(str(path))


def sentences(source, *bounds):
    return [d.sentences for begin, end in bounds for d in source.documents(begin, end)]


def whole(source):
    return [d.sentences for d in source.documents()]


@pytest.mark.parametrize("name", PLAIN)
def test_whole_file_against_an_oracle(tmp_path, name):
    documents = [[]]
    for line in PLAIN[name].decode("utf-8-sig").split("\n"):
        if line.strip():
            documents[-1].append(line.strip())
        else:
            documents.append([])
    source = write(tmp_path / "a", PLAIN[name])
    assert source.format == "plain" and source.size == source.weight == len(PLAIN[name])
    assert whole(source) == [d for d in documents if d]


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("block", [3, 2**20])
def test_every_cut_and_every_pair_of_cuts(tmp_path, monkeypatch, name, block):
    monkeypatch.setattr(streams, "BLOCK_BYTES", block)
    source = write(tmp_path / "a", FILES[name])
    expected, size = whole(source), source.size
    assert expected or name in ("blank only", "empty", "nothing but a byte order mark")
    for cut in range(size + 1):
        assert sentences(source, (0, cut), (cut, size)) == expected
    generator = random.Random(name)
    for _ in range(60):
        cuts = sorted(generator.choices(range(size + 1), k=generator.randrange(1, 6)))
        bounds = list(zip([0, *cuts], [*cuts, None], strict=True))
        assert sentences(source, *bounds) == expected
    assert sentences(source, *((at, at + 1) for at in range(size))) == expected


@pytest.mark.parametrize("seed", range(40))
def test_random_files_and_cuts(tmp_path, monkeypatch, seed):
    generator = random.Random(seed)
    monkeypatch.setattr(streams, "BLOCK_BYTES", generator.choice([1, 5, 64]))
    pieces = ["a", "Ä. ", "日", "\n", "\n\n", " \n", "\r\n", "\u2003", "\u2028", "\ufeff", "x" * 50]
    text = "".join(generator.choices(pieces, k=generator.randrange(1, 200))).encode()
    source = write(tmp_path / "a", text)
    packed = write(tmp_path / "b", gzip.compress(text))
    expected = whole(source)
    assert whole(packed) == expected and packed.size == len(text)
    cuts = sorted(generator.choices(range(len(text) + 1), k=generator.randrange(12)))
    bounds = list(zip([0, *cuts], [*cuts, len(text)], strict=True))
    assert sentences(source, *bounds) == expected
    assert sentences(packed, *bounds) == expected


def test_a_document_belongs_to_the_blank_line_before_it(tmp_path):
    source = write(tmp_path / "a", b"A.\n\n\nB.\nC.\n\nD.")
    #                               0    3 4 5    8    11 12
    assert sentences(source, (0, 1)) == [["A."]]
    assert sentences(source, (1, 4)) == []
    assert sentences(source, (4, 5)) == [["B.", "C."]]
    assert sentences(source, (5, 11)) == []
    assert sentences(source, (11, 12)) == [["D."]]
    assert sentences(source, (3, 3)) == sentences(source, (14, 20)) == []


def test_the_format_is_the_files_not_the_ranges(tmp_path):
    source = write(tmp_path / "a", b"A.\n\n" + b'{"text": 5}\n' * 20)
    assert sentences(source, (0, 2), (2, None)) == [["A."], ['{"text": 5}'] * 20]


def test_sources_of_documents(tmp_path):
    source = write(tmp_path / "a", b"A.\n\nB.\n\nC.\n")
    assert [d.source for d in source.documents()] == [f"{source.path}:{n}" for n in (1, 3, 5)]
    assert [d.source for d in source.documents(2)] == [f"{source.path}:byte {n}" for n in (4, 8)]
    packed = write(tmp_path / "b", gzip.compress(b"A.\n\nB.\n\nC.\n"))
    assert [d.source for d in packed.documents(2)] == [f"{packed.path}:{n}" for n in (3, 5)]


def test_a_range_reads_little_beyond_its_end(tmp_path, monkeypatch):
    monkeypatch.setattr(streams, "_SMALL_BLOCK_BYTES", 100)
    source = write(tmp_path / "a", b"A sentence.\n\n" * 100_000)
    read = []
    documents = list(source.documents(400_000, 500_000, read.append))
    assert 7_600 < len(documents) < 7_800 and 100_000 < sum(read) < 100_500
    read.clear()
    list(source.documents(on_read=read.append))
    assert sum(read) == source.size


def test_long_lines_are_skipped_without_being_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(lines, "MAX_LINE_BYTES", 2_000_000)
    source = write(tmp_path / "a", b"A.\n\n" + b"x" * 1_900_000 + b"\n\nB.\n")
    read = []
    assert list(source.documents(300_000, 400_000, read.append)) == []
    assert sum(read) < 300_000
    assert [len(s[0]) for s in sentences(source, (2, 4), (4, None))] == [1_900_000, 2]


def test_five_megabytes_in_a_line(tmp_path):
    words = "word " * 1_000_000
    for name, content in {
        "plain": f"A.\n\n{words}\n\nB.",
        "json": "\n".join(json.dumps({"text": t}) for t in ("A.", words, "B.")),
        "wiki": f'<doc title="T">\n{words}\n</doc>\n',
    }.items():
        source = write(tmp_path / name, content.encode())
        assert words.strip() in [document[0] for document in whole(source)]
        halves = sentences(source, (0, 2_500_000), (2_500_000, None))
        assert halves == whole(source)


@pytest.mark.parametrize("compressed", [False, True])
def test_errors_of_ranges_name_the_line(tmp_path, monkeypatch, compressed):
    # Else the first look at a file sees all of these.
    monkeypatch.setattr(streams, "BLOCK_BYTES", 64)

    def documents(content, begin):
        data = gzip.compress(content) if compressed else content
        return list(write(tmp_path / "a", data).documents(begin))

    start = "Ä\n\n".encode() * 1000
    with pytest.raises(DataError, match=r"a:2003: byte 0xe9 at byte 3"):
        documents(start + b"fine\n\ncaf\xe9\nfine\n", 1234)
    with pytest.raises(DataError, match=r"a:1: byte 0xe9 at byte 3"):
        documents(b"caf\xe9\n" + b"fine\n" * 30_000, 0)
    with pytest.raises(DataError, match=r"a:2002: found a zero byte"):
        documents(b"a\n" + b"b" * 100_000 + b"\n" * 2000 + b"a\0b", 90_000)
    with pytest.raises(DataError, match=r"a:301: this line isn't JSON"):
        documents(b'{"text": "x"}\n' * 300 + b"{\n", 2000)
    with monkeypatch.context() as patch, pytest.raises(DataError, match=r"a:301: this line"):
        patch.setattr(streams, "BLOCK_BYTES", 2**20)
        documents(b'{"text": "x"}\n' * 300 + b"{\n", 2000)
    monkeypatch.setattr(formats, "MAX_DOCUMENT_CHARACTERS", 1000)
    with pytest.raises(DataError, match=r"a:2003: the document that starts here"):
        documents(start + b"ok\n\n" + b"A line.\n" * 200, 1234)
    with pytest.raises(DataError, match=r"a:301: the document that starts here"):
        documents(b'{"text": "x"}\n' * 300 + b'{"text": "%s"}\n' % (b"x" * 1001), 2000)
    monkeypatch.setattr(lines, "MAX_LINE_BYTES", 1000)
    with pytest.raises(DataError, match=r"a:2003: this line has more than 1,000 bytes"):
        documents(start + b"ok\n\n" + b"no end " * 20_000, 1234)


def test_weights_and_divisibility(tmp_path, monkeypatch):
    text = b"A sentence.\n\n" * 1000
    plain = write(tmp_path / "a", text)
    assert plain.divisible and plain.weight == plain.size == plain.stored == len(text)
    data = gzip.compress(text)
    packed = write(tmp_path / "b", data)
    monkeypatch.setattr(sources, "read_blocks", None)  # Neither may decompress.
    assert not packed.divisible and packed.weight == 4 * len(data) and packed.stored == len(data)
    monkeypatch.undo()
    assert packed.size == len(text)
    monkeypatch.setattr(sources, "WHOLE_BYTES", len(data) - 1)
    assert packed.divisible
    again = pickle.loads(pickle.dumps(packed))
    assert again == packed and whole(again) == whole(plain)


def test_empty_documents(tmp_path):
    for name, content in {
        "plain": b"\n\n\nA.\n\n\n \n\nB.\n\n",
        "wiki": b'<doc title="E">\nE\n\n</doc>\n<doc title="F">\n\n</doc>\n<doc>\nAbout it: x!\n\n',
        "json": b'{"text": ""}\n{"text": " \\n \\n"}\n{"text": "A."}',
    }.items():
        assert len(whole(write(tmp_path / name, content))) == {"plain": 2}.get(name, 1)
