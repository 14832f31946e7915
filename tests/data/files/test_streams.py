"""Compressed corpus files: members and frames in a row, damage, missing packages."""

import bz2
import gzip
import json
import lzma
import random
import sys

import pytest
import zstandard

from data.errors import DataError
from data.files import streams
from data.files.lines import open_lines
from data.files.streams import file_compression, read_blocks, read_file_head
from data.files.tables import read_table
from data.pretraining.corpus.sources import open_source
from data.tasks.questions.squad import read_squad
from data.tasks.tagging.conll import TagFormat, read_conll_sentences

# Random enough that damage hits data, and longer than what decompression does at once.
LINES = [f"{random.Random(i).getrandbits(400)} Ä {i}.\n" + "\n" * (i % 5 == 0) for i in range(6000)]
TEXT = "".join(LINES).encode()


def zstd(data):
    return zstandard.ZstdCompressor(write_checksum=True).compress(data)


PACK = {"gzip": gzip.compress, "bzip2": bz2.compress, "xz": lzma.compress, "zstd": zstd}


def unpack(path, on_read=None):
    return b"".join(
        read_blocks(str(path), file_compression(read_file_head(str(path))), on_read=on_read)
    )


@pytest.mark.parametrize("name", PACK)
@pytest.mark.parametrize("cuts", [[], [100_000], [7, 7, 300_000]])
def test_members_in_a_row(tmp_path, name, cuts):
    path = tmp_path / "a"
    bounds = zip([0, *cuts], [*cuts, None], strict=True)
    path.write_bytes(b"".join(PACK[name](TEXT[begin:end]) for begin, end in bounds))
    assert file_compression(read_file_head(str(path))) == name
    sizes = []
    assert unpack(path, sizes.append) == TEXT
    assert sum(sizes) == path.stat().st_size
    (tmp_path / "plain").write_bytes(TEXT)
    plain, packed = open_source(str(tmp_path / "plain")), open_source(str(path))
    documents = [d.sentences for d in plain.documents()]
    assert [d.sentences for d in packed.documents()] == documents
    assert packed.size == len(TEXT)
    thirds = [(0, 100_001), (100_001, 500_000), (500_000, None)]
    parts = [d.sentences for begin, end in thirds for d in packed.documents(begin, end)]
    assert parts == documents


def test_zstandard_frames_of_other_kinds(tmp_path):
    skippable = b"\x5a\x2a\x4d\x18" + (5).to_bytes(4, "little") + b"12345"
    unsized = zstandard.ZstdCompressor(write_content_size=False, write_checksum=True).compress(TEXT)
    parameters = zstandard.ZstdCompressionParameters(
        window_log=28, enable_ldm=True, compression_level=1
    )
    stream = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    wide = stream.compress(TEXT) + stream.flush()
    path = tmp_path / "a"
    path.write_bytes(skippable + unsized + skippable + zstd(b"") + wide)
    assert unpack(path) == TEXT + TEXT


@pytest.mark.parametrize("name", PACK)
def test_damage(tmp_path, name):
    word = {"zstd": "Zstandard"}.get(name, name)
    message = rf"/a is a damaged or truncated {word} file \(.+\)"
    packed, path = PACK[name](TEXT), tmp_path / "a"
    for content in (packed[:-3], packed[: len(packed) // 2], packed + packed[:1000]):
        path.write_bytes(content)
        with pytest.raises(DataError, match=message):
            list(open_source(str(path)).documents())
        with pytest.raises(DataError, match=message):
            _ = open_source(str(path)).size
    middle = len(packed) // 2
    path.write_bytes(packed[:middle] + bytes(50) + packed[middle + 50 :])
    with pytest.raises(DataError, match=message):
        unpack(path)


def test_prose_is_not_taken_for_compressed(tmp_path):
    for text in (b"BZh9 is a name.", b"(\xc2\xb5/m)", b"P*M."):
        (tmp_path / "a").write_bytes(text)
        assert file_compression(read_file_head(str(tmp_path / "a"))) is None


def test_a_missing_package_is_named(tmp_path, monkeypatch):
    path = tmp_path / "a.zst"
    path.write_bytes(zstd(TEXT))
    monkeypatch.setitem(sys.modules, "zstandard", None)
    with pytest.raises(DataError, match=r"a\.zst: reading Zstandard needs .*pip install zstandard"):
        open_source(str(path))


def test_memory_stays_bounded_for_what_compresses_well(tmp_path):
    path = tmp_path / "a"
    data = bytes(100_000_000)
    for pack in (zstd, lambda data: gzip.compress(data, 1)):
        path.write_bytes(pack(data))
        largest = max(map(len, read_blocks(str(path), file_compression(read_file_head(str(path))))))
        assert largest < 20_000_000
        assert len(read_file_head(str(path))) == 16


def test_blocks_are_small_at_first_and_around_the_end(tmp_path, monkeypatch):
    path = tmp_path / "a"
    path.write_bytes(TEXT)
    blocks = [len(b) for b in read_blocks(str(path), None, 1000, 300_000)]
    assert blocks[:3] == [2**16, 300_000 - 1000 - 2**16, 2**16]
    assert sum(blocks) == len(TEXT) - 1000
    monkeypatch.setattr(streams, "BLOCK_BYTES", 100)
    assert max(map(len, read_blocks(str(path), None, 0, 300_000))) == 100


SQUAD = {
    "version": "1.1",
    "data": [
        {
            "title": "T",
            "paragraphs": [
                {
                    "context": "Ada was here.",
                    "qas": [
                        {
                            "id": "q",
                            "question": "Who?",
                            "answers": [{"text": "Ada", "answer_start": 0}],
                        }
                    ],
                }
            ],
        }
    ],
}
READERS = {
    "a.tsv": ("t\tl\nÄ\tx\n", lambda path: [row.fields for row in read_table(path)]),
    "a.csv": ('t,l\n"Ä,\n",x\n', lambda path: [row.fields for row in read_table(path)]),
    "a.jsonl": ('{"t": "Ä"}\n', lambda path: [row.fields for row in read_table(path)]),
    "a.json": (json.dumps(SQUAD), lambda path: read_squad(path, training=True)),
    "a.conll": ("Ada B-PER\nwas O\n", lambda path: read_conll_sentences(path, TagFormat(), True)),
    "a.txt": ("\ufeffÄ\r\nb\rc\n", lambda path: list(open_lines(path).lines())),
}


@pytest.mark.parametrize("pack", PACK)
@pytest.mark.parametrize("name", READERS)
def test_whatever_is_read_may_be_compressed(tmp_path, name, pack):
    """Training files, requests: told by their content, and by their names where these count."""
    content, read = READERS[name]
    plain = tmp_path / name
    plain.write_text(content, newline="")
    ending = {"gzip": ".gz", "bzip2": ".bz2", "xz": ".xz", "zstd": ".zst"}[pack]
    packed = tmp_path / (name + ending)
    packed.write_bytes(PACK[pack](content.encode()))
    records = [str(record) for record in read(str(plain))]
    assert records
    assert [str(record).replace(ending, "") for record in read(str(packed))] == records
    packed.write_bytes(PACK[pack](content.encode())[:-3])
    with pytest.raises(DataError, match=rf"{packed} is a damaged or truncated"):
        read(str(packed))


def test_zeros_behind_a_frame_are_no_damage(tmp_path):
    for pack in PACK.values():
        (tmp_path / "a").write_bytes(pack(b"A.") + bytes(1000) + pack(b"B.") + bytes(7))
        assert unpack(tmp_path / "a") == b"A.B."
