import pytest

from ludic_gym.commands.main import main
from ludic_train.commands import train as cli


def test_train_explains_itself(capsys):
    assert main(["train", "--help"]) == 0
    text = capsys.readouterr().out
    assert "ludic train tic-tac-toe" in text
    assert "arithmetic" in text


def test_a_recipe_lists_its_options_with_defaults(capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["train", "tic-tac-toe", "--help"])
    assert stopped.value.code == 0
    text = capsys.readouterr().out
    assert "--group-size" in text
    assert "(default: 16)" in text


def test_an_unknown_recipe_is_answered_with_those_there_are(capsys):
    assert main(["train", "chess"]) == 2
    assert "no recipe 'chess'; there are: tic-tac-toe, arithmetic" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("path", "typed"),
    [("bin", "ludic"), ("elsewhere", ".venv/bin/ludic")],
)
def test_commands_to_type_next_name_the_program_as_the_shell_finds_it(
    path, typed, tmp_path, monkeypatch
):
    program = tmp_path / "bin" / "ludic"
    program.parent.mkdir()
    program.touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path / path))
    monkeypatch.setattr("sys.argv", [".venv/bin/ludic", "train"])
    assert cli.program() == typed
