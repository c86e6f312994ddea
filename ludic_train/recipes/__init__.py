"""Trainings that run as they are: `ludic train NAME`."""

from ludic_train.recipes.arithmetic import ARITHMETIC
from ludic_train.recipes.recipe import Recipe, RecipeConfig, train
from ludic_train.recipes.tic_tac_toe import TIC_TAC_TOE

__all__ = ["ARITHMETIC", "TIC_TAC_TOE", "Recipe", "RecipeConfig", "train"]
