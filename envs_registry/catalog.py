"""The catalogue of environments, as data: ids and entry points, nothing imported."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvEntry:
    """One environment.

    id: name in all registries.
    title, description: name and summary for people.
    gym, aec, parallel: entry points "module:attribute" for Gymnasium and for PettingZoo's two
        registries; "" if there is no such view.
    kwargs: default arguments of the Gymnasium view.
    bench_kwargs: further arguments in a suite: the real split of a dataset, so that no score of a
        suite comes from the bundled sample.
    suites: benchmarks that contain it; the page lists it under the first.
    tags: search terms.
    random_success, oracle_success: success rates with these kwargs of random legal actions
        (random texts if any text is legal), and of the environment's oracle.
    """

    id: str
    title: str
    description: str
    gym: str
    aec: str = ""
    parallel: str = ""
    kwargs: Mapping[str, str | int | float] = field(default_factory=lambda: MappingProxyType({}))
    bench_kwargs: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    suites: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    random_success: float = 0.0
    oracle_success: float = 1.0


REAL_TEST = MappingProxyType({"split": "test"})

CATALOG: tuple[EnvEntry, ...] = (
    EnvEntry(
        id="ludic/TicTacToe-v0",
        title="Tic-Tac-Toe",
        description="Three in a row, against random or perfect play, or between two agents.",
        gym="ludic_gym.envs.games.tic_tac_toe:TicTacToeEnv",
        aec="ludic_gym.envs.games.tic_tac_toe:TicTacToeAECEnv",
        parallel="ludic_gym.envs.games.tic_tac_toe:parallel_env",
        suites=("core", "multi-agent"),
        tags=("game", "two-player", "multi-turn", "procedural"),
        random_success=0.585,
        oracle_success=0.99,
    ),
    EnvEntry(
        id="ludic/Arithmetic-v0",
        title="Arithmetic",
        description="Short word problems with sums, differences and products of any size.",
        gym="ludic_gym.envs.questions.arithmetic:ArithmeticEnv",
        suites=("core", "math"),
        tags=("maths", "single-turn", "procedural"),
    ),
    EnvEntry(
        id="ludic/GSM8K-v0",
        title="GSM8K",
        description="Grade-school word problems that take two to eight steps.",
        gym="ludic_gym.envs.questions.gsm8k:GSM8KEnv",
        bench_kwargs=REAL_TEST,
        suites=("core", "math"),
        tags=("maths", "single-turn", "dataset"),
    ),
    EnvEntry(
        id="ludic/GuessTheNumber-v0",
        title="Guess the Number",
        description="A hidden number, found by comparisons.",
        gym="ludic_gym.envs.games.guess_the_number:GuessTheNumberEnv",
        suites=("games",),
        tags=("game", "one-player", "multi-turn", "procedural", "search"),
        random_success=0.07,
    ),
    EnvEntry(
        id="ludic/Mastermind-v0",
        title="Mastermind",
        description="A hidden code, found from the number of right letters in each guess.",
        gym="ludic_gym.envs.games.mastermind:MastermindEnv",
        suites=("games",),
        tags=("game", "one-player", "multi-turn", "procedural", "deduction"),
        random_success=0.008,
    ),
    EnvEntry(
        id="ludic/Hangman-v0",
        title="Hangman",
        description="A hidden word, found letter by letter.",
        gym="ludic_gym.envs.games.hangman:HangmanEnv",
        suites=("games",),
        tags=("game", "one-player", "multi-turn", "procedural", "words"),
    ),
    EnvEntry(
        id="ludic/Wordle-v0",
        title="Wordle",
        description="A hidden word of five letters, found from the marks of each guess.",
        gym="ludic_gym.envs.games.wordle:WordleEnv",
        suites=("games",),
        tags=("game", "one-player", "multi-turn", "procedural", "words", "deduction"),
        random_success=0.0086,
    ),
    EnvEntry(
        id="ludic/Minesweeper-v0",
        title="Minesweeper",
        description="A board of hidden mines that logic alone can clear.",
        gym="ludic_gym.envs.games.minesweeper:MinesweeperEnv",
        suites=("games",),
        tags=("game", "one-player", "multi-turn", "procedural", "deduction"),
        random_success=0.007,
    ),
    EnvEntry(
        id="ludic/Game2048-v0",
        title="2048",
        description="Sliding tiles that merge, up to a target.",
        gym="ludic_gym.envs.games.game_2048:Game2048Env",
        suites=("games",),
        tags=("game", "one-player", "multi-turn", "procedural", "planning"),
        random_success=0.06,
    ),
    EnvEntry(
        id="ludic/Maze-v0",
        title="Maze",
        description="A path through a maze to its goal, on a map.",
        gym="ludic_gym.envs.games.maze:MazeEnv",
        suites=("games",),
        tags=("game", "one-player", "multi-turn", "procedural", "planning"),
        random_success=0.01,
    ),
    EnvEntry(
        id="ludic/Sokoban-v0",
        title="Sokoban",
        description="Boxes to push onto goals, in levels that can be solved.",
        gym="ludic_gym.envs.games.sokoban:SokobanEnv",
        suites=("games",),
        tags=("game", "one-player", "multi-turn", "procedural", "planning"),
        random_success=0.11,
    ),
    EnvEntry(
        id="ludic/Countdown-v0",
        title="Countdown",
        description="An expression of given numbers that equals a target.",
        gym="ludic_gym.envs.puzzles.countdown:CountdownEnv",
        suites=("puzzles",),
        tags=("puzzle", "maths", "single-turn", "procedural"),
    ),
    EnvEntry(
        id="ludic/TowerOfHanoi-v0",
        title="Tower of Hanoi",
        description="Disks carried from peg to peg, never a larger one onto a smaller one.",
        gym="ludic_gym.envs.puzzles.tower_of_hanoi:TowerOfHanoiEnv",
        suites=("puzzles",),
        tags=("puzzle", "planning", "multi-turn", "one-player"),
        random_success=0.02,
    ),
    EnvEntry(
        id="ludic/KnightsAndKnaves-v0",
        title="Knights and Knaves",
        description="Speakers who always lie or never do, found from their statements.",
        gym="ludic_gym.envs.puzzles.knights_and_knaves:KnightsAndKnavesEnv",
        suites=("puzzles",),
        tags=("puzzle", "logic", "single-turn", "procedural"),
    ),
    EnvEntry(
        id="ludic/Sudoku-v0",
        title="Sudoku",
        description="A grid to fill that has exactly one solution.",
        gym="ludic_gym.envs.puzzles.sudoku:SudokuEnv",
        suites=("puzzles",),
        tags=("puzzle", "logic", "single-turn", "procedural"),
    ),
    EnvEntry(
        id="ludic/ConnectFour-v0",
        title="Connect Four",
        description="Four in a line, against random play or a search, or between two agents.",
        gym="ludic_gym.envs.games.connect_four:ConnectFourEnv",
        aec="ludic_gym.envs.games.connect_four:ConnectFourAECEnv",
        parallel="ludic_gym.envs.games.connect_four:parallel_env",
        suites=("multi-agent",),
        tags=("game", "two-player", "multi-turn", "procedural"),
        random_success=0.56,
    ),
    EnvEntry(
        id="ludic/Nim-v0",
        title="Nim",
        description="Stones taken from piles; the last stone wins.",
        gym="ludic_gym.envs.games.nim:NimEnv",
        aec="ludic_gym.envs.games.nim:NimAECEnv",
        parallel="ludic_gym.envs.games.nim:parallel_env",
        suites=("multi-agent",),
        tags=("game", "two-player", "multi-turn", "procedural"),
        random_success=0.48,
        oracle_success=0.997,
    ),
    EnvEntry(
        id="ludic/KuhnPoker-v0",
        title="Kuhn Poker",
        description="The smallest poker game with bluffing: three cards and one bet.",
        gym="ludic_gym.envs.games.kuhn_poker:KuhnPokerEnv",
        aec="ludic_gym.envs.games.kuhn_poker:KuhnPokerAECEnv",
        parallel="ludic_gym.envs.games.kuhn_poker:parallel_env",
        suites=("multi-agent",),
        tags=("game", "two-player", "multi-turn", "procedural", "hidden-information"),
        random_success=0.55,
        oracle_success=0.42,
    ),
    EnvEntry(
        id="ludic/RockPaperScissors-v0",
        title="Rock, Paper, Scissors",
        description="Nine rounds of simultaneous moves, against opponents with simple strategies.",
        gym="ludic_gym.envs.games.rock_paper_scissors:RockPaperScissorsEnv",
        aec="ludic_gym.envs.games.rock_paper_scissors:RockPaperScissorsAECEnv",
        parallel="ludic_gym.envs.games.rock_paper_scissors:parallel_env",
        suites=("multi-agent",),
        tags=("game", "two-player", "multi-turn", "simultaneous"),
        random_success=0.42,
    ),
    EnvEntry(
        id="ludic/IteratedPrisonersDilemma-v0",
        title="Iterated Prisoner's Dilemma",
        description="Ten rounds of simultaneous moves: cooperate or defect.",
        gym="ludic_gym.envs.games.prisoners_dilemma:PrisonersDilemmaEnv",
        aec="ludic_gym.envs.games.prisoners_dilemma:PrisonersDilemmaAECEnv",
        parallel="ludic_gym.envs.games.prisoners_dilemma:parallel_env",
        suites=("multi-agent",),
        tags=("game", "two-player", "multi-turn", "simultaneous"),
        random_success=0.006,
    ),
    EnvEntry(
        id="ludic/MATH-v0",
        title="MATH",
        description="Competition problems whose answers are expressions.",
        gym="ludic_gym.envs.questions.maths:MATHEnv",
        bench_kwargs=REAL_TEST,
        suites=("math",),
        tags=("maths", "single-turn", "dataset"),
    ),
    EnvEntry(
        id="ludic/MultipleChoice-v0",
        title="Multiple choice",
        description="Questions with options that the seed shuffles.",
        gym="ludic_gym.envs.questions.multiple_choice:MultipleChoiceEnv",
        bench_kwargs=REAL_TEST,
        suites=("questions",),
        tags=("knowledge", "single-turn", "dataset"),
    ),
    EnvEntry(
        id="ludic/ShortAnswer-v0",
        title="Short answer",
        description="Questions with answers of a few words.",
        gym="ludic_gym.envs.questions.short_answer:ShortAnswerEnv",
        bench_kwargs=REAL_TEST,
        suites=("questions",),
        tags=("knowledge", "single-turn", "dataset"),
    ),
    EnvEntry(
        id="ludic/InstructionFollowing-v0",
        title="Instruction following",
        description="A text to write under constraints that a program can verify.",
        gym="ludic_gym.envs.questions.instruction_following:InstructionFollowingEnv",
        suites=("questions",),
        tags=("writing", "single-turn", "procedural"),
    ),
    EnvEntry(
        id="ludic/Negotiation-v0",
        title="Negotiation",
        description="Items to divide by messages and proposals, with other values for each side.",
        gym="ludic_gym.envs.games.negotiation:NegotiationEnv",
        aec="ludic_gym.envs.games.negotiation:NegotiationAECEnv",
        parallel="ludic_gym.envs.games.negotiation:parallel_env",
        suites=("multi-agent",),
        tags=("game", "two-player", "multi-turn", "procedural", "hidden-information", "language"),
    ),
    EnvEntry(
        id="ludic/TwentyQuestions-v0",
        title="Twenty Questions",
        description="A hidden everyday thing, found by yes-or-no questions.",
        gym="ludic_gym.envs.games.twenty_questions:TwentyQuestionsEnv",
        suites=("games",),
        tags=("game", "one-player", "multi-turn", "procedural", "search", "language"),
    ),
    EnvEntry(
        id="ludic/PythonFunctions-v0",
        title="Python functions",
        description="A function to write, tested in a sandbox by hidden calls.",
        gym="ludic_gym.envs.code.functions:PythonFunctionsEnv",
        bench_kwargs=REAL_TEST,
        suites=("code",),
        tags=("code", "single-turn", "dataset", "sandbox"),
    ),
    EnvEntry(
        id="ludic/StdinStdout-v0",
        title="Programs with input and output",
        description="A whole program to write, run on hidden inputs in a sandbox.",
        gym="ludic_gym.envs.code.stdin_stdout:StdinStdoutEnv",
        bench_kwargs=REAL_TEST,
        suites=("code",),
        tags=("code", "single-turn", "dataset", "sandbox"),
    ),
    EnvEntry(
        id="ludic/CodeRepair-v0",
        title="Code repair",
        description="A function to repair, with visible tests to run and hidden ones to pass.",
        gym="ludic_gym.envs.code.repair:CodeRepairEnv",
        suites=("code",),
        tags=("code", "multi-turn", "sandbox"),
    ),
    EnvEntry(
        id="ludic/SQL-v0",
        title="SQL",
        description="Questions about databases, answered by queries.",
        gym="ludic_gym.envs.code.sql:SQLEnv",
        suites=("code",),
        tags=("code", "single-turn", "sandbox"),
    ),
    EnvEntry(
        id="ludic/CalculatorQA-v0",
        title="Calculator questions",
        description="Arithmetic with large integers, for agents with a calculator.",
        gym="ludic_gym.envs.tools.calculator_qa:CalculatorQAEnv",
        suites=("tools",),
        tags=("tools", "maths", "single-turn", "procedural"),
    ),
    EnvEntry(
        id="ludic/PythonToolMath-v0",
        title="Maths with Python",
        description="Questions about numbers, for agents that can run a short program.",
        gym="ludic_gym.envs.tools.python_tool_math:PythonToolMathEnv",
        suites=("tools",),
        tags=("tools", "maths", "code", "single-turn", "procedural"),
    ),
    EnvEntry(
        id="ludic/RetrievalQA-v0",
        title="Retrieval questions",
        description="Questions over two or three documents, for agents that can search.",
        gym="ludic_gym.envs.tools.retrieval_qa:RetrievalQAEnv",
        suites=("tools",),
        tags=("tools", "knowledge", "single-turn"),
    ),
    EnvEntry(
        id="ludic/ToolCalls-v0",
        title="Tool calls",
        description="Errands done by tool calls to a calendar, a bank and a shop.",
        gym="ludic_gym.envs.tools.tool_calls:ToolCallsEnv",
        suites=("tools",),
        tags=("tools", "multi-turn", "procedural"),
    ),
)

_NAMES = sorted({name for entry in CATALOG for name in entry.suites})

# Name of a suite -> its ids, in the catalogue's order.
SUITES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {name: tuple(entry.id for entry in CATALOG if name in entry.suites) for name in _NAMES}
)

_BENCH_KWARGS = {entry.id: entry.bench_kwargs for entry in CATALOG}


def bench_kwargs(suite: str) -> Mapping[str, Mapping[str, str]]:
    """The ids of a suite, each with its bench_kwargs. Raises KeyError for an unknown suite."""
    return {env_id: _BENCH_KWARGS[env_id] for env_id in SUITES[suite]}
