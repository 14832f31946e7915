"""Pairs of segments against plain-Python oracles and the paper's numbers."""

import numpy as np
import pytest

from data.pretraining.instances.pairs import (
    InstanceChunk,
    SegmentPlan,
    assemble_instances,
    make_instance_chunk,
    plan_instances,
    plan_segments,
    truncate_segments,
)

VOCAB = 1000
CONTINUES = np.arange(VOCAB) % 4 == 3
CLS, SEP = 1, 2


def synthetic(documents=300, seed=0, single=0.1, max_seq_length=128):
    """Documents of 1 to 40 sentences of 1 to 60 pieces; each piece's place is its own."""
    rng = np.random.default_rng(seed)
    sizes = np.where(rng.random(documents) < single, 1, rng.integers(2, 41, documents))
    lengths = rng.integers(1, 61, sizes.sum())
    pieces = rng.integers(4, VOCAB, lengths.sum()).astype(np.int32)
    document = np.repeat(np.arange(documents), sizes)
    return make_instance_chunk(pieces, lengths, document, CONTINUES[pieces], max_seq_length)


def document_of_piece(chunk):
    sentences = np.repeat(np.arange(chunk.documents), np.diff(chunk.document_offsets))
    return np.repeat(sentences, np.diff(chunk.sentence_offsets))


@pytest.fixture(scope="module")
def made():
    chunk = synthetic()
    return chunk, plan_instances(chunk, 128, 0.1, 20, np.random.default_rng(1))


def test_segments_are_runs_of_sentences(made):
    chunk, plan = made
    borders = set(chunk.sentence_offsets.tolist())
    for start, length in ((plan.a_start, plan.a_length), (plan.b_start, plan.b_length)):
        assert (length > 0).all()
        assert borders.issuperset(start.tolist()) and borders.issuperset((start + length).tolist())
    of = document_of_piece(chunk)
    for start, length in ((plan.a_start, plan.a_length), (plan.b_start, plan.b_length)):
        np.testing.assert_array_equal(of[start], of[start + length - 1])
    np.testing.assert_array_equal(of[plan.a_start], plan.document)


def test_next_follows_and_random_is_from_elsewhere(made):
    chunk, plan = made
    of = document_of_piece(chunk)
    after = ~plan.is_random_next
    np.testing.assert_array_equal((plan.a_start + plan.a_length)[after], plan.b_start[after])
    assert (of[plan.a_start][after] == of[plan.b_start][after]).all()
    assert (of[plan.a_start][~after] != of[plan.b_start][~after]).all()


def test_labels_are_balanced(made):
    _, plan = made
    assert len(plan) > 20_000
    # Half and half at each step: nearer than 20,000 throws of a coin would come.
    assert abs(plan.is_random_next.mean() - 0.5) < 0.002


def test_lent_documents_only_lend():
    chunk = synthetic(documents=5, single=0, seed=3)
    plan = plan_instances(chunk, 128, 0.1, 200, np.random.default_rng(0), own_documents=1)
    of = document_of_piece(chunk)
    assert set(of[plan.a_start]) == {0} and abs(plan.is_random_next.mean() - 0.5) < 0.01
    assert set(of[plan.b_start[plan.is_random_next]]) == {1, 2, 3, 4}


@pytest.mark.parametrize("short", [0.0, 0.5])
def test_single_segments_cut_documents_without_loss(short):
    """Every piece once per pass; full but at the ends of documents; never inside a word."""
    rng = np.random.default_rng(6)
    sizes = rng.integers(1, 40, 50)
    lengths = rng.integers(1, 200, sizes.sum())  # longer than an instance, too
    pieces = rng.integers(4, VOCAB, lengths.sum()).astype(np.int32)
    document = np.repeat(np.arange(50), sizes)
    chunk = make_instance_chunk(pieces, lengths, document, CONTINUES[pieces], 64, pairs=False)
    np.testing.assert_array_equal(chunk.pieces, pieces)
    plan = plan_segments(chunk, 64, short, 3, rng)
    assert not plan.b_length.any() and not plan.is_random_next.any()
    covered = np.zeros(len(pieces), int)
    for start, length in zip(plan.a_start, plan.a_length, strict=True):
        covered[start : start + length] += 1
    assert (covered == 3).all()
    of = document_of_piece(chunk)
    np.testing.assert_array_equal(of[plan.a_start], of[plan.a_start + plan.a_length - 1])
    ends = plan.a_start + plan.a_length
    inside = plan.a_start[~np.isin(plan.a_start, chunk.sentence_offsets)]
    assert len(inside) and not chunk.continues[inside].any()
    last = np.append(of[1:] != of[:-1], True)[ends - 1]
    assert plan.a_length.max() <= 62
    if not short:
        assert (plan.a_length[~last] >= 0.8 * 62).all()
    batch = assemble_instances(chunk, plan, 64, CLS, SEP)
    assert ((batch["input_ids"] == SEP).sum(axis=1) == 1).all() and not batch["segment_ids"].any()
    np.testing.assert_array_equal(batch["input_mask"].sum(axis=1), plan.a_length + 2)


@pytest.mark.parametrize("short", [0.0, 1.0])
@pytest.mark.parametrize("sentences", [1, 2, 3])
def test_labels_are_balanced_in_tiny_documents(sentences, short):
    documents, words = 400, 12
    chunk = make_instance_chunk(
        np.full(documents * sentences * words, 4, np.int32),
        np.full(documents * sentences, words),
        np.repeat(np.arange(documents), sentences),
        np.zeros(documents * sentences * words, bool),
        128,
    )
    plan = plan_instances(chunk, 128, short, 100, np.random.default_rng(3))
    assert len(plan) >= 40_000
    assert abs(plan.is_random_next.mean() - 0.5) < 0.01
    # What the label must not betray: the length of A.
    next_a, random_a = (plan.a_length[plan.is_random_next == k] for k in (False, True))
    assert sentences == 3 or abs(next_a.mean() - random_a.mean()) < 0.01 * next_a.mean()


def test_random_segments_start_at_every_other_sentence():
    chunk = synthetic(documents=6, single=0, seed=4)
    plan = plan_instances(chunk, 128, 0, 4000, np.random.default_rng(5))
    plan = plan.take(plan.is_random_next & (plan.document == 2))
    first, last = chunk.document_offsets[2:4]
    counts = np.bincount(
        np.searchsorted(chunk.sentence_offsets, plan.b_start), minlength=chunk.sentences
    )
    assert (counts[first:last] == 0).all()
    others = np.delete(counts, np.arange(first, last))
    expected = others.mean()
    # Chi-squared with its own standard deviation as the yardstick.
    chi = ((others - expected) ** 2 / expected).sum()
    assert abs(chi - len(others)) < 5 * np.sqrt(2 * len(others))


def test_targets(made):
    """Nine in ten instances of long documents are full; short ones are drawn per instance."""
    rng = np.random.default_rng(0)
    lengths = rng.integers(5, 20, 4 * 3000)
    total = lengths.sum()
    whole = np.zeros(total, bool)
    document = np.repeat(np.arange(4), 3000)
    chunk = make_instance_chunk(np.full(total, 4, np.int32), lengths, document, whole, 128)
    plan = plan_instances(chunk, 128, 0.1, 10, np.random.default_rng(1))
    reached = plan.a_length + plan.b_length
    after = ~plan.is_random_next
    share = (reached[after] < 125).mean()
    assert 0.075 < share < 0.105  # 0.1 less those whose last sentence makes them full
    # Short ones mix with full ones in a document: neighbours are independent.
    short = reached[after & (plan.document == 0)] < 125
    assert abs(np.corrcoef(short[:-1], short[1:])[0, 1]) < 0.1


def python_truncation(a, b, limit):
    """The original's rule for one pair: piece by piece from the longer one, B if equal."""
    while a + b > limit:
        if a > b:
            a -= 1
        else:
            b -= 1
    return a, b


def test_truncation_lengths_and_coin():
    rng = np.random.default_rng(0)
    n = 3000
    a, b = rng.integers(1, 200, n), rng.integers(1, 200, n)
    zeros = np.zeros(n, np.int32)
    plan = SegmentPlan(zeros + 1000, a, zeros + 5000, b, zeros > 0, zeros)
    cut = truncate_segments(plan, 128, np.random.default_rng(1))
    assert [*zip(cut.a_length, cut.b_length, strict=True)] == [
        python_truncation(x, y, 125) for x, y in zip(a, b, strict=True)
    ]
    for start, length, old_start, old in (
        (cut.a_start, cut.a_length, 1000, a),
        (cut.b_start, cut.b_length, 5000, b),
    ):
        front, total = start - old_start, old - length
        assert (front >= 0).all() and (front <= total).all()
        assert abs(front.sum() / total.sum() - 0.5) < 0.01


def test_assembly_against_plain_python():
    chunk = synthetic(documents=20, seed=7, max_seq_length=32)
    rng = np.random.default_rng(8)
    plan = truncate_segments(plan_instances(chunk, 32, 0.1, 2, rng), 32, rng)
    batch = assemble_instances(chunk, plan, 32, CLS, SEP)
    assert all(v.dtype == (bool if k == "continues" else np.int32) for k, v in batch.items())
    for i in range(len(plan)):
        a = chunk.pieces[plan.a_start[i] :][: plan.a_length[i]].tolist()
        b = chunk.pieces[plan.b_start[i] :][: plan.b_length[i]].tolist()
        ids = [CLS, *a, SEP, *b, SEP]
        padding = [0] * (32 - len(ids))
        assert len(ids) <= 32
        assert batch["input_ids"][i].tolist() == ids + padding
        assert batch["input_mask"][i].tolist() == [1] * len(ids) + padding
        segments = [0] * (len(a) + 2) + [1] * (len(b) + 1)
        assert batch["segment_ids"][i].tolist() == segments + padding
        assert batch["next_sentence_labels"][i].tolist() == [int(plan.is_random_next[i])]
        inside = [False, *CONTINUES[a], False, *CONTINUES[b], False]
        assert batch["continues"][i].tolist() == inside + [False] * len(padding)


def test_make_chunk_mends_documents():
    pieces = np.array([4, 7, 5, 6, 8, 9] + [4, 7, 7] + [10, 12] + [4] * 30, np.int32)
    # One sentence; one word; an empty sentence; two words; one endless sentence and a short one.
    lengths, document = [6, 3, 0, 2, 29, 1], [0, 1, 1, 2, 3, 3]
    chunk = make_instance_chunk(pieces, lengths, document, CONTINUES[pieces], 13)
    assert np.diff(chunk.document_offsets).tolist() == [2, 2, 4]
    assert np.diff(chunk.sentence_offsets).tolist() == [3, 3, 1, 1, 9, 10, 10, 1]
    assert 7 not in chunk.pieces[6:]  # the document of one word is gone
    starts = chunk.sentence_offsets[:-1]
    assert not CONTINUES[chunk.pieces[starts]].any()
    empty = make_instance_chunk(np.zeros(0, np.int32), [], [], [], 13)
    assert empty.documents == 0 and empty.sentences == 0


def test_one_endless_word_is_still_cut():
    chunk = make_instance_chunk(np.full(100, 7, np.int32), [50, 50], [0, 0], np.ones(100, bool), 13)
    assert np.diff(chunk.sentence_offsets).max() <= 10 and len(chunk.pieces) == 100


def test_concatenation():
    one, two = synthetic(5, seed=1), synthetic(7, seed=2)
    both = InstanceChunk.concatenate([one, two])
    assert both.documents == 12 and both.sentences == one.sentences + two.sentences
    np.testing.assert_array_equal(both.pieces, np.concatenate([one.pieces, two.pieces]))
    assert both.sentence_offsets[-1] == len(both.pieces)
    np.testing.assert_array_equal(np.diff(both.document_offsets)[:5], np.diff(one.document_offsets))


def test_smallest_sequence():
    chunk = synthetic(documents=10, seed=9, max_seq_length=5)
    rng = np.random.default_rng(0)
    plan = truncate_segments(plan_instances(chunk, 5, 0.5, 3, rng), 5, rng)
    assert set(zip(plan.a_length.tolist(), plan.b_length.tolist(), strict=True)) == {(1, 1)}
