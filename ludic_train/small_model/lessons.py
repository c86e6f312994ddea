"""Environments that a small chat model learns from, and the share of each in its dialogs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Lesson:
    """Episodes of one environment.

    Attributes:
        env_id: A registered id.
        share: Relative number of dialogs.
        kwargs: Of the environment.
        noise: Probability of a random legal action in place of the oracle's.
        questions: Episodes in one dialog, under one system prompt.
        replies: Texts of a reply, with "{}" for the action and, in some, "{steps}" for the
            calculation that leads to it.
    """

    env_id: str
    share: float
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    noise: float = 0.0
    questions: int = 1
    replies: tuple[str, ...] = ("{}",)


IN_TAGS = (
    "<answer>{}</answer>",
    "<answer>{}</answer>",
    "The answer is <answer>{}</answer>",
    "I think it is <answer>{}</answer>",
    "So: <answer>{}</answer>.",
)
IN_STEPS = (
    "{steps}. <answer>{}</answer>",
    "{steps}. So <answer>{}</answer>",
    "Let us see: {steps}. <answer>{}</answer>",
)

# Much noise in games, and few dialogs of what is easy: the model has to know the form of a reply,
# while skill is left to be learned from rewards.
LESSONS = (
    Lesson(
        env_id="ludic/Countdown-v0", share=4, kwargs={"numbers": 2}, questions=8, replies=IN_STEPS
    ),
    Lesson(
        env_id="ludic/Countdown-v0", share=4, kwargs={"numbers": 3}, questions=8, replies=IN_STEPS
    ),
    Lesson(env_id="ludic/Countdown-v0", share=2, questions=6, replies=IN_STEPS),
    Lesson(env_id="ludic/Arithmetic-v0", share=3, questions=8, replies=IN_TAGS + IN_STEPS),
    Lesson(env_id="ludic/KnightsAndKnaves-v0", share=1, questions=5, replies=IN_TAGS),
    Lesson(env_id="ludic/MultipleChoice-v0", share=0.7, questions=6, replies=IN_TAGS),
    Lesson(env_id="ludic/ShortAnswer-v0", share=0.7, questions=8, replies=IN_TAGS),
    Lesson(env_id="ludic/TicTacToe-v0", share=3, noise=0.8, questions=4),
    Lesson(env_id="ludic/GuessTheNumber-v0", share=1, noise=0.05),
    Lesson(env_id="ludic/KuhnPoker-v0", share=1, noise=0.3, questions=6),
    Lesson(env_id="ludic/RockPaperScissors-v0", share=0.7, noise=0.8),
    Lesson(env_id="ludic/Hangman-v0", share=0.7),
)

# Their texts are in the vocabulary only, so that a model may be trained on them later.
FURTHER_IDS = (
    "ludic/GSM8K-v0",
    "ludic/MATH-v0",
    "ludic/InstructionFollowing-v0",
    "ludic/ToolCalls-v0",
    "ludic/Wordle-v0",
    "ludic/SQL-v0",
    "ludic/Negotiation-v0",
    "ludic/PythonToolMath-v0",
    "ludic/Minesweeper-v0",
    "ludic/Sokoban-v0",
)
