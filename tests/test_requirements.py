"""Bounds of versions, by the rule that stands in requirements.txt, and exact ones that fit them."""

import re
import shutil
import subprocess
import sys
import zipfile

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


@pytest.mark.slow
def test_the_wheel_has_all_of_both_packages(tmp_path):
    """`pip install .`, and what workers of a cluster install, is what lies here."""
    command = ["git", "ls-files", "-co", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for name in listed.splitlines():
        if (ROOT / name).exists():
            (tmp_path / "tree" / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, tmp_path / "tree" / name)
    command = [sys.executable, "-m", "uv", "build", "-q", "--wheel", "-o", "out", "."]
    subprocess.run(command, cwd=tmp_path / "tree", check=True)
    (wheel,) = (tmp_path / "tree" / "out").glob("*.whl")
    with zipfile.ZipFile(wheel) as opened:
        inside = [name for name in opened.namelist() if ".dist-info/" not in name]
        (about,) = (n for n in opened.namelist() if n.endswith("METADATA"))
        asked = re.findall("^Requires-Dist: (.*)$", opened.read(about).decode(), re.MULTILINE)
    documents = (".md", ".png")
    wanted = [n for n in listed.splitlines() if n.startswith(("data/", "modeling/"))]
    assert sorted(inside) == sorted(n for n in wanted if not n.endswith(documents))
    assert {*map(Requirement, asked)} == {*map(Requirement, lines("requirements.txt"))}
