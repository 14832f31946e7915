"""ONNX Runtime on CPU, float32, as a process that `tests.benchmarks.serving_speed` starts.

The graph is taken as it is exported and with what `onnxruntime.transformers.optimizer` fuses;
the session optimizes both further. Which is faster depends on the shapes, so every case is tried
with both and keeps the better one.
"""

from collections.abc import Mapping

import numpy as np
import onnx
import onnxruntime
from onnxruntime.transformers import optimizer

from tests.benchmarks.peers import onnx_graph
from tests.benchmarks.peers.worker import arguments, serve, timed

# How often each graph goes over a case before the faster one is chosen.
TRIALS = 3


class OnnxRuntime:
    """Sessions of one model: name → file of the graph."""

    def __init__(self, files: Mapping[str, str], threads: int):
        self.sessions = {name: self._session(file, threads) for name, file in files.items()}

    @staticmethod
    def _session(file: str, threads: int) -> onnxruntime.InferenceSession:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
        options.log_severity_level = 3
        # Its threads wait busily between the operators of a call, as by default, but not after
        # it, where others are timed.
        options.add_session_config_entry("session.force_spinning_stop", "1")
        return onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])

    def prepare(self, case: str, batches):
        seconds = {name: [] for name in self.sessions}
        for _ in range(TRIALS):
            for name, session in self.sessions.items():
                call = lambda batch, session=session: session.run(None, batch)  # noqa: E731
                seconds[name] += timed(call, batches, 1)
        best = min(seconds, key=lambda name: min(seconds[name]))
        print(f"ONNX Runtime, {case}: {best}", flush=True)
        return [(self.sessions[best], batch) for batch in batches]

    def call(self, prepared) -> np.ndarray:
        session, batch = prepared
        return session.run(None, batch)[0]


def write_graphs(folder: str) -> dict[str, str]:
    """Writes both graphs beside the weights of a Hugging Face folder."""
    files = {"as exported": f"{folder}/exported.onnx", "fused": f"{folder}/fused.onnx"}
    bert = onnx_graph.BertGraph(folder)
    onnx.save(bert.build(), files["as exported"])
    fused = optimizer.optimize_model(
        files["as exported"],
        "bert",
        num_heads=bert.config["num_attention_heads"],
        hidden_size=bert.config["hidden_size"],
        opt_level=0,
    ).model
    counts = onnx_graph.fused_operators(fused)
    layers = bert.config["num_hidden_layers"]
    gelu = "BiasGelu" if bert.config["hidden_act"] == "gelu" else "FastGelu"
    expected = {
        "EmbedLayerNormalization": 1,
        "Attention": layers,
        "SkipLayerNormalization": 2 * layers,
        gelu: layers,
    }
    if counts != expected:
        raise RuntimeError(f"The optimizer fused {counts} instead of {expected}.")
    onnx.save(fused, files["fused"])
    return files


def main() -> None:
    given = arguments("A Hugging Face folder.")

    def start():
        about = f"ONNX Runtime {onnxruntime.__version__}"
        return about, {"float32": OnnxRuntime(write_graphs(given.model), given.threads)}

    serve(start, given.cases)


if __name__ == "__main__":
    main()
