"""Runs with a curriculum: their tasks, the command line, and a run that is killed in its course."""

from collections import Counter
from itertools import islice

import pytest

import ludic_train as lt
from envs_registry.catalog import CATALOG
from ludic_gym.errors import ConfigError
from ludic_train.commands.train import parsed
from ludic_train.loggers.loggers import read_metrics
from ludic_train.runs.config_file import parse_recipe, recipe_toml
from ludic_train.runs.recipe import recipe_for, with_curriculum
from ludic_train.runs.tasks import demonstration_tasks, evaluation_tasks, training_tasks

SUMS = "ludic/Arithmetic-v0"


def drawn(recipe, levels, number=200):
    """Numbers of tasks by their arguments."""
    tasks = training_tasks(recipe, recipe.defaults, 0, levels)
    return Counter(tuple(task.kwargs.items()) for task in islice(tasks, number))


def test_tasks_are_of_the_current_level_and_evaluations_of_the_hardest():
    recipe = parsed([SUMS], ["--curriculum", "--env-kwargs", "split=train"]).recipe
    assert drawn(recipe, {}) == {(("split", "train"), ("digits", 1)): 200}
    digits = Counter({dict(kwargs)["digits"]: n for kwargs, n in drawn(recipe, {SUMS: 2}).items()})
    # 20 % of 200 come from the two easier levels, within 4 standard deviations.
    assert digits[4] == pytest.approx(160, abs=23)
    assert digits[1] + digits[2] == 200 - digits[4]
    (test,) = evaluation_tasks(recipe, recipe.defaults, 1)["test"]
    assert dict(test.kwargs) == {"split": "train", "digits": 4}
    shown = Counter(t.kwargs["digits"] for t in demonstration_tasks(recipe, recipe.defaults, 9))
    assert shown == {1: 3, 2: 3, 4: 3}


def test_the_level_of_evaluations_can_be_chosen():
    recipe = parsed([SUMS], ["--curriculum", "--eval-kwargs", "digits=2", "split=test"]).recipe
    (test,) = evaluation_tasks(recipe, recipe.defaults, 1)["test"]
    assert dict(test.kwargs) == {"digits": 2, "split": "test"}


def test_levels_of_ones_own_stand_in_place_of_the_catalogues():
    recipe = parsed([SUMS], ["--levels", "digits=1", "digits=3"]).recipe
    assert recipe.curriculum == lt.LevelSchedule(levels={SUMS: [{"digits": 1}, {"digits": 3}]})
    with pytest.raises(ConfigError, match="has 1 levels"):
        parsed([SUMS], ["--levels", "digits=1"])


def test_a_curriculum_is_part_of_the_settings_in_a_file():
    recipe = with_curriculum(recipe_for([SUMS, "ludic/ConnectFour-v0"], model="m"))
    text = recipe_toml(recipe, recipe.defaults)
    assert parse_recipe(text)[0].curriculum == recipe.curriculum
    with pytest.raises(ConfigError, match="has no setting 'windows'; did you mean"):
        parse_recipe(f'envs = ["{SUMS}"]\n[curriculum]\nwindows = 3\nlevels = {{}}')
    own = 'levels = { "ludic/ConnectFour-v0" = [{ opponent = "random" }, { opponent = "search" }] }'
    with pytest.raises(ConfigError, match=r"levels of \['ludic/ConnectFour-v0'\]"):
        parse_recipe(f'envs = ["{SUMS}"]\n[curriculum]\n{own}')


def test_an_environment_without_levels_is_refused_with_those_that_have_some():
    with pytest.raises(ConfigError) as refused:
        parsed(["ludic/KuhnPoker-v0"], ["--curriculum"])
    assert "ludic/KuhnPoker-v0 has no levels" in str(refused.value)
    assert all(entry.id in str(refused.value) for entry in CATALOG if entry.levels[1])


def test_what_cannot_be_meant_together_is_refused():
    with pytest.raises(ConfigError, match=r"digits of .* leave out digits=3"):
        parsed([SUMS], ["--curriculum", "--env-kwargs", "digits=3"])
    with pytest.raises(ConfigError, match="one player"):
        parsed(["ludic/ConnectFour-v0"], ["--curriculum", "--self-play"])
    with pytest.raises(ConfigError, match=r"leave out .* --curriculum"):
        parsed([], ["--resume", "--curriculum", "--out", "runs/x"])


def test_rows_are_held_out_at_every_level_of_a_data_set():
    recipe = with_curriculum(recipe_for(["ludic/MATH-v0"], model="m"))
    levels = recipe.curriculum.levels["ludic/MATH-v0"]
    assert levels[0] == {"level": 1}
    measured = evaluation_tasks(recipe, recipe.defaults, 500)["test"]
    held_out = {(task.kwargs["level"], task.options["row"]) for task in measured}
    for current in range(len(levels)):
        tasks = training_tasks(recipe, recipe.defaults, 0, {"ludic/MATH-v0": current})
        learned = {(t.kwargs["level"], t.options["row"]) for t in islice(tasks, 100)}
        assert learned
        assert not learned & held_out


class Stopped(Exception):
    """A crash in the middle of a run."""


def learned(out, *, crash_at=None, resume=False):
    """The params after a small run, to the bit, and the levels of its updates."""
    episodes = 0

    def reward(rollout):
        nonlocal episodes
        episodes += 1
        if episodes == crash_at:
            raise Stopped
        return rollout.total_reward

    levels = lt.LevelSchedule(
        levels={"ludic/GuessTheNumber-v0": [{"high": 2}, {"high": 4}]},
        raise_at=0.1,
        lower_at=0.0,
        window=8,
    )
    settings = {
        "demonstrations": 200,
        "sft_updates": 16,
        "updates": 6,
        "groups": 4,
        "group_size": 2,
    }
    settings |= {"sft_lr": 0.01, "eval_every": 2, "eval_episodes": 4, "final_episodes": 4}
    lt.train(
        "ludic/ConnectFour-v0",
        algo="reinforce",
        curriculum=levels,
        out=out,
        reward=reward,
        resume=resume,
        preflight=False,
        **settings,
    )
    moves = [line["level"] for line in read_metrics(out / "metrics.jsonl") if "level" in line]
    return (out / "model" / "model.safetensors").read_bytes(), moves


@pytest.mark.slow
def test_a_run_that_crashed_above_its_first_level_goes_on_bit_for_bit(tmp_path):
    params, moves = learned(tmp_path / "straight")
    assert (moves[0], moves[-1], len(moves)) == (0, 1, 6)
    # In the fifth of six batches of eight episodes, after a checkpoint of four.
    with pytest.raises(Stopped):
        learned(tmp_path / "crashed", crash_at=36)
    assert learned(tmp_path / "crashed", resume=True) == (params, moves)
