"""Options of `ludic train`, as dataclasses for tyro."""

from __future__ import annotations

from dataclasses import dataclass, field, make_dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Literal

import tyro

from ludic_train.runs.config import RunConfig
from ludic_train.runs.foreign_names import FOREIGN
from ludic_train.runs.machine import Machine
from ludic_train.runs.preset_options import PRESET_OPTIONS


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskOptions:
    """Options about the tasks."""

    env_kwargs: tuple[str, ...] = ()
    """Arguments of the environments, KEY=VALUE."""
    eval_kwargs: tuple[str, ...] = ()
    """Further ones for the evaluation, such as split=test."""
    demonstrator: Literal["oracle", "random"] | None = None
    """Player that is imitated first, the best that the environment has if left out."""
    self_play: bool = False
    """The model plays all agents of a PettingZoo environment."""
    curriculum: bool = False
    """Begin with the easiest level of the environment, and move on by success rate. Evaluations are
    of the hardest level, unless --eval-kwargs names another."""
    levels: tuple[str, ...] = ()
    """Levels of a curriculum in place of the catalogue's, from easy to hard, such as digits=1
    digits=2."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandOptions:
    """Options of the command itself."""

    config: Path | None = None
    """TOML file with any of these settings; options replace those of the file."""
    print_config: bool = False
    """Print the settings as such a file, and stop."""
    resume: bool = False
    """Resume the run in --out."""
    harness: str | None = None
    """Harness of the model: plain, think-tag, boxed, react, truncated-thinking, or module:name of a
    Harness or of a function that makes policies. The options below replace its parts."""
    chat_arg: Annotated[tuple[str, ...], tyro.conf.UseAppendAction] = ()
    """Argument of the model's chat template, NAME=VALUE, such as enable_thinking=false; may be
    repeated. A name that the template does not read is refused."""
    preflight: bool = True
    """Play some episodes before learning from rewards, say what to expect, and stop a run that
    cannot learn."""
    gpus: int = 1
    """Ranks to start on this machine, which shard the model (FSDP2): a CUDA card for each, or with
    --device cpu a process. Several machines: torchrun -m ludic_train.commands.train. With
    --servers, the cards of ranks and servers together."""
    servers: int = 0
    """Inference servers of --engine (vllm or local) to start on cards of their own, the last ones
    of --gpus; with one card, a server and the rank split its memory."""
    tensor_parallel: int | None = None
    """Cards of each of these servers; 1 without it."""


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
    options_class, flat = algo_class(algo), tyro.conf.arg(name="")
    return make_dataclass(
        "Options",
        [
            ("command", Annotated[CommandOptions, flat], field(default=CommandOptions())),
            ("settings", Annotated[RunConfig, flat]),
            ("algo", options_class, field(default_factory=options_class)),
            ("tasks", Annotated[TaskOptions, flat], field(default=TaskOptions())),
            ("machine", Annotated[Machine, flat], field(default=Machine())),
        ],
        frozen=True,
        kw_only=True,
    )


COMMON = frozenset(
    (
        *("config", "print_config", "resume", "gpus", "env_kwargs", "eval_kwargs", "curriculum"),
        *("out", "seed", "model", "algo", "reward", "lora_rank", "dtype", "updates", "lr"),
        *("groups", "group_size", "minibatches", "kl", "entropy", "demonstrations"),
        *("max_tokens", "max_turns", "temperature", "harness", "parser", "system_prompt"),
        *("eval_every", "eval_episodes", "device", "recompute", "engine", "queue", "log"),
    )
)
"""The options of `--help`, beside those of the algorithm; the others are in `--help-all`."""


def option_of(text: str) -> str:
    """The option of a command line that a text of FOREIGN names.

    >>> option_of("micro_tokens, the tokens of a forward pass")
    '--micro-tokens, the tokens of a forward pass'
    """
    name = text.partition(":")[0].partition(",")[0]
    return text if " " in name else f"--{name.replace('_', '-')}{text[len(name) :]}"


FOREIGN_OPTIONS = {f"--{name.replace('_', '-')}": option_of(text) for name, text in FOREIGN.items()}
"""Options of other libraries, with what is written here."""
