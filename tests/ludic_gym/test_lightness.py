"""Each command loads what it needs and no more: modules in a fresh process."""

import json
import subprocess
import sys

import pytest
from made_once import made_once

# Runs each command, or each line of Python, in a fork of a process that has only imported the
# package, and prints a line with the names of the modules that are loaded when it ends.
PROBE = """
import contextlib, io, json, os, sys
import ludic_gym
for words in json.loads(sys.argv[1]):
    if os.fork():
        os.wait()
        continue
    with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()):
        if words[:1] == ["python"]:
            exec(words[1], {"lg": ludic_gym})
        else:
            from ludic_gym.commands.main import main
            words and main(words)
    print(json.dumps([words, sorted(sys.modules)]), flush=True)
    os._exit(0)
"""
HEAVY = {"torch", "transformers", "datasets", "aiohttp", "matplotlib", "pyarrow", "textarena"}
HEAVY |= {"openai", "anthropic", "httpx2"}
HEAVY |= {"reasoning_gym", "mcp", "bm25s", "math_verify", "sympy", "pytest"}
OURS = {f"ludic_gym.{name}" for name in ("clients", "data", "graders", "sandbox", "tools")}
PROGRAMS = {f"ludic_gym.{name}" for name in ("clients", "graders.programs", "sandbox", "tools")}
SUMS = ["bench", "ludic/Arithmetic-v0", "--policy", "random", "--episodes", "2"]
EVALUATE = 'lg.evaluate("ludic/Arithmetic-v0", lg.RandomPolicy, episodes=2, progress=False)'
MODEL = 'lg.model("http://localhost:1/v1", "model", harness="think-tag")'
COMMANDS = [
    (["--help"], HEAVY | OURS | {"tyro", "rich", "asyncio"}),
    (["list", "--help"], HEAVY | OURS | {"ludic_gym.bench", "ludic_gym.envs"}),
    (["play", "--help"], HEAVY | OURS | {"ludic_gym.envs"}),
    (["bench", "--help"], HEAVY | OURS),
    (["view", "--help"], HEAVY | OURS | {"ludic_gym.envs"}),
    # Of the plug-ins it runs the help only.
    (["check", "--help"], HEAVY | OURS),
    (SUMS, HEAVY | PROGRAMS),
    (["python", EVALUATE], HEAVY | PROGRAMS | {"tyro"}),
    (
        ["python", MODEL],
        HEAVY | OURS - {"ludic_gym.clients"} | {"rich", "tyro", "ludic_gym.bench"},
    ),
]


@pytest.fixture(scope="module")
def loaded(tmp_path_factory):
    """The modules that each command loads, and [] for no command at all, by its words."""
    commands = [[], *(words for words, _ in COMMANDS)]

    def make(folder):
        folder.mkdir()
        done = subprocess.run(
            [sys.executable, "-c", PROBE, json.dumps(commands)], capture_output=True, text=True
        )
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        assert [words for words, _ in lines] == commands, done.stderr
        (folder / "modules.json").write_text(json.dumps(lines))

    folder = made_once(tmp_path_factory, "modules", make)
    lines = json.loads((folder / "modules.json").read_text())
    return {tuple(words): modules for words, modules in lines}


def of(modules, prefixes):
    """Those modules that have one of the names, or lie below it."""
    return {name for name in modules for prefix in prefixes if f"{name}.".startswith(f"{prefix}.")}


@pytest.mark.long
@pytest.mark.parametrize(
    ("words", "forbidden"), COMMANDS, ids=[" ".join(words) for words, _ in COMMANDS]
)
def test_a_command_loads_nothing_that_it_does_not_need(words, forbidden, loaded):
    assert of(loaded[tuple(words)], forbidden) == set()


def test_importing_the_package_loads_no_module_of_it(loaded):
    modules = loaded[()]
    assert of(modules, HEAVY | {"rich", "tyro", "asyncio"}) == set()
    # The probe itself imports the commands.
    assert {m.split(".")[1] for m in of(modules, {"ludic_gym"}) - {"ludic_gym"}} == {
        *("commands", "errors", "packages")
    }


def test_a_submodule_counts_as_its_package():
    assert of({"a.b.c", "ab", "a"}, {"a"}) == {"a", "a.b.c"}
    assert of({"a.b.c", "a.bc"}, {"a.b"}) == {"a.b.c"}
