"""Compiles the real training step for a TPU v5e ahead of time, without one: time and memory.

    python -m tests.benchmarks.tpu_compilation --environments=/tmp/environments --work=/tmp/tpu

For each length and number of rows per chip TensorFlow writes down the step (forward, backward,
clipping, Adam; bfloat16 with float32 weights) as StableHLO, and in an environment of its own, made
by the script, JAX hands that to the compiler of libtpu for a described, absent machine. The memory
is the compiler's own count, the same with which it refuses programs that don't fit; beside it
stands what `run_pretraining.py --estimate` takes for it. It is one chip's share of a data-parallel
step; the sum over the chips, of which it needs a buffer of the gradients' size at most, isn't in
it.

A case takes two minutes on two cores, and less than 5 GB. Finished ones are kept in --work and not
repeated; after the first that is refused, more rows of that length aren't tried.
"""

from modeling import quiet  # noqa: F401  isort: skip

import json
import os
import pathlib
import subprocess
import sys
import time

import numpy as np
from absl import app, flags

from modeling.config import BertConfig
from modeling.costs import cost_model
from tests.benchmarks.peers import environment

FLAGS = flags.FLAGS
VOCAB_SIZE = 30522
REQUIREMENTS = ("jax[tpu]", "numpy")

# Run by the environment's interpreter: StableHLO's file, topology. Prints JSON.
COMPILE = """
import json, pathlib, sys, time
import numpy as np
from jax.experimental import topologies
from jax._src.interpreters import mlir
from jax._src.lib.mlir import ir
from jax._src.lib import xla_client

path, name = sys.argv[1:]
topology = topologies.get_topology_desc(name, "tpu")
device = topology.devices[0]
context = mlir.make_ir_context()
with context, ir.Location.unknown(context):
    module = ir.Module.parse(pathlib.Path(path).read_bytes())
    # TensorFlow copies what it gives back, by an operation that isn't StableHLO's.
    for function in module.body.operations:
        for operation in list(function.regions[0].blocks[0].operations):
            if operation.operation.name == "mhlo.copy":
                operation.results[0].replace_all_uses_with(operation.operands[0])
                operation.operation.erase()
options = xla_client.CompileOptions()
options.num_replicas = options.num_partitions = 1
options.device_assignment = xla_client.DeviceAssignment.create(np.array([[device.id]]))
start = time.perf_counter()
try:
    program = device.client.compile(module, xla_client.DeviceList((device,)), options)
except Exception as error:
    if "RESOURCE_EXHAUSTED" not in str(error):
        raise
    print(json.dumps({"refused": str(error)[:2000], "seconds": time.perf_counter() - start}))
else:
    memory = program.get_compiled_memory_stats()
    names = ("argument", "output", "alias", "temp", "generated_code")
    sizes = {n: getattr(memory, f"{n}_size_in_bytes") for n in names}
    print(json.dumps({"seconds": time.perf_counter() - start, **sizes}))
"""


def predictions(length: int) -> int:
    return round(0.15 * length)


def model_config() -> BertConfig:
    layers = {"num_hidden_layers": FLAGS.layers} if FLAGS.layers else {}
    return BertConfig.named(FLAGS.size, VOCAB_SIZE, **layers)


def lower(rows: int, length: int, path: str) -> None:
    """Writes the step as StableHLO."""
    import keras
    import tensorflow as tf

    from modeling.losses import PretrainingLosses
    from modeling.models import BertPretrainer
    from modeling.training.engine.precision import set_precision
    from modeling.training.engine.setup import EngineSettings, make_train_step

    set_precision("bfloat16")
    keras.utils.set_random_seed(0)
    model = BertPretrainer(model_config(), remat=FLAGS.remat)
    model.build()
    # Otherwise it would be the CPU's form, whose small operations are programs of their own.
    settings = EngineSettings(1e-4, 1_000_000, 10_000, seed=0, jit_compile=True)
    step = make_train_step(model, PretrainingLosses(), settings)
    shape, places = (rows, length), (rows, predictions(length))
    batch = {
        "input_ids": np.ones(shape, np.int32),
        "input_mask": np.ones(shape, np.int32),
        "segment_ids": np.zeros(shape, np.int32),
        "masked_lm_positions": np.ones(places, np.int32),
        "masked_lm_ids": np.ones(places, np.int32),
        "masked_lm_weights": np.ones(places, np.float32),
        "next_sentence_labels": np.zeros((rows, 1), np.int32),
    }
    batch = {name: tf.constant(value) for name, value in batch.items()}
    compiled = tf.function(step._replica_step, jit_compile=True)
    program = compiled.experimental_get_compiler_ir(batch, tf.constant(0, tf.int64))
    pathlib.Path(path).write_bytes(program(stage="stablehlo_serialized"))


def compile_case(rows: int, length: int) -> dict:
    """What the compiler says of one case, from an earlier run if there was one."""
    work = pathlib.Path(FLAGS.work)
    work.mkdir(parents=True, exist_ok=True)
    remat = "-remat" if FLAGS.remat else ""
    name = f"{FLAGS.size}{FLAGS.layers or ''}{remat}-{rows}x{length}"
    kept = work / f"{name}.json"
    if kept.exists():
        return json.loads(kept.read_text(encoding="utf-8"))
    program = work / f"{name}.stablehlo"
    command = [sys.executable, "-m", "tests.benchmarks.tpu_compilation", *sys.argv[1:]]
    command += [f"--lower={rows},{length}", f"--program={program}"]
    subprocess.run(command, check=True, cwd=environment.ROOT)
    environment.REQUIREMENTS.setdefault("tpu", REQUIREMENTS)
    python = environment.python_of("tpu", FLAGS.environments)
    done = subprocess.run(
        [python, "-c", COMPILE, str(program), FLAGS.topology],
        capture_output=True,
        text=True,
        # There is no TPU to ask about, nor a machine that describes one.
        env=os.environ | {"TPU_SKIP_MDS_QUERY": "1", "JAX_PLATFORMS": "cpu"},
    )
    if done.returncode:
        sys.exit(done.stderr[-4000:])
    result = json.loads(done.stdout.splitlines()[-1])
    program.unlink()
    kept.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return result


def describe(rows: int, length: int, result: dict) -> str:
    """The table's row."""
    estimated = cost_model.step_memory(
        model_config(), rows, length, predictions(length), remat=FLAGS.remat
    )
    ends = f"| {estimated / 2**30:.2f} | {result['seconds']:.0f} |"
    if "refused" in result:
        reason = next(
            (line for line in result["refused"].splitlines() if "Used" in line),
            result["refused"].splitlines()[0],
        )
        return f"| {rows} | {length} | refused: {reason.strip()[:160]} | | {ends}"
    # Weights and moments are updated in place.
    state = result["argument"] / 2**30
    temporary = result["temp"] / 2**30
    return f"| {rows} | {length} | {state:.2f} | {temporary:.2f} | {state + temporary:.2f} {ends}"


def main(_) -> None:
    if FLAGS.lower:
        rows, length = map(int, FLAGS.lower)
        lower(rows, length, FLAGS.program)
        return
    start = time.monotonic()
    print("| rows per chip | tokens | weights, moments, batch GiB | rest | sum | estimate | s |")
    print("|---:|---:|---:|---:|---:|---:|---:|")
    for case in FLAGS.cases:
        length, *all_rows = map(int, case.split(":"))
        for rows in all_rows:
            result = compile_case(rows, length)
            print(describe(rows, length, result), flush=True)
            if "refused" in result:
                break
    print(f"\n{FLAGS.size}, {FLAGS.topology}, {time.monotonic() - start:.0f} s.")


if __name__ == "__main__":
    flags.DEFINE_string("environments", "/tmp/environments", "Folder for the compiler's.")
    flags.DEFINE_string("work", "/tmp/tpu_compilation", "Folder for results.")
    flags.DEFINE_string("topology", "v5e:2x4", "Of the machine: eight chips.")
    flags.DEFINE_list(
        "cases", ["128:32:64:128:256:512:768", "512:8:16:32:64:96"], "LENGTH:ROWS:ROWS…, rising."
    )
    flags.DEFINE_string("size", "base", "Of the model.")
    flags.DEFINE_integer("layers", 0, "Other than the size has.")
    flags.DEFINE_bool("remat", False, "Compute activations again in the backward pass.")
    flags.DEFINE_list("lower", [], "ROWS,LENGTH; set by the command itself.")
    flags.DEFINE_string("program", "", "Where to write it; set by the command itself.")
    app.run(main)
