"""Every example runs, as small as it can be: a new one is tested by being there."""

import json
import re
from pathlib import Path
from runpy import run_path

import forked
import pytest

import ludic_gym as lg

pytest.importorskip("torch", reason="the examples train")
ROOT = Path(__file__).parent.parent / "examples"
# Programs that need each other or servers have tests of their own.
ELSEWHERE = {"pipeline_rl"}
EXAMPLES = [path for path in sorted(ROOT.rglob("*.py")) if path.parent.name not in ELSEWHERE]
SMALL = {
    "updates": ["2"],
    "episodes": ["3"],
    "offline": [],
    "max-tokens": ["24"],
    "groups": ["4"],
    "group-size": ["4"],
    "eval-episodes": ["3"],
    "games": ["200"],
    "imitate": ["40"],
    "demonstrations": ["130"],
    "sft-updates": ["2"],
}


def options(program):
    """The program's own options, with small values."""
    text = program.read_text()
    known = set(re.findall(r'add_argument\("--([\w-]+)"', text))
    # Of the function that tyro makes a command of.
    known |= {name.replace("_", "-") for name in re.findall(r"^    (\w+): .+ = .+,$", text, re.M)}
    known |= set(re.findall(r"def main\((\w+):", text))
    words = [word for name, values in SMALL.items() if name in known for word in (name, *values)]
    return [f"--{word}" if word in SMALL else word for word in words]


PROGRAMS = [pytest.param(path, id=path.name) for path in EXAMPLES]


@pytest.fixture(scope="module")
def tiny_model(tmp_path_factory):
    """A model that plays Tic-Tac-Toe, for programs that offer no `--offline`."""
    folder = tmp_path_factory.mktemp("models") / "tiny"
    program = [str(ROOT / "tic_tac_toe" / "train_tic_tac_toe.py"), "--updates", "0"]
    small = ["--games", "200", "--imitate", "40", "--save", str(folder)]
    done = forked.run([*program, *small], cwd=folder.parent)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.long
@pytest.mark.parametrize("program", PROGRAMS)
def test_an_example_runs(program, tmp_path, request):
    words = options(program)
    if program.name == "train_lora.py":
        words += ["--model", str(request.getfixturevalue("tiny_model")), "--harness", "plain"]
    done = forked.run([str(program), *words], cwd=tmp_path, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout
    if "--updates" in words:
        finished = list(tmp_path.glob("runs/*/results.json"))
        assert finished or "update   2  " in done.stdout


def test_the_example_by_hand_is_one_short_file_that_learns(tmp_path):
    program = ROOT / "grpo_by_hand.py"
    assert len(program.read_text().splitlines()) <= 150
    done = forked.run([str(program), "--updates", "12"], cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    rewards = [float(line.split()[-1]) for line in done.stdout.splitlines()]
    assert rewards[-1] > rewards[0] + 0.3


@pytest.mark.parametrize("program", EXAMPLES, ids=lambda path: path.name)
def test_an_example_begins_with_how_to_run_it(program):
    assert f"{program.relative_to(ROOT.parent)}" in program.read_text()


def test_there_are_examples():
    assert EXAMPLES


def test_every_solution_of_the_apps_example_passes_its_tests(tmp_path):
    example = run_path(str(ROOT / "apps" / "train_apps.py"))
    rows = tmp_path / "rows.jsonl"
    rows.write_text("\n".join(map(json.dumps, example["ROWS"])))
    env_kwargs = {"data": str(rows)}
    result = lg.evaluate(example["ENV_ID"], lg.OraclePolicy, env_kwargs=env_kwargs, progress=False)
    # A program, a function and a method.
    assert (result.episodes, result.successes) == (3, 3)
