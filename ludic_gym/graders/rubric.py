"""Rubrics: several graders with names and weights, for replies and for finished rollouts.

Environments grade in `step`, by programs, which is fast and deterministic. A model needs seconds
and a network, so it grades finished rollouts, which can be graded again later.

    judge = partial(grade_by_judge, client, criterion="it is polite.")
    rubric = Rubric((Component("value", by_program(grade_number)), Component("tone", judge, 0.2)))
    async for episode in graded_episodes(run_episodes(...), rubric):
        print(episode.rollouts[0].steps[-1].info["reward/tone"])
"""

import asyncio
import math
from collections.abc import AsyncIterable, AsyncIterator, Callable, Coroutine, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from ludic_gym.concurrency import WorkerThread, cancel_all, gather_all
from ludic_gym.errors import ClientError, ConfigError, GraderError
from ludic_gym.graders.extract import Exchange, Grade
from ludic_gym.types import Episode, Rollout

AsyncGrader = Callable[[Exchange], Coroutine[Any, Any, Grade]]


@dataclass(frozen=True, slots=True)
class Component:
    """A part of a rubric.

    name: key of its reward and rule in the last info: "reward/<name>", "rule/<name>".
    grade: the grader, such as `by_program(grade_exact)`; awaited on the caller's event loop.
    weight: the reward of a correct answer, which may be negative.
    """

    name: str
    grade: AsyncGrader
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class RubricGrade:
    """Grades and rewards of one answer.

    rewards: by component, its weight or 0.
    grades: by component.
    success: True if exactly the components with a positive weight are correct.
    """

    rewards: Mapping[str, float]
    grades: Mapping[str, Grade]
    success: bool

    @property
    def total(self) -> float:
        """The sum of the rewards."""
        return float(sum(self.rewards.values()))

    @property
    def info(self) -> dict[str, Any]:
        """Keys of a last info: "reward/<name>", "rule/<name>" and "success"."""
        return {
            **{f"reward/{name}": float(reward) for name, reward in self.rewards.items()},
            **{f"rule/{name}": grade.rule for name, grade in self.grades.items()},
            "success": self.success,
        }


@dataclass(frozen=True, slots=True)
class Rubric:
    """Components with different names and finite weights other than 0.

    A negative weight is a penalty: its grader finds a fault, such as a reply in another language.
    Raises ConfigError for no component, equal or blank names, and other weights.

    >>> import asyncio
    >>> from ludic_gym import grade_exact, grade_number
    >>> rubric = Rubric(
    ...     (
    ...         Component("value", by_program(grade_number)),
    ...         Component("form", by_program(grade_exact), weight=0.5),
    ...     )
    ... )
    >>> grade = asyncio.run(rubric.grade(Exchange("2 + 3 = ?", "5.0", truth="5")))
    >>> grade.rewards, grade.success
    ({'value': 1.0, 'form': 0.0}, False)
    """

    components: tuple[Component, ...]

    def __post_init__(self) -> None:
        names = [component.name for component in self.components]
        if not names or len(set(names)) < len(names) or not all(names):
            raise ConfigError(f"a rubric has components with different names, got {names}")
        for component in self.components:
            if not math.isfinite(component.weight) or not component.weight:
                raise ConfigError(f"{component.name}: a weight is not 0, got {component.weight}")

    async def grade(self, exchange: Exchange) -> RubricGrade:
        """Grade the answer by all components at once.

        Takes as long as the slowest of them. An error of a grader is raised, and the others end.
        """
        grades = await gather_all(component.grade(exchange) for component in self.components)
        pairs = list(zip(self.components, grades, strict=True))
        return RubricGrade(
            rewards={c.name: c.weight if grade.correct else 0.0 for c, grade in pairs},
            grades={c.name: grade for c, grade in pairs},
            success=all(grade.correct == (c.weight > 0) for c, grade in pairs),
        )


def by_program(grade: Callable[[str, str], Grade]) -> AsyncGrader:
    """A program's grader, such as `grade_maths`, for a component; it runs in a thread.

    grade: a function of the reply and the truth.
    """
    # No closure, so that a rubric can be pickled with the environment that holds it.
    return partial(_graded_on_a_thread, grade)


async def _graded_on_a_thread(grade: Callable[[str, str], Grade], exchange: Exchange) -> Grade:
    # Not the default executor: `asyncio.run` waits for its threads, one that hangs included.
    return await WorkerThread("ludic-grader").run(partial(grade, exchange.answer, exchange.truth))


def last_exchange(rollout: Rollout) -> Exchange:
    """Observation and action of the last step, with the truth from its info, if any.

    The answer is "" where the policy's reply had no valid action. Raises IndexError without steps.
    """
    step = rollout.steps[-1]
    truth = step.info.get("truth", "")
    return Exchange(step.observation, step.decision.action or "", str(truth))


async def graded_rollout(
    rollout: Rollout,
    rubric: Rubric,
    *,
    exchange: Callable[[Rollout], Exchange] = last_exchange,
) -> Rollout:
    """The rollout with the rubric's rewards in place of the env's reward for the last step.

    The decision's own reward, for its format, stays. The last info has "reward/<name>" and
    "rule/<name>" for every component instead of the env's rewards, and "success" by the rubric.
    exchange: selects the text to grade. Raises ConfigError for a rollout without steps, and the
    errors of the graders.

    >>> import asyncio
    >>> from ludic_gym import Decision, Step, Task, grade_number
    >>> decision, info = Decision(action="5"), {"truth": "5"}
    >>> step = Step(observation="2 + 3 = ?", decision=decision, reward=0.0, info=info)
    >>> played = Rollout(task=Task(env_id="mine/Sum-v0"), steps=(step,))
    >>> rubric = Rubric((Component("value", by_program(grade_number), weight=2.0),))
    >>> asyncio.run(graded_rollout(played, rubric)).total_reward
    2.0
    """
    if not rollout.steps:
        raise ConfigError(f"a rollout without steps cannot be graded: {rollout.task}")
    result = await rubric.grade(exchange(rollout))
    *before, last = rollout.steps
    other_info = {key: value for key, value in last.info.items() if not key.startswith("reward/")}
    reward = last.decision.reward + result.total
    last = replace(last, reward=reward, info={**other_info, **result.info})
    return replace(rollout, steps=(*before, last))


async def graded_episodes(
    episodes: AsyncIterable[Episode], rubric: Rubric, *, concurrency: int = 64
) -> AsyncIterator[Episode]:
    """Episodes, such as those of `run_episodes`, with grades; in order of completion.

    concurrency: number of episodes that are graded at once, while others are still played. Failed
        episodes are passed on unchanged.
    Raises the first error of `episodes` or of a grader, after it has cancelled all other grades.
    """
    running: set[asyncio.Task[Episode]] = set()
    try:
        async for episode in episodes:
            running.add(asyncio.ensure_future(graded_episode(episode, rubric)))
            # With free places, finished grades are collected without waiting, so that the next
            # episode is read at once.
            full = len(running) >= concurrency
            done, running = await asyncio.wait(
                running, timeout=None if full else 0, return_when=asyncio.FIRST_COMPLETED
            )
            for task in done:
                yield task.result()
        for coming in asyncio.as_completed(running):
            yield await coming
    finally:
        # The consumer may have stopped early: its grades are not needed any more.
        await cancel_all(running)


async def graded_episode(episode: Episode, rubric: Rubric) -> Episode:
    """The episode with all its rollouts graded at once; a failed one, which has none, unchanged.

    An episode on which a grader reaches no verdict, or whose judge cannot be reached, is a failed
    one.
    """
    try:
        rollouts = await gather_all(graded_rollout(rollout, rubric) for rollout in episode.rollouts)
    except (GraderError, ClientError) as error:
        text = f"{type(error).__name__}: {error}"
        return replace(episode, rollouts=(), error=text, blame=error.blame)
    return replace(episode, rollouts=tuple(rollouts))
