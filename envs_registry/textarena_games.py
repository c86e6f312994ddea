"""The games of TextArena, by name: those that are environments, and why others are not."""

from __future__ import annotations

TEXTARENA_ONE_PLAYER: tuple[str, ...] = ("GuessTheNumber", "Mastermind")
TEXTARENA_TWO_PLAYER: tuple[str, ...] = ("KuhnPoker", "TicTacToe")
TEXTARENA_SKIPPED: dict[str, str] = {}
