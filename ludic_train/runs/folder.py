"""A run's folder: its settings, and rules for starting and resuming it.

OUT/config.toml     recipe and settings, written once, when the run is started
OUT/metrics.jsonl   numbers of the updates, appended
OUT/harness.json    how the model is prompted; OUT/chat_profile.json, facts of its chat template
OUT/compute.json    device, types and attention kernels of the newest process, replaced by the next
OUT/rollouts/       episodes of updates and evaluations, see `ludic_gym.recorder`
OUT/checkpoints/    complete states, from which a run is resumed
OUT/model/          the newest params, for other programs
OUT/queue.json      of runs with a queue: see `ludic_train.cluster.address`

The config comes first and the first checkpoint makes a run resumable, so that a crash at the
beginning leaves a folder in which the same command works again.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from ludic_gym.errors import ConfigError
from ludic_gym.recorder import ROLLOUTS, Recorder, forget_after
from ludic_train.checkpoints.layout import complete_updates
from ludic_train.runs.config import RunConfig
from ludic_train.runs.config_file import read_recipe, recipe_toml
from ludic_train.runs.machine import Machine
from ludic_train.runs.recipe import Recipe, facts

CONFIG, METRICS, CHECKPOINTS = "config.toml", "metrics.jsonl", "checkpoints"
# Written when a run has ended.
RESULTS = "results.json"
HEADER = "# To repeat this run: ludic train --config THIS_FILE --out ANOTHER_FOLDER"
# Of runs with a queue: see `ludic_train.cluster.address`.
QUEUE, PASSWORD, PUBLISHED = "queue.json", "queue.password", "published"


def open_run(
    recipe: Recipe, config: RunConfig, machine: Machine | None = None, *, resume: bool
) -> None:
    """Make the folder of a new run, with its config.toml; or check that it can be resumed.

    resume: continue the run in `config.out` with the same settings, those of the recipe included.
    A run that ended before its first checkpoint has nothing to lose, and is started anew.
    Raises ConfigError where the folder already holds a run that is not to be resumed, where it
    holds none to resume, and where a resumed run is given other values than it was started with.
    """
    if resume:
        _refuse_changes(resumable(config.out), recipe, config)
        return
    if is_resumable(config.out):
        raise ConfigError(
            f"{config.out} holds a run already: add --resume to continue it, or name another "
            "folder with --out"
        )
    config.out.mkdir(parents=True, exist_ok=True)
    # Of a run without a checkpoint: its numbers would stand before those of the new one.
    (config.out / METRICS).unlink(missing_ok=True)
    shutil.rmtree(config.out / ROLLOUTS, ignore_errors=True)
    text = recipe_toml(recipe, config, machine)
    (config.out / CONFIG).write_text(f"{HEADER}\n{text}", encoding="utf-8")


def forget_after_checkpoint(out: Path) -> None:
    """Drop the numbers and episodes of updates after the last checkpoint of a run.

    A resumed run makes them again, and each update is to be in the files once.
    """
    update = complete_updates(out / CHECKPOINTS)[-1]
    forget_after(out / ROLLOUTS, update)
    path = out / METRICS
    if path.exists():
        whole = path.read_text(encoding="utf-8").split("\n")[:-1]
        lines = [line for line in whole if json.loads(line)["update"] <= update]
        # In one step: a crash here must leave the numbers of all earlier updates.
        draft = path.with_name(f".{path.name}")
        draft.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        draft.replace(path)


def started_recipe(out: Path) -> tuple[Recipe, Machine]:
    """The recipe of the run in a folder, its settings as defaults, and where it ran.

    out: where the folder is now; it may have been moved since.
    Raises ConfigError where there is none, or one of another version.
    """
    path = out / CONFIG
    if not path.is_file():
        raise ConfigError(f"{out} is no run: {path} does not exist")
    return read_recipe(path, out=out)


def run_recorder(out: Path, machine: Machine, *, writer: str = "") -> Recorder:
    """The recorder of the run in a folder; writer: name of an actor, "" for the trainer."""
    share, cap_gb = machine.record, machine.record_gb
    return Recorder(out / ROLLOUTS, share=share, cap_gb=cap_gb, writer=writer)


def is_resumable(out: Path) -> bool:
    """True if the folder holds a run with a checkpoint to continue from."""
    return (out / CONFIG).is_file() and bool(complete_updates(out / CHECKPOINTS))


def resumable(out: Path) -> Recipe:
    """The recipe of the run in a folder, with the settings that it was started with.

    Raises ConfigError if there is none, one of another version, or one without any checkpoint.
    """
    if not (out / CONFIG).is_file():
        raise ConfigError(f"there is no run to resume in {out}: {out / CONFIG} does not exist")
    started = started_recipe(out)[0]
    if not is_resumable(out):
        raise ConfigError(
            f"the run in {out} ended before its first checkpoint: start it without --resume"
        )
    return started


def _refuse_changes(started: Recipe, recipe: Recipe, config: RunConfig) -> None:
    before = {**started.defaults.flat(), **facts(started)}
    now = {**config.flat(), **facts(recipe)}
    # As the file holds them, which has lists for tuples.
    changed = {n: v for n, v in now.items() if _plain(v) != _plain(before[n])}
    if changed:
        raise ConfigError(
            f"the run in {config.out} was started with { ({n: before[n] for n in changed}) }, and "
            f"now {changed} is given; leave these out to resume, or start a new run"
        )


def _plain(value: object) -> str:
    return json.dumps(value, default=str, sort_keys=True)


def forget_queue(out: Path) -> None:
    """Let the next run in this folder begin with a queue of its own, and nothing published."""
    # The address first: an actor that finds it looks for params, and must not take the old ones.
    (out / QUEUE).unlink(missing_ok=True)
    (out / PASSWORD).unlink(missing_ok=True)
    (out / PUBLISHED / "newest.json").unlink(missing_ok=True)
