import dataclasses
import inspect
import pkgutil
from importlib import import_module

import docstring_parser

import ludic_gym.commands
from ludic_gym.commands.arguments import print_table


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
