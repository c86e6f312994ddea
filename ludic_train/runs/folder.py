"""A run's folder: its settings, and rules for starting and resuming it.

OUT/config.json     recipe and settings, written once, when the run is started
OUT/metrics.jsonl   numbers of the updates, appended
OUT/rollouts.jsonl  some episodes of each evaluation, appended
OUT/checkpoints/    complete states, from which a run is resumed
OUT/model/          the newest params, for other programs
OUT/queue.json      of runs with a queue: its address, replaced as a whole

The config comes first and the first checkpoint makes a run resumable, so that a crash at the
beginning leaves a folder in which the same command works again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ludic_gym.errors import ConfigError
from ludic_gym.records import episode_to_json
from ludic_gym.types import Episode
from ludic_train.checkpoints.layout import complete_updates
from ludic_train.runs.config import Demonstrations, EvalTasks, Recipe, RunConfig

CONFIG, METRICS, CHECKPOINTS = "config.json", "metrics.jsonl", "checkpoints"
ROLLOUTS = "rollouts.jsonl"
# Of each evaluation: enough to see how the policy plays.
KEPT_EPISODES = 3


def open_run(recipe: Recipe, config: RunConfig, *, resume: bool) -> None:
    """Make the folder of a new run, with its config.json; or check that it can be resumed.

    resume: continue the run in `config.out` with the same settings, those of the recipe included.
    A run that ended before its first checkpoint has nothing to lose, and is started anew.
    Raises ConfigError where the folder already holds a run that is not to be resumed, where it
    holds none to resume, and where a resumed run is given other values than it was started with.
    """
    if resume:
        _refuse_changes(started_config(recipe, config.out), config)
        return
    if is_resumable(config.out):
        raise ConfigError(
            f"{config.out} holds a run already: add --resume to continue it, or name another "
            "folder with --out"
        )
    config.out.mkdir(parents=True, exist_ok=True)
    # Of a run without a checkpoint: its numbers would stand before those of the new one.
    for name in (METRICS, ROLLOUTS):
        (config.out / name).unlink(missing_ok=True)
    facts = {name: value for name, value in asdict(recipe).items() if name != "defaults"}
    started = {"recipe": facts, "config": _plain(config)}
    (config.out / CONFIG).write_text(json.dumps(started, indent=2) + "\n", encoding="utf-8")


def started_recipe(out: Path) -> Recipe:
    """The recipe of the run in a folder, its settings as defaults.

    out: where the folder is now; it may have been moved since.
    Raises ConfigError where there is none, or one of another version.
    """
    path = out / CONFIG
    if not path.is_file():
        raise ConfigError(f"{out} is no run: {path} does not exist")
    started = json.loads(path.read_text(encoding="utf-8"))
    try:
        facts, settings = started["recipe"], started["config"]
        evals = {name: EvalTasks(**tasks) for name, tasks in facts["evals"].items()}
        demonstrations = facts["demonstrations"]
        return Recipe(
            **{
                **facts,
                "evals": evals,
                "demonstrations": demonstrations and Demonstrations(**demonstrations),
                "defaults": RunConfig(**{**settings, "out": out}),
            }
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ConfigError(f"{path} was written by another version: {error!r}") from error


def kept(out: Path, update: int) -> Callable[[Episode], None]:
    """Function that adds the first few episodes of an evaluation to the run's rollouts.jsonl.

    update: number of updates made before the evaluation.
    The lines are records of `ludic_gym.records` with one more field, "update"; `ludic view`
    displays them.
    """

    def keep(episode: Episode) -> None:
        if episode.index < KEPT_EPISODES:
            # Opened per episode: a few per evaluation, and nothing to close when a run is killed.
            with (out / ROLLOUTS).open("a", encoding="ascii") as file:
                file.write(json.dumps({**episode_to_json(episode), "update": update}) + "\n")

    return keep


def is_resumable(out: Path) -> bool:
    """True if the folder holds a run with a checkpoint to continue from."""
    return (out / CONFIG).is_file() and bool(complete_updates(out / CHECKPOINTS))


def started_config(recipe: Recipe, out: Path) -> RunConfig:
    """Settings that the run in the folder was started with.

    Raises ConfigError if there is none, one of another recipe or version, or one without any
    checkpoint.
    """
    if not (out / CONFIG).is_file():
        raise ConfigError(f"there is no run to resume in {out}: {out / CONFIG} does not exist")
    started = started_recipe(out)
    if started.name != recipe.name:
        raise ConfigError(f"{out} holds a run of {started.name}, not of {recipe.name}")
    if not is_resumable(out):
        raise ConfigError(
            f"the run in {out} ended before its first checkpoint: start it without --resume"
        )
    return started.defaults


def _refuse_changes(started: RunConfig, config: RunConfig) -> None:
    """Raise ConfigError with both values of each setting that differs."""
    before, now = _plain(started), _plain(config)
    changed = {name: value for name, value in now.items() if value != before[name]}
    if changed:
        raise ConfigError(
            f"the run in {config.out} was started with { ({n: before[n] for n in changed}) }, and "
            f"now {changed} is given; leave these out to resume, or start a new run"
        )


def _plain(config: RunConfig) -> Mapping[str, Any]:
    """The settings as JSON can hold them."""
    return {name: str(v) if isinstance(v, Path) else v for name, v in asdict(config).items()}


QUEUE, PUBLISHED = "queue.json", "published"


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where the groups of a run go.

    url: of the queue, as `open_queue` takes it; may hold a password. key: of the queue.
    servers: addresses of the servers that sample; none where each actor samples by itself.
    """

    url: str
    key: str
    servers: tuple[str, ...] = ()


def read_address(out: Path) -> Address | None:
    """The address in the run's queue.json; None where there is no such file, or not yet.

    Raises ConfigError for a file that names no queue.
    """
    path = out / QUEUE
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        servers = tuple(map(str, found.get("servers", ())))
        return Address(url=str(found["url"]), key=str(found["key"]), servers=servers)
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(f"{path} names no queue: {error!r}") from error


def write_address(out: Path, address: Address) -> None:
    """Write the run's queue.json, whole or not at all."""
    # In one step: others wait for the file, and read it at any moment.
    draft = out / f".{QUEUE}"
    draft.write_text(json.dumps(asdict(address)) + "\n", encoding="utf-8")
    draft.replace(out / QUEUE)


def forget_queue(out: Path) -> None:
    """Let the next run in this folder begin with a queue of its own, and nothing published."""
    # The address first: an actor that finds it looks for params, and must not take the old ones.
    (out / QUEUE).unlink(missing_ok=True)
    (out / PUBLISHED / "newest.json").unlink(missing_ok=True)
