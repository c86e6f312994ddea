"""A look at the first episodes, before the first update: can this run learn?"""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass
from itertools import islice

from ludic_gym.rollout.episodes import run_episodes
from ludic_gym.rollout.outcome import succeeded
from ludic_gym.rollout.tasks import grouped
from ludic_gym.types import Episode, MakePolicy, Rollout, Task
from ludic_train.errors import CannotLearn
from ludic_train.runs.config import MAX_TOKENS, RunConfig
from ludic_train.sources.rollouts import Score, scored

# Enough groups to tell a format that is never kept from a hard task, and no more time than this.
GROUPS, LIMIT_S, CONCURRENCY = 16, 30.0, 256
# Fewer episodes say nothing about all the others.
LEAST_EPISODES = 8
# Share of replies that are cut, or have no action, from which a run is not worth its time.
HOPELESS, OFTEN = 0.99, 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class Preflight:
    """Numbers of the first episodes of a run.

    episodes, failed: that ended in time, and of these by an error.
    reward, success: means over the episodes; success is nan where the environment says nothing of
        it. groups, differing: whole groups, and of these with rewards that are not all equal.
    replies: turns with model calls. cut: of these that reached their limit. without_action: turns
        whose reply had no action, or an answer that the environment could not find.
    tokens: sampled, in all. seconds: that it took.
    """

    episodes: int
    failed: int
    reward: float
    success: float
    groups: int
    differing: int
    replies: int
    cut: int
    turns: int
    without_action: int
    tokens: int
    seconds: float


async def preflight(
    tasks: Sequence[Task],
    make_policy: MakePolicy,
    group_size: int,
    *,
    score: Score | None = None,
    limit_s: float = LIMIT_S,
) -> Preflight:
    """Play the tasks, each `group_size` times, for at most `limit_s` seconds.

    score: gives rollouts their rewards, in place of the environment.
    """
    began = time.perf_counter()
    ended: list[Episode] = []
    requests = list(grouped(islice(tasks, GROUPS), group_size))
    running = run_episodes(requests, make_policy, concurrency=CONCURRENCY, timeout_s=limit_s)
    async with aclosing(running) as episodes:
        async for episode in episodes:
            ended.append(episode if score is None else await scored(episode, score))
            if time.perf_counter() - began > limit_s:
                break
    seconds = time.perf_counter() - began
    rollouts = [rollout for episode in ended for rollout in episode.rollouts]
    rewards = defaultdict(list)
    for rollout in rollouts:
        rewards[rollout.task.group, rollout.agent].append(rollout.total_reward)
    # A group that the time limit has cut tells too little about differences.
    whole = [group for group in rewards.values() if len(group) == group_size]
    decisions = [step.decision for rollout in rollouts for step in rollout.steps]
    calls = [call for decision in decisions for call in decision.completions]
    number = max(len(rollouts), 1)
    successes = [success for success in map(succeeded, rollouts) if success is not None]
    is_known = len(successes) == len(rollouts)
    return Preflight(
        episodes=len(ended),
        failed=sum(episode.error is not None for episode in ended),
        reward=sum(rollout.total_reward for rollout in rollouts) / number,
        success=sum(successes) / number if is_known else math.nan,
        groups=len(whole),
        # Rewards are sums of floats, whose last bits differ with the order of adding.
        differing=sum(max(group) - min(group) > 1e-9 for group in whole),
        replies=sum(bool(decision.completions) for decision in decisions),
        cut=sum(decision.cut_off for decision in decisions),
        turns=sum(len(rollout.steps) for rollout in rollouts),
        without_action=sum(map(_without_action, rollouts)),
        tokens=sum(len(call.completion_ids or ()) for call in calls),
        seconds=seconds,
    )


def _without_action(rollout: Rollout) -> int:
    """Turns of a rollout whose reply had no action, or no answer that the env could find."""
    steps = rollout.steps
    failed = sum(step.decision.action is None for step in steps)
    # Environments of questions take the whole reply and look for the answer themselves.
    unanswered = bool(steps) and steps[-1].decision.action is not None
    return failed + (unanswered and steps[-1].info.get("answer") == "")


def lines(stats: Preflight, config: RunConfig) -> list[str]:
    """The numbers, and what to change, as lines of text."""
    if not stats.episodes:
        return [f"first look: no episode ended in {stats.seconds:.0f} s"]
    tokens_s = stats.tokens / max(stats.seconds, 1e-9)
    played = stats.episodes / max(stats.seconds, 1e-9)
    groups, size = config.learn.groups, config.learn.group_size
    batch_s = groups * size / max(played, 1e-9)
    share = f"{stats.differing} of {stats.groups} groups differ in reward"
    success = "-" if math.isnan(stats.success) else f"{stats.success:.0%}"
    text = [
        f"first look: reward {stats.reward:.3g}, success {success}, {share}",
        f"  {stats.cut} of {stats.replies} replies were cut, {stats.without_action} of "
        f"{stats.turns} turns had no action",
        f"  {stats.tokens / max(stats.replies, 1):.0f} tokens a reply, {tokens_s:,.0f} tokens/s; a "
        f"batch of {groups} x {size} episodes takes about {batch_s:.3g} s",
    ]
    return text + [f"  advice: {advice}" for advice in remedies(stats, config)]


def remedies(stats: Preflight, config: RunConfig) -> list[str]:
    """Changes of the settings that would help, most urgent first."""
    advice = []
    limit = config.sample.max_tokens or MAX_TOKENS
    if stats.cut > OFTEN * stats.replies:
        advice.append(
            f"{stats.cut} of {stats.replies} replies reached {limit} tokens: raise --max-tokens"
        )
    if stats.without_action > OFTEN * stats.turns:
        advice.append(
            f"{stats.without_action} of {stats.turns} turns have no action: use --parser "
            "last-number, a --system-prompt that shows the form, or --demonstrations 1000, which "
            "are imitated first"
        )
    if stats.success > 0 and not stats.reward and stats.groups and not stats.differing:
        advice.append(
            f"success is {stats.success:.0%} and every reward 0: the environment pays nothing for "
            "it; give its last turn a reward, or use --reward"
        )
    elif stats.groups and not stats.differing:
        level = {0.0: "too hard", 1.0: "solved"}.get(stats.success, "nearly decided for each task")
        advice.append(
            f"rewards are equal within each of the {stats.groups} groups ({level}), and equal ones "
            "teach nothing: a larger --group-size or --groups finds rare differences; other "
            "--env-kwargs, --temperature 1 or --demonstrations 1000, imitated first, make more"
        )
    return advice


def check_preflight(stats: Preflight, config: RunConfig) -> None:
    """Raise CannotLearn where no reply can be used: a run would sample for hours in vain."""
    if stats.failed > stats.episodes / 2:
        # The source names the error, in its own words.
        return
    enough = stats.episodes >= LEAST_EPISODES and not stats.differing
    useless = stats.without_action >= HOPELESS * stats.turns
    if enough and stats.turns and (useless or stats.cut >= HOPELESS * stats.replies > 0):
        advice = "; ".join(remedies(stats, config))
        raise CannotLearn(f"{advice} (--no-preflight starts anyway)")
