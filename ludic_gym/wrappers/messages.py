"""ChatMessages: observations that are the dialog so far."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

import gymnasium as gym
import numpy as np
from gymnasium.utils import RecordConstructorArgs
from gymnasium.vector.utils.space_utils import create_empty_array

from ludic_gym.envs.core.base import Info
from ludic_gym.errors import ConfigError
from ludic_gym.spaces import TEXT, ByLength
from ludic_gym.types import Env, Message
from ludic_gym.wrappers.common import cut_short

Messages = tuple[Message, ...]
MessagesTurn = tuple[Messages, float, bool, bool, Info]

_ROLES = ("system", "user", "assistant")
# Length of a message besides its text.
_HEADER = 16


class MessagesSpace(ByLength, gym.Space[Messages]):
    """Tuples of messages, {"role": "system" | "user" | "assistant", "content": text}.

    max_length: characters of all texts, where every message counts 16 more.

    >>> space = MessagesSpace(100)
    >>> space.contains(({"role": "user", "content": "hi"},)), space.contains(("hi",))
    (True, False)
    """

    def __init__(self, max_length: int, *, seed: int | np.random.Generator | None = None) -> None:
        super().__init__(seed=seed)
        self.max_length = max_length

    def contains(self, x: object) -> bool:
        """True if `x` is a tuple of such messages within `max_length`."""
        if not isinstance(x, tuple) or not all(map(_is_message, x)):
            return False
        return self.fits((message["role"], str(message["content"])) for message in x)

    def fits(self, dialog: Iterable[tuple[str, str]]) -> bool:
        """True if the (role, text) pairs are within `max_length`; roles are not checked."""
        return sum(len(text) + _HEADER for _, text in dialog) <= self.max_length

    def sample(self, mask: object = None, probability: object = None) -> Messages:
        """A short message of a user. Raises ConfigError for masks."""
        if mask is not None or probability is not None:
            raise ConfigError(f"{self} cannot sample with a mask or probabilities")
        letters = self.np_random.integers(32, 127, size=8, dtype=np.uint8)
        return ({"role": "user", "content": letters.tobytes().decode("ascii")},)


# All environments share one space. It holds four observations of maximal length.
MESSAGES = MessagesSpace(2**18 + 2**10)


class ChatMessages(gym.Wrapper[Messages, str, str, str], RecordConstructorArgs):
    """Observations are the dialog so far: a tuple of new messages, the newest observation last.

    system_prompt: text of the first message; None for the environment's suggestion, "" for none.
    If a dialog becomes too long for the space, the episode is truncated with the reason
    "dialog_length", and the last observation is the previous dialog. Gymnasium's AsyncVectorEnv
    takes it with `shared_memory=False`.
    Raises ConfigError for an environment whose observations are not in `TEXT`.

    >>> env = ChatMessages(gym.make("ludic/Arithmetic-v0"), system_prompt="Just the number.")
    >>> [message["role"] for message in env.reset(seed=1)[0]]
    ['system', 'user']
    """

    def __init__(self, env: Env, system_prompt: str | None = None) -> None:
        RecordConstructorArgs.__init__(self, system_prompt=system_prompt)
        if env.observation_space != TEXT:
            raise ConfigError(f"{env} has observations in {env.observation_space}, not text")
        # Gymnasium's types require equal observations of the wrapper and the wrapped environment.
        super().__init__(cast(Any, env))
        self.observation_space = MESSAGES
        self._system_prompt = system_prompt
        self._dialog: tuple[tuple[str, str], ...] = ()

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Messages, Info]:
        """Start an episode: the system prompt, if there is one, and the first observation."""
        observation, info = self._text_env.reset(seed=seed, options=options)
        fixed_prompt = self._system_prompt
        prompt = info.get("system_prompt", "") if fixed_prompt is None else fixed_prompt
        self._dialog = ((("system", prompt),) if prompt else ()) + (("user", observation),)
        return self._messages(), info

    def step(self, action: str) -> MessagesTurn:
        """Play a turn: the dialog with the action and the next observation."""
        observation, reward, terminated, truncated, info = self._text_env.step(action)
        dialog = (*self._dialog, ("assistant", action), ("user", observation))
        if MESSAGES.fits(dialog):
            self._dialog = dialog
        elif not (terminated or truncated):
            truncated, info = True, cut_short(info, float(reward), "dialog_length")
        return self._messages(), float(reward), terminated, truncated, info

    @property
    def _text_env(self) -> Env:
        return cast(Env, self.env)

    def _messages(self) -> Messages:
        # New ones each time: callers may change them, and Gymnasium's checker requires it.
        return tuple(cast(Message, {"role": role, "content": text}) for role, text in self._dialog)


def _is_message(x: object) -> bool:
    return (
        isinstance(x, dict)
        and set(x) == {"role", "content"}
        and x["role"] in _ROLES
        and isinstance(x["content"], str)
    )


@create_empty_array.register(MessagesSpace)
def _empty(space: MessagesSpace, n: int = 1, fn: object = None) -> tuple[Messages, ...]:
    # Not a list: a batch of such a space is a tuple, as `batch_space` declares it.
    return ((),) * n
