"""NumericEnv: an environment of numbers as one of texts. `as_text` makes it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from typing import Any, Protocol, runtime_checkable

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from ludic_gym.adapters.toy_text import GAMES, Game, HasTransitions, best_actions
from ludic_gym.envs.core.base import Info, TextEnv, Turn, end, proceed
from ludic_gym.errors import ConfigError, NoOracle
from ludic_gym.offered import legal_actions
from ludic_gym.reader import Reading, one_of, read_reply
from ludic_gym.spaces import TEXT, TextSpace

AnyEnv = gym.Env[Any, Any]
Actions = Sequence[str] | Mapping[str, Any]
# Numbers of an observation that is written out; a picture has far more.
MOST_NUMBERS = 200
# Replies without an action, one after the other, that end an episode.
ATTEMPTS = 3
_HIGHLIGHT = re.compile(r"\x1b\[(?:\d+;)*4\d(?:;\d+)*m.*?\x1b\[0m")
_COLOUR = re.compile(r"\x1b\[[\d;]*m")
_NUMERIC = (
    spaces.Discrete,
    spaces.MultiDiscrete,
    spaces.MultiBinary,
    spaces.Box,
    spaces.Dict,
    spaces.Tuple,
)


@runtime_checkable
class NamesActions(Protocol):
    """An env whose discrete actions have names, as those of Atari."""

    def get_action_meanings(self) -> list[str]:
        """The names, in order."""


def is_numeric(env: AnyEnv) -> bool:
    """True if observations or actions of the env are numbers, or structures of them."""
    return isinstance(env.action_space, _NUMERIC) or isinstance(env.observation_space, _NUMERIC)


def as_text(
    env: AnyEnv,
    *,
    describe: Callable[[Any], str] | None = None,
    actions: Actions | None = None,
) -> NumericEnv:
    """The Gymnasium environment with texts for observations and actions.

    describe: the text of an observation. Without it, the environment's own picture if it was made
        with render_mode="ansi", and the observation by its space.
    actions: names of the actions: a list for a Discrete space, in the order of its numbers, or
        {name: action} for any space. Without it, the names that the environment has, or numbers;
        JSON for a Dict space. The system prompt tells the form.
    The reward is the environment's. "success" in the last info is what the environment's info has,
    or its "is_success"; FrozenLake, CliffWalking, Taxi and Blackjack have rules and success here,
    and all but Blackjack an oracle.
    The third reply in a row without an action ends the episode with `forfeit_reward`.
    Raises ConfigError for names that do not fit the space, and for an observation space that is too
    large to be written out.

    >>> env = as_text(gym.make("FrozenLake-v1", is_slippery=False), describe=str)
    >>> env.reset(seed=1)[0], env.step("I go down.")[0]
    ('0', '4')
    >>> env.legal_actions()
    ('left', 'down', 'right', 'up')
    """
    kind = SolvedEnv if isinstance(env.unwrapped, HasTransitions) else NumericEnv
    return kind(env, describe, actions)


class ActionTexts(TextSpace):
    """Texts of the actions of another space, as `as_text` reads them; others are in it too."""

    def __init__(self, space: spaces.Space[Any]) -> None:
        super().__init__(TEXT.max_length)
        self._actions = deepcopy(space)

    def seed(self, seed: Any = None) -> Any:  # noqa: ANN401 - as of the base class
        """Seed the draws of the other space."""
        return self._actions.seed(seed)

    def sample(self, mask: object = None, probability: object = None) -> str:
        """An action of the other space, as JSON."""
        return json.dumps(self._actions.sample(), default=lambda value: value.tolist())


class NumericEnv(TextEnv):
    """A Gymnasium environment of numbers as texts; see `as_text`."""

    def __init__(
        self,
        env: AnyEnv,
        describe: Callable[[Any], str] | None = None,
        actions: Actions | None = None,
    ) -> None:
        super().__init__(env.render_mode if env.render_mode == "ansi" else None)
        self.env, self.spec = env, env.spec
        self.forfeit_reward = self._game.forfeit if self._game else 0.0
        self._names = _named_actions(env, actions or (self._game.actions if self._game else None))
        if describe is None:
            _check_size(env.observation_space)
        self._describe = describe
        # Shared by all other environments, which have any text.
        self.action_space = ActionTexts(env.action_space) if not self._names else TEXT
        self._reset_with: dict[str, Any] = {}
        self._failures = 0
        self._best: list[int] | None = None

    @property
    def _game(self) -> Game | None:
        # By name, since its functions cannot be pickled.
        return GAMES.get(type(self.env.unwrapped).__name__)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, Info]:
        """Start an episode. seed, options: of the environment."""
        self._reset_with = {"seed": seed, "options": options}
        return super().reset(seed=seed)

    def start(self, options: Mapping[str, Any]) -> tuple[str, Info]:
        """Reset the environment."""
        observation, info = self.env.reset(**self._reset_with)
        self._failures = 0
        return self._text(observation), {**_plain(info), "system_prompt": self._prompt()}

    def turn(self, action: str) -> Turn:
        """Step the environment; a reply without an action leaves it as it is."""
        if self.spelt_action(action) is None:
            return self._refused()
        self._failures = 0
        value = self._names[action] if self._names else _value(self.env.action_space, action)
        observation, reward, terminated, truncated, info = self.env.step(value)
        text, info = self._text(observation), _plain(info)
        if not (terminated or truncated):
            return proceed(text, float(reward), info)
        info |= {"reward/total": float(reward)}
        if self._game is not None:
            info |= {"success": self._game.solved(float(reward), bool(terminated))}
        elif "is_success" in info:
            info.setdefault("success", bool(info["is_success"]))
        return text, float(reward), bool(terminated), bool(truncated), info

    def allowed_actions(self) -> tuple[str, ...]:
        """Names of the actions; those of the environment's own `legal_actions`, if it has it."""
        legal = legal_actions(self.env)
        by_number = {str(value): name for name, value in self._names.items()}
        return tuple(by_number.get(one, one) for one in legal) or tuple(self._names)

    def read(self, reply: str) -> Reading:
        """The action in a reply."""
        return read_reply(reply, self.spelt_action, tuple(self._names))

    def spelt_action(self, text: str) -> str | None:
        """The action that a text spells, None if it spells none."""
        if self._names:
            return one_of(tuple(self._names))(text)
        return None if _value(self.env.action_space, text) is None else text

    def close(self) -> None:
        """Close the environment."""
        self.env.close()

    def _refused(self) -> Turn:
        self._failures += 1
        info = {"illegal": True}
        if self._failures == ATTEMPTS:
            return end(success=False, reward=self.forfeit_reward, info=info)
        return proceed(f"No action was found. {self._form()}", 0.0, info)

    def _prompt(self) -> str:
        spec = self.env.spec
        name = type(self.env.unwrapped).__name__ if spec is None else spec.id
        rules = self._game.rules if self._game else f"You play {name}."
        return f"{rules} {self._form()}"

    def _form(self) -> str:
        """The sentence about the form of an action."""
        form = ", ".join(self._names) if self._names else _form(self.env.action_space)
        return f"Reply with just your action: {form}."

    def _text(self, observation: Any) -> str:  # noqa: ANN401 - of any space
        if self._describe is not None:
            return self._describe(observation)
        parts = []
        if self.env.render_mode == "ansi":
            parts.append(plain_picture(str(self.env.render())))
        if self._game is not None:
            parts.append(self._game.state(self.env.unwrapped, observation))
        else:
            parts.append(written(observation))
        return "\n\n".join(parts)


class SolvedEnv(NumericEnv):
    """An environment of toy text that lists its transitions, and so knows its best action."""

    def best_action(self) -> str:
        """A best action, by value iteration. Raises NoOracle if it has no name."""
        inner: Any = self.env.unwrapped
        if self._best is None:
            self._best = best_actions(inner)
        for name, number in self._names.items():
            if number == self._best[int(inner.s)]:
                return name
        raise NoOracle(f"the best action in state {inner.s} is none of {list(self._names)}")


def plain_picture(text: str) -> str:
    r"""A picture for terminals without its colours, and with @ in the place that is highlighted.

    >>> plain_picture("\x1b[41mS\x1b[0mFF\n")
    '@FF'
    """
    return _COLOUR.sub("", _HIGHLIGHT.sub("@", text)).strip("\n")


def written(value: Any) -> str:  # noqa: ANN401 - of any space
    """The text of an observation: numbers to four digits, a line for each part of a structure.

    >>> print(written({"speed": np.array([0.51239, -1.0]), "gear": np.int64(3)}))
    speed: 0.5124 -1
    gear: 3
    """
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping):
        return "\n".join(f"{name}: {written(part)}" for name, part in value.items())
    if isinstance(value, tuple):
        return ", ".join(map(written, value))
    array = np.asarray(value)
    if array.ndim > 1:
        return "\n".join(map(written, array))
    return " ".join(f"{number:.4g}" for number in array.ravel().tolist())


def _check_size(space: spaces.Space[Any]) -> None:
    """Raise ConfigError for a space whose observations are too large to be written out."""
    size = spaces.flatdim(space) if isinstance(space, spaces.Box) else 0
    if size > MOST_NUMBERS:
        raise ConfigError(
            f"an observation has {size} numbers, such as a picture: name its text by "
            "as_text(env, describe=...), a function of an observation"
        )


def _named_actions(env: AnyEnv, given: Actions | None) -> dict[str, Any]:
    """The actions by name; {} for a space whose actions are written as numbers or JSON."""
    space, inner = env.action_space, env.unwrapped
    if isinstance(given, Mapping):
        if wrong := [name for name, value in given.items() if not space.contains(value)]:
            raise ConfigError(
                f"action {wrong[0]!r} is {given[wrong[0]]!r}, which is not in {space}"
            )
        return dict(given)
    if not isinstance(space, spaces.Discrete):
        if given is not None:
            raise ConfigError(f"actions of {space} are named by a dict, {{name: action}}")
        return {}
    numbers = [int(space.start) + i for i in range(int(space.n))]
    names = list(given or ())
    if not names and isinstance(inner, NamesActions):
        names = [name.lower() for name in inner.get_action_meanings()]
    names = names or list(map(str, numbers))
    if len(names) != len(numbers) or len({*names}) < len(names):
        raise ConfigError(f"{space} has {len(numbers)} actions, got the names {names}")
    return dict(zip(names, numbers, strict=True))


def _form(space: spaces.Space[Any]) -> str:
    """The form of an action of a space, in words."""
    if isinstance(space, spaces.Dict):
        fields = ", ".join(f'"{name}": {_form(part)}' for name, part in space.items())
        return f"a JSON object, {{{fields}}}"
    if isinstance(space, spaces.Tuple):
        return f"a JSON list, [{'; '.join(map(_form, space))}]"
    if isinstance(space, spaces.Discrete):
        return f"a whole number from {space.start} to {space.start + space.n - 1}"
    if isinstance(space, spaces.MultiDiscrete):
        ends = " ".join(map(str, (space.start + space.nvec - 1).ravel()))
        return f"{space.nvec.size} whole numbers, such as {ends}, which are the largest"
    if isinstance(space, spaces.MultiBinary):
        return f"{np.prod(space.shape)} numbers, each 0 or 1"
    if isinstance(space, spaces.Box):
        low, high = written(space.low.ravel()), written(space.high.ravel())
        return f"{space.low.size} numbers, from {low} to {high}"
    return "a text"


def _value(space: spaces.Space[Any], text: str) -> Any:  # noqa: ANN401 - of any space
    """The action that a text spells, as JSON or as numbers; None if it spells none."""
    if isinstance(space, spaces.Text):
        return text if space.contains(text) else None
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        data = re.split(r"[\s,;]+", text.strip("[]() "))
    try:
        value = _converted(space, data)
    except (TypeError, ValueError, KeyError, OverflowError):
        return None
    return value if space.contains(value) else None


def _converted(space: spaces.Space[Any], data: Any) -> Any:  # noqa: ANN401
    """The value of a space for data of JSON. Raises the errors of wrong data."""
    if isinstance(space, spaces.Dict):
        if not isinstance(data, dict) or data.keys() - space.keys():
            raise ValueError(data)
        return {name: _converted(part, data[name]) for name, part in space.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(_converted(part, one) for part, one in zip(space, data, strict=True))
    if isinstance(space, spaces.Discrete):
        return int(data[0] if isinstance(data, list) else data)
    if isinstance(space, spaces.MultiDiscrete | spaces.MultiBinary | spaces.Box):
        numbers = np.array(data, dtype=float).reshape(space.shape)
        # A whole number that is written with a fraction would be cut off.
        if not isinstance(space, spaces.Box) and (numbers % 1).any():
            raise ValueError(data)
        return numbers.astype(space.dtype)
    return data


def _plain(info: Mapping[str, Any]) -> Info:
    """The info with NumPy's values as Python's, which records can hold."""
    return {
        key: value.tolist() if isinstance(value, np.ndarray | np.generic) else value
        for key, value in info.items()
    }
