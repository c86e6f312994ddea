"""The stages of a run."""

from dataclasses import replace

import pytest

from ludic_gym.errors import ConfigError
from ludic_gym.harness import Harness
from ludic_train.algorithms.presets import grpo
from ludic_train.recipes.catalog import TIC_TAC_TOE
from ludic_train.runs.learner import learner_from_nothing
from ludic_train.runs.machine import Machine
from ludic_train.runs.stages import imitation_stage, make_learner, reward_stage


@pytest.mark.parametrize(("updates", "minibatches", "made"), [(2, 4, 4), (8, 4, 8), (5, 1, 5)])
def test_the_learning_rate_falls_over_the_updates_that_whole_batches_make(
    tmp_path, updates, minibatches, made
):
    config = TIC_TAC_TOE.defaults.changed(out=tmp_path, updates=updates, minibatches=minibatches)
    learner = learner_from_nothing([], Harness(), seed=0)
    stage = reward_stage(TIC_TAC_TOE, config, learner, Machine(), algo=grpo())
    assert (stage.updates, stage.trainer.cfg.decay_updates) == (made, made)


@pytest.mark.parametrize(("given", "expected"), [(None, "latest"), ("full", "full")])
async def test_a_model_from_nothing_is_prompted_as_the_setting_says(tmp_path, given, expected):
    few = {"demonstrations": 1, "context": given, "out": tmp_path / "run"}
    learner, _ = await make_learner(TIC_TAC_TOE, TIC_TAC_TOE.defaults.changed(**few), Machine())
    assert learner.harness.context == expected


def test_an_agent_program_makes_its_own_prompts(tmp_path):
    with pytest.raises(ConfigError, match="leave out the harness"):
        TIC_TAC_TOE.defaults.changed(out=tmp_path, agent="module:play", context="full")


async def test_one_pass_takes_each_demonstration_once_however_many_turns_it_has(tmp_path):
    few = {"demonstrations": 200, "sft_updates": 0, "out": tmp_path / "run"}
    config = TIC_TAC_TOE.defaults.changed(**few)
    learner, games = await make_learner(TIC_TAC_TOE, config, Machine())
    assert sum(len(game.steps) for game in games) > 3 * 128
    # 128 games, and the other 72 with some of the next pass.
    assert imitation_stage(TIC_TAC_TOE, config, learner, games).updates == 2


async def test_demonstrations_fewer_than_an_update_are_refused(tmp_path):
    config = TIC_TAC_TOE.defaults.changed(out=tmp_path, demonstrations=100)
    learner, games = await make_learner(TIC_TAC_TOE, config, Machine())
    no_move = replace(games[0], steps=())
    with pytest.raises(ConfigError, match="gave 100 rollouts, and an update imitates 128"):
        imitation_stage(TIC_TAC_TOE, config, learner, [*games, *[no_move] * 28])


@pytest.mark.parametrize(("given", "longest"), [(None, 20_000), (9_000, 9_000), (30_000, 20_000)])
async def test_no_row_is_left_out_that_the_model_and_max_length_allow(tmp_path, given, longest):
    config = TIC_TAC_TOE.defaults.changed(out=tmp_path, demonstrations=200, max_length=given)
    learner, games = await make_learner(TIC_TAC_TOE, config, Machine())
    learner.model.config.max_position_embeddings = 20_000
    assert (
        reward_stage(TIC_TAC_TOE, config, learner, Machine(), algo=grpo()).trainer.cfg.max_seq_len
        == longest
    )
    # What is imitated was not sampled, and so has no limit but the model's.
    assert imitation_stage(TIC_TAC_TOE, config, learner, games).trainer.cfg.max_seq_len == 20_000
