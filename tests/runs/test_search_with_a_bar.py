"""A search on a terminal, one of whose runs diverges."""

import re

from tests import test_run_classifier
from tests.scripts import run
from tests.test_run_classifier import command

folder = test_run_classifier.folder

# As on a terminal; says what the search has left of the bars.
PROGRAM = """
import logging, sys
sys.stderr.isatty = lambda: True
from absl import app, flags
from absl import logging as absl_logging
from tqdm import tqdm
import run_classifier

def main(arguments):
    absl_logging.use_absl_handler()
    before = list(logging.getLogger().handlers)
    run_classifier.main(arguments)
    same = list(logging.getLogger().handlers) == before
    print("handlers", "as before" if same else logging.getLogger().handlers)
    print("bars", len(tqdm._instances))

absl_logging.set_verbosity(absl_logging.INFO)
app.run(main, ["run_classifier.py", *sys.argv[2:]])
"""


def test_a_run_that_diverges_leaves_no_bar_and_no_handler(folder):
    search = ("--do_train", "--learning_rates=1e30,1e-3,1e-4", "--num_train_steps=4")
    ended = run("-c", PROGRAM, *command(folder, "bar", *search, "--num_train_epochs=1"))
    assert ended.returncode == 0, ended.stderr[-3000:]
    assert ended.stderr.count("This run has diverged") == 1
    assert ended.stderr.count("Search: run ") == 3
    assert "handlers as before" in ended.stdout, ended.stdout
    assert "bars 0" in ended.stdout
    # The bar of the run that has diverged is wiped away for good.
    after = ended.stderr.partition("This run has diverged")[2]
    bars = [line for line in after.replace("\r", "\n").split("\n") if "| step" in line]
    assert bars and not [bar for bar in bars if re.search(r"lr \S*e\+", bar)]
