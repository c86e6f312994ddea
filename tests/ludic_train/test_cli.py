import pytest

from ludic_gym.cli import main


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
    assert "(default: 8)" in text


def test_an_unknown_recipe_is_answered_with_those_there_are(capsys):
    assert main(["train", "chess"]) == 2
    assert "no recipe 'chess'; there are: tic-tac-toe, arithmetic" in capsys.readouterr().err
