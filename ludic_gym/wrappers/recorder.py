"""RecordText: episodes as HTML pages, like RecordVideo."""

from __future__ import annotations

import html
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import gymnasium as gym
from gymnasium.utils import RecordConstructorArgs

from ludic_gym.envs.core.base import Info, Turn
from ludic_gym.errors import ConfigError
from ludic_gym.spaces import TEXT
from ludic_gym.terminal import printable
from ludic_gym.types import Env

STYLE = """\
:root { color-scheme: light dark; }
body { font-family: system-ui, sans-serif; max-width: 50rem; margin: 2rem auto; padding: 0 1rem; }
pre { white-space: pre-wrap; overflow-wrap: anywhere; margin: 0.3rem 0; padding: 0.5rem 0.8rem;
  border-left: 0.2rem solid #8888; background: #8881; }
.action { border-color: #38f; margin-left: 2rem; }
.note { color: #888; font-size: 0.85rem; }"""


@dataclass(kw_only=True)
class Recording:
    """Texts and rewards of one episode.

    title: env, number of the episode, and its seed.
    first: the first observation.
    turns: (action, observation after it, reward).
    end: "terminated", "truncated" or "not finished".
    info: the last one.
    """

    title: str
    system_prompt: str
    first: str
    turns: list[tuple[str, str, float]] = field(default_factory=list)
    end: str = "not finished"
    info: Mapping[str, Any] = field(default_factory=dict)


class RecordText(gym.Wrapper[str, str, str, str], RecordConstructorArgs):
    """Writes each episode to a page of HTML.

    folder: the folder of the files, created if needed. Names are `name_prefix` and the number of
        the episode, with one more number if the file exists.
    episode_trigger: returns True for the numbers, from 0, of episodes to record; None: all.
    An episode is written when it ends, or at `reset` or `close` before its end. Markup and control
    characters in its texts are escaped.
    Raises ConfigError for an environment whose observations are not in `TEXT`.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     game = gym.make("ludic/Arithmetic-v0")
    ...     env = RecordText(game, folder, episode_trigger=lambda number: number < 3)
    ...     _ = env.reset(seed=1)
    ...     _ = env.step("5")
    ...     sorted(path.name for path in Path(folder).iterdir())
    ['episode-0.html']
    """

    def __init__(
        self,
        env: Env,
        folder: str | Path,
        *,
        episode_trigger: Callable[[int], bool] | None = None,
        name_prefix: str = "episode",
    ) -> None:
        RecordConstructorArgs.__init__(
            self,
            # As text, because the spec of an environment is written as JSON.
            folder=str(folder),
            episode_trigger=episode_trigger,
            name_prefix=name_prefix,
        )
        if env.observation_space != TEXT:
            raise ConfigError(
                f"{env} has observations in {env.observation_space}, not text; put RecordText "
                "further in"
            )
        super().__init__(env)
        self._folder = Path(folder)
        self._trigger = episode_trigger
        self._prefix = name_prefix
        self._next = 0
        self._recording: Recording | None = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, Info]:
        """Start an episode, and record it if the trigger selects it."""
        # The previous episode may have been left before its end.
        self._finish()
        observation, info = self.env.reset(seed=seed, options=options)
        if self._trigger is None or self._trigger(self._next):
            name = self.env.spec.id if self.env.spec is not None else str(self.env)
            seeded = "" if seed is None else f", seed {seed}"
            self._recording = Recording(
                title=f"{name}, episode {self._next}{seeded}",
                system_prompt=info.get("system_prompt", ""),
                first=observation,
            )
        self._next += 1
        return observation, info

    def step(self, action: str) -> Turn:
        """Play a turn; write the files after the last one."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        if self._recording is not None:
            self._recording.turns.append((action, observation, float(reward)))
            if terminated or truncated:
                self._recording.end = "terminated" if terminated else "truncated"
                self._recording.info = dict(info)
                self._finish()
        return observation, float(reward), terminated, truncated, info

    def close(self) -> None:
        """Write an unfinished episode, and close the environment."""
        self._finish()
        self.env.close()

    def _finish(self) -> None:
        # Taken away first, so that an error of the disk does not repeat at the next reset.
        recording, self._recording = self._recording, None
        # Vector environments reset once more than they play.
        if recording is None or not recording.turns:
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        write_new(self._folder / f"{self._prefix}-{self._next - 1}.html", html_page(recording))


def write_new(path: Path, text: str) -> None:
    """Write to the first of NAME.html, NAME-2.html, NAME-3.html ... that does not exist.

    No file is ever overwritten: several environments, also in other processes, may record into one
    folder.
    """
    for number in count(1):
        # "x" fails for a file that another process has just made.
        with (
            suppress(FileExistsError),
            path.with_stem(path.stem + f"-{number}" * (number > 1)).open(
                "x", encoding="utf-8", newline="\n"
            ) as file,
        ):
            file.write(text)
            return


def html_page(recording: Recording) -> str:
    """The episode as one file of HTML without scripts or external resources.

    Untrusted texts are in it as escaped text only, never in attributes.
    """
    title = _escaped(recording.title)
    head = f'<meta charset="utf-8"><title>{title}</title><style>{STYLE}</style>'
    return "\n".join(["<!doctype html>", head, f"<h1>{title}</h1>", *_html_parts(recording), ""])


def _html_parts(recording: Recording) -> Iterator[str]:
    if recording.system_prompt:
        yield f'<p class="note">{_escaped(recording.system_prompt)}</p>'
    yield f"<pre>{_escaped(recording.first)}</pre>"
    for action, observation, reward in recording.turns:
        yield f'<pre class="action">{_escaped(action)}</pre>'
        if reward:
            yield f'<p class="note">reward {reward:g}</p>'
        yield f"<pre>{_escaped(observation)}</pre>"
    yield f"<p>{_escaped(_summary(recording))}</p>"
    if recording.info:
        lines = "\n".join(f"{key}: {value}" for key, value in recording.info.items())
        yield f'<pre class="note">{_escaped(lines)}</pre>'


def _summary(recording: Recording) -> str:
    total = sum(reward for _, _, reward in recording.turns)
    turns = len(recording.turns)
    return f"{recording.end} after {turns} turn{'s' * (turns != 1)}, reward {total:g}"


def _escaped(text: str) -> str:
    return html.escape(printable(text))
