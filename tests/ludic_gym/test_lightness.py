"""Each command loads what it needs and no more: modules in a fresh process."""

import json
import subprocess
import sys

import pytest

# Prints the names of all modules that are loaded when the program ends, however it ends.
PROBE = """
import contextlib, io, json, sys
with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()):
    {program}
print(json.dumps(sorted(sys.modules)))
"""
HEAVY = {"torch", "transformers", "datasets", "aiohttp", "matplotlib", "pyarrow", "textarena"}
HEAVY |= {"reasoning_gym", "mcp", "bm25s", "math_verify", "sympy", "pydantic_monty", "pytest"}
OURS = {f"ludic_gym.{name}" for name in ("clients", "data", "graders", "sandbox", "tools")}
PROGRAMS = {f"ludic_gym.{name}" for name in ("clients", "graders.programs", "sandbox", "tools")}
SUMS = ["bench", "ludic/Arithmetic-v0", "--policy", "random", "--episodes", "2"]
COMMANDS = [
    (["--help"], HEAVY | OURS | {"tyro", "rich", "asyncio"}),
    (["list", "--help"], HEAVY | OURS | {"rich", "ludic_gym.bench", "ludic_gym.envs"}),
    (["play", "--help"], HEAVY | OURS | {"rich", "ludic_gym.envs"}),
    (["bench", "--help"], HEAVY | OURS | {"rich"}),
    (["compare", "--help"], HEAVY | OURS | {"rich", "ludic_gym.envs"}),
    (["view", "--help"], HEAVY | OURS | {"rich", "ludic_gym.envs"}),
    (["tournament", "--help"], HEAVY | OURS | {"rich", "ludic_gym.envs"}),
    (["check", "--help"], HEAVY | OURS | {"rich"}),
    (["sandbox", "--help"], HEAVY | OURS - {"ludic_gym.sandbox"} | {"rich", "ludic_gym.envs"}),
    (SUMS, HEAVY | PROGRAMS),
]


def loaded(program):
    """The modules that a program loads."""
    command = [sys.executable, "-c", PROBE.format(program=program)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout))


def of(modules, prefixes):
    """Those modules that have one of the names, or lie below it."""
    return {name for name in modules for prefix in prefixes if f"{name}.".startswith(f"{prefix}.")}


@pytest.mark.parametrize(("words", "forbidden"), COMMANDS, ids=[" ".join(w) for w, _ in COMMANDS])
def test_a_command_loads_nothing_that_it_does_not_need(words, forbidden):
    program = f"from ludic_gym.commands.main import main; main({words!r})"
    assert of(loaded(program), forbidden) == set()


def test_importing_the_package_loads_no_module_of_it():
    modules = loaded("import ludic_gym")
    assert of(modules, HEAVY | {"rich", "tyro", "asyncio"}) == set()
    assert of(modules, {"ludic_gym"}) == {"ludic_gym"}


def test_a_submodule_counts_as_its_package():
    assert of({"a.b.c", "ab", "a"}, {"a"}) == {"a", "a.b.c"}
    assert of({"a.b.c", "a.bc"}, {"a.b"}) == {"a.b.c"}
