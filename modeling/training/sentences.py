"""What a kind of label means for model, loss and results, for tasks on sentences.

head = SentenceHead("classes", num_labels=2)
model = head.make_model(config)
results = head.evaluate(logits, label_ids, ("f1", "accuracy"))
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from modeling import checkpoints, metrics
from modeling.answers.confidence import fit_temperature
from modeling.answers.thresholds import tune_label_thresholds
from modeling.config import BertConfig
from modeling.errors import ModelingError
from modeling.layers.heads import class_log_priors, label_log_odds
from modeling.losses import ClassifierLosses, Losses, MultiLabelLosses, RegressionLosses
from modeling.models import BertClassifier, BertModel, BertMultipleChoice

KINDS = ("classes", "multi_label", "regression", "choices")


@dataclasses.dataclass(frozen=True)
class SentenceHead:
    """One kind of task on sentences.

    Attributes:
        kind: "classes", "multi_label", "regression" or "choices".
        num_labels: Of classes.
        class_weights: How much the examples of each class count in training; None for alike.
        train_labels: Those to be trained on, as in batches: a new head begins at what they say
            without any text, see `make_model`. None: at zeros, and numbers as they are.
    """

    kind: str
    num_labels: int = 1
    class_weights: Sequence[float] | None = None
    train_labels: np.ndarray | None = None

    def __post_init__(self):
        if self.kind not in KINDS:
            raise ModelingError(f"The kind {self.kind!r} isn't one of {', '.join(KINDS)}.")
        weighted = self.class_weights is not None
        if weighted and self.kind not in ("classes", "multi_label"):
            raise ModelingError(
                f"Class weights need classes, but the task's labels are {self.kind}."
            )
        if weighted and len(self.class_weights) != self.num_labels:
            raise ModelingError(
                f"There are {len(self.class_weights)} class weights for {self.num_labels} labels."
            )

    def make_model(
        self,
        config: BertConfig,
        bilstm: bool = False,
        row_pooling: str = "mean",
        remat: bool = False,
        second: BertConfig | None = None,
    ) -> keras.Model:
        """The built model, with random weights.

        With `train_labels` the bias is the classes' log frequencies (weighted as in training), or
        each label's log odds. A model of numbers begins at their mean and learns them in units of
        their standard deviation; its answers are in theirs.
        """
        if self.kind == "choices":
            if bilstm or second:
                raise ModelingError("A BiLSTM, or a second encoder, is not for multiple choice.")
            model = BertMultipleChoice(config, remat=remat)
        else:
            number = 1 if self.kind == "regression" else self.num_labels
            model = BertClassifier(
                config,
                number,
                bilstm=bilstm,
                row_pooling=row_pooling,
                remat=remat,
                second=second,
                numbers=self.kind == "regression",
            )
        model.build()
        if self.train_labels is not None and len(self.train_labels):
            self._begin(model, self.train_labels)
        return model

    def _begin(self, model: keras.Model, labels: np.ndarray) -> None:
        if self.kind == "regression":
            model.target_mean.assign([labels.mean(dtype=np.float64)])
            # Without any spread the unit is the labels' own.
            model.target_scale.assign([labels.std(dtype=np.float64) or 1.0])
        elif self.kind == "multi_label":
            model.output_bias.assign(label_log_odds(labels.sum(0), len(labels)))
        elif self.kind == "classes":
            weights = 1.0 if self.class_weights is None else np.asarray(self.class_weights)
            counts = np.bincount(labels, minlength=self.num_labels)
            model.output_bias.assign(class_log_priors(counts * weights))

    @property
    def losses(self) -> Losses:
        """For training."""
        return self._losses(self.class_weights)

    def probabilities(self, logits: np.ndarray, temperature: float = 1.0) -> np.ndarray:
        """Float32 [N, L] for classes, labels and choices; for regression the numbers [N].

        Args:
            logits: See `evaluate`.
            temperature: Of classes and choices: what logits are divided by before their softmax.
        """
        if self.kind == "regression":
            return logits[:, 0]
        if self.kind == "multi_label":
            return tf.nn.sigmoid(logits).numpy()
        return tf.nn.softmax(logits / np.float32(temperature)).numpy()

    def tune(self, logits: np.ndarray, label_ids: np.ndarray) -> dict[str, Any]:
        """What answers can be given with that fits these examples best, by its name.

        Args:
            logits, label_ids: See `evaluate`.

        Returns:
            `label_thresholds`, a list of L, for several labels (`tune_label_thresholds`);
            `temperature` for classes and choices (`fit_temperature`); nothing for numbers.
        """
        if self.kind == "regression":
            return {}
        if self.kind == "multi_label":
            thresholds = tune_label_thresholds(self.probabilities(logits), label_ids)
            return {"label_thresholds": thresholds.tolist()}
        return {"temperature": fit_temperature(logits, label_ids)}

    def evaluate(
        self,
        logits: np.ndarray,
        label_ids: np.ndarray,
        names: Sequence[str],
        target_scale: float = 1.0,
    ) -> dict[str, float]:
        """Results over a whole set, each example counted once and alike.

        Args:
            logits: float32 [N, L], [N, 1] or [N, C].
            label_ids: [N] or [N, L].
            names: Metrics, see `modeling.metrics`.
            target_scale: Of a model of numbers: the unit of its errors in the loss.

        Returns:
            `eval_NAME` of each metric, and `eval_loss`, without class weights.

        Raises:
            ModelingError: There are no examples.
        """
        if not len(logits):
            raise ModelingError("There is nothing to evaluate on: the data set has no examples.")
        outputs = self.probabilities(logits)
        values = metrics.compute_metrics(names, outputs, label_ids)
        losses, _ = self._losses(None)(
            {"logits": tf.constant(logits), "target_scale": target_scale},
            {"label_ids": tf.constant(label_ids)},
        )
        results = {f"eval_{name}": value for name, value in values.items()}
        return results | {"eval_loss": float(losses["loss"].result())}

    def constant_answer(
        self, outputs: np.ndarray, label_ids: np.ndarray, names: Sequence[str]
    ) -> str:
        """What `probabilities` say of every example, in words; "" where they tell them apart.

        Args:
            outputs, label_ids: As for `metrics.is_constant_output`.
            names: Of the classes or labels; of choices there are none.
        """
        if not metrics.is_constant_output(outputs, label_ids):
            return ""
        if self.kind == "regression":
            return f"the number {outputs[0]:.6g}"
        if self.kind == "multi_label":
            chosen = [n for n, p in zip(names, outputs[0], strict=True) if p >= metrics.THRESHOLD]
            return f"the labels {', '.join(chosen)}" if chosen else "no label"
        best = int(outputs[0].argmax())
        return f"the class {names[best]}" if names else f"choice {best}"

    def _losses(self, class_weights) -> Losses:
        if self.kind == "regression":
            return RegressionLosses()
        if self.kind == "multi_label":
            return MultiLabelLosses(class_weights)
        return ClassifierLosses(class_weights)


def load_second_encoder(model: BertClassifier, path: str) -> None:
    """Gives the second encoder the weights of a checkpoint, where they are called as usual.

    Raises:
        ModelingError: See `checkpoints.load`.
    """
    source = BertModel(model.second_encoder.config, name="second")
    source.build()
    checkpoints.load(source, path, required=checkpoints.ENCODER)
    pairs = zip(model.second_encoder.weights, source.encoder.weights, strict=True)
    for weight, stored in pairs:
        weight.assign(stored)


def read_second_config(values, config: BertConfig) -> BertConfig | None:
    """The second encoder's configuration, if the flags name one; None otherwise.

    Raises:
        ModelingError: It doesn't fit the first one, or weights are given without it.
    """
    path = values.second_bert_config_file
    if not path:
        if values.second_init_checkpoint:
            raise ModelingError(
                "--second_init_checkpoint needs --second_bert_config_file, the sizes that the "
                "second encoder has."
            )
        return None
    if values.second_init_checkpoint:  # whose format tells in whose terms the file is
        held = checkpoints.open_contents(values.second_init_checkpoint)
        second = checkpoints.config_of_checkpoint(held, path)
    else:
        second = BertConfig.from_file_or_name(path, config.vocab_size)
    if second.num_hidden_layers != config.num_hidden_layers:
        raise ModelingError(
            f"{path} has {second.num_hidden_layers} layers, {values.bert_config_file} has "
            f"{config.num_hidden_layers}; two encoders side by side need equally many."
        )
    return second
