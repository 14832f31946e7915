"""The cost model's predictions against measured training steps, tiny to base, 32 to 512 tokens.

    python -m tests.benchmarks.cost_model
    python -m tests.benchmarks.cost_model --calibrate

The constants of `modeling.costs.machines.CPU` come from the second command, which measures
the shapes of CALIBRATION in float32 and in bfloat16 and fits one number for each kind of work to
them (least squares of relative errors, none below 0; the memory's bandwidth is one for both). The
first measures the shapes of TESTED, none of which is among the others, and ends with exit code 1
if a prediction is off by more than a quarter.

Steps are those of pre-training with dropout and Adam on random records, the median of several.
Other work on the machine spoils them, so a measurement during which it took more than a tenth of
a core is repeated, for up to --patience seconds. What other virtual machines take of a shared
processor isn't seen that way, and changes by the minute. So in turn with the steps one large
product of matrices is timed, `product_rate`; it tells how fast arithmetic is at that moment, when
constants are fitted and when steps are predicted. All shapes are measured in --rounds one after
the other, of which each shape's mean counts. With --times what has been measured is kept in a
file, and not measured again.
"""

from modeling import quiet  # noqa: F401  isort: skip

import dataclasses
import json
import os
import pathlib
import statistics
import sys
import time

import keras
import numpy as np
import tensorflow as tf
from absl import app, flags
from scipy.optimize import nnls

from modeling.config import BertConfig
from modeling.costs import cost_model
from modeling.costs import machines as cost_machines
from modeling.losses import PretrainingLosses
from modeling.models import BertPretrainer
from modeling.training.engine.precision import clear_session_keeping_precision, set_precision
from modeling.training.engine.setup import EngineSettings, make_train_step

FLAGS = flags.FLAGS
VOCAB_SIZE = 30522
DTYPES = ("float32", "bfloat16")
LIMIT = 0.25
OTHERS = 0.1  # cores that other work may take during a measurement
PRODUCT_SIZE = 1536
PRODUCT_FLOPS = 2 * PRODUCT_SIZE**3

# Size, rows, tokens.
CALIBRATION = (
    ("tiny", 16, 32),
    ("tiny", 64, 64),
    ("tiny", 4, 512),
    ("mini", 32, 128),
    ("small", 32, 64),
    ("small", 4, 512),
    ("medium", 8, 256),
    ("base", 16, 32),
    ("base", 8, 128),
    ("base", 2, 512),
)
TESTED = (
    ("tiny", 64, 32),
    ("tiny", 32, 128),
    ("tiny", 8, 256),
    ("mini", 64, 32),
    ("mini", 32, 64),
    ("mini", 4, 512),
    ("small", 16, 128),
    ("small", 8, 256),
    ("medium", 32, 64),
    ("medium", 16, 128),
    ("medium", 4, 512),
    ("base", 32, 32),
    ("base", 8, 64),
    ("base", 4, 256),
)


def predictions(length: int) -> int:
    return round(0.15 * length)


def measure(size: str, rows: int, length: int, dtype: str) -> tuple[float, float]:
    """Median seconds of a step; `product_rate` meanwhile."""
    set_precision(dtype)
    clear_session_keeping_precision()
    keras.utils.set_random_seed(0)
    model = BertPretrainer(BertConfig.named(size, VOCAB_SIZE))
    model.build()
    step = make_train_step(model, PretrainingLosses(), EngineSettings(1e-4, 10_000, 10, seed=0))
    rng, shape, places = np.random.default_rng(0), (rows, length), (rows, predictions(length))
    batch = {
        "input_ids": rng.integers(0, VOCAB_SIZE, shape, np.int32),
        "input_mask": np.ones(shape, np.int32),
        "segment_ids": np.zeros(shape, np.int32),
        "masked_lm_positions": rng.integers(0, length, places, np.int32),
        "masked_lm_ids": rng.integers(0, VOCAB_SIZE, places, np.int32),
        "masked_lm_weights": np.ones(places, np.float32),
        "next_sentence_labels": rng.integers(0, 2, (rows, 1), np.int32),
    }
    iterator = iter(tf.data.Dataset.from_tensors(batch).repeat())
    step.run(iterator, 2)
    start = time.perf_counter()
    step.run(iterator, 1)
    # Calls of some steps each, as in training.
    together = max(1, min(20, round(0.3 / (time.perf_counter() - start))))
    end = time.perf_counter() + FLAGS.patience
    while True:
        seconds, rate, others = timed(lambda: step.run(iterator, together), dtype)
        if others < OTHERS:
            return seconds / together, rate
        if time.perf_counter() > end:
            sys.exit(f"Other work took {others:.1f} cores, again and again; try later.")
        time.sleep(5)


def timed(call, dtype: str) -> tuple[float, float, float]:
    """Median seconds of a call; `product_rate`; the cores that other processes used meanwhile."""
    product = large_product(dtype)
    product()
    seconds, products, begin = [], [], time.perf_counter()
    everything, own = busy_seconds(), time.process_time()
    while len(seconds) < 5 or (time.perf_counter() < begin + FLAGS.seconds and len(seconds) < 25):
        start = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - start)
        start = time.perf_counter()
        product()
        products.append(time.perf_counter() - start)
    others = busy_seconds() - everything - (time.process_time() - own)
    rate = PRODUCT_FLOPS / statistics.median(products)
    return statistics.median(seconds), rate, others / (time.perf_counter() - begin)


def large_product(dtype: str):
    """A call that multiplies two matrices in this format, with PRODUCT_FLOPS operations."""
    draw = np.random.default_rng(0).standard_normal
    x, w = (tf.cast(draw((PRODUCT_SIZE, PRODUCT_SIZE), np.float32), dtype) for _ in "xw")
    multiply = tf.function(lambda: tf.matmul(x, w)[0, 0], autograph=False)
    return lambda: multiply().numpy()


def busy_seconds() -> float:
    """That all cores have worked since the machine's start."""
    with open("/proc/stat", encoding="ascii") as file:
        user, nice, system, _, _, irq, softirq, *_ = map(int, file.readline().split()[1:])
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")


Times = dict[str, list[tuple[float, float]]]


def measure_all(shapes) -> Times:
    """By format, of each shape the mean of all rounds, see `measure`; --times has them already."""
    path = pathlib.Path(FLAGS.times) if FLAGS.times else None
    known = json.loads(path.read_text(encoding="utf-8")) if path and path.exists() else {}
    for number in range(FLAGS.rounds):
        for dtype in DTYPES:
            for shape in shapes:
                name = name_of(*shape, dtype)
                rounds = known.setdefault(name, [])
                if len(rounds) > number:
                    continue
                rounds.append(measure(*shape, dtype))
                seconds, rate = rounds[-1]
                text = f"{name}: {seconds * 1e3:.1f} ms, a product at {rate / 1e9:.0f} GFLOP/s"
                print(text, file=sys.stderr, flush=True)
                if path:
                    path.write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")
    times: Times = {}
    for dtype in DTYPES:
        measured = [known[name_of(*shape, dtype)] for shape in shapes]
        times[dtype] = [
            tuple(map(statistics.fmean, zip(*rounds, strict=True))) for rounds in measured
        ]
    return times


def name_of(size: str, rows: int, length: int, dtype: str) -> str:
    return f"{size} {rows} × {length} {dtype}"


def work_of(size: str, rows: int, length: int, dtype: str) -> cost_model.StepWork:
    config = BertConfig.named(size, VOCAB_SIZE)
    half = dtype != "float32"
    return cost_model.step_work(config, rows, length, predictions(length), 2, half_precision=half)


def fit(shapes, times: Times) -> dict[str, dict[str, float]]:
    """By format the machine's constants, none below 0, with the least relative errors."""
    product_rates = {d: statistics.median(rate for _, rate in times[d]) for d in DTYPES}
    amounts, seconds = [], []
    for place, dtype in enumerate(DTYPES):
        for shape, (measured, rate) in zip(shapes, times[dtype], strict=True):
            work, speed = work_of(*shape, dtype), rate / product_rates[dtype]
            arithmetic = (work.dense_flops, work.attention_flops, work.logits)
            row = np.zeros((len(DTYPES), 5))
            row[place] = [*(amount / speed for amount in arithmetic), work.layers, 1.0]
            amounts.append([*row.ravel(), work.bytes])
            seconds.append(measured)
    amounts, seconds = np.array(amounts), np.array(seconds)
    scale = amounts.max(axis=0)
    solution, _ = nnls(amounts / scale / seconds[:, None], np.ones(len(seconds)))
    *each, moved = solution / scale
    constants = {}
    for dtype, (dense, attention, logit, layer, step) in zip(
        DTYPES, np.reshape(each, (len(DTYPES), 5)), strict=True
    ):
        constants[dtype] = {
            "product_rate": product_rates[dtype],
            "matmul_rate": rate_of(dense),
            "attention_rate": rate_of(attention),
            "seconds_per_logit": logit,
            "bandwidth": rate_of(moved),
            "seconds_per_layer": layer,
            "seconds_per_step": step,
        }
    return constants


def rate_of(seconds: float) -> float:
    """Units a second; what costs nothing is done very fast."""
    return 1 / seconds if seconds else 1e18


def compare(shapes, dtype: str, machine: cost_machines.Machine, times) -> float:
    """Prints a table; the largest relative error."""
    print(f"{dtype}:\n")
    print("| model | rows × tokens | GFLOP/s | predicted ms | measured ms | predicted / measured |")
    print("|---|---|---:|---:|---:|---:|")
    ratios = []
    for shape, (seconds, rate) in zip(shapes, times, strict=True):
        predicted = work_of(*shape, dtype).seconds(machine, rate / machine.product_rate)
        ratios.append(predicted / seconds)
        size, rows, length = shape
        print(
            f"| {size} | {rows} × {length} | {rate / 1e9:.0f} | {predicted * 1e3:,.1f} "
            f"| {seconds * 1e3:,.1f} | {ratios[-1]:.2f} |"
        )
    worst = max(abs(ratio - 1) for ratio in ratios)
    mean = statistics.fmean(abs(ratio - 1) for ratio in ratios)
    print(f"\n{dtype}: off by {worst:.0%} at most, by {mean:.0%} on average.\n")
    return worst


def main(_) -> None:
    shapes = CALIBRATION if FLAGS.calibrate else TESTED
    times = measure_all(shapes)
    machines = cost_machines.CPU
    if FLAGS.calibrate:
        constants = fit(shapes, times)
        machines = {d: dataclasses.replace(machines[d], **constants[d]) for d in DTYPES}
        for dtype in DTYPES:
            numbers = (f"{name}={value:.3g}" for name, value in constants[dtype].items())
            print(f"{dtype}: {', '.join(numbers)}")
        print()
    worst = max(compare(shapes, dtype, machines[dtype], times[dtype]) for dtype in DTYPES)
    if not FLAGS.calibrate and worst > LIMIT:
        sys.exit(1)


if __name__ == "__main__":
    flags.DEFINE_bool("calibrate", False, "Measure and fit the processor's constants.")
    flags.DEFINE_float("seconds", 4.0, "How long each shape is measured.")
    flags.DEFINE_integer("rounds", 2, "How often each shape is measured.", lower_bound=1)
    flags.DEFINE_float("patience", 60.0, "Seconds to wait for a machine without other work.")
    flags.DEFINE_string("times", None, "File that keeps what is measured.")
    app.run(main)
