"""Doing a job on a cluster, as an Apache Beam pipeline.

    pip install -r data/pretraining/writing/requirements-beam.txt
    python -m data.create_pretraining_data … --runner=DataflowRunner \\
        --beam_options='--project=… --region=… --temp_location=gs://…'

The pipeline maps over the same parts with the same functions as `local`, so it gives the same
bytes. A document, a part and a shard are each the work of one worker; nothing is shuffled but their
numbers and, where copies are dropped, 64-bit hashes. Corpus, vocabulary and output must lie where
every worker can reach them by the same path (gs://, hdfs://, a shared disk), and the workers need
this project and its requirements (a container image, or --extra_package).
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf
from absl import logging

from data.errors import DataError
from data.pretraining.instances.generate import InstanceCounts
from data.pretraining.writing import jobs, local
from data.pretraining.writing.jobs import Job

try:
    import apache_beam as beam
    from apache_beam.options.pipeline_options import PipelineOptions
except ImportError:
    beam = None

REQUIREMENTS = "data/pretraining/writing/requirements-beam.txt"


def write_records_with_beam(job: Job, runner: str, options: str = "") -> InstanceCounts:
    """Does what is left of a job on a Beam runner, and waits for its end.

    Args:
        job: See `jobs.plan_job`.
        runner: A runner of Beam's, such as DirectRunner, DataflowRunner, FlinkRunner, SparkRunner.
        options: Beam's own options, as on a command line.

    Raises:
        DataError: Beam isn't installed, or as `local.write_job_locally`.
    """
    if beam is None:
        raise DataError(
            f"--runner={runner} needs Apache Beam, which isn't installed. Install it with "
            f"'pip install -r {REQUIREMENTS}', or leave --runner out to work on this machine."
        )
    done = local.already_made(job)
    if done:
        return done
    pipeline_options = PipelineOptions([f"--runner={runner}", *options.split()])

    def run(build: Callable[[Any], Any]) -> None:
        try:
            with beam.Pipeline(options=pipeline_options) as pipeline:
                build(pipeline)
        except Exception as error:
            raise _plain(error) from error

    def each(function: Callable[[Job, int], Any], count: int, what: str) -> None:
        run(lambda pipeline: _numbers(pipeline, count) | what >> beam.Map(_make, function, job))

    with local.prepared_job(job):
        return local.carry_out_job(
            job, each, lambda: run(lambda pipeline: _find_copies(pipeline, job))
        )


def _find_copies(pipeline, job: Job):
    """Adds the search for equal documents to a pipeline: only their hashes are shuffled."""
    copies = (
        _numbers(pipeline, len(job.corpus))
        | "HashDocuments" >> beam.FlatMap(_hashes, job)
        | "ByHash" >> beam.GroupByKey()
        | "Copies" >> beam.FlatMap(_all_but_first)
    )
    # Every part gets a file, also one without copies.
    every = _numbers(pipeline, len(job.corpus), "All") | beam.Map(lambda number: (number, -1))
    return (
        (copies, every)
        | beam.Flatten()
        | "ByPart" >> beam.GroupByKey()
        | "WriteCopies" >> beam.Map(_write_copies, job)
    )


def _numbers(pipeline, count: int, label: str = ""):
    # Reshuffle keeps a runner from fusing all numbers into one worker's work.
    numbers = pipeline | f"Numbers{label}" >> beam.Create(range(count))
    return numbers | f"Spread{label}" >> beam.Reshuffle()


def _make(number: int, function: Callable[[Job, int], Any], job: Job) -> int:
    function(job, number)
    return number


def _hashes(number: int, job: Job) -> Iterator[tuple[int, tuple[int, int]]]:
    # Beam's integers are signed.
    for place, value in enumerate(jobs.job_document_hashes(job, number).view(np.int64).tolist()):
        yield value, (number, place)


def _all_but_first(group: tuple[int, Iterable[tuple[int, int]]]) -> list[tuple[int, int]]:
    return sorted(group[1])[1:]


def _write_copies(group: tuple[int, Iterable[int]], job: Job) -> int:
    number, places = group
    jobs.write_job_copies(job, number, np.array([p for p in places if p >= 0], np.int64))
    return number


def _plain(error: Exception) -> Exception:
    """A DataError that a worker raised, which runners wrap in their own ways; else the error."""
    text = str(error)
    if isinstance(error, (DataError, tf.errors.OpError)):
        return error
    if "DataError" in text:
        message = text.rpartition("DataError: ")[2].partition(" [while running")[0]
        return DataError(message.strip())
    logging.error("The Beam pipeline failed; finished parts are kept for the next run.")
    return error
