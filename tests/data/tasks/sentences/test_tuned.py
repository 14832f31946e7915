"""What is tuned is kept beside the weights it is for, and refused where nothing can be tuned."""

import json
from types import SimpleNamespace

import pytest

from data.errors import DataError
from data.tasks.sentences import tuned
from data.tasks.sentences.examples import SentenceKind

LABELS = ["good", "bad"]
OF_KINDS = {
    SentenceKind.CLASSES: {"temperature": 1.5},
    SentenceKind.CHOICES: {"temperature": 1.5},
    SentenceKind.MULTI_LABEL: {"label_thresholds": [0.25, 0.5]},
}


class Values(dict):
    """Flag values."""

    def __init__(self, **values):
        defaults = {"do_train": False, "do_eval": False, "init_checkpoint": None}
        defaults |= {"temperature": "1", "label_thresholds": "0.5"}
        super().__init__({k: SimpleNamespace(value=v) for k, v in (defaults | values).items()})

    def __getattr__(self, name):
        return self[name].value


@pytest.mark.parametrize("kind", SentenceKind)
def test_refused_where_there_is_nothing_to_tune(kind):
    tuned.check_tuned_flags(Values(do_train=True), kind)
    for flag in ("temperature", "label_thresholds"):
        values = {flag: "tuned"}
        if flag not in OF_KINDS.get(kind, ()):
            with pytest.raises(DataError, match=f"--{flag}=tuned is for .*are {kind.value}"):
                tuned.check_tuned_flags(Values(**values), kind)
            continue
        tuned.check_tuned_flags(Values(**values), kind)
        tuned.check_tuned_flags(Values(do_train=True, do_eval=True, **values), kind)
        with pytest.raises(DataError, match=f"--{flag}=tuned with --do_train needs --do_eval"):
            tuned.check_tuned_flags(Values(do_train=True, **values), kind)


@pytest.mark.parametrize("kind", OF_KINDS)
def test_kept_beside_the_weights(tmp_path, kind):
    here, there = (str(tmp_path / name) for name in ("here", "there"))
    (tmp_path / "there").mkdir()
    (tmp_path / "here").mkdir()
    (flag,) = OF_KINDS[kind]
    values = Values(output_dir=here, init_checkpoint=f"{there}/model.ckpt-3")
    with pytest.raises(DataError, match=f"--{flag}=tuned needs {flag}.json. --do_eval writes it"):
        tuned.kept_tuned(values, kind, LABELS)
    tuned.keep_tuned(there, LABELS, OF_KINDS[kind], "trained")
    assert tuned.kept_tuned(values, kind, LABELS, "trained") == OF_KINDS[kind]
    with pytest.raises(DataError, match=f"{flag}.json: found for other weights"):
        tuned.kept_tuned(values, kind, LABELS, "other")
    assert tuned.kept_tuned(values, kind, LABELS) == OF_KINDS[kind]
    # In whatever order the labels are.
    assert tuned.kept_tuned(values, kind, LABELS[::-1]) == {
        name: value[::-1] if isinstance(value, list) else value
        for name, value in OF_KINDS[kind].items()
    }


@pytest.mark.parametrize(
    "content",
    ["", "[", "[" * 5000, "1.5", "[1.5]", '{"other": 1}', '{"temperature": 1, "other": 1}']
    + [json.dumps({"temperature": value}) for value in ("high", None, float("nan"), [1])],
)
def test_something_else_is_named(tmp_path, content):
    (tmp_path / "temperature.json").write_text(content)
    with pytest.raises(DataError, match=r"temperature\.json doesn't hold .*--do_eval writes it"):
        tuned.kept_tuned(Values(output_dir=str(tmp_path)), SentenceKind.CLASSES, LABELS)


@pytest.mark.parametrize("value", [0, -1.5])
def test_a_temperature_is_above_0(tmp_path, value):
    (tmp_path / "temperature.json").write_text(json.dumps({"temperature": value}))
    with pytest.raises(DataError, match=f"temperature.json holds {float(value)}; .*--do_eval"):
        tuned.kept_tuned(Values(output_dir=str(tmp_path)), SentenceKind.CLASSES, LABELS)
