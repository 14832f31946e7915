"""Predictions of classification tasks as files."""

from collections.abc import Iterable, Sequence

import tensorflow as tf

from data.errors import DataError


def write_test_results(path: str, probabilities: Iterable[Sequence[float]]) -> None:
    """Writes test_results.tsv as the original: a line per example, probabilities, tabs.

    There is no header and no label: the columns are the classes in the order of their ids.
    """
    lines = ("\t".join(str(p) for p in row) + "\n" for row in probabilities)
    temporary = path + ".tmp"
    try:
        with tf.io.gfile.GFile(temporary, "w") as file:
            file.write("".join(lines))
        tf.io.gfile.rename(temporary, path, overwrite=True)
    except tf.errors.OpError as error:
        raise DataError(f"{path} can't be written: {error.message}") from error
