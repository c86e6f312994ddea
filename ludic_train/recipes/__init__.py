"""Trainings that run as they are: `ludic train NAME`."""

from ludic_train.recipes.arithmetic import ARITHMETIC
from ludic_train.recipes.recipe import Recipe, RecipeConfig, train
from ludic_train.recipes.tic_tac_toe import TIC_TAC_TOE

RECIPES = {recipe.name: recipe for recipe in (TIC_TAC_TOE, ARITHMETIC)}

__all__ = ["ARITHMETIC", "RECIPES", "TIC_TAC_TOE", "Recipe", "RecipeConfig", "train"]
