"""The recipes by name."""

from __future__ import annotations

from ludic_train.recipes.arithmetic import ARITHMETIC
from ludic_train.recipes.tic_tac_toe import TIC_TAC_TOE

RECIPES = {recipe.name: recipe for recipe in (TIC_TAC_TOE, ARITHMETIC)}
