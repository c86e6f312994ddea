"""RecordText: episodes as HTML pages and terminal recordings, like RecordVideo."""

from __future__ import annotations

import html
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
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
COLUMNS, ROWS = 80, 24
TURN_SECONDS = 1.0


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
    """Writes episodes to files: a page of HTML, and a recording for asciinema (asciicast v2).

    folder: the folder of the files, created if needed. Names are `name_prefix` and the number of
        the episode, with one more number if the file exists.
    formats: "html", "cast", or both.
    episode_trigger: returns True for the numbers, from 0, of episodes to record; None: all.
    An episode is written when it ends, or at `reset` or `close` before its end. Markup and control
    characters in its texts are escaped.
    Raises ConfigError for other formats, and for an environment whose observations are not in
    `TEXT`.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     game = gym.make("ludic/Arithmetic-v0")
    ...     env = RecordText(game, folder, episode_trigger=lambda number: number < 3)
    ...     _ = env.reset(seed=1)
    ...     _ = env.step("5")
    ...     sorted(path.name for path in Path(folder).iterdir())
    ['episode-0.cast', 'episode-0.html']
    """

    def __init__(
        self,
        env: Env,
        folder: str | Path,
        *,
        formats: Sequence[str] = ("html", "cast"),
        episode_trigger: Callable[[int], bool] | None = None,
        name_prefix: str = "episode",
    ) -> None:
        RecordConstructorArgs.__init__(
            self,
            # As text, because the spec of an environment is written as JSON.
            folder=str(folder),
            formats=list(formats),
            episode_trigger=episode_trigger,
            name_prefix=name_prefix,
        )
        if not formats or not set(formats) <= set(WRITERS):
            raise ConfigError(f"formats is some of {', '.join(WRITERS)}, got {formats!r}")
        if env.observation_space != TEXT:
            raise ConfigError(
                f"{env} has observations in {env.observation_space}, not text; put RecordText "
                "further in"
            )
        super().__init__(env)
        self._folder = Path(folder)
        self._formats = tuple(formats)
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
        for name in self._formats:
            stem = self._folder / f"{self._prefix}-{self._next - 1}"
            write_new(stem, f".{name}", WRITERS[name](recording))


def write_new(stem: Path, suffix: str, text: str) -> Path:
    """Write to the first of stem, stem-2, stem-3 ... that does not exist; the path.

    suffix: with its dot. No file is ever overwritten: several environments, also in other
    processes, may record into one folder.
    """
    for number in count(1):
        path = stem.with_name(stem.name + (f"-{number}" if number > 1 else "") + suffix)
        try:
            # "x" fails for a file that another process has just made.
            with path.open("x", encoding="utf-8", newline="\n") as file:
                file.write(text)
        except FileExistsError:
            continue
        return path
    raise AssertionError("counting has no end")


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


def asciicast(recording: Recording) -> str:
    """The episode as asciicast v2, one turn per second.

    A line with the header, then a line per event: [seconds, "o" for output, text]. See
    https://docs.asciinema.org/manual/asciicast/v2/ for the format.
    """
    header = {"version": 2, "width": COLUMNS, "height": ROWS, "title": printable(recording.title)}
    events = [[i * TURN_SECONDS, "o", text] for i, text in enumerate(_screens(recording))]
    return "\n".join([*map(json.dumps, [header, *events]), ""])


def _screens(recording: Recording) -> Iterator[str]:
    if recording.system_prompt:
        yield _typed(f"{recording.system_prompt}\n\n")
    yield _typed(f"{recording.first}\n")
    for action, observation, _ in recording.turns:
        yield f"\x1b[1m{_typed(f'> {action}')}\x1b[0m\r\n"
        yield _typed(f"{observation}\n")
    yield _typed(f"\n{_summary(recording)}\n")


def _summary(recording: Recording) -> str:
    total = sum(reward for _, _, reward in recording.turns)
    turns = len(recording.turns)
    return f"{recording.end} after {turns} turn{'s' * (turns != 1)}, reward {total:g}"


def _escaped(text: str) -> str:
    return html.escape(printable(text))


def _typed(text: str) -> str:
    # A terminal in raw mode needs the carriage return too.
    return printable(text).replace("\n", "\r\n")


WRITERS: Mapping[str, Callable[[Recording], str]] = {"html": html_page, "cast": asciicast}
