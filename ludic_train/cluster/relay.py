"""Groups that were begun, between the actors of a run: handed over by one, continued by another."""

from __future__ import annotations

import json
import logging
import secrets
from dataclasses import replace
from typing import TYPE_CHECKING

from ludic_gym.errors import DataError
from ludic_gym.types import Task
from ludic_train.cluster.begun import Begun, begun_from_bytes, begun_to_bytes
from ludic_train.errors import BadGroup, QueueUnavailable

if TYPE_CHECKING:
    from ludic_train.cluster.queues.roster import Roster

# Kinds of environments of an actor's own tasks that it remembers.
MOST_KINDS = 1_024


class Relay:
    """An actor's end of a roster. roster: None for a queue without one: nothing is handed over.

    The Redis is not trusted: a group of another actor is continued only if this one has had tasks
    of its own with the same environment and arguments.
    """

    def __init__(self, roster: Roster | None) -> None:
        self._roster = roster
        self._kinds: set[str] = set()

    def new(self, task: Task | None) -> Begun | None:
        """A group of this actor's own task, to begin; None without one."""
        if task is None:
            return None
        if len(self._kinds) < MOST_KINDS:
            self._kinds.add(_kind(task))
        if task.sampling.seed is None:
            # The members of the group are the same then, wherever it is continued.
            task = replace(task, sampling=replace(task.sampling, seed=secrets.randbits(63)))
        return Begun(task)

    async def taken(self) -> Begun | None:
        """A group that another actor has begun, which no third one gets; None without any."""
        # Without a task of its own, it knows no environment.
        if self._roster is None or not self._kinds:
            return None
        log = logging.getLogger(__name__)
        try:
            if (data := await self._roster.take()) is None:
                return None
            begun = begun_from_bytes(data)
            if _kind(begun.task) not in self._kinds:
                # For another actor, or for this one when it has had such a task.
                await self._roster.hand_over(data)
                return None
        # The queue, in the same Redis, waits and says so.
        except QueueUnavailable:
            return None
        except BadGroup as error:
            log.warning("a group that was handed over is left out: %s", error)
            return None
        log.info("continuing %s, %d tokens of which are sampled", begun.key, begun.tokens)
        return begun

    async def hand_over(self, begun: Begun) -> bool:
        """Leave a group to the other actors; False if it holds no tokens, or cannot be sent."""
        if self._roster is None or not begun.tokens:
            return False
        try:
            return await self._roster.hand_over(begun_to_bytes(begun))
        except (QueueUnavailable, DataError) as error:
            logging.getLogger(__name__).warning("%s is not handed over: %s", begun.key, error)
            return False


def _kind(task: Task) -> str:
    """The environment of a task, with its arguments."""
    return json.dumps([task.env_id, dict(task.kwargs)], default=str, sort_keys=True)
