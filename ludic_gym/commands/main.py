"""The command `ludic`: run a subcommand, print our errors as one line, return an exit code.

Further packages add subcommands by the entry points of the group "ludic.commands":

    [project.entry-points."ludic.commands"]
    train = "ludic_train.commands.train:main"
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import cast

import ludic_gym
from ludic_gym.errors import ConfigError, LudicError, SampleWarning, SkippedRowsWarning
from ludic_gym.packages import TRAIN_PACKAGES, advice_for, find_plugins, load_plugin

Command = Callable[[list[str]], int]

COMMANDS = ("list", "play", "bench", "view", "check", "audit", "serve")
"""The commands of this package; those of others are entry points."""
# Of all, in the order of `ludic --help`: loading a plug-in for its own takes seconds for torch.
SUMMARIES = {
    "list": "the environments, by suite",
    "play": "play an environment yourself, alone or against a policy",
    "bench": "play environments with policies, and compare or rate them",
    "view": "look at runs and compare them: one HTML file, or tables (--text)",
    "check": "test an environment against the contract, your own too",
    "audit": "test whether the reward of an environment can be trusted",
    "train": "let a model learn to play; needs the extra 'train'",
    "serve": "serve an environment as tools, or a model (extra 'train'), by HTTP",
    "launch": "trainer, servers and actors, here or in a Ray cluster; needs the extra 'train'",
    "status": "state and load of servers and of a run with a queue; needs the extra 'train'",
    "doctor": "compare a server with the trainer, and test pushing params; needs 'train'",
    "model": "make a small chat model; needs the extra 'train'",
}
EXAMPLES = """\
examples:
  ludic list
  ludic play ludic/TicTacToe-v0 --against perfect
  ludic bench ludic/Arithmetic-v0 --policy oracle
  ludic train tic-tac-toe"""
_PYTHON_LINE = warnings.formatwarning
USAGE_ERROR = 2
INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line; the exit code.

    argv: the arguments after `ludic`; None for those of the process.
    Returns 0 for success, 1 for a failure (see the subcommand), 2 for bad input, 130 for Ctrl-C.
    Errors that are not ours are bugs and raised, with their traceback; but those of files.
    """
    args = list(sys.argv[1:] if argv is None else argv)
    warnings.formatwarning = warning_line
    try:
        return run(args)
    except LudicError as error:
        # One line and no traceback: these errors are about the input, and name the remedy.
        print(f"ludic: {one_line(error)}", file=sys.stderr)
        return USAGE_ERROR
    except KeyboardInterrupt:
        # 128 + SIGINT, by which a shell ends a script of several commands too.
        return INTERRUPTED
    except BrokenPipeError:
        # The reader (`| head`) has closed the pipe; the flush at exit must not raise again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        # With the name of a file, a folder or file of the command line cannot be used.
        if error.filename is None:
            raise
        text = f"{error.filename}: {error.strerror}; name a path that can be used"
        print(f"ludic: {text}", file=sys.stderr)
        return USAGE_ERROR


def warning_line(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    line: str | None = None,
) -> str:
    """A warning about rows as one line; any other as Python writes it, with its place."""
    if issubclass(category, SampleWarning | SkippedRowsWarning):
        return f"ludic: {message}\n"
    return _PYTHON_LINE(message, category, filename, lineno, line)


def run(args: list[str]) -> int:
    """Run the subcommand that the first argument names; its exit code.

    Raises ConfigError for an unknown subcommand, and the errors of the subcommand.
    """
    if not args or args[0] in {"-h", "--help"}:
        print(overview())
        return 0
    if args[0] == "--version":
        print(f"ludic {ludic_gym.__version__}")
        return 0
    return find_command(args[0])(args[1:])


def find_command(name: str) -> Command:
    """The function behind a subcommand, which takes its arguments and returns the exit code.

    Raises ConfigError if there is none of that name, MissingPackage if its package cannot be
    imported.
    """
    # Imported by name, so that a command loads nothing of the others. Before the plug-ins, so that
    # no package can replace a command of our own.
    if name in COMMANDS:
        return cast(Command, import_module(f"ludic_gym.commands.{name.replace('-', '_')}").main)
    plugins = find_plugins("ludic.commands")
    if name not in plugins:
        # Imported here: a command that exists needs no suggestion.
        from ludic_gym.terminal import suggestion

        names = dict.fromkeys([*COMMANDS, *plugins])
        raise ConfigError(f"no command {name!r}; {suggestion(name, list(names))}")
    command = cast(Command, load_plugin(plugins[name]))

    # A plug-in loads without its heavy packages, so that its help needs none of them.
    def advised(args: list[str]) -> int:
        with advice_for(name, TRAIN_PACKAGES):
            return command(args)

    return advised


def overview() -> str:
    """The text of `ludic --help`, with the subcommands of installed packages."""
    plugins = find_plugins("ludic.commands")
    texts = {name: text for name, text in SUMMARIES.items() if name in {*COMMANDS, *plugins}}
    others = {name: f"from {plugins[name].module.split('.')[0]}" for name in plugins}
    lines = [f"  {name:11s} {text}" for name, text in (texts | others | texts).items()]
    head = "usage: ludic COMMAND [...]\n\nText environments for language-model agents.\n\ncommands:"
    tail = "`ludic COMMAND --help` describes a command."
    return "\n".join([head, *lines, "", EXAMPLES, "", tail])


def one_line(error: BaseException) -> str:
    r"""The text of an error without line breaks.

    >>> one_line(ConfigError("no env 'x';\n  see `ludic list`"))
    "no env 'x'; see `ludic list`"
    """
    return " ".join(str(error).split())
