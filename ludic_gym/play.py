"""play: play an environment at a terminal or in a notebook."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Callable, Coroutine
from typing import Any, Protocol, TypeVar, runtime_checkable

import gymnasium as gym

from ludic_gym.offered import legal_actions
from ludic_gym.policies.base import run_blocking
from ludic_gym.policies.reference import HumanPolicy, read_line
from ludic_gym.reader import one_of, read_reply
from ludic_gym.rollout.episode import run_episode
from ludic_gym.rollout.pool import is_async
from ludic_gym.terminal import printable
from ludic_gym.types import Env, Rollout, Task

T = TypeVar("T")
# Legal actions that are listed after an illegal one.
MOST_LISTED = 12


def play(
    env: Env,
    *,
    seed: int | None = None,
    options: dict[str, Any] | None = None,
    read: Callable[[], str] = read_line,
    write: Callable[[str], object] = print,
) -> Rollout:
    """Play an episode by hand: `write` prints observations, `read` returns actions.

    If the legal actions are known, an illegal one is not sent to the env, and another is read.
    Works inside a running event loop too, as in a notebook. EOFError and KeyboardInterrupt of
    `read` are raised.

    >>> import gymnasium as gym
    >>> env, moves = gym.make("ludic/Arithmetic-v0"), iter(["7"])
    >>> play(env, seed=1, read=lambda: next(moves), write=lambda text: None).total_reward
    0.0
    """
    env_id = env.spec.id if env.spec is not None else type(env.unwrapped).__name__
    task = Task(env_id=env_id, seed=seed, options=options, max_turns=10_000)
    policy = human(env.unwrapped, read, write)
    if is_async(env):
        return run_blocking(run_episode(env, policy, task))
    # On the caller's thread, without an event loop: notebooks can read input on no other thread.
    here = gym.Wrapper[str, str, str, str](env)
    here.metadata = {**env.metadata, "blocking": False}
    return _run_through(run_episode(here, policy, task))


@runtime_checkable
class SpellsActions(Protocol):
    """An env that knows which action a text spells."""

    def spelt_action(self, text: str) -> str | None:
        """The legal action, None if there is none."""


def human(
    env: object,
    read: Callable[[], str] = read_line,
    write: Callable[[str], object] = print,
) -> HumanPolicy:
    """A policy for a human: text is made printable and wrapped, illegal actions are read again.

    If the legal actions are known, the reader of replies finds them in sentences too.
    """
    return HumanPolicy(
        read=lambda: _read_action(env, read, write),
        write=lambda text: write(_page(text)),
    )


def _page(text: str) -> str:
    """The text after an empty line, its long lines broken between words."""
    width = shutil.get_terminal_size().columns
    lines = printable(text).split("\n")
    return "\n".join(["", *(textwrap.fill(s, width) if len(s) > width else s for s in lines)])


def _read_action(
    env: object,
    read: Callable[[], str],
    write: Callable[[str], object],
) -> str:
    while True:
        action, legal = read().strip(), legal_actions(env)
        if not legal or action in legal:
            return action
        spelt = env.spelt_action if isinstance(env, SpellsActions) else one_of(legal)
        if (reading := read_reply(action, spelt, legal)).found:
            return reading.action
        listed = ", ".join(legal[:MOST_LISTED])
        more = f", ... ({len(legal)} in all)" if len(legal) > MOST_LISTED else ""
        write(f"{action!r} is not legal; choose from: {listed}{more}")


def _run_through(coroutine: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that never waits."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    raise AssertionError("the coroutine waits for something")
