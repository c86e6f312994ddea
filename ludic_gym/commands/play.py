"""`ludic play`: play an env at the terminal, alone or against a policy.

    $ ludic play ludic/Arithmetic-v0 --seed 7

    Give the number in <answer></answer> tags.

    Bob has 66 pens and gets 79 more pens. How many pens does Bob have now?
    > 145

    success (the answer is 145)
    reward 1

`ludic_gym.play` does the same in Python, for an environment of one player.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, cast

import gymnasium as gym
import pettingzoo
import tyro

from ludic_gym.bench.policies import open_policy
from ludic_gym.bench.result import outcome
from ludic_gym.commands.arguments import (
    ChatArg,
    env_name,
    keyword_arguments,
    option,
    parse,
    readable_env_errors,
)
from ludic_gym.errors import ConfigError
from ludic_gym.limits import RequestLimits
from ludic_gym.play import human
from ludic_gym.policies.reference import read_line
from ludic_gym.printable import printable
from ludic_gym.records import open_records
from ludic_gym.rollout.episode import run_episode
from ludic_gym.rollout.episodes import MatchEnv
from ludic_gym.rollout.match import run_match
from ludic_gym.types import Env, Episode, Rollout, Sampling, Task

EXAMPLES = """\
ludic play ludic/TicTacToe-v0
ludic play ludic/TicTacToe-v0 --seat second --against perfect
ludic play ludic/TicTacToe-v0 --seat second --against runs/tic-tac-toe
ludic play ludic/Negotiation-v0 --against http://localhost:8000/v1 --save games.jsonl
ludic play ludic/Arithmetic-v0 --seed 7"""

PLACES = ("first", "second", "third", "fourth", "fifth", "sixth")


@dataclass(frozen=True, kw_only=True)
class PlayArgs:
    """Play an environment in the terminal; Ctrl-D or Ctrl-C leaves."""

    env_id: Annotated[tyro.conf.Positional[str], option("ID")]
    """The environment's id, as in `ludic list`, or module:id for your own."""
    seat: str = "first"
    """Your seat in a game with several players: first, second, third, or an agent's name."""
    against: Annotated[
        str | None,
        option(
            "POLICY",
            "Policy of the other seats: random (the default), perfect, easy, medium or hard "
            "where the game has such players, a server's address, a run folder, or "
            "module:function.",
        ),
    ] = None
    model: Annotated[str | None, option("NAME")] = None
    """The server's name for its model; by default the one it serves."""
    chat_arg: ChatArg = ()
    max_length: Annotated[int | None, option("N")] = None
    """Limit of tokens per prompt and reply together; by default that of the model or server."""
    limits: Annotated[RequestLimits, tyro.conf.arg(name="")] = field(default_factory=RequestLimits)
    seed: Annotated[int | None, option("N")] = None
    """Seed of the episode; by default every episode is new."""
    env_kwargs: Annotated[tuple[str, ...], option("KEY=VALUE ...")] = ()
    """Arguments of the env."""
    save: Annotated[Path | None, option("FILE.jsonl")] = None
    """Append the finished episode to this file, as one line."""


def main(argv: list[str]) -> int:
    """Run `ludic play`; 0, also for an episode that was left before its end.

    Raises ConfigError for arguments that cannot work, and KeyboardInterrupt for Ctrl-C.
    """
    args = parse(PlayArgs, argv, command="play", examples=EXAMPLES)
    if args.seed is not None and args.seed < 0:
        raise ConfigError(f"seed must be at least 0, got {args.seed}")
    task = Task(
        env_id=env_name(args.env_id),
        kwargs=keyword_arguments(args.env_kwargs),
        seed=args.seed,
        sampling=Sampling(seed=args.seed, max_length=args.max_length),
        # A person leaves when it is enough, and a match counts the turns of all players.
        max_turns=10_000,
    )
    try:
        rollouts = asyncio.run(played(task, args))
    except EOFError:
        # Ctrl-D is the usual way to leave, and no failure.
        print("\nleft before the end")
        return 0
    print(farewell(*rollouts))
    # Only a whole episode: readers of records compute its reward and outcome from the last step.
    if args.save is not None:
        with open_records(args.save) as append:
            append(Episode(index=0, task=task, rollouts=rollouts))
        print(f"saved to {args.save}")
    return 0


async def played(task: Task, args: PlayArgs) -> tuple[Rollout, ...]:
    """The human's rollout, and in a match those of the other players after it.

    Raises ConfigError for an unknown id, for options of matches in an environment of one player,
    and EOFError if the human leaves.
    """
    with readable_env_errors():
        match = match_env(task)
    if match is not None:
        return await game_for_several(match, task, args)
    if args.against is not None or args.model is not None or args.seat != "first":
        raise ConfigError(f"{task.env_id} has one player: leave out --against and --seat")
    return (await game_for_one(task),)


def match_env(task: Task) -> MatchEnv | None:
    """The PettingZoo env of that id, as an AEC env if there is one; None if it has one player.

    An AEC env first, because its turns alternate as at a table.
    """
    if task.env_id in pettingzoo.aec_registry:
        return pettingzoo.make("aec", task.env_id, **task.kwargs)
    if task.env_id in pettingzoo.parallel_registry:
        return pettingzoo.make("parallel", task.env_id, **task.kwargs)
    return None


async def game_for_one(task: Task) -> Rollout:
    """The human's rollout of a Gymnasium env."""
    with readable_env_errors():
        env: Env = gym.make(task.env_id, **task.kwargs)
    return await run_episode(env, human(env.unwrapped, read=prompted), task)


async def game_for_several(env: MatchEnv, task: Task, args: PlayArgs) -> tuple[Rollout, ...]:
    """The human's rollout of a match, and those of the others, who share one policy.

    Raises ConfigError for a seat that the env does not have, and for an unknown policy.
    """
    agents = list(env.possible_agents)
    you = seat_named(args.seat, agents)
    against = "oracle" if args.against == "perfect" else args.against or "random"
    chat_args = keyword_arguments(args.chat_arg)
    opened = open_policy(against, args.model, limits=args.limits, chat_args=chat_args)
    async with opened as make_policy:
        # The reference policies accept both kinds of env; other policies ignore the env.
        # A policy each, since policies store the dialog of their own seat.
        others = {agent: make_policy(cast(Env, env)) for agent in agents if agent != you}
        policies = {you: human(env.unwrapped, read=prompted), **others}
        return await run_match(env, policies, task)


def seat_named(seat: str, agents: list[str]) -> str:
    """The agent of that name, or in that position. Raises ConfigError if there is none.

    >>> seat_named("second", ["white", "black"]), seat_named("white", ["white", "black"])
    ('black', 'white')
    """
    # Names replace positions, because an env may call its second agent "first".
    names = {**dict(zip(PLACES, agents, strict=False)), **{agent: agent for agent in agents}}
    if seat not in names:
        raise ConfigError(f"no seat {seat!r}; there are: {', '.join(names)}")
    return names[seat]


def prompted() -> str:
    """A line from the terminal, after a prompt. Raises EOFError at Ctrl-D."""
    return read_line("> ")


def farewell(rollout: Rollout, *others: Rollout) -> str:
    """The final observation, outcome and reward of the human's rollout, as text.

    others: rollouts of the other players, whose illegal moves are named as the reason of the end.
    """
    info = rollout.steps[-1].info
    truth = f" (the answer is {info['truth']})" if "truth" in info else ""
    faults = [
        f"the move {other.steps[-1].decision.action!r} of {other.agent} is not allowed"
        for other in others
        if outcome(other) == "illegal"
    ]
    lines = [printable(rollout.final_observation), *faults, f"{outcome(rollout)}{truth}"]
    return "\n" + "\n".join([*filter(None, lines), f"reward {rollout.total_reward:g}"])
