"""How fast every environment is: made by `python benchmarks/envs.py --all`."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

# Steps per CPU-second of random play, over those of Tic-Tac-Toe in the same run; nothing where
# other processes do the work.
SPEEDS: Mapping[str, float] = MappingProxyType(
    {
        "ludic/TicTacToe-v0": 1.0,
        "ludic/Arithmetic-v0": 0.58,
        "ludic/GSM8K-v0": 0.94,
        "ludic/GuessTheNumber-v0": 2.4,
        "ludic/Mastermind-v0": 0.75,
        "ludic/Hangman-v0": 1.2,
        "ludic/Wordle-v0": 1.4,
        "ludic/Minesweeper-v0": 0.096,
        "ludic/Game2048-v0": 0.22,
        "ludic/Maze-v0": 0.3,
        "ludic/Sokoban-v0": 0.36,
        "ludic/Countdown-v0": 0.21,
        "ludic/TowerOfHanoi-v0": 0.92,
        "ludic/KnightsAndKnaves-v0": 0.15,
        "ludic/Sudoku-v0": 0.0014,
        "ludic/ConnectFour-v0": 0.26,
        "ludic/Nim-v0": 0.79,
        "ludic/KuhnPoker-v0": 0.72,
        "ludic/RockPaperScissors-v0": 0.87,
        "ludic/IteratedPrisonersDilemma-v0": 0.92,
        "ludic/MultipleChoice-v0": 0.46,
        "ludic/ShortAnswer-v0": 0.33,
        "ludic/InstructionFollowing-v0": 0.085,
        "ludic/Negotiation-v0": 0.064,
        "ludic/TwentyQuestions-v0": 0.91,
        "ludic/StdinStdout-v0": 0.002,
        "ludic/CodeRepair-v0": 1.2,
        "ludic/SQL-v0": 0.0018,
    }
)
