"""Many environments at once, each at its own pace."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from operator import itemgetter
from typing import Any, NamedTuple, TypeAlias

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space, concatenate, create_empty_array

from ludic_gym.concurrency import Caught, Inbox, WorkerThread, closing_error
from ludic_gym.errors import ConfigError, EnvError
from ludic_gym.rollout.pool import require_sync

Info = dict[str, Any]
# A type; for arrays, dtype and shape as well.
Kind = object
_NUMBERS = (bool, int, float)
_ARRAY_NUMBERS = (np.number, np.bool_)
# Made once: NumPy takes as long to find a type for a class as to make a small array.
_OBJECTS, _FLAGS = np.dtype(np.object_), np.dtype(np.bool_)
AnyEnv = gym.Env[Any, Any]
# An arrival without its names, which is made in a fifth of the time.
Fields = tuple[int, Any, float, bool, bool, Info]
Flags: TypeAlias = "np.ndarray[Any, np.dtype[np.bool_]]"
_env_id = itemgetter(0)


class Arrival(NamedTuple):
    """Result of one environment's reset (reward 0, nothing ended) or step.

    A failed environment is truncated, with its last observation, the reward 0, and the info
    {"error": the exception, "success": False}. It is made again for the next episode.

    env_id: index of the environment.
    observation, reward, terminated, truncated, info: as `reset` and `step` return them.
    """

    env_id: int
    observation: Any
    reward: float
    terminated: bool
    truncated: bool
    info: Info


class Runner:
    """Player of one environment, whose methods raise nothing.

    env_id: index of the environment in its results.
    make: makes the environment again after a failure.
    mode: in SAME_STEP mode, the last turn of an episode is followed by a reset at once.
    env: None after a failure, until the next reset makes another one.
    over: True if there is no running episode.
    started: True if there has ever been one.
    blank: the observation of an environment that failed before its first one.
    """

    def __init__(
        self,
        env_id: int,
        make: Callable[[], AnyEnv],
        *,
        env: AnyEnv | None = None,
        mode: AutoresetMode = AutoresetMode.NEXT_STEP,
        blank: object = "",
    ) -> None:
        self.env_id = env_id
        self.env = env
        self.over = True
        self.started = False
        self._make = make
        self._blank = blank
        self._seen = blank
        self._resets_at_once = mode is AutoresetMode.SAME_STEP

    def reset(self, seed: int | None = None, options: Info | None = None) -> Arrival:
        """Start an episode, in a new environment after a failure; the result, or the failure."""
        self.started = True
        # Any error of an environment ends its own episode and no other.
        with Caught(Exception) as failure:
            if self.env is None:
                self.env = self._make()
            self._seen, info = self.env.reset(seed=seed, options=options)
            self.over = False
            return Arrival(self.env_id, self._seen, 0.0, False, False, info)
        return self.failure(failure.text)

    def step(self, action: object) -> Arrival:
        """Play a turn; after the end of an episode reset instead, ignoring the action."""
        with Caught(Exception) as failure:
            return Arrival._make(self.turn(action))
        return self.failure(failure.text)

    def turn(self, action: object) -> Fields:
        """Play a turn as `step` does, but raise the errors of the environment.

        After one, `failure` is due.
        """
        env = self.env
        if env is None:
            return self.reset()
        if self.over:
            self._seen, info = env.reset()
            self.over = False
            return self.env_id, self._seen, 0.0, False, False, info
        observation, reward, terminated, truncated, info = env.step(action)
        reward = float(reward)
        self._seen = observation
        if terminated or truncated:
            self.over = True
            if self._resets_at_once:
                # The first turn of the next episode, with the end of the last one in its info.
                info = {"final_obs": observation, "final_info": info}
                first = self.reset()
                info |= first.info
                return self.env_id, first.observation, reward, terminated, truncated, info
        return self.env_id, observation, reward, terminated, truncated, info

    def failure(self, error: str) -> Arrival:
        """The end of an episode that failed; the environment is closed and not used again.

        error: class and message of the exception, for info["error"].
        """
        # `over` and `started`, so that the next action starts an episode as after any other end.
        env, self.env, self.over, self.started = self.env, None, True, True
        if env is not None:
            error += closing_error(env.close)
        info = {"error": error, "success": False}
        # The space must hold the observation, so the last valid one is repeated.
        seen, self._seen = self._seen, self._blank
        return Arrival(self.env_id, seen, 0.0, False, True, info)


def turns(runners: Sequence[Runner], actions: Iterable[object]) -> list[Fields]:
    """A turn of every runner in order, as `Runner.step` plays it."""
    arrivals: list[Fields] = []
    left = zip(runners, actions, strict=True)
    # One block for all turns up to a failure, since most have none.
    while len(arrivals) < len(runners):
        with Caught(Exception) as failure:
            for runner, action in left:
                arrivals.append(runner.turn(action))
        if failure.error is not None:
            arrivals.append(runners[len(arrivals)].failure(failure.text))
    return arrivals


Job = Callable[[], Arrival]


class RaggedVectorEnv(VectorEnv[Any, Any, "np.ndarray"]):
    """Environments that receive actions (`send`) and whose results are collected (`recv`).

    It is a Gymnasium VectorEnv too: `reset` and `step` send to all and wait for all, with the
    results of SyncVectorEnv in every autoreset mode.

    An environment that raises, or whose info changes the type of a key, ends its own episode only:
    see `Arrival`. One with `metadata["blocking"]` runs on its own thread, all others on the thread
    that calls `send`.

    env_fns: functions that make the environments; called again after a failure.
    timeout_s: time limit for calls of blocking environments. A longer call is a failure; its thread
        and its environment are abandoned and replaced.
    autoreset_mode: the moment of the reset after an episode, as in Gymnasium.
    Raises ConfigError for environments whose spaces differ, and without environments.

        envs = make_ragged("ludic/Wordle-v0", 64)
        envs.send_reset({i: i for i in range(64)})
        while True:
            for i, observation, reward, terminated, truncated, info in envs.recv():
                envs.send({i: reply_to(observation)})
    """

    def __init__(
        self,
        env_fns: Sequence[Callable[[], AnyEnv]],
        *,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        timeout_s: float | None = None,
    ) -> None:
        if not env_fns:
            raise ConfigError("a vector environment needs at least one environment, got none")
        if timeout_s is not None and timeout_s <= 0:
            raise ConfigError(f"timeout_s is positive or None, got {timeout_s}")
        self._mode = AutoresetMode(autoreset_mode)
        self._timeout_s = timeout_s
        envs = [make() for make in env_fns]
        for env in envs:
            require_sync(env, "a vector environment")
        self.num_envs = len(envs)
        self._take_spaces(envs)
        self.metadata = {**envs[0].metadata, "autoreset_mode": self._mode}
        self.render_mode = envs[0].render_mode
        self._env_fns = list(env_fns)
        self._runners = [self._runner(i, env) for i, env in enumerate(envs)]
        self._threads = [
            WorkerThread("ludic-env") if env.metadata.get("blocking") else None for env in envs
        ]
        self._blocking = any(self._threads)
        self._inbox: Inbox[Arrival] = Inbox()
        # The number of each environment's current call. The result of a call that timed out arrives
        # with an old number and is dropped.
        self._tickets = [0] * self.num_envs
        # A result and its timeout may arrive at the same moment, on two threads.
        self._settling = threading.Lock()
        # Sent to and not received from: a second action would belong to an unknown episode.
        self._busy: set[int] = set()
        # The observation of an environment that has no result in a batch, or whose call failed.
        self._last: Sequence[Any] = [self._blank] * self.num_envs
        # By key of the info: an array of a batch has one type, the same in every batch.
        self._kinds: dict[str, Kind] = {}

    def _take_spaces(self, envs: Sequence[AnyEnv]) -> None:
        self.single_observation_space = envs[0].observation_space
        self.single_action_space = envs[0].action_space
        for i, env in enumerate(envs):
            spaces = (env.observation_space, env.action_space)
            if spaces != (self.single_observation_space, self.single_action_space):
                raise ConfigError(
                    f"environment {i} has the spaces {spaces}, environment 0 "
                    f"{(self.single_observation_space, self.single_action_space)}"
                )
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self._blanks = create_empty_array(self.single_observation_space, self.num_envs)
        # Gymnasium returns None for spaces that it does not know.
        if not isinstance(self._blanks, tuple | np.ndarray):
            raise ConfigError(
                f"there is no empty observation in {self.single_observation_space}; register the "
                "space with gymnasium.vector.utils.create_empty_array"
            )
        self._blank = self._blanks[0]

    def _runner(self, env_id: int, env: AnyEnv | None = None) -> Runner:
        make = self._env_fns[env_id]
        return Runner(env_id, make, env=env, mode=self._mode, blank=self._blank)

    def send(self, actions: Mapping[int, object]) -> None:
        """Send actions to some environments, by their index; `recv` returns their results.

        actions: by index, for any number of environments; those that do not block are stepped
            before `send` returns.
        In NEXT_STEP mode, an action for an environment whose episode is over starts the next one.
        Raises EnvError for an environment with a pending result or without a running episode; no
        action has been sent then.
        """
        # All actions are checked before any is sent: an error must leave no call half done. The
        # checks are inline, because this runs for every turn of every environment.
        runners, busy = self._runners, self._busy
        for env_id in actions:
            if env_id in busy or not 0 <= env_id < self.num_envs or runners[env_id].over:
                self._require_playable(env_id)
        self._start((i, runners[i].step, (action,)) for i, action in actions.items())

    def send_reset(
        self, seeds: Mapping[int, int | None], options: dict[str, Any] | None = None
    ) -> None:
        """Start episodes in some environments, by their index, each with its seed.

        options: those of `reset`, the same for all.
        Raises EnvError for an environment with a pending result.
        """
        for env_id in seeds:
            self._require_idle(env_id)
        runners = self._runners
        self._start((i, runners[i].reset, (seed, options)) for i, seed in seeds.items())

    def recv(self, count: int = 1) -> list[Arrival]:
        """All results so far, at least `count`, in order of arrival; wait for them if needed.

        Raises EnvError if fewer results are pending: the wait would never end.
        """
        if count > len(self._busy):
            raise EnvError(f"{count} results are required, but {len(self._busy)} are pending")
        arrivals = self._inbox.take(count)
        self._busy.difference_update(map(_env_id, arrivals))
        return arrivals

    async def ready(self, count: int = 1) -> None:
        """Wait until `recv(count)` would return at once; other tasks may send meanwhile."""
        await self._inbox.filled(count)

    def _require_idle(self, env_id: int) -> None:
        if not 0 <= env_id < self.num_envs:
            raise EnvError(f"there is no environment {env_id}, only 0 to {self.num_envs - 1}")
        if env_id in self._busy:
            raise EnvError(f"environment {env_id} has a pending result; recv() it first")

    def _require_playable(self, env_id: int) -> None:
        self._require_idle(env_id)
        runner = self._runners[env_id]
        if runner.over and (self._mode is AutoresetMode.DISABLED or not runner.started):
            raise EnvError(f"environment {env_id} has no running episode; reset it first")

    def _start(self, calls: Iterable[tuple[int, Callable[..., Arrival], tuple[Any, ...]]]) -> None:
        """Make the calls, (environment, method, arguments), here or on their threads."""
        arrivals = []
        for env_id, method, arguments in calls:
            self._busy.add(env_id)
            thread = self._threads[env_id]
            if thread is None:
                arrivals.append(method(*arguments))
            else:
                self._post(thread, env_id, partial(method, *arguments))
        # In one call, since every `put` takes a lock and wakes the waiting threads.
        if arrivals:
            self._inbox.put(arrivals)

    def _post(self, thread: WorkerThread, env_id: int, call: Job) -> None:
        """Make the call on the thread, and settle it by its result or by the time limit."""
        self._tickets[env_id] += 1
        ticket = self._tickets[env_id]
        timer: threading.Timer | None = None
        if self._timeout_s is not None:
            late = partial(self._abandoned, env_id)
            timer = threading.Timer(self._timeout_s, self._settle, (env_id, ticket, late))
            # A call that hangs must not keep the program from ending.
            timer.daemon = True
            timer.start()

        def work() -> None:
            arrival = call()
            if timer is not None:
                timer.cancel()
            self._settle(env_id, ticket, lambda: arrival)

        # Not `thread.run`, whose future belongs to an event loop: `recv` works without one.
        thread.post(work)

    def _settle(self, env_id: int, ticket: int, result: Job) -> None:
        """Deliver the result, unless the call has one already."""
        with self._settling:
            if self._tickets[env_id] != ticket:
                return
            # From here on the call has a result: whichever of both threads is second returns above.
            self._tickets[env_id] += 1
            arrival = result()
        self._inbox.put([arrival])

    def _abandoned(self, env_id: int) -> Arrival:
        """Replace the environment and its thread by new ones; the failure of the call."""
        # A thread cannot be interrupted. It closes its environment after the call, if that returns.
        thread, env = self._threads[env_id], self._runners[env_id].env
        if thread is not None and env is not None:
            thread.finish(env.close)
        self._threads[env_id] = WorkerThread(f"ludic-env-{env_id}")
        self._runners[env_id] = self._runner(env_id)
        error = f"TimeoutError: the call took longer than timeout_s={self._timeout_s:g}"
        return self._runners[env_id].failure(error)._replace(observation=self._last[env_id])

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[Any, Info]:
        """Start an episode in every environment: observations, and infos merged.

        seed: environment i gets seed + i, or item i of a sequence.
        options: "reset_mask", an array of bools, selects the environments to reset.
        """
        # A copy, because the mask is taken out and the caller may use its options again.
        options = None if options is None else dict(options)
        mask = None if options is None else options.pop("reset_mask", None)
        chosen = range(self.num_envs) if mask is None else np.flatnonzero(mask).tolist()
        seeds = self._seeds(seed)
        self.send_reset({i: seeds[i] for i in chosen}, options)
        observations, *_, infos = self._batch(self.recv(len(chosen)))
        return observations, infos

    def step(self, actions: Iterable[object]) -> tuple[Any, np.ndarray, Flags, Flags, Info]:
        """Play a turn in every environment: observations, rewards, ends, and infos merged.

        Raises EnvError unless there is one action for each environment.
        """
        # A string is iterable too, and would give one action per character.
        listed = [] if isinstance(actions, str) else list(actions)
        if len(listed) != self.num_envs:
            raise EnvError(f"{self.num_envs} environments need as many actions, got {actions!r}")
        if self._busy or self._blocking:
            self.send(dict(enumerate(listed)))
            return self._batch(self.recv(self.num_envs))
        # Nothing is pending and nothing will wait: the queue of results would only cost time.
        resets = self._mode is not AutoresetMode.DISABLED
        for runner in self._runners:
            if runner.over and not (resets and runner.started):
                self._require_playable(runner.env_id)
        return self._merged(turns(self._runners, listed))

    def _seeds(self, seed: int | Sequence[int | None] | None) -> list[int | None]:
        if seed is None:
            return [None] * self.num_envs
        if isinstance(seed, int):
            return [seed + i for i in range(self.num_envs)]
        if len(seed) != self.num_envs:
            raise ConfigError(f"{self.num_envs} environments need as many seeds, got {seed!r}")
        return list(seed)

    def _batch(self, arrivals: list[Arrival]) -> tuple[Any, np.ndarray, Flags, Flags, Info]:
        """The results as arrays; an environment without a result has its last observation."""
        if len(arrivals) < self.num_envs:
            arrivals += self._unchanged(arrivals)
        # Results are in order of arrival, arrays in order of environments.
        return self._merged(sorted(arrivals, key=_env_id))

    def _merged(self, arrivals: list[Fields]) -> tuple[Any, np.ndarray, Flags, Flags, Info]:
        """The results as arrays; one per environment, in order."""
        fields = list(zip(*arrivals, strict=True))
        # Arrays of infos need one type per key. An environment with another type fails alone.
        infos, conflicts = merge_infos(fields[-1], self._kinds)
        if conflicts:
            for env_id, conflict in conflicts.items():
                arrivals[env_id] = self._runners[env_id].failure(conflict)
            fields = list(zip(*arrivals, strict=True))
            infos, _ = merge_infos(fields[-1])
        _, self._last, rewards, terminated, truncated, _ = fields
        # Gymnasium writes into an array, but returns new tuples.
        out: Any = self._blanks if isinstance(self._blanks, tuple) else copy.deepcopy(self._blanks)
        batch = concatenate(self.single_observation_space, self._last, out)
        # One array each: to take both from one array would take longer.
        ends = np.array(terminated, np.bool_), np.array(truncated, np.bool_)
        return batch, np.array(rewards), *ends, infos

    def _unchanged(self, arrivals: Sequence[Arrival]) -> list[Arrival]:
        """An empty result for every environment that is not in `arrivals`."""
        last = copy.deepcopy(self._last)
        others = set(range(self.num_envs)) - {arrival.env_id for arrival in arrivals}
        return [Arrival(i, last[i], 0.0, False, False, {}) for i in others]

    def call(self, name: str, *args: Any, **kwargs: Any) -> tuple[Any, ...]:  # noqa: ANN401
        """Call each environment's method of that name, or get its attribute; a value for each.

        Methods run on the caller's thread, wrappers first. Raises EnvError while a result is
        pending, or after a failure without a reset.
        """
        attributes = [env.get_wrapper_attr(name) for env in self._envs()]
        return tuple(each(*args, **kwargs) if callable(each) else each for each in attributes)

    def get_attr(self, name: str) -> tuple[Any, ...]:
        """Each environment's attribute of that name. Raises EnvError as `call` does."""
        return self.call(name)

    def render(self) -> tuple[Any, ...]:
        """The picture of each environment. Raises EnvError as `call` does."""
        return self.call("render")

    def close_extras(self, **kwargs: object) -> None:
        """Close every environment, those on threads after their current call."""
        for runner, thread in zip(self._runners, self._threads, strict=True):
            close = runner.env.close if runner.env is not None else lambda: None
            close() if thread is None else thread.finish(close)

    def _envs(self) -> list[AnyEnv]:
        """The environments. Raises EnvError while one is busy, or failed and not reset since."""
        for runner in self._runners:
            self._require_idle(runner.env_id)
        envs = [runner.env for runner in self._runners if runner.env is not None]
        if len(envs) < self.num_envs:
            raise EnvError("an environment failed and was not reset since; reset it first")
        return envs


def make_ragged(
    env_id: str,
    num_envs: int = 1,
    *,
    wrappers: Sequence[Callable[[AnyEnv], AnyEnv]] = (),
    autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
    timeout_s: float | None = None,
    **kwargs: Any,  # noqa: ANN401 (as gymnasium.make)
) -> RaggedVectorEnv:
    """`num_envs` environments of that id, each in the wrappers, the first one innermost.

    autoreset_mode, timeout_s: see `RaggedVectorEnv`.
    kwargs: further arguments of `gymnasium.make`.

    >>> envs = make_ragged("ludic/Arithmetic-v0", 3)
    >>> observations, infos = envs.reset(seed=1)
    >>> envs.send({0: "7", 2: "8"})
    >>> sorted(arrival.env_id for arrival in envs.recv(2))
    [0, 2]
    """

    def make(**further: bool) -> AnyEnv:
        env: AnyEnv = gym.make(env_id, **{**further, **kwargs})
        for wrap in wrappers:
            env = wrap(env)
        return env

    # Gymnasium's checker costs time in every turn, and would find the same in each.
    unchecked = partial(make, disable_env_checker=True)
    env_fns: list[Callable[[], AnyEnv]] = [make] if num_envs else []
    env_fns += [unchecked] * (num_envs - 1)
    return RaggedVectorEnv(env_fns, autoreset_mode=autoreset_mode, timeout_s=timeout_s)


def merge_infos(
    infos: Sequence[Info], kinds: dict[str, Kind] | None = None
) -> tuple[Info, dict[int, str]]:
    """One array per key, and under "_key" a mask of the environments that have it; conflicts.

    Numbers become arrays of their type, with 0 for missing ones; arrays are stacked, dictionaries
    merged recursively. All other values are in arrays of objects, with None for missing ones.
    infos: one per environment.
    kinds: see `kind_conflicts`, whose result is the second one; with conflicts no array is made.
        Without kinds, values take the type of the first one with their key.

    >>> merge_infos([{"score": 1.5}, {}])
    ({'score': array([1.5, 0. ]), '_score': array([ True, False])}, {})
    """
    size, kinds_before = len(infos), {} if kinds is None else kinds
    together: Info = {}
    columns: dict[str, tuple[Kind, Any, np.ndarray]] = {}
    nested: list[str] = []
    unchecked = kinds is not None
    # One loop, which writes each value where it is found: to list or to check the values of each
    # key beforehand takes longer than to make the arrays.
    for place, info in enumerate(infos):
        for key, value in info.items():
            if key in columns:
                kind, column, mask = columns[key]
            else:
                kind, column = kinds_before.get(key), _empty(size, key, value)
                mask = np.zeros(size, _FLAGS)
                columns[key] = kind, column, mask
                together[key], together["_" + key] = column, mask
                if isinstance(column, list):
                    nested.append(key)
            if unchecked and type(value) is not kind:
                if conflicts := kind_conflicts(kinds_before, infos):
                    return {}, conflicts
                unchecked = False
            column[place] = value
            mask[place] = True
    for key in nested:
        together[key], _ = merge_infos(together[key])
    return together, {}


def _empty(size: int, key: str, first: object) -> np.ndarray | list[Info]:
    """An array for values of the key like the first, or a list for dictionaries."""
    kind = type(first)
    # Texts and numbers first: most values are. An observation is an object, of any type.
    if kind is str or key == "final_obs":
        return np.empty(size, _OBJECTS)
    if kind in _NUMBERS:
        return np.zeros(size, kind)
    if isinstance(first, dict):
        return [{}] * size
    if isinstance(first, np.ndarray):
        return np.zeros((size, *first.shape), first.dtype)
    return np.zeros(size, kind) if isinstance(first, _ARRAY_NUMBERS) else np.empty(size, _OBJECTS)


def kind_conflicts(kinds: dict[str, Kind], infos: Sequence[Info]) -> dict[int, str]:
    """The infos in which a key has another type than before: a message by index.

    kinds: the kind of every known key; new ones are added.

    >>> sorted(kind_conflicts({"score": float}, [{"score": 1.5}, {"score": "high"}]))
    [1]
    """
    conflicts: dict[int, str] = {}
    for place, info in enumerate(infos):
        for key, value in info.items():
            kind: Kind = type(value)
            if isinstance(value, np.ndarray):
                kind = ("array", value.dtype.str, value.shape)
            kind_before = kinds.setdefault(key, kind)
            if kind != kind_before:
                conflicts[place] = (
                    f"info[{key!r}] is {value!r}, of {_named(kind)}, and was of "
                    f"{_named(kind_before)} before"
                )
    return conflicts


def _named(kind: Kind) -> str:
    return kind.__name__ if isinstance(kind, type) else str(kind)
