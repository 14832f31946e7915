"""A search on a terminal, one of whose runs diverges."""

import re

import pytest

from tests import test_run_classifier
from tests.scripts import run
from tests.test_run_classifier import command

folder = test_run_classifier.folder

# As on a terminal; says what the search has left of the bars.
PROGRAM = """
import sys
sys.stderr.isatty = lambda: True
from tqdm import tqdm
import run_classifier
from modeling import errors, logs

def main(arguments):
    run_classifier.main(arguments)
    print("under way", [one.what for one in logs._under_way])
    print("bars", len(tqdm._instances))

logs._BAR_SECONDS = 0.0
sys.argv[:2] = ["run_classifier.py"]
errors.run(main)
"""


@pytest.mark.slow
def test_a_run_that_diverges_leaves_no_bar(folder):
    search = ("--do_train", "--learning_rates=1e30,1e-3,1e-4", "--num_train_steps=4")
    ended = run("-c", PROGRAM, *command(folder, "bar", *search, "--num_train_epochs=1"))
    assert ended.returncode == 0, ended.stderr[-3000:]
    assert ended.stderr.count("This run has diverged") == 1
    assert ended.stderr.count("Search: run ") == 3
    assert "under way []" in ended.stdout, ended.stdout
    assert "bars 0" in ended.stdout
    # The bar of the run that has diverged is wiped away for good.
    after = ended.stderr.partition("This run has diverged")[2]
    bars = [line for line in after.replace("\r", "\n").split("\n") if "Training  " in line]
    assert bars and not [bar for bar in bars if re.search(r"lr \S*e\+", bar)]
