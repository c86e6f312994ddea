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
    "--updates": ["2"],
    "--episodes": ["3"],
    "--offline": [],
    "--max-tokens": ["24"],
    "--groups": ["4"],
    "--group-size": ["4"],
    "--eval-episodes": ["3"],
    "--games": ["200"],
    "--imitate": ["40"],
}


def options(program):
    """The program's own options, with small values."""
    known = set(re.findall(r'add_argument\("(--[\w-]+)"', program.read_text()))
    return [word for name, values in SMALL.items() if name in known for word in (name, *values)]


# Half a minute each, and what they use has tests of its own.
LONG = {"train_self_play.py"}
PROGRAMS = [
    pytest.param(path, id=path.name, marks=pytest.mark.slow if path.name in LONG else ())
    for path in EXAMPLES
]


@pytest.mark.long
@pytest.mark.parametrize("program", PROGRAMS)
def test_an_example_runs(program, tmp_path):
    words = options(program)
    done = forked.run([str(program), *words], cwd=tmp_path, timeout=300)
    assert done.returncode == 0, done.stderr
    assert ("update   2  " in done.stdout) == ("--updates" in words)
    assert done.stdout


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
