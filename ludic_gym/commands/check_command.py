"""`ludic check`: environments are held against the contract."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import gymnasium as gym
import tyro

from ludic_gym.commands.arguments import (
    env_name,
    keyword_arguments,
    option,
    parse,
    readable_env_errors,
)
from ludic_gym.errors import ConfigError, ContractError
from ludic_gym.testing import check_text_env

EXAMPLES = """\
ludic check ludic/TicTacToe-v0
ludic check ludic/Arithmetic-v0 --env-kwargs digits=3
ludic check my_envs:mine/Riddle-v0"""


@dataclass(frozen=True, kw_only=True)
class CheckArgs:
    """Test environments against the contract that every text environment keeps."""

    ids: Annotated[tyro.conf.Positional[tuple[str, ...]], option("ID ...")]
    """Environment ids; module:id for one of your own, where importing the module registers it."""
    env_kwargs: Annotated[tuple[str, ...], option("KEY=VALUE ...")] = ()
    """Arguments of the env."""


def main(argv: list[str]) -> int:
    """Runs `ludic check`; 1 if an environment breaks a rule."""
    args = parse(CheckArgs, argv, command="check", examples=EXAMPLES)
    if not args.ids:
        raise ConfigError("name at least one environment; `ludic list` shows them")
    kwargs = keyword_arguments(args.env_kwargs)
    broken = [complaint for complaint in (checked(spec, kwargs) for spec in args.ids) if complaint]
    return 1 if broken else 0


def checked(spec: str, kwargs: Mapping[str, Any]) -> str:
    """What the env does wrong, "" for nothing; printed as well."""
    env_id = env_name(spec)
    with readable_env_errors():
        gym.make(env_id, **kwargs).close()
    try:
        check_text_env(env_id, **kwargs)
    except ContractError as error:
        print(f"FAILED  {error}")
        return str(error)
    print(f"ok      {env_id}")
    return ""
