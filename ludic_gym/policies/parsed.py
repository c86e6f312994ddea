"""Parsed and RejectCutOff: actions or feedback from a policy's text."""

from __future__ import annotations

from dataclasses import replace

from ludic_gym.parsers import Parser
from ludic_gym.policies.base import PolicyWrapper
from ludic_gym.types import Decision, Policy, Sampling


class Parsed(PolicyWrapper):
    """Apply `parser` to the wrapped policy's action, and add the parser's reward.

    >>> from ludic_gym import ChatPolicy, ScriptedClient, xml_tag_parser
    >>> client = ScriptedClient(["I add.<answer>5</answer>"])
    >>> Parsed(ChatPolicy(client), xml_tag_parser("answer"))("2 + 3 = ?")
    '5'
    """

    def __init__(self, policy: Policy, parser: Parser) -> None:
        super().__init__(policy)
        self.parser = parser

    async def act(self, sampling: Sampling) -> Decision:
        """Decide; a parse failure has the parser's feedback instead of an action."""
        decision = await self.policy.act(sampling)
        if decision.action is None:
            return decision
        found = self.parser(decision.action)
        reward = decision.reward + found.reward
        return replace(decision, action=found.action, reward=reward, feedback=found.feedback)


class RejectCutOff(PolicyWrapper):
    """Reject a reply that reached `max_tokens`: it has no action, and `penalty` is its reward.

    >>> import asyncio
    >>> from ludic_gym import ChatPolicy, ScriptedClient
    >>> policy = RejectCutOff(ChatPolicy(ScriptedClient(["The answer is 5"])))
    >>> policy.observe("2 + 3 = ?")
    >>> decision = asyncio.run(policy.act(Sampling(max_tokens=5)))
    >>> decision.action, decision.reward
    (None, -0.1)
    """

    def __init__(
        self,
        policy: Policy,
        penalty: float = -0.1,
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
