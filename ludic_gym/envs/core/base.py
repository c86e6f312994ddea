"""TextEnv, the base class of one-player text environments, and helpers for all environments."""

from __future__ import annotations

import html
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Mapping, Sequence
from inspect import iscoroutinefunction
from types import CoroutineType
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, cast

import gymnasium as gym
import numpy as np

from ludic_gym.envs.core.levels import with_levels
from ludic_gym.errors import ConfigError, EnvError, EpisodeOver, NoOracle
from ludic_gym.reader import Reading, one_of, read_reply
from ludic_gym.spaces import TEXT

if TYPE_CHECKING:
    from ludic_gym.tools.tool import Tool
    from ludic_gym.types import Rollout

Info = dict[str, Any]
"""Info of a reset or a step, by key."""

Turn = tuple[str, float, bool, bool, Info]
"""Gymnasium's five-tuple: observation, reward, terminated, truncated, info."""

Begin = tuple[str, str | Mapping[str, Any]]
"""First observation of an episode, with the system prompt or an info."""

T = TypeVar("T")

RENDER_MODES = ("ansi", "html")


class TextEnv(gym.Env[str, str], ABC):
    """A Gymnasium environment with text observations and text actions.

    Callers use the methods on the left. They check the order of calls and their arguments, and
    delegate to the hooks on the right. A subclass writes `start` and `turn`; the other hooks have
    defaults. Draw all random numbers from `self.np_random`. `start` and `turn` may be coroutine
    functions; then `reset` and `step` return coroutines, which rollouts await.

    Constructors of the catalogue's environments also take `render_mode`: "ansi", "html" or None;
    `level`: "easy", "medium", "hard" or a number from 1, for the argument that decides how hard the
    tasks are; and where tasks are generated, `split`: "train" and "test" have no task in common,
    and one task in five is in "test".

    | method | hook |
    |---|---|
    | `reset` | `start(options)` |
    | `step` | `turn(action)` |
    | `render` | `picture()` |
    | `legal_actions` | `allowed_actions()` |
    | `read` | `allowed_actions()` or `action_pattern` |
    | `oracle_action` | `best_action()` |

    Attributes:
        num_rows: number of tasks, played by `reset(options={"row": i})`; None if tasks are
            generated from the seed.
        single_turn: True if an episode is one question and one answer. There, a reply that cannot
            be parsed ends the episode as a failure, unless the task gives more attempts.
        asynchronous: True if `start` or `turn` is a coroutine function.
        action_tools: schemas of the functions that are its actions, for agents that call tools; the
            action of a call is {"name": ..., "arguments": {...}} as JSON. () if any text is one.
        action_pattern: regular expression of an action as a whole, in either case, for actions that
            are too many to be listed by `allowed_actions`. None: those decide.
        forfeit_reward: reward of an episode that ends because replies have no action, at most that
            of a loss.
        known_options: options of `reset`; any other one is rejected, because it may be misspelt.

    >>> class Parrot(TextEnv):
    ...     def start(self, options):
    ...         return "Say A.", "Repeat the letter."
    ...
    ...     def turn(self, action):
    ...         return end(success=action == "A")
    >>> env = Parrot()
    >>> env.reset(seed=1)
    ('Say A.', {'system_prompt': 'Repeat the letter.'})
    >>> env.step("A")
    ('', 1.0, True, False, {'success': True, 'reward/total': 1.0})
    """

    # Gymnasium declares these without ClassVar, and mypy wants the same here.
    metadata: dict[str, Any] = {"render_modes": list(RENDER_MODES), "render_fps": 1}  # noqa: RUF012
    observation_space = TEXT
    action_space = TEXT
    num_rows: int | None = None
    single_turn: ClassVar[bool] = False
    asynchronous: ClassVar[bool] = False
    known_options: ClassVar[frozenset[str]] = frozenset({"row"})
    action_tools: Sequence[Mapping[str, Any]] = ()
    action_pattern: str | None = None
    forfeit_reward: float = 0.0

    def tools(self) -> Sequence[Tool | Callable[..., object]]:
        """Functions that a player may call before it acts, bound to the episode; none by default.

        Every way to play offers them: in the model's own format, or in the text of replies.
        """
        return ()

    def __init_subclass__(cls, **kwargs: Any) -> None:  # noqa: ANN401 (as of any class)
        super().__init_subclass__(**kwargs)
        if "__init__" in vars(cls):
            type.__setattr__(cls, "__init__", with_levels(vars(cls)["__init__"]))
        cls.asynchronous = iscoroutinefunction(cls.start) or iscoroutinefunction(cls.turn)

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode = checked_render_mode(render_mode)
        # Kept because the default picture is the last observation.
        self._observation: str | None = None
        self._running = False

    @abstractmethod
    def start(self, options: Mapping[str, Any]) -> Begin | Coroutine[Any, Any, Begin]:
        """Begin an episode.

        options: those of `reset`, checked; a "row" is an int from 0 to `num_rows` - 1.
        Returns the first observation, and the suggested system prompt or an info with the key
        "system_prompt".
        """

    @abstractmethod
    def turn(self, action: str) -> Turn | Coroutine[Any, Any, Turn]:
        """Play one turn and return Gymnasium's five-tuple, made by `end` or `proceed`.

        action: any text; an illegal one has a defined result and raises nothing.
        """

    def picture(self) -> str:
        """The present state as text; by default the last observation. "" before the first reset."""
        return self._observation or ""

    def allowed_actions(self) -> tuple[str, ...]:
        """Legal actions in the present state, while an episode runs; () if any text is legal."""
        return ()

    def best_action(self) -> str:
        """A best action in the present state, while an episode runs.

        Raises NoOracle if none is known.
        """
        raise NoOracle(f"{type(self).__name__} does not know its best action")

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, Info]:
        """Start an episode: the first observation, and an info with "system_prompt".

        Raises ConfigError for options that the environment does not have.
        """
        if options:
            # Most resets have no options, and this is on the path of every episode.
            self._check_options(options)
        super().reset(seed=seed)
        first = self.start(options or {})
        if isinstance(first, CoroutineType):
            # The caller awaits it: rollouts do, and for all others Gymnasium's types stay plain.
            return cast(tuple[str, Info], self._begin_later(first))
        return self._begin(cast(Begin, first))

    def step(self, action: str) -> Turn:
        """Play one turn.

        Raises EpisodeOver if no episode is running, EnvError if the action is not a str.
        """
        if not self._running:
            raise EpisodeOver(
                f"{type(self).__name__}.step() came before the first reset() or after the end of "
                "the episode; call reset() first"
            )
        if not isinstance(action, str):
            raise EnvError(f"an action is a str, got {action!r} of {type(action).__name__}")
        reading = self.read(action)
        turn = self.turn(reading.action if reading and reading.found else action)
        if isinstance(turn, CoroutineType):
            return cast(Turn, self._settle_later(turn, reading))
        return self._settle(cast(Turn, turn), reading)

    def render(self) -> str:
        """The present state as text, or as an HTML fragment with all characters escaped."""
        if self._observation is None:
            raise EpisodeOver(f"{type(self).__name__}.render() came before the first reset()")
        return render_text(self.picture(), self.render_mode)

    def legal_actions(self) -> tuple[str, ...]:
        """Legal actions now; () if any text is legal, or if no episode is running."""
        return self.allowed_actions() if self._running else ()

    def read(self, reply: str) -> Reading | None:
        """The action in a reply, for `turn`; None where the reply is passed on as it stands.

        Where nothing is found, `turn` gets the reply, and the info has "illegal".
        """
        names_actions = type(self).allowed_actions is not TextEnv.allowed_actions
        if not names_actions and self.action_pattern is None:
            return None
        legal = self.allowed_actions()
        # Without legal actions any text is one.
        return read_reply(reply, self.spelt_action, legal) if legal or self.action_pattern else None

    def spelt_action(self, text: str) -> str | None:
        """The legal action that a text spells in either case, None if it spells none."""
        if self.action_pattern is not None:
            return text if re.fullmatch(self.action_pattern, text, re.IGNORECASE) else None
        return one_of(self.allowed_actions())(text)

    def oracle_action(self) -> str:
        """A best action now. Raises NoOracle if none is known, or if no episode is running."""
        if not self._running:
            # A subclass may have no state before `start`, so its hook is never called then.
            raise NoOracle(f"{type(self).__name__}: no episode is running; call reset() first")
        return self.best_action()

    def play(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Rollout:
        """Play an episode by hand, at a terminal or in a notebook."""
        # play() needs the rollouts, which import this module.
        from ludic_gym.play import play

        return play(self, seed=seed, options=options)

    def _begin(self, first: Begin) -> tuple[str, Info]:
        """The result of `reset`. first: that of `start`."""
        try:
            self._observation, about = first
            # A copy, because callers may add keys to an info, and a subclass may return a constant.
            info = {"system_prompt": about} if isinstance(about, str) else dict(about)
        except (TypeError, ValueError) as error:
            raise EnvError(
                f"{type(self).__name__}.start() returned {first!r}; return an observation and a "
                "system prompt"
            ) from error
        self._running = True
        return self._observation, info

    async def _begin_later(self, first: Coroutine[Any, Any, Begin]) -> tuple[str, Info]:
        return self._begin(await first)

    def _settle(self, turn: Turn, reading: Reading | None) -> Turn:
        """The result of `step`. turn: that of the hook."""
        try:
            self._observation, reward, terminated, truncated, info = turn
        except (TypeError, ValueError) as error:
            raise EnvError(
                f"{type(self).__name__}.turn() returned {turn!r}; return end(...) or proceed(...)"
            ) from error
        if terminated or truncated:
            self._running = False
        if reading is None or reading.rule == "whole":
            return turn
        return self._observation, reward, terminated, truncated, {**reading.info, **info}

    async def _settle_later(self, turn: Coroutine[Any, Any, Turn], reading: Reading | None) -> Turn:
        return self._settle(await turn, reading)

    def _check_options(self, options: Mapping[str, Any]) -> None:
        if unknown := sorted(map(str, options.keys() - self.known_options)):
            raise ConfigError(
                f"{type(self).__name__}.reset() has the options {sorted(self.known_options)}, "
                f"got {unknown}"
            )
        row = options.get("row")
        if row is None:
            return
        if self.num_rows is None:
            raise ConfigError(f"{type(self).__name__} generates its tasks: there is no row {row!r}")
        if not isinstance(row, int) or not 0 <= row < self.num_rows:
            raise ConfigError(f"row is an int from 0 to {self.num_rows - 1}, got {row!r}")


def end(
    observation: str = "",
    *,
    success: bool,
    reward: float | None = None,
    truncated: bool = False,
    info: Mapping[str, Any] | None = None,
    **components: float,
) -> Turn:
    """The last turn of an episode, as Gymnasium's five-tuple.

    success: True if the task was solved.
    components: parts of the reward, "reward/<name>" in the info; the turn's reward is their sum.
    reward: the whole reward, if it has no parts: the component "reward/total". Without either, 1
        for a success, else 0.
    truncated: True if the episode was cut short, False if it came to its own end.
    info: further keys of the info.
    Raises ConfigError if both are given and `reward` is not the sum of the components.
    """
    last: Info = {"success": bool(success)}
    earned = 0.0
    for name, part in components.items():
        # float and bool also turn NumPy's scalars into what JSON can hold.
        last["reward/" + name] = part = float(part)
        earned += part
    if not components:
        last["reward/total"] = earned = float(success if reward is None else reward)
    elif reward is not None and not math.isclose(earned, reward, abs_tol=1e-9):
        raise ConfigError(
            f"reward={reward!r}, but the components sum to {earned!r}: {components}; leave one out"
        )
    if info:
        last |= info
    return observation, earned, not truncated, truncated, last


def proceed(observation: str, reward: float = 0.0, info: Info | None = None) -> Turn:
    """A turn after which the episode continues, as Gymnasium's five-tuple."""
    return observation, float(reward) if reward else 0.0, False, False, info or {}


def checked_render_mode(render_mode: str | None) -> str | None:
    """The mode itself. Raises ConfigError if it is unknown."""
    if render_mode is not None and render_mode not in RENDER_MODES:
        raise ConfigError(f"render_mode is one of {RENDER_MODES} or None, got {render_mode!r}")
    return render_mode


def render_text(text: str, render_mode: str | None) -> str:
    """The text in the render mode. Raises EnvError if the mode is None."""
    if render_mode is None:
        raise EnvError('nothing to render to; make the env with render_mode="ansi" or "html"')
    return f"<pre>{html.escape(text)}</pre>" if render_mode == "html" else text


def pick(rng: np.random.Generator, items: Sequence[T]) -> T:
    """One of the items, uniformly at random; 20 times faster than `rng.choice`."""
    # Not by `item_at`: a call costs, and every move of a game picks.
    return items[int(rng.random() * len(items))]


def item_at(number: float, items: Sequence[T]) -> T:
    """The item at a random number in [0, 1): for callers that draw many numbers in one call."""
    return items[int(number * len(items))]


def random_order(rng: np.random.Generator, items: Sequence[T]) -> list[T]:
    """The items in a random order."""
    return [items[int(i)] for i in rng.permutation(len(items))]


def random_int(rng: np.random.Generator, low: int, high: int) -> int:
    """An integer from low to high, both included, uniformly at random."""
    return low + int(rng.random() * (high - low + 1))


def integer_at(number: float, low: int, high: int) -> int:
    """The integer from low to high, both included, at a random number in [0, 1)."""
    return low + int(number * (high - low + 1))


def checked_choice(name: str, value: str, choices: Sequence[str]) -> str:
    """The value itself. Raises ConfigError if it is not one of the choices."""
    if value not in choices:
        raise ConfigError(f"{name} is one of {', '.join(choices)}, got {value!r}")
    return value


def checked_range(name: str, value: int, low: int, high: int) -> int:
    """The value itself. Raises ConfigError unless it is an int from low to high."""
    if not isinstance(value, int) or not low <= value <= high:
        raise ConfigError(f"{name} is an int from {low} to {high}, got {value!r}")
    return value
