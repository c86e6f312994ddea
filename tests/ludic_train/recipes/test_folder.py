import json
from dataclasses import replace

import pytest

from ludic_gym.errors import ConfigError
from ludic_train.recipes import TIC_TAC_TOE, RecipeConfig
from ludic_train.recipes.folder import open_run

USUAL = TIC_TAC_TOE.defaults


@pytest.fixture
def config(tmp_path):
    return replace(USUAL, out=tmp_path / "run", lr=0.01)


def test_a_new_run_writes_its_config(config):
    assert open_run(config, USUAL, resume=False) == config
    written = json.loads((config.out / "config.json").read_text())
    assert written["lr"] == 0.01
    assert written["out"] == str(config.out)


def test_a_resumed_run_takes_the_config_it_was_started_with(config):
    open_run(config, USUAL, resume=False)
    assert open_run(replace(USUAL, out=config.out), USUAL, resume=True) == config


def test_saying_again_what_a_run_was_started_with_is_fine(config):
    open_run(config, USUAL, resume=False)
    assert open_run(config, USUAL, resume=True) == config


def test_a_moved_folder_can_be_resumed(config):
    open_run(config, USUAL, resume=False)
    moved = config.out.rename(config.out.with_name("moved"))
    assert open_run(replace(USUAL, out=moved), USUAL, resume=True) == replace(config, out=moved)


def test_another_value_is_refused_by_name(config):
    open_run(config, USUAL, resume=False)
    with pytest.raises(ConfigError, match=r"'lr': 0\.01.*'lr': 0\.5"):
        open_run(replace(config, lr=0.5), USUAL, resume=True)


def test_a_config_of_another_version_is_refused(config):
    open_run(config, USUAL, resume=False)
    (config.out / "config.json").write_text('{"out": "x"}')
    with pytest.raises(ConfigError, match="another version"):
        open_run(config, USUAL, resume=True)


def test_the_options_are_these_and_no_others():
    assert list(RecipeConfig.__dataclass_fields__) == [
        "out",
        "seed",
        "model",
        "lora_rank",
        "demonstrations",
        "imitation_updates",
        "imitation_lr",
        "updates",
        "lr",
        "groups",
        "group_size",
        "minibatches",
        "entropy",
        "eval_every",
        "eval_episodes",
    ]
