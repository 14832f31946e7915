"""A frozen encoder's vectors over a whole data set, in order, and what they depend on.

extractor = Extractor(model)
vectors = extractor(array_batches(features, batching), features.lengths)
"""

import hashlib
import json
from collections.abc import Iterable, Mapping

import numpy as np
import tensorflow as tf

from modeling import checkpoints
from modeling.config import BertConfig
from modeling.errors import ModelingError
from modeling.layers.execution import INFERENCE, PLAIN, Execution
from modeling.side_by_side import side_by_side
from modeling.vectors.vector_models import BertVectors
from modeling.vectors.vector_tagger import VectorTagger

_INPUTS = ("input_ids", "input_mask", "segment_ids")


class Extractor:
    """A model's vectors for every example of a data set, on all replicas.

    Made once and called as often as wanted: the model is compiled at the first calls.

    Args:
        model: `BertVectors`.

    Raises:
        ModelingError: There are several workers.
    """

    def __init__(self, model: BertVectors):
        self.model = model
        self.strategy = tf.distribute.get_strategy()
        if isinstance(self.strategy, tf.distribute.MultiWorkerMirroredStrategy):
            raise ModelingError(
                "The vectors of a frozen encoder are computed by one process, on all of its "
                "devices, not by several workers. Start one without TF_CONFIG."
            )
        self._step = tf.function(self._batch, reduce_retracing=True, autograph=False)

    @property
    def shape(self) -> tuple[int, int]:
        """(layers, width) of a vector."""
        return len(self.model.layer_names), self.model.width

    def __call__(
        self, batches: Iterable[Mapping[str, np.ndarray]], lengths: np.ndarray
    ) -> np.ndarray:
        """Vectors in the order of the examples, whatever the order of the batches.

        Args:
            batches: Of the whole set, over all replicas, as `data.vectors.array_batches` makes
                them: `index` int64 [B] is -1 for rows that only fill one up.
            lengths: int [N], pieces of each example, which has one row.

        Returns:
            float32 [N, layers, width] pooled; else [all pieces, layers, width], example after
            example, padding left out.
        """
        pooled = self.model.pooling != "none"
        counts = np.ones_like(lengths) if pooled else lengths
        starts = np.concatenate([[0], np.cumsum(counts)])
        ordered = np.empty((starts[-1], *self.shape), np.float32)
        for index, vectors in side_by_side(self._vectors, batches):
            if pooled:
                ordered[index[index >= 0]] = vectors[index >= 0]
                continue
            for number, row in zip(index, vectors, strict=True):
                if number >= 0:
                    ordered[starts[number] : starts[number + 1]] = row[: counts[number]]
        return ordered

    def _vectors(self, batch: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """The batch's `index`, and what it says there."""
        inputs = self._dealt({name: batch[name] for name in _INPUTS})
        return batch["index"], np.concatenate([part.numpy() for part in self._step(inputs)])

    def _dealt(self, inputs):
        """A part for each replica."""
        number = self.strategy.num_replicas_in_sync
        if number == 1:
            return {name: tf.constant(values) for name, values in inputs.items()}
        parts = {name: np.array_split(values, number) for name, values in inputs.items()}
        return {
            name: self.strategy.experimental_distribute_values_from_function(
                lambda context, of=of: tf.constant(of[context.replica_id_in_sync_group])
            )
            for name, of in parts.items()
        }

    def _batch(self, inputs):
        # Not gathered on the devices: a collective there wants one shape for good.
        def vectors(part):
            return self.model(part, execution=INFERENCE)["vectors"]

        values = self.strategy.run(vectors, args=(inputs,))
        return self.strategy.experimental_local_results(values)


class FrozenEncoder:
    """A pre-trained encoder whose weights stay, as the source of a tagger's vectors.

    Args:
        config: Its configuration.
        layers: One of `VECTOR_LAYERS`.
        init_checkpoint: Its weights.
    """

    def __init__(self, config: BertConfig, layers: str, init_checkpoint: str):
        self.model = BertVectors(config, [layers])
        self.model.build()
        checkpoints.load(self.model, init_checkpoint, required=checkpoints.ENCODER)
        self.extractor = Extractor(self.model)
        self.fingerprint = extraction_fingerprint(self.model)
        self.width = self.model.width

    def is_of(self, fingerprint: str) -> bool:
        """Whether a fingerprint is this encoder's, with these layers, in some type of numbers."""
        types = dict.fromkeys((self.model.compute_dtype, "float32", "bfloat16", "float16"))
        return any(extraction_fingerprint(self.model, name) == fingerprint for name in types)


class FrozenEncoderTagger:
    """A frozen encoder and a tagger on its vectors; takes and gives what `BertTagger` does."""

    def __init__(self, encoder: BertVectors, tagger: VectorTagger):
        self.encoder = encoder
        self.tagger = tagger
        self.parts = [encoder, tagger]
        self.config = tagger.config  # by which exports check requests

    @property
    def weights(self) -> list:
        return [*self.encoder.weights, *self.tagger.weights]

    def __call__(self, batch: Mapping, execution: Execution = PLAIN) -> dict[str, tf.Tensor]:
        vectors = self.encoder(batch, execution=execution)["vectors"][:, :, 0]
        inputs = {"features": vectors, "input_mask": batch["input_mask"]}
        return self.tagger(inputs, execution=execution)


def extraction_fingerprint(model: BertVectors, compute_dtype: str | None = None) -> str:
    """A hash of all that vectors depend on but the input: weights, configuration, layers, types.

    Args:
        model: Whose vectors they are.
        compute_dtype: As if it computed in this; None: as it does.
    """
    digest = hashlib.blake2b(digest_size=16)
    settings = [
        model.config.to_dict(),
        model.layer_names,
        model.pooling,
        model.normalize,
        compute_dtype or model.compute_dtype,
    ]
    digest.update(json.dumps(settings, sort_keys=True).encode())
    for name, weight in checkpoints.weights_by_name(model).items():
        if name.startswith(checkpoints.ENCODER):
            digest.update(name.encode())
            digest.update(np.ascontiguousarray(weight.numpy()).tobytes())
    return digest.hexdigest()
