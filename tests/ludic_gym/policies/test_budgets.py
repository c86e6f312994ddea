import gymnasium as gym
import pytest

from ludic_gym.clients.scripted import ScriptedClient
from ludic_gym.errors import ClientError, ConfigError
from ludic_gym.policies.chat import ChatPolicy, ThinkingBudget
from ludic_gym.policies.reference import ScriptedPolicy
from ludic_gym.policies.wrappers import Budget, RejectCutOff
from ludic_gym.rollout.episode import run_episode
from ludic_gym.types import Completion, Sampling, Task


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
    assert rollout.steps[0].info == {"parse_error": True, "truncation_reason": "token_budget"}


async def test_an_episode_ends_with_the_last_turn_of_the_budget():
    env = ForeverEnv()

    rollout = await run_episode(env, Budget(ScriptedPolicy("abc"), max_turns=2), TASK)

    assert env.played == ["a", "b"]
    assert rollout.steps[-1].info == {"truncation_reason": "turn_budget"}


async def test_every_episode_has_the_whole_budget():
    policy = Budget(ScriptedPolicy("abc"), max_turns=2)
    lengths = [len((await run_episode(ForeverEnv(), policy, TASK)).steps) for _ in range(2)]

    assert lengths == [2, 2]


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


def test_a_closing_without_a_word_is_refused():
    with pytest.raises(ConfigError, match="has no word"):
        ThinkingBudget(ChatPolicy(ScriptedClient([])), 3, closing=" ")


async def test_a_short_thought_is_left_alone():
    _, decision, _ = await think(["<t>5"])

    assert decision.action == "<t>5"
    assert len(decision.completions) == 1


async def test_without_tokens_left_there_is_no_second_call():
    _, decision, _ = await think(["<think>hmmmmmmm"], max_tokens=10)

    assert decision.completions[-1].finish_reason == "length"


def test_a_thinking_budget_of_nothing_is_refused():
    with pytest.raises(ConfigError, match="got 0"):
        ThinkingBudget(ChatPolicy(ScriptedClient([])), 0)
