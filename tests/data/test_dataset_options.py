"""Every pipeline is iterated the same way: in one order, and without a thread that tunes it."""

import numpy as np
import pytest

from data.batching import Batching, batches
from data.vectors.store import StoredVectors
from tests.data.pretraining.batches import test_pipeline, test_text_stream
from tests.data.vectors.test_store import rows


def check(dataset):
    options = dataset.options()
    assert options.deterministic is True
    # With it deleting an iterator takes up to a minute, see data/dataset_options.py.
    assert options.autotune.enabled is False
    assert options.experimental_distribute.auto_shard_policy.name == "OFF"


@pytest.mark.parametrize("training", [True, False])
def test_tasks(training, tmp_path):
    shape = Batching(4, [8, 16])
    check(batches(rows(), shape, training))
    path = tmp_path / "vectors.npy"
    np.save(path, np.zeros((3, 2), np.float32))
    check(StoredVectors(str(path), 128, 2).batches(rows(), shape, training))


@pytest.mark.parametrize("training", [True, False])
def test_records(training, tmp_path):
    files = [test_pipeline.write(tmp_path / "a", range(20))]
    check(test_pipeline.dataset(files, training=training))


def test_text(tmp_path):
    path = tmp_path / "1.txt"
    path.write_text(test_text_stream.text_of(test_text_stream.corpus(60)))
    check(test_text_stream.stream(test_text_stream.parts.divide_corpus([str(path)], lambda _: 6)))
