"""--help shows every flag of a script with its default, at once and without TensorFlow."""

import re
import subprocess
import sys

import pytest

from data.tasks.sentences import flags as sentence_flags
from data.tasks.sentences import glue, multiple_choice
from data.tokenization import long_texts
from tests.scripts import ROOT

SCRIPTS = ("run_classifier.py", "run_ner.py", "run_pretraining.py", "run_squad.py")
# Prints what absl knows, its own flags and TensorFlow's left out.
LISTING = """
import importlib, sys
from absl import flags
importlib.import_module(sys.argv[1])
for module, of_module in flags.FLAGS.flags_by_module_dict().items():
    if module.partition(".")[0] not in ("absl", "tensorflow", "keras"):
        for flag in of_module:
            print(flag.name)
"""


@pytest.mark.slow
@pytest.mark.parametrize("script", SCRIPTS)
def test_every_flag_and_none_of_others(script):
    listed = subprocess.run(
        [sys.executable, "-c", LISTING, script.removesuffix(".py")],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.split()
    # An import of TensorFlow would fail, and with it the command.
    blocked = "import sys, runpy; sys.modules['tensorflow'] = sys.modules['keras'] = None; "
    blocked += f"sys.argv = ['{script}', '--help']; runpy.run_path('{script}', run_name='__main__')"
    page = subprocess.run(
        [sys.executable, "-c", blocked], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout
    assert sorted(re.findall(r"^  --(\w+)=", page, re.MULTILINE)) == sorted(listed)
    assert " ".join(page.split()).count(" (default: ") == len(listed) > 40
    titles = re.findall(r"^(\w+):$", page, re.MULTILINE)
    assert titles == ["Data", "Model", "Training", "Hardware", "Export"]
    assert page.startswith(("Fine-tunes BERT", "Pre-trains BERT"))
    assert max(map(len, page.splitlines())) <= 100


def test_names_that_flags_repeat_are_those_of_the_code():
    """They are written down where no TensorFlow is imported."""
    names = {name.partition("-")[0] if "xnli" in name else name for name in glue.task_names()}
    assert {*names, *multiple_choice.NAMES} == {*sentence_flags.TASKS}
    assert sentence_flags.LONG_TEXT == long_texts.LONG_TEXT
    assert sentence_flags.MAX_WINDOWS == long_texts.MAX_WINDOWS
