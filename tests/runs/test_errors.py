"""How scripts end at a user's mistake: a paragraph, and where to look for who asks."""

from tests.scripts import run

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
