"""Matches with simultaneous moves, in PettingZoo's ParallelEnv."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pettingzoo import ParallelEnv

from ludic_gym.concurrency import gathered
from ludic_gym.rollout.episode import MAX_TURNS, copied_options, text_of
from ludic_gym.rollout.seat import Ending, Seat
from ludic_gym.rollout.threads import call
from ludic_gym.sampling import turn_sampling
from ludic_gym.types import Decision, Sampling, Task

JointEnv = ParallelEnv[str, Any, Any]


async def play_jointly(env: JointEnv, seats: Mapping[str, Seat], task: Task) -> None:
    """Play until no seated agent is left or the match is truncated; fill the seats' steps."""
    reset = await call(env, env.reset, seed=task.seed, options=copied_options(task))
    observations: Mapping[str, Any] = reset[0]
    for agent, seat in seats.items():
        seat.policy.reset(reset[1][agent].get("system_prompt", ""))
    turn, reason = 0, ""
    while not reason and (acting := {a: seats[a] for a in env.agents if a in seats}):
        for agent, seat in acting.items():
            seat.observe(_observed(seat, observations.get(agent), env))
        decisions = await _decisions(acting, turn_sampling(task.sampling, turn))
        turn += 1
        last = MAX_TURNS if turn == task.max_turns else ""
        reason = next((d.give_up for d in decisions.values() if d.give_up), last)
        observations = await _step(env, acting, decisions, reason)


async def _decisions(seats: Mapping[str, Seat], sampling: Sampling) -> dict[str, Decision]:
    """All decisions, made at the same time, each with its own sampling seed."""
    decided = await gathered(
        seat.decide(turn_sampling(sampling, index)) for index, seat in enumerate(seats.values())
    )
    return dict(zip(seats, decided, strict=True))


async def _step(
    env: JointEnv, seats: Mapping[str, Seat], decisions: Mapping[str, Decision], reason: str
) -> Mapping[str, Any]:
    """Send the actions that were found and settle with every agent; the next observations."""
    actions = {agent: d.action for agent, d in decisions.items() if d.action is not None}
    result = await call(env, env.step, actions) if actions else _unchanged(seats)
    observations, rewards, terminations, truncations, infos = result
    for agent, seat in seats.items():
        ending = Ending(terminations[agent], truncations[agent], infos[agent])
        ending = ending.cut(reason) if reason else ending
        seat.settle(rewards[agent], ending)
        if ending.terminated or ending.truncated:
            seat.show_end(_observed(seat, observations.get(agent), env))
    return observations


def _unchanged(seats: Mapping[str, Seat]) -> tuple[dict[str, Any], ...]:
    """The result of a step in which no agent has an action, without a call of the env."""
    no = dict.fromkeys(seats, False)
    return {}, dict.fromkeys(seats, 0.0), no, no, {agent: {} for agent in seats}


def _observed(seat: Seat, observation: object, env: JointEnv) -> str:
    """The agent's next observation: feedback on a failed decision, then the env's observation."""
    parts = [] if seat.feedback is None else [seat.feedback]
    if observation is not None:
        parts.append(text_of(observation, env))
    return "\n\n".join(parts)
