"""`ludic play`: somebody at the terminal plays an env, alone or against a policy."""

from __future__ import annotations

import asyncio
import shutil
import signal
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Any, Literal, cast

import gymnasium as gym
import pettingzoo
import tyro
from pettingzoo import AECEnv

from ludic_gym.bench import open_policy
from ludic_gym.bench.result import outcome
from ludic_gym.commands.arguments import (
    env_name,
    keyword_arguments,
    option,
    parse,
    readable_env_errors,
)
from ludic_gym.errors import ConfigError
from ludic_gym.policies import HumanPolicy
from ludic_gym.policies.reference import KnowsLegalActions, read_line
from ludic_gym.rollout import run_episode, run_match
from ludic_gym.types import Env, Rollout, Sampling, Task

EXAMPLES = """\
ludic play ludic/TicTacToe-v0
ludic play ludic/TicTacToe-v0 --seat second --against perfect
ludic play ludic/TicTacToe-v0 --seat second --against runs/tic-tac-toe
ludic play ludic/Arithmetic-v0 --seed 7"""


@dataclass(frozen=True, kw_only=True)
class PlayArgs:
    """Play an environment in the terminal; Ctrl-D or Ctrl-C leaves."""

    env_id: Annotated[tyro.conf.Positional[str], option("ID")]
    """The environment's id, as `ludic list` shows it, or module:id for one of your own."""
    seat: Literal["first", "second"] = "first"
    """Whether you move first, in a game for two."""
    against: Annotated[str | None, option("POLICY")] = None
    """In a game for two: random (as without it), perfect, a server's address or a run folder."""
    seed: Annotated[int | None, option("N")] = None
    """Makes the same episode again; by default every one is new."""
    env_kwargs: Annotated[tuple[str, ...], option("KEY=VALUE ...")] = ()
    """Arguments of the env."""


def main(argv: list[str]) -> int:
    """Runs `ludic play`."""
    args = parse(PlayArgs, argv, command="play", examples=EXAMPLES)
    if args.seed is not None and args.seed < 0:
        raise ConfigError(f"seed must be at least 0, got {args.seed}")
    kwargs = dict(keyword_arguments(args.env_kwargs))
    task = Task(
        env_id=env_name(args.env_id),
        kwargs=kwargs,
        seed=args.seed,
        sampling=Sampling(seed=args.seed),
    )
    try:
        with interrupted_at_once():
            rollouts = asyncio.run(played(task, args))
    except EOFError:
        print("\nleft before the end")
        return 0
    print(farewell(*rollouts))
    return 0


@contextmanager
def interrupted_at_once() -> Iterator[None]:
    """Lets Ctrl-C end the program wherever it is."""

    def interrupt(signum: int, frame: object) -> None:
        raise KeyboardInterrupt

    # Where the handler is not Python's own, asyncio.run leaves it alone. Its own would wait for
    # the loop, which waits for the human.
    previous = signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)


async def played(task: Task, args: PlayArgs) -> tuple[Rollout, ...]:
    """The human's rollout, and in a game for two the other player's after it."""
    if task.env_id in pettingzoo.aec_registry:
        return await game_for_two(task, seat=args.seat, against=args.against or "random")
    if args.against is not None or args.seat != "first":
        raise ConfigError(f"{task.env_id} is for one player: leave out --against and --seat")
    return (await game_for_one(task),)


async def game_for_one(task: Task) -> Rollout:
    """The human's rollout of a Gymnasium env."""
    with readable_env_errors():
        env: Env = gym.make(task.env_id, **task.kwargs)
    return await run_episode(env, human(env.unwrapped), task)


async def game_for_two(task: Task, *, seat: str, against: str) -> tuple[Rollout, ...]:
    """The human's rollout of a PettingZoo game, and the other player's."""
    with readable_env_errors():
        env: AECEnv[str, Any, Any] = pettingzoo.make("aec", task.env_id, **task.kwargs)
    first, second = env.possible_agents
    you, other = (first, second) if seat == "first" else (second, first)
    async with open_policy("oracle" if against == "perfect" else against) as make_policy:
        # The reference policies look into either kind of env; all others look into none.
        opponent = make_policy(cast(Env, env))
        policies = {you: human(env.unwrapped), other: opponent}
        return await run_match(env, policies, task)


def human(env: object) -> HumanPolicy:
    """Somebody at the terminal, who may mistype without losing the game."""
    legal = env.legal_actions if isinstance(env, KnowsLegalActions) else tuple
    return HumanPolicy(read=lambda: read_action(legal), write=show)


def show(text: str) -> None:
    """Prints the text, its long lines broken between words."""
    width = shutil.get_terminal_size().columns
    lines = (textwrap.fill(s, width) if len(s) > width else s for s in text.split("\n"))
    print("", *lines, sep="\n")


def read_action(legal_actions: Callable[[], tuple[str, ...]]) -> str:
    """What was typed, once it is allowed, whatever its case."""
    while True:
        print("> ", end="", flush=True)
        action, legal = read_line().strip(), legal_actions()
        if not legal or action in legal:
            return action
        for name in legal:
            if name.casefold() == action.casefold():
                return name
        print(f"{action!r} is not allowed here; choose from: {' '.join(legal)}")


def farewell(rollout: Rollout, *others: Rollout) -> str:
    """How it ended."""
    info = rollout.steps[-1].info
    truth = f" (the answer is {info['truth']})" if "truth" in info else ""
    faults = [
        f"the other player's move {other.steps[-1].decision.action!r} is not allowed"
        for other in others
        if outcome(other) == "illegal"
    ]
    lines = [rollout.final_observation, *faults, f"{outcome(rollout)}{truth}"]
    return "\n" + "\n".join([*filter(None, lines), f"reward {rollout.total_reward:g}"])
