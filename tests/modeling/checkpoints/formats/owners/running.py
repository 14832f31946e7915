"""The programs of this folder, run by their owners' interpreters, and how outputs are compared."""

import json
import pathlib
import subprocess
from collections.abc import Mapping

import numpy as np

from tests.benchmarks.peers.environment import ROOT

WITHIN = 1e-5
WITHIN_OF_WORDS = 2e-5
"""Of logits over the vocabulary, which are longer sums."""


def run(python: str, program: str, *arguments: str | pathlib.Path) -> None:
    """Runs a program of this folder."""
    module = f"tests.modeling.checkpoints.formats.owners.{program}"
    command = [python, "-m", module, *map(str, arguments)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]


def opened(
    python: str, program: str, inputs: Mapping[pathlib.Path, pathlib.Path]
) -> dict[pathlib.Path, tuple[dict, dict[str, np.ndarray]]]:
    """What a library says of folders and computes with them.

    Args:
        python: Its interpreter.
        program: The one that opens.
        inputs: Folder → file of inputs.

    Returns:
        Folder → report and outputs.
    """
    run(python, program, *(path for pair in inputs.items() for path in pair))
    return {
        folder: (
            json.loads((folder / "report.json").read_text()),
            dict(np.load(folder / "theirs.npz")),
        )
        for folder in inputs
    }


def assert_equal(
    got: Mapping[str, np.ndarray], wanted: Mapping[str, np.ndarray], mask: np.ndarray, what: str
) -> None:
    """Compares all that is wanted; what was computed at padding means nothing."""
    for name, values in wanted.items():
        ours = np.asarray(got[name])
        assert ours.shape == values.shape, f"{what}: {name}"
        if values.shape[:2] == mask.shape:
            ours, values = ours[mask == 1], values[mask == 1]
        within = WITHIN_OF_WORDS if name == "masked_lm_logits" else WITHIN
        np.testing.assert_allclose(ours, values, rtol=0, atol=within, err_msg=f"{what}: {name}")
