"""Operations, bytes, memory and seconds of a step; interruptions; the estimate that is printed."""

import dataclasses
import math
import re
import types

import numpy as np
import pytest

from modeling.config import BertConfig
from modeling.costs import cost_model
from modeling.costs import machines as cost_machines
from modeling.costs.estimate import (
    DATA_TOKENS_PER_CORE_SECOND,
    data_cost,
    estimate,
    estimate_run,
    gains_from_parts,
)
from modeling.costs.phase_cost import PhaseCost
from modeling.errors import ModelingError
from modeling.models import BertPretrainer
from modeling.training.engine.precision import fastest_dtype
from modeling.training.phases import Phase, parse_phases
from tests.benchmarks import cost_model as benchmark

TINY = BertConfig(
    vocab_size=500,
    hidden_size=48,
    num_hidden_layers=3,
    num_attention_heads=4,
    intermediate_size=120,
    max_position_embeddings=40,
    type_vocab_size=2,
)


@pytest.fixture(scope="module")
def model():
    model = BertPretrainer(TINY)
    model.build()
    return model


def test_parameters(model):
    assert cost_model.parameters(TINY) == model.count_params()


def test_dense_operations_are_those_of_the_kernels(model):
    rows, length, predictions = 5, 16, 3
    work = cost_model.step_work(TINY, rows, length, predictions, 2)
    flops = 0
    for weight in model.trainable_weights:
        if "/layer_" in weight.path and len(weight.shape) == 2:
            flops += rows * length * math.prod(weight.shape)
    # Head: a square matrix and the word embeddings at every prediction; pooler; next sentence.
    flops += rows * predictions * 48 * (48 + 500) + rows * 48 * (48 + 2)
    assert work.dense_flops == 3 * 2 * flops
    # Queries with keys and probabilities with values, for each of the 4 heads of 12.
    assert work.attention_flops == 3 * 2 * 3 * rows * 4 * 2 * length * length * 12


def test_work_grows_as_it_should():
    plain = cost_model.step_work(TINY, 8, 16, 3, 2)
    double = cost_model.step_work(TINY, 16, 16, 3, 2)
    assert double.flops == 2 * plain.flops
    assert double.activation_bytes == 2 * plain.activation_bytes
    assert double.weight_bytes == plain.weight_bytes
    single = cost_model.step_work(TINY, 8, 16, 3, 2, half_precision=False)
    assert plain.activation_bytes < single.activation_bytes < 2 * plain.activation_bytes
    parts = cost_model.step_work(TINY, 8, 16, 3, 2, accumulation_steps=4)
    assert parts.flops == plain.flops
    assert parts.weight_bytes > plain.weight_bytes
    again = cost_model.step_work(TINY, 8, 16, 3, 2, remat=True)
    assert again.flops == pytest.approx(4 / 3 * plain.flops)


@pytest.mark.parametrize(
    ("length", "predictions", "rows", "published"), [(128, 20, 312, 485.59), (512, 80, 40, 96.52)]
)
def test_published_figures(length, predictions, rows, published):
    """BERT-large on one A100 in TensorFlow 2, as published, sequences a second."""
    config = BertConfig.named("large", 30522)
    work = cost_model.step_work(config, rows, length, predictions, 2)
    assert rows / work.seconds(cost_machines.A100) == pytest.approx(published, rel=0.03)


def test_published_figure_of_eight():
    """3,799.24 sequences a second of 128 tokens on eight, gradients of 32 micro-batches summed."""
    config = BertConfig.named("large", 30522)
    work = cost_model.step_work(config, 312 * 32, 128, 20, 2, accumulation_steps=32)
    speed = 8 * 312 * 32 / work.seconds(cost_machines.A100_8)
    assert speed == pytest.approx(3799.24, rel=0.05)


def test_devices_share_gradients():
    config = BertConfig.named("base", 30522)
    work = cost_model.step_work(config, 32, 128, 20, 2)
    more = work.seconds(cost_machines.A100_8) - work.seconds(cost_machines.A100)
    moved = 2 * 7 / 8 * 4 * cost_model.parameters(config)
    assert more == pytest.approx(moved / cost_machines.A100_8.link_bandwidth)


def test_a_forward_pass_is_a_third():
    """Of the operations; what it takes beside the student's step is what is predicted for both."""
    config = BertConfig.named("base", 30522)
    step = cost_model.step_work(config, 32, 128, 20)
    forward = cost_model.forward_work(config, 32, 128, 20)
    assert forward.flops == pytest.approx(step.flops / 3)
    assert forward.gradient_bytes == 0 and forward.weight_bytes < step.weight_bytes / 10
    for machine in cost_machines.ACCELERATORS:
        share = forward.seconds(machine) / step.seconds(machine)
        assert 0.2 < share < 0.45, machine.name


def test_memory():
    config = BertConfig.named("base", 30522)
    sizes = [cost_model.step_memory(config, rows, 128, 20) for rows in (8, 16)]
    state = 16 * cost_model.parameters(config)
    assert sizes[1] - state == pytest.approx(2 * (sizes[0] - state))
    assert cost_model.step_memory(config, 8, 128, 20, remat=True) < sizes[0]
    machine = cost_machines.V5E_8
    most = cost_model.largest_batch(config, machine, 512, 80)
    assert cost_model.step_memory(config, most, 512, 80) <= machine.memory
    assert cost_model.step_memory(config, 2 * most, 512, 80) > 0.9 * machine.memory
    huge = BertConfig(30522, hidden_size=8192, num_hidden_layers=48, num_attention_heads=64)
    assert cost_model.largest_batch(huge, machine, 512, 80) == 0


def test_best_interval():
    cost = cost_model.InterruptionCost(save_seconds=8, restart_seconds=100, mean_seconds=3600)
    assert cost.best_interval == pytest.approx(240)
    assert cost.overhead() == pytest.approx(8 / 240 + (120 + 100) / 3600)
    assert cost.overhead() < min(cost.overhead(200), cost.overhead(280))


def test_large_checkpoints_take_longer():
    small, large = (
        cost_model.interruption_cost(BertConfig.named(size, 30522), cost_machines.H100, 3600)
        for size in ("base", "large")
    )
    assert small.save_seconds == pytest.approx(12 * 110_106_428 / 250e6)
    assert large.overhead() > small.overhead()


# ---- The estimate ----


def test_plan_splits_what_does_not_fit():
    config = BertConfig.named("large", 30522)
    phase = Phase(512, 10, 256, 77)
    plan = PhaseCost(config, cost_machines.V5E_8, phase, 2, half_precision=True)
    assert plan.accumulation_steps * plan.rows == 32
    assert plan.memory <= 0.9 * cost_machines.V5E_8.memory
    assert plan.accumulation_steps > 1
    asked = PhaseCost(
        config, cost_machines.H100, phase, 2, half_precision=True, accumulation_steps=16
    )
    assert asked.rows == 16


@pytest.mark.parametrize("direction", ["left_to_right", "right_to_left"])
def test_one_direction_predicts_everything(direction):
    config = BertConfig.named("base", 30522)
    left = BertConfig.named("base", 30522, attention_direction=direction)
    phase = Phase(128, 10, 32, 20)
    plans = [
        PhaseCost(c, cost_machines.H100, phase, 0, half_precision=True) for c in (config, left)
    ]
    assert plans[1].seconds > plans[0].seconds
    tuned = Phase(128, 10, 32, 0)
    plans = [
        PhaseCost(c, cost_machines.H100, tuned, 2, half_precision=True) for c in (config, left)
    ]
    assert plans[1].seconds == plans[0].seconds


def test_estimate():
    config = BertConfig.named("base", 30522)
    phases = parse_phases("128:900000:256:20,512:100000:256:77")
    text = estimate(config, phases, dtype="bfloat16", corpus_bytes=4.6e9, dupe_factor=5)
    assert "110,106,428 weights" in text
    lines = {line.split("  ")[0]: line for line in reversed(text.splitlines())}
    for machine in cost_machines.ACCELERATORS:
        hours, dollars = (float(n.replace(",", "")) for n in lines[machine.name].split()[-2:])
        assert dollars == pytest.approx(hours * machine.price.dollars, rel=0.01, abs=1)
    assert "1e+09 tokens of text, 10 passes" in text  # Five for each phase's records.
    hundred = estimate(config, parse_phases("128:90000000:256:20,512:10000000:256:77"))
    line = next(line for line in hundred.splitlines() if line.startswith("TPU v5e-256"))
    once = float(lines["TPU v5e-256"].split()[-2].replace(",", ""))
    assert float(line.split()[-2].replace(",", "")) == pytest.approx(100 * once, rel=0.01)


def test_estimate_names_what_cannot_be():
    text = estimate(BertConfig.named("tiny", 1000), parse_phases("64:1000:32"))
    assert re.search(r"TPU v5e-256 +batch isn't n × 256", text)
    assert "tokens of text" not in text
    uneven = estimate(BertConfig.named("tiny", 1000), parse_phases("64:1000:12"))
    assert re.search(r"8 × A100 80GB +2 ", uneven)  # some replicas get one row, and wait
    assert re.search(r"TPU v5e-8 +batch isn't n × 8", uneven)
    parts = parse_phases("64:1000:32")
    text = estimate(BertConfig.named("tiny", 1000), parts, accumulation_steps=3)
    assert re.search(r"1 × H100 SXM +rows aren't n × 3", text)
    assert "doesn't fit" not in text
    # An uneven batch can't be cut into parts besides.
    text = estimate(BertConfig.named("large", 30522), parse_phases("512:1000:2020"))
    assert re.search(r"8 × A100 80GB +doesn't fit", text)


def test_a_teachers_forward_pass_is_in_the_table():
    config, teacher = BertConfig.named("tiny", 30522), BertConfig.named("base", 30522)
    phase = Phase(128, 10, 256, 20)
    alone, taught = (
        PhaseCost(config, cost_machines.H100, phase, 2, half_precision=True, teachers=teachers)
        for teachers in ((), [teacher])
    )
    forward = cost_model.forward_work(teacher, 256, 128, 20)
    assert taught.seconds == alone.seconds + forward.seconds(cost_machines.H100)
    assert taught.memory == alone.memory + 4 * cost_model.parameters(teacher)
    # Computed in the student's number format.
    half, whole = (
        cost_model.forward_work(teacher, 8, 128, half_precision=h) for h in (True, False)
    )
    assert whole.activation_bytes > 1.5 * half.activation_bytes and whole.flops == half.flops
    cpu = cost_machines.CPU["float32"]
    alone_there, taught_there = (
        PhaseCost(config, cpu, phase, 2, half_precision=False, teachers=teachers)
        for teachers in ((), [teacher])
    )
    forward = cost_model.forward_work(teacher, 256, 128, 20, half_precision=False)
    assert taught_there.seconds == alone_there.seconds + forward.seconds(cpu)
    text = estimate(config, [phase], teachers=[teacher])
    assert "A teacher of 12 layers, 768 wide" in text
    # One of every place computes as many logits as there are places, as the student does.
    every = {"half_precision": True, "teachers": [teacher]}
    every_place = PhaseCost(config, cost_machines.H100, phase, 2, all_places=True, **every)
    as_many = PhaseCost(config, cost_machines.H100, Phase(128, 10, 256, 128), 2, **every)
    assert (every_place.seconds, every_place.memory) == (as_many.seconds, as_many.memory)
    assert every_place.memory > 1.5 * taught.memory
    # What it weighs is taken from the room for rows.
    options = {"half_precision": True, "held": 0.8 * cost_machines.H100.memory}
    fits = [
        cost_model.largest_batch(config, cost_machines.H100, 128, 20, **options | changes)
        for changes in ({"held": 0.0}, {})
    ]
    assert fits[0] >= 8 * fits[1] > 0


def test_data_cost():
    rate, price = DATA_TOKENS_PER_CORE_SECOND, cost_machines.CPU_HOUR.dollars
    text = data_cost(3600.0 * rate, 1000)
    assert " 1,000 core hours" in text
    assert f" ${1000 * price:,.2f} " in text


class _Values(types.SimpleNamespace):
    """Flags of which none was given."""

    def __getitem__(self, name):
        return types.SimpleNamespace(present=False, value=getattr(self, name))


def test_parts_where_a_batch_has_enough_tokens():
    """A batch's products have to take longer than its gradients' sum; of each phase."""
    flags = {"do_train": True, "xla": False, "gradient_accumulation_steps": 1}
    flags |= {"init_checkpoint": None, "student_layers": None, "student_projection": None}
    flags |= {"student_num_layers": 0, "student_hidden_size": 0}

    def gains(phases, name="base", **others):
        values = _Values(**(flags | others))
        return gains_from_parts(values, BertConfig.named(name, 30522), parse_phases(phases))

    assert gains("128:1000:32") and gains("512:1000:8")
    assert not gains("128:1000:8") and not gains("128:1000:32", "large")
    assert not gains("128:900:32,64:100:32")
    assert not gains("128:1000:32", gradient_accumulation_steps=2)
    assert not gains("128:1000:32", xla=True) and not gains("128:1000:32", do_train=False)
    # One example has no halves, and a third example has to wait.
    assert gains("512:1000:2", "tiny")
    assert not gains("512:1000:1", "tiny") and not gains("512:1000:3", "tiny")
    assert not gains("512:1000:32", "tiny", gradient_accumulation_steps=32)
    # A student is smaller than its teacher; without a teacher there is none, whoever asks for it.
    assert gains("128:1000:32", "large", init_checkpoint="large", student_num_layers=2)
    assert not gains("128:1000:32", "large", student_num_layers=2)


def test_estimate_of_flags(tmp_path):
    for name in "ab":
        (tmp_path / f"{name}.txt").write_text("x" * 4600)
    values = _Values(
        demo=False,
        bert_config_file="config.json",
        dtype="float32",
        gradient_accumulation_steps=2,
        remat=False,
        objective="mlm",
        save_checkpoints_steps=500,
        dupe_factor=3,
        minutes=0.0,
        flops=0.0,
        adapt=False,
        dynamic_masking=False,
        student_layers=[],
        student_num_layers=0,
        student_hidden_size=0,
        student_projection="best",
        teacher=[],
        optimizer="adam",
        average_last=0.0,
        save_checkpoints_minutes=0.0,
    )
    config, phases = BertConfig.named("tiny", 1000), parse_phases("64:1000:32")
    files = [str(path) for path in sorted(tmp_path.glob("*.txt"))]
    text = estimate_run(values, config, phases, files)
    assert "2e+03 tokens of text, 3 passes" in text
    assert re.search(r"2 vCPUs, float32 +16 × 2", text)
    assert "every 500 steps" in text
    values.dtype = "auto"
    two = estimate_run(values, config, parse_phases("64:900:32,128:100:32"), files)
    assert "2e+03 tokens of text, 6 passes" in two
    values.dynamic_masking = True
    text = estimate_run(values, config, phases, files)
    assert "passes" not in text and "read and masked while the model trains" in text
    (tmp_path / "b.txt").rename(tmp_path / "b.txt.gz")
    values.dynamic_masking = False
    text = estimate_run(values, config, phases, [files[0], f"{files[1]}.gz"])
    assert "1 of 2 files of text are compressed, and counted by the bytes" in text
    values.adapt = True
    with pytest.raises(ModelingError, match="--adapt, --minutes and --flops are measured"):
        estimate_run(values, config, phases, files)
    values.adapt = False
    text = estimate_run(values, config, phases, [])
    assert f"2 vCPUs, {fastest_dtype()} " in text and "tokens of text" not in text
    assert "Muon" not in text
    values.optimizer = "muon"
    assert "Muon's take longer" in estimate_run(values, config, phases, [])


# ---- The benchmark ----


def test_calibration_finds_both_machines_again():
    speeds = np.random.default_rng(0).uniform(0.7, 1.3, len(benchmark.CALIBRATION))
    times = {}
    for dtype, machine in cost_machines.CPU.items():
        rates = machine.product_rate * speeds / np.median(speeds)
        times[dtype] = [
            (benchmark.work_of(*shape, dtype).seconds(machine, rate / machine.product_rate), rate)
            for shape, rate in zip(benchmark.CALIBRATION, rates, strict=True)
        ]
    found = benchmark.fit(benchmark.CALIBRATION, times)
    for dtype, machine in cost_machines.CPU.items():
        again = dataclasses.replace(machine, **found[dtype])
        assert again.product_rate == pytest.approx(machine.product_rate)
        for shape in benchmark.TESTED:
            work = benchmark.work_of(*shape, dtype)
            for speed in (0.8, 1.0, 1.2):
                assert work.seconds(again, speed) == pytest.approx(
                    work.seconds(machine, speed), rel=1e-3
                )


def test_tested_shapes_are_others():
    assert not set(benchmark.TESTED) & set(benchmark.CALIBRATION)
    lengths = {length for _, _, length in benchmark.TESTED}
    sizes = {size for size, _, _ in benchmark.TESTED}
    assert {32, 512} <= lengths
    assert {"tiny", "base"} <= sizes
