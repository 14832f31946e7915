"""How scripts end at a user's mistake: a paragraph, and where to look for who asks."""

import subprocess
import sys

from tests.scripts import ROOT, fail, run

PROGRAM = """
from modeling import errors

def deep_inside():
    with open("/no/such/file"):
        pass

errors.run(lambda _: deep_inside())
"""


def test_the_traceback_is_there_for_who_asks():
    plain, asked = run("-c", PROGRAM), run("-c", PROGRAM, "--verbosity=1")
    paragraph = "\nError: [Errno 2] No such file or directory: '/no/such/file'\n"
    for ended in (plain, asked):
        assert ended.returncode == 1
        assert ended.stderr.endswith(paragraph)
    assert "Traceback" not in plain.stderr and "deep_inside" not in plain.stderr
    assert "Traceback (most recent call last)" in asked.stderr
    assert "in deep_inside" in asked.stderr


def test_tensorflow_is_left_to_who_needs_it():
    """Pages of --help come without it; a file that it misses is a user's mistake all the same."""
    lines = "import sys, modeling.errors, modeling.logs; assert 'tensorflow' not in sys.modules"
    subprocess.run([sys.executable, "-c", lines], cwd=ROOT, check=True)
    opening = 'import tensorflow as tf\n    tf.io.gfile.GFile("/no/such/file").read()'
    program = PROGRAM.replace('with open("/no/such/file"):\n        pass', opening)
    assert program != PROGRAM
    assert "/no/such/file; No such file" in fail("-c", program)
