"""Oracle episodes as chat dialogs in varied wording."""

from __future__ import annotations

import inspect
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any

import gymnasium as gym

from ludic_gym.envs.questions.arithmetic import OPERATIONS
from ludic_gym.graders.extract import extract
from ludic_gym.policies.base import Memoryless
from ludic_gym.policies.reference import OraclePolicy, RandomPolicy, Unwraps
from ludic_gym.types import Decision, Message, Sampling, Step, Task
from ludic_train.runs.evaluation import play
from ludic_train.small_model.lessons import Lesson

Dialog = list[Message]

# The env's own prompt in half of the dialogs, since it is the one that a bench uses.
SYSTEM_PROMPTS = (
    "{}",
    "{}",
    "{}",
    "{} Be brief.",
    "You are a helpful assistant. {}",
    "You solve puzzles and play games. {}",
)
# Above the seeds of all training, evaluation and demonstration tasks of `runs.tasks`.
FIRST_SEED = 2**62
SEEDS_PER_LESSON = 1_000_000

_INNERMOST = re.compile(r"\((\d+) ([-+*/]) (\d+)\)")


class Novice(Memoryless):
    """Policy that plays the oracle's action, or with probability `noise` a random legal one."""

    def __init__(self, env: Unwraps, noise: float) -> None:
        self._oracle, self._random, self._noise = OraclePolicy(env), RandomPolicy(env), noise

    async def act(self, sampling: Sampling) -> Decision:
        """An action; the sampling's seed decides whose."""
        # From the turn's seed, so that equal tasks make equal dialogs at any concurrency.
        chance = random.Random(sampling.seed).random()
        return await (self._random if chance < self._noise else self._oracle).act(sampling)


async def dialogs_of(lesson: Lesson, count: int, *, number: int = 0, seed: int = 0) -> list[Dialog]:
    """Dialogs of a lesson, equal for equal arguments.

    count: of dialogs, each with `lesson.questions` episodes.
    number: of the lesson among all; different ones have different episodes.
    """
    first = FIRST_SEED + (seed * 1_000 + number) * SEEDS_PER_LESSON
    tasks = [
        Task(env_id=lesson.env_id, kwargs=lesson.kwargs, seed=n, sampling=Sampling(seed=n))
        for n in range(first, first + count * lesson.questions)
    ]
    rollouts = await play(tasks, lambda env: Novice(env, lesson.noise))
    (_, prompt), rng = opening(lesson.env_id, lesson.kwargs), random.Random(first)
    dialogs: list[Dialog] = []
    for i in range(0, len(rollouts), lesson.questions):
        # The episodes one after the other, under one system prompt.
        dialog: Dialog = [{"role": "system", "content": rng.choice(SYSTEM_PROMPTS).format(prompt)}]
        for step in (step for r in rollouts[i : i + lesson.questions] for step in r.steps):
            dialog.append({"role": "user", "content": step.observation})
            dialog.append({"role": "assistant", "content": reply_text(step, lesson, rng)})
        dialogs.append(dialog)
    return dialogs


async def all_dialogs(lessons: Sequence[Lesson], count: int, seed: int) -> list[Dialog]:
    """About `count` dialogs of all lessons, by their shares; equal for equal arguments."""
    whole = sum(lesson.share for lesson in lessons)
    return [
        dialog
        for number, lesson in enumerate(lessons)
        for dialog in await dialogs_of(
            lesson, round(count * lesson.share / whole), number=number, seed=seed
        )
    ]


def opening(env_id: str, kwargs: Mapping[str, Any]) -> tuple[str, str]:
    """The first observation of seed 0, and the environment's own system prompt."""
    with closing(gym.make(env_id, **kwargs)) as env:
        observation, info = env.reset(seed=0)
        return observation, str(info["system_prompt"])


def first_texts(env_id: str, episodes: int) -> Iterator[str]:
    """Description, prompts, first observations and best actions of an env, which is not played."""
    with closing(gym.make(env_id)) as env:
        yield inspect.getdoc(type(env.unwrapped)) or ""
        for seed in range(FIRST_SEED, FIRST_SEED + episodes):
            observation, info = env.reset(seed=seed)
            yield from (observation, info["system_prompt"], OraclePolicy(env)(observation))


def reply_text(step: Step, lesson: Lesson, rng: random.Random) -> str:
    """The step's action in one of the lesson's wordings."""
    action, template = step.decision.action or "", rng.choice(lesson.replies)
    if template == "{}":
        return action
    # Some oracles give the bare answer, others put tags around it.
    answer = extract(action)[0] or action
    if "{steps}" in template:
        template = template.replace("{steps}", calculation(step.observation, answer))
    return template.replace("{}", answer)


def calculation(question: str, answer: str) -> str:
    r"""The way to an answer, one operation at a time.

    >>> calculation("Numbers: 3 5 25\nTarget: 50", "(25 * (5 - 3))")
    '5 - 3 = 2, 25 * 2 = 50'
    >>> calculation("Ann has 47 pens and gets 38 more pens. How many pens ...?", "85")
    '47 + 38 = 85'
    """
    if "(" not in answer:
        return f"{' + '.join(re.findall(r'[0-9]+', question))} = {answer}"
    steps: list[str] = []
    while match := _INNERMOST.search(answer):
        left, sign, right = match.groups()
        # Countdown's divisions have no remainder.
        value = OPERATIONS["//" if sign == "/" else sign](int(left), int(right))
        steps.append(f"{left} {sign} {right} = {value}")
        answer = answer[: match.start()] + str(value) + answer[match.end() :]
    return ", ".join(steps)
