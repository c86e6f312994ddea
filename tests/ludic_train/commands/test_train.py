"""The command line of `ludic train`: what it asks for, without a training."""

import re
from dataclasses import fields
from pathlib import Path

import pytest

import ludic_train as lt
from ludic_gym.errors import ConfigError, LudicError
from ludic_train.commands import train as cli
from ludic_train.commands.train import main, overview, parsed
from ludic_train.commands.train_options import FOREIGN_OPTIONS
from ludic_train.recipes.catalog import RECIPES
from ludic_train.runs.config import PARTS, RunConfig
from ludic_train.runs.config_file import parse_recipe
from ludic_train.runs.folder import open_run
from ludic_train.runs.foreign_names import FOREIGN
from ludic_train.runs.machine import Machine
from ludic_train.runs.preset_options import PRESET_OPTIONS
from ludic_train.runs.recipe import Demonstrator

MODULE = """
import gymnasium as gym
import ludic_gym as lg
import ludic_train as lt

class Digits(lg.TextEnv):
    single_turn = True
    def start(self, options):
        self.answer = str(self.np_random.integers(10))
        return f"Say {self.answer}.", "Reply with a digit."
    def turn(self, action):
        return lg.end(success=action == self.answer)
    def best_action(self):
        return self.answer

gym.register("mine/Digits-v0", Digits)
RECIPE = lt.recipe_for(["mine/Digits-v0=3"])
"""


@pytest.fixture
def own_module(tmp_path, monkeypatch):
    (tmp_path / "command_env.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return "command_env"


def test_options_of_an_environment_have_defaults_for_its_model():
    found = parsed(["ludic/ConnectFour-v0"], ["--model", "m", "--lora-rank", "0", "--updates", "3"])
    assert (found.settings.model, found.settings.learn.updates) == ("m", 3)
    assert found.settings.learn.demonstrations == 0
    assert found.settings.out == Path("runs/connectfour")
    made = parsed(["ludic/ConnectFour-v0"], [])
    assert made.settings.learn.demonstrations > 0
    assert made.recipe.demonstrator == Demonstrator(policy="oracle")


@pytest.mark.parametrize("words", [["--algo", "ppo"], ["--algo=ppo"]])
def test_an_algorithm_has_options_of_its_own(words):
    found = parsed(["ludic/ConnectFour-v0"], ["--model", "m", *words, "--algo.lam", "0.9"])
    assert (found.settings.algo, found.settings.algo_options) == ("ppo", {"lam": 0.9})


@pytest.mark.parametrize("algo", PRESET_OPTIONS)
def test_help_lists_the_options_of_the_algorithm_that_is_named(algo, capsys):
    with pytest.raises(SystemExit):
        parsed(["ludic/ConnectFour-v0"], ["--model", "m", "--algo", algo, "--help"])
    printed = capsys.readouterr().out
    for option in PRESET_OPTIONS[algo]:
        assert f"--algo.{option.replace('_', '-')} " in printed


def test_a_recipe_keeps_its_algorithm_unless_another_is_named():
    for words, algo in (([], "self_play"), (["--algo", "rloo"], "rloo")):
        settings = parsed(["connect-four"], words).settings
        assert (settings.algo, settings.algo_options) == (algo, {})


def test_arguments_of_environments_reach_training_and_evaluation():
    words = ["--env-kwargs", "split=train", "--eval-kwargs", "split=test", "--model", "m"]
    found = parsed(["ludic/GSM8K-v0"], words)
    assert found.recipe.envs[0].kwargs == {"split": "train"}
    assert found.recipe.evals["test"].kwargs == {"split": "test"}
    changed = parsed(["gsm8k"], ["--env-kwargs", "data=x.jsonl", "--model", "m"])
    assert changed.recipe.envs[0].kwargs == {"split": "train", "data": "x.jsonl"}


def test_an_environment_of_the_current_folder_is_found(own_module):
    found = parsed([f"{own_module}:mine/Digits-v0=2"], [])
    assert found.recipe.envs[0].id == "command_env:mine/Digits-v0"
    assert found.recipe.demonstrator == Demonstrator(policy="oracle")


def test_a_recipe_of_the_current_folder_is_found(own_module):
    assert parsed([f"{own_module}:RECIPE"], []).recipe.envs[0].weight == 3.0
    with pytest.raises(ConfigError, match="has no Recipe 'OTHER'"):
        parsed([f"{own_module}:OTHER"], [])


def test_print_config_prints_what_a_file_may_hold(capsys, tmp_path):
    words = ["ludic/ConnectFour-v0=2", "ludic/Wordle-v0", "--model", "m", "--algo", "cispo"]
    assert main([*words, "--algo.high", "4", "--print-config"]) == 0
    text = capsys.readouterr().out
    recipe, _ = parse_recipe(text)
    assert [(env.id, env.weight) for env in recipe.envs] == [
        ("ludic/ConnectFour-v0", 2.0),
        ("ludic/Wordle-v0", 1.0),
    ]
    assert recipe.defaults.algo_options == {"high": 4.0}
    assert recipe.defaults.learn.lr == 5e-4
    path = tmp_path / "run.toml"
    path.write_text(text)
    again = parsed([], ["--config", str(path), "--updates", "7"])
    assert (again.settings.learn.updates, again.settings.algo_options) == (7, {"high": 4.0})
    assert again.recipe == recipe


def test_a_recipe_for_a_model_from_nothing_imitates_nothing_with_a_model():
    given = parsed(["arithmetic"], ["--model", "m"]).settings
    assert (given.learn.demonstrations, given.learn.sft_updates, given.sample.max_tokens) == (
        0,
        0,
        None,
    )
    # As asked for.
    more = parsed(["arithmetic"], ["--model", "m", "--demonstrations", "9"]).settings
    assert more == given.changed(demonstrations=9)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["tictactoe"], "did you mean tic-tac-toe"),
        (["chess"], "no environment, suite or recipe; recipes are tic-tac-toe"),
        (["ludic/Nothing-v0", "--model", "m"], "`ludic list` shows the ids"),
        (["ludic/ConnectFour-v0", "--env-kwargs", "zzz=1", "--model", "m"], "zzz"),
        (["ludic/ConnectFour-v0", "--algo", "grop"], "no algorithm 'grop'"),
        (["--resume"], "name it with --out"),
        (["arithmetic", "--resume", "--env-kwargs", "split=all"], "leave out --config"),
        (["--resume", "--out", "x", "--config", "x.toml"], "leave out --config"),
        (["--resume", "--out", "nowhere"], "no run to resume in nowhere"),
        (["--updates", "3"], "name an environment or a recipe"),
        (["arithmetic", "--config", "x.toml"], "leave out arithmetic"),
        (["gsm8k"], "gsm8k makes no model from nothing: name one with --model"),
    ],
)
def test_what_cannot_work_is_one_error_before_anything_is_loaded(words, said):
    with pytest.raises(LudicError, match=said):
        main(words)


def test_a_run_is_resumed_by_its_name_and_by_no_other(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("arithmetic", "ludic/ConnectFour-v0"):
        found = parsed([name], [])
        open_run(found.recipe, found.settings, resume=False)
        (found.settings.out / "checkpoints" / "step_00000001").mkdir(parents=True)
        (found.settings.out / "checkpoints" / "step_00000001" / "state.json").write_text("{}")
        again = parsed([name], ["--resume"])
        assert again.recipe.name == found.recipe.name
        assert again.settings == found.settings
    with pytest.raises(
        ConfigError, match="runs/connectfour holds a run of ConnectFour, not of arithmetic"
    ):
        parsed(["arithmetic"], ["--resume", "--out", "runs/connectfour"])


def test_the_overview_names_all_recipes_and_algorithms():
    for name in (*RECIPES, *PRESET_OPTIONS):
        assert name in overview()


def listed(words, capsys):
    """The text of a help, and its options."""
    with pytest.raises(SystemExit) as stopped:
        main(words)
    assert stopped.value.code == 0
    text = capsys.readouterr().out
    return text, set(re.findall(r"--[a-z][a-z.-]+", text))


def test_help_lists_what_people_use_with_defaults_and_help_all_the_rest(capsys):
    text, common = listed(["tic-tac-toe", "--help"], capsys)
    everything = listed(["tic-tac-toe", "--help-all"], capsys)[1]
    assert {"--group-size", "--algo.clip", "--help-all"} <= common
    assert "(default: 16)" in text
    assert len(common) <= 50
    assert {"--router-replay", "--context-parallel"} <= everything - common
    assert len(everything) > 90


def test_names_of_other_libraries_are_refused_with_those_that_they_have_here(tmp_path):
    for name in FOREIGN:
        option = f"--{name.replace('_', '-')}"
        with pytest.raises(ConfigError, match=f"no option {option}: write"):
            main(["tic-tac-toe", option, "1"])
        with pytest.raises(ConfigError, match=f"no setting '{name}': write"):
            lt.train("ludic/Arithmetic-v0", out=tmp_path, **{name: 1})


def test_what_is_to_be_written_for_a_foreign_name_exists(capsys):
    everything = listed(["tic-tac-toe", "--help-all"], capsys)[1]
    for text in FOREIGN_OPTIONS.values():
        option = re.match(r"--[a-z.-]+", text)
        assert option is None or option[0] in everything, text


def test_settings_are_objects_that_a_person_can_read():
    for kind in (RunConfig, *PARTS.values(), Machine):
        assert len(fields(kind)) <= 16
    names = [each.name for kind in (RunConfig, *PARTS.values(), Machine) for each in fields(kind)]
    assert len(names) == len(set(names))


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
