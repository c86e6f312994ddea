import json
import math
import tomllib
from dataclasses import replace

import pytest

from ludic_gym.errors import ConfigError
from ludic_gym.recorder import read_recorded
from ludic_gym.types import Episode, Task
from ludic_train.checkpoints.manager import CheckpointManager
from ludic_train.recipes.catalog import ARITHMETIC, RECIPES, TIC_TAC_TOE
from ludic_train.runs.folder import (
    forget_after_checkpoint,
    open_run,
    resumable,
    run_recorder,
    started_recipe,
)
from ludic_train.runs.machine import Machine

USUAL = TIC_TAC_TOE.defaults


@pytest.fixture
def config(tmp_path):
    return USUAL.changed(out=tmp_path / "run", lr=0.01)


def start(config, *, save=True):
    """A new run, with a checkpoint after its first update."""
    open_run(TIC_TAC_TOE, config, resume=False)
    if save:
        CheckpointManager(config.out / "checkpoints").save(
            1, write_model=lambda folder: folder.mkdir(exist_ok=True), tensors={}, state={}
        )


def test_a_new_run_writes_its_recipe_and_config(config):
    start(config)
    written = tomllib.loads((config.out / "config.toml").read_text())
    assert written["name"] == "tic-tac-toe"
    assert written["evals"]["perfect_first"]["kwargs"] == {
        "opponent": "perfect",
        "seat": "first",
    }
    assert (written["learn"]["lr"], written["out"]) == (0.01, str(config.out))


@pytest.mark.parametrize("recipe", RECIPES.values(), ids=lambda recipe: recipe.name)
def test_a_recipe_comes_back_from_the_folder_with_the_settings_of_the_run(recipe, tmp_path):
    config = recipe.defaults.changed(out=tmp_path, groups=3)
    open_run(recipe, config, resume=False)
    found, machine = started_recipe(tmp_path)
    assert found == replace(recipe, defaults=config)
    assert machine == Machine()


def test_a_moved_folder_can_be_resumed(config):
    start(config)
    moved = config.out.rename(config.out.with_name("moved"))
    assert resumable(moved).defaults == config.changed(out=moved)
    open_run(TIC_TAC_TOE, config.changed(out=moved), resume=True)


@pytest.mark.parametrize("lr", [0.5, USUAL.learn.lr])
def test_another_value_is_refused_by_name_the_default_as_well(config, lr):
    start(config)
    with pytest.raises(ConfigError, match=rf"'lr': 0\.01.*'lr': {lr}"):
        open_run(TIC_TAC_TOE, config.changed(lr=lr), resume=True)


def test_a_run_with_a_checkpoint_is_not_started_again(config):
    start(config)
    with pytest.raises(ConfigError, match="holds a run already: add --resume"):
        start(config)


def test_a_run_that_ended_before_its_first_checkpoint_is_started_again(config):
    start(config, save=False)
    (config.out / "metrics.jsonl").write_text('{"update": 1, "reward": 0.5}\n')
    start(config.changed(lr=0.02), save=False)
    assert tomllib.loads((config.out / "config.toml").read_text())["learn"]["lr"] == 0.02
    assert not (config.out / "metrics.jsonl").exists()


def test_a_run_that_ended_before_its_first_checkpoint_cannot_be_resumed(config):
    start(config, save=False)
    with pytest.raises(ConfigError, match="start it without --resume"):
        open_run(TIC_TAC_TOE, config, resume=True)


def test_a_run_of_another_recipe_is_not_resumed(config):
    start(config)
    with pytest.raises(ConfigError, match=r"'name': 'tic-tac-toe'.* now .*'name': 'arithmetic'"):
        open_run(ARITHMETIC, config, resume=True)


def test_a_config_of_another_version_is_refused(config):
    start(config)
    (config.out / "config.toml").write_text("envs = ['a']\nlearnrate = 3")
    with pytest.raises(ConfigError, match=r"config\.toml: .* no setting 'learnrate'"):
        resumable(config.out)


@pytest.mark.parametrize(
    ("name", "value", "least"),
    [
        ("seed", -1, 0),
        ("sft_updates", -1, 0),
        ("demonstrations", -1, 0),
        ("updates", 0, 1),
        ("groups", 0, 1),
        ("group_size", 1, 2),
        ("minibatches", 0, 1),
        ("lora_rank", -1, 0),
        ("eval_every", 0, 1),
        ("eval_episodes", 0, 1),
    ],
)
def test_numbers_that_cannot_work_are_refused(name, value, least):
    with pytest.raises(ConfigError, match=f"{name} must be at least {least}, got {value}"):
        USUAL.changed(**{name: value})


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"temperature": 0.0}, "temperature=0.0: .* above 0"),
        ({"temperature": math.nan}, "temperature=nan: .* above 0"),
        ({"lr": math.inf}, "lr=inf must be .* finite"),
        ({"least_reward": math.nan}, "least_reward=nan; a floor must be finite"),
        ({"least_entropy": math.inf}, "least_entropy=inf; a floor must be finite"),
    ],
)
def test_numbers_that_no_run_could_end_well_with_are_refused(given, reason):
    with pytest.raises(ConfigError, match=reason):
        USUAL.changed(**given)


def test_settings_of_adapters_are_passed_on_as_they_are_given():
    # None of them is taken for one that was left out: LoRA refuses these.
    given = {"lora_alpha": 0.0, "lora_targets": ""}
    tune = USUAL.changed(model="m", **given).tune
    assert tune.adapter_settings == {"alpha": 0.0, "targets": ""}


def test_a_resumed_run_has_each_update_once(config):
    start(config)
    lines = [json.dumps({"update": update, "x": update}) for update in (0, 1, 2, 3)]
    (config.out / "metrics.jsonl").write_text("\n".join(lines) + '\n{"update": 4')
    recorder = run_recorder(config.out, Machine())
    for update in (0, 1, 2, 3):
        failed = Episode(index=0, task=Task(env_id="ludic/Arithmetic-v0"), error="boom")
        recorder.write([failed], use="evaluate", update=update)
    forget_after_checkpoint(config.out)
    kept = (config.out / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["update"] for line in kept] == [0, 1]
    assert [one.update for one in read_recorded(config.out / "rollouts")] == [0, 1]


@pytest.mark.parametrize("options", [{"record": 1.1}, {"record_gb": 0.0}])
def test_a_record_that_cannot_be_kept_is_refused(tmp_path, options):
    with pytest.raises(ConfigError, match="record="):
        run_recorder(tmp_path, Machine(**options))
