"""`ludic completion`: print a script that completes command lines in a shell.

    $ eval "$(ludic completion bash)"
    $ ludic bench ludic/TicT<TAB>
    $ ludic bench ludic/TicTacToe-v0

The script has all words in it: a shell that completes starts no Python.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Mapping
from contextlib import redirect_stdout, suppress
from dataclasses import dataclass
from typing import Annotated, Literal

import tyro

from envs_registry.catalog import ADAPTERS, CATALOG, SUITES
from ludic_gym.commands.arguments import option, parse
from ludic_gym.commands.main import COMMANDS, find_command
from ludic_gym.errors import MissingPackage
from ludic_gym.packages import find_plugins

EXAMPLES = """\
ludic completion bash >> ~/.bashrc
ludic completion zsh >> ~/.zshrc
ludic completion fish > ~/.config/fish/completions/ludic.fish"""

# Commands whose arguments are environments. Those of the others are files and addresses.
OF_ENVS = ("play", "bench", "check", "audit", "train")
OF_SUITES = ("bench", "train")
# The help with all options; those of `train` are of an environment or a recipe.
HELP_OF = {"train": ["tic-tac-toe", "--help-all", "--help"], "bench": ["--help-all"]}

BASH = """\
_ludic() {{
  local word="${{COMP_WORDS[COMP_CWORD]}}" last="${{COMP_WORDS[COMP_CWORD-1]}}" words=""
  if [ "$COMP_CWORD" -eq 1 ]; then
    words="{commands}"
  elif [ "$last" = --suite ]; then
    words="{suites}"
  else
    case "${{COMP_WORDS[1]}} $word" in
{cases}
    esac
  fi
  COMPREPLY=($(compgen -W "$words" -- "$word"))
}}
complete -o default -F _ludic ludic
"""
ZSH = """\
_ludic() {{
  if (( CURRENT == 2 )); then
    compadd -- {commands}
    return
  fi
  if [[ $words[CURRENT-1] == --suite ]]; then
    compadd -- {suites}
    return
  fi
  case "$words[2] $words[CURRENT]" in
{cases}
  esac
  [[ $words[CURRENT] == -* ]] || _files
}}
(( $+functions[compdef] )) || {{ autoload -Uz compinit && compinit; }}
compdef _ludic ludic
"""


@dataclass(frozen=True, kw_only=True)
class CompletionArgs:
    """Print a script that completes commands, options, environments and suites in a shell.

    Print it again after an update of Ludic.
    """

    shell: Annotated[tyro.conf.Positional[Literal["bash", "zsh", "fish"]], option("SHELL")]
    """bash, zsh or fish."""


def main(argv: list[str]) -> int:
    """Run `ludic completion`; 0."""
    args = parse(CompletionArgs, argv, command="completion", examples=EXAMPLES)
    commands = [
        *COMMANDS,
        *(name for name in find_plugins("ludic.commands") if name not in COMMANDS),
    ]
    options = {command: options_of(command) for command in commands}
    print(fish(options) if args.shell == "fish" else posix(args.shell, options), end="")
    return 0


def options_of(command: str) -> list[str]:
    """The options of a command, by its help; none if its package is not installed.

    >>> options_of("list")
    ['--help', '--suite', '--all', '--no-all', '--levels', '--no-levels', '--json', '--no-json']
    """
    # The help is the one place that commands of all packages have in common.
    text = io.StringIO()
    with redirect_stdout(text), suppress(MissingPackage, SystemExit):
        find_command(command)(HELP_OF.get(command, ["--help"]))
    # A line of the table begins with its option, maybe after a short one, or in two forms.
    heads = re.findall(r"^  (-.*?)(?:  |$)", text.getvalue(), re.MULTILINE)
    names = [name for head in heads for name in re.findall(r"(?<!\S)--[a-z][\w.-]*", head)]
    return list(dict.fromkeys(names))


def arguments_of(command: str) -> list[str]:
    """The environments and suites that a command takes as arguments."""
    ids = [entry.id for entry in CATALOG] + [entry.id for entry in ADAPTERS]
    return ids * (command in OF_ENVS) + list(SUITES) * (command in OF_SUITES)


def posix(shell: str, options: Mapping[str, Iterable[str]]) -> str:
    """The script for bash or zsh. options: of each command."""
    # The shell's way to propose words.
    offer = 'words="{}"' if shell == "bash" else "compadd -- {}"
    cases = []
    for command, names in options.items():
        cases.append(f'    "{command} -"*) {offer.format(" ".join(names))} ;;')
        if arguments := arguments_of(command):
            cases.append(f'    "{command} "*) {offer.format(" ".join(arguments))} ;;')
    return (BASH if shell == "bash" else ZSH).format(
        cases="\n".join(cases), commands=" ".join(options), suites=" ".join(SUITES)
    )


def fish(options: Mapping[str, Iterable[str]]) -> str:
    """The script for fish. options: of each command."""
    lines = [f'complete -c ludic -n __fish_use_subcommand -f -a "{" ".join(options)}"']
    for command, names in options.items():
        seen = f'complete -c ludic -n "__fish_seen_subcommand_from {command}"'
        suites = f' -x -a "{" ".join(SUITES)}"'
        lines += [f"{seen} -l {n[2:]}{suites if n == '--suite' else ''}" for n in names]
        if arguments := arguments_of(command):
            lines.append(f'{seen} -a "{" ".join(arguments)}"')
    return "\n".join(lines) + "\n"
