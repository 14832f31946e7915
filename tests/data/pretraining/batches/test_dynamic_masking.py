"""Masks made while reading: fresh in every epoch, exact after a restore, fixed in evaluation."""

import gzip
import pathlib

import numpy as np
import pytest
import tensorflow as tf

from data.errors import DataError
from data.pretraining.batches.pipeline import pretraining_dataset
from data.pretraining.instances.masking import MaskSettings
from data.pretraining.records.schema import MASKED, encode_records, find_bad_record
from tests.data.pretraining.instances.masks import (
    TOKENS,
    VOCABULARY,
    batch,
    check_mixture,
    chosen_of,
    mask_instances,
    wanted,
    words_of,
)

S, P, V = 32, 6, len(TOKENS)
MASKS = ("input_ids", *MASKED)


def instances(n, seed=0):
    ids, mask, _ = batch(n, S, seed)
    return {
        "input_ids": ids,
        "input_mask": mask,
        "segment_ids": np.zeros_like(ids),
        "next_sentence_labels": (np.arange(n) % 2)[:, None],
    }


def masked(made, seed=5):
    rng = np.random.default_rng(seed)
    return made | mask_instances(
        made["input_ids"], made["input_mask"], VOCABULARY, P, 0.15, False, rng
    )


def write(path, made, zipped=False):
    with tf.io.TFRecordWriter(str(path)) as writer:
        for record in encode_records(made):
            writer.write(record)
    if zipped:
        path.write_bytes(gzip.compress(path.read_bytes()))
    return str(path)


def part(made, begin, end):
    return {name: values[begin:end] for name, values in made.items()}


@pytest.fixture
def text():
    return instances(60)


@pytest.fixture
def files(tmp_path, text):
    """60 records: masked and unmasked ones, compressed and not."""
    full = masked(text)
    return [
        write(tmp_path / "masked", part(full, 0, 20)),
        write(tmp_path / "unmasked", part(text, 20, 40)),
        write(tmp_path / "zipped", part(text, 40, 50), zipped=True),
        write(tmp_path / "zipped_masked", part(full, 50, 60), zipped=True),
    ]


def dataset(files, batch_size=4, training=True, settings=None, **more):
    settings = settings or MaskSettings(VOCABULARY)
    more = {"shuffle_buffer": 20, "dynamic_masking": settings} | more
    return pretraining_dataset(files, S, P, V, batch_size, training, **more)


def arrays(batches):
    return [{name: values.numpy() for name, values in b.items()} for b in batches]


def equal(some, others):
    assert len(some) == len(others) > 0
    for one, other in zip(some, others, strict=True):
        assert sorted(one) == sorted(other)
        for name, values in one.items():
            np.testing.assert_array_equal(values, other[name], name)


def rows(batches):
    return {name: np.concatenate([b[name] for b in batches]) for name in batches[0]}


def unmasked_rows(made):
    ids = made["input_ids"].copy()
    row, slot = np.nonzero(made["masked_lm_weights"])
    ids[row, made["masked_lm_positions"][row, slot]] = made["masked_lm_ids"][row, slot]
    return ids


def numbers(made, text):
    """Which instances the rows are of."""
    known = {row.tobytes(): number for number, row in enumerate(text["input_ids"])}
    return [known[row.astype(np.int32).tobytes()] for row in unmasked_rows(made)]


def test_shapes_and_types(files):
    for training in (True, False):
        usual = pretraining_dataset(files[:1], S, P, V, 4, training).element_spec
        assert dataset(files, training=training).element_spec == usual


def test_every_epoch_has_masks_of_its_own(files, text):
    made = rows(arrays(dataset(files).take(45)))
    seen = np.array(numbers(made, text))
    assert all(sorted(seen[k : k + 60]) == list(range(60)) for k in (0, 60, 120))
    lengths = text["input_mask"].sum(axis=1)[seen]
    assert made["masked_lm_weights"].sum(axis=1).tolist() == [wanted(n, P) for n in lengths]
    different = 0
    for number in range(60):
        first, second, third = (chosen_of(made, row) for row in np.flatnonzero(seen == number))
        different += (first != second) + (second != third)
    assert different > 100
    # The masks of the records themselves are gone.
    static = masked(text)
    kept = sum(chosen_of(made, row) == chosen_of(static, number) for row, number in enumerate(seen))
    assert kept < 20


def test_same_seed_same_masks(files):
    first = arrays(dataset(files).take(20))
    equal(first, arrays(dataset(files).take(20)))
    other = arrays(dataset(files, seed=1).take(20))
    assert (rows(first)["masked_lm_positions"] != rows(other)["masked_lm_positions"]).mean() > 0.5


def test_shards_have_other_masks(tmp_path, text):
    """Two workers that read equal texts at the same time mask them differently."""
    twins = [write(tmp_path / name, part(text, 0, 8)) for name in "ab"]
    shards = [rows(arrays(dataset(twins, 8, num_shards=2, shard_index=k).take(10))) for k in (0, 1)]
    seen = [np.array(numbers(made, text)) for made in shards]
    same = sum(
        chosen_of(shards[0], k * 8 + np.flatnonzero(seen[0][k * 8 : k * 8 + 8] == n)[0])
        == chosen_of(shards[1], k * 8 + np.flatnonzero(seen[1][k * 8 : k * 8 + 8] == n)[0])
        for k in range(10)
        for n in range(8)
        if text["input_mask"][n].sum() > 12
    )
    assert same < 10
    usual = rows(arrays(dataset(twins[:1], 8).take(10)))
    np.testing.assert_array_equal(usual["input_ids"], shards[0]["input_ids"])


@pytest.mark.parametrize("settings", [{}, {"max_ngram": 3}, {"do_whole_word_mask": True}])
def test_restored_iterator_continues_with_the_same_masks(files, tmp_path, settings):
    settings = MaskSettings(VOCABULARY, **settings)
    iterator = iter(dataset(files, settings=settings, held_out="train"))
    for _ in range(17):  # in the middle of the second epoch
        next(iterator)
    path = tf.train.Checkpoint(iterator=iterator).write(str(tmp_path / "ckpt"))
    expected = arrays(next(iterator) for _ in range(40))
    fresh = iter(dataset(files, settings=settings, held_out="train"))
    tf.train.Checkpoint(iterator=fresh).read(path).assert_consumed()
    equal(arrays(next(fresh) for _ in range(40)), expected)
    # Skipping, as a run on several replicas does, comes to the same.
    skipped = dataset(files, settings=settings, held_out="train").skip(17)
    equal(arrays(skipped.take(40)), expected)


def test_evaluation_masks_are_fixed(files, text):
    made = dataset(files, training=False)
    once = arrays(made)
    equal(once, arrays(made))
    equal(once, arrays(dataset(files, training=False)))
    together = rows(once)
    assert numbers(together, text) == list(range(60))
    static = masked(text)
    own = [*range(20), *range(50, 60)]
    for name in MASKS:
        np.testing.assert_array_equal(together[name][own], static[name][own])
    lengths = text["input_mask"].sum(axis=1)
    assert together["masked_lm_weights"].sum(axis=1).tolist() == [wanted(n, P) for n in lengths]
    # Neither the size of the batches nor the number of workers changes them.
    for size, shards in ((7, 1), (3, 2)):
        parts = [
            rows(arrays(dataset(files, size, False, num_shards=shards, shard_index=k)))
            for k in range(shards)
        ]
        for k, made in enumerate(parts):
            real = made["is_real_example"] == 1
            for name in MASKS:
                np.testing.assert_array_equal(made[name][real], together[name][k::shards])
                assert not made[name][~real].any()
    other = rows(arrays(dataset(files, training=False, seed=1)))
    assert (other["input_ids"][own] == together["input_ids"][own]).all()
    assert (other["input_ids"][20:50] != together["input_ids"][20:50]).any(axis=1).mean() > 0.5


def test_held_out_records_are_masked(files, text):
    held_out = rows(arrays(dataset(files, training=False, held_out="eval", held_out_share=0.25)))
    real = held_out["is_real_example"] == 1
    expected = [*range(0, 20, 4), *range(20, 40, 4), *range(40, 50, 4), *range(50, 60, 4)]
    assert numbers({k: v[real] for k, v in held_out.items()}, text) == expected
    train = rows(arrays(dataset(files, 1, held_out="train", held_out_share=0.25).take(44)))
    assert sorted(numbers(train, text)) == sorted({*range(60)} - {*expected})


def test_statistics_of_many_records(tmp_path):
    """The paper's shares of 100,000 predictions, through files and batches."""
    text = instances(3000, seed=3)
    path = write(tmp_path / "a", masked(text))
    made = rows(arrays(dataset([path], 1000, settings=MaskSettings(VOCABULARY)).take(40)))
    ids = text["input_ids"][numbers(made, text)]
    assert check_mixture(ids, made) > 100_000
    assert abs(made["masked_lm_weights"].sum() / made["input_mask"].sum() - 0.15) < 0.005
    spans = MaskSettings(VOCABULARY, max_ngram=3)
    made = rows(arrays(dataset([path], 500, settings=spans).take(1)))
    for row, number in enumerate(numbers(made, text)):
        words = words_of(text["input_ids"][number], text["input_mask"][number])
        chosen = chosen_of(made, row)
        if min(map(len, words)) <= wanted(text["input_mask"][number].sum(), P):
            assert all(chosen.issuperset(w) or chosen.isdisjoint(w) for w in words)


def test_the_other_kind_without_dynamic_masking(files, text):
    with pytest.raises(DataError, match=r"/unmasked: record 0 holds no masks.*--dynamic_masking"):
        pretraining_dataset(files, S, P, V, 4, True)
    # Masked ones that are compressed are no problem.
    static = [files[0], files[3]]
    made = rows(arrays(pretraining_dataset(static, S, P, V, 5, False)))
    assert numbers(made, text) == [*range(20), *range(50, 60)]
    # Left to right nothing is masked anyhow.
    made = rows(arrays(pretraining_dataset(files, S, P, V, 5, False, objective="ltr")))
    np.testing.assert_array_equal(made["input_ids"], text["input_ids"])


def test_refusals(files, tmp_path, text):
    with pytest.raises(DataError, match=r"'ltr' predicts every token .* Leave --dynamic_masking"):
        dataset(files, objective="ltr")
    with pytest.raises(DataError, match=r"'rtl' predicts every token .* Leave --dynamic_masking"):
        dataset(files, objective="rtl")
    with pytest.raises(DataError, match=r"has 2,010 pieces, but ids must be below 2,000"):
        pretraining_dataset(files, S, P, 2000, 4, True, dynamic_masking=MaskSettings(VOCABULARY))
    with pytest.raises(DataError, match=r"masked: record 0 has 6 values .*per_seq=6"):
        pretraining_dataset(files, S, 7, V, 4, True, dynamic_masking=MaskSettings(VOCABULARY))
    # An id that the model has, but the vocabulary hasn't.
    spoilt = part(text, 0, 8)
    spoilt["input_ids"] = spoilt["input_ids"].copy()
    spoilt["input_ids"][3, 1] = V + 5
    path = write(tmp_path / "odd", spoilt)
    settings = MaskSettings(VOCABULARY)
    made = pretraining_dataset([path], S, P, V + 90, 8, True, dynamic_masking=settings)
    with pytest.raises(tf.errors.InvalidArgumentError, match="value of input_ids outside"):
        next(iter(made))
    with pytest.raises(DataError, match="odd: record 3 has the value"):
        find_bad_record([path], S, P, V, masked=None)


def test_truncated_compressed_file(files):
    path = pathlib.Path(files[2])
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(tf.errors.DataLossError):
        list(dataset(files, training=False))
    with pytest.raises(DataError, match=r"zipped: record \d is truncated"):
        find_bad_record(files, S, P, V, masked=None)
