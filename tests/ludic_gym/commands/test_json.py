"""`--json` of the commands that print tables: the numbers of the table, and nothing else."""

import json

import pytest

from ludic_gym.commands.main import main

SUMS = "ludic/Arithmetic-v0"


@pytest.fixture
def printed(capsys):
    """The exit code and the JSON of a command."""

    def run(*words):
        capsys.readouterr()
        code = main([*map(str, words), "--json"])
        return code, json.loads(capsys.readouterr().out)

    return run


def test_a_success_rate_that_is_too_low_leaves_the_json_whole(printed):
    words = ["--policy", "random", "--episodes", "2", "--fail-under", "0.9"]
    code, found = printed("bench", SUMS, *words)
    assert (code, found["results"][SUMS]["successes"]) == (1, 0)


def test_a_tournament(printed):
    words = ["--policy", "random", "--policy", "oracle", "--tournament", "--episodes", "2"]
    code, found = printed("bench", "ludic/TicTacToe-v0", *words)
    assert (code, found["errors"]) == (0, {})
    assert [rating["games"] for rating in found["ratings"]] == [4, 4]
