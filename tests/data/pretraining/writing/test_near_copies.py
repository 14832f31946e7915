"""Near copies: estimates against sets of shingles, the search against all pairs, and whole jobs."""

import json
import tracemalloc

import numpy as np
import pytest

from data.pretraining.corpus import Document
from data.pretraining.writing import jobs, near_copies
from data.pretraining.writing.local import prepared_job, write_job_locally
from tests.data.pretraining.instances.test_generate import TOKENS
from tests.data.pretraining.writing.test_writing import everything, plan, text_of

WORDS = [f"word{number}" for number in range(3000)]


def document(words, size=12):
    lines = [" ".join(words[at : at + size]) for at in range(0, len(words), size)]
    return Document(lines, "here")


def changed(words, share, rng):
    """Some words are other ones."""
    out = [rng.choice(WORDS) if rng.random() < share else word for word in words]
    return out


def corpus_with_copies(seed=0, count=300):
    """Texts, of which every third is an earlier one with up to 6 % of its words changed."""
    rng = np.random.default_rng(seed)
    texts = []
    for number in range(count):
        if number % 3 == 2:
            texts.append(changed(texts[rng.integers(number)], rng.uniform(0, 0.06), rng))
        else:
            texts.append(list(rng.choice(WORDS, int(rng.integers(40, 200)))))
    return [document(words) for words in texts]


def jaccard(first: set, second: set) -> float:
    return len(first & second) / len(first | second)


def test_estimates_against_the_sets():
    rng = np.random.default_rng(1)
    errors = []
    for share in np.linspace(0, 0.3, 150):
        words = list(rng.choice(WORDS, 300))
        pair = [document(words), document(changed(words, share, rng), size=7)]
        signatures = [near_copies.document_signature(each) for each in pair]
        assert signatures[0].dtype == np.uint32 and signatures[0].shape == (128,)
        similarity = jaccard(*(set(near_copies.shingles(each)) for each in pair))
        spread = np.sqrt(similarity * (1 - similarity) / 128) + 1e-9
        errors.append(((signatures[0] == signatures[1]).mean() - similarity) / spread)
    assert np.abs(errors).max() < 4.5 and abs(np.mean(errors)) < 0.3 and np.std(errors) < 1.3


def test_shingles(monkeypatch):
    assert list(near_copies.shingles(Document(["A b, c", "d e-f."], ""))) == [
        *(b"a b c d e", b"b c d e f")
    ]
    assert list(near_copies.shingles(Document(["Short."], ""))) == [b"short"]
    assert list(near_copies.shingles(Document(["…!"], ""))) == ["…!".encode()]
    found = [s.decode() for s in near_copies.shingles(Document(["我们在这里 BERT"], ""))]
    assert found == ["我 们 在 这 里", "们 在 这 里 bert"]
    # Long ones are hashed by and by; the size of a batch changes nothing.
    words = [str(number) for number in range(9000)]
    signature = near_copies.document_signature(document(words))
    monkeypatch.setattr(near_copies, "_AT_ONCE", 100)
    assert (near_copies.document_signature(document(words)) == signature).all()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("near")
    (folder / "vocab.txt").write_text("\n".join(TOKENS) + "\n")
    documents = corpus_with_copies()
    (folder / "1.txt").write_text(text_of(documents[:170]))
    (folder / "2.txt").write_text(text_of(documents[170:]))
    return folder


def found(job):
    with prepared_job(job):
        for part in range(len(job.corpus)):
            near_copies.write_job_signatures(job, part)
        copies = near_copies.find_near_copies(job)
        counts = [sum(1 for _ in job.corpus.documents(n)) for n in range(len(job.corpus))]
    starts = np.cumsum([0, *counts])
    return sorted(
        start + n for start, part in zip(starts, copies, strict=False) for n in part.tolist()
    )


@pytest.fixture(scope="module")
def best() -> list[float]:
    """Of each document, how much it is like the one before it that is most so."""
    documents = [set(near_copies.shingles(each)) for each in corpus_with_copies()]
    return [
        max((jaccard(each, earlier) for earlier in documents[:number]), default=0)
        for number, each in enumerate(documents)
    ]


@pytest.mark.parametrize("least", [0.6, 0.8])
def test_against_all_pairs(folder, tmp_path, best, least):
    (tmp_path / "out").mkdir()
    numbers = found(plan(folder, tmp_path / "out", near_duplicates=least, part_bytes=20_000))
    clear = [n for n, similarity in enumerate(best) if similarity > least + 0.15]
    assert len(clear) > 10 and set(clear) <= set(numbers)
    assert all(best[number] > least - 0.15 for number in numbers)


def test_parts_change_nothing(folder, tmp_path):
    results = []
    for part_bytes in (5_000, 40_000, 10**9):
        (tmp_path / str(part_bytes)).mkdir()
        job = plan(folder, tmp_path / str(part_bytes), near_duplicates=0.7, part_bytes=part_bytes)
        results.append(found(job))
    assert results[0] == results[1] == results[2] and len(results[0]) > 50


def test_parts_held_change_nothing(folder, tmp_path, monkeypatch):
    job = plan(folder, tmp_path, near_duplicates=0.7, part_bytes=5_000)
    assert len(job.corpus) > 10
    expected = found(job)
    monkeypatch.setattr(near_copies, "_BYTES_HELD", 1)
    assert found(job) == expected


@pytest.mark.slow
def test_a_whole_job(folder, tmp_path):
    left = []
    for name, workers in (("one", 1), ("two", 2)):
        (tmp_path / name).mkdir()
        job = plan(folder, tmp_path / name, near_duplicates=0.7, part_bytes=20_000)
        counts = write_job_locally(job, workers).counts
        left.append(everything(tmp_path / name))
    assert left[0] == left[1]
    manifest = json.loads(left[0]["made.tfrecord.manifest.json"])
    assert manifest["near_duplicates"] == 0.7
    assert manifest["copies_left_out"] + counts.documents == 300
    assert 50 < manifest["copies_left_out"] <= 100


def test_equal_documents_are_near_copies(folder, tmp_path):
    for name in ("text", "near", "exact"):
        (tmp_path / name).mkdir()
    (tmp_path / "text/vocab.txt").write_text((folder / "vocab.txt").read_text())
    rng = np.random.default_rng(5)
    documents = [document(list(rng.choice(WORDS, 50))) for _ in range(60)]
    (tmp_path / "text/1.txt").write_text(text_of([*documents, *documents[5:25]]))
    near = plan(tmp_path / "text", tmp_path / "near", near_duplicates=1.0)
    exact = plan(tmp_path / "text", tmp_path / "exact", drop_duplicates=True)
    write_job_locally(near)
    write_job_locally(exact)
    records = [
        {n: b for n, b in everything(tmp_path / name).items() if not n.endswith(".json")}
        for name in ("near", "exact")
    ]
    assert [len(each) for each in records] == [4, 4]
    counts = [
        json.loads((tmp_path / name / "made.tfrecord.manifest.json").read_text())
        for name in ("near", "exact")
    ]
    assert [each["copies_left_out"] for each in counts] == [20, 20]
    assert counts[0]["counts"] == counts[1]["counts"]


def test_the_same_job_as_before_without(folder, tmp_path):
    """Records made by earlier versions are found again."""
    job = plan(folder, tmp_path)
    assert job.fingerprint() != plan(folder, tmp_path, near_duplicates=0.5).fingerprint()
    assert "near_duplicates" not in jobs.asked_of_job(job)


def test_memory_of_a_band():
    keys = np.random.default_rng(1).integers(0, 200_000, 400_000).astype(np.uint64)
    tracemalloc.start()
    ours, others = near_copies._candidates(keys)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100 * len(keys)
    assert (keys[ours] == keys[others]).all() and (others < ours).all()
    # All but the first of each key are there.
    assert len(set(ours.tolist())) == len(keys) - len(np.unique(keys))


def test_bands_fit_the_similarity():
    rows = [near_copies.band_rows(similarity) for similarity in (1, 0.9, 0.8, 0.5, 0.1, 0.001)]
    assert rows == [16, 8, 8, 4, 1, 1]
    for similarity in (0.5, 0.7, 0.8, 0.9):
        r = near_copies.band_rows(similarity)
        above = similarity + 0.1
        assert 1 - (1 - above**r) ** (128 / r) > 0.9
