"""Which head a checkpoint's weights are of, where its format or configuration leave that open."""

from collections.abc import Mapping

from modeling.checkpoints import names
from modeling.checkpoints.target_unit import BIAS, SCALE, WEIGHTS
from modeling.config import BertConfig

_SPANS = "cls/squad/output_weights"
_NEXT_SENTENCE = "cls/seq_relationship/output_weights"
# The same weights; only a configuration, or the format's own names, tell them apart.
_OF_OUTPUT_WEIGHTS = ("classes", "multi_label", "regression", "tags", "choices")


def checkpoint_heads(
    shapes: Mapping[str, tuple[int, ...]], config: BertConfig, told: str | None = None
) -> list[str]:
    """All heads that a set of weights has, keys of `config.HEADS`; the one that counts first.

    Weights decide; the configuration only between heads that have the same weights.

    Args:
        shapes: Original name → shape in the original's layout.
        config: The configuration that belongs to them.
        told: The head that the format's own names tell, see `Contents.head`.
    """
    heads = []
    if WEIGHTS in shapes:
        said = next((h for h in (told, config.head) if h in _OF_OUTPUT_WEIGHTS), None)
        heads.append(_head_of_output_weights(shapes, said))
    if _SPANS in shapes:
        heads.append("spans")
    if names.MASKED_LM_BIAS in shapes:
        heads.append("pretraining" if _NEXT_SENTENCE in shapes else "masked_lm")
    elif _NEXT_SENTENCE in shapes:
        heads.append("next_sentence")
    first = [head for head in heads if head == config.head]
    return first + [head for head in heads if head not in first]


def checkpoint_head(
    shapes: Mapping[str, tuple[int, ...]], config: BertConfig, told: str | None = None
) -> str | None:
    """The first of the `checkpoint_heads`; None for an encoder alone."""
    return next(iter(checkpoint_heads(shapes, config, told)), None)


def _head_of_output_weights(shapes: Mapping[str, tuple[int, ...]], said: str | None) -> str:
    outputs = shapes[WEIGHTS][0]
    if SCALE in shapes:
        return "regression"
    if outputs == 1:
        # The original's multiple choice has no bias; Hugging Face's has one, of no effect.
        return said or ("regression" if BIAS in shapes else "choices")
    return said if said not in (None, "choices") else "classes"
