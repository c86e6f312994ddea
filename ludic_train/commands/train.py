"""`ludic train`: a recipe and its options."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass
from pathlib import Path
from shutil import which
from typing import Annotated

import tyro

from ludic_gym.errors import ConfigError
from ludic_train.errors import Interrupted
from ludic_train.recipes.catalog import RECIPES
from ludic_train.runs.config import Recipe, RunConfig
from ludic_train.runs.folder import is_resumable, started_config

# 128 + SIGINT, the code by which shells report Ctrl-C.
INTERRUPTED = 130


@dataclass(frozen=True, slots=True, kw_only=True)
class _Options:
    """Options of `ludic train RECIPE`.

    Attributes:
        config: Options of all recipes.
        resume: Resume the run in --out.
        queue: Let actors play (`ludic actor`), through the queue at this URL.
        servers: Addresses of inference servers (`ludic serve`): of --model, or with --queue, of
            the model that the run leaves in OUT/published.
    """

    config: Annotated[RunConfig, tyro.conf.arg(name="")]
    resume: bool = False
    queue: str | None = None
    servers: tuple[str, ...] = ()


def main(argv: list[str]) -> int:
    """Train by the recipe that the first argument names; the exit code."""
    if not argv or argv[0] in {"-h", "--help"}:
        print(overview())
        return 0
    if argv[0] not in RECIPES:
        raise ConfigError(f"no recipe {argv[0]!r}; there are: {', '.join(RECIPES)}")
    recipe = RECIPES[argv[0]]
    options = _parse(recipe, argv[1:], recipe.defaults)
    out = options.config.out
    if options.resume:
        # Parsed twice: the values of the started run are the defaults of options left out now.
        options = _parse(recipe, argv[1:], started_config(recipe, out))
    # torch takes seconds, and --help must not wait for it.
    from ludic_train.runs.train import train_recipe

    try:
        asyncio.run(
            train_recipe(
                recipe,
                options.config,
                resume=options.resume,
                queue=options.queue,
                servers=options.servers,
            )
        )
    except (Interrupted, KeyboardInterrupt) as error:
        state = "saved" if isinstance(error, Interrupted) else "stopped at once"
        print(f"{state}; {resume_command(recipe, out, options.queue)}")
        return INTERRUPTED
    print(f"try it   {program()} {recipe.try_it.format(out=out)}")
    return 0


def resume_command(recipe: Recipe, out: Path, queue: str | None = None) -> str:
    """The command that resumes a run, without the queue's URL, which may hold a password."""
    if not is_resumable(out):
        return "there was nothing to save yet: start it again with the same command"
    also = ", and --queue (--servers too) as it was started" if queue else ""
    return f"resume with: {program()} train {recipe.name} --out {out} --resume{also}"


def program() -> str:
    """Command line name of `ludic`: its path, where the shell would not find it by its name."""
    started_as = Path(sys.argv[0])
    return str(started_as) if started_as.name == "ludic" and not which("ludic") else "ludic"


def overview() -> str:
    """Text of `ludic train --help`."""
    recipes = "\n".join(f"  {recipe.name:14s}{recipe.summary}" for recipe in RECIPES.values())
    return f"""usage: ludic train RECIPE [options]

Train a policy on one machine: from nothing, or a model you have (--model) by LoRA.

recipes:
{recipes}

examples:
  ludic train tic-tac-toe
  ludic train tic-tac-toe --out runs/mine --seed 1 --updates 400
  ludic train tic-tac-toe --out runs/mine --resume
  ludic train arithmetic --model path/to/model --updates 50
  ludic train tic-tac-toe --queue redis://localhost:6379

`ludic train RECIPE --help` lists the options."""


def _parse(recipe: Recipe, argv: list[str], defaults: RunConfig) -> _Options:
    """The options; `defaults` for those that are left out."""
    return tyro.cli(
        _Options,
        args=argv,
        prog=f"ludic train {recipe.name}",
        description=f"Train {recipe.summary}. The run's folder gets config.json, metrics.jsonl, "
        "checkpoints, the model in Hugging Face format, curve.png, games.txt and results.json. "
        "Ctrl-C saves; --resume continues.",
        default=_Options(config=defaults),
    )
