"""learnability: a check of `ludic audit`, by training a tiny model on the environment."""

from __future__ import annotations

import json
import math
import multiprocessing
import os
import resource
import sys
import tempfile
from pathlib import Path
from typing import Any

from ludic_gym.audit.subject import AuditSubject, Result, has_oracle, legal_at_start

CPU_S = 120
WALL_S = 900
EPISODES = 200
# A quarter of a minute of imitation, and then rewards; an evaluation about every ten CPU-seconds.
SETTINGS: dict[str, Any] = {
    "demonstrations": 2_000,
    "sft_updates": 150,
    "updates": 10_000,
    "groups": 16,
    "eval_every": 25,
    "eval_episodes": EPISODES,
    "final_episodes": EPISODES,
}
# Standard errors of the difference, which one untrained model in 700 exceeds.
SIGMAS = 3.0


def learnability(subject: AuditSubject) -> Result:
    """A model of 0.1 million params, trained for two CPU-minutes, succeeds more often.

    It imitates demonstrations of the environment first, then learns from rewards. "unknown" if it
    does not improve: a larger model, or more time, may.
    """
    if subject.is_match or not (has_oracle(subject) or legal_at_start(subject)):
        return "unknown", "only for one player, with an oracle or legal actions", {}
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        # A fork, because it knows the environments that this process has registered.
        context = multiprocessing.get_context("fork")
        process = context.Process(target=_train, args=(subject, out))
        process.start()
        # CPU time is the limit; this one is for a machine that gives it none.
        process.join(WALL_S)
        # A process that has ended by itself is not hurt by it.
        process.kill()
        process.join()
        found = evaluations(out / "metrics.jsonl")
        log = (out.parent / "log").read_text(encoding="utf-8", errors="replace")
    if len(found) < 2:
        return "unknown", f"training ended before its second evaluation: {log[-300:]}", {}
    return verdict(found, EPISODES)


def verdict(found: list[tuple[float, float]], episodes: int) -> Result:
    """The result for success rates and mean rewards of evaluations, in their order.

    episodes: of each evaluation.
    """
    evidence = {"success": [s for s, _ in found], "reward": [r for _, r in found]}
    (first, first_reward), (last, last_reward) = found[0], found[-1]
    # Rates of 0 and 1 would have no error: one success or failure is assumed.
    mean = min(max((first + last) / 2, 1 / episodes), 1 - 1 / episodes)
    error = math.sqrt(2 * mean * (1 - mean) / episodes)
    summary = (
        f"success {first:.1%} -> {last:.1%}, reward {first_reward:.3g} -> {last_reward:.3g} "
        f"in {CPU_S} CPU-seconds"
    )
    if last > first + SIGMAS * error:
        return "pass", summary, evidence
    return "unknown", f"no improvement: {summary}", evidence


def evaluations(metrics: Path) -> list[tuple[float, float]]:
    """Success rate and mean reward of each evaluation in a run's metrics, in their order."""
    if not metrics.exists():
        return []
    # The CPU limit may have cut the last line.
    lines = [line for line in metrics.read_text(encoding="utf-8").splitlines() if line[-1:] == "}"]
    rows = [json.loads(line) for line in lines]
    return [
        (row["eval/test/success"], row["eval/test/reward"])
        for row in rows
        if "eval/test/success" in row
    ]


def _train(subject: AuditSubject, out: Path) -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S))
    with (out.parent / "log").open("w", encoding="utf-8") as log:
        os.dup2(log.fileno(), sys.stdout.fileno())
        os.dup2(log.fileno(), sys.stderr.fileno())
        # torch is loaded in this process alone.
        from ludic_train.runs.train import train

        train(subject.env_id, env_kwargs=subject.kwargs, out=out, preflight=False, **SETTINGS)
