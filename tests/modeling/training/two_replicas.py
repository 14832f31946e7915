"""Training on two replicas against one device; prints "equal" when all comparisons hold.

    python -m tests.modeling.training.two_replicas FOLDER steps|micro-batches|xla|muon

With "steps", what needs two replicas besides is checked too.

A program of its own because logical devices have to be made before TensorFlow starts.
"""

import sys

import numpy as np
import tensorflow as tf

from modeling import checkpoints
from modeling.layers.dropout import dropout
from modeling.losses import PretrainingLosses
from modeling.training.engine import distribution, loop
from modeling.training.engine.evaluation import Evaluator, ReplicaPredictor
from modeling.training.engine.optimizers import BertAdam, make_optimizer
from modeling.training.engine.precision import LossScale, clear_session_keeping_precision
from modeling.training.engine.schedules import make_schedule
from modeling.training.engine.step import TrainStep
from modeling.training.runs.reporting import Reporter
from modeling.training.runs.run_folder import prepare_run_folder
from modeling.training.runs.run_state import RunState, start_or_resume
from tests.modeling.training.runs import test_rollback
from tests.modeling.training.test_training import batches, records, tiny_model


def train(strategy, folder, optimizer="adam", **options):
    """(losses, weights, evaluation and predictions) of twenty steps without dropout."""
    prepare_run_folder(folder)
    with strategy.scope():
        model = tiny_model(dropout_prob=0.0)
        weights = {n: w.value for n, w in checkpoints.weights_by_name(model).items()}
        schedule = make_schedule("linear", 1e-2, 40, 3)
        averaged = range(15, 21) if optimizer == "muon" else None
        optimizer = make_optimizer(optimizer, weights, schedule, averaged=averaged)
        step = TrainStep(model, PretrainingLosses(), optimizer, seed=7, **options)
        iterator, _ = loop.make_iterator(batches())
        losses = [total for total, _ in step.run(iterator, 20)["loss"]]
        data = tf.data.Dataset.from_tensor_slices(records(30) | {"index": np.arange(30)})
        evaluator = Evaluator(model, PretrainingLosses())
        results = evaluator(data.batch(8))
        assert set(evaluator.names(data.batch(8))) == set(results)
        results["rows"] = ReplicaPredictor(model, "next_sentence_logits")(
            data.shuffle(30, seed=1).batch(8)
        )
        # What was saved comes back, on every replica.
        state = RunState(folder, step)
        state.save()
        saved = {name: variable.numpy() for name, variable in weights.items()}
        for variable in weights.values():
            variable.assign(variable * 0)
        start_or_resume(state, Reporter(folder, 20, 8), None)
        for name, variable in weights.items():
            for local in strategy.experimental_local_results(variable):
                np.testing.assert_array_equal(local.numpy(), saved[name])
        assert int(step.global_step.numpy()) == 20
    return losses, saved, results


def check_loss_scale(strategy):
    """A gradient that isn't finite on the second replica alone halves the scale on both."""
    with strategy.scope():
        model = tiny_model(dropout_prob=0.0)
        weights = {n: w.value for n, w in checkpoints.weights_by_name(model).items()}
        optimizer = BertAdam(weights, make_schedule("linear", 1e-2, 20, 0))
        loss_scale = LossScale(initial=1024.0)
        step = TrainStep(model, PretrainingLosses(), optimizer, seed=7, loss_scale=loss_scale)
        spoilt = records(8)
        spoilt["masked_lm_weights"][6, 0] = np.inf  # rows 4 to 7 are the second replica's
        data = [records(8), spoilt, records(8, seed=1)]
        stacked = {name: np.concatenate([part[name] for part in data]) for name in spoilt}
        iterator, _ = loop.make_iterator(tf.data.Dataset.from_tensor_slices(stacked).batch(8))
        step.run(iterator, 1)
        state = weights | optimizer.slots()
        before = {name: variable.numpy() for name, variable in state.items()}
        history = step.run(iterator, 1)
        assert history["skipped_updates"] == [(1.0, 1.0)]
        for local in strategy.experimental_local_results(loss_scale.scale):
            assert local.numpy() == 512
        for name, variable in state.items():
            for local in strategy.experimental_local_results(variable):
                np.testing.assert_array_equal(local.numpy(), before[name], err_msg=name)
        history = step.run(iterator, 1)
        assert history["skipped_updates"] == [(0.0, 1.0)] and np.isfinite(history["loss"][0][0])
        assert (
            weights["bert/pooler/dense/kernel"].numpy() != before["bert/pooler/dense/kernel"]
        ).any()


def check_place_in_the_data(strategy):
    """One of several workers with two replicas goes on where it was."""
    real = distribution._is_multi_worker, distribution.num_workers, distribution.worker_index
    distribution._is_multi_worker = lambda: True
    distribution.num_workers, distribution.worker_index = lambda: 1, lambda: 0
    with strategy.scope():
        data = tf.data.Dataset.range(64).batch(distribution.share_of_worker(8).batch_size)
        seen = []
        for done in (0, 3):
            iterator, _ = loop.make_iterator(data, done)
            local = [strategy.experimental_local_results(next(iterator)) for _ in range(4 - done)]
            seen.append(np.concatenate([tensor.numpy() for tensor in local[-1]]))
    np.testing.assert_array_equal(seen, [np.arange(24, 32)] * 2)
    distribution._is_multi_worker, distribution.num_workers, distribution.worker_index = real


def check_rollback(strategy, folder):
    """Data that can't be saved are brought to the same place, and again by the next process."""
    with strategy.scope():
        for stop in (200, test_rollback.STEPS):
            data = test_rollback.easy_data([150, 151])
            parted = test_rollback.train(f"{folder}/parted", data, stop)
        data = test_rollback.easy_data(left_out=range(140, 251))
        without = test_rollback.train(f"{folder}/without", data, rollback=False)
    for name, value in without.items():
        np.testing.assert_array_equal(value, parted[name], err_msg=name)


def check_repeatable(strategy):
    """With dropout, the same seed gives the same weights bit for bit; another seed others.

    As the runs of a search, one after the other in one scope.
    """
    runs = []
    with strategy.scope():
        for seed in (7, 7, 8):
            clear_session_keeping_precision()
            model = tiny_model(dropout_prob=0.3)
            weights = {n: w.value for n, w in checkpoints.weights_by_name(model).items()}
            optimizer = BertAdam(weights, make_schedule("linear", 1e-2, 20, 0))
            step = TrainStep(model, PretrainingLosses(), optimizer, seed=seed)
            iterator, _ = loop.make_iterator(batches())
            step.run(iterator, 10)
            runs.append({name: variable.numpy() for name, variable in weights.items()})
    for name, value in runs[0].items():
        np.testing.assert_array_equal(value, runs[1][name], err_msg=name)
    assert any((value != runs[2][name]).any() for name, value in runs[0].items())


WAYS = {
    "steps": {},
    "micro-batches": {"accumulation_steps": 2},
    "xla": {"jit_compile": True},
    "muon": {},
}


def main(folder, way):
    cpus = tf.config.list_physical_devices("CPU")
    tf.config.set_logical_device_configuration(
        cpus[0], [tf.config.LogicalDeviceConfiguration()] * 2
    )
    optimizer = "muon" if way == "muon" else "adam"
    one = train(tf.distribute.get_strategy(), f"{folder}/one", optimizer)
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    two = train(strategy, f"{folder}/two", optimizer, **WAYS[way])
    np.testing.assert_allclose(one[0], two[0], rtol=1e-6)
    for name, value in one[1].items():
        if "key/bias" not in name:  # its true gradient is zero; Adam amplifies the rounding
            np.testing.assert_allclose(value, two[1][name], atol=2e-5, err_msg=name)
    for name, value in one[2].items():
        np.testing.assert_allclose(value, two[2][name], rtol=1e-5, atol=1e-5, err_msg=name)
    if way == "steps":
        check_the_rest(strategy)
        check_rollback(strategy, folder)
    print("equal")


def check_the_rest(strategy):
    """Loss scale, repeatability, place in the data, masks of dropout."""
    check_loss_scale(strategy)
    check_repeatable(strategy)
    check_place_in_the_data(strategy)

    # With dropout, the replicas draw different masks.
    @tf.function
    def draw():
        replica = tf.cast(tf.distribute.get_replica_context().replica_id_in_sync_group, tf.int32)
        return dropout(tf.ones([1000]), 0.5, tf.stack([1, 2, replica]), site=0)

    first, second = strategy.experimental_local_results(strategy.run(draw))
    assert 0.4 < np.mean(first.numpy() == second.numpy()) < 0.6


if __name__ == "__main__":
    main(*sys.argv[1:])
