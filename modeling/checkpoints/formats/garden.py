"""Checkpoints of TensorFlow's Model Garden (tf-models-official), object-based.

Told by the variables' own names, which all of its BERT encoders share whatever class they are
(BertEncoder, BertEncoderV2, their predecessors): see official/nlp/modeling there and, for the
oldest, the tables of tf1_bert_checkpoint_converter_lib in official/nlp/tools. Attention kernels are
[H, heads, size] and [heads, size, H].
"""

import re
from collections.abc import Mapping

from modeling.checkpoints import names
from modeling.checkpoints.contents import (
    Contents,
    checked_weight,
    dtype_of_weight,
    in_original_layout,
    original_shape,
)
from modeling.checkpoints.formats.object_graph import (
    ObjectCheckpoint,
    ObjectVariable,
    bundles_at,
    is_object_checkpoint,
)
from modeling.errors import ModelingError

GARDEN = "model garden"

_LAYER, _OURS = r"(?:transformer|encoder)/layer_(\d+)", r"bert/encoder/layer_\1"
_TABLE = [
    (r"word_embeddings/embeddings", names.WORD_EMBEDDINGS),
    (
        r"(?:position_embedding/embeddings|position_embedding/position_embeddings"
        r"|embedding_postprocessor/position_embeddings)",
        "bert/embeddings/position_embeddings",
    ),
    (
        r"(?:type_embeddings/embeddings|embedding_postprocessor/type_embeddings)",
        "bert/embeddings/token_type_embeddings",
    ),
    (
        r"(?:embeddings|embedding_postprocessor)/layer_norm/(gamma|beta)",
        r"bert/embeddings/LayerNorm/\1",
    ),
    (
        rf"{_LAYER}/self_attention/(query|key|value)/(kernel|bias)",
        rf"{_OURS}/attention/self/\2/\3",
    ),
    (
        rf"{_LAYER}/(?:self_attention/attention_output|self_attention_output)/(kernel|bias)",
        rf"{_OURS}/attention/output/dense/\2",
    ),
    (
        rf"{_LAYER}/self_attention_layer_norm/(gamma|beta)",
        rf"{_OURS}/attention/output/LayerNorm/\2",
    ),
    (rf"{_LAYER}/intermediate/(kernel|bias)", rf"{_OURS}/intermediate/dense/\2"),
    (rf"{_LAYER}/output/(kernel|bias)", rf"{_OURS}/output/dense/\2"),
    (rf"{_LAYER}/output_layer_norm/(gamma|beta)", rf"{_OURS}/output/LayerNorm/\2"),
    (r"pooler_transform/(kernel|bias)", r"bert/pooler/dense/\1"),
    (
        r"cls/predictions/transform/(dense|LayerNorm)/(kernel|bias|gamma|beta)",
        r"cls/predictions/transform/\1/\2",
    ),
    (r"cls/predictions/output_bias/bias", names.MASKED_LM_BIAS),
    (r"next_sentence/logits/(kernel|bias)", r"cls/seq_relationship/\1"),
    (r"(?!next_sentence/)[^/]+/logits/(kernel|bias)", r"\1"),
]
_PATTERNS = [(re.compile(f"(?:.+/)?{pattern}"), ours) for pattern, ours in _TABLE]
# A head that has a pooler of its own doesn't use the encoder's.
_HEAD_POOLER = re.compile(r"(?:.+/)?[^/]+/pooler_dense/(kernel|bias)")
# Several heads' variables have this name; the attributes that lead to one say whose it is. Those
# named "classifier" hold the layer itself in taggers, and a network with it in 2020's classifiers.
_LOGITS = re.compile(r"(?:.+/)?predictions/transform/logits/(kernel|bias)")
_SCOPES = {"span_labeling": "cls/squad/", "classification": "cls/seq_relationship/"}
_SCOPES |= {"classifier": ""}
_OUTPUTS = {"kernel": "output_weights", "bias": "output_bias"}
_NOT_BERT = re.compile(
    r"embedding_projection|layer_norm_kv|lowrank_kv|relative|rezero|final_layer_norm"
)


def garden_file(path: str) -> str | None:
    """The prefix of Model Garden's checkpoint at `path`, a prefix, its file or a folder.

    Raises:
        ModelingError: A folder with several.
    """
    found = [prefix for prefix in bundles_at(path) if _is_garden(prefix)]
    if len(found) > 1:
        raise ModelingError(
            f"The folder {path} holds several checkpoints: {', '.join(found)}. Give the one to "
            f"read instead of the folder."
        )
    return found[0] if found else None


def _is_garden(prefix: str) -> bool:
    return is_object_checkpoint(prefix) and any(
        _original_name(v.name) == names.WORD_EMBEDDINGS for v in ObjectCheckpoint(prefix).variables
    )


def garden_contents(file: str) -> Contents:
    """What Model Garden's checkpoint with this prefix holds, under the original's names.

    Raises:
        ModelingError: A damaged file, two weights of one name, or an encoder that isn't BERT's.
    """
    stored = ObjectCheckpoint(file)
    return contents_of_variables(stored, GARDEN, file)


def contents_of_variables(
    stored: ObjectCheckpoint, format: str, path: str, renamed: Mapping[int, str] | None = None
) -> Contents:
    """The contents of a checkpoint whose variables have Model Garden's names.

    Args:
        stored: The checkpoint.
        format: For `Contents.format`.
        path: For `Contents.path`.
        renamed: Better names of variables by their number in the graph of objects.

    Raises:
        ModelingError: As `garden_contents`.
    """
    found: dict[str, ObjectVariable] = {}
    poolers: dict[str, ObjectVariable] = {}
    unmapped, ignored = [], list(stored.ignored)
    scopes = {
        node: scope for attribute, scope in _SCOPES.items() for node in stored.under(attribute)
    }
    for variable in stored.variables:
        name = (renamed or {}).get(variable.node, variable.name)
        if not variable.dtype.is_floating or not variable.shape:
            ignored.append(variable.key)
            continue
        if _NOT_BERT.search(name):
            raise ModelingError(
                f"{path} holds {name} ({variable.key}), which BERT doesn't have: the encoder is a "
                f"variant whose answers can't be computed here. Take a checkpoint of a BertEncoder."
            )
        original = _original_name(name, scopes.get(variable.node))
        target = poolers if _HEAD_POOLER.fullmatch(name) else found
        if original is None:
            unmapped.append(variable.key)
        elif original in target:
            raise ModelingError(
                f"{path} holds the weight {original} twice, as {target[original].key} and as "
                f"{variable.key}. It must hold one model with one head of a kind."
            )
        else:
            target[original] = variable
    unmapped += [found[name].key for name in poolers if name in found]
    found |= poolers
    query = next((v.shape for n, v in found.items() if n.endswith("/self/query/kernel")), ())

    def read(name: str):
        variable = found[name]
        array = checked_weight(stored.read(variable.key), variable.key, path)
        return in_original_layout(name, array)

    shapes = {name: original_shape(name, v.shape) for name, v in sorted(found.items())}
    return Contents(
        path=path,
        format=format,
        shapes=shapes,
        dtypes={name: dtype_of_weight(found[name].dtype) for name in shapes},
        file_names={name: found[name].key for name in shapes},
        unmapped=sorted(unmapped),
        ignored=sorted(ignored),
        read=read,
        head="tags" if _is_tagger(stored, found) else None,
        num_attention_heads=query[1] if len(query) == 3 else None,
    )


def _is_tagger(stored: ObjectCheckpoint, found: Mapping[str, ObjectVariable]) -> bool:
    weights = found.get("output_weights")
    in_layer = weights is not None and weights.node in stored.parts_of("classifier")
    return in_layer and bool(_LOGITS.fullmatch(weights.name))


def _original_name(name: str, scope: str | None = None) -> str | None:
    """The original name of a variable; `scope` is that of `_LOGITS`, if its place tells one."""
    match = _HEAD_POOLER.fullmatch(name)
    if match:
        return f"bert/pooler/dense/{match.group(1)}"
    match = _LOGITS.fullmatch(name)
    if match:
        return None if scope is None else f"{scope}{_OUTPUTS[match.group(1)]}"
    for pattern, ours in _PATTERNS:
        match = pattern.fullmatch(name)
        if match:
            original = match.expand(ours)
            scope, _, last = original.rpartition("/")
            if scope in ("", "cls/seq_relationship"):
                return f"{scope}/{_OUTPUTS[last]}".lstrip("/")
            return original
    return None
