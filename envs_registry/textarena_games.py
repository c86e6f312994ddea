"""The games of TextArena: names of those that are environments, and of the others."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

# Measured with TextArena 0.7.4 on Python 3.11.
TEXTARENA_ONE_PLAYER: tuple[str, ...] = (
    "2048",
    "Bandit",
    "Blackjack",
    "Crosswords",
    "FifteenPuzzle",
    "FrozenLake",
    "GuessTheNumber",
    "LightsOut",
    "LogicPuzzle",
    "Mastermind",
    "Minesweeper",
    "PegJump",
    "Secretary",
    "Set",
    "Sokoban",
    "Sudoku",
    "TowerOfHanoi",
)

TEXTARENA_TWO_PLAYER: tuple[str, ...] = (
    "Alquerque",
    "Battleship",
    "Breakthrough",
    "Briscola",
    "Chopsticks",
    "ColonelBlotto",
    "ConnectFour",
    "Crusade",
    "GameOfPureStrategy",
    "GermanWhist",
    "Golf",
    "HighSociety",
    "IndianPoker",
    "IteratedMatchingPennies",
    "IteratedPrisonersDilemma",
    "IteratedRockPaperScissors",
    "IteratedTwoThirdsAverage",
    "IteratedUltimatumGame",
    "KuhnPoker",
    "LinesOfAction",
    "MemoryGame",
    "NewRecruit",
    "Nim",
    "Othello",
    "PigDice",
    "QuantumTicTacToe",
    "SantoriniBaseFixed",
    "SimpleBlindAuction",
    "SimpleNegotiation",
    "SimpleTak",
    "SpiteAndMalice",
    "Stratego",
    "Tak",
    "TicTacToe",
    "TruthAndDeception",
    "TwoDollar",
    "UltimateTicTacToe",
    "WildTicTacToe",
)

_DOWNLOADS = "downloads word lists when it is imported"
_MANY = "may seat more than two players"
_MODEL = "needs a paid model as referee"
_SENTENCE = "returns a sentence as the reward of a move that it cannot parse"
_SYNTAX = "is not valid Python before 3.12"

# Game -> the reason for which it is not an environment: it ...
TEXTARENA_SKIPPED: Mapping[str, str] = MappingProxyType(
    {
        "BabyAiText": "needs the packages gym and babyai, which are no longer maintained",
        "CharacterConclave": _MANY,
        "Checkers": _SYNTAX,
        "Chess": _SYNTAX,
        "Codenames": _MANY,
        "Countdown": _SENTENCE,
        "Cryptarithm": _SENTENCE,
        "Debate": _MODEL,
        "DontSayIt": _DOWNLOADS,
        "GuessWho": _MODEL,
        "Hangman": _DOWNLOADS,
        "IteratedStagHunt": _SYNTAX,
        "Klondike": _SYNTAX,
        "LetterAuction": _DOWNLOADS,
        "LiarsDice": _MANY,
        "MarketEntryGame": _MANY,
        "Poker": _MANY,
        "PublicGoodsGame": _MANY,
        "ReverseTicTacToe": _SYNTAX,
        "RushHour": "takes half a second to set up",
        "ScenarioPlanning": _MODEL,
        "ScorableGames": _MANY,
        "SecretMafia": _MANY,
        "SettlersOfCatan": _MANY,
        "Slitherlink": _SENTENCE,
        "Snake": _MANY,
        "SpellingBee": _DOWNLOADS,
        "Surround": _MANY,
        "Taboo": _MANY,
        "ThreeCardMonte": _SENTENCE,
        "ThreePlayerGOPS": _MANY,
        "ThreePlayerIPD": _MANY,
        "ThreePlayerTicTacToe": _MANY,
        "TwentyQuestions": _MODEL,
        "UltimateTexasHoldem": _SYNTAX,
        "UsedCarNegotiation": "lacks a file of its own in the published package",
        "WordChains": _DOWNLOADS,
        "WordLadder": _DOWNLOADS,
        "WordSearch": _DOWNLOADS,
        "Wordle": _DOWNLOADS,
    }
)
