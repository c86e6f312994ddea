"""Policies around a policy: parsing, rejection, retries, candidates and budgets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import replace
from typing import Protocol, runtime_checkable

from ludic_gym.concurrency import gather_all
from ludic_gym.errors import ClientError, ConfigError
from ludic_gym.parsers import Parser
from ludic_gym.policies.base import PolicyWrapper
from ludic_gym.sampling import call_sampling
from ludic_gym.types import (
    ChatClient,
    Completion,
    Decision,
    Message,
    Policy,
    Sampling,
    ToolSchema,
)

Choose = Callable[[Sequence[Decision]], int]


class Parsed(PolicyWrapper):
    """Apply `parser` to the wrapped policy's action, and add the parser's reward.

    bonus: reward of the first action of an episode. Positive rewards of the parser, too, are paid
        once: paid in each turn, they would teach to play on rather than to win.

    >>> from ludic_gym import ChatPolicy, ScriptedClient, xml_tag_parser
    >>> client = ScriptedClient(["I add.<answer>5</answer>"])
    >>> Parsed(ChatPolicy(client), xml_tag_parser("answer"))("2 + 3 = ?")
    '5'
    """

    def __init__(self, policy: Policy, parser: Parser, *, bonus: float = 0.0) -> None:
        super().__init__(policy)
        self.parser = parser
        self._bonus = bonus
        self._has_paid = False

    def reset(self, system_prompt: str) -> None:
        """Start an episode, whose first action earns the bonus."""
        self._has_paid = False
        super().reset(system_prompt)

    async def act(self, sampling: Sampling) -> Decision:
        """Decide; a parse failure has the parser's feedback instead of an action."""
        decision = await self.policy.act(sampling)
        # Calls of functions that are actions are no text to be parsed.
        is_call = bool(decision.completions and decision.completions[-1].tool_calls)
        if decision.action is None or is_call:
            return decision
        parsed = self.parser(decision.action)
        earned = parsed.reward + (self._bonus if parsed.action is not None else 0.0)
        if earned > 0:
            earned, self._has_paid = 0.0 if self._has_paid else earned, True
        reward = decision.reward + earned
        return replace(decision, action=parsed.action, reward=reward, feedback=parsed.feedback)


class RejectCutOff(PolicyWrapper):
    """Reject a reply that reached `max_tokens`: it has no action, and `penalty` is its reward.

    >>> import asyncio
    >>> from ludic_gym import ChatPolicy, ScriptedClient
    >>> policy = RejectCutOff(ChatPolicy(ScriptedClient(["The answer is 5"])))
    >>> policy.observe("2 + 3 = ?")
    >>> decision = asyncio.run(policy.act(Sampling(max_tokens=5)))
    >>> decision.action, decision.reward
    (None, 0.0)
    """

    def __init__(
        self,
        policy: Policy,
        penalty: float = 0.0,
        feedback: str = "Your reply was cut off. Reply more briefly.",
    ) -> None:
        super().__init__(policy)
        self.penalty = penalty
        self.feedback = feedback

    async def act(self, sampling: Sampling) -> Decision:
        """Decide, unless the last model call of the turn was cut off."""
        decision = await self.policy.act(sampling)
        if decision.action is None or not decision.cut_off:
            return decision
        return replace(decision, action=None, reward=self.penalty, feedback=self.feedback)


@runtime_checkable
class KnowsItsTools(Protocol):
    """A chat client that knows if its model has a format for tool calls."""

    @property
    def has_native_tools(self) -> bool:
        """True if `complete` passes tools on to the model."""


def has_native_tools(client: ChatClient) -> bool:
    """True for a client whose model or server has a format of its own for tool calls."""
    return isinstance(client, KnowsItsTools) and client.has_native_tools


class CutShort:
    """A chat client that limits completions to `max_tokens`, whatever a request says."""

    def __init__(self, client: ChatClient, max_tokens: int) -> None:
        self._client, self._max_tokens = client, max_tokens

    @property
    def has_native_tools(self) -> bool:
        """As of the wrapped client."""
        return has_native_tools(self._client)

    @property
    def prompts(self) -> object:
        """As of the wrapped client."""
        return getattr(self._client, "prompts", None)

    async def complete(
        self, messages: Sequence[Message], sampling: Sampling, tools: Sequence[ToolSchema] = ()
    ) -> Completion:
        """The completion of the wrapped client."""
        # Longer ones were cut off in training, so the model never learned to end them.
        if sampling.max_tokens > self._max_tokens:
            sampling = replace(sampling, max_tokens=self._max_tokens)
        if tools:
            return await self._client.complete(messages, sampling, tools)
        return await self._client.complete(messages, sampling)


class Retry(PolicyWrapper):
    """Repeat a decision without an action at once, with its feedback as the observation.

    attempts: maximum per turn. Their rewards add up, so that each failure costs its penalty.

    >>> from ludic_gym import ChatPolicy, Parsed, ScriptedClient, xml_tag_parser
    >>> client = ScriptedClient(["5", "<answer>5</answer>"])
    >>> policy = Retry(Parsed(ChatPolicy(client), xml_tag_parser("answer")))
    >>> policy("2 + 3 = ?"), len(client.requests)
    ('5', 2)
    """

    def __init__(self, policy: Policy, attempts: int = 2) -> None:
        super().__init__(policy)
        if attempts < 1:
            raise ConfigError(f"attempts is at least 1, got {attempts}")
        self._attempts = attempts

    async def act(self, sampling: Sampling) -> Decision:
        """The first decision with an action, or the last one."""
        decision = await self.policy.act(sampling)
        for attempt in range(1, self._attempts):
            if decision.action is not None or decision.give_up:
                break
            self.policy.observe(decision.feedback)
            # Another seed, because the same one could give the same reply.
            again = await self.policy.act(call_sampling(sampling, attempt))
            decision = replace(
                again,
                reward=decision.reward + again.reward,
                completions=decision.completions + again.completions,
            )
        return decision


class BestOf(PolicyWrapper):
    """Sample `n` decisions at once, from copies of the wrapped policy, and choose one.

    choose: returns its index; by default `majority`, which is self-consistency (Wang et al. 2022,
        arXiv:2203.11171).
    All model calls are kept, those of the chosen decision last; the reward is the chosen one's.

    >>> from ludic_gym import ChatPolicy, ScriptedClient
    >>> BestOf(ChatPolicy(ScriptedClient(["4", "5", "5"])), n=3)("2 + 3 = ?")
    '5'
    """

    def __init__(self, policy: Policy, n: int, choose: Choose | None = None) -> None:
        super().__init__(policy)
        if n < 1:
            raise ConfigError(f"n is at least 1, got {n}")
        self._n = n
        self._choose = choose or majority

    async def act(self, sampling: Sampling) -> Decision:
        """The chosen decision; the copy that made it replaces the wrapped policy."""
        # Copies share the client and not the dialog, so that no candidate sees another.
        copies = [deepcopy(self.policy) for _ in range(self._n)]
        decisions = await gather_all(
            copy.act(call_sampling(sampling, index)) for index, copy in enumerate(copies)
        )
        best = self._choose(decisions)
        # Its dialog holds the chosen reply, from which the next turn goes on.
        self.policy = copies[best]
        # Wrappers read the reply from the last call.
        in_order = [*decisions[:best], *decisions[best + 1 :], decisions[best]]
        calls = tuple(call for decision in in_order for call in decision.completions)
        return replace(decisions[best], completions=calls)


def majority(decisions: Sequence[Decision]) -> int:
    """Index of the first decision for the most frequent action; parse failures have no vote.

    >>> majority([Decision(action=action) for action in ("5", "6", "6")])
    1
    """
    votes = Counter(d.action for d in decisions if d.action is not None)
    if not votes:
        return 0
    # Among equal counts, `most_common` keeps the order of the first votes: ties are reproducible.
    winner = votes.most_common(1)[0][0]
    return next(index for index, d in enumerate(decisions) if d.action == winner)


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
            for completion in decision.completions:
                if completion.completion_ids is None:
                    raise ClientError(
                        "a token budget needs a client that returns token ids, this one does not"
                    )
                self._tokens += len(completion.completion_ids)
        reason = ""
        if self._max_tokens is not None and self._tokens >= self._max_tokens:
            reason = "token_budget"
        elif self._max_turns is not None and self._turns >= self._max_turns:
            reason = "turn_budget"
        # A reason from within stays: it came first.
        return replace(decision, give_up=reason) if reason and not decision.give_up else decision
