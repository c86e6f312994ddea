"""BoardAECEnv and BoardEnv: PettingZoo's chess and Go as texts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from types import MappingProxyType, ModuleType
from typing import Any

import numpy as np

from ludic_gym.envs.core.base import TextEnv, Turn, checked_choice, end, pick, proceed
from ludic_gym.envs.core.game import outcome_of
from ludic_gym.envs.core.seats import PLAYERS, GameOver, SeatsAECEnv
from ludic_gym.envs.core.two_player import lost_by
from ludic_gym.packages import optional

# Go keeps its board size in variables of its module, so there can be only one size in a process.
GO_SIZE = 9
# Without I, as on boards: it is mistaken for J.
GO_COLUMNS = "ABCDEFGHJ"
Raw = Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Board:
    """Texts of one game.

    prompt: the rules, with a placeholder for the seat's `side`.
    picture: the position. legal: the legal actions. move: the text of an action.
    kwargs: arguments of PettingZoo's `raw_env`.
    """

    prompt: str
    sides: tuple[str, str] = ("X", "O")
    picture: Callable[[Raw], str]
    legal: Callable[[Raw], Iterable[int]]
    move: Callable[[Raw, int], str]
    kwargs: Mapping[str, int] = field(default_factory=dict)


class BoardAECEnv(SeatsAECEnv):
    """A board game of PettingZoo for two agents in turn. Requires the extra `boards`.

    game: "chess" or "go" (on 9 x 9 points).

    Observation: the position. Action: a move in the format of the system prompt, in any case. A
    win pays 1, a loss -1. An illegal move ends the game, with -1 for its player and 1 for the
    other. The last infos have "outcome": "win", "loss", "draw" or "illegal".
    """

    component = "game"

    def __init__(self, game: str, render_mode: str | None = None) -> None:
        super().__init__(checked_choice("game", game, tuple(BOARDS)), render_mode)
        self._game = game
        self._raw = raw_env(game)

    def __getstate__(self) -> dict[str, Any]:
        # PettingZoo pickles only constructor arguments, so the game's state is added.
        return {**vars(self), "_raw": vars(self._raw)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _raw=raw_env(state["_game"]))
        self._raw.__dict__.update(state["_raw"])

    def deal(self, rng: np.random.Generator) -> int:
        """Set up the board."""
        self._raw.reset()
        return 0

    def system_prompt(self, seat: int) -> str:
        """The rules, the side of the seat and the reply format."""
        board = BOARDS[self._game]
        return board.prompt.format(side=board.sides[seat])

    def view(self, seat: int) -> str:
        """The position; the same for both seats."""
        return BOARDS[self._game].picture(self._raw)

    def _moves(self) -> dict[str, int]:
        """The legal actions of the current player, by their texts."""
        board, raw = BOARDS[self._game], self._raw
        return {board.move(raw, int(action)): int(action) for action in board.legal(raw)}

    def allowed_actions(self) -> tuple[str, ...]:
        """Legal moves of the selected agent."""
        return tuple(self._moves())

    def move(self, seat: int, action: str) -> int | GameOver:
        """Play the move of the seat."""
        number = self._moves().get(action)
        if number is None:
            return lost_by({seat})
        self._raw.step(number)
        if not any(self._raw.terminations.values()):
            return 1 - seat
        first, second = (float(self._raw.rewards[agent]) for agent in self._raw.possible_agents)
        outcomes = outcome_of(first), outcome_of(second)
        return GameOver((first, second), outcomes, (first >= 1.0, second >= 1.0))


class BoardEnv(TextEnv):
    """A board game of PettingZoo against a random opponent. Requires the extra `boards`.

    game: as in `BoardAECEnv`, with its observations, actions, rewards and outcomes.
    seat: the agent's seat: "first", "second", or "random" in every episode.
    """

    def __init__(self, game: str, seat: str = "first", render_mode: str | None = None) -> None:
        super().__init__(render_mode)
        self._seat = checked_choice("seat", seat, ("first", "second", "random"))
        self._match = BoardAECEnv(game)

    def start(self, options: Mapping[str, Any]) -> tuple[str, str]:
        """Draw the seat and set up the board; the opponent moves first if its seat does."""
        second = self.np_random.random() < 0.5 if self._seat == "random" else self._seat == "second"
        self._agent = PLAYERS[second]
        # The boards draw nothing: the seed of the match has no effect.
        self._match.reset(seed=0)
        prompt = self._match.infos[self._agent]["system_prompt"]
        self._reply()
        return str(self._match.observe(self._agent)), prompt

    def read(self, reply: str) -> None:
        """None: the match reads."""

    def turn(self, action: str) -> Turn:
        """Play the move, then the opponent's."""
        self._match.step(action)
        self._reply()
        text, info = str(self._match.observe(self._agent)), self._match.infos[self._agent]
        if not self._match.terminations[self._agent]:
            return proceed(text)
        reward = self._match.rewards[self._agent]
        return end(text, success=info["success"], info={"outcome": info["outcome"]}, game=reward)

    def _reply(self) -> None:
        """Let the opponent move, if it is its turn."""
        legal = self._match.legal_actions()
        if legal and self._match.agent_selection != self._agent:
            self._match.step(pick(self.np_random, legal))

    def allowed_actions(self) -> tuple[str, ...]:
        """Legal moves of the agent."""
        return self._match.legal_actions()


def raw_env(game: str) -> Raw:
    """PettingZoo's environment of a game. Raises MissingPackage without the extra `boards`."""
    return _module(game).raw_env(**BOARDS[game].kwargs)


@cache
def _module(game: str, file: str = "") -> ModuleType:
    return optional(f"pettingzoo.classic.{game}.{file or game}", "ludic-gym[boards]")


def chess_picture(raw: Raw) -> str:
    """Eight ranks from Black's side, with their names, and the position in Forsyth-Edwards."""
    ranks = str(raw.board).split("\n")
    lines = [f"{8 - i} {rank}" for i, rank in enumerate(ranks)]
    return "\n".join([*lines, "  a b c d e f g h", f"FEN: {raw.board.fen()}"])


def chess_move(raw: Raw, action: int) -> str:
    """Long algebraic notation: from, to, and the piece of a promotion: "e2e4", "e7e8q"."""
    player = raw.possible_agents.index(raw.agent_selection)
    utils = _module("chess", "chess_utils")
    return str(utils.action_to_move(raw.board, action, player).uci())


def go_picture(raw: Raw) -> str:
    """Nine rows from the top with the names of rows and columns: X is black, O is white."""
    # `_go` is private, but PettingZoo shows the board only as planes of bits.
    rows = [" ".join(".XO"[int(stone)] for stone in row) for row in raw._go.board]
    lines = [f"{GO_SIZE - i} {row}" for i, row in enumerate(rows)]
    return "\n".join([*lines, "  " + " ".join(GO_COLUMNS)])


def go_move(raw: Raw, action: int) -> str:
    """A point such as "D4", or "pass"."""
    row, column = divmod(action, GO_SIZE)
    return "pass" if row == GO_SIZE else f"{GO_COLUMNS[column]}{GO_SIZE - row}"


BOARDS: Mapping[str, Board] = MappingProxyType(
    {
        "chess": Board(
            prompt="You play chess as {side}; capital letters are White's pieces. Reply with just "
            "your move: from square, to square, and the letter of the piece that a pawn becomes: "
            "e2e4, e1g1 (castling), e7e8q.",
            sides=("White", "Black"),
            picture=chess_picture,
            legal=lambda raw: _module("chess", "chess_utils").legal_moves(raw.board),
            move=chess_move,
        ),
        "go": Board(
            prompt="You play Go on 9 x 9 points as {side}; X is Black, who moves first, O is "
            "White, who gets 7.5 points. Area is counted after two passes. Reply with just a "
            "point, such as D4, or pass.",
            picture=go_picture,
            # The points, and the pass.
            legal=lambda raw: raw.next_legal_moves,
            move=go_move,
            kwargs={"board_size": GO_SIZE},
        ),
    }
)
