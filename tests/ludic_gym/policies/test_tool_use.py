import json
import threading

import pytest

import ludic_gym as lg
from ludic_gym.clients.scripted import ScriptedClient
from ludic_gym.errors import ConfigError
from ludic_gym.parsers import xml_tag_parser
from ludic_gym.policies.chat import ChatPolicy
from ludic_gym.policies.reference import ScriptedPolicy
from ludic_gym.policies.tool_use import ReAct, TextTools, ToolUse
from ludic_gym.policies.wrappers import RejectCutOff
from ludic_gym.tools.tool import tool_schema
from ludic_gym.types import Sampling


def add(a: int, b: int) -> int:
    """Add."""
    return a + b


def fail() -> str:
    """Fail."""
    raise ValueError("broken")


def calling(*calls, content=None):
    """An assistant message that calls tools; a call is a name and its arguments as JSON."""
    return {
        "role": "assistant",
        "content": content,
        "tool_calls": [
            {"id": f"c{i}", "type": "function", "function": {"name": n, "arguments": a}}
            for i, (n, a) in enumerate(calls)
        ],
    }


LONG = Sampling(max_tokens=10_000, seed=5)


class SpyClient(ScriptedClient):
    """Remembers the tools of each request, too."""

    def __init__(self, replies):
        super().__init__(replies)
        self.tools = []
        self.seeds = []

    async def complete(self, messages, sampling, tools=()):
        self.tools.append([tool["function"]["name"] for tool in tools])
        self.seeds.append(sampling.seed)
        return await super().complete(messages, sampling, tools)


async def decide(policy, question="2+3?", sampling=LONG):
    policy.reset("Be exact.")
    policy.observe(question)
    return await policy.act(sampling)


async def test_the_model_is_told_the_result_of_its_call():
    client = SpyClient([calling(("add", '{"a": 2, "b": 3}')), "It is 5."])

    decision = await decide(ToolUse(ChatPolicy(client), [add]))

    assert decision.action == "It is 5."
    assert client.tools == [["add"], ["add"]]
    assert [m["role"] for m in client.requests[1]] == ["system", "user", "assistant", "tool"]
    assert client.requests[1][-1] == {
        "role": "tool",
        "tool_call_id": "c0",
        "name": "add",
        "content": "5",
    }


async def test_every_model_call_of_the_turn_is_kept_and_extends_the_one_before():
    client = SpyClient([calling(("add", '{"a": 2, "b": 3}')), "It is 5."])

    first, second = (await decide(ToolUse(ChatPolicy(client), [add]))).completions

    assert (first.finish_reason, second.finish_reason) == ("tool_calls", "stop")
    so_far = first.prompt_ids + first.completion_ids
    assert second.prompt_ids[: len(so_far)] == so_far
    # The call was sampled; its result was not, and is only in the next prompt.
    assert b'"name": "add"' in bytes(i for i in first.completion_ids if i < 256)
    assert bytes(i for i in second.prompt_ids[len(so_far) :] if i < 256) == b"5"


async def test_every_model_call_of_the_turn_has_a_seed_of_its_own():
    client = SpyClient([calling(("add", "{}")), calling(("add", "{}")), "5"])
    await decide(ToolUse(ChatPolicy(client), [add]))

    assert client.seeds[0] == 5
    assert len(set(client.seeds)) == 3


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (("sub", "{}"), "Error: there is no tool 'sub'; there are add, fail"),
        (("add", "{a: 1}"), "Error: the arguments are not JSON: "),
        (("add", '{"a": 1}'), "Error: the arguments lack b"),
        (("fail", "{}"), "Error: ValueError: broken"),
    ],
)
async def test_a_call_that_goes_wrong_tells_the_model_why(call, told):
    client = SpyClient([calling(call), "Oh."])

    decision = await decide(ToolUse(ChatPolicy(client), [add, fail]))

    assert decision.action == "Oh."
    assert client.requests[1][-1]["content"].startswith(told)


async def test_parallel_calls_run_at_once_and_are_answered_in_order():
    all_three = threading.Barrier(3)

    def meet(name: str) -> str:
        all_three.wait(timeout=10)
        return f"met {name}"

    calls = [("meet", f'{{"name": "{name}"}}') for name in "abc"]
    client = SpyClient([calling(*calls), "Done."])

    await decide(ToolUse(ChatPolicy(client), [meet]))

    results = [(m["tool_call_id"], m["content"]) for m in client.requests[1][-3:]]
    assert results == [("c0", "met a"), ("c1", "met b"), ("c2", "met c")]


async def test_tools_are_withheld_in_the_last_step_and_its_note_is_not_stored():
    call = calling(("add", '{"a": 1, "b": 1}'))
    client = SpyClient([call, call, "2", "next"])
    policy = ToolUse(ChatPolicy(client), [add], max_steps=3, wrap_up="Answer now.")

    decision = await decide(policy)
    policy.observe("And now?")
    await policy.act(LONG)

    assert decision.action == "2"
    assert client.tools == [["add"], ["add"], [], ["add"]]
    note = {"role": "user", "content": "Answer now."}
    assert client.requests[2][-1] == note
    assert note not in client.requests[3]


async def test_calling_tools_when_there_are_none_any_more_is_no_action():
    call = calling(("add", '{"a": 1, "b": 1}'))
    client = SpyClient([call, call, "fine"])
    policy = ToolUse(ChatPolicy(client), [add], max_steps=2)

    decision = await decide(policy)
    policy.observe(decision.feedback)
    await policy.act(LONG)

    assert decision.action is None
    assert decision.feedback == "You cannot call tools any more. Give your answer now."
    assert len(decision.completions) == 2
    # Every stored call has a result, or chat templates refuse the dialog.
    roles = [m["role"] for m in client.requests[2]]
    assert roles == ["system", "user", "assistant", "tool", "assistant", "tool", "user"]
    assert client.requests[2][5]["content"].startswith("Error: not run")


async def test_calls_beyond_the_limit_are_not_run():
    calls = [("add", '{"a": 1, "b": 1}')] * 3
    client = SpyClient([calling(*calls), "Done."])

    await decide(ToolUse(ChatPolicy(client), [add], max_calls=2))

    results = [m["content"] for m in client.requests[1][-3:]]
    assert results == ["2", "2", "Error: not run, the tool calls of this turn are used up"]


def text_call(name, **arguments):
    return f"<tool_call>{json.dumps({'name': name, 'arguments': arguments})}</tool_call>"


async def test_a_model_without_native_tools_calls_in_text():
    client = SpyClient([f"Let me see. {text_call('add', a=2, b=3)}", "It is 5."])
    policy = ToolUse(ChatPolicy(client), [add], protocol=TextTools())

    decision = await decide(policy)

    assert decision.action == "It is 5."
    assert client.tools == [[], []]
    system = client.requests[0][0]["content"]
    assert system.startswith("Be exact.\n\nYou can call these tools:")
    assert '"name": "add"' in system
    result = client.requests[1][-1]
    assert result["role"] == "user"
    assert result["content"] == "<tool_result>\n5\n</tool_result>"


@pytest.mark.parametrize("garbage", ["", "{", "[]", '{"name": ["add"]}', '{"arguments": {}}', "5"])
async def test_a_garbled_call_in_text_is_told_to_the_model(garbage):
    client = SpyClient([f"<tool_call>{garbage}</tool_call>", "Oh."])

    await decide(ToolUse(ChatPolicy(client), [add], protocol=TextTools()))

    assert "Error: the call is not a name and JSON" in client.requests[1][-1]["content"]


async def test_a_call_in_text_may_end_with_a_stop_string():
    client = SpyClient(lambda m, s: text_call("add", a=1, b=1) if len(m) == 2 else "2")
    sampling = Sampling(max_tokens=1000, stop=("</tool_call>",))

    decision = await decide(
        ToolUse(ChatPolicy(client), [add], protocol=TextTools()), sampling=sampling
    )

    assert decision.action == "2"
    assert "\n2\n" in client.requests[1][-1]["content"]


async def test_a_cut_off_call_ends_the_turn():
    client = SpyClient([text_call("add", a=1, b=1)])
    policy = ToolUse(RejectCutOff(ChatPolicy(client)), [add], protocol=TextTools())

    decision = await decide(policy, sampling=Sampling(max_tokens=5))

    assert (decision.action, decision.reward) == (None, 0.0)
    assert len(client.requests) == 1


async def test_react_reasons_acts_and_parses():
    client = SpyClient([text_call("add", a=2, b=3), "<answer>5</answer>"])
    policy = ReAct(
        ChatPolicy(client),
        [add],
        xml_tag_parser("answer"),
        max_react_steps=2,
        protocol=TextTools(),
    )

    assert (await decide(policy)).action == "5"


def test_a_policy_that_is_no_chat_cannot_use_tools():
    with pytest.raises(ConfigError, match="ScriptedPolicy"):
        ToolUse(ScriptedPolicy([]), [add])


@pytest.mark.parametrize("tools", [[], [add, add]])
def test_tools_need_names_of_their_own(tools):
    with pytest.raises(ConfigError, match=r"at least one tool|different names"):
        ToolUse(ChatPolicy(ScriptedClient([])), tools)


class Door(lg.TextEnv):
    """Its action is a call of `push`."""

    action_tools = (tool_schema("push", "Push.", {"type": "object", "properties": {}}),)

    def start(self, options):
        return "Push.", "Reply with a call."

    def turn(self, action):
        return lg.end(success=json.loads(action)["name"] == "push")


PUSH = '<tool_call>{"name": "push", "arguments": {}}</tool_call>'


@pytest.mark.parametrize(
    ("tool_format", "replies", "offered"),
    [
        (
            "native",
            [calling(("add", '{"a": 1, "b": 2}')), calling(("push", "{}"))],
            ["add", "push"],
        ),
        ("text", ['{"name": "push", "arguments": {}}'], []),
    ],
)
async def test_a_call_of_an_action_is_the_action_beside_tools(tool_format, replies, offered):
    client = SpyClient(replies)
    harness = lg.Harness(tools=(add,), tool_format=tool_format)
    rollout = await lg.run_episode(Door(), harness.policy(client, Door()), lg.Task(env_id="door"))
    assert rollout.total_reward == 1
    assert client.tools[-1] == offered


async def test_a_tagged_call_of_an_action_ends_the_turn_of_a_model_with_tools():
    client = SpyClient([PUSH])
    decision = await decide(lg.Harness(tools=(add,)).policy(client, Door()))
    assert decision.action == PUSH


async def test_a_call_in_a_thought_is_a_draft():
    client = SpyClient([f"<think>Perhaps {PUSH}?</think> 5"])
    decision = await decide(ToolUse(ChatPolicy(client), [add], protocol=TextTools()))
    assert len(client.requests) == 1
    assert decision.action.endswith("5")


async def test_a_native_action_passes_a_parser_of_replies():
    client = SpyClient([calling(("push", "null"))])
    harness = lg.Harness(parser="xml:answer", tool_format="native")
    decision = await decide(harness.policy(client, Door()))
    assert json.loads(decision.action) == {"name": "push", "arguments": None}
