"""Retry and BestOf: more than one attempt at a turn."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import replace

from ludic_gym.concurrency import gathered
from ludic_gym.errors import ConfigError
from ludic_gym.policies.base import PolicyWrapper
from ludic_gym.sampling import call_sampling
from ludic_gym.types import Decision, Policy, Sampling

Choose = Callable[[Sequence[Decision]], int]


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
        decisions = await gathered(
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
