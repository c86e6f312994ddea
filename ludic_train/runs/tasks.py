"""Tasks of a run, to learn from, to imitate and to measure.

Nothing that is measured is learned from: generated tasks have other seeds. An environment with rows
is measured on other rows: those of another split or file where its arguments there are others, else
on a fifth of the rows, which training leaves out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import count
from typing import Any

import numpy as np

from ludic_gym.bench.runner import MAX_TURNS
from ludic_gym.errors import ConfigError
from ludic_gym.records import env_key
from ludic_gym.rollout.tasks import rows_of
from ludic_gym.types import Sampling, Task
from ludic_train.runs.config import RunConfig
from ludic_train.runs.recipe import EvalTasks, Recipe, TrainEnv
from ludic_train.sources.levels import Levels, drawn_level

# Far above the seeds of episodes that are learned from, so that they never meet.
DEMONSTRATIONS_FROM, EVALUATIONS_FROM = 2**61, 2**60
# More tasks than a run plays, so that runs of different seeds share none.
SEEDS_PER_RUN = 1_000_000
# Of the rows of an environment that has only one set of them.
HELD_OUT = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvFacts:
    """Facts of an environment that its tasks depend on.

    rows: numbers of the rows that its tasks are about; None for generated tasks.
    """

    env_id: str
    kwargs: Mapping[str, Any]
    rows: Sequence[int] | None


def training_tasks(
    recipe: Recipe, config: RunConfig, seed: int, levels: Mapping[str, int] | None = None
) -> Iterator[Task]:
    """Tasks to learn from, without end; other ones for every seed of a run.

    levels: current ones of the recipe's curriculum by id, read for each task; the first ones where
        they are left out.

    Each environment has its share of any number of first tasks, to within one task. Rows come in a
    new order in every pass over them.
    Equal arguments give equal tasks, which is how a resumed run skips those that it has played.
    """
    envs = [[_learned(recipe, level) for level in by_level(recipe, env)] for env in recipe.envs]
    weights = np.array([env.weight for env in recipe.envs])
    shares, played = weights / weights.sum(), np.zeros(len(envs), dtype=int)
    for number in count(seed * SEEDS_PER_RUN):
        # The one that is furthest behind its share.
        chosen = int(np.argmax(shares * (played.sum() + 1) - played))
        env = envs[chosen][0]
        if recipe.curriculum is not None and levels:
            current = levels.get(env.env_id, 0)
            env = envs[chosen][drawn_level(recipe.curriculum, current, number)]
        yield _task(config, env, number, config.sample.sampling, _row(env, seed, played[chosen]))
        played[chosen] += 1


def demonstration_tasks(recipe: Recipe, config: RunConfig, episodes: int) -> list[Task]:
    """Tasks for the demonstrator, shared equally among the environments that are learned from.

    Those of an environment with levels are shared equally among these: a tiny model gets its
    vocabulary and its longest reply from them.
    """
    first = DEMONSTRATIONS_FROM + config.seed * SEEDS_PER_RUN
    further = {} if recipe.demonstrator is None else recipe.demonstrator.kwargs
    envs = [[_learned(recipe, level) for level in by_level(recipe, env)] for env in recipe.envs]
    tasks = []
    for i in range(episodes):
        played, chosen = divmod(i, len(envs))
        played, level = divmod(played, len(envs[chosen]))
        env = envs[chosen][level]
        env = replace(env, kwargs={**env.kwargs, **further})
        row = _row(env, config.seed, played)
        tasks.append(_task(config, env, first + i, Sampling(), row))
    return tasks


def evaluation_tasks(recipe: Recipe, config: RunConfig, episodes: int) -> dict[str, list[Task]]:
    """The first tasks of each set of evaluation tasks, by name; the same for runs of all seeds.

    episodes: tasks per set. A larger number keeps the tasks of a smaller one, and adds others; a
        set of rows has no more tasks than rows.
    """
    by_set = {}
    for name, tasks in recipe.evals.items():
        env = _measured(recipe, tasks)
        # What top_p, top_k and min_p leave is the policy that learns.
        sampling = replace(config.sample.sampling, temperature=tasks.temperature)
        # No seed of a run in them, so that runs are compared on the same episodes.
        number = episodes if env.rows is None else min(episodes, len(env.rows))
        by_set[name] = [
            _task(
                config,
                env,
                EVALUATIONS_FROM + i,
                sampling,
                None if env.rows is None else env.rows[i],
            )
            for i in range(number)
        ]
    return by_set


def eval_id(recipe: Recipe, tasks: EvalTasks) -> str:
    """Id of the environment that a set of evaluation tasks is played in."""
    return tasks.id or recipe.envs[0].id


def by_level(recipe: Recipe, env: TrainEnv) -> list[TrainEnv]:
    """The environment with the arguments of each of its levels; itself without a curriculum."""
    levels: Sequence[Mapping[str, Any]] = ({},)
    if recipe.curriculum is not None:
        levels = recipe.curriculum.levels.get(env.id, levels)
    return [replace(env, kwargs={**env.kwargs, **level}) for level in levels]


def levels_of(recipe: Recipe) -> Levels | None:
    """The levels of the recipe's curriculum, at the first ones; None without a curriculum."""
    if recipe.curriculum is None:
        return None
    keys = {
        env_key(env.id, at_level.kwargs): (env.id, level)
        for env in recipe.envs
        for level, at_level in enumerate(by_level(recipe, env))
        if env.id in recipe.curriculum.levels
    }
    return Levels(recipe.curriculum, keys)


def _learned(recipe: Recipe, env: TrainEnv) -> EnvFacts:
    kwargs = dict(env.kwargs)
    # PettingZoo's environments of several agents have no rows.
    rows = None if recipe.self_play else _rows(env.id, kwargs)
    selected: Sequence[int] | None = rows
    for tasks in recipe.evals.values():
        if rows is not None and _same_rows(recipe, env, tasks):
            selected = _parted(len(rows))[1]
    return EnvFacts(env_id=env.id, kwargs=kwargs, rows=selected)


def _measured(recipe: Recipe, tasks: EvalTasks) -> EnvFacts:
    env_id, kwargs = eval_id(recipe, tasks), dict(tasks.kwargs)
    rows = _rows(env_id, kwargs)
    if rows is not None and any(_same_rows(recipe, env, tasks) for env in recipe.envs):
        rows = _parted(len(rows))[0]
    return EnvFacts(env_id=env_id, kwargs=kwargs, rows=rows)


def _same_rows(recipe: Recipe, env: TrainEnv, tasks: EvalTasks) -> bool:
    """True if a set of evaluation tasks is of the environment's rows, at any level of it."""
    levels = () if recipe.curriculum is None else recipe.curriculum.levels.get(env.id, ())
    # Levels may share rows, so that those of one level are held out at all.
    of_levels = {name for level in levels for name in level}
    train_kwargs, measured = (
        {name: value for name, value in kwargs.items() if name not in of_levels}
        for kwargs in (env.kwargs, tasks.kwargs)
    )
    return eval_id(recipe, tasks) == env.id and train_kwargs == measured


def _rows(env_id: str, kwargs: Mapping[str, Any]) -> Sequence[int] | None:
    """Numbers of all rows of an environment; None for generated tasks."""
    rows = rows_of(env_id, kwargs)
    return None if rows is None else range(rows)


def _parted(rows: int) -> tuple[list[int], list[int]]:
    """Numbers of the rows that are measured, and of those that are learned from."""
    if rows < 2:
        raise ConfigError(
            f"an environment with {rows} row has none to hold out; name another split or file to "
            "measure, with --eval-kwargs"
        )
    order = np.random.default_rng(0).permutation(rows).tolist()
    held_out = max(1, round(HELD_OUT * rows))
    return order[:held_out], sorted(order[held_out:])


def _row(env: EnvFacts, seed: int, number: int) -> int | None:
    """The row of the environment's task of this number; None for generated tasks."""
    if env.rows is None:
        return None
    passes, place = divmod(int(number), len(env.rows))
    return env.rows[_order(seed, passes, len(env.rows))[place]]


@lru_cache(maxsize=8)
def _order(seed: int, passes: int, rows: int) -> list[int]:
    order: list[int] = np.random.default_rng([seed, passes]).permutation(rows).tolist()
    return order


def _task(config: RunConfig, env: EnvFacts, seed: int, sampling: Sampling, row: int | None) -> Task:
    return Task(
        env_id=env.env_id,
        kwargs=env.kwargs,
        # A row is the same task in every pass, which is how solved ones are known.
        seed=seed if row is None else row,
        options=None if row is None else {"row": row},
        sampling=replace(sampling, seed=seed),
        max_turns=config.sample.max_turns or MAX_TURNS,
        attempts=config.harness.attempts,
    )
