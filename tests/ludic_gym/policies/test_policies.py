import asyncio

import gymnasium as gym
import pettingzoo
import pytest

import ludic_gym  # noqa: F401
from ludic_gym.clients.scripted import ScriptedClient
from ludic_gym.errors import ConfigError, EnvError, NoAction, NoOracle, ScriptExhausted
from ludic_gym.parsers import xml_tag_parser
from ludic_gym.policies.chat import ChatPolicy
from ludic_gym.policies.reference import (
    HumanPolicy,
    OpponentPolicy,
    OraclePolicy,
    RandomPolicy,
    ReplayPolicy,
    ScriptedPolicy,
)
from ludic_gym.policies.wrappers import Parsed
from ludic_gym.rollout.episode import run_episode
from ludic_gym.types import Sampling, Task

TTT = Task(env_id="ludic/TicTacToe-v0", seed=3, sampling=Sampling(seed=1))


def tic_tac_toe():
    return gym.make("ludic/TicTacToe-v0")


def test_a_policy_can_be_called_like_a_function():
    policy = Parsed(ChatPolicy(ScriptedClient(["<a>1</a>", "<a>2</a>"])), xml_tag_parser("a"))

    assert policy("first") == "1"
    assert policy("second", Sampling(temperature=0)) == "2"


async def test_a_policy_can_be_called_like_a_function_inside_a_running_loop():
    client = ScriptedClient(["a", "b"])
    policy = ChatPolicy(client)

    assert [policy("first"), policy("second")] == ["a", "b"]
    assert [m["content"] for m in client.requests[1]] == ["first", "a", "second"]


def test_a_call_that_finds_no_action_raises_the_feedback():
    policy = Parsed(ChatPolicy(ScriptedClient(["x"])), xml_tag_parser("a"))

    with pytest.raises(NoAction, match="Reply with <a>"):
        policy("q")


def test_a_chat_policy_starts_with_the_callers_system_prompt_even_without_a_reset():
    client = ScriptedClient(["a"])
    ChatPolicy(client, system_prompt="S")("q")

    assert client.requests[0][0] == {"role": "system", "content": "S"}


async def test_the_random_policy_plays_legal_moves_that_follow_from_the_seed():
    env = tic_tac_toe()
    policy = RandomPolicy(env)
    played = [await run_episode(env, policy, TTT) for _ in range(2)]

    assert played[0] == played[1]
    assert "illegal" not in str(played[0])


async def test_random_moves_are_all_as_likely():
    env = tic_tac_toe()
    env.reset(seed=0, options={})
    policy = RandomPolicy(env)
    legal = env.unwrapped.legal_actions()
    drawn = [(await policy.act(Sampling(seed=i))).action for i in range(9000)]

    counts = [drawn.count(action) for action in legal]
    # About 9000 / len(legal) each; six standard deviations are below 20%.
    assert all(abs(count * len(legal) / 9000 - 1) < 0.2 for count in counts)


async def test_where_any_text_is_legal_the_random_policy_draws_some():
    env = gym.make("ludic/Arithmetic-v0")
    policy = RandomPolicy(env)
    first, again, other = [(await policy.act(Sampling(seed=s))).action for s in (1, 1, 2)]

    assert first == again != other
    assert (await policy.act(Sampling())).action != (await policy.act(Sampling())).action


async def test_the_random_policy_needs_something_to_draw_from():
    class Silent:
        unwrapped = property(lambda self: self)
        action_space = staticmethod(lambda agent: None)

    with pytest.raises(ConfigError, match="Silent has no legal actions"):
        await RandomPolicy(Silent()).act(Sampling())


async def test_the_oracle_never_loses():
    env = gym.make("ludic/TicTacToe-v0", opponent="perfect")

    assert (await run_episode(env, OraclePolicy(env), TTT)).total_reward == 0.0


async def test_an_env_without_an_oracle_says_so():
    with pytest.raises(NoOracle, match="NoneType"):
        await OraclePolicy(type("E", (), {"unwrapped": None})()).act(Sampling())


async def test_a_scripted_opponent_plays_in_both_views_and_depends_on_the_sampling_seed():
    for env in (gym.make("ludic/LiarsDice-v0"), pettingzoo.make("aec", "ludic/LiarsDice-v0")):
        env.reset(seed=1)
        policy = OpponentPolicy(env, "easy")
        actions = [(await policy.act(Sampling(seed=seed))).action for seed in (0, 0, *range(20))]
        assert actions[0] == actions[1]
        assert len(set(actions)) > 5
        assert set(actions) <= set(env.unwrapped.legal_actions())


@pytest.mark.parametrize("env_id", ["ludic/TicTacToe-v0", "ludic/Arithmetic-v0"])
async def test_an_opponent_that_a_game_does_not_have_is_refused(env_id):
    env = gym.make(env_id)
    env.reset(seed=1)
    with pytest.raises(ConfigError, match="hard"):
        await OpponentPolicy(env, "hard").act(Sampling())


async def test_reference_policies_look_into_pettingzoo_envs_as_well():
    env = pettingzoo.make("aec", "ludic/TicTacToe-v0")
    env.reset(seed=1)

    assert (await OraclePolicy(env).act(Sampling())).action in env.legal_actions()
    assert (await RandomPolicy(env).act(Sampling(seed=1))).action in env.legal_actions()


async def test_a_human_sees_everything_and_types_the_action():
    shown = []
    policy = HumanPolicy(read=iter(["5"]).__next__, write=shown.append)
    policy.reset("Rules.")
    policy.observe("Board.")

    assert (await policy.act(Sampling())).action == "5"
    assert shown == ["Rules.", "Board."]


def test_a_human_may_type_while_a_loop_runs(monkeypatch):
    monkeypatch.setattr("builtins.input", lambda prompt: "5")

    async def act():
        return (await HumanPolicy().act(Sampling())).action

    assert asyncio.run(act()) == "5"


def test_an_interrupt_at_the_prompt_comes_through_at_once(monkeypatch):
    import os
    import signal

    def interrupted(prompt):
        os.kill(os.getpid(), signal.SIGINT)
        return "never"

    monkeypatch.setattr("builtins.input", interrupted)

    async def act():
        await HumanPolicy().act(Sampling())

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(act())


async def test_a_rollout_can_be_replayed():
    env = tic_tac_toe()
    recorded = await run_episode(env, RandomPolicy(env), TTT)

    assert await run_episode(env, ReplayPolicy(recorded), TTT) == recorded


async def test_a_replay_in_another_episode_is_an_error():
    env = gym.make("ludic/Arithmetic-v0")
    task = Task(env_id="ludic/Arithmetic-v0", seed=1)
    recorded = await run_episode(env, ScriptedPolicy(["1"]), task)

    with pytest.raises(EnvError, match="turn 0 has"):
        await run_episode(env, ReplayPolicy(recorded), Task(env_id=task.env_id, seed=2))


async def test_a_replay_ends_with_the_recording():
    policy = ReplayPolicy(await run_episode(tic_tac_toe(), ScriptedPolicy(["10"]), TTT))
    policy.observe((await run_episode(tic_tac_toe(), policy, TTT)).steps[0].observation)

    with pytest.raises(ScriptExhausted, match="after 1 steps"):
        await policy.act(Sampling())
