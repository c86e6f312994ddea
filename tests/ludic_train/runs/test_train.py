"""`lt.train`: any environment in one call."""

import json

import pytest

import ludic_train as lt
from ludic_gym.errors import ConfigError
from ludic_train.errors import EmptyBatch
from ludic_train.recipes.catalog import RECIPES

TINY = {
    "demonstrations": 150,
    "sft_updates": 1,
    "updates": 1,
    "groups": 1,
    "group_size": 2,
    "eval_episodes": 4,
    "final_episodes": 8,
}


def trained(out, **options):
    # A model that knows nothing loses every game, and equal rewards teach nothing.
    algo, options = lt.grpo(filter=None), {**TINY, **options}
    env = "ludic/TicTacToe-v0"
    return lt.train(env, out=out, algo=algo, demonstrator="random", max_tokens=4, **options)


@pytest.mark.long
def test_success_and_reward_are_reported_for_any_environment(tmp_path):
    results = trained(tmp_path / "run")
    names = {"success", "success_low", "success_high", "reward", "cut_off"}
    assert set(results) == {f"test/{name}" for name in names}
    assert results["test/success_low"] <= results["test/success"] <= results["test/success_high"]
    assert -1.0 <= results["test/reward"] <= 1.0
    assert json.loads((tmp_path / "run" / "results.json").read_text()) == results
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    assert any("eval/test/success" in json.loads(line) for line in lines)


@pytest.mark.long
def test_samples_of_top_p_are_learned_from_on_policy(tmp_path):
    trained(tmp_path / "run", updates=2, top_p=0.8, min_p=0.01)
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    divergence = [line["mismatch/kl_at_lag_0"] for line in map(json.loads, lines) if "lag" in line]
    assert len(divergence) == 2
    # Without replay, it is 0.02: ratios of 0.8 to 1.
    assert max(map(abs, divergence)) < 1e-9


@pytest.mark.long
def test_activations_computed_again_in_small_passes_teach_the_same(tmp_path):
    losses = []
    for name, options in {"usual": {}, "less": {"recompute": True, "micro_tokens": 256}}.items():
        trained(tmp_path / name, **options)
        lines = map(json.loads, (tmp_path / name / "metrics.jsonl").read_text().splitlines())
        losses.append([line["loss"] for line in lines if "loss" in line])
    assert len(losses[0]) == 2
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)


@pytest.mark.long
def test_rollouts_that_a_forward_pass_cannot_hold_are_left_out(tmp_path):
    with pytest.raises(EmptyBatch, match="exceed max_seq_len=8"):
        trained(tmp_path / "run", micro_tokens=8)


@pytest.mark.long
async def test_it_works_in_the_running_loop_of_a_notebook(tmp_path):
    results = trained(tmp_path / "run")
    assert 0.0 <= results["test/success"] <= 1.0


def test_imitated_self_play_of_a_model_needs_a_prompt(tmp_path):
    recipe = RECIPES["connect-four"]
    with pytest.raises(ConfigError, match="do not hold the prompts of the seats"):
        lt.train(recipe, model="m", out=tmp_path / "run", demonstrations=100)
    assert not (tmp_path / "run").exists()


def test_an_unknown_setting_is_refused_with_the_known_ones(tmp_path):
    with pytest.raises(ConfigError, match=r"no setting 'learnrate'"):
        trained(tmp_path / "run", learnrate=1.0)
