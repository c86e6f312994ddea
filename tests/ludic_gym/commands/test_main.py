import re
import signal
import subprocess
import sys
import textwrap
import time
from importlib.metadata import EntryPoint

import pytest

from envs_registry.catalog import CATALOG
from ludic_gym.commands.main import main
from ludic_gym.errors import ConfigError
from ludic_gym.packages import load_plugin

RANDOM = ("--policy", "random")


@pytest.mark.parametrize("command", ["list", "play", "bench", "check"])
def test_each_command_explains_itself_with_examples(command, capsys):
    with pytest.raises(SystemExit, match="0"):
        main([command, "--help"])
    assert f"examples:\n  ludic {command}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["benhc"], "no command 'benhc'; did you mean 'bench'?"),
        (["Viev"], "did you mean 'view'?"),
        (
            ["qqq"],
            "no command 'qqq'; there are: list, play, bench, view",
        ),
        (["list", "--suite", "game"], "no suite 'game'; did you mean 'games'?"),
        (["bench", "game", *RANDOM], "Did you mean: `games`?"),
        (["bench", "GSM8k", *RANDOM], "Did you mean: `ludic/GSM8K-v0`?"),
        (["check", "ludic/GSM9K-v0"], "Did you mean: `GSM8K`?"),
        (
            ["bench", "ludic/rg-game_of_life_halting-v0", *RANDOM],
            "rg-game_of_life_halting is left out: it gives 1.0 to any text",
        ),
        (
            ["bench", "qqqqqqq", *RANDOM],
            "(`ludic list` shows the ids)",
        ),
    ],
)
def test_misspelt_names_get_a_suggestion(words, hint, capsys):
    assert main(words) == 2
    error = capsys.readouterr().err
    assert hint in error
    assert error.count("?") <= 1


def test_home_made_questions_are_named_in_one_line():
    words = ["bench", "ludic/SQL-v0", "--policy", "oracle", "--episodes", "1"]
    done = subprocess.run(
        [sys.executable, "-m", "ludic_gym", *words], capture_output=True, text=True
    )
    assert done.stderr.startswith("ludic: these are 30 home-made questions (sql_sample.jsonl): ")
    assert "sample: a few home-made questions, not the data set" in done.stdout


def test_python_m_runs_the_same_program():
    command = [sys.executable, "-m", "ludic_gym", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout[:8]) == (0, "ludic 0.")


def test_a_reader_that_stops_early_is_no_error():
    command = f"{sys.executable} -m ludic_gym list | head -c 1"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("i", "")


def test_a_plugin_without_its_library_says_how_to_install_it(tmp_path, monkeypatch):
    (tmp_path / "needs_torch.py").write_text("import a_torch_that_is_absent.nn")
    monkeypatch.syspath_prepend(tmp_path)
    point = EntryPoint(name="train", value="needs_torch:main", group="ludic.commands")
    with pytest.raises(ConfigError, match=r"needs a_torch_that_is_absent.*install .*\[train\]'"):
        load_plugin(point)


# Runs a command where no package of the extra 'train' can be imported.
WITHOUT_TRAIN = """
import sys
from ludic_gym.commands.main import main
from ludic_gym.packages import TRAIN_PACKAGES
class Absent:
    def find_spec(name, path=None, target=None):
        if name.partition(".")[0] in TRAIN_PACKAGES:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Absent)
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.long
def test_help_needs_no_package_of_the_trainer():
    commands = [
        "train",
        "launch --only actor",
        "launch",
        "serve",
        "status",
        "doctor",
        "model",
    ]
    asked = f"""
for command in {["train tic-tac-toe", *commands]}:
    try:
        main([*command.split(), "--help"])
    except SystemExit as end:
        assert end.code == 0, command
"""
    program = WITHOUT_TRAIN.replace("sys.exit(main(sys.argv[1:]))\n", asked)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    shown = re.findall(r"^usage: ludic (\w+)", done.stdout, re.MULTILINE)
    assert shown == ["train", *(command.split()[0] for command in commands)]


@pytest.mark.long
@pytest.mark.parametrize("words", [["model"], ["train", "tic-tac-toe"]])
def test_a_command_without_its_packages_says_how_to_install_them(words, tmp_path):
    words = [sys.executable, "-c", WITHOUT_TRAIN, *words, "--out", str(tmp_path / "out")]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert re.search(r"needs \w+, which is not installed: .*install .*\[train\]'", done.stderr)


BROKEN_ENV = """
    import gymnasium as gym
    from ludic_gym.envs.core.base import TextEnv

    class Broken(TextEnv):
        def start(self, options):
            return "?", ""

        def turn(self, action):
            return "", 1.0, True, False, {"success": True, "reward/part": 0.5}

    gym.register("mine/Broken-v0", "broken_envs:Broken", order_enforce=False)
"""


@pytest.mark.long
def test_check_all_takes_every_id(monkeypatch, capsys):
    few = [entry for entry in CATALOG if entry.id in ("ludic/ConnectFour-v0", "ludic/GSM8K-v0")]
    monkeypatch.setattr("ludic_gym.commands.check.CATALOG", few)
    assert main(["check", "--all"]) == 0
    assert re.fullmatch(
        r"ok      ludic/GSM8K-v0: keeps \d+ rules\n"
        r"ok      ludic/ConnectFour-v0: keeps \d+ rules\n"
        r"2 of 2 keep the contract\n",
        capsys.readouterr().out,
    )


@pytest.mark.long
def test_check_passes_ours_and_fails_an_env_that_breaks_the_contract(tmp_path):
    (tmp_path / "broken_envs.py").write_text(textwrap.dedent(BROKEN_ENV))
    ids = ["ludic/Arithmetic-v0", "broken_envs:mine/Broken-v0"]
    done = subprocess.run(
        [sys.executable, "-m", "ludic_gym", "check", *ids],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    passed, broken, failed, summary = done.stdout.splitlines()
    assert re.fullmatch(r"ok      ludic/Arithmetic-v0: keeps \d+ rules", passed)
    assert re.fullmatch(r"FAILED  mine/Broken-v0: keeps \d+ rules, breaks 1", broken)
    assert summary == "1 of 2 keep the contract"
    assert "sum to the reward" in failed
    assert "0.5, but the reward is 1.0" in failed


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ([], "see `ludic list`"),
        (["ludic/TicTacTo-v0"], "Did you mean: `TicTacToe`"),
        (["nowhere:mine/Env-v0"], "module 'nowhere', which is neither installed nor in this"),
        (["ludic/TicTacToe-v0", "--env-kwargs", "colour=red"], "colour"),
        (["ludic/TicTacToe-v0", "--env-kwargs", "opponent=strong"], "got 'strong'"),
        (["ludic/TicTacToe-v0", "--env-kwargs", "opponent"], "'opponent' is not of the form"),
    ],
)
@pytest.mark.parametrize("command", ["bench", "check"])
def test_ids_and_arguments_that_cannot_work_are_refused(command, arguments, complaint, capsys):
    assert main([command, *arguments, *(RANDOM if command == "bench" else ())]) == 2
    error = capsys.readouterr().err
    assert complaint in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (
            "bench ludic/Wordle-v0 --policy random --episodes 1 --out /dev/null",
            "/dev/null: File exists; name a path",
        ),
        (
            "bench ludic/Wordle-v0 --policy http://[ --episodes 1",
            "base_url is an http(s) address, got 'http://['",
        ),
        ("bench ludic/ConnectFour-v0 --fail-under 7", "a rate from 0 to 1, got 7"),
        ("bench ludic/ConnectFour-v0 --fail-under nan", "a rate from 0 to 1, got nan"),
        ("bench ludic/ConnectFour-v0 --price -1 2", "prices are 0 or more, got (-1.0, 2.0)"),
        ("serve ludic/ConnectFour-v0 --port 70000", "--port is from 0 (any free one) to 65535"),
        ("view . --serve --port -1", "got -1"),
        ("audit ludic/ConnectFour-v0 --levels colour=1,2", "colour"),
        ("bench ludic/TicTacToe-v0 --tournament --policy random", "at least two policies"),
        ("bench ludic/Arithmetic-v0 --limit 3", "there is no option --limit: write --episodes N"),
        ("bench ludic/Arithmetic-v0 --price 3", "--price is IN OUT or IN OUT CACHED, got (3.0,)"),
    ],
)
def test_paths_and_numbers_that_cannot_be_used_are_one_line(words, complaint, capsys):
    assert main(words.split()) == 2
    # A bar may be on the screen before it.
    assert complaint in capsys.readouterr().err.splitlines()[-1]


def test_ctrl_c_at_the_prompt_leaves_at_once():
    command = [sys.executable, "-m", "ludic_gym", "play", "ludic/TicTacToe-v0"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as game:
        shown = b""
        while not shown.endswith(b"> "):
            shown += game.stdout.read(1)
        # A signal between the prompt and the system call that reads is seen after that call.
        time.sleep(0.5)
        game.send_signal(signal.SIGINT)
        assert game.wait(timeout=30) == 130


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("import no_such_dependency", "No module named 'no_such_dependency'"),
        ("def f(:", "invalid syntax (unimportable.py, line 1)"),
    ],
)
def test_a_module_whose_import_fails_says_why(source, why, tmp_path, monkeypatch, capsys):
    (tmp_path / "unimportable.py").write_text(source)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    assert main(["check", "unimportable:mine/Env-v0"]) == 2
    assert f"names the module 'unimportable', whose import fails: {why}" in capsys.readouterr().err
