"""Base classes of policies: the plain call, policies without memory, and wrapping."""

from __future__ import annotations

import asyncio
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Coroutine
from concurrent.futures import Future
from functools import cache
from typing import Any, TypeVar

from ludic_gym.concurrency import Caught
from ludic_gym.errors import NoAction
from ludic_gym.types import Decision, Policy, Rollout, Sampling

T = TypeVar("T")
DEFAULT_SAMPLING = Sampling()


class PlainCall:
    """Mixin for the plain call `action = policy(observation)`, for notebooks."""

    def end(self) -> None:
        """Be told that the episode is over."""

    def __call__(self: Policy, observation: str, sampling: Sampling = DEFAULT_SAMPLING) -> str:
        """The action for the next observation, also inside a running event loop.

        Raises NoAction, with the feedback, if the policy found none.
        """
        # On a loop of its own: a notebook runs one already, in which no second one can be started.
        self.observe(observation)
        decision = run_blocking(self.act(sampling))
        if decision.action is None:
            raise NoAction(decision.feedback or decision.give_up or "the policy found no action")
        return decision.action


class Memoryless(PlainCall):
    """Base of policies that keep nothing of the episode between turns."""

    def reset(self, system_prompt: str) -> None:
        """Ignore the system prompt."""

    def observe(self, text: str) -> None:
        """Ignore the observation."""


class FinishingPolicy(PlainCall, ABC):
    """Base of policies that have something left to do when an episode is over.

    An agent program, for instance, reads the last result and writes a summary. Such a policy is the
    outermost one: wrappers do not pass these calls on.
    """

    @abstractmethod
    async def finish(self, rollout: Rollout) -> Rollout:
        """The rollout, with model calls that came after its last step."""

    @abstractmethod
    async def abort(self) -> None:
        """Stop all that runs, after an error or a cancellation."""


class PolicyWrapper(PlainCall):
    """A policy around `policy`; a subclass changes `act`.

    >>> from dataclasses import replace
    >>> from ludic_gym import ScriptedPolicy
    >>> class Loud(PolicyWrapper):
    ...     async def act(self, sampling):
    ...         decision = await self.policy.act(sampling)
    ...         return replace(decision, action=decision.action.upper())
    >>> Loud(ScriptedPolicy(["b2"]))("Your move:")
    'B2'
    """

    def __init__(self, policy: Policy) -> None:
        self.policy = policy

    def reset(self, system_prompt: str) -> None:
        """Start an episode."""
        self.policy.reset(system_prompt)

    def observe(self, text: str) -> None:
        """Pass the observation on."""
        self.policy.observe(text)

    async def act(self, sampling: Sampling) -> Decision:
        """The decision of the wrapped policy."""
        return await self.policy.act(sampling)

    def end(self) -> None:
        """Tell the wrapped policy."""
        end_episode(self.policy)


def end_episode(policy: Policy) -> None:
    """Tell the policy that its episode is over, if it wants to know."""
    if isinstance(policy, PlainCall):
        policy.end()


def run_blocking(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run the coroutine on a thread that is kept for such calls, and wait for its result.

    Works inside a running event loop too, which it blocks. Ctrl-C cancels the coroutine.
    """
    # By process: a forked one has the loop of its parent, and not the thread that runs it.
    loop, result = _background_loop(os.getpid()), Future[T]()
    tasks: list[asyncio.Task[None]] = []

    def begin() -> None:
        tasks.append(loop.create_task(_settled(coroutine, result)))

    def stop() -> None:
        for task in tasks:
            task.cancel()

    # Not run_coroutine_threadsafe: a Ctrl-C between its return and the `try` would leave the
    # coroutine running. Here the loop calls `stop` after `begin`, whenever Ctrl-C comes.
    try:
        loop.call_soon_threadsafe(begin)
        return result.result()
    except BaseException:
        loop.call_soon_threadsafe(stop)
        raise


async def _settled(coroutine: Coroutine[Any, Any, T], result: Future[T]) -> None:
    # Also errors that would end the loop, such as KeyboardInterrupt: they belong to the caller.
    with Caught(BaseException) as failure:
        result.set_result(await coroutine)
    if failure.error is not None:
        result.set_exception(failure.error)


@cache
def _background_loop(pid: int) -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    # A daemon, because a call that hangs must not keep the program from ending.
    threading.Thread(target=loop.run_forever, name="ludic-plain-calls", daemon=True).start()
    return loop
