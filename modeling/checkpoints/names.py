"""The one table of weight names: the original release's (ours too) ↔ Hugging Face's.

Every weight of a model here is called what the original release called it, so the TF1 side of
the table is also the name inside the model. A dense kernel is [in, out] in the original and
[out, in] in Hugging Face's PyTorch classes: those rows are marked as transposed. Names of Hugging
Face's TensorFlow classes are the same with other separators, and all kernels [in, out].
"""

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from modeling.errors import ModelingError

if TYPE_CHECKING:
    import keras

    from modeling.config import BertConfig

TF1 = "tf1"
ENCODER = ("bert/embeddings/", "bert/encoder/")
"""What a checkpoint must hold at least. Some models are published without their pooler."""

HUGGINGFACE = "huggingface"


class _Translated(NamedTuple):
    """The name on the other side of the table, and whether the tensor is transposed there."""

    name: str
    transposed: bool


WORD_EMBEDDINGS = "bert/embeddings/word_embeddings"
MASKED_LM_BIAS = "cls/predictions/output_bias"
SIZES = {
    "vocab_size": (WORD_EMBEDDINGS, 0),
    "hidden_size": (WORD_EMBEDDINGS, 1),
    "max_position_embeddings": ("bert/embeddings/position_embeddings", 0),
    "type_vocab_size": ("bert/embeddings/token_type_embeddings", 0),
    "intermediate_size": ("bert/encoder/layer_0/intermediate/dense/bias", 0),
}
"""Field of `BertConfig` → a weight and the axis of it that has this size."""

# Tied weights: a Hugging Face file may hold these beside, or instead of, what they are tied to.
TIED = {
    "cls.predictions.decoder.weight": WORD_EMBEDDINGS,
    "cls.predictions.decoder.bias": MASKED_LM_BIAS,
}


def _dense(original: str, huggingface: str) -> list[tuple[str, str, bool]]:
    return [
        (f"{original}/kernel", f"{huggingface}.weight", True),
        (f"{original}/bias", f"{huggingface}.bias", False),
    ]


def _norm(original: str, huggingface: str) -> list[tuple[str, str, bool]]:
    return [
        (f"{original}/LayerNorm/beta", f"{huggingface}.LayerNorm.bias", False),
        (f"{original}/LayerNorm/gamma", f"{huggingface}.LayerNorm.weight", False),
    ]


def _rows(original: str, huggingface: str) -> list[tuple[str, str, bool]]:
    """Heads whose weight the original stores as [outputs, in] and multiplies transposed."""
    return [
        (f"{original}output_weights", f"{huggingface}.weight", False),
        (f"{original}output_bias", f"{huggingface}.bias", False),
    ]


_LAYER, _HF_LAYER = "bert/encoder/layer_{i}", "bert.encoder.layer.{i}"

# (original, Hugging Face, transposed), in the original's order of creation; {i} is the layer.
TABLE = [
    *(
        (f"bert/embeddings/{table}", f"bert.embeddings.{table}.weight", False)
        for table in ("word_embeddings", "token_type_embeddings", "position_embeddings")
    ),
    *_norm("bert/embeddings", "bert.embeddings"),
    *_dense(f"{_LAYER}/attention/self/query", f"{_HF_LAYER}.attention.self.query"),
    *_dense(f"{_LAYER}/attention/self/key", f"{_HF_LAYER}.attention.self.key"),
    *_dense(f"{_LAYER}/attention/self/value", f"{_HF_LAYER}.attention.self.value"),
    *_dense(f"{_LAYER}/attention/output/dense", f"{_HF_LAYER}.attention.output.dense"),
    *_norm(f"{_LAYER}/attention/output", f"{_HF_LAYER}.attention.output"),
    *_dense(f"{_LAYER}/intermediate/dense", f"{_HF_LAYER}.intermediate.dense"),
    *_dense(f"{_LAYER}/output/dense", f"{_HF_LAYER}.output.dense"),
    *_norm(f"{_LAYER}/output", f"{_HF_LAYER}.output"),
    *_dense("bert/pooler/dense", "bert.pooler.dense"),
    *_dense("cls/predictions/transform/dense", "cls.predictions.transform.dense"),
    *_norm("cls/predictions/transform", "cls.predictions.transform"),
    (MASKED_LM_BIAS, "cls.predictions.bias", False),
    *_rows("cls/seq_relationship/", "cls.seq_relationship"),
    *_rows("cls/squad/", "qa_outputs"),
    *_rows("", "classifier"),
]


def encoder_shapes(config: "BertConfig") -> dict[str, tuple[int, ...]]:
    """The shapes of all of an encoder's weights by original name, its pooler's included."""
    hidden, wide = config.hidden_size, config.intermediate_size
    shapes: dict[str, tuple[int, ...]] = {}
    for row, _, _ in TABLE:
        if row.startswith("bert/"):
            shape = (hidden, hidden) if row.endswith("/kernel") else (hidden,)
            if row.startswith(f"{_LAYER}/intermediate"):
                shape = (*shape[1:], wide)
            elif row == f"{_LAYER}/output/dense/kernel":
                shape = (wide, hidden)
            count = config.num_hidden_layers if "{i}" in row else 1
            shapes |= {row.replace("{i}", str(layer)): shape for layer in range(count)}
    tables = [(name, field) for field, (name, axis) in SIZES.items() if axis == 0]
    rows = {name: getattr(config, field) for name, field in tables if "/embeddings/" in name}
    return shapes | {name: (count, hidden) for name, count in rows.items()}


def _patterns(column: int, other: int) -> list[tuple[re.Pattern[str], str, bool]]:
    return [
        (re.compile(re.escape(row[column]).replace(r"\{i\}", r"(0|[1-9]\d*)")), row[other], row[2])
        for row in TABLE
    ]


_FROM_ORIGINAL = _patterns(0, 1)
_FROM_HUGGINGFACE = _patterns(1, 0)


def _translate(name: str, patterns) -> _Translated | None:
    for pattern, template, transposed in patterns:
        match = pattern.fullmatch(name)
        if match:
            layer = match.group(1) if match.groups() else ""
            return _Translated(template.replace("{i}", layer), transposed)
    return None


def to_huggingface(name: str) -> _Translated | None:
    """The Hugging Face name of an original name, with the `bert.` prefix; None if it has none."""
    return _translate(name, _FROM_ORIGINAL)


def plain_huggingface(name: str) -> str:
    """A Hugging Face name without what wrappers put before it.

    That is `module.` of torch.nn.DataParallel, `0.auto_model.` of sentence-transformers,
    `_orig_mod.` of torch.compile, and `model.`, what PyTorch Lightning's users call theirs.
    """
    return re.sub(r"^(module\.|0\.auto_model\.|_orig_mod\.|model\.)+", "", name)


def from_huggingface(name: str) -> _Translated | None:
    """The original name of a Hugging Face name, of PyTorch or of TensorFlow; None if it has none.

    Takes PyTorch's names with and without the `bert.` prefix, behind those of wrappers, and with
    `LayerNorm.gamma` and `.beta`, which the files of the first conversions still hold. The tied
    decoder names of `TIED` are not mapped. Of TensorFlow's names, which are paths, the models
    around the BERT layer may come first, as in `tf_bert_model/bert/pooler/dense/kernel:0`.
    """
    if "/" in name:
        return _from_huggingface_tensorflow(name)
    name = plain_huggingface(name)
    name = re.sub(r"\.LayerNorm\.gamma$", ".LayerNorm.weight", name)
    name = re.sub(r"\.LayerNorm\.beta$", ".LayerNorm.bias", name)
    if name.startswith(("embeddings.", "encoder.", "pooler.")):
        name = f"bert.{name}"
    return _translate(name, _FROM_HUGGINGFACE)


_TENSORFLOW = re.compile(
    r"(?:.*/)?(bert/(?:embeddings|encoder|pooler)|(?:mlm|nsp)___cls|classifier|qa_outputs)/"
    r"((?:.*/)?)(kernel|bias|gamma|beta|weight|embeddings)(?::0)?"
)
_TENSORFLOW_LAST = {"bias": "bias", "beta": "bias"}


def _from_huggingface_tensorflow(name: str) -> _Translated | None:
    match = _TENSORFLOW.fullmatch(name)
    if not match:
        return None
    part, middle, last = match.groups()
    scope = f"{part.removeprefix('mlm___').removeprefix('nsp___')}/{middle}"
    dotted = scope.replace("layer_._", "layer/").replace("/", ".")
    found = _translate(dotted + _TENSORFLOW_LAST.get(last, "weight"), _FROM_HUGGINGFACE)
    if found and last == "kernel":
        return _Translated(found.name, not found.transposed)
    return found


def is_bookkeeping(name: str) -> bool:
    """Whether a file's tensor is no weight: optimizer slots, counters, loss scale, buffers."""
    last = re.split(r"[/.]", name)[-1]
    return last in {
        "Adam",
        "Adam_1",
        "Momentum",
        "adam_m",
        "adam_v",
        "average",
        "averaged_updates",
        "batches_ahead",
        "beta1_power",
        "beta2_power",
        "global_step",
        "loss_scale",
        "loss_scale_good_steps",
        "loss_window",
        "position_ids",
        "token_type_ids",
    }


def _sort_key(name: str) -> tuple[int, int, str]:
    """Orders original names as the original created them; unknown names come last, by name."""
    for index, (pattern, _, _) in enumerate(_FROM_ORIGINAL):
        match = pattern.fullmatch(name)
        if match:
            if match.groups():
                return _FIRST_LAYER_ROW, int(match.group(1)), f"{index:04}"
            return index, 0, ""
    return len(TABLE), 0, name


_FIRST_LAYER_ROW = next(i for i, row in enumerate(TABLE) if "{i}" in row[0])


def number_of_checkpoint_layers(weights: Iterable[str]) -> int:
    """How many encoder layers a set of original names has, counted by the highest number."""
    layers = (re.match(r"bert/encoder/layer_(\d+)/", name) for name in weights)
    return 1 + max((int(layer.group(1)) for layer in layers if layer), default=-1)


def weights_by_name(model: "keras.Model") -> "dict[str, keras.Variable]":
    """The weights of a model by their original names, in the original's order of creation.

    The name is the variable's path without its first part, the model's name. Variables that hold
    no floating-point numbers (counters, random seeds) aren't weights and are left out.

    Raises:
        ModelingError: Two weights have one name.
    """
    if not model.built:
        model.build()
    weights: dict[str, keras.Variable] = {}
    for variable in model.weights:
        if "float" not in str(variable.dtype):
            continue
        name = variable.path.split("/", 1)[-1]
        if name in weights:
            raise ModelingError(
                f"The model {model.name!r} has two weights named {name}; checkpoints store weights "
                f"by name, so every layer that holds weights needs a name of its own."
            )
        weights[name] = variable
    return dict(sorted(weights.items(), key=lambda item: _sort_key(item[0])))
