"""Tagging on a frozen encoder's vectors (paper, section 5.3): two layers of LSTM, a classifier.

model = VectorTagger(config, width=3072, num_labels=9)
logits = model({"features": vectors, "input_mask": mask})["logits"]
"""

import keras

from modeling.config import BertConfig
from modeling.layers.bilstm import BiLSTM
from modeling.layers.dropout import dropout
from modeling.layers.execution import PLAIN, Execution
from modeling.layers.heads import add_linear_weights, linear_logits
from modeling.models import CLASSIFIER_DROPOUT

LSTM_UNITS = 768


class VectorTagger(keras.Model):
    """A label for every piece from vectors that were computed before; nothing of BERT in it.

    It is trained by the same engine and saved in the same format as the models with an encoder;
    its weights are called `bilstm/layer_0/forward/kernel`, …, `output_weights`, `output_bias`.

    Args:
        config: Of the encoder that the vectors are of; for the record.
        width: Of a vector.
        num_labels: Rows of `output_weights`.
        units: Of each direction of both layers. The paper says "768-dimensional".
    """

    def __init__(
        self,
        config: BertConfig,
        width: int,
        num_labels: int,
        units: int = LSTM_UNITS,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.config = config
        self.num_labels = num_labels
        self.units = units
        self.bilstm = BiLSTM(width, units, num_layers=2, dtype=self.dtype_policy)

    def build(self, input_shape=None):
        self.bilstm.build()
        self.output_weights, self.output_bias = add_linear_weights(
            self, self.num_labels, 2 * self.units
        )

    def call(self, inputs, dropout_key=None, execution: Execution = PLAIN):
        """Runs LSTMs and classifier.

        Args:
            inputs: Dict of `features` float32 [B, T, width] and `input_mask` int [B, T].
            dropout_key, execution: See `modeling.models.BertModel`.

        Returns:
            Dict of float32 `logits` [B, T, labels].
        """
        x = keras.ops.cast(inputs["features"], self.compute_dtype)
        x, _ = self.bilstm(x, inputs["input_mask"])
        x = dropout(x, CLASSIFIER_DROPOUT, dropout_key, 0, execution.compile_chains)
        return {"logits": linear_logits(x, self.output_weights, self.output_bias)}
