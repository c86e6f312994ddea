import asyncio

import pytest

from ludic_gym.clients.scripted import ScriptedClient
from ludic_gym.errors import ConfigError
from ludic_gym.parsers import regex_parser, xml_tag_parser
from ludic_gym.policies.chat import ChatPolicy
from ludic_gym.policies.reference import ScriptedPolicy
from ludic_gym.policies.wrappers import BestOf, Parsed, Retry, majority
from ludic_gym.types import Decision, Sampling

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


async def test_the_last_attempt_may_fail():
    policy = Retry(Parsed(ChatPolicy(ScriptedClient(["x", "y", "<a>1</a>"])), PARSER), attempts=2)

    decision = await decide(policy)

    assert (decision.action, decision.reward) == (None, -1.0)


async def test_a_parser_around_adds_its_reward_to_the_one_inside():
    client = ScriptedClient(["x", "<a>(1)</a>"])
    inside = Retry(Parsed(ChatPolicy(client), PARSER))
    outside = Parsed(inside, regex_parser(r"\((\d)\)", success_reward=1.0))

    decision = await decide(outside)

    assert (decision.action, decision.reward) == ("1", pytest.approx(0.6))  # -0.5, 0.1 and 1.0


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


async def test_anybody_may_choose():
    def longest(decisions):
        return max(range(len(decisions)), key=lambda i: len(decisions[i].action))

    decision = await decide(BestOf(ChatPolicy(ScriptedClient(["a", "abc", "ab"])), 3, longest))

    assert decision.action == "abc"


@pytest.mark.parametrize(
    ("actions", "chosen"),
    [(["a", "b", "b"], 1), (["a", "b"], 0), ([None, None, "a"], 2), ([None, None], 0)],
)
def test_the_majority_is_the_most_frequent_action_and_the_first_of_those(actions, chosen):
    assert majority([Decision(action=action) for action in actions]) == chosen


@pytest.mark.parametrize("make", [Retry, BestOf])
def test_no_attempt_at_all_is_refused(make):
    with pytest.raises(ConfigError, match="got 0"):
        make(ScriptedPolicy([]), 0)
