"""Named sets of flags for pre-training.

    set_recipe_flags(values)  # before the flags are checked

`paper` is the original's defaults. What each flag of `fast` does, tests/paper/recipes.py finds out;
what was measured stands in data/pretraining/README.md. Each of a recipe's flags can be given
besides, and then counts.
"""

from typing import Any

from absl import logging

RECIPES: dict[str, dict[str, Any]] = {
    "paper": {},
    "fast": {
        # Heads that know what is near begin to use it some hundreds of steps sooner.
        "initialization": "local",
        # Orthogonal updates leave the plateau of word frequencies sooner than Adam's.
        "optimizer": "muon",
        "learning_rate": 1.5e-3,
        "lr_schedule": "linear_from_peak",
        # Muon's updates are equally large to the end and let the matrices grow: to root mean
        # squares of 0.06 where 0.04 is the original's, and of 0.05 with this.
        "weight_decay_rate": 0.1,
        # Little text is gone over a few times at most, too few for dropout to help.
        "dropout": False,
    },
}


def set_recipe_flags(values) -> None:
    """Gives a recipe's values to the flags that the command line leaves alone, and says so.

    Args:
        values: The flags' values: `values.recipe`, `values.init_checkpoint` (which says how the
            weights begin), `values[name].present` and `.value`.
    """
    recipe = RECIPES[values.recipe]
    for name, value in recipe.items():
        given = values[name].present or (name == "initialization" and values.init_checkpoint)
        if not given:
            values[name].value = value
    if recipe:
        shown = (f"--{name}={str(values[name].value).lower()}" for name in recipe)
        logging.info("Recipe %s: %s", values.recipe, " ".join(shown))
