"""Recipes by name: trainings that run as they are, with `ludic train NAME`.

    from ludic_train import TIC_TAC_TOE, train_recipe
    results = await train_recipe(TIC_TAC_TOE, TIC_TAC_TOE.defaults.changed(out=Path("runs/a")))

Each is a TOML file of this folder. A recipe of your own is such a file (`ludic train --config`), or
a `Recipe` in Python (`ludic train module:RECIPE`, `train_recipe`); it need not be named here.
"""

from __future__ import annotations

from pathlib import Path

from ludic_train.runs.config_file import read_recipe
from ludic_train.runs.recipe import Recipe

# In the order of `ludic train --help`.
NAMES = (
    "tic-tac-toe",
    "arithmetic",
    "gsm8k",
    "math",
    "python-functions",
    "tool-calls",
    "connect-four",
)

RECIPES: dict[str, Recipe] = {
    name: read_recipe(Path(__file__).with_name(f"{name}.toml"))[0] for name in NAMES
}

TIC_TAC_TOE = RECIPES["tic-tac-toe"]
"""Recipe of `ludic train tic-tac-toe`."""

ARITHMETIC = RECIPES["arithmetic"]
"""Recipe of `ludic train arithmetic`."""
