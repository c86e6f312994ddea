"""Checks of what models get: tools that can be called, and replies that are read as meant."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from ludic_gym.audit.players import sample_arguments
from ludic_gym.audit.subject import ENDLESS, AuditSubject, Check, Result, in_budget, oracle, play
from ludic_gym.clients.scripted import Reply, ScriptedClient
from ludic_gym.envs.tools.calls import calls_in
from ludic_gym.harness import HARNESSES, Harness
from ludic_gym.offered import action_schemas, env_tools
from ludic_gym.policies.base import run_blocking
from ludic_gym.policies.chat import assistant_message
from ludic_gym.rollout.episode import run_episode
from ludic_gym.tools.tool import call_tool, tools_by_name
from ludic_gym.types import Completion, Env, Message, Sampling, Task, ToolCall, ToolSchema

_BROKEN = re.compile(r"Error: (\w*(?:Type|Name|Attribute|Import|NotImplemented|NotFound)Error.*)")
SEEDS, LONGEST_REPLY = range(6), 2**20


def tools_can_be_called(subject: AuditSubject) -> Result:
    """Every tool runs with arguments of its schema, and every call that is an action is known."""
    env = subject.make()
    env.reset(seed=0)
    tools = tools_by_name(env_tools(env))
    for name, tool in tools.items():
        arguments = json.dumps(sample_arguments(tool.schema))
        result = run_blocking(call_tool(tools, ToolCall(id="", name=name, arguments=arguments)))
        if broken := _BROKEN.match(result):
            evidence = {"arguments": arguments, "result": result}
            return "fail", f"the tool {name!r} raises {broken[1][:100]}", evidence
    actions = action_schemas(env)
    for schema in actions:
        name, unknown = schema["function"]["name"], "no_such_call"
        texts = []
        for called in (name, unknown):
            env.reset(seed=0)
            action = {"name": called, "arguments": sample_arguments(schema)}
            texts.append(str(env.step(json.dumps(action))[0]).replace(called, unknown))
        if texts[0] == texts[1]:
            return "fail", f"the call {name!r} is answered like one of no name", {"text": texts[0]}
    count = len(tools) + len(actions)
    return ("pass", f"{count} calls", {}) if count else ("not judged", "it offers no tools", {})


def oracle_wins_by_text(subject: AuditSubject) -> Result:
    """The oracle's actions earn as replies of a model, in each form, what they earn by themselves.

    The forms are those of the harnesses by name, and calls in a model's own format.
    """
    subject.require_oracle()
    tried = 0
    ways = {**HARNESSES, "native calls": Harness(tool_format="native")}
    for seed in in_budget(SEEDS, subject.budget_s):
        alone = play(subject.make(), seed, oracle, ENDLESS)
        for name, harness in ways.items():
            env = subject.make()
            policy = harness.policy(_client(env, harness), env)
            sampling = Sampling(max_tokens=LONGEST_REPLY)
            turns = len(alone.actions)
            task = Task(env_id=subject.env_id, seed=seed, max_turns=turns, sampling=sampling)
            rollout = run_blocking(run_episode(env, policy, task))
            tried += 1
            if abs(rollout.total_reward - alone.total) > 1e-9:
                evidence = {"way": name, "seed": seed, "last": repr(rollout.steps[-1])[:1000]}
                earned = f"the oracle earns {rollout.total_reward:g} by the harness {name!r}"
                return "fail", f"{earned}, {alone.total:g} by itself", evidence
    return "pass", f"{tried} episodes by {len(ways)} harnesses", {}


def _client(env: Env, harness: Harness) -> ScriptedClient:
    """A model that replies with the oracle's action, in the form of the harness."""

    def reply(messages: Sequence[Message], sampling: Sampling) -> Reply:
        action = oracle(env)
        text = harness.reply_form.replace("{}", action)
        return (harness.tool_format == "native" and _call(action, action_schemas(env))) or text

    return ScriptedClient(reply)


def _call(action: str, schemas: Sequence[ToolSchema]) -> Message | None:
    """The action as a message with a call; None for an action that is none of the calls."""
    names = [schema["function"]["name"] for schema in schemas]
    matches = [call for call in calls_in(action)[0] if call.name in names]
    if not matches:
        return None
    calls = [
        ToolCall(id=call.name, name=call.name, arguments=json.dumps(call.arguments))
        for call in matches
    ]
    return assistant_message(
        Completion(text="", finish_reason="tool_calls", tool_calls=tuple(calls))
    )


DOOR_CHECKS: dict[str, Check] = {
    "doors/tools": tools_can_be_called,
    "doors/oracle": oracle_wins_by_text,
}
