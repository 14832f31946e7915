"""Doing a job on this machine: in this process, or in several that share its parts.

    job = jobs.plan_job(files, ["train.tfrecord"], "vocab.txt", InstanceSettings())
    summary = write_job_locally(job, num_workers=8)

A job that was killed goes on when it is called again: parts and shards that are done stay.
"""

import contextlib
import hashlib
import multiprocessing
import os
import resource
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import partial
from typing import Any

import tensorflow as tf
from absl import logging

from data.errors import DataError
from data.files import atomic
from data.pretraining.corpus import Document
from data.pretraining.instances import generate
from data.pretraining.instances.generate import CHUNK_BYTES, InstanceCounts
from data.pretraining.instances.settings import InstanceSettings
from data.pretraining.records import schema
from data.pretraining.records.shard_marks import ShardMark
from data.pretraining.writing import jobs, manifest, near_copies, shards
from data.pretraining.writing.cleaning import left_out_text
from data.pretraining.writing.jobs import Job
from data.pretraining.writing.shards import ShardWriters

_SHOW_SECONDS = 5.0
_POLL_SECONDS = 1.0
_PIECE = ".piece"  # of a file that isn't whole


@dataclass
class _Summary:
    """What a job made.

    Attributes:
        counts: See there; those of an earlier process's parts too.
        files: How many shards.
        wall_seconds: Of this call.
        peak_megabytes: The largest resident memory of any one process.
        tokens: Of instances that this call made.
    """

    counts: InstanceCounts
    files: int
    wall_seconds: float = 0.0
    peak_megabytes: float = 0.0
    tokens: int = 0

    def __str__(self) -> str:
        rate = self.tokens / max(self.wall_seconds, 1e-6)
        return (
            f"{self.counts} in {self.files} files; {self.wall_seconds:.1f} s, "
            f"{rate:,.0f} tokens/s, peak memory {self.peak_megabytes:,.0f} MB per process"
        )


def write_job_locally(job: Job, num_workers: int = 1) -> _Summary:
    """Does what is left of a job.

    Args:
        job: See `jobs.plan_job`.
        num_workers: Processes, this one among them; 0: one for each CPU that this process may
            use.

    Raises:
        DataError: No text, one document only, unreadable text, output that can't be written, a
            worker that was killed. What was finished stays for the next call.
    """
    start = time.monotonic()
    done = already_made(job)
    if done:
        return _Summary(done, len(job.output_files))
    num_workers = num_workers or len(os.sched_getaffinity(0))
    with contextlib.ExitStack() as stack:
        stack.enter_context(prepared_job(job))
        counter = _Counter(job)
        workers = stack.enter_context(_Workers(min(num_workers, len(job.corpus)), counter))

        def each(function: Callable[..., Any], count: int, what: str) -> None:
            task = function if function is jobs.write_job_part else partial(_numbered, function)
            deque(workers.map(partial(task, job), range(count), what), maxlen=0)

        counts = carry_out_job(job, each, lambda: _find_copies(job, workers))
        peak, tokens = workers.peak_megabytes(), counter.tokens.value
    return _Summary(counts, len(job.output_files), time.monotonic() - start, peak, tokens)


def carry_out_job(
    job: Job, each: Callable[[Callable[..., Any], int, str], None], find_copies: Callable[[], None]
) -> InstanceCounts:
    """The steps of a job, whoever does their work.

    Args:
        job: A `prepared_job` one.
        each: Calls a function with the job and each number below a count, and waits; its last
            argument says what is counted.
        find_copies: Writes the `jobs.job_copies_file` of every part, of exact copies.
    """
    parts, files = range(len(job.corpus)), range(len(job.output_files))
    if job.cleaner:
        each(jobs.scan_job_part, len(parts), "parts looked through")
        job.cleaner.find_boilerplate(len(parts))
    if job.leaves_out_copies and not all(
        tf.io.gfile.exists(jobs.job_copies_file(job, part)) for part in parts
    ):
        if job.near_duplicates:
            each(near_copies.write_job_signatures, len(parts), "parts searched for near copies")
            for part, numbers in enumerate(near_copies.find_near_copies(job)):
                jobs.write_job_copies(job, part, numbers)
        else:
            find_copies()
    copies = jobs.count_job_copies(job)
    if copies is not None:
        logging.info("%s documents are copies of earlier ones, and left out.", f"{copies:,}")
    each(jobs.write_job_part, len(parts), "parts")
    notes = [jobs.read_job_note(job.note("part", part)) for part in parts]
    counts = sum((InstanceCounts(**note["counts"]) for note in notes), InstanceCounts())
    cleaned = sum((Counter(note["left_out"]) for note in notes), Counter()) if job.cleaner else None
    if cleaned is not None:
        logging.info("Left out as told to: %s.", left_out_text(cleaned))
    left_out = left_out_text(cleaned) if cleaned else None
    generate.check_instances_generated(counts, job.corpus.names(), left_out)
    manifest.remove_manifest(job.name)
    filled = {
        shard
        for part, note in zip(parts, notes, strict=True)
        for shard, records in zip(job.shards_of(part), note["records"], strict=True)
        if records
    }
    each(partial(jobs.make_shard, empty=len(files) - len(filled)), len(files), "shards")
    manifest.write_manifest(
        job, counts, [jobs.read_job_note(job.note("shard", number)) for number in files], cleaned
    )
    tf.io.gfile.rmtree(job.folder)
    return counts


def already_made(job: Job) -> InstanceCounts | None:
    """The counts of a job that was finished before and whose files are all there, else None."""
    path = manifest.manifest_path(job.name)
    content = jobs.unless_damaged(manifest.read_manifest, path)
    if (
        content
        and content["fingerprint"] == job.fingerprint()
        and manifest.is_whole_job(content, job.name)
    ):
        logging.info("These records are there already, by %s.", path)
        if tf.io.gfile.exists(job.folder):  # killed while it was being removed
            tf.io.gfile.rmtree(job.folder)
        return InstanceCounts(**content["counts"])
    return None


@contextlib.contextmanager
def prepared_job(job: Job) -> Iterator[None]:
    """The job's folder is there, and none of another job; a failure that leaves no work removes it.

    It has to end after all who write into that folder. Only one process may do the job, see
    `locks.one_writer`.
    """
    note = os.path.join(job.folder, manifest.JOB)
    unfinished = jobs.unless_damaged(jobs.read_job_note, note, fingerprint=str)
    if unfinished and unfinished["fingerprint"] == job.fingerprint():
        logging.info("Going on with the parts in %s.", job.folder)
        for name in tf.io.gfile.listdir(job.folder):
            if name.endswith(atomic.ENDING):
                tf.io.gfile.remove(os.path.join(job.folder, name))
    else:
        if tf.io.gfile.exists(job.folder):
            _check_parts(job)
            logging.info("%s holds parts of another job: they are removed.", job.folder)
            tf.io.gfile.rmtree(job.folder)
        outputs = list(job.output_files)
        jobs.write_job_note(note, {"fingerprint": job.fingerprint(), "output_files": outputs})
    try:
        yield
    except Exception:
        notes = [
            jobs.unless_damaged(jobs.read_job_note, job.note("part", number), counts=InstanceCounts)
            for number in range(len(job.corpus))
        ]
        # All parts were made of nothing, or nothing was finished: signatures aren't nothing.
        of_nothing = all(note and not note["counts"]["instances"] for note in notes)
        if of_nothing or tf.io.gfile.listdir(job.folder) == [manifest.JOB]:
            tf.io.gfile.rmtree(job.folder)
        raise


def _check_parts(job: Job) -> None:
    """Refuses to remove a folder that isn't one of parts."""
    for name in tf.io.gfile.listdir(job.folder):
        ours = name.startswith(("part-", "shard-", manifest.JOB))
        if not ours and atomic.temporary_target(name) is None:
            raise DataError(
                f"The folder {job.folder} is where the parts of {job.name} go, but it holds "
                f"{name}, which is no part of records. Move it away, or give another --output_file."
            )


def _numbered(function: Callable[[Job, int], Any], job: Job, number: int, _) -> tuple[int, Any]:
    return number, function(job, number)


def _find_copies(job: Job, workers: "_Workers") -> None:
    numbers = range(len(job.corpus))
    task = partial(_numbered, jobs.job_document_hashes, job)
    hashes = dict(workers.map(task, numbers, "parts searched for copies"))
    copies = jobs.find_job_copies([hashes[number] for number in numbers])
    for number, copies_of_part in enumerate(copies):
        jobs.write_job_copies(job, number, copies_of_part)


class _Counter:
    """Bytes read and tokens made, over all processes; logs how far the job is."""

    def __init__(self, job: Job):
        context = multiprocessing.get_context("spawn")
        self.bytes, self.tokens = context.Value("q", 0), context.Value("q", 0)
        notes = (job.note("part", number) for number in range(len(job.corpus)))
        left = sum(not tf.io.gfile.exists(note) for note in notes)
        self._total = job.corpus.text_bytes * left / len(job.corpus)
        self._start = self._shown = time.monotonic()
        self.add = partial(_add, self.bytes, self.tokens)

    def maybe_log(self, done: int, count: int, what: str) -> None:
        now = time.monotonic()
        if now - self._shown < _SHOW_SECONDS:
            return
        self._shown = now
        elapsed, read, tokens = now - self._start, self.bytes.value, self.tokens.value
        line = f"{done} of {count} {what}"
        if what == "parts" and read:
            share = min(1.0, read / max(self._total, 1))
            left = elapsed / share - elapsed
            line += (
                f"; {read / 1e6:.1f} MB read, {tokens / elapsed:,.0f} tokens/s, peak memory "
                f"{_peak_megabytes():,.0f} MB here, {int(left // 60)}:{int(left % 60):02d} left"
            )
        logging.info("%s", line)


def _add(read, tokens_made, size: int, tokens: int) -> None:
    for counter, more in ((read, size), (tokens_made, tokens)):
        with counter.get_lock():
            counter.value += more


class _Workers:
    """Calls a function for many numbers, in this process and in count − 1 of its own.

    This process works too because the others take seconds to import TensorFlow.
    """

    def __init__(self, count: int, counter: _Counter):
        self._count, self._counter = count, counter
        self._pool: ProcessPoolExecutor | None = None

    def __enter__(self) -> "_Workers":
        if self._count > 1:
            logging.info("Working in %d processes", self._count)
            # TensorFlow doesn't survive a fork.
            self._pool = ProcessPoolExecutor(
                self._count - 1,
                multiprocessing.get_context("spawn"),
                _begin_worker,
                (self._counter.bytes, self._counter.tokens),
            )
        return self

    def __exit__(self, kind, *_) -> None:
        if self._pool:
            self._pool.shutdown(wait=True, cancel_futures=kind is not None)

    def map(self, function: Callable[..., Any], numbers: Iterable[int], what: str) -> Iterator[Any]:
        """Results of function(number, on_progress) in any order."""
        waiting, pending = deque(numbers), set()
        total = len(waiting)

        def log(here: int = 0) -> None:
            self._counter.maybe_log(total - len(waiting) - len(pending) - here, total, what)

        def report(size: int, tokens: int) -> None:
            self._counter.add(size, tokens)
            log(here=1)

        others = self._count - 1
        try:
            while waiting or pending:
                # One in reserve for each, as this process looks only when it has ended its own;
                # towards the end none, so that nobody holds two while this one has nothing.
                most = 2 * others if len(waiting) > 2 * self._count else others
                while waiting and len(pending) < most:
                    pending.add(self._pool.submit(_call, function, waiting.popleft()))
                if waiting:
                    yield function(waiting.popleft(), report)
                ready, pending = wait(pending, 0 if waiting else _POLL_SECONDS, FIRST_COMPLETED)
                for future in ready:
                    yield future.result()
                log()
        except BrokenProcessPool:
            raise DataError(
                "A worker process was killed, most likely for lack of memory. What was finished "
                "is kept: run the same command again, with a smaller --num_workers."
            ) from None

    def peak_megabytes(self) -> float:
        """Of this process and of all that it started."""
        if self._pool:
            self._pool.shutdown()
            self._pool = None
        return max(_peak_megabytes(), _peak_megabytes(resource.RUSAGE_CHILDREN))


_progress: Callable[[int, int], None] | None = None  # of a worker process


def _begin_worker(read, tokens) -> None:
    global _progress
    _progress = partial(_add, read, tokens)
    # One thread each: the processes share the cores.
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """Ends this process when its parent is gone: a killed parent can't tell it to."""
    # Within the moment that `data.files.locks` waits for before others write there.
    multiprocessing.parent_process().join()
    os._exit(1)


def _call(function: Callable[..., Any], number: int) -> Any:
    return function(number, _progress)


def _peak_megabytes(who: int = resource.RUSAGE_SELF) -> float:
    return resource.getrusage(who).ru_maxrss / 1024


def create_pretraining_records(
    documents: Iterable[Document],
    tokenizer: Any,
    output_files: Sequence[str],
    settings: InstanceSettings | None = None,
    *,
    on_progress: Callable[[int, int], None] | None = None,
    chunk_bytes: int = CHUNK_BYTES,
) -> InstanceCounts:
    """Writes records of documents in this process; files of any size are for `write_job_locally`.

    The TFRecord files are written round-robin and appear when all is done; the other arguments are
    those of `generate.generate_instances`, and errors those of `write_job_locally`.
    """
    settings = settings or InstanceSettings()
    settings.check()
    shards.check_output_shards(output_files)
    counts = InstanceCounts()
    pieces = [f"{path}{_PIECE}" for path in output_files]
    with ShardWriters(pieces) as writers:
        for batch in generate.generate_instances(
            documents,
            tokenizer,
            settings,
            counts=counts,
            on_progress=on_progress,
            chunk_bytes=chunk_bytes,
        ):
            writers.write(schema.encode_records(batch))
        generate.check_instances_generated(counts, "the documents given")
    empty = writers.counts.count(0)
    content = hashlib.sha256(f"{tokenizer.vocab} {settings} {counts}".encode()).hexdigest()
    with contextlib.ExitStack() as stack:
        for number, path in enumerate(output_files):
            mark = ShardMark.of_job(
                content, tokenizer.vocab, number, len(output_files), empty, writers.counts[number]
            )
            file = stack.enter_context(atomic.writing(path))
            shards.join_shard_pieces(pieces[number : number + 1], file, mark=mark)
    for piece in pieces:
        tf.io.gfile.remove(piece)
    return counts
