"""One of two workers that train together; `test_workers.py` starts both.

    TF_CONFIG=… python -m tests.modeling.training.two_workers FOLDER [STEPS]

Trains `tiny_model` for twenty steps as the tests do on one device, and leaves the losses and
weights in FOLDER/worker-N.npz, with an evaluation and predictions. The chief writes checkpoints.
Then a second run takes its best weights, written slowly, and only the chief is told to stop.
"""

import json
import os
import signal
import sys
import time

import numpy as np
import tensorflow as tf

from modeling import checkpoints
from modeling.losses import PretrainingLosses
from modeling.training.engine import distribution, loop
from modeling.training.engine.evaluation import Evaluator, ReplicaPredictor
from modeling.training.engine.optimizers import BertAdam
from modeling.training.engine.schedules import make_schedule
from modeling.training.engine.step import TrainStep
from modeling.training.runs import best, fit
from modeling.training.runs.reporting import Reporter
from modeling.training.runs.run_folder import latest_run_step, prepare_run_folder
from modeling.training.runs.run_state import RunState, start_or_resume
from tests.modeling.training.test_training import batches, records, tiny_model


def own_part(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """This worker's part of each batch."""
    share = distribution.share_of_worker(8)

    def rows(batch):
        cut = {name: tf.split(value, share.num_parts) for name, value in batch.items()}
        return {name: tf.concat([parts[i] for i in share.parts], 0) for name, parts in cut.items()}

    return dataset.map(rows)


def second_run(folder: str, step: TrainStep) -> tuple[int, bool]:
    """(Step of the weights in the end, whether this worker was made to leave)."""
    prepare_run_folder(folder)
    write, load = best._write_weights, fit.load_best
    loaded = []

    def slow_write(*arguments):
        time.sleep(1)
        write(*arguments)

    def load_and_stop(*arguments):
        # After the last step, so that no step's agreement is there to tell the other worker.
        loaded.append(load(*arguments))
        if distribution.is_chief():
            os.kill(os.getpid(), signal.SIGTERM)

    best._write_weights, fit.load_best = slow_write, load_and_stop
    step.global_step.assign(0)
    try:
        fit.fit_run(
            *(step, [fit.RunStage(6, lambda: own_part(batches()), "data", 8)], folder, None),
            Reporter(folder, 6, 8),
            # The last evaluation isn't one of the loop's.
            fit.LoopOptions(10, eval_steps=4, best_metric="step"),
            lambda step: {"step": float(step)},
        )
    except SystemExit:
        return loaded[0], True
    return loaded[0], False


def main(folder: str, steps: int) -> None:
    prepare_run_folder(folder)
    strategy = distribution.get_strategy("auto")
    assert strategy.num_replicas_in_sync == 2
    with strategy.scope():
        index = distribution.worker_index()
        assert index == json.loads(os.environ["TF_CONFIG"])["task"]["index"]
        assert distribution.is_chief() == (index == 0)
        model = tiny_model(dropout_prob=0.0)
        weights = {n: w.value for n, w in checkpoints.weights_by_name(model).items()}
        optimizer = BertAdam(weights, make_schedule("linear", 1e-2, 40, 3))
        step = TrainStep(model, PretrainingLosses(), optimizer, seed=7)
        iterator, can_be_saved = loop.make_iterator(own_part(batches()), latest_run_step(folder))
        assert not can_be_saved
        state = RunState(folder, step)
        reporter = Reporter(folder, 20, 8)
        start_or_resume(state, reporter, None)
        losses = []
        run = step.run
        step.run = lambda *given: losses.append(run(*given)) or losses[-1]
        loop.train_steps(
            step,
            iterator,
            state,
            reporter,
            steps,
            loop.LoopOptions(save_checkpoints_steps=5, iterations_per_loop=3, log_steps=5),
        )
        data = tf.data.Dataset.from_tensor_slices(records(32) | {"index": np.arange(32)})
        data = own_part(data.batch(8))
        results = Evaluator(model, PretrainingLosses())(data)
        predictions = ReplicaPredictor(model, "pooled_output")(data)
        first = {
            "losses": [total for history in losses for total, _ in history["loss"]],
            **{name: variable.numpy() for name, variable in weights.items()},
        }
        last = second_run(f"{folder}/second", step)
    np.savez(
        os.path.join(folder, f"worker-{index}.npz"),
        **first,
        evaluation=[results[name] for name in sorted(results)],
        predictions=predictions,
        best=last,
        best_weights=model.encoder.pooler.kernel.numpy(),
    )


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 20)
