"""Speeds of the environments, measured by `python benchmarks/envs.py --all`."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

# Steps per CPU-second of random play, relative to Tic-Tac-Toe in the same run. Environments whose
# work is done by other processes are missing.
SPEEDS: Mapping[str, float] = MappingProxyType(
    {
        "ludic/TicTacToe-v0": 1.0,
        "ludic/Arithmetic-v0": 0.44,
        "ludic/GSM8K-v0": 0.68,
        "ludic/GuessTheNumber-v0": 1.8,
        "ludic/Mastermind-v0": 0.56,
        "ludic/Hangman-v0": 0.92,
        "ludic/Wordle-v0": 1.0,
        "ludic/Minesweeper-v0": 0.072,
        "ludic/Game2048-v0": 0.17,
        "ludic/Maze-v0": 0.22,
        "ludic/Sokoban-v0": 0.26,
        "ludic/Countdown-v0": 0.15,
        "ludic/TowerOfHanoi-v0": 0.67,
        "ludic/KnightsAndKnaves-v0": 0.14,
        "ludic/Sudoku-v0": 0.001,
        "ludic/ConnectFour-v0": 0.2,
        "ludic/Nim-v0": 0.59,
        "ludic/KuhnPoker-v0": 0.52,
        "ludic/RockPaperScissors-v0": 0.66,
        "ludic/IteratedPrisonersDilemma-v0": 0.69,
        "ludic/MultipleChoice-v0": 0.35,
        "ludic/ShortAnswer-v0": 0.26,
        "ludic/InstructionFollowing-v0": 0.063,
        "ludic/Negotiation-v0": 0.061,
        "ludic/TwentyQuestions-v0": 0.8,
        "ludic/CodeRepair-v0": 1.2,
    }
)
