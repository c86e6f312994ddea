import dataclasses
import inspect
import pkgutil
from importlib import import_module

import docstring_parser
import pytest

import ludic_gym.commands
from ludic_gym.commands.arguments import parse, print_table
from ludic_gym.errors import ConfigError


@dataclasses.dataclass(frozen=True, kw_only=True)
class Inner:
    often: int = 1
    """Used often."""
    seldom: int = 2
    """Used seldom."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Outer:
    """Do something."""

    name: str
    inner: Inner = Inner()


def parsed(*argv):
    return parse(
        Outer,
        argv,
        command="do",
        examples="ludic do --name x",
        common=("often",),
        foreign={"--max-steps": "--often N"},
    )


@pytest.mark.parametrize(("word", "hidden"), [("--help", True), ("--help-all", False)])
def test_help_shows_the_common_options_and_help_all_every_one(word, hidden, capsys):
    with pytest.raises(SystemExit) as ended:
        parsed(word, "--inner.seldom", "3")
    shown = capsys.readouterr().out
    assert ended.value.code == 0
    # One without a default must be given, so it is shown always.
    assert "--name" in shown
    assert "Used often. (default: 1)" in shown
    assert ("--inner.seldom" not in shown) is hidden
    assert ("--help-all shows all" in shown) is hidden


def test_options_that_help_does_not_show_are_parsed():
    assert parsed("--name", "x", "--inner.seldom", "3").inner == Inner(seldom=3)


@pytest.mark.parametrize("word", ["--max-steps", "--max_steps=3"])
def test_an_option_of_another_library_is_refused_with_its_name_here(word):
    with pytest.raises(ConfigError, match=r"write --often N"):
        parsed("--name", "x", word)


def test_texts_are_printed_as_they_are(capsys):
    print_table(("id", "title"), [("[bold]x[/bold]", "one"), ("y", "[red]")], title="[b]t[/b]")
    assert [line.rstrip() for line in capsys.readouterr().out.splitlines()] == [
        "[b]t[/b]",
        "id              title",
        "[bold]x[/bold]  one",
        "y               [red]",
    ]


def test_numbers_are_aligned_to_the_right(capsys):
    print_table(("env", "rate"), [("a", "5.0%"), ("bcd", "100.0%")], numbers=True)
    assert [line.rstrip() for line in capsys.readouterr().out.splitlines()] == [
        "env   rate",
        "a     5.0%",
        "bcd 100.0%",
    ]


def test_no_help_text_breaks_its_lines_where_the_source_does():
    names = [m.name for m in pkgutil.iter_modules(ludic_gym.commands.__path__)]
    modules = [import_module(f"ludic_gym.commands.{name}") for name in names]
    classes = [
        value
        for module in modules
        for value in vars(module).values()
        if inspect.isclass(value) and dataclasses.is_dataclass(value)
    ]
    assert len(classes) > 10
    for params in (docstring_parser.parse_from_object(each).params for each in classes):
        assert not [each.arg_name for each in params if "\n" in (each.description or "")]
