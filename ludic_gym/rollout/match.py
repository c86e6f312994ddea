"""run_match: one match of several agents in a PettingZoo env, with a rollout for each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple, cast

from pettingzoo import AECEnv, ParallelEnv

from ludic_gym.concurrency import gather_all
from ludic_gym.errors import ConfigError
from ludic_gym.policies.base import end_episode
from ludic_gym.rollout.episode import (
    ATTEMPTS,
    MAX_TURNS,
    copied_options,
    finite_reward,
    text_of,
    truncated_info,
)
from ludic_gym.rollout.pool import call
from ludic_gym.sampling import turn_sampling
from ludic_gym.types import Decision, Policy, Rollout, Sampling, Step, Task

TurnEnv = AECEnv[str, Any, Any]
JointEnv = ParallelEnv[str, Any, Any]


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
    failures: decisions without an action in a row.
    """

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.feedback: str | None = None
        self.failures = 0
        self._steps: list[Step] = []
        self._pending: Decision | None = None
        self._seen = ""
        self._early_reward = 0.0

    @property
    def is_out_of_attempts(self) -> bool:
        """True if the last decision held no action, like the ATTEMPTS - 1 before it."""
        # Without an end, a player that is about to lose would rather find no action for ever.
        return self.failures > 0 and self.failures % ATTEMPTS == 0

    def observe(self, text: str) -> None:
        """Pass the next observation to the policy."""
        self._seen = text
        self.policy.observe(text)

    async def decide(self, sampling: Sampling) -> Decision:
        """The policy's decision; its turn stays open until `settle`."""
        self._pending = await self.policy.act(sampling)
        self.feedback = self._pending.feedback if self._pending.action is None else None
        self.failures = 0 if self._pending.action is not None else self.failures + 1
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


async def run_match(
    env: TurnEnv | JointEnv, policies: Mapping[str, Policy], task: Task
) -> tuple[Rollout, ...]:
    """Play `task`; a rollout for each agent that has a policy, in the order of `policies`.

    An agent's step has all rewards that arrive before its next turn or the end of the match. An
    agent whose match ends before its first move has one step without action for its reward.
    A turn is one agent's decision, or in a ParallelEnv one decision of each agent; parse failures
    count. An agent's third reply in a row without an action is the empty text for the env, which
    loses where that is illegal. In an AECEnv every agent that has to move needs a policy. In a
    ParallelEnv the others wait until each has an action; the env moves agents without a policy.
    Raises ConfigError for a missing policy or a task with `attempts`, and the errors of the env and
    the policies.

    >>> import asyncio
    >>> import pettingzoo
    >>> from ludic_gym import OraclePolicy, RandomPolicy, Sampling
    >>> env = pettingzoo.make("aec", "ludic/TicTacToe-v0")
    >>> policies = {"player_0": OraclePolicy(env), "player_1": RandomPolicy(env)}
    >>> task = Task(env_id="ludic/TicTacToe-v0", seed=1, sampling=Sampling(seed=1))
    >>> first, second = asyncio.run(run_match(env, policies, task))
    >>> first.agent, first.total_reward, second.total_reward
    ('player_0', 1.0, -1.0)
    """
    unknown = [agent for agent in policies if agent not in env.possible_agents]
    if unknown or not policies:
        raise ConfigError(
            f"policies for {sorted(policies)}, but the agents are {env.possible_agents}"
        )
    if task.attempts is not None:
        # One player's format would end the match for the others, and the env has no result for it.
        raise ConfigError(
            f"attempts={task.attempts!r} for {task.env_id}: a match continues after a parse "
            "failure, so leave attempts out, or play the view for one player with run_episodes"
        )
    seats = {agent: Seat(policy) for agent, policy in policies.items()}
    if isinstance(env, ParallelEnv):
        await _play_jointly(env, seats, task)
    else:
        await _play_in_turn(env, seats, task)
    for seat in seats.values():
        end_episode(seat.policy)
    return tuple(seat.rollout(task, agent) for agent, seat in seats.items())


async def _play_in_turn(env: TurnEnv, seats: Mapping[str, Seat], task: Task) -> None:
    """Play until no agent is left or the match is truncated; fill the seats' steps."""
    await call(env, env.reset, seed=task.seed, options=copied_options(task))
    for agent, seat in seats.items():
        seat.policy.reset(env.infos.get(agent, {}).get("system_prompt", ""))
    turn, reason = 0, ""
    while env.agents and not reason:
        # Agents that have ended are retired before the limit is checked: that takes no turn.
        if env.terminations[env.agent_selection] or env.truncations[env.agent_selection]:
            await _retire(env, seats)
        elif turn == task.max_turns:
            reason = MAX_TURNS
        else:
            reason = await _move(env, seats, turn_sampling(task.sampling, turn))
            turn += 1
    if reason:
        await _cut_short(env, seats, reason)


async def _move(env: TurnEnv, seats: Mapping[str, Seat], sampling: Sampling) -> str:
    """Play the selected agent's turn; the reason for which it ends the match, "" for none."""
    agent = env.agent_selection
    # An AEC env cannot move an agent itself.
    if agent not in seats:
        raise ConfigError(
            f"{agent!r} has to move, but there are only policies for {sorted(seats)}; add one"
        )
    seat = seats[agent]
    if seat.feedback is None:
        observation, reward, _, _, info = await call(env, env.last)
        seat.settle(reward, Ending(info=info))
        seat.observe(text_of(observation, env))
    else:
        # The env was not stepped since the failed decision, so there is nothing new to observe.
        seat.observe(seat.feedback)
    decision = await seat.decide(sampling)
    if decision.action is not None:
        await call(env, env.step, decision.action)
    elif seat.is_out_of_attempts and not decision.give_up:
        seat.feedback = None
        await call(env, env.step, "")
    else:
        seat.settle(0.0)
    return decision.give_up


async def _retire(env: TurnEnv, seats: Mapping[str, Seat]) -> None:
    """Settle with the selected agent, whose match has ended, and let the env remove it."""
    agent = env.agent_selection
    observation, reward, terminated, truncated, info = await call(env, env.last)
    if agent in seats:
        seats[agent].finish(reward, Ending(terminated, truncated, info))
        # Some envs have no observation for an agent that has left.
        seats[agent].show_end("" if observation is None else text_of(observation, env))
    # By the AEC interface the only legal action of an agent that has ended.
    await call(env, env.step, None)


async def _cut_short(env: TurnEnv, seats: Mapping[str, Seat], reason: str) -> None:
    """Truncate the match for every agent that is still in it."""
    for agent, seat in seats.items():
        if agent not in env.agents:
            continue
        ending = Ending(env.terminations[agent], env.truncations[agent], env.infos[agent])
        # `last` returns the reward of the selected agent only; for the others there is this.
        seat.finish(env._cumulative_rewards[agent], ending.cut(reason))
        # The rollout ends with the text that the agent would have read next.
        observation = await call(env, env.observe, agent)
        seat.show_end(text_of(observation, env) if seat.feedback is None else seat.feedback)


async def _play_jointly(env: JointEnv, seats: Mapping[str, Seat], task: Task) -> None:
    """Play until no seated agent is left or the match is truncated; fill the seats' steps."""
    reset = await call(env, env.reset, seed=task.seed, options=copied_options(task))
    observations: Mapping[str, Any] = reset[0]
    for agent, seat in seats.items():
        seat.policy.reset(reset[1][agent].get("system_prompt", ""))
    turn, reason, actions = 0, "", dict[str, str]()
    while not reason and (acting := {a: seats[a] for a in env.agents if a in seats}):
        asked = {agent: seat for agent, seat in acting.items() if agent not in actions}
        for agent, seat in asked.items():
            seat.observe(_observed(seat, observations.get(agent), env))
        sampling = turn_sampling(task.sampling, turn)
        # All at the same time, each with its own sampling seed.
        decided = await gather_all(
            seat.decide(turn_sampling(sampling, i)) for i, seat in enumerate(asked.values())
        )
        turn += 1
        last = MAX_TURNS if turn == task.max_turns else ""
        reason = next((d.give_up for d in decided if d.give_up), last)
        for (agent, seat), decision in zip(asked.items(), decided, strict=True):
            if decision.action is not None:
                actions[agent] = decision.action
            elif seat.is_out_of_attempts and not decision.give_up:
                actions[agent], seat.feedback = "", None
        if len(actions) == len(acting):
            observations, actions = await _step(env, acting, actions, reason), {}
        elif reason:
            for agent, seat in acting.items():
                seat.finish(0.0, CONTINUES.cut(reason))
                seat.show_end(_observed(seat, observations.get(agent), env))
        else:
            # The others wait, with their turn open, for those that are asked again.
            for agent in asked.keys() - actions.keys():
                seats[agent].settle(0.0)


async def _step(
    env: JointEnv, seats: Mapping[str, Seat], actions: Mapping[str, str], reason: str
) -> Mapping[str, Any]:
    """Send the joint action and settle with every agent; the next observations."""
    # The env moves every agent without a policy itself.
    result = await call(env, env.step, dict(actions))
    observations, rewards, terminations, truncations, infos = result
    for agent, seat in seats.items():
        ending = Ending(terminations[agent], truncations[agent], infos[agent])
        ending = ending.cut(reason) if reason else ending
        seat.settle(rewards[agent], ending)
        if ending.terminated or ending.truncated:
            seat.show_end(_observed(seat, observations.get(agent), env))
    return cast(Mapping[str, Any], observations)


def _observed(seat: Seat, observation: object, env: JointEnv) -> str:
    """The agent's next observation; feedback on a failed decision, after which the env waits."""
    if seat.feedback is not None:
        return seat.feedback
    return "" if observation is None else text_of(observation, env)
