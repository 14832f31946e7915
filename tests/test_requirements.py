"""Bounds of versions, by the rule that stands in requirements.txt, and exact ones that fit them."""

import re

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from tests.scripts import ROOT

# Besides what is still at 0.
BREAKING_IN_MINORS = {"tensorflow", "tensorflow-text", "tensorflow-serving-api", "tensorboard"}


def lines(name: str) -> list[str]:
    text = (ROOT / name).read_text()
    return [line for line in text.splitlines() if line and not line.startswith("#")]


EXACT = {
    canonicalize_name(line.partition("==")[0]): Version(line.partition("==")[2])
    for line in lines("tests/requirements.lock")
}


@pytest.mark.parametrize("file", ["requirements.txt", "tests/requirements.txt"])
def test_upper_bounds_follow_the_rule(file):
    for line in lines(file):
        requirement = Requirement(line)
        tested = EXACT[canonicalize_name(requirement.name)]
        major, minor = tested.release[:2]
        in_minors = not major or requirement.name in BREAKING_IN_MINORS
        bound = f"{major}.{minor + 1}" if in_minors else f"{major + 1}"
        assert re.findall(r"<(?!=)([\d.]+)", line) == [bound], line
        assert tested in requirement.specifier, line
