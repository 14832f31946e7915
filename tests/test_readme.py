"""The README names every flag that there is, and none that isn't."""

import re

from tests.scripts import ROOT

DEFINED = re.compile(r'DEFINE_\w+\(\s*"(\w+)"')
NAMED = re.compile(r"--([a-z]\w+)")
# Those of absl, pip, saved_model_cli and TF Serving.
FOREIGN = {
    *("help", "no", "dir", "tag_set", "signature_def"),
    *("model_config_file", "enable_batching", "batching_parameters_file"),
    *("project", "region", "temp_location", "setup_file"),  # of Apache Beam
    # Of tests/benchmarks/:
    *("minilm", "curves", "lengths", "tasks", "records", "calibrate", "megabytes", "beam_python"),
    *("rounds", "cases"),
    *("scale", "shared", "work", "seeds", "released"),  # of tests/paper/
}


def test_flags():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    sources = [*ROOT.glob("run_*.py"), *ROOT.glob("data/**/*.py"), *ROOT.glob("modeling/**/*.py")]
    defined = {flag for path in sources for flag in DEFINED.findall(path.read_text("utf-8"))}
    assert len(defined) > 100
    assert sorted(defined - set(NAMED.findall(text))) == []
    assert sorted(set(NAMED.findall(text)) - defined - FOREIGN) == []
