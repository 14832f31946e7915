"""The benchmark of training, as far as it goes without its peers: work, FLOPs, ratios, tables."""

import dataclasses
import json
import math

import numpy as np
import pytest

from data.batching import batching_length_buckets
from tests.benchmarks import training_report, training_speed, training_work
from tests.benchmarks.peers import worker
from tests.benchmarks.peers.training_ours import Ours
from tests.benchmarks.peers.training_worker import Shape, peak_bytes
from tests.benchmarks.training_report import LengthsResult, Point, Result
from tests.benchmarks.training_work import Work
from tests.benchmarks.turns import ratio
from tests.data.pretraining.inspection import made_records
from tests.reference import numpy_bert

TINY = Shape(2, 12, 3, 20, labels=4, vocab_size=31, positions=16)
TINY_WORDS = dataclasses.replace(TINY, labels=0)


# ---- FLOPs ----


class Counted(np.ndarray):
    """Counts the operations of matrix products that one of these takes part in."""

    operations = 0

    def __array_ufunc__(self, ufunc, method, *inputs, **options):
        if "out" in options:
            options["out"] = tuple(np.asarray(x) for x in options["out"])
        plain = [x.view(np.ndarray) if isinstance(x, Counted) else x for x in inputs]
        result = getattr(ufunc, method)(*plain, **options)
        if ufunc is np.matmul:
            Counted.operations += 2 * result.size * np.shape(plain[0])[-1]
        return result.view(Counted) if isinstance(result, np.ndarray) else result


class CountedNumPy:
    """NumPy, whose arrays stay counted ones."""

    asarray = staticmethod(np.asanyarray)

    def __getattr__(self, name):
        return getattr(np, name)


@pytest.mark.parametrize("work", [Work("", TINY, 3, 8), Work("", TINY_WORDS, 3, 8, 2)])
def test_flops_are_those_that_the_reference_does(work, monkeypatch):
    shape = work.shape
    config = {
        "vocab_size": shape.vocab_size,
        "hidden_size": shape.hidden_size,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "intermediate_size": shape.inner_size,
        "max_position_embeddings": shape.positions,
        "type_vocab_size": 2,
    }
    heads = ("classifier",) if shape.labels else ("pretraining",)
    shapes = numpy_bert.variable_shapes(config, heads, shape.labels)
    rng = np.random.default_rng(0)
    weights = {name: rng.normal(size=s).view(Counted) for name, s in shapes.items()}
    weights = {name: array for name, array in weights.items() if "seq_relationship" not in name}
    (batch,) = work.random_batches(1)
    monkeypatch.setattr(numpy_bert, "np", CountedNumPy())
    monkeypatch.setattr(Counted, "operations", 0)
    outputs = numpy_bert.forward(weights, config, batch)
    # The reference looks segments up by a product, and computes a pooled vector in any case.
    rows, width = work.batch_size, shape.hidden_size
    counted = Counted.operations - 2 * rows * work.length * 2 * width
    if shape.labels:
        assert outputs["logits"].shape == (rows, shape.labels)
    else:
        assert outputs["masked_lm_log_probs"].shape == (rows, 2, shape.vocab_size)
        counted -= 2 * rows * width * width
    assert work.flops == 3 * counted


def test_our_trainer_trains_that_many_numbers():
    trainer = Ours(TINY, "float32")
    width, inner = TINY.hidden_size, TINY.inner_size
    layer = 4 * width * (width + 1) + 2 * width * inner + inner + width + 4 * width
    expected = (TINY.vocab_size + TINY.positions + 2 + 2) * width + 2 * layer
    expected += width * (width + 1) + TINY.labels * (width + 1)
    assert trainer.parameters() == expected
    prepared = trainer.prepare(Work("", TINY, 3, 8).random_batches())
    before = [variable.numpy() for variable in trainer.step.optimizer.variables]
    assert trainer.run(prepared, 2) == pytest.approx(math.log(TINY.labels), abs=0.3)
    after = [variable.numpy() for variable in trainer.step.optimizer.variables]
    assert all((a != b).any() for a, b in zip(before, after, strict=True))


def test_our_trainer_predicts_words(tmp_path):
    work = Work("", TINY_WORDS, 3, 8, 2)
    worker.write_batches(tmp_path, "words", work.random_batches())
    trainer = Ours(TINY_WORDS, "float32")
    prepared = trainer.prepare(worker.read_batches(tmp_path, "words"))
    assert trainer.run(prepared, 1) == pytest.approx(math.log(TINY.vocab_size), abs=0.3)


# ---- What is trained on ----


def test_random_batches_have_neither_padding_nor_zeros():
    batches = Work("", TINY_WORDS, 3, 8, 5).random_batches()
    assert len(batches) == training_work.BATCHES
    assert any((batches[0]["input_ids"] != batch["input_ids"]).any() for batch in batches)
    for batch in batches:
        assert batch["input_ids"].shape == (3, 8)
        assert (batch["input_mask"] == 1).all()
        assert batch["input_ids"].min() > 0 and batch["input_ids"].max() < TINY.vocab_size
        assert batch["masked_lm_ids"].min() > 0
        for row in batch["masked_lm_positions"].tolist():
            assert row == sorted(set(row)) and len(row) == 5 and row[-1] < 8
    (batch,) = Work("", TINY, 64, 8).random_batches(1)
    assert set(batch["label_ids"].tolist()) == set(range(TINY.labels))


def test_lengths_are_padded_in_three_ways():
    features = training_work.random_features(320, TINY)
    assert features.lengths.mean() == pytest.approx(training_work.MEAN_LENGTH, rel=0.1)
    workloads = training_work.length_workloads(features, 32)
    padded, longest, buckets = (workloads[name] for name in ("padded", "longest", "buckets"))
    assert len(padded) == training_work.BATCHES and len(longest) == len(buckets) == 10
    for whole, cut in zip(padded, longest, strict=False):
        assert whole["input_ids"].shape == (32, 128)
        width = cut["input_mask"].shape[1]
        assert cut["input_mask"][:, -1].any() and not whole["input_mask"][:, width:].any()
        np.testing.assert_array_equal(whole["input_ids"][:, :width], cut["input_ids"])
    assert {batch["input_ids"].shape[1] for batch in buckets} <= set(batching_length_buckets(128))
    tokens = {
        name: sum(int(batch["input_mask"].sum()) for batch in workloads[name])
        for name in ("longest", "buckets")
    }
    assert tokens["longest"] == tokens["buckets"] == features.lengths.sum()
    assert sum(b["input_ids"].size for b in buckets) < sum(b["input_ids"].size for b in longest)
    assert "in a row: padded" in training_work.describe_lengths(workloads)


@pytest.mark.slow
def test_records_are_trained_on_as_they_are_and_packed(tmp_path):
    rng = np.random.default_rng(0)
    records = [made_records.random_features(rng) for _ in range(200)]
    path = made_records.write(tmp_path / "a.tfrecord", records)
    shape = dataclasses.replace(TINY_WORDS, vocab_size=len(made_records.VOCAB))
    workloads = training_work.record_workloads(path, Work("", shape, 8, 16, 4))
    assert [len(made) for made in workloads.values()] == [training_work.BATCHES] * 2
    places = training_work.BATCHES * 8 * 16
    few, many = (training_work.real_tokens(workloads[way]) for way in ("records", "packed"))
    assert few < 0.8 * places < 0.9 * places < many
    trainer, prepared = Ours(shape, "float32"), {}
    for way, made in workloads.items():
        worker.write_batches(tmp_path, way, made)
        prepared[way] = trainer.prepare(worker.read_batches(tmp_path, way))
    # Back and forth, as in turns; packed batches have another metric more.
    for way in ("records", "packed", "records"):
        loss = trainer.run(prepared[way], 1)
        assert loss == pytest.approx(math.log(shape.vocab_size), abs=0.3)
    assert training_speed.able("ours", dict.fromkeys(workloads, 1)) == {"records": 1, "packed": 1}
    assert training_speed.able("pytorch", dict.fromkeys(workloads, 1)) == {"records": 1}


def test_curves_go_along_three_axes():
    points = training_work.curve_points()
    assert points["length", 512].batch_size * 512 == points["length", 32].tokens == 4096
    assert points["batch", 8].length == 128 and points["layers", 12].shape.layers == 12
    twice = points["batch", 16].flops / points["batch", 8].flops
    assert twice == pytest.approx(2)


# ---- Report ----

FACTS = {
    "date": "2026-01-02",
    "commit": "abc",
    "cpu": "a CPU",
    "threads": 2,
    "rounds": 3,
    "programs": ["ours: TensorFlow 2"],
}


def fixed() -> list[Result]:
    seconds = {"ours": [1.0, 2.0, 1.0], "keras_hub": [1.5, 2.4, 1.1], "pytorch": [3.0, 2.0, 2.0]}
    memory = {
        "ours": [3 << 30, 2 << 30],
        "keras_hub": [2 << 30, 1 << 30],
        "pytorch": [5 << 28, 1 << 30],
    }
    missing = {"model_garden": "no such package"}
    ceiling = [4e9, 2e9, 2e9]
    one = Result(
        "tiny",
        "bfloat16",
        32,
        10**9,
        seconds,
        ceiling,
        memory,
        {"pytorch_compiled": "no g++"},
        FACTS,
    )
    fewer = {name: seconds[name] for name in ("ours", "keras_hub")}
    return [one, Result("tiny", "float32", 32, 10**9, fewer, ceiling, memory, missing, FACTS)]


def test_ratios_are_taken_round_by_round():
    # The ratio of the medians is 1.5.
    assert ratio([1.5, 2.4, 1.1], [1.0, 2.0, 1.0]) == pytest.approx((1.2, 1.1, 1.5))
    with pytest.raises(ValueError, match="zip"):
        ratio([1.0, 2.0], [1.0])


def test_the_table_has_speeds_and_ratios():
    results = fixed()
    # 25, 25 and 50 % of the rounds' ceilings.
    assert results[0].share() == 0.25 and results[0].speed("ours") == "32.0"
    lines = training_report.speed_table(results).split("\n")
    assert lines[0] == (
        "| step | precision | ours | of the ceiling | KerasHub | × | Model Garden | × "
        "| PyTorch | × | PyTorch, compiled | × |"
    )
    assert lines[1] == f"| --- | --- |{' ---: |' * 10}"
    assert lines[2] == (
        "| tiny | bfloat16 | 32.0 | 25 % | 21.3 | 1.20 (1.10–1.50) | – | – "
        "| 16.0 | 2.00 (1.00–3.00) | – | – |"
    )
    assert len(lines) == 4


def test_memory_is_that_of_the_steps_and_of_the_process():
    lines = training_report.memory_table(fixed()).split("\n")
    assert lines[0].startswith("| step | precision | ours | KerasHub |")
    assert lines[3] == "| tiny | float32 | 2.00 (3.00) | 1.00 (2.00) | – | 1.00 (1.25) | – |"


def test_lengths_are_compared_with_our_buckets():
    seconds = {
        "ours": {"padded": [0.04, 0.04], "longest": [0.02, 0.02], "buckets": [0.01, 0.01]},
        "pytorch": {"padded": [0.08, 0.06], "longest": [0.03, 0.03], "buckets": [0.02, 0.02]},
    }
    result = LengthsResult("float32", seconds, "short ones", {"keras_hub": "no network"}, FACTS)
    lines = training_report.lengths_table([result]).split("\n")
    assert lines[0].startswith("| precision | trained with | padded | ours, buckets | longest |")
    assert lines[3] == (
        "| float32 | PyTorch | 14.3 | 7.00 (6.00–8.00) | 33.3 | 3.00 (3.00–3.00) "
        "| 50.0 | 2.00 (2.00–2.00) |"
    )
    assert lines[4] == "| float32 | KerasHub | – | – | – | – | – | – |"


def test_peers_lack_what_only_ours_can():
    seconds = {
        "ours": {"records": [2e-4, 2e-4], "packed": [1e-4, 1e-4]},
        "pytorch": {"records": [4e-4, 3e-4]},
    }
    result = LengthsResult("float32", seconds, "short ones", {}, FACTS, "tokens")
    lines = training_report.lengths_table([result]).split("\n")
    assert lines[0].endswith("| records | ours, packed | packed | ours, packed |")
    assert lines[3] == "| float32 | PyTorch | 2857 | 3.50 (3.00–4.00) | – | – |"
    assert "tokens per second" in training_report.report([], [result], [])


def test_the_report_says_what_is_missing_and_why():
    text = training_report.report(fixed(), [], [])
    assert "- Model Garden not measured (tiny, float32): no such package" in text
    assert "- PyTorch, compiled not measured (tiny, bfloat16): no g++" in text
    assert "- a CPU, 2 threads; medians of 3 rounds; 2026-01-02, commit abc" in text
    assert "- Ceiling in bfloat16, matrix products alone: 2 (2–4) GFLOP/s" in text
    assert text.count("- ours: TensorFlow 2") == 1


def test_curves_are_written(tmp_path):
    points = [
        Point("length", length, dtype, 1000, 10**9 * length, [0.002 * length, 0.001 * length])
        for dtype in ("float32", "bfloat16")
        for length in (32, 64)
    ]
    tsv, png = tmp_path / "curves.tsv", tmp_path / "curves.png"
    training_report.write_curves(points, str(tsv), str(png))
    header, first, *_ = tsv.read_text("utf-8").splitlines()
    row = dict(zip(header.split("\t"), first.split("\t"), strict=True))
    assert row["us_per_token"] == "48.000" and row["least"] == "32.000" and row["most"] == "64.000"
    # 32 GFLOP for 1000 tokens; in 48 ms.
    assert row["mflop_per_token"] == "32.000" and row["gflop_per_second"] == "666.7"
    assert png.read_bytes().startswith(b"\x89PNG")


def test_results_come_back_from_their_file(tmp_path):
    path = str(tmp_path / "results.json")
    assert training_speed.read_results(path) == training_speed.read_results(None) == {}
    content = {"fixed tiny bfloat16": dataclasses.asdict(fixed()[0])}
    training_speed.write_results(path, content)
    found = Result(**training_speed.read_results(path)["fixed tiny bfloat16"])
    assert training_report.speed_table([found]) == training_report.speed_table(fixed()[:1])


def test_reasons_are_one_line():
    failed = "pip failed:\nCollecting x\nERROR: No matching distribution for x\n\n[notice] new pip"
    assert training_speed.reason(RuntimeError(failed)) == "ERROR: No matching distribution for x"
    assert training_speed.reason(RuntimeError("a\nValueError: b\n")) == "ValueError: b"
    assert training_speed.reason(RuntimeError()) == "RuntimeError"


def test_peak_memory_grows():
    peak_bytes(forget=True)  # of the tests before this one in the same process
    before = peak_bytes()
    held = np.ones(1 << 24)
    assert peak_bytes() >= before + held.nbytes // 2
    assert json.dumps(peak_bytes())
