"""Exported SavedModels, as a process that `tests.benchmarks.serving_speed` starts.

Nothing of this project: TensorFlow, TensorFlow Text and the exports. Each is loaded into a session,
as TF Serving does. Engines are named "FORM SIGNATURE": `serving_default` gets the texts, as Python
strings, `tokenized` the ids. With --batching they are named "FORM batched", get texts, and those
of several clients are computed together.
"""

import argparse
import sys

import numpy as np
import tensorflow as tf
import tensorflow_text  # noqa: F401  registers the operators

from tests.benchmarks.peers.worker import read_texts, serve

SIGNATURES = ("serving_default", "tokenized")


class Signature:
    """A signature of an export."""

    def __init__(self, session: tf.compat.v1.Session, definition, name: str, cases: str):
        self.names = sorted(definition.inputs)
        inputs = [definition.inputs[each].name for each in self.names]
        self.session_call = session.make_callable(definition.outputs["probabilities"].name, inputs)
        self.cases = cases
        self.of_texts = name != "tokenized"

    def prepare(self, case: str, batches):
        if self.of_texts:
            return [(np.array(texts, object),) for texts in read_texts(self.cases, case)]
        return [[batch[each].astype(np.int32) for each in self.names] for batch in batches]

    def call(self, prepared) -> np.ndarray:
        return self.session_call(*prepared)


class Batched:
    """`serving_default` behind TensorFlow's batching operation, whose scheduler TF Serving has.

    Set as README's batching.config sets that.
    """

    def __init__(self, folder: str, cases: str):
        self.model, self.cases = tf.saved_model.load(folder), cases
        signature = self.model.signatures["serving_default"]
        (name,) = signature.structured_input_signature[1]

        @tf.nondifferentiable_batch_function(2, 32, 2000, max_enqueued_batches=100)
        def together(texts):
            return signature(**{name: texts})["probabilities"]

        self.function = tf.function(together, [tf.TensorSpec([None], tf.string)], autograph=False)

    def prepare(self, case: str, batches):
        return [tf.constant(texts) for texts in read_texts(self.cases, case)]

    def call(self, prepared) -> np.ndarray:
        return self.function(prepared).numpy()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--export", action="append", help="FORM=FOLDER of a version.")
    parser.add_argument("--cases", help="The folder of the cases.")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--default_threads", action="store_true")
    parser.add_argument("--batching", action="store_true")
    given = parser.parse_args()

    def start():
        config = tf.compat.v1.ConfigProto()
        if not given.default_threads:
            # Of a layer's branches each has a thread, as README tells those who serve.
            config.intra_op_parallelism_threads = 1
            config.inter_op_parallelism_threads = given.threads
        if given.batching:
            tf.config.threading.set_intra_op_parallelism_threads(1)
            tf.config.threading.set_inter_op_parallelism_threads(given.threads)
        engines = {}
        for export in given.export:
            form, folder = export.split("=", 1)
            if given.batching:
                engines[f"{form} batched"] = Batched(folder, given.cases)
                continue
            session = tf.compat.v1.Session(graph=tf.Graph(), config=config)
            with session.graph.as_default():
                loaded = tf.compat.v1.saved_model.load(session, ["serve"], folder)
            for name in SIGNATURES:
                definition = loaded.signature_def[name]
                engines[f"{form} {name}"] = Signature(session, definition, name, given.cases)
        foreign = {"modeling", "data"} & sys.modules.keys()
        if foreign:
            raise RuntimeError(f"A client needs none of this project, but imported {foreign}.")
        return f"TensorFlow {tf.__version__}", engines

    serve(start, given.cases)


if __name__ == "__main__":
    main()
