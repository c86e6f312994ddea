"""Budget and ThinkingBudget: limits for episodes and for thoughts."""

from __future__ import annotations

from dataclasses import replace

from ludic_gym.errors import ClientError, ConfigError, PromptTooLong
from ludic_gym.policies.base import PolicyWrapper
from ludic_gym.policies.chat import ChatPolicy
from ludic_gym.sampling import call_sampling
from ludic_gym.types import Completion, Decision, Policy, Sampling

CLOSING = "\n</think>\n\n"
"""Text that ends a thought, in the tags of most models."""


class Budget(PolicyWrapper):
    """End an episode that has used up its completion tokens or its turns.

    max_tokens: the last model call is limited to the rest. If a turn has several calls (tool use),
        wrap the inner ChatPolicy, so that each call is counted before the next.
    max_turns: turns of this policy; the last one is still played.
    The rollout is truncated for the reason "token_budget" or "turn_budget".
    Raises ClientError for max_tokens with a client that returns no token ids.

    >>> import asyncio
    >>> from ludic_gym import ScriptedPolicy
    >>> policy = Budget(ScriptedPolicy(["left", "right"]), max_turns=2)
    >>> [asyncio.run(policy.act(Sampling())).give_up for _ in range(2)]
    ['', 'turn_budget']
    """

    def __init__(
        self, policy: Policy, *, max_tokens: int | None = None, max_turns: int | None = None
    ) -> None:
        super().__init__(policy)
        limits = [limit for limit in (max_tokens, max_turns) if limit is not None]
        if not limits or min(limits) < 1:
            raise ConfigError(
                "a Budget has max_tokens or max_turns, at least 1 each, got "
                f"max_tokens={max_tokens}, max_turns={max_turns}"
            )
        self._max_tokens = max_tokens
        self._max_turns = max_turns
        self._tokens = self._turns = 0

    def reset(self, system_prompt: str) -> None:
        """Start an episode with the whole budget."""
        self._tokens = self._turns = 0
        super().reset(system_prompt)

    async def act(self, sampling: Sampling) -> Decision:
        """Decide within the rest of the budget."""
        if self._max_tokens is not None:
            # At least 1, because servers reject 0; an episode whose budget is 0 has ended before.
            left = max(1, self._max_tokens - self._tokens)
            sampling = replace(sampling, max_tokens=min(sampling.max_tokens, left))
        decision = await self.policy.act(sampling)
        self._turns += 1
        if self._max_tokens is not None:
            self._tokens += sum(map(_token_count, decision.completions))
        reason = self._used_up()
        # A reason from within stays: it came first.
        return replace(decision, give_up=reason) if reason and not decision.give_up else decision

    def _used_up(self) -> str:
        if self._max_tokens is not None and self._tokens >= self._max_tokens:
            return "token_budget"
        if self._max_turns is not None and self._turns >= self._max_turns:
            return "turn_budget"
        return ""


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
            return self._chat.outgrown(error)
        left = sampling.max_tokens - short
        if first.finish_reason != "length" or left < 1:
            self._chat.store(first)
            return Decision(action=first.text, completions=(first,))
        # The thought may have ended before the limit cut off the answer.
        added = "" if self._end in first.text else self._closing
        # Another seed: the answer must not draw the random numbers of the thought again.
        rest = call_sampling(replace(sampling, max_tokens=left), 1)
        try:
            second = await self._chat.ask(rest, self._chat.begun(first, added))
        except PromptTooLong:
            # A thought that fills the dialog is a reply that was cut off.
            self._chat.store(first)
            return Decision(action=first.text, completions=(first,))
        prefill = first.text + added
        self._chat.store(second, prefill)
        return Decision(action=prefill + second.text, completions=(first, second))


def _token_count(completion: Completion) -> int:
    if completion.completion_ids is None:
        raise ClientError("a token budget needs a client that returns token ids, this one does not")
    return len(completion.completion_ids)
