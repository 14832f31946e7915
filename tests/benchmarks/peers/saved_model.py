"""Exported SavedModels, as a process that `tests.benchmarks.serving_speed` starts.

Nothing of this project: TensorFlow, TensorFlow Text and the exports. Engines are named
"FORM SIGNATURE": `serving_default` gets the texts, as Python strings, `tokenized` the ids.
"""

import argparse
import os
import sys

# As README tells those who serve; read when TensorFlow is imported.
os.environ.setdefault("TF_ONEDNN_ASSUME_FROZEN_WEIGHTS", "1")

import numpy as np
import tensorflow as tf
import tensorflow_text  # noqa: F401  registers the operators

from tests.benchmarks.peers.worker import read_texts, serve

SIGNATURES = ("serving_default", "tokenized")


class Signature:
    """A signature of an export."""

    def __init__(self, loaded, name: str, cases: str):
        self.loaded = loaded  # has the variables, which a function alone doesn't keep alive
        self.function = loaded.signatures[name]
        self.cases = cases
        self.of_texts = name != "tokenized"

    def prepare(self, case: str, batches):
        if self.of_texts:
            (name,) = self.function.structured_input_signature[1]
            return [{name: texts} for texts in read_texts(self.cases, case)]
        return [{name: ids.astype(np.int32) for name, ids in batch.items()} for batch in batches]

    def call(self, prepared) -> np.ndarray:
        inputs = {name: tf.constant(value) for name, value in prepared.items()}
        return self.function(**inputs)["probabilities"].numpy()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--export", action="append", help="FORM=FOLDER of a version.")
    parser.add_argument("--cases", help="The folder of the cases.")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--default_threads", action="store_true")
    given = parser.parse_args()

    def start():
        if not given.default_threads:
            # Of a layer's branches each has a thread, as README tells those who serve.
            tf.config.threading.set_intra_op_parallelism_threads(1)
            tf.config.threading.set_inter_op_parallelism_threads(given.threads)
        engines = {}
        for export in given.export:
            form, folder = export.split("=", 1)
            loaded = tf.saved_model.load(folder)
            for name in SIGNATURES:
                engines[f"{form} {name}"] = Signature(loaded, name, given.cases)
        foreign = {"modeling", "data"} & sys.modules.keys()
        if foreign:
            raise RuntimeError(f"A client needs none of this project, but imported {foreign}.")
        return f"TensorFlow {tf.__version__}", engines

    serve(start, given.cases)


if __name__ == "__main__":
    main()
