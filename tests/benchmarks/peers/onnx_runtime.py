"""ONNX Runtime on CPU as a process that `tests.benchmarks.serving_speed` starts.

The graph is taken as it is exported and with what `onnxruntime.transformers.optimizer` fuses;
the session optimizes both further. Which is faster depends on the shapes, so every case is tried
with both and keeps the better one. In float32, and in int8 by ONNX Runtime's own dynamic
quantization: weights with a scale per output, activations with one per product.
"""

import tempfile
from collections.abc import Mapping

import numpy as np
import onnx
import onnxruntime
from onnxruntime.quantization import QuantType, quantize_dynamic
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


def write_graphs(model: str, folder: str) -> dict[str, str]:
    """Writes both graphs of a Hugging Face folder into another one."""
    files = {"as exported": f"{folder}/exported.onnx", "fused": f"{folder}/fused.onnx"}
    bert = onnx_graph.BertGraph(model)
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
    # The quantizer's shape inference wants to know whose operators these are.
    if not any(each.domain == "com.microsoft" for each in fused.opset_import):
        fused.opset_import.append(onnx.helper.make_opsetid("com.microsoft", 1))
    onnx.save(fused, files["fused"])
    return files


def quantized(files: Mapping[str, str]) -> dict[str, str]:
    """Writes each graph in int8 beside it."""
    smaller = {name: file.replace(".onnx", ".int8.onnx") for name, file in files.items()}
    for name, file in files.items():
        quantize_dynamic(
            file,
            smaller[name],
            per_channel=True,
            weight_type=QuantType.QInt8,
            extra_options={"DefaultTensorType": onnx.TensorProto.FLOAT},
        )
    return smaller


def main() -> None:
    given = arguments("A Hugging Face folder.")

    def start():
        about = f"ONNX Runtime {onnxruntime.__version__}"
        # Of its own: another process may write the same model's at the same time.
        with tempfile.TemporaryDirectory() as folder:
            files = write_graphs(given.model, folder)
            return about, {
                "float32": OnnxRuntime(files, given.threads),
                "int8": OnnxRuntime(quantized(files), given.threads),
            }

    serve(start, given.cases)


if __name__ == "__main__":
    main()
