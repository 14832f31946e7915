"""The frame of a script's work: folder, seed, devices, number format, summary.

with session(values, [values.train_batch_size]) as summary:
    ...
"""

import contextlib
from collections.abc import Iterable, Iterator

import keras

from modeling.training import flags as common_flags
from modeling.training.engine import distribution, precision
from modeling.training.runs import run_folder
from modeling.training.runs.summary import RunSummary, given_flags


@contextlib.contextmanager
def session(
    values, train_batch_sizes: Iterable[int] = (), **batch_sizes: int
) -> Iterator[RunSummary]:
    """Within it everything happens in the strategy's scope; at its end the summary is written.

    Args:
        values: The script's flag values, of the flags that `common_flags` defines.
        train_batch_sizes: Those that will be trained with.
        batch_sizes: Others, by the names of their flags.

    Raises:
        ModelingError: The output folder can't be written, there are no such devices, or a batch
            can't be divided among them.
    """
    # Before several workers join: one of them that fails here must not leave the others waiting.
    run_folder.prepare_directory(values.output_dir)
    keras.utils.set_random_seed(values.random_seed)
    strategy = common_flags.make_strategy(values)
    precision.set_precision(values.dtype)
    summary = RunSummary(values.output_dir, flags=given_flags(values))
    with strategy.scope(), summary:
        for size in train_batch_sizes:
            distribution.check_batch_sizes(values.gradient_accumulation_steps, size, **batch_sizes)
        yield summary
