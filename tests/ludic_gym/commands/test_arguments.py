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
