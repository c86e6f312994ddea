"""ToolUse and ReAct: alternating model calls and tool calls, up to an answer."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

from ludic_gym.concurrency import gather_all
from ludic_gym.errors import ConfigError
from ludic_gym.parsers import Parser
from ludic_gym.policies.base import PolicyWrapper
from ludic_gym.policies.chat import ChatPolicy, chat_policy_in
from ludic_gym.policies.wrappers import Parsed
from ludic_gym.reader import without_thought
from ludic_gym.sampling import call_sampling
from ludic_gym.text_calls import CALL, CALL_END, split_calls
from ludic_gym.tools.tool import Tool, call_tool, tools_by_name
from ludic_gym.types import Completion, Decision, Message, Policy, Sampling, ToolCall, ToolSchema

WRAP_UP = "You cannot call tools any more. Give your answer now."


class ToolProtocol(Protocol):
    """Format in which a model gets tools, calls them, and gets their results."""

    def instructions(self, tools: Sequence[ToolSchema]) -> str:
        """Text about the tools for the system prompt."""

    def offered(self, tools: Sequence[ToolSchema]) -> Sequence[ToolSchema]:
        """The tools for the client's request."""

    def calls_in(self, completion: Completion) -> Sequence[ToolCall]:
        """The tool calls in a completion."""

    def results(self, calls: Sequence[ToolCall], texts: Sequence[str]) -> list[Message]:
        """Messages with the results, one text per call."""


class NativeTools:
    """Tools of the chat API, in the format of the model's chat template."""

    def instructions(self, tools: Sequence[ToolSchema]) -> str:
        """No text: the chat template has it."""
        return ""

    def offered(self, tools: Sequence[ToolSchema]) -> Sequence[ToolSchema]:
        """All tools."""
        return tools

    def calls_in(self, completion: Completion) -> Sequence[ToolCall]:
        """The calls that the client has parsed, or those in the text of a server without one."""
        return completion.tool_calls or TextTools().calls_in(completion)

    def results(self, calls: Sequence[ToolCall], texts: Sequence[str]) -> list[Message]:
        """One tool message per call."""
        return [
            {"role": "tool", "tool_call_id": call.id, "name": call.name, "content": text}
            for call, text in zip(calls, texts, strict=True)
        ]


class TextTools:
    """Tools in plain text, for any model: `<tool_call>` JSON in replies, results in messages.

    >>> from ludic_gym import Completion
    >>> reply = '<tool_call>{"name": "add", "arguments": {"a": 2, "b": 3}}</tool_call>'
    >>> TextTools().calls_in(Completion(text=reply, finish_reason="stop"))
    [ToolCall(id='call_0', name='add', arguments='{"a": 2, "b": 3}')]
    """

    def instructions(self, tools: Sequence[ToolSchema]) -> str:
        """The schemas, and the format of a call."""
        schemas = "\n".join(json.dumps(tool["function"]) for tool in tools)
        return (
            f"You can call these tools:\n{schemas}\nTo call one, write "
            f'{CALL}{{"name": ..., "arguments": {{...}}}}{CALL_END}. You then get the result. '
            "You may make several calls at once."
        )

    def offered(self, tools: Sequence[ToolSchema]) -> Sequence[ToolSchema]:
        """No tools: the system prompt has them."""
        return ()

    def calls_in(self, completion: Completion) -> Sequence[ToolCall]:
        """Every `<tool_call>` after the thought; the last may be unclosed, cut by a stop string."""
        _, pairs = split_calls(without_thought(completion.text), "tagged")
        return [
            ToolCall(id=f"call_{i}", name=name, arguments=arguments)
            for i, (name, arguments) in enumerate(pairs)
        ]

    def results(self, calls: Sequence[ToolCall], texts: Sequence[str]) -> list[Message]:
        """One user message with all results; its name distinguishes it from an observation."""
        # From the user, because templates of models without tool calls have no role "tool".
        content = "\n".join(f"<tool_result>\n{text}\n</tool_result>" for text in texts)
        return [{"role": "user", "name": "tools", "content": content}]


class ToolUse(PolicyWrapper):
    """Let the wrapped policy call tools before it acts; all calls of one reply run at once.

    policy: a ChatPolicy, or wrappers around one.
    tools: typed functions, or tools made from them by `as_tool`.
    max_steps: model calls per turn. The last one has no tools, and `wrap_up` ends its prompt
        without being stored.
    max_calls: tool calls per turn; further calls get an error as their result.
    protocol: format of tools and calls; None: `NativeTools()`.
    actions: schemas of the calls that are actions, for a reply with one ends the turn.
    A turn whose last model call still calls tools has no action.
    Raises ConfigError for fewer than two steps, without tools, or for tools of one name.

    >>> from ludic_gym import ScriptedClient
    >>> def double(number: int) -> int:
    ...     'Twice the number.'
    ...     return 2 * number
    >>> call = '<tool_call>{"name": "double", "arguments": {"number": 4}}</tool_call>'
    >>> client = ScriptedClient([call, "It is 8."])
    >>> ToolUse(ChatPolicy(client), [double], protocol=TextTools())("Twice four?")
    'It is 8.'
    >>> print(client.requests[-1][-1]["content"])
    <tool_result>
    8
    </tool_result>
    """

    def __init__(
        self,
        policy: Policy,
        tools: Sequence[Tool | Callable[..., object]],
        *,
        protocol: ToolProtocol | None = None,
        max_steps: int = 8,
        max_calls: int = 32,
        wrap_up: str = WRAP_UP,
        actions: Callable[[], Sequence[ToolSchema]] = tuple,
    ) -> None:
        super().__init__(policy)
        if max_steps < 2:
            raise ConfigError(f"max_steps is at least 2, a call and an answer, got {max_steps}")
        self.tools = tools_by_name(tools)
        if not self.tools:
            raise ConfigError("ToolUse needs at least one tool, got none")
        self.max_steps = max_steps
        self.max_calls = max_calls
        self.wrap_up = wrap_up
        self._actions = actions
        self.protocol: ToolProtocol = protocol or NativeTools()
        self._schemas = tuple(tool.schema for tool in self.tools.values())
        self._chat.instructions += (self.protocol.instructions(self._schemas),)
        # The instructions are new, so a dialog that began without them must begin again.
        self._chat.reset("")

    @property
    def _chat(self) -> ChatPolicy:
        return chat_policy_in(self.policy)

    async def act(self, sampling: Sampling) -> Decision:
        """Decide, after the tool calls of the model."""
        completions: tuple[Completion, ...] = ()
        reward, calls_left = 0.0, self.max_calls
        for step in range(self.max_steps):
            is_last = step + 1 == self.max_steps
            decision = await self._step(call_sampling(sampling, step), is_last)
            completions += decision.completions
            reward += decision.reward
            decision = replace(decision, completions=completions, reward=reward)
            # A reply that a wrapper rejected, such as one that was cut off, may hold half a call.
            calls = () if decision.action is None else self.protocol.calls_in(completions[-1])
            actions = {schema["function"]["name"] for schema in self._actions()}
            if not calls or any(call.name in actions for call in calls):
                return decision
            # Calls of the last reply are not run, because no reply could use their results.
            await self._run(calls, 0 if is_last else calls_left)
            # Counted over the turn: one reply may hold thousands of calls.
            calls_left = max(0, calls_left - len(calls))
        return replace(decision, action=None, feedback=self.wrap_up)

    async def _step(self, sampling: Sampling, is_last: bool) -> Decision:
        actions = tuple(self._actions())
        if is_last:
            wrap_up: Message = {"role": "user", "content": self.wrap_up}
            self._chat.offer(tools=self.protocol.offered(actions), unstored=[wrap_up])
        else:
            self._chat.offer(tools=self.protocol.offered((*self._schemas, *actions)))
        return await self.policy.act(sampling)

    async def _run(self, calls: Sequence[ToolCall], allowed: int) -> None:
        """Run the allowed calls and store a result for every call, as chat templates require."""
        texts = await gather_all(call_tool(self.tools, call) for call in calls[:allowed])
        refused = ["Error: not run, the tool calls of this turn are used up"] * len(calls[allowed:])
        for message in self.protocol.results(calls, texts + refused):
            self._chat.context.add(message)


class ActionCalls(PolicyWrapper):
    """Offer the functions that are an environment's actions as tools of the model's own format.

    A reply with calls is the action {"name": ..., "arguments": {...}} as JSON, or a list of them;
    the next observation is the result of the calls. A reply without calls is an action as it is.
    schemas: those of the present state, which may change between episodes.
    """

    def __init__(self, policy: Policy, schemas: Callable[[], Sequence[ToolSchema]]) -> None:
        super().__init__(policy)
        self._schemas = schemas
        self._calls: Sequence[ToolCall] = ()

    def reset(self, system_prompt: str) -> None:
        """Start an episode."""
        self._calls = ()
        super().reset(system_prompt)

    def observe(self, text: str) -> None:
        """Store the observation, as the result of the calls if there were any."""
        if not self._calls:
            super().observe(text)
        texts = [text, *["See the first result."] * (len(self._calls) - 1)]
        for message in NativeTools().results(self._calls, texts[: len(self._calls)]):
            chat_policy_in(self.policy).context.add(message)

    async def act(self, sampling: Sampling) -> Decision:
        """Decide; the calls of a reply are the action."""
        chat_policy_in(self.policy).offer(tools=self._schemas())
        decision = await self.policy.act(sampling)
        last = chat_policy_in(self.policy).context.messages()[-1]
        # The calls of a turn without an action may have got their results already, from `ToolUse`.
        has_calls = decision.completions and last["role"] != "tool"
        self._calls = decision.completions[-1].tool_calls if has_calls else ()
        if not self._calls or decision.action is None:
            return decision
        calls = [_call_text(call) for call in self._calls]
        return replace(decision, action=calls[0] if len(calls) == 1 else f"[{', '.join(calls)}]")


def ReAct(
    policy: Policy,
    tools: Sequence[Tool | Callable[..., object]],
    parser: Parser,
    *,
    max_react_steps: int = 8,
    protocol: ToolProtocol | None = None,
) -> Parsed:
    """Reason and act (Yao et al. 2022, arXiv:2210.03629): tool use, then a parsed answer.

    parser: finds the action in the last reply, outside of which the model may think.
    max_react_steps: model calls per turn, the answer included.
    policy, tools, protocol: see `ToolUse`.

        search = ReAct(ChatPolicy(client), [calculator], xml_tag_parser("answer"))
        action = await search.act(Sampling())
    """
    # The parser is outermost, so that it sees the answer only and no reply with tool calls.
    return Parsed(ToolUse(policy, tools, max_steps=max_react_steps, protocol=protocol), parser)


def _call_text(call: ToolCall) -> str:
    """The call as JSON; arguments that are no JSON stay as they are, for the env to refuse."""
    return f'{{"name": {json.dumps(call.name)}, "arguments": {call.arguments or "{}"}}}'
