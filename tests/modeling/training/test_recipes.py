"""Recipes: what they set, and that what is given counts."""

import types

import pytest

from modeling.training.recipes import RECIPES, set_recipe_flags
from tests.scripts import succeed


class Values(dict):
    """Stands in for absl's flag values."""

    def __getattr__(self, name):
        return self[name].value


def values(recipe, init_checkpoint=None, **given):
    names = {"recipe", *(name for flags in RECIPES.values() for name in flags)}
    flag = {
        n: types.SimpleNamespace(value=given.get(n, "default"), present=n in given) for n in names
    }
    flag["recipe"].value = recipe
    flag["init_checkpoint"] = types.SimpleNamespace(value=init_checkpoint, present=False)
    return Values(flag)


@pytest.mark.parametrize("recipe", list(RECIPES))
def test_what_is_given_counts(recipe, caplog):
    caplog.set_level("INFO")
    untouched = values(recipe)
    set_recipe_flags(untouched)
    for name, value in RECIPES[recipe].items():
        assert untouched[name].value == value
        kept = values(recipe, **{name: "mine"})
        set_recipe_flags(kept)
        assert kept[name].value == "mine" and f"--{name}=mine" in caplog.messages[-1]
    others = untouched.keys() - RECIPES[recipe].keys() - {"recipe", "init_checkpoint"}
    assert all(untouched[name].value == "default" for name in others)


def test_given_weights_say_how_they_begin(caplog):
    caplog.set_level("INFO")
    found = values("fast", init_checkpoint="released")
    set_recipe_flags(found)
    assert found.initialization == "default" and found.optimizer == "muon"
    assert "--initialization=default" in caplog.messages[-1]


def test_paper_changes_nothing(caplog):
    caplog.set_level("INFO")
    given = values("paper")
    set_recipe_flags(given)
    assert RECIPES["paper"] == {} and not caplog.messages


def test_help_names_each_flag():
    text = " ".join(succeed("run_pretraining.py", "--help").split())
    assert (
        "--initialization=local --optimizer=muon --learning_rate=0.0015 "
        "--lr_schedule=linear_from_peak --weight_decay_rate=0.1 --dropout=false"
    ) in text
