"""Vectors computed on two replicas are those of one. Run by test_extraction.py, as a process."""

import sys

from modeling import quiet  # noqa: F401  isort: skip

import numpy as np
import tensorflow as tf

cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)

from tests.modeling.vectors.test_extraction import (  # noqa: E402
    Batching,
    Extractor,
    array_batches,
    make_model,
    rows,
)


def main() -> None:
    features = rows(21)
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    for pooling in ("none", "mean"):
        for shape in (Batching(4, None), Batching(4, [4, 8])):
            one = Extractor(make_model(pooling=pooling))
            with strategy.scope():
                two = Extractor(make_model(pooling=pooling))
                got = two(array_batches(features, shape), features.lengths)
            wanted = one(array_batches(features, shape), features.lengths)
            np.testing.assert_allclose(got, wanted, atol=1e-5)
    print("the same")


if __name__ == "__main__":
    sys.exit(main())
