"""The optimizers against float64 NumPy, schedules against their formulas, factors by depth."""

import math

import numpy as np
import pytest
import tensorflow as tf

from modeling import checkpoints
from modeling.config import BertConfig
from modeling.errors import ModelingError
from modeling.models import BertClassifier, BertPretrainer
from modeling.training.engine import orthogonal, schedules
from modeling.training.engine.optimizers import BertAdam, make_optimizer
from modeling.training.engine.schedules import make_schedule
from modeling.training.engine.setup import averaged_updates

STEPS = 20
NAMES = {
    "bert/encoder/layer_0/output/dense/kernel": (5, 3),
    "bert/encoder/layer_0/output/LayerNorm/gamma": (3,),
    "bert/pooler/dense/bias": (4,),
    "zeros/kernel": (2, 2),
    "bert/encoder/layer_1/intermediate/dense/kernel": (3, 5),
    "bert/encoder/layer_1/output/dense/kernel": (5, 3),
}
FACTORS = {"bert/encoder/layer_0/output/dense/kernel": 0.5}


def muon_oracle(variable, start, gradients, rates, scale):
    """Weights and momentum after all steps; what is orthogonal is found by singular values."""
    m, w = np.zeros_like(start), start.copy()
    for gradient, rate in zip(gradients, rates, strict=True):
        m = 0.95 * m + 0.05 * gradient * scale
        u, s, v = np.linalg.svd(0.95 * m + 0.05 * gradient * scale, full_matrices=False)
        s = s / np.sqrt((s**2).sum())
        for _ in range(5):
            s = 3.4445 * s - 4.775 * s**3 + 2.0315 * s**5
        update = 0.2 * max(w.shape) ** 0.5 * (u * s) @ v + 0.01 * w
        w = w - rate * FACTORS.get(variable, 1.0) * update
    return w, m, None


def oracle(name, start, gradients, rates, scale):
    """Weights after all steps, written from the papers in float64."""
    if name == "muon" and start[0].endswith("kernel"):
        return muon_oracle(*start, gradients, rates, scale)
    m, v, w = np.zeros_like(start[1]), np.zeros_like(start[1]), start[1].copy()
    variable = start[0]
    free = "LayerNorm" in variable or "bias" in variable
    decay = 0.0 if free else 0.01
    for t, (gradient, rate) in enumerate(zip(gradients, rates, strict=True), start=1):
        rate = rate * FACTORS.get(variable, 1.0)
        g = gradient * scale
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        m_hat, v_hat = (m, v) if name == "adam" else (m / (1 - 0.9**t), v / (1 - 0.999**t))
        update = m_hat / (np.sqrt(v_hat) + 1e-6) + decay * w
        ratio = 1.0
        if name == "lamb" and not free:
            norms = np.linalg.norm(w), np.linalg.norm(update)
            ratio = norms[0] / norms[1] if min(norms) > 0 else 1.0
        w = w - rate * ratio * update
    return w, m, v


def make_problem(name, averaged=None):
    rng = np.random.default_rng(3)
    start = {n: rng.normal(size=s) * (n != "zeros/kernel") for n, s in NAMES.items()}
    gradients = {n: rng.normal(size=(STEPS, *s)) for n, s in NAMES.items()}
    variables = {n: tf.Variable(value, dtype=tf.float32) for n, value in start.items()}
    schedule = make_schedule("linear", 0.02, 30, 4)
    optimizer = make_optimizer(name, variables, schedule, rate_factors=FACTORS, averaged=averaged)
    return start, gradients, variables, optimizer


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("name", ["adam", "adamw", "lamb", "muon"])
def test_updates_against_float64(name, compiled):
    start, gradients, variables, optimizer = make_problem(name)

    @tf.function(jit_compile=compiled)
    def apply(step, *dense):
        optimizer.apply(dense, optimizer.schedule(step), tf.constant(0.5), step=step)

    rates = [0.02 * s / 4 if s < 4 else 0.02 * (1 - s / 30) for s in range(STEPS)]
    for step in range(STEPS):
        dense = [tf.constant(g[step], tf.float32) for g in gradients.values()]
        apply(tf.constant(step, tf.int64), *dense)
    for variable in NAMES:
        w, m, v = oracle(name, (variable, start[variable]), gradients[variable], rates, 0.5)
        np.testing.assert_allclose(variables[variable], w, rtol=2e-6, atol=2e-6, err_msg=variable)
        slots = optimizer.slots()
        np.testing.assert_allclose(slots[f"{variable}/adam_m"], m, rtol=1e-5, atol=1e-6)
        assert (f"{variable}/adam_v" in slots) == (v is not None)
        if v is not None:
            np.testing.assert_allclose(slots[f"{variable}/adam_v"], v, rtol=3e-5, atol=1e-9)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("name", ["adam", "muon"])
@pytest.mark.parametrize("every", [1, 3])
def test_averages_against_float64(name, compiled, every):
    """The mean of the weights after updates 14 to 20, one of which isn't finite and so is none."""
    averaged, skipped = range(14, STEPS + 1, every), 16
    _, gradients, variables, optimizer = make_problem(name, averaged)
    _, _, plain, without = make_problem(name)

    @tf.function(jit_compile=compiled)
    def apply(step, *dense):
        finite = tf.not_equal(step + 1, skipped)
        for each in (optimizer, without):
            each.apply(dense, each.schedule(step), tf.constant(0.5), step=step, finite=finite)

    sums = {n: np.zeros(s) for n, s in NAMES.items()}
    for step in range(STEPS):
        dense = [tf.constant(g[step], tf.float32) for g in gradients.values()]
        apply(tf.constant(step, tf.int64), *dense)
        for n in NAMES:
            if step + 1 in averaged:
                sums[n] += plain[n].numpy().astype(np.float64)
            if step + 1 < STEPS:
                np.testing.assert_array_equal(variables[n], plain[n])
    for n in NAMES:
        mean = sums[n] / len(averaged)
        np.testing.assert_allclose(variables[n], mean, rtol=1e-6, atol=1e-6, err_msg=n)
        assert (variables[n].numpy() == optimizer.averaging_state()[f"{n}/average"].numpy()).all()
        assert np.abs(variables[n] - plain[n]).max() > 1e-3
    assert optimizer.averaging_state()["averaged_updates"].numpy() == len(averaged)
    # Further updates, of a run that goes on, are what they were.
    before = {n: optimizer.averaging_state()[f"{n}/average"].numpy() for n in NAMES}
    apply(tf.constant(STEPS, tf.int64), *dense)
    assert all(
        (before[n] == optimizer.averaging_state()[f"{n}/average"].numpy()).all() for n in NAMES
    )


def test_which_updates_are_averaged():
    assert averaged_updates(0.0, 100) == range(0)
    assert averaged_updates(0.1, 100) == range(91, 101)
    assert averaged_updates(0.001, 100) == range(100, 101)
    many = averaged_updates(0.1, 1_000_000)
    assert (len(many), many[0], many[-1]) == (1000, 900_100, 1_000_000)
    odd = averaged_updates(0.5, 12_345)
    assert 1000 <= len(odd) <= 2000 and odd[-1] == 12_345 and odd[0] >= 12_345 - 6173


def test_the_mean_of_a_long_run_is_told_by_float32():
    """A weight that drifts by 2 ‰ in 100,000 updates: a mean of all of them stands still."""

    def error(numbers) -> float:
        weights = (1 + 0.002 * np.array(numbers) / 100_000).astype(np.float32)
        mean = weights[0]
        for count, weight in enumerate(weights[1:], 2):
            mean = mean + (weight - mean) / np.float32(count)
        return abs(float(mean) - weights.astype(np.float64).mean())

    assert error(range(1, 100_001)) > 9e-4
    assert error(averaged_updates(1.0, 100_000)) < 5e-5


def test_a_run_that_goes_on_with_another_range_averages_what_it_has_seen():
    """The mean is of the updates that were really averaged, wherever the range begins now."""
    _, gradients, variables, first = make_problem("adamw", range(90, 101))
    _, _, plain, without = make_problem("adamw")
    schedule = make_schedule("linear", 0.02, 30, 4)
    second = make_optimizer(
        "adamw", variables, schedule, rate_factors=FACTORS, averaged=range(4, 17)
    )
    after = []
    for step in range(10, 16):
        optimizer = first if step < 13 else second
        if step == 13:
            for mine, others in (
                (second.slots(), first.slots()),
                (second.averaging_state(), first.averaging_state()),
            ):
                for name, variable in mine.items():
                    variable.assign(others[name])
        dense = [tf.constant(g[step], tf.float32) for g in gradients.values()]
        for each in (optimizer, without):
            each.apply(dense, tf.constant(0.01), tf.constant(0.5), step=step)
        after.append({name: value.numpy().astype(np.float64) for name, value in plain.items()})
    for name in NAMES:
        mean = np.mean([values[name] for values in after[3:]], 0)
        np.testing.assert_allclose(variables[name], mean, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", ["adam", "adamw", "lamb", "muon"])
def test_not_finite_changes_nothing_and_none_leaves_a_variable(name):
    _, _, variables, optimizer = make_problem(name)
    state = variables | optimizer.slots()
    before = {n: v.numpy() for n, v in state.items()}
    bad = [tf.fill(shape, math.nan) for shape in NAMES.values()]
    optimizer.apply(bad, tf.constant(0.1), tf.constant(1.0), step=3, finite=tf.constant(False))
    assert all((before[n] == v.numpy()).all() for n, v in state.items())
    good = [None, *(tf.ones(shape) for shape in list(NAMES.values())[1:])]
    optimizer.apply(good, tf.constant(0.1), tf.constant(1.0), step=3, finite=tf.constant(True))
    untouched = [n for n, v in variables.items() if (before[n] == v.numpy()).all()]
    assert untouched == list(NAMES)[:1]


@pytest.mark.parametrize("numbers, sizes", [(15, [1, 1, 1, 1]), (31, [2, 1, 1]), (2**18, [3, 1])])
def test_muon_takes_matrices_side_by_side_with_the_same_result(numbers, sizes, monkeypatch):
    monkeypatch.setattr(orthogonal, "TOGETHER_ON_CPU", numbers)
    seen = []
    found = orthogonal.orthogonal
    monkeypatch.setattr(
        orthogonal, "orthogonal", lambda x: seen.append(x.shape.as_list()) or found(x)
    )
    start, gradients, variables, optimizer = make_problem("muon")
    dense = [tf.constant(g[0], tf.float32) for g in gradients.values()]
    optimizer.apply(dense, tf.constant(0.1), tf.constant(0.5))
    assert sorted((n for n, *_ in seen), reverse=True) == sizes
    for name in NAMES:
        w, *_ = oracle("muon", (name, start[name]), gradients[name][:1], [0.1], 0.5)
        np.testing.assert_allclose(variables[name], w, rtol=2e-6, atol=2e-6, err_msg=name)


def test_which_weights_are_muons():
    model = BertPretrainer(BertConfig.named("tiny", 30))
    model.build()
    variables = {n: v.value for n, v in checkpoints.weights_by_name(model).items()}
    optimizer = make_optimizer("muon", variables, make_schedule("constant", 1e-3, 1, 0))
    slots = optimizer.slots()
    matrices = {name for name in variables if f"{name}/adam_v" not in slots}
    layers = ("attention/self/query", "attention/self/key", "attention/self/value")
    layers += ("attention/output/dense", "intermediate/dense", "output/dense")
    wanted = {f"bert/encoder/layer_{n}/{layer}/kernel" for n in range(2) for layer in layers}
    heads = {"bert/pooler/dense/kernel", "cls/predictions/transform/dense/kernel"}
    assert matrices == wanted | heads and len(slots) == 2 * len(variables) - len(matrices)


def test_a_bilstm_is_adamws():
    variables = {"bilstm/layer_0/forward/kernel": tf.Variable(tf.ones([4, 16]))}
    optimizer = make_optimizer("muon", variables, make_schedule("constant", 1e-3, 1, 0))
    assert len(optimizer.slots()) == 2


def test_weights_decay_where_they_are():
    """A copy of most weights in every step is what it costs to decay them before their gradient."""
    weights = {"dense/kernel": tf.Variable(tf.ones([768, 768]))}
    kernel = weights["dense/kernel"]
    optimizer = make_optimizer("adam", weights, make_schedule("linear", 0.02, 30, 4))

    @tf.function
    def step(inputs):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.tanh(inputs @ kernel))
        optimizer.apply([tape.gradient(loss, kernel)], tf.constant(0.01), tf.constant(1.0))

    def address():
        return np.asarray(memoryview(kernel.read_value())).ctypes.data

    inputs = tf.random.stateless_normal([4096, 768], seed=(1, 2))
    before = address()
    for _ in range(5):
        step(inputs)
        assert address() == before
    assert (kernel.numpy() != 1.0).all()


def test_names_that_are_not_there():
    with pytest.raises(ModelingError, match="adam, adamw, lamb, muon; got 'sgd'"):
        make_optimizer("sgd", {}, lambda step: step)
    with pytest.raises(
        ModelingError, match="linear, linear_from_peak, polynomial, constant; got 'cosine'"
    ):
        make_schedule("cosine", 1.0, 1, 0)
    assert isinstance(make_optimizer("adamw", {}, lambda step: step), BertAdam)


@pytest.mark.parametrize("warmup", [0, 10])
def test_schedules(warmup):
    decays = {
        "linear": lambda s: max(0, 1 - s / 50),
        "linear_from_peak": lambda s: max(0, (50 - s) / (50 - warmup)),
        "polynomial": lambda s: math.sqrt(max(0, 1 - s / 50)),
        "constant": lambda s: 1.0,
    }
    for name, decay in decays.items():
        schedule = make_schedule(name, 3e-3, 50, warmup, power=0.5)
        for step in (0, 1, 9, 10, 11, 49, 50, 60):
            wanted = 3e-3 * (step / warmup if step < warmup else decay(step))
            got = schedule(tf.constant(step, tf.int64))
            assert got.dtype == tf.float32
            np.testing.assert_allclose(got, wanted, rtol=1e-6, err_msg=f"{name} {step}")


@pytest.mark.parametrize("name", ["linear", "linear_from_peak", "polynomial"])
def test_schedules_end_at_zero_when_compiled(name):
    """XLA turns a division by the number of steps into a product, which can overshoot 1."""
    for steps in (3, 7, 41, 47, 999_999):
        schedule = make_schedule(name, 1e-4, steps, 0)
        compiled = tf.function(schedule, jit_compile=True)
        got = [float(compiled(tf.constant(step, tf.int64))) for step in (steps, steps + 5)]
        assert got == [0.0, 0.0], steps
        last = float(compiled(tf.constant(steps - 1, tf.int64)))
        power = 0.5 if name == "polynomial" else 1.0
        np.testing.assert_allclose(last, 1e-4 * (1 / steps) ** power, rtol=1e-5)


def test_depth_in_the_model():
    model = BertClassifier(BertConfig.named("tiny", 30), num_labels=2)
    model.build()
    names = list(checkpoints.weights_by_name(model))
    second = "second_bert/encoder/layer_0/output/dense/bias"
    factors = schedules.rate_factors([*names, second], 0.5, 2)
    assert factors[second] == factors[second.removeprefix("second_")] == 0.25
    assert factors["bert/embeddings/LayerNorm/gamma"] == 0.125
    assert factors["bert/encoder/layer_0/attention/self/query/kernel"] == 0.25
    assert factors["bert/encoder/layer_1/output/dense/bias"] == 0.5
    assert factors["bert/pooler/dense/kernel"] == factors["output_weights"] == 1
    assert schedules.layerwise_trained_weights(names, 0, 2) == names
    kept = schedules.layerwise_trained_weights(names, 1, 2)
    assert {name.split("/")[2] for name in kept if "encoder" in name} == {"layer_1"}
    assert not any("embeddings" in name for name in kept)
    assert schedules.layerwise_trained_weights(names, 2, 2) == [
        "bert/pooler/dense/kernel",
        "bert/pooler/dense/bias",
        "output_weights",
        "output_bias",
    ]
