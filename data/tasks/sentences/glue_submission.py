"""Predictions as the GLUE server takes them: one file per test set, index and prediction.

A submission is a zip archive of all of them, the diagnostic set included; the server refuses
archives that lack one.
"""

import os

import numpy as np
from absl import logging

from data.errors import DataError
from data.files import atomic
from data.tasks.sentences import glue

# By task and split; whatever isn't here the server doesn't take.
_FILES = {
    ("cola", "test"): "CoLA.tsv",
    ("sst-2", "test"): "SST-2.tsv",
    ("mrpc", "test"): "MRPC.tsv",
    ("sts-b", "test"): "STS-B.tsv",
    ("qqp", "test"): "QQP.tsv",
    ("mnli", "test"): "MNLI-m.tsv",
    ("mnli", "test_mismatched"): "MNLI-mm.tsv",
    ("mnli", "diagnostic"): "AX.tsv",
    ("diagnostic", "test"): "AX.tsv",
    ("qnli", "test"): "QNLI.tsv",
    ("rte", "test"): "RTE.tsv",
    ("wnli", "test"): "WNLI.tsv",
}

# Of the 635 training examples 323 are "0", of the test set 65.1 %.
_WNLI_MAJORITY = "0"


def write_submission(
    folder: str, task_name: str, split: str, outputs: np.ndarray, majority: bool = False
) -> str:
    """Writes the predictions for one test set, and warns if it hasn't its published size.

    Args:
        folder: Where to; made if it doesn't exist.
        task_name: One of GLUE's, in upper or lower case, or "diagnostic".
        split: "test", or MNLI's "test_mismatched" and "diagnostic".
        outputs: In the order of the test file. Probabilities [N, classes]; for STS-B scores [N],
            which are clipped to 0 … 5 and written with three decimals.
        majority: WNLI only: every row gets the more frequent class of the training set, as in
            the paper's submission (appendix B.1): no model of the time did better, as many a
            sentence of the dev set is in the training set with the opposite label.

    Returns:
        The file's path.

    Raises:
        DataError: The server takes no such file, outputs aren't all numbers, or the file can't
            be written.
    """
    name = task_name.lower()
    if (name, split) not in _FILES:
        takes = ", ".join(f"{task} {test}" for task, test in _FILES)
        raise DataError(
            f"The GLUE server takes no predictions for {task_name} {split}; it takes {takes}."
        )
    if majority and name != "wnli":
        raise DataError(f"The majority class is submitted for WNLI only, not for {task_name}.")
    task = glue.get_task(name)
    outputs = np.asarray(outputs)
    if outputs.shape[1:] != ((len(task.labels),) if task.labels else ()):
        raise ValueError(f"outputs are of shape {outputs.shape}; {name} has {task.labels}.")
    bad = np.flatnonzero(~np.isfinite(outputs.reshape(len(outputs), -1)).all(axis=1))
    if bad.size:
        raise DataError(
            f"The outputs for {len(bad)} rows of {task_name} {split}, the first with index "
            f"{bad[0]}, are not finite numbers, so there is nothing to submit. The model's weights "
            "are damaged or its training diverged; train it again."
        )
    if majority:
        texts = [_WNLI_MAJORITY] * len(outputs)
    elif not task.labels:
        texts = [f"{score:.3f}" for score in np.clip(outputs, 0.0, 5.0)]
    else:
        texts = [task.labels[number] for number in np.argmax(outputs, axis=-1)]
    expected = task.published_size(split)
    path = os.path.join(folder, _FILES[name, split])
    if len(texts) != expected:
        logging.warning(
            f"{path} has {len(texts)} predictions, but the test set as published has {expected}: "
            "the GLUE server will refuse it."
        )
    atomic.make_folder(path)
    rows = (f"{number}\t{text}\n" for number, text in enumerate(texts))
    atomic.write_text(path, "index\tprediction\n" + "".join(rows))
    return path
