"""A student on two replicas against one device; prints "equal" when both end alike.

    python -m tests.modeling.training.distillation.two_replicas_taught FOLDER

A program of its own because logical devices have to be made before TensorFlow starts.
"""

import sys
from types import SimpleNamespace

import keras
import numpy as np
import tensorflow as tf

from data.features import Features
from data.tasks.splits import TaskSplit
from modeling import checkpoints, from_pretrained
from modeling.checkpoints.vocabularies import TextFolding
from modeling.config import BertConfig
from modeling.losses import TaggingLosses
from modeling.models import BertTagger
from modeling.training.distillation.teaching import Teaching, TeachingSettings
from modeling.training.engine import loop
from modeling.training.engine.setup import EngineSettings, make_train_step

SIZES = {"vocab_size": 20, "num_attention_heads": 2, "intermediate_size": 16}
SIZES |= {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
TEACHER = BertConfig(hidden_size=12, num_hidden_layers=2, initializer_range=0.3, **SIZES)
STUDENT = BertConfig(hidden_size=8, num_hidden_layers=1, initializer_range=0.3, **SIZES)
TAGS = ("O", "B-X", "I-X")


def split() -> TaskSplit:
    draw = np.random.default_rng(1)
    lengths = draw.integers(3, 12, 50)
    ids = draw.integers(5, 20, lengths.sum()).astype(np.int32)
    labels = draw.integers(-2, 3, len(ids)).astype(np.int32)
    features = Features.of_single_rows(
        lengths,
        ids=ids,
        first_lengths=lengths.astype(np.int32),
        max_seq_length=16,
        pad_id=0,
        piece_labels=labels,
    )
    return TaskSplit("train", features, "0" * 32, str, by_piece=True)


def make(config: BertConfig, seed: int) -> BertTagger:
    keras.utils.set_random_seed(seed)
    model = BertTagger(config.with_head("tags", TAGS), 3, dropout_rate=0.0)
    model.build()
    return model


def train(strategy, folder: str, steps: int) -> tuple[list[float], dict[str, np.ndarray]]:
    with strategy.scope():
        student, train_split = make(STUDENT, 2), split()
        settings = TeachingSettings([f"{folder}/teacher"], match_relations=["0:1"], label_share=0.3)
        task = SimpleNamespace(config=student.config)
        teachers = [from_pretrained(f"{folder}/teacher")]
        replicas = strategy.num_replicas_in_sync
        out = f"{folder}/{replicas}"
        vocab_file = f"{folder}/vocab.txt"
        teaching = Teaching(teachers, settings, task, [train_split], vocab_file, TextFolding(), out)
        batches = train_split.batches(8, seed=3, multiple=replicas)
        iterator, _ = loop.make_iterator(teaching.taught(train_split, batches))
        losses = teaching.losses(TaggingLosses(), student)
        step = make_train_step(student, losses, EngineSettings(1e-2, steps, 0, seed=1))
        rows = step.run(iterator, steps)
        weights = checkpoints.weights_by_name(student)
        return [total for total, _ in rows["loss"]], {n: w.numpy() for n, w in weights.items()}


def main(folder: str) -> None:
    cpus = tf.config.list_physical_devices("CPU")
    tf.config.set_logical_device_configuration(
        cpus[0], [tf.config.LogicalDeviceConfiguration()] * 2
    )
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghijklmno"]
    with open(f"{folder}/vocab.txt", "w", encoding="utf-8") as file:
        file.write("\n".join(tokens) + "\n")
    checkpoints.save(make(TEACHER, 1), f"{folder}/teacher", f"{folder}/vocab.txt")
    one = train(tf.distribute.get_strategy(), folder, 20)
    two = train(tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]), folder, 20)
    np.testing.assert_allclose(one[0], two[0], rtol=1e-4)
    for name, values in one[1].items():
        np.testing.assert_allclose(two[1][name], values, atol=2e-4, err_msg=name)
    assert one[0][-1] < 0.7 * one[0][0]
    print("equal")


if __name__ == "__main__":
    main(sys.argv[1])
