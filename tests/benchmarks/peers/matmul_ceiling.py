"""TensorFlow's matrix products, as a process that `tests.benchmarks.training_speed` starts.

Chains of products inside one graph, in float32 or bfloat16 (on a CPU through the graph optimizer);
a request is answered with the operations per second of the size that is fastest.
"""

import argparse
import time

import numpy as np
import tensorflow as tf

from tests.benchmarks.peers.tensorflow_training import on_gpu, set_up
from tests.benchmarks.peers.worker import answer_requests

# Rows of the first factor, its columns and those of the square second one; products in a chain.
CHAINS = ((4096, 768, 32), (1024, 1024, 32), (2048, 2048, 6))
# A GPU's are a thousand times as fast.
CHAINS_ON_GPU = ((32768, 1024, 100), (8192, 8192, 20))


class Chain:
    """x, x·w, x·w·w, ..."""

    def __init__(self, rows: int, size: int, length: int, dtype: str = "float32"):
        rng = np.random.default_rng(0)
        self.operations = 2 * rows * size * size * length
        self.x = tf.constant(rng.normal(size=(rows, size)), dtype)
        # So scaled a product is as large as its first factor.
        self.w = tf.Variable(rng.normal(size=(size, size)) / np.sqrt(size), dtype=dtype)

        def product(x):
            for _ in range(length):
                x = tf.matmul(x, self.w)
            return x

        self.product = tf.function(product)

    def speed(self) -> float:
        """Operations per second of one pass."""
        begun = time.perf_counter()
        self.product(self.x).numpy()
        return self.operations / (time.perf_counter() - begun)

    def error(self) -> float:
        """Of the first element's row, relative; tells what it was computed in."""
        exact = self.x[:1].numpy().astype(np.float64)
        w = self.w.numpy().astype(np.float64)
        rows, size = self.x.shape
        for _ in range(self.operations // (2 * rows * size * size)):
            exact = exact @ w
        difference = self.product(self.x)[:1].numpy() - exact
        return float(np.abs(difference).max() / np.abs(exact).max())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--dtype")
    parser.add_argument("--threads", type=int)
    given = parser.parse_args()

    def start():
        set_up(given.threads, given.dtype)
        if on_gpu():  # whose float32 is TF32
            chains = [Chain(*chain, given.dtype) for chain in CHAINS_ON_GPU]
            for chain in chains:
                chain.speed()
            return lambda request: max(chain.speed() for chain in chains)
        chains = [Chain(*chain) for chain in CHAINS]
        for chain in chains:
            chain.speed()
            exact = chain.error() < 1e-4
            if exact != (given.dtype == "float32"):
                raise RuntimeError(f"This was to be computed in {given.dtype}, but wasn't.")
        return lambda request: max(chain.speed() for chain in chains)

    answer_requests(start)


if __name__ == "__main__":
    main()
