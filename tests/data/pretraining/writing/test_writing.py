"""Jobs: the same bytes however they are done, continuation, copies, manifests."""

import dataclasses
import gzip
import hashlib
import json
import pathlib
import types

import numpy as np
import pytest
import tensorflow as tf

from data.errors import DataError
from data.pretraining.corpus import read_documents
from data.pretraining.instances.settings import InstanceSettings
from data.pretraining.writing import jobs, manifest, near_copies, shards
from data.pretraining.writing.jobs import plan_job
from data.pretraining.writing.local import write_job_locally
from tests.data.pretraining.instances.test_generate import TOKENS, corpus

SETTINGS = InstanceSettings(max_seq_length=32, max_predictions_per_seq=5, dupe_factor=2)


def text_of(documents):
    return "\n\n".join("\n".join(d.sentences) for d in documents) + "\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A vocabulary and 1.3 MB of text in three files, one of them packed."""
    folder = tmp_path_factory.mktemp("corpus")
    (folder / "vocab.txt").write_text("\n".join(TOKENS) + "\n")
    (folder / "1.txt").write_text(text_of(corpus(500, seed=1)))
    (folder / "2.txt").write_bytes(gzip.compress(text_of(corpus(40, seed=2)).encode()))
    (folder / "3.txt").write_text(text_of(corpus(300, seed=3)))
    return folder


def plan(folder, out, shard_count=4, part_bytes=200_000, settings=SETTINGS, **options):
    files = sorted(str(path) for path in folder.glob("?.txt"))
    name, outputs = shards.name_shards(str(out / "made.tfrecord"), shard_count)
    vocab_file = str(folder / "vocab.txt")
    return plan_job(
        files, outputs, vocab_file, settings, name=name, part_bytes=part_bytes, **options
    )


def everything(out):
    """Names and bytes of all that a job left."""
    return {path.name: path.read_bytes() for path in out.iterdir() if path.is_file()}


def records_of(job):
    kind = "GZIP" if job.compression == "gzip" else ""
    files = list(job.output_files)
    return [record.numpy() for record in tf.data.TFRecordDataset(files, kind)]


@pytest.mark.parametrize(("shard_count", "part_bytes"), [(0, 10**9), (1, 300_000), (3, 100_000)])
def test_parts_hold_every_document_once(folder, tmp_path, shard_count, part_bytes):
    job = plan(folder, tmp_path, shard_count, part_bytes)
    assert len(job.corpus) >= job.corpus.text_bytes / part_bytes
    found = [d.sentences for n in range(len(job.corpus)) for d in job.corpus.documents(n)]
    expected = [d.sentences for d in read_documents([path for path, _, _ in job.corpus.files])]
    assert found == expected
    if len(job.corpus) > 3:
        sizes = [sum(len(s) for d in job.corpus.documents(n) for s in d.sentences)
                 for n in range(len(job.corpus))]  # fmt: skip
        assert max(sizes) < 3 * np.median(sizes)


@pytest.mark.parametrize("parts", [1, 3, 5, 8, 13])
@pytest.mark.parametrize("shard_count", [1, 3, 5, 8])
def test_parts_and_shards_fit_together(folder, tmp_path, parts, shard_count):
    job = plan(folder, tmp_path, shard_count)
    job = dataclasses.replace(job, corpus=dataclasses.replace(job.corpus, spans=((),) * parts))
    written = [piece for part in range(parts) for piece in job.pieces(part)]
    joined = [piece for shard in range(shard_count) for piece in job.pieces_of_shard(shard)]
    assert sorted(written) == sorted(joined) and len(set(written)) == len(written)
    assert all(job.pieces_of_shard(shard) for shard in range(shard_count))


def test_accents_make_another_job(folder, tmp_path):
    settings = [dataclasses.replace(SETTINGS, strip_accents=value) for value in (None, True, False)]
    asked = [plan(folder, tmp_path, settings=each).fingerprint() for each in settings]
    assert asked[0] == asked[1] != asked[2]


@pytest.fixture(scope="module")
def done(folder, tmp_path_factory):
    """The job done by one process; (job, summary, what it left)."""
    out = tmp_path_factory.mktemp("one")
    job = plan(folder, out)
    return job, write_job_locally(job), everything(out)


def test_what_a_job_leaves(done, folder):
    job, summary, left = done
    assert sorted(left) == sorted(
        [pathlib.Path(path).name for path in job.output_files] + ["made.tfrecord.manifest.json"]
    )
    records = records_of(job)
    assert len(records) == summary.counts.instances > 5000
    assert summary.counts.documents == 840
    assert abs(summary.counts.random_next / len(records) - 0.5) < 0.01
    found = json.loads(left["made.tfrecord.manifest.json"])
    assert sum(file["records"] for file in found["files"]) == len(records)
    for file in found["files"]:
        data = left[file["name"]]
        assert len(data) == file["bytes"]
        assert hashlib.sha256(data).hexdigest() == file["sha256"]
    assert found["settings"]["dupe_factor"] == 2 and found["counts"]["documents"] == 840
    vocabulary = (folder / "vocab.txt").read_bytes()
    assert found["vocab_sha256"] == hashlib.sha256(vocabulary).hexdigest()
    # A shard gets one or two of the six parts, which have about one size, though the files don't.
    sizes = [file["bytes"] for file in found["files"]]
    assert max(sizes) < 2.2 * min(sizes)


def test_two_workers_write_the_same_bytes(done, folder, tmp_path):
    job = plan(folder, tmp_path)
    summary = write_job_locally(job, num_workers=2)
    assert summary.counts == done[1].counts and summary.peak_megabytes > 100
    assert everything(tmp_path) == done[2]


def test_goes_on_where_it_stopped(done, folder, tmp_path, monkeypatch):
    job = plan(folder, tmp_path)
    make_part, make_shard = jobs.write_job_part, jobs.make_shard

    def fail_at(name, function, last):
        def wrapped(job, number, *rest, **named):
            if number == last:
                raise KeyboardInterrupt
            return function(job, number, *rest, **named)

        monkeypatch.setattr(jobs, name, wrapped)

    fail_at("write_job_part", make_part, 3)
    with pytest.raises(KeyboardInterrupt):
        write_job_locally(job)
    assert not list(tmp_path.glob("*.tfrecord"))
    parts = sorted(path.name for path in (tmp_path / "made.tfrecord.parts").glob("part*.json"))
    assert parts == [f"part-{n:05d}.json" for n in range(3)]
    with pytest.raises(DataError, match=r"aren't finished"):
        manifest.verify_manifest(list(job.output_files), 32, 5, None)

    made = []

    def counted(job, number, *rest):
        if not tf.io.gfile.exists(job.note("part", number)):
            made.append(number)
        return make_part(job, number, *rest)

    monkeypatch.setattr(jobs, "write_job_part", counted)
    fail_at("make_shard", make_shard, 2)
    with pytest.raises(KeyboardInterrupt):
        write_job_locally(job)
    assert made == list(range(3, len(job.corpus)))
    first = [pathlib.Path(path).stat().st_mtime_ns for path in job.output_files[:2]]

    monkeypatch.setattr(jobs, "make_shard", make_shard)
    assert write_job_locally(job).counts == done[1].counts
    assert [pathlib.Path(path).stat().st_mtime_ns for path in job.output_files[:2]] == first
    left = everything(tmp_path)
    assert left == done[2]
    assert not (tmp_path / "made.tfrecord.parts").exists()

    # Once more: nothing is made.
    made.clear()
    assert write_job_locally(job).counts == done[1].counts
    assert everything(tmp_path) == left and not made
    # Killed while removing the parts: the records are whole all the same.
    (tmp_path / "made.tfrecord.parts").mkdir()
    jobs.write_job_note(f"{job.folder}/job.json", {"output_files": list(job.output_files)})
    manifest.verify_manifest(list(job.output_files), 32, 5, None)
    write_job_locally(job)
    assert not (tmp_path / "made.tfrecord.parts").exists() and not made
    # A shard is gone: it is made again, from parts made again.
    pathlib.Path(job.output_files[1]).unlink()
    write_job_locally(job)
    assert everything(tmp_path) == left


def test_another_job_starts_afresh(folder, tmp_path, monkeypatch):
    job = plan(folder, tmp_path)
    tf.io.gfile.makedirs(job.folder)
    jobs.write_job_note(f"{job.folder}/job.json", {"fingerprint": "other", "output_files": []})
    jobs.write_job_note(job.note("part", 0), {"counts": {}, "records": [0]})
    assert write_job_locally(job).counts.documents == 840


@pytest.mark.slow
def test_compressed_shards(done, folder, tmp_path):
    job = plan(folder, tmp_path, compression="gzip")
    write_job_locally(job)
    assert records_of(job) == records_of(done[0])
    size = sum(pathlib.Path(path).stat().st_size for path in job.output_files)
    assert size < 0.5 * sum(len(data) for data in done[2].values())
    again = tmp_path / "again"
    again.mkdir()
    write_job_locally(plan(folder, again, compression="gzip"))
    assert everything(again) == everything(tmp_path)


def test_copies_are_dropped(folder, tmp_path):
    documents = corpus(60, seed=7)
    copied = tmp_path / "text"
    copied.mkdir()
    (copied / "vocab.txt").write_text((folder / "vocab.txt").read_text())
    (copied / "1.txt").write_text(text_of([*documents, *documents[:20]]))
    (copied / "2.txt").write_text(text_of(documents[10:30] + corpus(5, seed=8)))
    out = tmp_path / "out"
    job = plan(copied, out, 2, 20_000, drop_duplicates=True)
    assert len(job.corpus) > 4
    assert write_job_locally(job).counts.documents == 65
    kept = plan(copied, out, 2, 20_000)
    assert write_job_locally(kept).counts.documents == 105


def test_one_side_of_a_held_out_split(folder, tmp_path):
    counts = {}
    for side in ("train", "eval"):
        (tmp_path / side).mkdir()
        job = plan(folder, tmp_path / side, held_out=(side, 0.2))
        counts[side] = write_job_locally(job).counts.documents
    assert sum(counts.values()) == 840 and 100 < counts["eval"] < 240


def test_a_document_alone_in_its_part_borrows(folder, tmp_path):
    """Two long documents, in parts of their own; random segments come from the other one."""
    (tmp_path / "vocab.txt").write_text((folder / "vocab.txt").read_text())
    long = corpus(2, seed=9, sentences=(400, 400))
    (tmp_path / "1.txt").write_text(text_of(long))
    job = plan(tmp_path, tmp_path, 1, 20_000)
    assert len(job.corpus) > 2
    counts = write_job_locally(job).counts
    assert counts.documents == 2
    assert abs(counts.random_next / counts.instances - 0.5) < 0.05


def test_bad_corpora_leave_nothing(folder, tmp_path):
    (tmp_path / "vocab.txt").write_text((folder / "vocab.txt").read_text())
    out = tmp_path / "out"
    for text, message in (
        (b"\n\n", "No text was found"),
        (text_of(corpus(1)).encode(), r"Only one document.* at .*1\.txt:1,.*objective=mlm"),
        (text_of(corpus(9)).encode() + b"caf\xe9 au lait\n", r"1\.txt:\d+.*UTF-8"),
        (b"ban\0ban\n", "binary"),
    ):
        (tmp_path / "1.txt").write_bytes(text)
        with pytest.raises(DataError, match=message):
            write_job_locally(plan(tmp_path, out, 1))
        assert not list(out.glob("*"))
    other = tmp_path / "other"
    other.mkdir()
    (other / "1.txt").write_text(text_of(corpus(9)))
    vocab = (tmp_path / "vocab.txt").read_text()
    (other / "vocab.txt").write_text(vocab.replace("[MASK]", "mask"))
    with pytest.raises(DataError, match=r"lacks \[MASK\]"):
        write_job_locally(plan(other, out, 1))
    assert not list(out.glob("*"))
    (tmp_path / "1.txt").write_text(text_of(corpus(1)))
    single = dataclasses.replace(SETTINGS, objective="mlm")
    assert write_job_locally(plan(tmp_path, out, 1, settings=single)).counts.documents == 1


def test_work_of_a_failed_job_is_kept(folder, tmp_path, monkeypatch):
    job = plan(folder, tmp_path, near_duplicates=0.7)
    write_signatures = near_copies.write_job_signatures

    def fail(job, part):
        if part == 2:
            raise DataError("disk is full")
        write_signatures(job, part)

    monkeypatch.setattr(near_copies, "write_job_signatures", fail)
    with pytest.raises(DataError, match="disk is full"):
        write_job_locally(job)
    kept = sorted(path.name for path in pathlib.Path(job.folder).glob("*.signatures"))
    assert kept == ["part-00000.signatures", "part-00001.signatures"]


def test_nothing_left_by_cleaning_is_said(folder, tmp_path):
    with pytest.raises(
        DataError, match=r"No text is left of .*lines of boilerplate: \d.*Loosen the flags"
    ):
        write_job_locally(plan(folder, tmp_path, boilerplate_documents=1))


def test_files_in_several_folders(folder, tmp_path):
    names = [str(tmp_path / name) for name in ("a/x.tfrecord", "b/x.tfrecord", "a/c/y.tfrecord")]
    files = sorted(str(path) for path in folder.glob("?.txt"))
    for path in names:
        pathlib.Path(path).parent.mkdir(parents=True, exist_ok=True)
    job = plan_job(files, names, str(folder / "vocab.txt"), SETTINGS)
    write_job_locally(job)
    content = manifest.read_manifest(manifest.manifest_path(job.name))
    assert [file["name"] for file in content["files"]] == [
        "x.tfrecord",
        "../b/x.tfrecord",
        "c/y.tfrecord",
    ]
    assert manifest.is_whole_job(content, job.name)
    assert manifest.verify_manifest(names, 32, 5, None) == {names[0]}
    pathlib.Path(names[1]).unlink()
    with pytest.raises(DataError, match=r"b/x\.tfrecord isn't there"):
        manifest.verify_manifest([names[0], names[2]], 32, 5, None)
    with pytest.raises(DataError, match="in several folders"):
        shards.check_output_shards(["gs://b/a/x", "gs://b/c/x"])


def test_manifest_is_verified(done, folder, tmp_path):
    files = []
    for name, data in done[2].items():
        (tmp_path / name).write_bytes(data)
        if name.endswith(".tfrecord"):
            files.append(str(tmp_path / name))
    vocab_file = str(folder / "vocab.txt")
    manifest.verify_manifest(files, 32, 5, vocab_file)
    manifest.verify_manifest(files[1:], 32, None, None)
    with pytest.raises(DataError, match=r"--max_seq_length=32.*are to be read with 64"):
        manifest.verify_manifest(files, 64, 5, None)
    other = tmp_path / "other.tfrecord"
    write_job_locally(
        plan_job(
            [str(folder / "1.txt")],
            [str(other)],
            vocab_file,
            dataclasses.replace(SETTINGS, max_seq_length=24),
        )
    )
    for length in (24, 32):  # to give the other one would lead in a circle
        with pytest.raises(DataError, match=r"with several --max_seq_length: 24 .*, 32 .*--phases"):
            manifest.verify_manifest([*files, str(other)], length, 5, None)
    mlm = tmp_path / "mlm"
    mlm.mkdir()
    for name in done[2]:
        text = (tmp_path / name).read_bytes()
        (mlm / name).write_bytes(text.replace(b'"objective": "mlm_nsp"', b'"objective": "mlm"'))
    records = [str(mlm / name) for name in done[2] if name.endswith(".tfrecord")]
    manifest.verify_manifest(records, 32, 5, vocab_file, "ltr")
    with pytest.raises(DataError, match="hold no pairs of sentences"):
        manifest.verify_manifest(records, 32, 5, vocab_file, "mlm_nsp")
    with pytest.raises(DataError, match=r"--max_predictions_per_seq=5"):
        manifest.verify_manifest(files, 32, 20, None)
    (tmp_path / "vocab.txt").write_text("other")
    with pytest.raises(DataError, match="another vocabulary"):
        manifest.verify_manifest(files, 32, 5, str(tmp_path / "vocab.txt"))
    data = pathlib.Path(files[0]).read_bytes()
    pathlib.Path(files[0]).write_bytes(data[:100] + b"x" + data[101:])
    with pytest.raises(DataError, match="another checksum"):
        manifest.verify_manifest(files, 32, 5, vocab_file)
    pathlib.Path(files[0]).write_bytes(data[:-1])
    with pytest.raises(DataError, match=f"has {len(data) - 1:,} bytes"):
        manifest.verify_manifest(files, 32, 5, vocab_file)


@pytest.mark.parametrize(
    ("name", "count", "message"),
    [("a,b", 3, "one name"), ("a", -1, "num_shards is -1"), (" , ", 0, "must be named")],
)
def test_names_of_shards_are_checked(name, count, message):
    with pytest.raises(DataError, match=message):
        shards.name_shards(name, count)


def test_names_of_shards():
    assert shards.name_shards("x/a.tfrecord", 2) == (
        "x/a.tfrecord",
        ["x/a-00000-of-00002.tfrecord", "x/a-00001-of-00002.tfrecord"],
    )
    assert shards.name_shards("a, b") == ("a", ["a", "b"])


@pytest.mark.parametrize(("parts", "files"), [(1, 1), (7, 3), (3, 7), (5, 5), (12, 4), (4, 12)])
def test_parts_and_shards_know_each_other(parts, files):
    job = types.SimpleNamespace(corpus=range(parts), output_files=range(files))
    for shard in range(files):
        fed = [part for part in range(parts) if shard in jobs.Job.shards_of(job, part)]
        assert jobs.Job.parts_of(job, shard) == fed and fed
