"""`ludic train`: environments or a recipe, a model, and options."""

from __future__ import annotations

import asyncio
import difflib
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import tyro

from envs_registry.catalog import SUITES
from ludic_gym.commands.arguments import (
    env_name,
    keyword_arguments,
    parse,
    readable_env_errors,
    refuse_foreign,
)
from ludic_gym.commands.main import main as ludic
from ludic_gym.commands.main import one_line
from ludic_gym.errors import ConfigError
from ludic_gym.harness import Harness
from ludic_gym.packages import import_user_module
from ludic_gym.rollout.tasks import rows_of
from ludic_train.commands.command_lines import (
    names_and_options,
    program,
    resume_command,
    value_of,
)
from ludic_train.commands.train_options import (
    COMMON,
    FOREIGN_OPTIONS,
    CommandOptions,
    TaskOptions,
    algo_class,
    train_class,
)
from ludic_train.distributed.local_ranks import check_gpus, own_rank, run_ranks, started_by_other
from ludic_train.errors import Interrupted, RankError, Superseded
from ludic_train.processes import FAILED, INTERRUPTED, SUPERSEDED
from ludic_train.recipes.catalog import RECIPES
from ludic_train.runs.config import RunConfig
from ludic_train.runs.config_file import read_recipe, recipe_toml
from ludic_train.runs.folder import resumable
from ludic_train.runs.machine import Machine
from ludic_train.runs.preset_options import PRESET_OPTIONS, check_options
from ludic_train.runs.recipe import (
    Demonstrator,
    Recipe,
    recipe_for,
    with_curriculum,
    with_demonstrator,
    with_model,
)
from ludic_train.runs.tasks import by_level, eval_id
from ludic_train.sources.levels import LevelSchedule


@dataclass(frozen=True, slots=True)
class Parsed:
    """A whole command line."""

    recipe: Recipe
    settings: RunConfig
    machine: Machine
    command: CommandOptions


def main(argv: list[str]) -> int:
    """Train what the first arguments name; the exit code."""
    if "--plan" in argv:
        from ludic_train.commands.plan import main as plan

        return plan([word for word in argv if word != "--plan"])
    if not argv or argv in (["-h"], ["--help"]):
        print(overview())
        return 0
    names, options = names_and_options(argv)
    with readable_env_errors():
        arguments = parsed(names, options)
        check_gpus(arguments.command.gpus, arguments.command.servers)
        if not arguments.command.print_config and own_rank() == 0:
            _try_envs(arguments)
    if arguments.command.print_config:
        from ludic_train.runs.settled import settled

        _, config = settled(None, arguments.settings, arguments.machine)
        print(recipe_toml(arguments.recipe, config, arguments.machine), end="")
        return 0
    # Ranks get --servers too, as part of their command line: theirs are running.
    if arguments.command.servers and not (started_by_other() and arguments.machine.servers):
        from ludic_train.cluster.trainer_servers import run_with_servers

        return run_with_servers(
            argv,
            arguments.settings,
            arguments.machine,
            gpus=arguments.command.gpus,
            servers=arguments.command.servers,
            tensor_parallel=arguments.command.tensor_parallel,
        )
    if arguments.command.gpus > 1 and not started_by_other():
        return run_ranks(["train", *argv], arguments.command.gpus)
    return _train(arguments)


def _try_envs(parsed: Parsed) -> None:
    """Make each environment once: its errors should come before torch and a model are loaded."""
    recipe = parsed.recipe
    levels = [level for env in recipe.envs for level in by_level(recipe, env)]
    ids = [] if recipe.self_play else [(env.id, env.kwargs) for env in levels]
    ids += [(eval_id(recipe, tasks), tasks.kwargs) for tasks in recipe.evals.values()]
    for env_id, kwargs in ids:
        # It makes the environment, and reads the rows of a data set, which may be absent.
        rows_of(env_id, kwargs)


def _train(parsed: Parsed) -> int:
    # torch takes seconds, and --help must not wait for it.
    from ludic_train.runs.train import train_recipe

    recipe, out = parsed.recipe, parsed.settings.out
    command = parsed.command
    try:
        asyncio.run(
            train_recipe(
                recipe,
                parsed.settings,
                parsed.machine,
                resume=command.resume,
                preflight=command.preflight,
            )
        )
    except (Interrupted, KeyboardInterrupt) as error:
        state = "saved" if isinstance(error, Interrupted) else "stopped at once"
        if own_rank() == 0:
            again = resume_command(out, parsed.machine, command.gpus, command.servers)
            print(f"{state}; {again}")
        return INTERRUPTED
    except Superseded as error:
        print(f"ludic: {one_line(error)}", file=sys.stderr)
        return SUPERSEDED
    except RankError:
        # It names an error of rank 0, which reports that itself.
        if own_rank() == 0:
            raise
        return FAILED
    if own_rank() == 0:
        print(f"try it   {program()} {recipe.try_it.format(out=out)}")
    return 0


def overview() -> str:
    """Text of `ludic train --help`."""
    recipes = "\n".join(f"  {recipe.name:18s}{recipe.summary}" for recipe in RECIPES.values())
    return f"""usage: ludic train ENV [ENV ...] [options]
       ludic train RECIPE [options]
       ludic train --config FILE [options]
       ludic train --plan MODEL [options]     memory and time of an update

Train a policy on one machine: a chat model (--model), or a tiny one made from nothing.

ENV is an id of `ludic list`, an id of your own (module:id), or a suite; ID=2 has twice the tasks.
RECIPE is a name below, or module:NAME of a ludic_train.Recipe.

recipes:
{recipes}

algorithms (--algo): {", ".join(PRESET_OPTIONS)}

examples:
  ludic train tic-tac-toe
  ludic train ludic/Countdown-v0 --model path/to/model --updates 50
  ludic train ludic/GSM8K-v0 --model Qwen/Qwen2.5-0.5B-Instruct --env-kwargs split=train \\
      --eval-kwargs split=test --algo dapo --algo.buffer 64
  ludic train ludic/Arithmetic-v0 --curriculum
  ludic train my_envs:mine/Digits-v0 --out runs/digits
  ludic train ludic/Wordle-v0=2 ludic/Hangman-v0 --model path/to/model --print-config
  ludic train --config runs/digits/config.toml --out runs/again
  ludic train --out runs/again --resume

`ludic train ENV --help` lists the common options, with the defaults for it, and --help-all all."""


def parsed(names: Sequence[str], options: Sequence[str]) -> Parsed:
    """The settings that a command line asks for."""
    refuse_foreign(options, FOREIGN_OPTIONS)
    recipe, machine = _base(names, options)
    if name := value_of(options, "--harness"):
        recipe = replace(recipe, defaults=recipe.defaults.changed(harness=Harness.of(name)))
    algo = value_of(options, "--algo") or recipe.defaults.algo
    # Before tyro, since the options themselves depend on it.
    check_options(algo, {})
    kind = train_class(algo)
    options_class = algo_class(algo)
    # Options of another algorithm than the recipe's mean nothing to this one.
    recipe_options = recipe.defaults.algo_options if algo == recipe.defaults.algo else {}
    arguments: Any = parse(
        kind,
        list(options),
        command=f"train {' '.join(names)}".strip(),
        about=f"Train {recipe.summary}. The run's folder gets config.toml, metrics.jsonl, "
        "checkpoints, the model in Hugging Face format, curve.png, games.txt and results.json. "
        "Ctrl-C saves; --resume continues.",
        default=kind(
            settings=recipe.defaults.changed(algo=algo, algo_options={}),
            algo=options_class(**recipe_options),
            machine=machine,
        ),
        common=COMMON | PRESET_OPTIONS[algo].keys(),
    )
    changed = {
        name: value
        for name, option in PRESET_OPTIONS[algo].items()
        if (value := getattr(arguments.algo, name)) != option.default
    }
    chat_args = {
        **recipe.defaults.sample.chat_args,
        **keyword_arguments(arguments.command.chat_arg),
    }
    settings = arguments.settings.changed(algo_options=changed, chat_args=chat_args)
    if settings.model is None and not settings.learn.demonstrations:
        raise ConfigError(f"{recipe.name} makes no model from nothing: name one with --model")
    for env in recipe.envs:
        # The module of an id may lie in the current folder.
        env_name(env.id)
    if settings.model is None or settings.learn.demonstrations:
        recipe = with_demonstrator(recipe, settings.harness)
    return Parsed(recipe, settings, arguments.machine, arguments.command)


def _base(names: Sequence[str], options: Sequence[str]) -> tuple[Recipe, Machine]:
    """The recipe whose settings are the defaults of the options."""
    out, config = value_of(options, "--out"), value_of(options, "--config")
    tasks = _tasks(options)
    if "--resume" in options:
        return _started(names, out, config, tasks), Machine()
    if config is not None:
        if names:
            raise ConfigError(f"--config {config} names what to learn from; leave out {names[0]}")
        recipe, machine = read_recipe(Path(config), out=None if out is None else Path(out))
        return _changed(recipe, tasks), machine
    if not names:
        raise ConfigError("name an environment or a recipe; `ludic train --help` lists recipes")
    if len(names) == 1 and (named := _named_recipe(names[0])) is not None:
        model = value_of(options, "--model")
        return _changed(named if model is None else with_model(named, model), tasks), Machine()
    recipe = recipe_for(
        names,
        model=value_of(options, "--model"),
        env_kwargs=keyword_arguments(tasks.env_kwargs),
        eval_kwargs=keyword_arguments(tasks.eval_kwargs),
        demonstrator=tasks.demonstrator,
        self_play=tasks.self_play,
    )
    return _at_levels(recipe, tasks), Machine()


def _started(
    names: Sequence[str], out: str | None, config: str | None, tasks: TaskOptions
) -> Recipe:
    """The recipe of the run that is resumed.

    Raises ConfigError for a run of something else than what is named, and for options about tasks,
    which a resumed run keeps.
    """
    if config is not None or tasks != TaskOptions():
        raise ConfigError(
            "a resumed run has the tasks that it was started with: leave out --config, "
            "--env-kwargs, --eval-kwargs, --demonstrator, --self-play, --curriculum and --levels"
        )
    named = (_named_recipe(names[0]) if len(names) == 1 else None) or (
        recipe_for(names) if names else None
    )
    if out is not None:
        folder = Path(out)
    elif named is not None:
        folder = named.defaults.out
    else:
        raise ConfigError("--resume continues the run in a folder: name it with --out")
    started = resumable(folder)
    if named is not None and [e.id for e in named.envs] != [e.id for e in started.envs]:
        raise ConfigError(
            f"{started.defaults.out} holds a run of {started.name}, not of {' '.join(names)}"
        )
    return started


def _tasks(options: Sequence[str]) -> TaskOptions:
    # --help is for all options together.
    words = [word for word in options if word not in ("-h", "--help", "--help-all")]
    return tyro.cli(TaskOptions, args=words, return_unknown_args=True)[0]


def _changed(recipe: Recipe, tasks: TaskOptions) -> Recipe:
    train_kwargs = keyword_arguments(tasks.env_kwargs)
    measured = keyword_arguments(tasks.eval_kwargs)
    envs = [replace(env, kwargs={**env.kwargs, **train_kwargs}) for env in recipe.envs]
    evals = {
        name: replace(eval_tasks, kwargs={**eval_tasks.kwargs, **measured})
        for name, eval_tasks in recipe.evals.items()
    }
    player = recipe.demonstrator
    if tasks.demonstrator is not None:
        player = Demonstrator(policy=tasks.demonstrator)
    return _at_levels(replace(recipe, envs=envs, evals=evals, demonstrator=player), tasks)


def _at_levels(recipe: Recipe, tasks: TaskOptions) -> Recipe:
    """The recipe with the curriculum that the options name; as it is without one."""
    if not tasks.levels:
        return with_curriculum(recipe) if tasks.curriculum else recipe
    levels = [keyword_arguments([level]) for level in tasks.levels]
    return with_curriculum(recipe, LevelSchedule(levels={env.id: levels for env in recipe.envs}))


def _named_recipe(name: str) -> Recipe | None:
    """The recipe "NAME" or "module:NAME"; None for a name that is an environment's.

    Raises ConfigError for a name that is neither.
    """
    if name in RECIPES:
        return RECIPES[name]
    env_id = name.partition("=")[0]
    # Recipes have no namespace and no version.
    if env_id in SUITES or "/" in env_id.rpartition(":")[2] or re.search(r"-v\d+$", env_id):
        return None
    module, colon, attribute = name.rpartition(":")
    if not colon:
        close = difflib.get_close_matches(name, [*RECIPES, *SUITES], n=1)
        hint = f"did you mean {close[0]}?" if close else f"recipes are {', '.join(RECIPES)}"
        raise ConfigError(f"{name!r} is no environment, suite or recipe; {hint}")
    value = getattr(import_user_module(module, name), attribute, None)
    if not isinstance(value, Recipe):
        raise ConfigError(f"{name!r}: the module {module!r} has no Recipe {attribute!r}")
    return value


if __name__ == "__main__":
    # As torchrun starts it; `ludic` reports errors.
    sys.exit(ludic(["train", *sys.argv[1:]]))
