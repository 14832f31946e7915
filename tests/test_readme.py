"""The README names every flag that there is, and none that isn't."""

import re

from tests.scripts import ROOT

DEFINED = re.compile(r'DEFINE_\w+\(\s*"(\w+)"')
NAMED = re.compile(r"--([a-z]\w+)")
# absl's own, and an option of pip.
FOREIGN = {"help", "no"}


def test_flags():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    sources = [*ROOT.glob("run_*.py"), *ROOT.glob("data/**/*.py"), *ROOT.glob("modeling/**/*.py")]
    defined = {flag for path in sources for flag in DEFINED.findall(path.read_text("utf-8"))}
    assert len(defined) > 100
    assert sorted(defined - set(NAMED.findall(text))) == []
    assert sorted(set(NAMED.findall(text)) - defined - FOREIGN) == []
