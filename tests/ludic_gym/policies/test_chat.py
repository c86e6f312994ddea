"""Dialogs that outgrow `max_length`: a reply is cut at it, and then the episode is truncated."""

import asyncio

import gymnasium as gym
import pettingzoo
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ludic_gym  # noqa: F401
from ludic_gym.clients.openai import within_length
from ludic_gym.clients.scripted import ScriptedClient
from ludic_gym.errors import (
    ClientError,
    ConfigError,
    EnvError,
    NoAction,
    PromptTooLong,
)
from ludic_gym.parsers import xml_tag_parser
from ludic_gym.policies.chat import ChatPolicy, ThinkingBudget
from ludic_gym.policies.reference import (
    HumanPolicy,
    OpponentPolicy,
    RandomPolicy,
    ReplayPolicy,
    ScriptedPolicy,
)
from ludic_gym.policies.tool_use import TextTools, ToolUse
from ludic_gym.policies.wrappers import Parsed
from ludic_gym.rollout.episode import run_episode
from ludic_gym.sampling import check_sampling, fit_max_tokens, turn_sampling
from ludic_gym.types import Completion, Sampling, Task

TTT = Task(env_id="ludic/TicTacToe-v0", seed=3, sampling=Sampling(seed=1))


def tic_tac_toe():
    return gym.make("ludic/TicTacToe-v0")


async def test_a_policy_can_be_called_like_a_function_inside_a_running_loop():
    client = ScriptedClient(["a", "b"])
    policy = ChatPolicy(client)

    assert [policy("first"), policy("second")] == ["a", "b"]
    assert [m["content"] for m in client.requests[1]] == ["first", "a", "second"]


def test_a_call_that_finds_no_action_raises_the_feedback():
    policy = Parsed(ChatPolicy(ScriptedClient(["x"])), xml_tag_parser("a"))

    with pytest.raises(NoAction, match="Reply with <a>"):
        policy("q")


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


async def test_a_scripted_opponent_plays_in_both_views_and_depends_on_the_sampling_seed():
    for env in (gym.make("ludic/LiarsDice-v0"), pettingzoo.make("aec", "ludic/LiarsDice-v0")):
        env.reset(seed=1)
        policy = OpponentPolicy(env, "easy")
        actions = [(await policy.act(Sampling(seed=seed))).action for seed in (0, 0, *range(20))]
        assert actions[0] == actions[1]
        assert len(set(actions)) > 5
        assert set(actions) <= set(env.unwrapped.legal_actions())


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


class Endless(gym.Env[str, str]):
    """Never ends by itself."""

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return "go", {}

    def step(self, action):
        return "on", 1.0, False, False, {}


def task(max_length):
    return Task(env_id="endless", sampling=Sampling(max_tokens=9, max_length=max_length))


async def played(policy, max_length):
    return await run_episode(Endless(), policy, task(max_length))


async def test_a_reply_is_cut_where_the_dialog_is_full_and_the_next_turn_is_not_played():
    # "go" with its role and end is 4 tokens, the role of the reply 1, "abcd" and its end 5, "on" 4
    # and the next role 1: the second prompt has 15, and of 18 are 3 left.
    client = ScriptedClient(lambda messages, sampling: "abcd")
    rollout = await played(ChatPolicy(client), 18)
    calls = [call for step in rollout.steps for call in step.decision.completions]
    assert [len(call.prompt_ids) for call in calls] == [5, 15]
    assert [call.text for call in calls] == ["abcd", "abc"]
    assert [call.finish_reason for call in calls] == ["stop", "length"]
    last = rollout.steps[-1]
    assert (last.truncated, last.terminated) == (True, False)
    assert last.info["truncation_reason"] == "max_length"
    assert last.decision.completions == ()
    assert rollout.total_reward == 2.0


@given(st.integers(6, 120), st.integers(1, 30), st.lists(st.text(max_size=9), min_size=1))
async def test_no_prompt_with_its_completion_is_longer(max_length, max_tokens, replies):
    texts = iter(replies * 200)
    client = ScriptedClient(lambda messages, sampling: next(texts))
    sampling = Sampling(max_tokens=max_tokens, max_length=max_length)
    rollout = await run_episode(
        Endless(), ChatPolicy(client), Task(env_id="endless", sampling=sampling, max_turns=50)
    )
    calls = [call for step in rollout.steps for call in step.decision.completions]
    assert all(1 <= len(c.completion_ids) <= max_tokens for c in calls)
    assert all(len(c.prompt_ids) + len(c.completion_ids) <= max_length for c in calls)
    # All but the last of a dialog that has outgrown it were sampled.
    assert all(step.decision.completions for step in rollout.steps[:-1])
    reasons = {"max_length", "max_turns"}
    assert rollout.steps[-1].info["truncation_reason"] in reasons


async def test_a_first_prompt_without_room_is_an_error():
    policy = ChatPolicy(ScriptedClient(["a"]))
    with pytest.raises(PromptTooLong, match=r"5 tokens leaves no room .* at most 5 tokens"):
        await played(policy, 5)
    # Also after an episode that had room.
    policy = ChatPolicy(ScriptedClient(lambda messages, sampling: "abcd"))
    await played(policy, 12)
    with pytest.raises(PromptTooLong):
        await played(policy, 5)


async def test_tool_calls_that_fill_the_dialog_end_the_episode_with_what_was_sampled():
    def double(number: int) -> int:
        """Twice the number."""
        return 2 * number

    call = '<tool_call>{"name": "double", "arguments": {"number": 4}}</tool_call>'
    policy = ToolUse(ChatPolicy(ScriptedClient([call, call])), [double], protocol=TextTools())
    sampling = Sampling(max_tokens=99)
    first = len((await ChatPolicy(ScriptedClient(["x"])).act(sampling)).completions[0].prompt_ids)
    assert first < 9
    whole = Task(env_id="endless", sampling=Sampling(max_tokens=99, max_length=460))
    rollout = await run_episode(Endless(), policy, whole)
    (step,) = rollout.steps
    assert len(step.decision.completions) == 1
    assert step.info["truncation_reason"] == "max_length"


async def test_a_thought_that_fills_the_dialog_is_a_reply_that_was_cut_off():
    client = ScriptedClient(lambda messages, sampling: "thinking and thinking")
    policy = ThinkingBudget(ChatPolicy(client), 6, "</think>")
    policy.observe("go")
    decision = await policy.act(Sampling(max_tokens=20, max_length=12))
    assert decision.action == "thinki"
    assert decision.cut_off
    # The dialog is full: nothing more is thought.
    policy.observe("on")
    assert (await policy.act(Sampling(max_tokens=20, max_length=12))).give_up == "max_length"


def test_the_room_is_the_least_of_what_limits_it():
    sampling = Sampling(max_tokens=100, max_length=256)
    assert fit_max_tokens(sampling, 100) is sampling
    assert fit_max_tokens(sampling, 200).max_tokens == 56
    assert fit_max_tokens(sampling, 200, 210).max_tokens == 10
    assert fit_max_tokens(Sampling(max_tokens=100), 200, 250).max_tokens == 50
    assert fit_max_tokens(Sampling(max_tokens=100), 10**9).max_tokens == 100
    assert turn_sampling(Sampling(seed=1, max_length=7), 2).max_length == 7
    with pytest.raises(ConfigError, match="max_length=1 must be at least 2"):
        check_sampling(Sampling(max_length=1))


def test_a_server_that_counts_tokens_is_held_to_the_length_by_its_counts():
    completion = Completion(text="abc", finish_reason="stop")
    sampling = Sampling(max_length=10)
    assert within_length(completion, Sampling(), 99, 99) is completion
    assert within_length(completion, sampling, 7, 3) is completion
    assert within_length(completion, sampling, 7, 4).finish_reason == "length"
    with pytest.raises(PromptTooLong):
        within_length(completion, sampling, 10, 1)
    with pytest.raises(ClientError, match="does not count the tokens"):
        within_length(completion, sampling, 0, 0)
