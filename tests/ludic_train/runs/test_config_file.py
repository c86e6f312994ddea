"""Recipes in TOML: read, refused, written, read again."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from ludic_gym.errors import ConfigError
from ludic_train.recipes.catalog import RECIPES
from ludic_train.runs.config_file import parse_recipe, read_recipe, recipe_toml
from ludic_train.runs.machine import Machine
from ludic_train.runs.recipe import EvalTasks, TrainEnv


@pytest.mark.parametrize("recipe", RECIPES.values(), ids=lambda recipe: recipe.name)
def test_what_is_written_reads_back_equal(recipe):
    config = recipe.defaults.changed(lr=0.5, algo="ppo", algo_options={"lam": 0.9})
    machine = Machine(queue="redis://x", engine=("http://a", "http://b"))
    assert parse_recipe(recipe_toml(recipe, config, machine)) == (
        replace(recipe, defaults=config),
        machine,
    )


def test_an_id_is_all_that_a_file_needs():
    recipe, machine = parse_recipe('envs = ["ludic/Wordle-v0"]')
    assert recipe.envs == [TrainEnv(id="ludic/Wordle-v0")]
    assert recipe.evals == {"test": EvalTasks(id="ludic/Wordle-v0")}
    assert recipe.defaults.out == Path("runs/wordle")
    assert machine == Machine()


def test_names_are_those_of_the_options_with_either_dash():
    text = 'envs = ["a/B-v0"]\ngroup-size = 4\nlora_rank = 2\nmodel = "m"'
    settings = parse_recipe(text)[0].defaults
    assert (settings.learn.group_size, settings.tune.lora_rank) == (4, 2)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("update = 3", r"no setting 'update'; did you mean 'updates'\?"),
        ("zzz = 3", r"no setting 'zzz'; it has: .*updates"),
        ('updates = "many"', r"Expected `int`, got `str` - at `learn.updates`"),
        ("updates = 0", "updates must be at least 1, got 0"),
        ('algo = "grop"', "no algorithm 'grop'; there are: reinforce"),
        ("[algo_options]\nclop = 1", r"grpo has no option 'clop'; did you mean 'clip'\?"),
        ('[evals.test]\nkwarg = "x"', r"\[evals.test\] has no setting 'kwarg'; did you mean"),
        ("updates = = 3", "no TOML: .*line 2"),
        ('engine = ["vlm"]', "engine=vlm: it is local, vllm, join, or addresses"),
        ('parser = "xlm:a"', "no parser 'xlm:a'; there are: think, xml:TAG"),
    ],
)
def test_what_is_wrong_is_named_with_its_file(tmp_path, line, said):
    path = tmp_path / "run.toml"
    path.write_text(f'envs = ["a/B-v0"]\n{line}\n')
    with pytest.raises(ConfigError, match=rf"run\.toml: .*{said}"):
        read_recipe(path)


def test_a_file_that_names_nothing_to_learn_from_is_refused():
    with pytest.raises(ConfigError, match="a config names what to learn from"):
        parse_recipe("updates = 3")


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"cannot read the config .*none\.toml: No such file"):
        read_recipe(tmp_path / "none.toml")


@pytest.mark.parametrize("url", ["nonsense", "file://", "http://host", "redis://[", "redis://h:x"])
def test_a_url_that_names_no_queue_is_refused_before_anything_is_played(url):
    with pytest.raises(ConfigError, match=f"{re.escape(repr(url))} names no queue"):
        Machine(queue=url)


@pytest.mark.parametrize("url", ["http://[", "http://host:x", "http://", "host:8000"])
def test_an_address_that_cannot_be_read_is_no_engine(url):
    with pytest.raises(ConfigError, match="addresses of servers"):
        Machine(engine=(url,))
