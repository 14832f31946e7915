"""Corpus reading: formats, borders of documents, errors."""

import gzip
from hashlib import blake2b

import pytest

from data.errors import DataError
from data.files import lines, streams
from data.pretraining import corpus
from data.pretraining.corpus import (
    Document,
    corpus_document_hash,
    expand,
    formats,
    is_held_out_of_corpus,
    read_documents,
    split_corpus_documents,
)

WIKI = """<doc id="1" url="http://x?curid=1" title="A &amp; B">
A &amp; B

A first sentence about A. And a second one, about "B" &amp; others.
History.
<br>It was founded by Dr. Smith in 1900. It grew quickly.
BULLET::::- An item with a complete sentence of more than six words.
Politics

</doc>
<doc id="2" url="http://x?curid=2" title="Empty">
Empty



</doc>
<doc id="3" url="http://x?curid=3" title="Last">
Last

This article isn't closed by a tag. Nobody minds.
"""


def read(path):
    return [d.sentences for d in read_documents([str(path)])]


def test_plain_documents_borders_and_sources(tmp_path):
    one, two = tmp_path / "1.txt", tmp_path / "2.txt"
    # A line of no-break spaces is blank, a zero-width space isn't; U+2028 ends no line; CRLF.
    one.write_bytes("\ufeff\n\nA b.\r\nC\u2028d. \r\n\u00a0\u2003\r\n\u200b\nE.\n\n\n".encode())
    two.write_text("F.\nG.", "utf-8")
    documents = list(read_documents([str(one), str(two)]))
    sentences = [["A b.", "C\u2028d."], ["\u200b", "E."], ["F.", "G."]]
    assert [d.sentences for d in documents] == sentences
    assert [d.source for d in documents] == [f"{one}:3", f"{one}:6", f"{two}:1"]


def test_documents_never_merge_across_files(tmp_path):
    for name in "12":
        (tmp_path / name).write_text("Same.\nText.", "utf-8")
    assert len(list(read_documents(expand(f"{tmp_path}/*")))) == 2


def test_wiki_extractor(tmp_path):
    path = tmp_path / "wiki_00"
    path.write_text(WIKI, "utf-8")
    assert read(path) == [
        [
            "A first sentence about A.",
            'And a second one, about "B" & others.',
            "It was founded by Dr. Smith in 1900.",
            "It grew quickly.",
            "An item with a complete sentence of more than six words.",
        ],
        ["This article isn't closed by a tag.", "Nobody minds."],
    ]


@pytest.mark.parametrize("text", [WIKI, "A.\nB.\n\nC.\nD.\n"])
def test_gzip_equals_plain(tmp_path, text):
    plain, packed = tmp_path / "a", tmp_path / "b"
    plain.write_text(text, "utf-8")
    # Two members in a row, as `cat a.gz b.gz` makes them.
    packed.write_bytes(gzip.compress(text[:20].encode()) + gzip.compress(text[20:].encode()))
    assert read(plain) == read(packed) != []


def test_blocks_do_not_change_the_result(tmp_path, monkeypatch):
    path = tmp_path / "a.txt"
    content = (f"Satz {i} über Öl.\n" + "\n" * (i % 7 == 0) for i in range(500))
    path.write_text("".join(content), "utf-8")
    whole = [(d.source, d.sentences) for d in read_documents([str(path)])]
    for size in (1, 7, 64):
        monkeypatch.setattr(streams, "BLOCK_BYTES", size)
        assert [(d.source, d.sentences) for d in read_documents([str(path)])] == whole


def test_bad_bytes_name_file_and_line(tmp_path):
    path = tmp_path / "latin1.txt"
    path.write_bytes(b"fine\n" * 300_000 + "caf\xe9 au lait\n".encode("latin-1") + b"fine\n")
    with pytest.raises(DataError, match=r"latin1\.txt:300001: byte 0xe9 at byte 3 .*UTF-8"):
        list(read_documents([str(path)]))


def test_binary_and_damaged_files(tmp_path):
    binary = tmp_path / "model.bin"
    binary.write_bytes(b"abc\n\x00\x01\x02")
    with pytest.raises(DataError, match=r"model\.bin:2: .*binary"):
        list(read_documents([str(binary)]))
    damaged = tmp_path / "a.gz"
    damaged.write_bytes(gzip.compress(b"some text\n" * 1000)[:-20])
    with pytest.raises(DataError, match=r"a\.gz is a damaged or truncated gzip"):
        list(read_documents([str(damaged)]))
    with pytest.raises(DataError, match=r"gone\.txt can't be read"):
        list(read_documents([str(tmp_path / "gone.txt")]))


def test_endless_document(tmp_path, monkeypatch):
    monkeypatch.setattr(formats, "MAX_DOCUMENT_CHARACTERS", 1000)
    path = tmp_path / "a.txt"
    path.write_text("ok\n\n" + "A line without end.\n" * 100, "utf-8")
    with pytest.raises(DataError, match=r"a\.txt:3: the document .* blank line"):
        list(read_documents([str(path)]))


def test_endless_line(tmp_path, monkeypatch):
    monkeypatch.setattr(streams, "BLOCK_BYTES", 100)
    monkeypatch.setattr(lines, "MAX_LINE_BYTES", 1000)
    path = tmp_path / "a.txt"
    path.write_text("ok\n" + "no end " * 200, "utf-8")
    with pytest.raises(DataError, match=r"a\.txt:2: this line has more than 1,000 bytes"):
        list(read_documents([str(path)]))


def test_progress_counts_the_bytes_on_disk(tmp_path, monkeypatch):
    monkeypatch.setattr(streams, "BLOCK_BYTES", 64)
    plain, packed = tmp_path / "a", tmp_path / "b"
    plain.write_text("A line.\n" * 100, "utf-8")
    packed.write_bytes(gzip.compress(b"A line.\n" * 100))
    sizes = []
    list(read_documents([str(plain), str(packed)], on_read=sizes.append))
    assert len(sizes) > 10
    assert sum(sizes) == plain.stat().st_size + packed.stat().st_size
    progress = corpus.CorpusProgress([str(plain), str(packed)], "Reading")
    assert progress.total == sum(sizes)
    progress.total, progress.done = 400_000_000, 100_000_000
    assert progress.line(50) == "Reading: 100.0 of 400.0 MB (25%), 2.00 MB/s, 2:30 left"


def test_expand(tmp_path):
    for name in ("b.txt", "a.txt", "c.md"):
        (tmp_path / name).touch()
    paths = [str(tmp_path / n) for n in ("a.txt", "b.txt", "c.md")]
    assert expand(f"{tmp_path}/*.txt, {tmp_path}/c.md,{tmp_path}/a.txt") == paths
    with pytest.raises(DataError, match=r"nothing-\*' matches no file"):
        expand(f"{tmp_path}/a.txt,nothing-*")
    with pytest.raises(DataError, match="only folders"):
        expand(str(tmp_path))
    with pytest.raises(DataError, match="No input file"):
        expand(" , ")


def test_names_with_brackets_and_links(tmp_path, caplog):
    for name in ("c[1].txt", "a.txt"):
        (tmp_path / name).touch()
    bracketed = f"{tmp_path}/c[1].txt"
    assert expand(bracketed) == [bracketed] and not caplog.text
    (tmp_path / "latest.txt").symlink_to("a.txt")
    assert len(expand(f"{tmp_path}/*.txt")) == 3
    assert "latest.txt is the file" in caplog.text and "it is read twice" in caplog.text
    (tmp_path / "gone.txt").symlink_to("absent")
    with pytest.raises(DataError, match=r"gone\.txt can't be read \(NotFoundError\)\. "):
        list(read_documents([f"{tmp_path}/gone.txt"]))
    with pytest.raises(DataError, match=r"s3://b/\*\.txt is in a file system"):
        expand("s3://b/*.txt")


def test_split_is_stable_by_text_and_keeps_copies_together():
    documents = [Document([f"Text {i}.", "More."], f"f:{i}") for i in range(2000)]
    train, held_out = split_corpus_documents(documents, 0.1)
    assert 150 < len(held_out) < 250 and len(train) + len(held_out) == 2000
    again = split_corpus_documents(
        [Document(d.sentences, "elsewhere") for d in documents[::-1]], 0.1
    )
    assert [d.sentences for d in again[1]] == [d.sentences for d in held_out[::-1]]
    doubled = split_corpus_documents(documents + documents, 0.1)[1]
    assert len(doubled) == 2 * len(held_out)
    # Growing shares only add; few documents still leave two on each side.
    larger = {d.source for d in split_corpus_documents(documents, 0.2)[1]}
    assert {d.source for d in held_out} < larger
    assert [len(side) for side in split_corpus_documents(documents[:6], 0.001)] == [4, 2]
    for count in range(3, 40):
        train, held_out = split_corpus_documents(2 * documents[:count] + documents[:1], 0.001)
        assert 2 <= len(held_out) <= 4
        assert not {tuple(d.sentences) for d in train} & {tuple(d.sentences) for d in held_out}
    assert [len(side) for side in split_corpus_documents(documents[:1] * 5, 0.001)] == [3, 2]


def test_document_hash():
    document = Document(["Ä b.", "C\ud800."], "f:1")
    digest = blake2b("Ä b.\nC\ud800.\n".encode("utf-8", "surrogatepass"), digest_size=8).digest()
    assert corpus_document_hash(document) == int.from_bytes(digest, "big")
    assert corpus_document_hash(Document(["Ä b.", "C\ud800."], "g:7")) == corpus_document_hash(
        document
    )
    others = [["Ä b. C\ud800."], ["Ä b."], ["C\ud800.", "Ä b."], []]
    assert len({corpus_document_hash(d) for d in [document, *map(Document, others)]}) == 5
    assert corpus_document_hash(document) < 2**64
    assert is_held_out_of_corpus(document, corpus_document_hash(document) / 2**64 + 1e-9)
    assert not is_held_out_of_corpus(document, corpus_document_hash(document) / 2**64)


def test_headings_do_not_count_as_documents_held_out():
    """They make no pairs, of which a side needs two documents."""
    for count in range(4, 40):
        texts = [Document([f"Text {i} of {count}."]) for i in range(count)]
        headings = [Document([f"Heading{i}x{count}"]) for i in range(2 * count)]
        mixed = texts + headings
        train, held_out = split_corpus_documents(mixed, 0.05)
        assert len(train) + len(held_out) == len(mixed)
        for side in (train, held_out):
            assert sum(document not in headings for document in side) >= 2
    # Where there are hardly others, they do.
    assert [len(side) for side in split_corpus_documents(headings[:8] + texts[:3], 0.01)] == [9, 2]
