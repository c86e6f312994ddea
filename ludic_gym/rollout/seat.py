"""Seat: one agent's part of a match, from its observations to the steps of its rollout."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from ludic_gym.rollout.episode import finite_reward, truncated_info
from ludic_gym.types import Decision, Policy, Rollout, Sampling, Step, Task


class Ending(NamedTuple):
    """The part of a step that tells if the match has ended for the agent."""

    terminated: bool = False
    truncated: bool = False
    info: Mapping[str, Any] = {}

    def cut(self, reason: str) -> Ending:
        """The same if the match has ended, else truncated for the reason."""
        if self.terminated or self.truncated:
            return self
        return Ending(False, True, truncated_info(self.info, reason))


# The usual case, made once: most turns do not end the match.
CONTINUES = Ending()


class Seat:
    """Steps of one agent whose rewards arrive after its turn.

    The order of calls in a turn is `observe`, `decide`, `settle`; at the end `finish` and
    `show_end`.

    policy: the agent's policy, reset by the caller.
    feedback: the next observation if the last decision held no action, else None.
    """

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.feedback: str | None = None
        self._steps: list[Step] = []
        self._pending: Decision | None = None
        self._seen = ""
        self._early_reward = 0.0

    def observe(self, text: str) -> None:
        """Pass the next observation to the policy."""
        self._seen = text
        self.policy.observe(text)

    async def decide(self, sampling: Sampling) -> Decision:
        """The policy's decision; its turn stays open until `settle`."""
        self._pending = await self.policy.act(sampling)
        self.feedback = self._pending.feedback if self._pending.action is None else None
        return self._pending

    def settle(self, reward: float, ending: Ending = CONTINUES) -> None:
        """Close the open turn with its reward; a reward before the first turn is added to that.

        ending: the end of the match for this agent, and the info of its step.
        """
        if self._pending is None:
            # In games such as poker a move of another agent may pay before the first turn.
            self._early_reward += float(reward)
            return
        failed = {"parse_error": True} if self._pending.action is None else {}
        info = {**ending.info, **failed}
        self._append(self._pending, reward, ending._replace(info=info))
        self._pending = None

    def finish(self, reward: float, ending: Ending) -> None:
        """End the match for this agent, perhaps between two of its turns.

        If no turn is open, the reward has been settled, and the last step gets the other values.
        An agent without any turn gets a step that only holds the reward.
        """
        if self._pending is not None:
            self.settle(reward, ending)
        elif self._steps:
            # Its reward is in the last step already; the end came with a move of another agent.
            info = {**self._steps[-1].info, **ending.info}
            self._steps[-1] = replace(self._steps[-1], **ending._replace(info=info)._asdict())
        else:
            self._append(Decision(action=None), reward, ending)

    def show_end(self, text: str) -> None:
        """Set the final observation, which the policy does not see: it has no further turn."""
        self._seen = text

    def _append(self, decision: Decision, reward: float, ending: Ending) -> None:
        step = Step(
            observation=self._seen,
            decision=decision,
            # An early reward arrived before the first turn, for a move of another agent.
            reward=finite_reward(float(reward) + decision.reward + self._early_reward),
            terminated=ending.terminated,
            truncated=ending.truncated,
            # The env may change its own dict later.
            info=dict(ending.info),
        )
        self._steps.append(step)
        self._early_reward = 0.0

    def rollout(self, task: Task, agent: str) -> Rollout:
        """The record so far. agent: the env's name of the seat."""
        return Rollout(
            task=task, steps=tuple(self._steps), agent=agent, final_observation=self._seen
        )
