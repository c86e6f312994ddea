import re
from itertools import islice

import pytest

import ludic_gym  # noqa: F401 - registers the environments
from ludic_gym.policies.reference import OraclePolicy
from ludic_train.recipes.catalog import ARITHMETIC, TIC_TAC_TOE
from ludic_train.recipes.catalog import RECIPES as ALL
from ludic_train.runs.evaluation import play
from ludic_train.runs.tasks import demonstration_tasks, evaluation_tasks, training_tasks

RECIPES = pytest.mark.parametrize("recipe", [TIC_TAC_TOE, ARITHMETIC], ids=lambda r: r.name)


@pytest.mark.long
@RECIPES
def test_what_is_measured_is_never_trained_on(recipe):
    measured = {
        task.seed
        for tasks in evaluation_tasks(recipe, recipe.defaults, 2_000).values()
        for task in tasks
    }
    for seed in (0, 1, 2_000):
        trained = {
            task.seed for task in islice(training_tasks(recipe, recipe.defaults, seed), 10_000)
        }
        shown = {
            task.seed
            for task in demonstration_tasks(recipe, recipe.defaults.changed(seed=seed), 20_000)
        }
        assert measured.isdisjoint(trained | shown)
        assert trained.isdisjoint(shown)


def test_recipes_have_no_bonus_that_their_files_do_not_name():
    found = {name: recipe.defaults.learn.entropy for name, recipe in ALL.items()}
    assert found.pop("connect-four") == 0.01
    # None is no bonus for the models that these need.
    assert {name for name, entropy in found.items() if entropy is None} == {
        name for name, recipe in ALL.items() if not recipe.defaults.learn.demonstrations
    }


@RECIPES
def test_every_task_is_seeded_for_env_and_sampling(recipe):
    for task in islice(training_tasks(recipe, recipe.defaults, 3), 100):
        assert task.seed is not None
        assert task.sampling.seed is not None


async def test_the_arithmetic_evaluations_ask_about_held_out_pairs_alone():
    shown = await play(demonstration_tasks(ARITHMETIC, ARITHMETIC.defaults, 400), OraclePolicy)
    asked = await play(
        evaluation_tasks(ARITHMETIC, ARITHMETIC.defaults, 400)["greedy"], OraclePolicy
    )

    def pairs(rollouts):
        texts = [rollout.steps[0].observation for rollout in rollouts]
        return {frozenset(re.findall(r"\d+", text)) for text in texts}

    assert pairs(shown).isdisjoint(pairs(asked))


async def test_the_tic_tac_toe_demonstrations_are_never_lost_in_either_seat():
    games = await play(demonstration_tasks(TIC_TAC_TOE, TIC_TAC_TOE.defaults, 300), OraclePolicy)
    ends = {(game.task.kwargs["seat"], game.steps[-1].info["outcome"]) for game in games}
    assert ends == {(seat, end) for seat in ("first", "second") for end in ("win", "draw")}
