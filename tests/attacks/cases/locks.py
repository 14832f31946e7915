"""Outputs that another process writes at the moment, and what one that was killed left there."""

import json

from data.files import lock_files
from tests.attacks import damages as d
from tests.attacks.suite import Case

# Each writer, where its lock is, and an output that a killed one has begun.
FOLDERS = tuple(
    (job, f"{folder}/.lock", f"{folder}/{file}")
    for job, folder, file in (
        ("classifier", "out", "predictions.tsv"),
        ("tagger", "out", "labels.json"),
        ("answerer", "out", "predictions.json"),
        ("pretraining", "out", "bert_config.json"),
        ("classifier again", "out", "metrics.jsonl"),
        ("classifier exports", "export", "1"),
        ("export of vectors", "vectors", "1"),
        ("to huggingface", "converted", "model.safetensors"),
    )
)
FILES = tuple(
    (job, f"{folder}.{file}.lock", f"{folder}{file}")
    for job, folder, file in (
        ("records", "made/", "part.tfrecord"),
        ("vocabulary", "", "learned.txt"),
        ("inspection", "", "numbers.json"),
        ("vectors", "", "vectors.jsonl"),
        ("prediction", "", "answers.jsonl"),
    )
)


def held(path) -> None:
    """By this process."""
    d.write(path, lock_files.own_lock("0" * 16, ""))


def of_the_dead(path) -> None:
    """No process has the number."""
    owner = json.loads(lock_files.own_lock("0" * 16, ""))
    d.write(path, json.dumps(owner | {"process": 2**30}).encode())


def damaged(path) -> None:
    d.write(path, b"{")


CASES = [
    *(
        Case(
            job,
            "locks of others",
            spoil={lock: held},
            says=(json.loads(lock_files.own_lock("0" * 16, ""))["host"], "since"),
        )
        for job, lock, _ in (*FOLDERS, *FILES)
    ),
    # Taken over, and tidied up.
    *(
        Case(
            job,
            "leftovers of the killed",
            spoil={
                lock: of_the_dead,
                f"{file}.elsewhere-77-0123456789ab.partial": d.binary,
            },
            code=0,
        )
        for job, lock, file in (*FOLDERS[-1:], *FILES, FOLDERS[5])
    ),
]
