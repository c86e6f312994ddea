"""ChatPolicy: a chat client with a context, and the MakePolicy of a model behind a server."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace
from typing import Any

from ludic_gym.contexts import Context, FullDialog
from ludic_gym.dialogs import SendableDialog, message_calls, sendable_arguments, sendable_dialog
from ludic_gym.errors import ConfigError, PromptTooLong
from ludic_gym.policies.base import PlainCall, PolicyWrapper
from ludic_gym.prompts import ExactPrompts, sampled_message, sharing
from ludic_gym.sampling import call_sampling
from ludic_gym.trail import as_trail
from ludic_gym.types import (
    ChatClient,
    Completion,
    Decision,
    Message,
    Policy,
    Sampling,
    ToolSchema,
)

CLOSING = "\n</think>\n\n"
"""Text that ends a thought, in the tags of most models."""
MAX_LENGTH = "max_length"
"""Reason of a rollout that ends because its dialog leaves no room for a reply."""


class ChatPolicy(PlainCall):
    """Policy whose action is the client's whole reply.

    An episode whose dialog leaves no room for a further reply is truncated for the reason
    "max_length"; a first prompt without room is the client's PromptTooLong.
    system_prompt: None for the env's suggestion, "" for none, any other text instead of it.
    instructions: paragraphs that wrappers append to the system prompt.
    Deep copies share the client.

    >>> from ludic_gym import ScriptedClient
    >>> ChatPolicy(ScriptedClient(["5"]))("2 + 3 = ?")
    '5'
    """

    def __init__(
        self,
        client: ChatClient,
        context: Context | None = None,
        system_prompt: str | None = None,
    ) -> None:
        self.client = client
        self.context: Context = FullDialog() if context is None else context
        self.system_prompt = system_prompt
        self.instructions: tuple[str, ...] = ()
        self._tools: tuple[ToolSchema, ...] = ()
        self._unstored: tuple[Message, ...] = ()
        self._sendable = SendableDialog()
        self._prompt: Sequence[Message] = ()
        self._last: Completion | None = None
        self._has_replied = self._is_fork = False
        self.context.reset(system_prompt or "")

    def reset(self, system_prompt: str) -> None:
        """Start an episode."""
        prompt = system_prompt if self.system_prompt is None else self.system_prompt
        self._has_replied = False
        self.context.reset("\n\n".join(filter(None, (prompt, *self.instructions))))

    def observe(self, text: str) -> None:
        """Store the observation as a user message."""
        self.context.add({"role": "user", "content": text})

    async def act(self, sampling: Sampling) -> Decision:
        """Make one model call and store its reply."""
        try:
            completion = await self.ask(sampling)
        except PromptTooLong as error:
            return self.end_at_max_length(error)
        self.store(completion)
        return Decision(action=completion.text, completions=(completion,))

    def end(self) -> None:
        """Check the last prompt against the whole dialog, if the client makes its own prompts."""
        prompts = getattr(self.client, "prompts", None)
        if isinstance(prompts, ExactPrompts):
            prompts.check(self._prompt)

    def end_at_max_length(self, error: PromptTooLong) -> Decision:
        """The decision that ends an episode at its maximum length.

        Raises the error for a first prompt, which has outgrown nothing: a limit is too small.
        """
        if not self._has_replied:
            raise error
        return Decision(action=None, give_up=MAX_LENGTH)

    def store(self, completion: Completion, prefill: str = "") -> None:
        """Store the reply of the last `ask`, which ends the offer."""
        # An offer is for one reply; a later model call must not see it.
        tools, self._tools, self._unstored = self._tools, (), ()
        self._has_replied = True
        message = assistant_message(completion, prefill)
        self.context.add(sampled_message(message, self._prompt, completion, tools=tools))

    def partial_reply(self, completion: Completion, added: str) -> Message:
        """The reply of the last `ask` with an added text, for another `ask` to continue."""
        message = assistant_message(completion)
        message["content"] = completion.text + added
        return sampled_message(message, self._prompt, completion, added, self._tools)

    def offer(self, *, tools: Sequence[ToolSchema] = (), unstored: Sequence[Message] = ()) -> None:
        """Set the tools of the next reply, and messages that end its prompt but are not stored."""
        self._tools = tuple(tools)
        self._unstored = tuple(unstored)

    async def ask(self, sampling: Sampling, beginning: Message | None = None) -> Completion:
        """Make one model call with the offer, without storing its reply.

        beginning: of the reply, which the model continues.
        """
        messages: Sequence[Message] = self._sendable.of(self.context.messages())
        if self._unstored:
            messages = sendable_dialog([*messages, *self._unstored])
        # `store` needs it: the sampled tokens continue exactly this prompt.
        self._prompt = messages
        if beginning is not None:
            messages = as_trail(messages).then(beginning)
        # A client without tools may take only the first two arguments.
        further = (self._tools,) if self._tools else ()
        completion = await self.client.complete(messages, sampling, *further)
        self._last = sharing(completion, self._last, is_candidate=self._is_fork)
        return self._last

    def __deepcopy__(self, memo: dict[int, Any]) -> ChatPolicy:
        # Connections cannot be copied, and rate limits are per client.
        fork = ChatPolicy(self.client, system_prompt=self.system_prompt)
        fork.context = deepcopy(self.context, memo)
        fork._has_replied, fork._is_fork, fork._last = self._has_replied, True, self._last
        fork.instructions = self.instructions
        fork.offer(tools=self._tools, unstored=self._unstored)
        return fork


def assistant_message(completion: Completion, prefill: str = "") -> Message:
    """The completion as a message for later prompts."""
    text = prefill + completion.text
    if not completion.tool_calls:
        return {"role": "assistant", "content": text}
    calls = [
        replace(call, arguments=sendable_arguments(call.arguments))
        for call in completion.tool_calls
    ]
    # As the chat API has it for a message that consists of calls.
    return {"role": "assistant", "content": text or None, "tool_calls": message_calls(calls)}


def chat_policy_in(policy: Policy) -> ChatPolicy:
    """The ChatPolicy that the wrappers end in. Raises ConfigError if it is another policy."""
    innermost = policy
    while isinstance(innermost, PolicyWrapper):
        innermost = innermost.policy
    if not isinstance(innermost, ChatPolicy):
        raise ConfigError(
            f"needs a ChatPolicy, or wrappers around one, got {type(innermost).__name__}"
        )
    return innermost


class ThinkingBudget(PolicyWrapper):
    """End a thought that is too long, and let the model continue with its answer.

    A reply that reaches `max_think_tokens` is continued in a second model call, with up to
    `max_tokens` in all. Unless it holds the last word of `closing` already, such as "</think>",
    `closing` is appended first. Its tokens belong to the second prompt and are never trained on
    (budget forcing, Muennighoff et al. 2025, arXiv:2501.19393).
    Raises ConfigError for a limit below 1, and a `closing` without a word.

    >>> from ludic_gym import ScriptedClient
    >>> client = ScriptedClient(["Let me see: 2 + 3 is 2 + 1 + 1 + 1", "5"])
    >>> policy = ThinkingBudget(ChatPolicy(client), max_think_tokens=17, closing="</think>")
    >>> policy("2 + 3 = ?")
    'Let me see: 2 + 3</think>5'
    """

    def __init__(self, policy: ChatPolicy, max_think_tokens: int, closing: str = CLOSING) -> None:
        super().__init__(policy)
        if max_think_tokens < 1:
            raise ConfigError(f"max_think_tokens is at least 1, got {max_think_tokens}")
        if not closing.strip():
            raise ConfigError(f"closing={closing!r} has no word to end a thought with")
        self._chat = policy
        self._max_think_tokens = max_think_tokens
        self._closing, self._end = closing, closing.split()[-1]

    async def act(self, sampling: Sampling) -> Decision:
        """Think and reply, in one or two model calls."""
        # Two calls, because no chat API can add tokens to a completion in progress.
        short = min(sampling.max_tokens, self._max_think_tokens)
        # Not stored yet: only the whole reply belongs to the dialog.
        try:
            first = await self._chat.ask(replace(sampling, max_tokens=short))
        except PromptTooLong as error:
            return self._chat.end_at_max_length(error)
        left = sampling.max_tokens - short
        if first.finish_reason != "length" or left < 1:
            self._chat.store(first)
            return Decision(action=first.text, completions=(first,))
        # The thought may have ended before the limit cut off the answer.
        added = "" if self._end in first.text else self._closing
        # Another seed: the answer must not draw the random numbers of the thought again.
        rest = call_sampling(replace(sampling, max_tokens=left), 1)
        try:
            second = await self._chat.ask(rest, self._chat.partial_reply(first, added))
        except PromptTooLong:
            # A thought that fills the dialog is a reply that was cut off.
            self._chat.store(first)
            return Decision(action=first.text, completions=(first,))
        prefill = first.text + added
        self._chat.store(second, prefill)
        return Decision(action=prefill + second.text, completions=(first, second))
