"""Recorded episodes, graded again by their actions: the grades that a change has changed."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ludic_gym.bench.folder import REQUEST, read_request, transcript_path
from ludic_gym.making import make_env
from ludic_gym.recorder import ROLLOUTS, read_recorded
from ludic_gym.records import env_key, read_episodes
from ludic_gym.rollout.episode import run_episode
from ludic_gym.types import Decision, Env, Episode, Rollout, Sampling, Task

# Rewards are sums of floats.
LEAST = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Regraded:
    """An episode that was graded again.

    place: its file or update. before, after: the sum of its rewards, as recorded and now.
    succeeded, succeeds: `success` of the last info. reply: the last action.
    """

    place: str
    task: Task
    before: float
    after: float
    succeeded: bool
    succeeds: bool
    reply: str

    @property
    def is_changed(self) -> bool:
        """True if the reward or the success differs from the recorded one."""
        return abs(self.after - self.before) > LEAST or self.succeeded != self.succeeds


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """An episode that cannot be graded again, and the reason."""

    place: str
    reason: str


class RecordedPolicy:
    """Policy that repeats the decisions of a rollout, and ends the episode after the last one."""

    def __init__(self, rollout: Rollout) -> None:
        self._decisions = iter([step.decision for step in rollout.steps])

    def reset(self, system_prompt: str) -> None:
        """Ignore the prompt."""

    def observe(self, text: str) -> None:
        """Ignore the observation."""

    async def act(self, sampling: Sampling | None = None) -> Decision:
        """The next decision of the rollout."""
        return next(self._decisions, Decision(action=None, give_up="recorded"))


def regrade(folders: Sequence[Path]) -> Iterator[Regraded | Left]:
    """Every episode of benchmarks and training runs, graded by the environments as they are now.

    Each is played again: reset with the seed and options of its task, then its own actions. What a
    rubric or a judge has graded after the episode, matches of several agents, and episodes that
    begin otherwise than recorded are left.

        changed = [one for one in regrade([Path("results")]) if one.is_changed]
    """
    envs: dict[str, Env] = {}
    try:
        with asyncio.Runner() as runner:
            for folder in folders:
                for place, episode in recorded_episodes(folder):
                    reason = _reason(episode)
                    if reason:
                        yield Left(place=place, reason=reason)
                    else:
                        yield runner.run(_regraded(envs, place, episode.rollouts[0]))
    finally:
        for env in envs.values():
            env.close()


def recorded_episodes(folder: Path) -> Iterator[tuple[str, Episode]]:
    """(place, episode) of each episode that a run has kept."""
    if (folder / REQUEST).exists():
        for env_id in read_request(folder)["envs"]:
            path = transcript_path(folder, env_id)
            if path.exists():
                for number, episode in enumerate(read_episodes(path), 1):
                    yield f"{path.name}:{number}", episode
    else:
        for one in read_recorded(folder / ROLLOUTS):
            yield f"update {one.update}, {one.use}", one.episode


def _reason(episode: Episode) -> str:
    """The reason for which an episode cannot be played again; "" if it can."""
    if episode.error is not None or not episode.rollouts:
        return "failed"
    if len(episode.rollouts) > 1:
        return "several agents"
    if episode.task.seed is None:
        return "no seed"
    steps = episode.rollouts[0].steps
    is_judged = steps and any(key.startswith("rule/") for key in steps[-1].info)
    return "graded by a rubric" if is_judged else ""


async def _regraded(envs: dict[str, Env], place: str, rollout: Rollout) -> Regraded | Left:
    """The rollout's grade by its environment, which is made once."""
    task = rollout.task
    key = env_key(task.env_id, task.kwargs)
    if key not in envs:
        envs[key] = make_env(task.env_id, **task.kwargs)
    again = await run_episode(envs[key], RecordedPolicy(rollout), task)
    if not rollout.steps or again.steps[0].observation != rollout.steps[0].observation:
        return Left(place=place, reason="the task begins otherwise")
    last, now = rollout.steps[-1], again.steps[-1]
    return Regraded(
        place=place,
        task=task,
        before=rollout.total_reward,
        after=again.total_reward,
        succeeded=last.info.get("success") is True,
        succeeds=now.info.get("success") is True,
        reply=last.decision.action or "",
    )


def regraded_lines(grades: Sequence[Regraded | Left]) -> tuple[list[Sequence[str]], str]:
    """The table of changed grades, its headings first, and a line that counts all episodes."""
    graded = [one for one in grades if isinstance(one, Regraded)]
    changed = [one for one in graded if one.is_changed]
    left = Counter(one.reason for one in grades if isinstance(one, Left))
    rows: list[Sequence[str]] = [("episode", "environment", "seed", "before", "now", "reply")]
    rows += [
        (
            one.place,
            one.task.env_id,
            str(one.task.seed),
            _grade(one.before, one.succeeded),
            _grade(one.after, one.succeeds),
            " ".join(one.reply.split())[-60:],
        )
        for one in changed
    ]
    reasons = "".join(f"; {count:,} left: {reason}" for reason, count in left.most_common())
    return rows, f"{len(changed):,} of {len(graded):,} grades changed{reasons}"


def _grade(reward: float, success: bool) -> str:
    return f"{reward:g}{' success' * success}"
