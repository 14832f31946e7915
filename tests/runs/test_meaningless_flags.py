"""Numbers and texts that no flag can mean are refused by name before anything is read."""

import json
import re
from types import SimpleNamespace

import pytest
from absl import flags

from data.errors import DataError
from data.tasks.questions import reading, scoring
from modeling import errors
from modeling.training.phases import parse_phases
from modeling.training.settings import search_trials, training_class_weights
from tests.scripts import ROOT, fail, run

COMMANDS = ("run_classifier", "run_ner", "run_pretraining", "run_squad")
COMMANDS += ("data.create_pretraining_data", "data.learn_vocabulary", "data.inspect_records")
COMMANDS += ("modeling.extract_features", "modeling.predict", "modeling.try_it")
# Prints what a command takes of every one of its flags with numbers.
_TRIALS = """
import importlib, json, sys
from absl import flags
module = importlib.import_module(sys.argv[1])
from modeling import errors
taken, tried = [], 0
for of in flags.FLAGS.flags_by_module_dict().items():
    if of[0].partition(".")[0] in ("absl", "tensorflow", "keras"):
        continue
    for flag in of[1]:
        values = {"float": ["nan", "inf", "-inf", "1e999", "-1", ""]}
        values["int"] = [str(10**20), "", "nan"]
        for value in values.get(flag.flag_type(), []):
            tried += 1
            flags.FLAGS.unparse_flags()
            try:
                flags.FLAGS([sys.argv[1], f"--{flag.name}={value}"])
                errors.check_given_flags(flags.FLAGS)
                taken.append(f"--{flag.name}={value}")
            except (flags.Error, errors.ModelingError) as error:
                assert flag.name in str(error), error
            flag.unparse()
            flag.present = 0
print("\\n" + json.dumps([tried, taken]))
"""
# These say themselves what they can be; see `data.pretraining.instances.masking` and others.
LATER = {"dev_fraction", "masked_lm_prob", "mask_share", "random_share", "short_seq_prob"}
LATER |= {"heldout_share"}


@pytest.mark.parametrize("command", COMMANDS)
def test_no_flag_takes_what_it_cannot_mean(command):
    ended = run("-c", _TRIALS, command)
    assert ended.returncode == 0, ended.stderr[-2000:]
    tried, taken = json.loads(ended.stdout.splitlines()[-1])
    assert tried >= 3
    assert {flag for flag in taken if flag[2:].partition("=")[0] not in LATER} == set()
    assert all(flag.endswith("=-1") for flag in taken)


def values_of(**given) -> flags.FlagValues:
    """Flags as a command line gives them: texts, and lists with commas."""
    values = flags.FlagValues()
    flags.DEFINE_string("init_checkpoint", None, "", flag_values=values)
    flags.DEFINE_string("word_separator", " ", "", flag_values=values)
    flags.DEFINE_float("learning_rate", 1e-4, "", flag_values=values)
    flags.DEFINE_integer("num_runs", 1, "", flag_values=values)
    flags.DEFINE_integer("random_seed", 1, "", flag_values=values)
    flags.DEFINE_integer("train_batch_size", 8, "", flag_values=values)
    flags.DEFINE_float("num_train_epochs", 3.0, "", flag_values=values)
    for name in ("num_train_steps", "train_batch_tokens"):
        flags.DEFINE_integer(name, 0, "", flag_values=values)
    for name in ("class_weights", "learning_rates", "batch_sizes", "epochs", "epochs_per_file"):
        flags.DEFINE_list(name, [], "", flag_values=values)
    values(["command", *(f"--{name}={value}" for name, value in given.items())])
    return values


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("init_checkpoint", "", "is given, but empty"),
        ("class_weights", "", "is given, but empty"),
        ("learning_rate", "nan", "is nan; a number that is finite"),
        ("num_train_epochs", "inf", "is inf; a number that is finite"),
        ("num_runs", 2**31, "2147483648; a number"),
    ],
)
def test_what_no_flag_can_mean(name, value, words):
    with pytest.raises(errors.ModelingError, match=f"--{name}.*{words}"):
        errors.check_given_flags(values_of(**{name: value}))


def test_what_flags_can_mean():
    errors.check_given_flags(values_of())
    errors.check_given_flags(values_of(word_separator="", learning_rate=1e30, num_runs=2**31 - 1))


@pytest.mark.parametrize("value", ["nan,1", "-1,1", "inf,1", "0,0", "a,b", "balanced,1", "1,"])
def test_class_weights(value):
    with pytest.raises(errors.ModelingError, match=r"--class_weights is .* from 0 on"):
        training_class_weights(values_of(class_weights=value))


def test_class_weights_that_count():
    assert training_class_weights(values_of(class_weights="0,2.5")) == [0.0, 2.5]
    assert training_class_weights(values_of(class_weights="balanced")) is None
    assert training_class_weights(values_of()) is None


@pytest.mark.parametrize("name", ["learning_rates", "batch_sizes", "epochs"])
@pytest.mark.parametrize("value", ["nan,1", "inf,1", "0,1", "-1,1", "a"])
def test_lists_of_a_search(name, value):
    with pytest.raises(errors.ModelingError, match=f"--{name} is .* has to be positive"):
        search_trials(values_of(**{name: value}))


@pytest.mark.parametrize(
    ("searched", "other"),
    [
        ("epochs", "num_train_steps"),
        ("epochs", "epochs_per_file"),
        ("batch_sizes", "train_batch_tokens"),
    ],
)
def test_a_search_over_nothing(searched, other):
    with pytest.raises(errors.ModelingError, match=f"--{searched} .*--{other} says it already"):
        search_trials(values_of(**{searched: "2,3", other: "8"}))
    assert search_trials(values_of(**{other: "8"}))


def test_a_batch_of_a_search_has_a_bound():
    with pytest.raises(errors.ModelingError, match="whole numbers up to 100000"):
        search_trials(values_of(batch_sizes="8,1000000000"))


@pytest.mark.parametrize("value", ["nan", "inf", "-1", "0", "1e999", "x", "1,2"])
def test_epochs_of_a_file(value):
    given = {"train_file": ["a.json"], "num_train_steps": 0}
    values = SimpleNamespace(epochs_per_file=value.split(","), **given)
    with pytest.raises(DataError, match=r"--epochs_per_file is .* above 0"):
        reading.question_epochs_per_file(values)


def test_epochs_of_a_file_or_steps():
    given = {"train_file": ["a.json"], "epochs_per_file": ["0.5"]}
    assert reading.question_epochs_per_file(SimpleNamespace(num_train_steps=0, **given)) == [0.5]
    with pytest.raises(DataError, match=r"--num_train_steps=4, .* give one of them"):
        reading.question_epochs_per_file(SimpleNamespace(num_train_steps=4, **given))


@pytest.mark.parametrize("value", ["nan", "inf", "-inf", "x"])
def test_threshold_of_the_empty_answer(value):
    flag_values = {"null_score_diff_threshold": value, "output_dir": "", "characters": False}
    with pytest.raises(DataError, match=r"--null_score_diff_threshold is .* a number or auto"):
        scoring.Scoring(SimpleNamespace(version_2_with_negative=True, **flag_values))


@pytest.mark.parametrize("text", ["8:2:8:1000000000", "8:" + "9" * 5000 + ":8", "99999999:2:8"])
def test_phases(text):
    with pytest.raises(errors.ModelingError, match="--phases"):
        parse_phases(text)


def test_every_command_has_its_flags_looked_at():
    for command in COMMANDS:
        text = (ROOT / f"{command.replace('.', '/')}.py").read_text()
        assert re.search(r"run\(main, (DataError, )?flag_values=FLAGS", text), command


def test_a_script_says_so_before_it_reads_anything():
    files = (
        "--vocab_file=none",
        "--bert_config_file=none",
        "--output_dir=none",
        "--task_name=cola",
    )
    message = fail("run_classifier.py", *files, "--do_train", "--learning_rate=nan")
    assert message.startswith("--learning_rate is nan")
    message = fail("run_classifier.py", *files, "--do_train", "--init_checkpoint=")
    assert message.startswith("--init_checkpoint is given, but empty")
    message = fail("run_classifier.py", *files, "--do_train", "--class_weights=-1,1")
    assert message.startswith("--class_weights is -1,1")
