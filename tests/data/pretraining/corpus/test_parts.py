"""Dividing corpora: every document once, whatever the files are."""

import gzip

import pytest

from data.pretraining.corpus import parts, read_documents, sources
from tests.data.pretraining.instances.test_generate import corpus
from tests.data.pretraining.writing.test_writing import text_of


@pytest.mark.parametrize("count", [1, 2, 7, 50])
@pytest.mark.parametrize("segments", [3, 16])
def test_every_document_once(tmp_path, monkeypatch, count, segments):
    monkeypatch.setattr(sources, "WHOLE_BYTES", 10_000)  # so that a.gz is divided, b.gz isn't
    (tmp_path / "a.gz").write_bytes(gzip.compress(text_of(corpus(80, seed=1)).encode()))
    (tmp_path / "b.gz").write_bytes(gzip.compress(text_of(corpus(9, seed=2)).encode()))
    (tmp_path / "c.txt").write_text(text_of(corpus(100, seed=3)))
    (tmp_path / "d.txt").write_text("")
    files = sorted(str(path) for path in tmp_path.iterdir())
    assert [parts.corpus.open_source(path).divisible for path in files[:2]] == [True, False]
    divided = parts.divide_corpus(files, lambda _: count, segments=segments)
    assert len(divided) == count and divided.text_bytes > 100_000
    found = [d.sentences for n in range(count) for d in divided.documents(n)]
    assert found == [d.sentences for d in read_documents(files)]
    packed = {(span.begin, span.end) for spans in divided.spans for span in spans
              if span.path.endswith("a.gz") and span.begin != span.end}  # fmt: skip
    assert min(2, count, segments) <= len(packed) <= segments
    assert list(divided.behind(count - 1)) == list(range(count - 1))


def test_sides_are_complements(tmp_path):
    (tmp_path / "c.txt").write_text(text_of(corpus(100, seed=3)))
    sides = [
        parts.divide_corpus([str(tmp_path / "c.txt")], lambda _: 3, held_out=(side, 0.3))
        for side in ("train", "eval")
    ]
    found = [{d.source for n in range(3) for d in side.documents(n)} for side in sides]
    assert not found[0] & found[1] and sum(map(len, found)) == 100 and 10 < len(found[1]) < 60
