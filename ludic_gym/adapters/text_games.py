"""Games of TextWorld and ALFWorld, from the files that these packages play.

Côté et al. 2018, arXiv:1806.11532; Shridhar et al. 2020, arXiv:2010.03768.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ludic_gym.envs.core.base import (
    Info,
    TextEnv,
    Turn,
    checked_choice,
    checked_range,
    end,
    pick,
    proceed,
)
from ludic_gym.errors import DataError, NoOracle
from ludic_gym.packages import optional

INSTALL = "textworld[pddl]"
PROMPT = (
    "You play a text game. Do what its first message asks for. Reply with one command and nothing "
    "else, such as: {examples}. You have {moves} moves."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """Games of a package.

    ending: of its files. examples: commands, for the prompt. moves: limit of an episode.
    advice: where files come from.
    """

    ending: str
    examples: str
    moves: int
    advice: str


PACKAGES: Mapping[str, Package] = {
    "textworld": Package(
        ending=".z8",
        examples="look, inventory, go east, open chest, take key, unlock door with key",
        moves=100,
        advice="tw-make custom --seed 1 --output games/1.z8 makes one",
    ),
    "alfworld": Package(
        ending=".tw-pddl",
        examples="look, inventory, go to drawer 1, open drawer 1, take apple 1 from drawer 1",
        # That of the published results.
        moves=50,
        advice="alfworld-download gets its data, with the folders train, valid_seen, valid_unseen",
    ),
}


class Story:
    """A game that is played by commands; copies and pickles play it again to the same point.

    path: of the file. plans: True if its state has the commands that win ("policy_commands").
    """

    def __init__(self, path: Path, *, plans: bool = False) -> None:
        self._path, self._plans = path, plans
        self._commands: list[str] = []
        self._game: Any = None
        self._state: Any = None

    def __getstate__(self) -> dict[str, Any]:
        # The game is a process of C behind pointers.
        return {**vars(self), "_game": None, "_state": None}

    @property
    def state(self) -> Any:  # noqa: ANN401 (not typed)
        """The state of the package after the commands."""
        if self._game is None:
            self._game, self._state = self._started()
            for command in self._commands:
                self._state, _, _ = self._game.step(command)
        return self._state

    def follow(self, commands: Sequence[str]) -> None:
        """Play the commands after those that have been played already."""
        assert self.state is not None
        for command in commands[len(self._commands) :]:
            self._commands.append(command)
            self._state, _, _ = self._game.step(command)

    def _started(self) -> tuple[Any, Any]:
        textworld = optional("textworld", INSTALL)
        wrappers = []
        if self._path.name.endswith(PACKAGES["alfworld"].ending):
            # Turns names such as "Apple_bar_1" into "apple 1".
            alfred = optional("alfworld.agents.environment.alfred_tw_env", "alfworld")
            wrappers = [alfred.AlfredDemangler]
        infos = textworld.EnvInfos(
            admissible_commands=True,
            won=True,
            lost=True,
            score=True,
            max_score=True,
            policy_commands=self._plans,
        )
        # The machine warns of every game that is none of its known ones.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            game = textworld.start(str(self._path), infos, wrappers)
        return game, game.reset()


class StoryEnv(TextEnv):
    """A game of TextWorld or a household task of ALFWorld, from a file of its package.

    - Observation: the game's words; at first also its task.
    - Action: a command that is possible now, as `legal_actions()` lists them; another one uses up a
      move and changes nothing.
    - Reward: 1 once the game is won, else 0 (component "won").
    - Info: "illegal" in every step; the last one has "game", the name of the file, and, where the
      game counts points, "metric/score", the share of them.

    Args:
        package: "textworld" or "alfworld", which must be installed.
        data: a file (.z8 or .tw-pddl) or a folder of such files at any depth, in the order of their
            paths: the rows.
        moves: None: 100 for TextWorld, 50 for ALFWorld.
    """

    def __init__(
        self,
        package: str,
        data: str | None = None,
        moves: int | None = None,
        render_mode: str | None = None,
    ) -> None:
        super().__init__(render_mode)
        known = PACKAGES[checked_choice("package", package, tuple(PACKAGES))]
        optional("textworld", INSTALL)
        self._root = Path(data or "")
        self._paths = _files(data, known)
        self.num_rows = len(self._paths)
        self._moves = checked_range("moves", known.moves if moves is None else moves, 1, 10_000)
        self._prompt = PROMPT.format(examples=known.examples, moves=self._moves)

    def start(self, options: Mapping[str, Any]) -> tuple[str, str]:
        """Start the game of the row."""
        row = options.get("row")
        path = self._paths[pick(self.np_random, range(len(self._paths))) if row is None else row]
        self._story, self._guide = Story(path), Story(path, plans=True)
        self._commands: list[str] = []
        self._moves_left = self._moves
        self._name = path.name if path == self._root else str(path.relative_to(self._root))
        return _text(self._story.state.feedback), self._prompt

    def turn(self, action: str) -> Turn:
        """Give the command to the game."""
        self._moves_left -= 1
        # Others are not passed on: games also know commands such as undo, save and quit.
        if illegal := action not in self.allowed_actions():
            text = "That is not possible now."
        else:
            self._commands.append(action)
            self._story.follow(self._commands)
            text = _text(self._story.state.feedback)
        state, info = self._story.state, Info(illegal=illegal)
        if self._moves_left and not state.won and not state.lost:
            return proceed(text, info=info)
        info["game"] = self._name
        if most := state.get("max_score"):
            info["metric/score"] = state["score"] / most
        return end(text, success=state.won, info=info, won=state.won)

    def allowed_actions(self) -> tuple[str, ...]:
        """The commands that are possible now."""
        return tuple(sorted(self._story.state.admissible_commands))

    def best_action(self) -> str:
        """The first command of the package's own plan. Raises NoOracle without one."""
        self._guide.follow(self._commands)
        plan = self._guide.state.policy_commands
        if not plan:
            raise NoOracle(f"{self._name}: the package has no plan that wins from here")
        return str(plan[0])


def _files(data: str | None, package: Package) -> tuple[Path, ...]:
    """The games of a folder, by their paths, or the one file. Raises DataError for none."""
    root = Path(data or "")
    found = [root] if root.is_file() else sorted(root.rglob("*")) if data and root.is_dir() else []
    paths = tuple(path for path in found if path.name.endswith(package.ending))
    if not paths:
        raise DataError(
            f"data is a file with the ending {package.ending}, or a folder of these, got {data!r}; "
            f"{package.advice}"
        )
    return paths


def _text(feedback: str) -> str:
    """The words of a game without its prompt and its status line, which stand at the end."""
    return feedback.partition("\n>")[0].strip()
