"""Command lines: arguments to values, results to tables.

The arguments of a command are the fields of a frozen dataclass; the text below a field is its help.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import is_dataclass, replace
from typing import Annotated, Any, Literal, TypeVar, cast

import gymnasium as gym
import tyro
from rich.console import Console
from rich.table import Table
from rich.text import Text
from tyro import constructors

from envs_registry.catalog import CATALOG, SUITES, reason_left_out
from ludic_gym.errors import ConfigError
from ludic_gym.packages import import_user_module
from ludic_gym.terminal import nearest

Args = TypeVar("Args")
HarnessName = Annotated[
    str | None,
    tyro.conf.arg(
        metavar="NAME",
        help="How the model plays: plain, think-tag, boxed, react, truncated-thinking, a "
        "run's folder, or module:name of a Harness or of a function that makes policies; parts may "
        "follow, as in think-tag,context=latest. Without it, as the model was trained.",
    ),
]
"""The option --harness."""
ChatArg = Annotated[
    tuple[str, ...],
    tyro.conf.UseAppendAction,
    tyro.conf.arg(
        metavar="NAME=VALUE",
        help="Argument of the model's chat template, such as enable_thinking=false; may be "
        "repeated.",
        help_behavior_hint="",
    ),
]
"""The option `--chat-arg`."""
PIPE_WIDTH = 200
MOST_PORT = 65_535


def option(metavar: str, about: str | None = None) -> object:
    """Marker for an argument whose help text describes its default.

    metavar: placeholder of the value in the usage, such as "DIR" or "KEY=VALUE ...".
    about: the help text, for one that takes more than a line; else the argument's docstring is it.

        out: Annotated[Path | None, option("DIR")] = None
    """
    # Without a hint, tyro would append "(default: None)" to a text that describes the default.
    # Docstrings of several lines keep their line breaks in `--help`.
    return tyro.conf.arg(metavar=metavar, help=about, help_behavior_hint="")


def parse(
    args_type: type[Args],
    argv: Sequence[str],
    *,
    command: str,
    examples: str = "",
    about: str | None = None,
    default: Args | None = None,
    common: Collection[str] | None = None,
    foreign: Mapping[str, str] | None = None,
) -> Args:
    """The arguments as a dataclass; `--help` prints its docstring and the examples.

    args_type: dataclass of the arguments. argv: the arguments after the command's name.
    command: name after `ludic` in the usage. examples: command lines, one a line.
    about: text above the examples; None for the docstring of `args_type`.
    default: values of arguments that are not in argv; None for those of the dataclass.
    common: names of the fields, in nested dataclasses too, that `--help` shows, None for all;
        `--help-all` shows all of them.
    foreign: options of other libraries, and what is written here, as for `refuse_foreign`.
    Exits with code 2 and the help of the option for an argument that cannot be parsed. Raises
    ConfigError for an option of `foreign`.
    """
    refuse_foreign(argv, foreign or {})
    text = inspect.getdoc(args_type) or "" if about is None else about
    lines = [f"  {line}" for line in examples.strip().splitlines()]
    parts = [text, "\n".join(["examples:", *lines]) if lines else ""]
    registry = None
    if "--help-all" in argv:
        argv = ["--help"]
    elif common is not None and {"-h", "--help"}.intersection(argv):
        # Alone: options that are hidden would be unknown ones.
        argv, registry = ["--help"], _hiding_all_but(common)
        parts.append(f"These are the common options; ludic {command} --help-all shows all.")
    return tyro.cli(
        args_type,
        args=argv,
        default=tyro.MISSING_NONPROP if default is None else default,
        prog=f"ludic {command}",
        description="\n\n".join(filter(None, parts)),
        registry=registry,
    )


def refuse_foreign(argv: Sequence[str], foreign: Mapping[str, str]) -> None:
    """Raise ConfigError for an option that another library has under another name.

    foreign: what is written here, such as "--episodes N", by option, such as "--limit"; with "-"
        for "_", which command lines may have too.

    >>> refuse_foreign(["gsm8k", "--limit=10"], {"--limit": "--episodes N"})
    Traceback (most recent call last):
    ludic_gym.errors.ConfigError: there is no option --limit: write --episodes N
    """
    for word in argv:
        option = word.partition("=")[0]
        here = foreign.get(option.replace("_", "-"))
        if here is not None:
            raise ConfigError(f"there is no option {option}: write {here}")


def _hiding_all_but(common: Collection[str]) -> constructors.ConstructorRegistry:
    """Rules by which only these fields of dataclasses become options."""
    registry = constructors.ConstructorRegistry()
    inside = False

    @registry.struct_rule
    def hide(info: constructors.StructTypeInfo) -> constructors.StructConstructorSpec | None:
        nonlocal inside
        if inside or not is_dataclass(info.type):
            return None
        # The registry would ask this rule again for the fields, which the usual rule finds.
        inside = True
        try:
            spec = constructors.ConstructorRegistry.get_struct_spec(info)
        finally:
            inside = False
        if not isinstance(spec, constructors.StructConstructorSpec):
            return None
        return replace(spec, fields=tuple(map(hidden, spec.fields)))

    def hidden(field: constructors.StructFieldSpec) -> constructors.StructFieldSpec:
        required = field.default in (tyro.MISSING, tyro.MISSING_NONPROP)
        if required or field.name in common or is_dataclass(field.default):
            return field
        return replace(field, type=cast(Any, tyro.conf.Suppress)[field.type])

    return registry


def keyword_arguments(pairs: Sequence[str]) -> Mapping[str, Any]:
    """("draw_reward=0.5", "opponent=random") -> {"draw_reward": 0.5, "opponent": "random"}.

    A value that is valid JSON is parsed, any other is a string. Raises ConfigError for a text
    without "=".

    >>> keyword_arguments(["digits=3", "opponent=random"])
    {'digits': 3, 'opponent': 'random'}
    """
    arguments = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key.isidentifier():
            raise ConfigError(f"{pair!r} is not of the form key=value")
        # JSON and not Python's syntax: true, null and lists need no quotes in a shell.
        try:
            arguments[key] = json.loads(value)
        except json.JSONDecodeError:
            arguments[key] = value
    return arguments


@contextmanager
def readable_env_errors() -> Iterator[None]:
    """Turn Gymnasium's errors about an unknown id or a wrong keyword into ConfigError.

    Only for blocks that make environments: a TypeError of a running one is a bug.
    """
    try:
        yield
    except gym.error.Error as error:
        hint, wanted = "", re.search("`(.+?)`", str(error))
        if wanted is not None and (reason := reason_left_out(wanted[1])):
            raise ConfigError(f"ludic/{wanted[1]} is left out: it {reason}") from error
        # It compares names in one namespace only: neither "gsm8k" nor "game" leads to "ludic/".
        if wanted is not None and "Did you mean" not in str(error):
            ids = {entry.id.partition("/")[2].rpartition("-")[0]: entry.id for entry in CATALOG}
            near = nearest(wanted[1], [*ids, *SUITES])
            hint = "" if near is None else f" Did you mean: `{ids.get(near, near)}`?"
        raise ConfigError(f"{error}{hint} (`ludic list` shows the ids)") from error
    except TypeError as error:
        # Gymnasium's texts for a wrong keyword. Any other TypeError is a bug of the env, whose
        # traceback is needed.
        if "environment creator" not in str(error) and "keyword argument" not in str(error):
            raise
        raise ConfigError(str(error)) from error


def check_port(port: int) -> None:
    """Raise ConfigError for a number that no port has."""
    if not 0 <= port <= MOST_PORT:
        raise ConfigError(f"--port is from 0 (any free one) to {MOST_PORT}, got {port}")


def env_name(spec: str) -> str:
    """The id in "id" or "module:id", after an import of the module, which registers it.

    The module may be in the current folder. Raises ConfigError if it cannot be imported.

    >>> env_name("ludic/ConnectFour-v0"), env_name("envs_registry:ludic/ConnectFour-v0")
    ('ludic/ConnectFour-v0', 'ludic/ConnectFour-v0')
    """
    module, colon, env_id = spec.rpartition(":")
    if not colon:
        return spec
    import_user_module(module, spec)
    return env_id


def screen() -> Console:
    """Console for standard output; in a pipe, lines are not folded."""
    # A pipe has no width; Rich would assume 80 columns and fold long ids.
    console = Console()
    return console if console.is_terminal else Console(width=PIPE_WIDTH)


def print_json(value: object) -> None:
    """Print the value as JSON; nan and infinities are null."""
    # Imported here: `ludic list --help` needs no benchmark.
    from ludic_gym.bench.folder import finite

    print(json.dumps(finite(value), indent=1))


def print_table(
    headings: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    title: str | None = None,
    numbers: bool = False,
) -> None:
    """Print aligned columns; markup in texts has no effect.

    headings: one per column. rows: one text per heading.
    title: a line above the headings.
    numbers: align all columns but the first to the right, and never fold them.
    """
    grid = Table(
        title=None if title is None else Text(title),
        title_justify="left",
        box=None,
        padding=(0, 1 if numbers else 2, 0, 0),
    )
    for i, heading in enumerate(headings):
        justify: Literal["left", "right"] = "right" if numbers and i else "left"
        grid.add_column(Text(heading), justify=justify, no_wrap=justify == "right", overflow="fold")
    for row in rows:
        # As `Text`, in which Rich reads no markup: ids and replies may have square brackets.
        grid.add_row(*map(Text, row))
    screen().print(grid)
