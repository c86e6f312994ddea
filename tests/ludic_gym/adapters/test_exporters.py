import inspect

import pytest

import ludic_gym  # noqa: F401 (registers the ids)
from ludic_gym.adapters.skyrl_environment import SkyRLGame, skyrl_env
from ludic_gym.adapters.trl_environment import OVER, TRLEnvironment, trl_environment
from ludic_gym.errors import ConfigError

RIGHT = "<answer>22</answer>"


def test_trl_sees_one_tool_and_what_it_calls_itself():
    methods = {name for name, _ in inspect.getmembers(TRLEnvironment, inspect.isfunction)}
    assert {name for name in methods if name[0] != "_"} == {"reset", "play", "get_reward"}
    assert "Args:\n    action: " in inspect.getdoc(TRLEnvironment.play)


def test_trl_starts_the_episode_that_the_row_names_and_adds_up_its_rewards():
    env = trl_environment("ludic/GSM8K-v0")()
    text = env.reset(row=0, prompt=[], another_column=3)
    assert "<answer>42</answer>" in text
    assert "A baker fills 6 trays" in text
    assert env.get_reward() == 0.0
    assert env.play(RIGHT) == OVER
    assert env.get_reward() == 1.0
    assert env.play(RIGHT) == OVER
    assert env.get_reward() == 1.0


def test_trl_plays_several_turns_and_the_same_game_for_the_same_seed():
    first, second = (trl_environment("ludic/Mastermind-v0", turns=3)() for _ in range(2))
    for env in (first, second):
        env.reset(seed=5)
    replies = [first.play(code) for code in ("AABB", "CCDD")]
    assert replies == [second.play(code) for code in ("AABB", "CCDD")]
    assert "1 guess left" in replies[1]
    assert first.play("EEFF").endswith(OVER)


def test_skyrl_gets_messages_rewards_and_an_end():
    env = SkyRLGame(extras={"env_id": "ludic/GSM8K-v0", "row": 0, "reward_spec": {}})
    messages, info = env.init([{"role": "system", "content": "Be brief."}])
    assert [message["role"] for message in messages] == ["system", "system", "user"]
    assert messages[-1]["content"].startswith("A baker")
    assert info["split"] == "sample"
    turn = env.step(RIGHT)
    assert (turn["observations"], turn["reward"], turn["done"]) == ([], 1.0, True)
    assert env.get_metrics() == {"success": 1.0, "turns": 1.0}
    env.close()


def test_skyrl_ends_a_game_after_the_turns_that_the_row_allows():
    extras = {"env_id": "ludic/Mastermind-v0", "seed": 1, "kwargs": {"turns": 9}, "max_turns": 2}
    env = SkyRLGame(extras=extras)
    assert env.init([])[0][-1]["content"] == "You have 9 guesses left."
    turns = [env.step("AAAA"), env.step("AAAA")]
    assert [turn["done"] for turn in turns] == [False, True]
    assert turns[0]["observations"][0]["role"] == "user"


def test_a_row_without_an_environment_is_refused():
    with pytest.raises(ConfigError, match=r"must name an \"env_id\", got \{'seed': 1\}"):
        SkyRLGame(extras={"seed": 1})


def test_the_real_base_class_is_mixed_in_where_it_is_installed():
    skyrl_gym = pytest.importorskip("skyrl_gym", reason="needs the package skyrl-gym")
    env = skyrl_env(extras={"env_id": "ludic/GSM8K-v0"})
    assert isinstance(env, skyrl_gym.Env)
