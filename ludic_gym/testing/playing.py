"""Players for the checks: deterministic episodes of an environment."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any, SupportsFloat

from ludic_gym.envs.core.base import Info, TextEnv
from ludic_gym.errors import ContractError, NoOracle
from ludic_gym.types import Env

Make = Callable[[], Env]
Act = Callable[[Env], str]
AnyTurn = tuple[str, SupportsFloat, bool, bool, dict[str, Any]]

SEEDS = range(8)
MOST_TURNS = 200
HOSTILE_TEXTS = (
    "",
    " \n",
    "\0",
    "\ud800",
    "é 你好 😀\n",
    "\x1b[2J\x1b]0;title\x07",
    "x" * 100_000,
    "<answer>" * 1000,
    "\\boxed{" * 1000,
    "9**9**9",
    "__import__('os')",
)


def own(env: Env) -> TextEnv | None:
    """The environment below all wrappers, if it is a TextEnv with legal and best actions."""
    inner = env.unwrapped
    return inner if isinstance(inner, TextEnv) else None


def oracle_or_sampled(seed: int) -> Act:
    """A player like the oracle, or a random one where there is none."""
    otherwise = legal_or_sampled(seed)

    def act(env: Env) -> str:
        inner = own(env)
        try:
            return otherwise(env) if inner is None else inner.oracle_action()
        except NoOracle:
            return otherwise(env)

    return act


def legal_or_sampled(seed: int) -> Act:
    """A random player of mostly legal actions, determined by the seed."""
    rng = random.Random(seed)

    def act(env: Env) -> str:
        inner = own(env)
        return drawn(rng, () if inner is None else inner.legal_actions())

    return act


def drawn(rng: random.Random, legal: tuple[str, ...]) -> str:
    """A legal action, or in one of ten cases any eight characters."""
    if legal and rng.random() < 0.9:
        return rng.choice(legal)
    return "".join(map(chr, rng.choices(range(32, 127), k=8)))


def turns(env: Env, seed: int, act: Act) -> Iterator[AnyTurn]:
    """The turns of the episode of that seed."""
    env.reset(seed=seed)
    return rest(env, act)


def rest(env: Env, act: Act) -> Iterator[AnyTurn]:
    """The turns up to the end of the episode that is running, or up to `MOST_TURNS`."""
    for _ in range(MOST_TURNS):
        turn = env.step(act(env))
        yield turn
        if ended(turn):
            return


def ended(turn: AnyTurn) -> bool:
    """True if the turn ends the episode."""
    return turn[2] or turn[3]


def episodes(make: Make) -> Iterator[list[AnyTurn]]:
    """Some episodes, each of at most `MOST_TURNS` turns."""
    env = make()
    for seed in SEEDS:
        yield list(turns(env, seed, legal_or_sampled(seed)))
        yield list(turns(env, seed, oracle_or_sampled(seed)))


def infos(make: Make) -> Iterator[Info]:
    """The infos of some resets and episodes."""
    for seed in SEEDS:
        yield make().reset(seed=seed)[1]
    for record in episodes(make):
        yield from (turn[4] for turn in record)


def insist_same(what: str, first: object, second: object) -> None:
    """Raise ContractError unless both are equal."""
    if first != second:
        raise ContractError(f"{what} is {_short(first)} at one time, {_short(second)} at another")


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 300 else f"{text[:300]}..."
