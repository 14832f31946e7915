"""The encoder's layers as vectors of texts (paper, section 5.3): choosing and pooling them.

model = BertVectors(config, layers=[-1, -2], pooling="mean")
model.build()
checkpoints.load(model, "bert_model.ckpt", required=checkpoints.ENCODER)
vectors = model(inputs)["vectors"]
"""

from collections.abc import Mapping, Sequence

from keras import ops

from modeling.config import BertConfig
from modeling.errors import ModelingError
from modeling.flags import VECTOR_LAYERS
from modeling.layers.execution import PLAIN, Execution
from modeling.models import BertModel

POOLINGS = ("cls", "mean", "max", "none")

_LEAST = -1e9


def chosen_layers(outputs: Mapping, choice: str):
    """One of the choices of the paper's Table 7 (section 5.3).

    Args:
        outputs: Of `BertEncoder`.
        choice: `first`: the embeddings' output, below all layers; `second_to_last` and `last`;
            `sum_last4` and `concat_last4`: the last four, or all of a model that has fewer;
            `sum_all`: all layers, without the embeddings. Of a model with one layer the second
            to last is the embeddings' output. The sums aren't weighted.

    Returns:
        [B, T, H]; concatenated [B, T, 4·H], the lowest layer first.
    """
    layers = outputs["encoder_outputs"]
    if choice == "first":
        return outputs["embedding_output"]
    if choice == "second_to_last":
        return [outputs["embedding_output"], *layers][-2]
    if choice == "last":
        return layers[-1]
    if choice == "concat_last4":
        return ops.concatenate(layers[-4:], axis=-1)
    if choice in ("sum_last4", "sum_all"):
        return sum(layers[-4:] if choice == "sum_last4" else layers)
    raise ModelingError(f"{choice!r} is none of the layers {', '.join(VECTOR_LAYERS)}.")


def parse_layers(
    items: Sequence[str], num_hidden_layers: int, only_existing: bool = False
) -> list[int | str]:
    """Layers as a flag names them: numbers as the original's, or one of `VECTOR_LAYERS`.

    Args:
        items: -1 is the last layer and 0 the first; or a single name.
        num_hidden_layers: Of the model.
        only_existing: Leaves out numbers that the model doesn't have, instead of refusing them:
            for a default that is made for larger models.

    Raises:
        ModelingError: A number out of range, or what is neither.
    """
    items = [item.strip() for item in items]
    if len(items) == 1 and items[0] in VECTOR_LAYERS:
        return items
    try:
        numbers = [int(item) for item in items]
    except ValueError:
        numbers = []
    existing = [n for n in numbers if -num_hidden_layers <= n < num_hidden_layers]
    if not existing or (len(existing) < len(numbers) and not only_existing):
        raise ModelingError(
            f"The layers are {','.join(items)!r}. They have to be numbers from "
            f"{-num_hidden_layers} to {num_hidden_layers - 1}, as the model has "
            f"{num_hidden_layers} layers (-1 is the last, 0 the first), or one of "
            f"{', '.join(VECTOR_LAYERS)}."
        )
    return existing


class BertVectors(BertModel):
    """The encoder alone, with chosen layers as its output.

    Args:
        config: The encoder's configuration.
        layers: See `parse_layers`.
        pooling: Over the tokens of a row: "cls", the first one's vector; "mean" or "max" of all
            real ones, [CLS] and [SEP] too; "none".
        normalize: Scales each vector to unit length.
    """

    def __init__(
        self,
        config: BertConfig,
        layers: Sequence[int | str] = (-1,),
        pooling: str = "none",
        normalize: bool = False,
        **kwargs,
    ):
        super().__init__(config, **kwargs)
        if pooling not in POOLINGS:
            raise ModelingError(f"pooling is {pooling!r}; it may be one of {', '.join(POOLINGS)}.")
        self.layer_names = list(layers)
        self.pooling = pooling
        self.normalize = normalize

    @property
    def width(self) -> int:
        """Of one layer's vectors."""
        factor = 1
        if self.layer_names == ["concat_last4"]:
            factor = min(4, self.config.num_hidden_layers)
        return factor * self.config.hidden_size

    def call(self, inputs, execution: Execution = PLAIN):
        """Dict of int32 [B, T] → `vectors` float32 [B, L, width], or [B, T, L, width] unpooled.

        Never with dropout. Vectors of padding mean nothing.
        """
        outputs = self.encoder(inputs, execution=execution)
        mask = inputs.get("input_mask")
        if mask is None:
            mask = ops.ones_like(inputs["input_ids"])
        layers = [
            chosen_layers(outputs, layer)
            if isinstance(layer, str)
            else outputs["encoder_outputs"][layer]
            for layer in self.layer_names
        ]
        vectors = ops.cast(ops.stack(layers, axis=2), "float32")
        vectors = pool_vectors(vectors, mask, self.pooling)
        return {"vectors": unit_length(vectors) if self.normalize else vectors}


def pool_vectors(vectors, input_mask, pooling: str):
    """[B, T, …] and int [B, T] → [B, …], see `BertVectors`; "none" returns the vectors."""
    if pooling == "none":
        return vectors
    if pooling == "cls":
        return vectors[:, 0]
    dims = (1,) * (len(vectors.shape) - 2)
    shape = ops.shape(input_mask)
    real = ops.cast(ops.reshape(input_mask, (shape[0], shape[1], *dims)), vectors.dtype)
    if pooling == "max":
        return ops.max(ops.where(real > 0, vectors, _LEAST), axis=1)
    return ops.sum(vectors * real, axis=1) / ops.maximum(ops.sum(real, axis=1), 1.0)


def unit_length(vectors):
    """Vectors [..., width] scaled to an L2 norm of 1; zeros stay."""
    squares = ops.sum(ops.square(vectors), axis=-1, keepdims=True)
    return vectors * ops.rsqrt(ops.maximum(squares, 1e-12))
