"""What a finished job left beside its record files, and checking files by it.

`OUTPUT.manifest.json` holds the settings, the checksum of the vocabulary, counts, and the size and
checksum of every record file. It is written last: where it is, all files are whole.
"""

import dataclasses
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf
from absl import logging

from data.errors import DataError
from data.pretraining.instances.generate import InstanceCounts
from data.pretraining.instances.settings import MLM, MLM_NSP
from data.pretraining.writing import jobs, shards
from data.pretraining.writing.jobs import Job

ENDING = ".manifest.json"
JOB = "job.json"
CHECKSUM_BYTES = 2 * 2**30
"""Files of so many bytes in all have their checksums verified before training, some seconds."""

Manifest = dict[str, Any]


def manifest_path(name: str) -> str:
    """Path of the manifest of the job called `name`."""
    return f"{name}{ENDING}"


def files_beside_records(name: str) -> list[str]:
    """What the job called `name` replaces besides its output files, if it is there."""
    folder = f"{name}{jobs.PARTS}"
    names = tf.io.gfile.listdir(folder) if tf.io.gfile.isdir(folder) else []
    return [manifest_path(name), *(os.path.join(folder, entry) for entry in names)]


def read_manifest(path: str) -> Manifest | None:
    """A manifest, None if it isn't there; DataError if it is damaged."""
    content = jobs.read_job_note(
        path, settings=dict, counts=InstanceCounts, files=list, fingerprint=str, vocab_sha256=str
    )
    entries = {"name": str, "records": int, "bytes": int, "sha256": str}
    for file in content["files"] if content else []:
        jobs.check_entries(path, file, entries)
    if content is not None and not content["files"]:
        raise DataError(
            f"{path} names no files, so it isn't the manifest of a finished job. Make the records "
            f"again; without it they are read as they are."
        )
    if content:
        names = {"max_seq_length": int, "max_predictions_per_seq": int, "dynamic_masking": bool}
        jobs.check_entries(path, content["settings"], names)
    return content


def remove_manifest(name: str) -> None:
    """Before the files that it describes are replaced."""
    if tf.io.gfile.exists(manifest_path(name)):
        tf.io.gfile.remove(manifest_path(name))


def write_manifest(
    job: Job,
    counts: InstanceCounts,
    files: Sequence[dict[str, Any]],
    cleaned: Mapping[str, int] | None,
) -> None:
    """Writes the manifest of a finished job; the same for the same job, however it went."""
    value = {
        "fingerprint": job.fingerprint(),
        "settings": dataclasses.asdict(job.settings),
        "compression": job.compression,
        "drop_duplicates": job.drop_duplicates,
        "near_duplicates": job.near_duplicates,
        "copies_left_out": jobs.count_job_copies(job),
        "languages": job.languages,
        "boilerplate_documents": job.boilerplate_documents,
        "cleaned_of": cleaned,
        "held_out": job.corpus.held_out,
        "vocab_file": os.path.basename(job.vocab_file),
        "vocab_sha256": job.vocab_sha256,
        "inputs": [
            {"path": path, "bytes": size, "sha256": sha256}
            for (path, size, _), sha256 in zip(job.corpus.files, job.text_sha256, strict=True)
        ],
        "counts": dataclasses.asdict(counts),
        "files": [
            {"name": _from_manifest(file["path"], job.name)}
            | {key: file[key] for key in ("records", "bytes", "sha256")}
            for file in files
        ],
    }
    jobs.write_job_note(manifest_path(job.name), value)


def _from_manifest(path: str, name: str) -> str:
    """The path of a file as seen from the folder of the manifest, where it mostly lies itself."""
    folder = os.path.dirname(name)
    if os.path.dirname(path) == folder:
        return os.path.basename(path)
    return os.path.relpath(path, folder or ".")


def is_whole_job(content: Manifest, name: str) -> bool:
    """Whether all files of a manifest are there with the sizes that it tells."""
    folder = os.path.dirname(name)
    return all(
        shards.shard_size(os.path.join(folder, file["name"])) == file["bytes"]
        for file in content["files"]
    )


def verify_manifest(
    files: Sequence[str],
    max_seq_length: int | None,
    max_predictions_per_seq: int | None,
    vocab_file: str | None,
    objective: str | None = None,
) -> set[str]:
    """Checks record files against the manifests beside them; files without one pass.

    Args:
        files: TFRecord files.
        max_seq_length: As they are to be read; None if that doesn't matter.
        max_predictions_per_seq: As they are to be read; None where masks are made anew.
        vocab_file: The vocabulary of the run, if it is known.
        objective: Of the run, if it is known.

    Returns:
        Those of the files that a manifest describes.

    Raises:
        DataError: A file of another size or checksum, of an unfinished job, or made with other
            settings or another vocabulary; a file that a manifest names isn't there, or one of an
            earlier job with other numbers is to be read.
    """
    described: set[str] = set()
    by_folder: dict[str, set[str]] = {}
    for path in files:
        by_folder.setdefault(os.path.dirname(path), set()).add(os.path.basename(path))
    for folder, names in by_folder.items():
        known: set[str] = set()
        manifests: dict[str, Manifest] = {}
        for entry in sorted(tf.io.gfile.listdir(folder or ".")):
            entry = entry.rstrip("/")
            if entry.endswith(jobs.PARTS):
                # With a manifest it was finished, and killed while removing its parts.
                name = os.path.join(folder, entry.removesuffix(jobs.PARTS))
                if not tf.io.gfile.exists(manifest_path(name)):
                    _check_unfinished(os.path.join(folder, entry), names)
            elif entry.endswith(ENDING):
                path = os.path.join(folder, entry)
                content = read_manifest(path)
                of_manifest = {file["name"] for file in content["files"]}
                if names & of_manifest:
                    manifests[path] = content
                    known |= of_manifest
        if max_seq_length is not None:
            _check_one_length(manifests)
        for path, content in manifests.items():
            read = max_seq_length, max_predictions_per_seq
            _check_settings(path, content, *read, vocab_file, objective)
            _check_files(path, content, folder, names)
        for path in manifests:
            _check_others(path, names - known)
        described |= {os.path.join(folder, name) for name in names & known}
    return described


def _check_others(path: str, others: set[str]) -> None:
    """Files to be read that no manifest names; one of its output's name is of an earlier job."""
    stem, extension = os.path.splitext(os.path.basename(path).removesuffix(ENDING))
    ours = re.compile(re.escape(stem) + r"(-\d+-of-\d+)?" + re.escape(extension))
    left = sorted(filter(ours.fullmatch, others))
    if left:
        raise DataError(
            f"{os.path.join(os.path.dirname(path), left[0])} is to be read, but {path} doesn't "
            f"name it: it was left by an earlier run with the same --output_file and another "
            f"--num_shards. Remove it, or give a pattern that doesn't match it."
        )
    if others:
        logging.warning(
            "%s doesn't name %s, to be read as well. Training takes all of them.",
            path,
            ", ".join(sorted(others)[:3]) + (" and others" if len(others) > 3 else ""),
        )


def _check_unfinished(folder: str, names: set[str]) -> None:
    note = os.path.join(folder, JOB)
    job = jobs.read_job_note(note, output_files=list)
    if not job:
        return
    if not all(isinstance(path, str) for path in job["output_files"]):
        raise DataError(
            f"{note} is damaged: its output_files aren't names. Remove {folder} to use the record "
            f"files as they are, or make them again."
        )
    mine = names & {os.path.basename(path) for path in job["output_files"]}
    if mine:
        raise DataError(
            f"{sorted(mine)[0]} is one of {len(job['output_files'])} record files that aren't "
            f"finished: their parts are still in {folder}. Run the same "
            f"data.create_pretraining_data command again, which goes on where it stopped; or "
            f"remove that folder to use the files as they are."
        )


def _check_one_length(manifests: Mapping[str, Manifest]) -> None:
    """Refuses files of several lengths, which no flag could read together."""
    lengths = {content["settings"]["max_seq_length"]: path for path, content in manifests.items()}
    if len(lengths) > 1:
        told = ", ".join(f"{length} (says {path})" for length, path in sorted(lengths.items()))
        raise DataError(
            f"The records were made with several --max_seq_length: {told}. Give those of one "
            f"length; or train on one after the other with --phases, and {{max_seq_length}} in the "
            f"name of --input_file."
        )


def _check_settings(
    path: str,
    content: Manifest,
    max_seq_length: int,
    max_predictions_per_seq: int | None,
    vocab_file: str | None,
    objective: str | None,
) -> None:
    settings = content["settings"]
    if (objective, settings["objective"]) == (MLM_NSP, MLM):
        raise DataError(
            f"The records were made with --objective={MLM} (says {path}) and hold no pairs of "
            f"sentences, but --objective={MLM_NSP} learns to tell which follow each other. Give "
            f"--objective={MLM}, or make them again."
        )
    read = {} if max_seq_length is None else {"max_seq_length": max_seq_length}
    if not settings["dynamic_masking"] and max_predictions_per_seq is not None:
        read["max_predictions_per_seq"] = max_predictions_per_seq
    for name, expected in read.items():
        if settings[name] != expected:
            raise DataError(
                f"The records were made with --{name}={settings[name]} (says {path}), but are to "
                f"be read with {expected}. Set --{name}={settings[name]}, or make them again."
            )
    if vocab_file and shards.shard_sha256(vocab_file) != content["vocab_sha256"]:
        raise DataError(
            f"The records were made with another vocabulary than {vocab_file}: the checksum of "
            f"{content['vocab_file']}, which {path} tells, differs. Give the vocabulary that they "
            f"were made with, or make them again."
        )


def _check_files(path: str, content: Manifest, folder: str, names: set[str]) -> None:
    mine = [file for file in content["files"] if file["name"] in names]
    total = sum(file["bytes"] for file in mine)
    for file in content["files"]:
        place = os.path.join(folder, file["name"])
        if file["name"] not in names and shards.shard_size(place) < 0:
            raise DataError(
                f"{place} isn't there, but {path} names it: the records are not all that were "
                f"made. Copy or make it again; without the manifest the others are read alone."
            )
    for file in mine:
        place = os.path.join(folder, file["name"])
        size = shards.shard_size(place)
        if size != file["bytes"]:
            state = "isn't there" if size < 0 else f"has {size:,} bytes"
            raise DataError(
                f"{place} {state}, but {path} says that it was made with {file['bytes']:,}. Copy "
                f"it again or make it again; without the manifest it would be read as it is."
            )
        if total <= CHECKSUM_BYTES and shards.shard_sha256(place) != file["sha256"]:
            raise DataError(
                f"{place} has another checksum (SHA-256) than {path} tells, so it was changed or "
                f"damaged. Copy it again or make it again."
            )
    how = "sizes and checksums" if total <= CHECKSUM_BYTES else "sizes (too large for checksums)"
    logging.info("%d record files are as %s tells: %s.", len(mine), path, how)
    missing = len(content["files"]) - len(mine)
    if missing:
        logging.info("%d of the files that it tells of are not among those to be read.", missing)
