"""TextEnv: what all one-player text environments share, and the helpers of the many-player ones."""

from __future__ import annotations

import html
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import gymnasium as gym
import numpy as np

from ludic_gym.errors import ConfigError, EnvError, EpisodeOver, NoOracle
from ludic_gym.spaces import TEXT

if TYPE_CHECKING:
    from ludic_gym.types import Rollout

Info = dict[str, Any]
Turn = tuple[str, float, bool, bool, Info]
T = TypeVar("T")

RENDER_MODES = ("ansi", "html")


class TextEnv(gym.Env[str, str], ABC):
    """An environment that is seen and acted on in text.

    A subclass says how an episode starts (`_start`) and goes on (`_advance`). This class keeps
    the order of calls, renders, and checks what the caller asks for.

    num_rows: how many tasks there are; `reset(options={"row": i})` plays the i-th. None: tasks
        are made up from the seed.
    known_options: what `reset` may be asked for; any other option may be misspelt and is refused.
    """

    # Gymnasium declares it without and so must we.
    metadata: dict[str, Any] = {"render_modes": list(RENDER_MODES), "render_fps": 1}  # noqa: RUF012
    observation_space = TEXT
    action_space = TEXT
    num_rows: int | None = None
    known_options: ClassVar[frozenset[str]] = frozenset({"row"})

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode = checked_render_mode(render_mode)
        self._observation: str | None = None
        self._running = False

    @abstractmethod
    def _start(self, options: Mapping[str, Any]) -> tuple[str, Info]:
        """Begin an episode: the first observation, and an info that holds "system_prompt"."""

    @abstractmethod
    def _advance(self, action: str) -> Turn:
        """Play one turn: Gymnasium's five-tuple; the last info is made with `ending`."""

    def legal_actions(self) -> tuple[str, ...]:
        """The actions that are allowed now; none at all where any text is."""
        return ()

    def oracle_action(self) -> str:
        """A best action for the present state. Raises NoOracle where it is not known."""
        raise NoOracle(f"{type(self).__name__} does not know its best action")

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, Info]:
        """Start an episode: the first observation, and an info with a "system_prompt".

        Raises ConfigError for options that the environment does not know.
        """
        if options and (unknown := sorted(map(str, options.keys() - self.known_options))):
            raise ConfigError(
                f"{type(self).__name__}.reset() knows the options "
                f"{sorted(self.known_options)}, got {unknown}"
            )
        super().reset(seed=seed)
        self._observation, info = self._start(options or {})
        self._running = True
        return self._observation, info

    def step(self, action: str) -> Turn:
        """Play one turn. Whatever the text, it has a defined outcome.

        Raises EpisodeOver when no episode is running, EnvError for an action that is no text.
        """
        if not self._running:
            raise EpisodeOver(
                f"{type(self).__name__}.step() came before the first reset() or after the end of "
                "the episode; call reset() first"
            )
        if not isinstance(action, str):
            raise EnvError(f"an action is a str, got {action!r} of {type(action).__name__}")
        turn = self._advance(action)
        self._observation = turn[0]
        self._running = not (turn[2] or turn[3])
        return turn

    def render(self) -> str:
        """The present state as text, or as an HTML fragment with everything escaped."""
        if self._observation is None:
            raise EpisodeOver(f"{type(self).__name__}.render() came before the first reset()")
        return rendered(self._picture(), self.render_mode)

    def play(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Rollout:
        """The episode that somebody plays at the terminal or in a notebook."""
        # What plays needs all of rollouts, which environments do not.
        from ludic_gym.play import play

        return play(self, seed=seed, options=options)

    def picture(self) -> str:
        """The present state as text, whatever the render mode; "" before the first reset."""
        return "" if self._observation is None else self._picture()

    def _picture(self) -> str:
        return self._observation or ""

    def _row(self, options: Mapping[str, Any]) -> int | None:
        """The row that the caller asks for, if any."""
        row = options.get("row")
        if row is None:
            return None
        if self.num_rows is None:
            raise ConfigError(f"{type(self).__name__} makes up its tasks: there is no row {row!r}")
        if not isinstance(row, int) or not 0 <= row < self.num_rows:
            raise ConfigError(f"row is an int from 0 to {self.num_rows - 1}, got {row!r}")
        return row


def checked_render_mode(render_mode: str | None) -> str | None:
    """The mode itself. Raises ConfigError if there is no such mode."""
    if render_mode is not None and render_mode not in RENDER_MODES:
        raise ConfigError(f"render_mode is one of {RENDER_MODES} or None, got {render_mode!r}")
    return render_mode


def rendered(text: str, render_mode: str | None) -> str:
    """The text as the mode wants it. Raises EnvError if there is no mode."""
    if render_mode is None:
        raise EnvError('nothing to render to; make the env with render_mode="ansi" or "html"')
    return f"<pre>{html.escape(text)}</pre>" if render_mode == "html" else text


def ending(*, success: bool, **components: float) -> Info:
    """The info that a last step needs; the components sum to the step's reward."""
    return {"success": success, **{f"reward/{name}": x for name, x in components.items()}}


def pick(rng: np.random.Generator, items: Sequence[T]) -> T:
    """One of the items, each as likely; `rng.choice` is 20 times slower."""
    return items[int(rng.random() * len(items))]


def checked_choice(name: str, value: str, choices: Sequence[str]) -> str:
    """The value itself. Raises ConfigError if it is not one of the choices."""
    if value not in choices:
        raise ConfigError(f"{name} is one of {', '.join(choices)}, got {value!r}")
    return value


def one_line(text: str, longest: int) -> str:
    """The text on one line, cut, and without characters that are not printed.

    For what one player says and another sees: it cannot pass for a line of the environment's.
    """
    printed = "".join(c if c.isprintable() else " " for c in text[: 10 * longest])
    return " ".join(printed.split())[:longest]
