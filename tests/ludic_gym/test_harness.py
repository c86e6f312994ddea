"""Harness: one object that says how a model plays."""

import asyncio

import gymnasium as gym
import pytest

import ludic_gym as lg
from ludic_gym.errors import ConfigError
from ludic_gym.harness import IN_PYTHON, write_harness


def double(number: int) -> int:
    """Twice the number."""
    return 2 * number


class Doubling(lg.TextEnv):
    """Asks for twice a number, and offers the function that knows it."""

    single_turn = True

    def start(self, options):
        return "Twice 21?", "Use the tool, then reply with the number."

    def turn(self, action):
        return lg.end(success=action == "42")

    def tools(self):
        return (double,)


def decision(harness, replies, env=None, max_tokens=256):
    policy = harness.policy(lg.ScriptedClient(replies), env)
    policy.reset("Play.")
    policy.observe("?")
    return asyncio.run(policy.act(lg.Sampling(max_tokens=max_tokens)))


@pytest.mark.parametrize(
    ("name", "reply"),
    [
        ("plain", "B2"),
        ("think-tag", "<think>A1?</think><answer>B2</answer>"),
        ("boxed", r"So it is \boxed{B2}."),
        ("react", "I know it. <answer>B2</answer>"),
        ("truncated-thinking", "<think>A1?</think> B2"),
    ],
)
def test_named_harnesses_read_their_own_forms(name, reply):
    assert decision(lg.Harness.of(name), [reply]).action == "B2"


def test_the_prompt_states_the_form_and_demonstrations_have_it():
    for name in ("think-tag", "boxed", "react", "truncated-thinking"):
        harness = lg.HARNESSES[name]
        client = lg.ScriptedClient([harness.reply_form.replace("{}", "B2")])
        policy = harness.policy(client)
        policy.reset("Play.")
        policy.observe("?")
        assert asyncio.run(policy.act(lg.Sampling())).action == "B2"
        prompt = client.requests[0][0]["content"]
        assert prompt == harness.whole_prompt("Play.") != "Play."


def test_parts_replace_those_of_a_saved_harness_and_leave_the_others(tmp_path):
    saved = lg.Harness(context="latest", parser="xml:move", rounds=4)
    lg.write_harness(tmp_path, saved)
    both = lg.Harness(rounds=2).over(lg.read_harness(tmp_path))
    assert both == lg.Harness(context="latest", parser="xml:move", rounds=2)
    assert lg.Harness().over(saved) == saved


def test_parts_follow_a_name_or_stand_alone():
    assert lg.Harness.of("boxed,attempts=2,context=latest").context == "latest"
    assert lg.Harness.of("think_tokens=64") == lg.Harness(think_tokens=64)
    with pytest.raises(ConfigError, match="no part 'contxt'"):
        lg.Harness.of("plain,contxt=latest")
    with pytest.raises(ConfigError, match="should be a number"):
        lg.Harness.of("rounds=many")


def test_objects_are_parts_too_and_a_file_says_that_it_cannot_hold_them(tmp_path):
    parser = lg.compose_parsers(lg.think_prefix_parser(), lg.xml_tag_parser("move"))
    harness = lg.Harness(parser=parser, context=lg.TruncatedThinkingContext)
    assert decision(harness, ["<think>?</think><move>B2</move>"]).action == "B2"
    lg.write_harness(tmp_path, harness)
    assert lg.read_harness(tmp_path).parser == IN_PYTHON
    with pytest.raises(ConfigError, match=r"harness=lg\.Harness"):
        lg.read_harness(tmp_path).policy(lg.ScriptedClient(["B2"]))


def test_a_factory_makes_the_policy_of_client_and_env_or_of_the_env_alone():
    def by_both(client, env):
        return lg.Parsed(lg.ChatPolicy(client), lg.xml_tag_parser("m"))

    assert decision(lg.Harness.of(by_both), ["<m>B2</m>"]).action == "B2"
    alone = lg.Harness.of(lambda env: lg.ScriptedPolicy(["C3"]))
    assert decision(alone, ["B2"]).action == "C3"
    with pytest.raises(ConfigError, match="leave out parser"):
        lg.Harness(factory=by_both, parser="boxed")


def test_tools_of_the_environment_reach_the_model_in_text():
    call = '<tool_call>{"name": "double", "arguments": {"number": 21}}</tool_call>'
    client = lg.ScriptedClient([call, "42"])
    env = Doubling()
    task = lg.Task(env_id="test/Doubling-v0", seed=0)
    rollout = asyncio.run(lg.run_episode(env, lg.Harness().policy(client, env), task))
    assert rollout.total_reward == 1.0
    assert '"name": "double"' in client.requests[0][0]["content"]


class NativeClient(lg.ScriptedClient):
    """A scripted client that keeps the tools it was offered, and calls each once."""

    has_native_tools = True

    def __init__(self, calls):
        super().__init__(["42"] * 9)
        self.calls, self.offered = list(calls), []

    async def complete(self, messages, sampling, tools=()):
        self.offered.append([tool["function"]["name"] for tool in tools])
        completion = await super().complete(messages, sampling)
        if not self.calls:
            return completion
        call = lg.ToolCall(id="c1", name=self.calls.pop(0), arguments='{"number": 21}')
        return lg.Completion(text="", finish_reason="tool_calls", tool_calls=(call,))


@pytest.mark.parametrize(
    "harness",
    [lg.Harness(), lg.Harness(factory=lg.Harness().policy, reply_tokens=99)],
    ids=["harness", "factory with a limit"],
)
def test_tools_are_offered_in_the_model_s_own_format_where_it_has_one(harness):
    client, env = NativeClient(["double"]), Doubling()
    task = lg.Task(env_id="test/Doubling-v0", seed=0)
    rollout = asyncio.run(lg.run_episode(env, harness.policy(client, env), task))
    assert rollout.total_reward == 1.0
    assert client.offered[0] == ["double"]
    result = client.requests[1][-1]
    assert (result["role"], result["name"], result["content"]) == ("tool", "double", "42")


def test_functions_that_are_actions_are_offered_and_a_call_is_the_action():
    env = gym.make("ludic/SearchQA-v0")
    client = NativeClient(["search"])
    policy = lg.Harness().policy(client, env)
    _, info = env.reset(seed=1)
    policy.reset(info["system_prompt"])
    policy.observe("?")
    acted = asyncio.run(policy.act(lg.Sampling()))
    assert acted.action == '{"name": "search", "arguments": {"number": 21}}'
    policy.observe("No such argument.")
    asyncio.run(policy.act(lg.Sampling()))
    assert [message["role"] for message in client.requests[1][-2:]] == ["assistant", "tool"]


@pytest.mark.parametrize(
    ("rule", "action"),
    [(None, None), ("reject", None), ("drop", None), ("mask", None), ("keep", "B2")],
)
def test_replies_that_reach_the_limit_follow_the_rule(rule, action):
    assert decision(lg.Harness(cut_off=rule), ["B2 is best"], max_tokens=2).action == action


def test_a_bonus_is_paid_once_an_episode_and_is_less_than_a_success():
    policy = lg.Harness(parser="xml:m", format_bonus=0.1).policy(
        lg.ScriptedClient(["<m>a</m>", "no", "<m>b</m>"])
    )
    rewards = []
    for _ in range(3):
        policy.observe("?")
        rewards.append(asyncio.run(policy.act(lg.Sampling())).reward)
    assert rewards == [0.1, 0.0, 0.0]
    with pytest.raises(ConfigError, match="a success pays 1"):
        lg.Harness(format_bonus=1.0)


def test_a_strict_harness_takes_an_action_as_it_is_named_and_nothing_else():
    env = gym.make("ludic/TicTacToe-v0")
    env.reset(seed=1)
    strict = lg.Harness(parser="strict")
    assert decision(strict, ["B2"], env).action == "B2"
    for reply in ("b2", "**B2**", "My move is B2.", "<think>?</think>B2"):
        assert decision(strict, [reply], env).action is None


@pytest.mark.parametrize(
    "parts",
    [
        {"context": "most"},
        {"parser": "xlm:a"},
        {"cut_off": "ignore"},
        {"rounds": 1},
        {"attempts": 0},
        {"think_closing": " "},
        {"tool_format": "xml"},
    ],
)
def test_what_cannot_be_meant_is_refused(parts):
    with pytest.raises(ConfigError, match=next(iter(parts))):
        lg.Harness(**parts)


def test_evaluations_take_the_name_of_a_policy_and_refuse_a_harness_without_a_model():
    result = lg.evaluate("ludic/Arithmetic-v0", "oracle", episodes=3, progress=False)
    assert result.success_rate == 1.0
    with pytest.raises(ConfigError, match="is no model that a harness could prompt"):
        lg.evaluate("ludic/Arithmetic-v0", "oracle", harness="boxed", progress=False)


def test_a_run_lends_its_harness_by_its_folder(tmp_path):
    write_harness(tmp_path, lg.Harness(parser="xml:answer", context="latest"))
    assert lg.Harness.of(str(tmp_path)) == lg.Harness(parser="xml:answer", context="latest")
