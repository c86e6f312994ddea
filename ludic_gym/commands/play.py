"""`ludic play`: play an env at the terminal, alone or against a policy.

    $ ludic play ludic/Arithmetic-v0 --seed 7
    (Ctrl-D leaves. A line that ends in a backslash goes on in the next one.)

    Give the number in tags, such as <answer>7</answer>.

    Bob has 66 pens and gets 79 more pens. How many pens does Bob have now?
    > 145

    success (the answer is 145)
    reward 1

`ludic_gym.play` does the same in Python, for an environment of one player.
"""

from __future__ import annotations

import asyncio
import re
import sys
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Annotated, cast

import pettingzoo
import tyro

from ludic_gym.commands.arguments import (
    ChatArg,
    HarnessName,
    env_name,
    keyword_arguments,
    option,
    parse,
    readable_env_errors,
)
from ludic_gym.errors import ConfigError
from ludic_gym.limits import RequestLimits
from ludic_gym.making import make_env
from ludic_gym.models import REFERENCE_POLICIES, model
from ludic_gym.play import human
from ludic_gym.policies.reference import HasOpponents, OpponentPolicy, read_line
from ludic_gym.records import open_records
from ludic_gym.rollout.episode import run_episode
from ludic_gym.rollout.episodes import MatchEnv
from ludic_gym.rollout.match import run_match
from ludic_gym.rollout.outcome import outcome, succeeded
from ludic_gym.terminal import printable
from ludic_gym.types import Env, Episode, MakePolicy, Rollout, Sampling, Task

EXAMPLES = """\
ludic play ludic/TicTacToe-v0
ludic play ludic/TicTacToe-v0 --seat second --against perfect
ludic play ludic/TicTacToe-v0 --seat second --against runs/tic-tac-toe
ludic play ludic/Negotiation-v0 --against http://localhost:8000/v1 --save games.jsonl
ludic play ludic/Arithmetic-v0 --seed 7"""

# Of the players that a game has, those that are a fair match for a person.
USUAL = ("medium", "fair")
BACKSLASH = "\\"
_OPEN_TAG = re.compile(r"<answer>(?!.*</answer>)", re.DOTALL)
HINT = "(Ctrl-D leaves. A line that ends in a backslash goes on in the next one.)"
# Keys of the last info that say why an episode has failed, and how they are shown.
REASONS = {
    "message": "message",
    "broken": "rules broken",
    "resolved": "requests resolved as they must be",
    "fulfilled": "requests fulfilled",
    "faults": "not as it must be",
    "placed": "items in their places",
    "support": "share of the needed passages that were opened",
}
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
            "Policy of the other seats: random, perfect, easy, medium or hard or another player "
            "that the game has, a server's address, a run folder, or module:function. By default "
            "medium or fair where the game has such a player, else random.",
        ),
    ] = None
    model: Annotated[str | None, option("NAME")] = None
    """The server's name for its model; by default the one it serves."""
    chat_arg: ChatArg = ()
    harness: HarnessName = None
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
    if sys.stdin.isatty():
        # input() edits lines, and takes more than 4,095 bytes of one, once the module is loaded.
        with suppress(ImportError):
            import_module("readline")
    try:
        rollouts = asyncio.run(play_episode(task, args))
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


async def play_episode(task: Task, args: PlayArgs) -> tuple[Rollout, ...]:
    """The human's rollout, and in a match those of the other players after it.

    Raises ConfigError for an unknown id, a seat that the env does not have, and options of matches
    in an environment of one player, and EOFError if the human leaves.
    """
    env: MatchEnv | None = None
    with readable_env_errors():
        # An AEC env first, because its turns alternate as at a table.
        if task.env_id in pettingzoo.aec_registry:
            env = pettingzoo.make("aec", task.env_id, **task.kwargs)
        elif task.env_id in pettingzoo.parallel_registry:
            env = pettingzoo.make("parallel", task.env_id, **task.kwargs)
        elif args.against is not None or args.model is not None or args.seat != "first":
            raise ConfigError(f"{task.env_id} has one player: leave out --against and --seat")
        else:
            alone = make_env(task.env_id, **task.kwargs)
    if env is None:
        print(HINT)
        return (await run_episode(alone, human(alone.unwrapped, read=read_reply), task),)
    agents = list(env.possible_agents)
    you = seat_named(args.seat, agents)
    async with open_rivals(env, args) as make_policy:
        # The reference policies accept both kinds of env; other policies ignore the env.
        # A policy each, since policies store the dialog of their own seat.
        others = {agent: make_policy(cast(Env, env)) for agent in agents if agent != you}
        print(HINT)
        return await run_match(env, {you: human(env.unwrapped, read=read_reply), **others}, task)


def open_rivals(env: MatchEnv, args: PlayArgs) -> AbstractAsyncContextManager[MakePolicy]:
    """The policy of the other seats. Raises ConfigError for an unknown one."""
    inner = env.unwrapped
    names = tuple(inner.opponents) if isinstance(inner, HasOpponents) else ()
    name = args.against or next((name for name in USUAL if name in names), "random")
    if name == "perfect":
        name = "oracle"
    if name in names and name not in REFERENCE_POLICIES:
        return nullcontext(partial(OpponentPolicy, name=name))
    chat_args = keyword_arguments(args.chat_arg)
    return model(name, args.model, limits=args.limits, chat_args=chat_args, harness=args.harness)


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


def read_reply() -> str:
    """A reply from the terminal, after a prompt. Raises EOFError at Ctrl-D.

    The next line belongs to it after a line that ends in a backslash, in a block of code that is
    open, and before the closing tag of an answer.
    """
    text = read_line("> ")
    while text.endswith("\\") or text.count("```") % 2 or _OPEN_TAG.search(text):
        text = f"{text.removesuffix(BACKSLASH)}\n{read_line('. ')}"
    return text


def farewell(rollout: Rollout, *others: Rollout) -> str:
    """The final observation, outcome and reward of the human's rollout, as text.

    others: rollouts of the other players, whose illegal moves are named as the reason of the end.
    """
    info = rollout.steps[-1].info
    lines = [printable(rollout.final_observation)]
    for other in others:
        if outcome(other) == "illegal":
            action = other.steps[-1].decision.action
            lines.append(f"the move {action!r} of {other.agent} is not allowed")
    if not succeeded(rollout):
        if info.get("total"):
            lines.append(f"tests passed: {info['passed']} of {info['total']}")
        # A number may be 0; a text is empty where there is nothing to say.
        named = {name: info[name] for name in REASONS if info.get(name, "") != ""}
        lines += [f"{REASONS[name]}: {printable(str(value))}" for name, value in named.items()]
    truth = f" (the answer is {info['truth']})" if "truth" in info else ""
    lines += [f"{outcome(rollout)}{truth}", f"reward {rollout.total_reward:g}"]
    return "\n" + "\n".join(filter(None, lines))
