"""The scripts complete in the shells themselves."""

import io
import shutil
import subprocess
from contextlib import redirect_stdout

import pytest

from envs_registry.catalog import SUITES
from ludic_gym.commands.completion import options_of
from ludic_gym.commands.main import main

# Each prints the completions of the words in $LINE, of which the last is incomplete.
BASH = """
source "$SCRIPT"
read -ra COMP_WORDS <<< "$LINE"
[[ $LINE == *" " ]] && COMP_WORDS+=("")
COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
_ludic
printf '%s\\n' "${COMPREPLY[@]}"
"""
# Outside a terminal there is no completion system: its two commands print their words.
ZSH = """
compdef() { : }
compadd() { shift; print -l -- ${(M)@:#${words[CURRENT]}*} }
_files() { : }
source "$SCRIPT"
words=(${(s: :)LINE})
[[ $LINE == *" " ]] && words+=("")
CURRENT=${#words}
_ludic
"""
# `string` fails if there is nothing to split.
FISH = 'source "$SCRIPT"; complete -C "$LINE" | string split -f1 \\t; true'
SHELLS = {"bash": ["bash", "-c", BASH], "zsh": ["zsh", "-fc", ZSH], "fish": ["fish", "-c", FISH]}


@pytest.fixture(scope="module", params=SHELLS)
def complete(request, tmp_path_factory):
    """Completions of a command line in a shell."""
    shell = request.param
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    folder = tmp_path_factory.mktemp(shell)
    script = folder / "script"
    with redirect_stdout(io.StringIO()) as text:
        assert main(["completion", shell]) == 0
    script.write_text(text.getvalue())

    def completions(line):
        env = {"LINE": line, "SCRIPT": str(script), "HOME": str(folder), "PATH": "/usr/bin:/bin"}
        done = subprocess.run(
            SHELLS[shell], capture_output=True, text=True, env=env, cwd=folder, timeout=60
        )
        assert (done.returncode, done.stderr) == (0, "")
        return set(done.stdout.split())

    return completions


def test_commands(complete):
    assert complete("ludic be") == {"bench"}
    assert {"list", "bench", "view", "train"} <= complete("ludic ")


def test_options(complete):
    assert complete("ludic bench --samp") == {"--samples"}
    assert {"--algo", "--model", "--updates"} <= complete("ludic train --")
    assert "--samples" not in complete("ludic list --")


def test_environments_and_suites(complete):
    assert complete("ludic bench ludic/TicT") == {"ludic/TicTacToe-v0"}
    assert "games" in complete("ludic bench ga")
    assert complete("ludic list --suite ") == set(SUITES)


@pytest.mark.parametrize("command", ["bench", "train", "list", "status"])
def test_the_options_are_those_of_the_help(command, capsys):
    names = options_of(command)
    assert {"--help"} < set(names)
    assert len(names) == len(set(names))


def test_another_shell_is_refused(capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["completion", "tcsh"])
