"""Raw text to batches: every instance, new ones in each epoch, exact continuation."""

import numpy as np
import pytest
import tensorflow as tf

from data.errors import DataError
from data.pretraining.batches import text_stream
from data.pretraining.corpus import parts, read_documents
from data.pretraining.instances.masking import MaskingVocabulary, MaskSettings
from data.pretraining.instances.settings import InstanceSettings
from data.tokenization import Tokenizer
from tests.data.pretraining.instances.test_generate import TOKENS, corpus
from tests.data.pretraining.writing.test_writing import text_of

SETTINGS = InstanceSettings(max_seq_length=32, max_predictions_per_seq=5, objective="mlm")
MASKS = MaskSettings(MaskingVocabulary.from_tokens(TOKENS))


@pytest.fixture(scope="module")
def divided(tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "1.txt"
    path.write_text(text_of(corpus(60)))
    return parts.divide_corpus([str(path)], lambda _: 6)


def stream(divided, settings=SETTINGS, **options):
    tokenizer = Tokenizer.from_vocab(TOKENS)
    options = {"batch_size": 8, "seed": 3} | options
    return text_stream.stream_instances(divided, tokenizer, settings, MASKS, **options)


def unmasked(batch):
    """Rows as tuples of ids, with the words put back."""
    ids = batch["input_ids"].numpy().copy()
    row, slot = np.nonzero(batch["masked_lm_weights"].numpy())
    places = row, batch["masked_lm_positions"].numpy()[row, slot]
    ids[places] = batch["masked_lm_ids"].numpy()[row, slot]
    return [tuple(row) for row in ids.tolist()]


def test_epochs_hold_all_text_and_each_is_new(divided):
    epochs = []
    for epoch in range(3):
        rows = []
        for part in range(6):
            made = text_stream._instances(
                divided, Tokenizer.from_vocab(TOKENS), SETTINGS, 3, np.int64(epoch), np.int64(part)
            )
            rows += [tuple(row) for row in made[0].tolist()]
        epochs.append(rows)
    batches = list(stream(divided).take(2 * len(epochs[0]) // 8))
    seen = {row for batch in batches for row in unmasked(batch)}
    # Parts of the next epoch begin while the last ones of this epoch go on.
    assert set(epochs[0]) <= seen <= set().union(*epochs)
    # Short instances, drawn anew, shift the others.
    assert len(set(epochs[1]) - set(epochs[0])) > 0.2 * len(epochs[1])
    for batch in batches:
        used = batch["masked_lm_weights"].numpy() > 0
        assert used.any(axis=1).all() and batch["input_ids"].shape == (8, 32)
        assert (batch["is_real_example"].numpy() == 1).all()


def test_restored_iterator_goes_on_exactly(divided, tmp_path):
    expected = list(stream(divided).take(40))
    iterator = iter(stream(divided))
    for _ in range(23):
        next(iterator)
    path = tf.train.Checkpoint(iterator=iterator).write(str(tmp_path / "place"))
    again = iter(stream(divided))
    tf.train.Checkpoint(iterator=again).read(path).assert_consumed()
    for number in range(23, 40):
        batch = next(again)
        for name, values in expected[number].items():
            np.testing.assert_array_equal(batch[name], values, err_msg=name)
    size = sum(file.stat().st_size for file in tmp_path.iterdir())
    assert size < 200_000


def test_seeds_shards_and_pairs(divided):
    def rows(**options):
        return {row for batch in stream(divided, **options).take(6) for row in unmasked(batch)}

    assert rows() == rows() != rows(seed=4)
    shards = [rows(num_shards=2, shard_index=k) for k in range(2)]
    assert not shards[0] & shards[1]
    pairs = InstanceSettings(max_seq_length=32, max_predictions_per_seq=5)
    labels = [batch["next_sentence_labels"] for batch in stream(divided, pairs).take(100)]
    assert abs(np.mean(labels) - 0.5) < 0.05


def test_text_that_cannot_be_read_is_named(tmp_path):
    path = tmp_path / "1.txt"
    good = text_of(corpus(5)).encode()
    path.write_bytes(good + b"cafe au lait\n")
    divided = parts.divide_corpus([str(path)], lambda _: 1)
    path.write_bytes(good + b"caf\xe9 au lait\n")
    lines = path.read_bytes().count(b"\n")
    with pytest.raises(tf.errors.InvalidArgumentError) as raised:
        list(stream(divided).take(1))
    with pytest.raises(DataError, match=rf"1\.txt:{lines}: byte 0xe9.*iconv -f latin1"):
        text_stream.raise_text_stream_error(raised.value)
    path.write_bytes(good + "Größe über Maß\n".encode() + b"\xff\n")
    with pytest.raises(DataError, match=r"byte 0xff.*were damaged.*iconv -c -f utf-8"):
        list(read_documents([str(path)]))
    other = tf.errors.InvalidArgumentError(None, None, "A record has a value of input_ids")
    text_stream.raise_text_stream_error(other)
