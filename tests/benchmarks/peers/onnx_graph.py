"""BERT with a classifier as an ONNX graph, node for node as exporters write it.

Built from the weights of a Hugging Face folder with the `onnx` package alone. The nodes stand in
the patterns that ONNX Runtime's optimizer for transformers looks for; `fused_operators` tells what
it found, so that a graph it didn't understand isn't taken for its best.
"""

import json
import pathlib
from collections import Counter

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from safetensors.numpy import load_file

OPSET = 17
MASKED = -10000.0
INPUTS = ("input_ids", "input_mask", "segment_ids")


class GraphBuilder:
    """Nodes in the order they are added; `add` gives the name of the result."""

    def __init__(self):
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, onnx.TensorProto] = {}

    def add(self, operator: str, *inputs: str, **attributes) -> str:
        result = f"{operator}_{len(self.nodes)}"
        node = helper.make_node(operator, inputs, [result], name=f"node_{result}", **attributes)
        self.nodes.append(node)
        return result

    def constant(self, value, name: str = "") -> str:
        array = np.array(value, order="C")
        name = name or f"constant_{len(self.constants)}"
        self.constants[name] = numpy_helper.from_array(array, name)
        return name

    def number(self, value: float) -> str:
        return self.constant(np.array(value, np.float32))


class BertGraph:
    """The model's parts; names of weights as in the folder."""

    def __init__(self, folder: str):
        self.config = json.loads(pathlib.Path(folder, "config.json").read_text(encoding="utf-8"))
        self.weights = load_file(pathlib.Path(folder, "model.safetensors"))
        self.graph = GraphBuilder()

    def weight(self, name: str, transposed: bool = False) -> str:
        array = self.weights[name]
        return self.graph.constant(array.T if transposed else array, name)

    def dense(self, x: str, name: str) -> str:
        product = self.graph.add("MatMul", x, self.weight(f"{name}.weight", transposed=True))
        return self.graph.add("Add", product, self.weight(f"{name}.bias"))

    def norm(self, x: str, name: str) -> str:
        scale, bias = self.weight(f"{name}.weight"), self.weight(f"{name}.bias")
        epsilon = self.config["layer_norm_eps"]
        return self.graph.add("LayerNormalization", x, scale, bias, axis=-1, epsilon=epsilon)

    def embeddings(self) -> str:
        g, part = self.graph, "bert.embeddings"
        length = g.add("Gather", g.add("Shape", "input_ids"), g.constant(np.array(1)), axis=0)
        end = g.add("Unsqueeze", length, g.constant(np.array([0])))
        places = g.constant(np.arange(self.config["max_position_embeddings"])[None])
        zero, one = g.constant(np.array([0])), g.constant(np.array([1]))
        places = g.add("Slice", places, zero, end, one)
        words = g.add("Gather", self.weight(f"{part}.word_embeddings.weight"), "input_ids")
        types = g.add("Gather", self.weight(f"{part}.token_type_embeddings.weight"), "segment_ids")
        positions = g.add("Gather", self.weight(f"{part}.position_embeddings.weight"), places)
        total = g.add("Add", g.add("Add", words, types), positions)
        return self.norm(total, f"{part}.LayerNorm")

    def mask(self) -> str:
        """int64 [B, T] → [B, 1, 1, T], 0 or −10000."""
        g = self.graph
        mask = g.add("Unsqueeze", "input_mask", g.constant(np.array([1])))
        mask = g.add("Unsqueeze", mask, g.constant(np.array([2])))
        mask = g.add("Cast", mask, to=TensorProto.FLOAT)
        return g.add("Mul", g.add("Sub", g.number(1.0), mask), g.number(MASKED))

    def attention(self, x: str, mask: str, name: str) -> str:
        g, heads = self.graph, self.config["num_attention_heads"]
        size = self.config["hidden_size"] // heads

        def split(part: str, order: tuple[int, ...]) -> str:
            rows = self.dense(x, f"{name}.self.{part}")
            rows = g.add("Reshape", rows, g.constant(np.array([0, 0, heads, size])))
            return g.add("Transpose", rows, perm=order)

        query = split("query", (0, 2, 1, 3))
        key = split("key", (0, 2, 3, 1))
        value = split("value", (0, 2, 1, 3))
        scores = g.add("Div", g.add("MatMul", query, key), g.number(np.sqrt(size)))
        probabilities = g.add("Softmax", g.add("Add", scores, mask), axis=-1)
        context = g.add("Transpose", g.add("MatMul", probabilities, value), perm=(0, 2, 1, 3))
        width = g.constant(np.array([0, 0, self.config["hidden_size"]]))
        output = self.dense(g.add("Reshape", context, width), f"{name}.output.dense")
        return self.norm(g.add("Add", output, x), f"{name}.output.LayerNorm")

    def gelu(self, x: str) -> str:
        g, kind = self.graph, self.config["hidden_act"]
        if kind == "gelu":
            inner = g.add("Erf", g.add("Div", x, g.number(np.sqrt(2.0))))
            outer = g.add("Mul", x, g.add("Add", inner, g.number(1.0)))
            return g.add("Mul", outer, g.number(0.5))
        if kind not in ("gelu_new", "gelu_pytorch_tanh"):
            raise ValueError(f"hidden_act is {kind}; here it may be gelu or gelu_new.")
        cube = g.add("Mul", g.add("Pow", x, g.number(3.0)), g.number(0.044715))
        inner = g.add("Mul", g.add("Add", x, cube), g.number(np.sqrt(2 / np.pi)))
        outer = g.add("Add", g.add("Tanh", inner), g.number(1.0))
        return g.add("Mul", g.add("Mul", x, g.number(0.5)), outer)

    def layer(self, x: str, mask: str, name: str) -> str:
        x = self.attention(x, mask, f"{name}.attention")
        wide = self.gelu(self.dense(x, f"{name}.intermediate.dense"))
        output = self.dense(wide, f"{name}.output.dense")
        return self.norm(self.graph.add("Add", output, x), f"{name}.output.LayerNorm")

    def build(self) -> onnx.ModelProto:
        """int64 ids [B, T] → `probabilities` float32 [B, labels]."""
        g = self.graph
        mask, x = self.mask(), self.embeddings()
        for number in range(self.config["num_hidden_layers"]):
            x = self.layer(x, mask, f"bert.encoder.layer.{number}")
        first = g.add("Gather", x, g.constant(np.array(0)), axis=1)
        pooled = g.add("Tanh", self.dense(first, "bert.pooler.dense"))
        logits = self.dense(pooled, "classifier")
        g.nodes.append(helper.make_node("Softmax", [logits], ["probabilities"], axis=-1))
        labels = self.weights["classifier.bias"].shape[0]
        shape = ["batch", "length"]
        graph = helper.make_graph(
            g.nodes,
            "bert_classifier",
            [helper.make_tensor_value_info(name, TensorProto.INT64, shape) for name in INPUTS],
            [helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, ["batch", labels])],
            list(g.constants.values()),
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)])
        model.ir_version = 10
        onnx.checker.check_model(model)
        return model


def fused_operators(model: onnx.ModelProto) -> dict[str, int]:
    """How many nodes are ONNX Runtime's own, by operator."""
    return dict(Counter(node.op_type for node in model.graph.node if node.domain))
