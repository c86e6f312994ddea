"""Options of `ludic train`, as dataclasses for tyro."""

from __future__ import annotations

from dataclasses import dataclass, field, make_dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Literal

import tyro

from ludic_train.runs.config import RunConfig
from ludic_train.runs.machine import Machine
from ludic_train.runs.preset_options import PRESET_OPTIONS


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskOptions:
    """Options about the tasks.

    Attributes:
        env_kwargs: Arguments of the environments, KEY=VALUE.
        eval_kwargs: Further ones for the evaluation, such as split=test.
        demonstrator: Player that is imitated first, the best that the environment has if left out.
        reply: Text of the model for an action of the demonstrator, {} in the place of it.
        self_play: The model plays all agents of a PettingZoo environment.
        curriculum: Begin with the easiest level of the environment, and move on by success rate.
            Evaluations are of the hardest level, unless --eval-kwargs names another.
        levels: Levels of a curriculum in place of the catalogue's, from easy to hard, such as
            digits=1 digits=2.
    """

    env_kwargs: tuple[str, ...] = ()
    eval_kwargs: tuple[str, ...] = ()
    demonstrator: Literal["oracle", "random"] | None = None
    reply: str = "{}"
    self_play: bool = False
    curriculum: bool = False
    levels: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandOptions:
    """Options of the command itself.

    Attributes:
        config: TOML file with any of these settings; options replace those of the file.
        print_config: Print the settings as such a file, and stop.
        resume: Resume the run in --out.
        chat_arg: Argument of the model's chat template, NAME=VALUE, such as enable_thinking=false;
            may be repeated. A name that the template does not read is refused.
        preflight: Play some episodes before learning from rewards, say what to expect, and stop a
            run that cannot learn.
        gpus: Ranks to start on this machine, which shard the model (FSDP2): a CUDA card for each,
            or with --device cpu a process. Several machines: torchrun -m
            ludic_train.commands.train. With --servers, the cards of ranks and servers together.
        servers: Inference servers of --engine (vllm or local) to start on cards of their own, the
            last ones of --gpus; with one card, a server and the rank split its memory. What does
            not fit, by the estimate of `ludic plan`, is refused before anything starts.
        tensor_parallel: Cards of each of these servers; without it, as many as one needs.
    """

    config: Path | None = None
    print_config: bool = False
    resume: bool = False
    chat_arg: Annotated[tuple[str, ...], tyro.conf.UseAppendAction] = ()
    preflight: bool = True
    gpus: int = 1
    servers: int = 0
    tensor_parallel: int | None = None


@cache
def algo_class(algo: str) -> type:
    """The options of an algorithm, as a dataclass for tyro."""
    options = [
        (
            name,
            Annotated[option.type, tyro.conf.arg(help=option.help)],
            field(default=option.default),
        )
        for name, option in PRESET_OPTIONS[algo].items()
    ]
    return make_dataclass("Algorithm", options, frozen=True, kw_only=True)


def train_class(algo: str) -> type:
    """The options of `ludic train` with an algorithm, as a dataclass for tyro."""
    own, flat = algo_class(algo), tyro.conf.arg(name="")
    return make_dataclass(
        "Options",
        [
            ("command", Annotated[CommandOptions, flat], field(default=CommandOptions())),
            ("settings", Annotated[RunConfig, flat]),
            ("algo", own, field(default_factory=own)),
            ("tasks", Annotated[TaskOptions, flat], field(default=TaskOptions())),
            ("machine", Annotated[Machine, flat], field(default=Machine())),
        ],
        frozen=True,
        kw_only=True,
    )
