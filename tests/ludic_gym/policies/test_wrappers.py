import asyncio

import gymnasium as gym
import pytest

from ludic_gym.clients.scripted import ScriptedClient
from ludic_gym.errors import ClientError, ConfigError
from ludic_gym.parsers import xml_tag_parser
from ludic_gym.policies.chat import ChatPolicy, ThinkingBudget
from ludic_gym.policies.reference import ScriptedPolicy
from ludic_gym.policies.wrappers import BestOf, Budget, Parsed, RejectCutOff, Retry, majority
from ludic_gym.rollout.episode import run_episode
from ludic_gym.types import Completion, Decision, Sampling, Task

PARSER = xml_tag_parser("a", success_reward=0.1, error_reward=-0.5)


async def decide(policy, seed=None):
    policy.reset("")
    policy.observe("q")
    return await policy.act(Sampling(seed=seed))


async def test_a_retry_is_told_the_feedback_and_every_failure_costs():
    client = ScriptedClient(["x", "<a>1</a>"])

    decision = await decide(Retry(Parsed(ChatPolicy(client), PARSER)))

    assert decision.action == "1"
    assert decision.reward == pytest.approx(-0.4)  # -0.5 and 0.1
    assert len(decision.completions) == 2
    assert client.requests[1][-1]["content"] == "Reply with <a>...</a>."


async def test_a_policy_that_gives_up_is_not_asked_again():
    class Quitter(ScriptedPolicy):
        async def act(self, sampling):
            return Decision(action=None, give_up="budget")

    assert (await decide(Retry(Quitter([]), 5))).give_up == "budget"


async def test_the_majority_decides_and_the_dialog_goes_on_with_its_reply():
    replies = ["<a>1</a>", "no", "<a>2</a> b", "<a>2</a> c"]
    client = ScriptedClient([*replies, "<a>3</a>"] + ["<a>3</a>"] * 3)
    policy = BestOf(Parsed(ChatPolicy(client), PARSER), 4)

    decision = await decide(policy)
    policy.observe("more")
    await policy.act(Sampling())

    assert (decision.action, decision.reward) == ("2", 0.1)
    assert [call.text for call in decision.completions] == [
        "<a>1</a>",
        "no",
        "<a>2</a> c",
        "<a>2</a> b",
    ]
    told = [m["content"] for m in client.requests[-1]]
    assert told == ["q", "<a>2</a> b", "more"]


async def test_all_are_asked_at_once_from_the_same_prompt_with_seeds_of_their_own():
    all_three = asyncio.Barrier(3)
    seeds = []

    class Meeting(ScriptedClient):
        async def complete(self, messages, sampling, tools=()):
            seeds.append(sampling.seed)
            await all_three.wait()
            return await super().complete(messages, sampling, tools)

    client = Meeting(["a", "b", "a"])
    await asyncio.wait_for(decide(BestOf(ChatPolicy(client), 3), seed=1), 2)

    assert client.requests[0] == client.requests[1] == client.requests[2]
    assert len(set(seeds)) == 3


@pytest.mark.parametrize(
    ("actions", "chosen"),
    [(["a", "b", "b"], 1), (["a", "b"], 0), ([None, None, "a"], 2), ([None, None], 0)],
)
def test_the_majority_is_the_most_frequent_action_and_the_first_of_those(actions, chosen):
    assert majority([Decision(action=action) for action in actions]) == chosen


class ForeverEnv(gym.Env[str, str]):
    """Never ends by itself."""

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.played = []
        return "go", {}

    def step(self, action):
        self.played.append(action)
        return "on", 0.0, False, False, {}


TASK = Task(env_id="forever", sampling=Sampling(max_tokens=4))


async def test_an_episode_ends_with_the_call_that_uses_up_the_tokens():
    env = ForeverEnv()
    policy = Budget(ChatPolicy(ScriptedClient(["abcdef", "gh", "ijkl"])), max_tokens=9)

    rollout = await run_episode(env, policy, TASK)

    calls = [step.decision.completions[0] for step in rollout.steps]
    # "abcd" is cut at max_tokens, "gh" ends by itself after 3; 2 of 9 are left.
    assert [len(call.completion_ids) for call in calls] == [4, 3, 2]
    assert env.played == ["abcd", "gh", "ij"]
    assert rollout.steps[-1].truncated
    assert rollout.steps[-1].info == {"truncation_reason": "token_budget"}


async def test_a_cut_off_call_that_uses_up_the_tokens_is_no_action():
    env = ForeverEnv()
    policy = RejectCutOff(Budget(ChatPolicy(ScriptedClient(["abcdef"])), max_tokens=3))

    rollout = await run_episode(env, policy, TASK)

    assert env.played == []
    assert rollout.steps[0].info == {
        "parse_error": True,
        "cut_off": True,
        "truncation_reason": "token_budget",
    }


async def test_tokens_that_nobody_tells_cannot_be_counted():
    class NoTokens(ScriptedClient):
        async def complete(self, messages, sampling, tools=()):
            return Completion(text="a", finish_reason="stop")

    with pytest.raises(ClientError, match="token budget"):
        await Budget(ChatPolicy(NoTokens([])), max_tokens=9).act(Sampling())


@pytest.mark.parametrize("limits", [{}, {"max_tokens": 0}, {"max_turns": 0, "max_tokens": 5}])
def test_a_budget_of_nothing_is_refused(limits):
    with pytest.raises(ConfigError, match="at least 1"):
        Budget(ScriptedPolicy([]), **limits)


async def think(replies, budget=10, max_tokens=30):
    client = ScriptedClient(replies)
    policy = ThinkingBudget(ChatPolicy(client), budget, closing="</think>")
    policy.observe("q")
    decision = await policy.act(Sampling(max_tokens=max_tokens, seed=1))
    policy.observe("next")
    return client, decision, policy


async def test_a_thought_that_is_too_long_is_closed_and_answered():
    client, decision, policy = await think(["<think>hmmmmmmm", "5", "6"])

    assert decision.action == "<think>hmm</think>5"
    assert client.requests[1][-1] == {"role": "assistant", "content": "<think>hmm</think>"}
    await policy.act(Sampling())
    assert client.requests[2][1]["content"] == "<think>hmm</think>5"


async def test_the_forced_end_belongs_to_the_second_prompt_and_the_rest_was_sampled():
    _, decision, _ = await think(["<think>hmmmmmmm", "5"])
    first, second = decision.completions

    so_far = first.prompt_ids + first.completion_ids
    assert second.prompt_ids[: len(so_far)] == so_far
    assert bytes(second.prompt_ids[len(so_far) :]) == b"</think>"
    assert bytes(second.completion_ids[:-1]) == b"5"
    # 30 in all, 10 for the thought.
    assert second.sampling.max_tokens == 20
    assert first.sampling.seed != second.sampling.seed


async def test_an_answer_that_was_cut_off_after_its_thought_only_goes_on():
    _, decision, _ = await think(["<think></think>12", "345"], budget=16)

    assert decision.action == "<think></think>1345"


async def test_an_interrupted_thought_is_no_reply_that_was_cut_off():
    _, whole, _ = await think(["<think>hmmmmmmm", "5"])
    _, cut, _ = await think(["<think>hmmmmmmm", "5" * 40])

    assert [call.finish_reason for call in whole.completions] == ["length", "stop"]
    assert not whole.cut_off
    assert cut.cut_off


async def test_any_text_can_end_a_thought_and_its_last_word_is_looked_for():
    client = ScriptedClient(["abc", "5", "a <a>7", "8"])
    policy = ThinkingBudget(ChatPolicy(client), 3, closing=" So <a>")
    policy.observe("q")
    assert (await policy.act(Sampling(max_tokens=9))).action == "abc So <a>5"
    policy = ThinkingBudget(ChatPolicy(client), 6, closing=" So <a>")
    policy.observe("q")
    assert (await policy.act(Sampling(max_tokens=9))).action == "a <a>78"
