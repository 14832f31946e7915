"""Record files: cut, missing, foreign, with and without the manifest that tells of them."""

from tests.attacks import damages as d
from tests.attacks.suite import Case

FIRST, SECOND, LAST = (f"records/part-0000{number}-of-00003.tfrecord" for number in range(3))
MANIFEST = "records/part.tfrecord.manifest.json"
READERS = ("pretraining", "inspection")


def without_last_record(path):
    """Cut at a record's border: length (8 bytes), its checksum (4), data, its checksum (4)."""
    content, ends = path.read_bytes(), []
    place = 0
    while place < len(content):
        place += 16 + int.from_bytes(content[place : place + 8], "little")
        ends.append(place)
    d.write(path, content[: ends[-2]])


def with_foreign_record(path):
    """One more that is whole, checksums (masked CRC-32C) too, but empty."""
    d.write(path, path.read_bytes() + bytes(8) + bytes.fromhex("29039807 d8ea82a2"))


CASES = [
    *(
        Case(job, "record files", spoil={FIRST: how}, says=("part-00000-of-00003.tfrecord",))
        for job in READERS
        for how in (
            d.missing,
            d.empty,
            d.binary,
            d.cut,
            d.flipped,
            d.longer,
            d.folder,
            d.dangling_link,
            without_last_record,
            with_foreign_record,
        )
    ),
    # The files say what they are, as far as that can be.
    *(
        Case(
            "pretraining",
            "record files without manifest",
            spoil={MANIFEST: d.missing, FIRST: how},
            says=("part-00000-of-00003.tfrecord|part-0000",),
            # What is at fault in the middle of a file is found when it is read: in training.
            traces=("out/bert_config.json", "out/vocab.txt"),
        )
        for how in (d.missing, d.empty, d.binary, d.cut, d.flipped, d.longer, without_last_record)
    ),
    Case(
        "pretraining",
        "record files without manifest",
        spoil={MANIFEST: d.missing, LAST: d.missing},
        says=("of-00003",),
    ),
    Case(
        "inspection",
        "record files without manifest",
        spoil={MANIFEST: d.missing, LAST: d.missing},
        says=("of-00003",),
    ),
    Case(
        "pretraining",
        "records nobody knows",
        spoil={FIRST: d.copied_to("more.tfrecord")},
        says=("more.tfrecord",),
    ),
    Case(
        "pretraining",
        "records nobody knows",
        spoil={FIRST: d.copied_to("part-00003-of-00004.tfrecord")},
        says=("part-00003-of-00004.tfrecord",),
    ),
    Case(
        "pretraining",
        "records of another vocabulary",
        ("--vocab_file=model/vocab.txt",),
        {"model/vocab.txt": d.replaced("good\nbad\n", "bad\ngood\n")},
        ("vocab.txt",),
    ),
    Case(
        "pretraining",
        "records of another vocabulary",
        ("--vocab_file=model/vocab.txt",),
        {"model/vocab.txt": d.replaced("good\nbad\n", "bad\ngood\n"), MANIFEST: d.missing},
        ("vocab.txt",),
    ),
    *(
        Case("pretraining", "records read otherwise", flags, says=(flags[0][2:].partition("=")[0],))
        for flags in (("--max_seq_length=8",), ("--max_predictions_per_seq=2",))
    ),
    *(
        Case(
            "pretraining",
            "records read otherwise",
            flags,
            {MANIFEST: d.missing},
            (flags[0][2:].partition("=")[0],),
        )
        for flags in (("--max_seq_length=8",), ("--max_predictions_per_seq=2",))
    ),
    *(
        Case(
            "pretraining",
            "manifests",
            spoil={MANIFEST: how},
            says=("part.tfrecord.manifest.json",),
        )
        for how in (
            d.empty,
            d.cut,
            d.binary,
            d.folder,
            d.holding("[]"),
            d.holding("5"),
            d.holding("null"),
            d.holding("{}"),
            d.holding("[" * 10**5),
            d.fields(files=5),
            d.fields(files=[5]),
            d.fields(files=[]),
            d.fields(files=...),
            d.fields(settings=5),
            d.fields(settings={}),
            d.fields(settings=...),
            d.fields(files=[{"name": "part-00000-of-00003.tfrecord"}]),
            d.fields(files=[{"name": 5, "bytes": 5, "records": 1, "sha256": ""}]),
            d.json_changed("bytes a text", lambda m: m["files"][0].update(bytes="many")),
            d.json_changed("sha256 a number", lambda m: m["files"][0].update(sha256=5)),
            d.json_changed("name outside", lambda m: m["files"][0].update(name="../corpus.txt")),
        )
    ),
    # The command that made them says what is wrong, or makes them anew.
    *(
        Case(
            "records again",
            "manifests, records made again",
            spoil={MANIFEST.replace("records", "made"): how},
            code=0,
        )
        for how in (d.empty, d.cut, d.binary, d.holding("[]"), d.holding("{}"), d.fields(files=5))
    ),
    *(
        Case(
            "records",
            "parts of an unfinished job",
            spoil={f"made/part.tfrecord.parts/{file}": how},
            code=0,
        )
        for file in ("job.json", "part-00000.json", "shard-00000.json")
        for how in (d.empty, d.binary, d.holding("[]"), d.holding("5"), d.holding('{"parts": 1}'))
    ),
    *(
        Case(
            "pretraining",
            "parts of an unfinished job",
            spoil={"records/part.tfrecord.parts/job.json": d.holding(content), MANIFEST: d.missing},
            says=("part.tfrecord.parts",),
        )
        for content in (
            '{"output_files": 5}',
            '{"output_files": [5]}',
            "[]",
            "[1]",
            "5",
            "\0\1",
            '{"output_files": ["records/part-00000-of-00003.tfrecord"]}',
        )
    ),
]
