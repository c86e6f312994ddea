import importlib
import subprocess
import sys
import warnings

import gymnasium as gym
import pettingzoo
import pytest

import ludic_gym  # noqa: F401 (registers the ids)
from envs_registry import register_envs
from envs_registry.catalog import CATALOG, SUITES, bench_kwargs
from ludic_gym.audit.episodes import levels_are_ordered
from ludic_gym.audit.subject import AuditSubject, statement_of
from ludic_gym.testing import rules, scale
from ludic_gym.testing.check import check_text_env

IDS = [entry.id for entry in CATALOG]
entries = pytest.mark.parametrize("entry", CATALOG, ids=IDS)


# Hostile texts are programs to these, some without an end: they need not run for long.
PROGRAMS = ("PythonFunctions", "StdinStdout", "SQL")
QUICK = {f"ludic/{name}-v0": {"cpu_s": 0.2} for name in PROGRAMS}


@pytest.fixture(params=["few", pytest.param("many", marks=pytest.mark.slow)])
def episodes_played(request, monkeypatch):
    """The rules play as many episodes as for a user, or fewer: some episodes run programs."""
    if request.param == "few":
        # Not those of `scale`, which another process plays too.
        monkeypatch.setattr(rules, "SEEDS", range(2))
        monkeypatch.setattr(scale, "FEW", 20)
        monkeypatch.setattr(scale, "BUDGET_S", 0.1)


@pytest.mark.long
@pytest.mark.usefixtures("episodes_played")
@pytest.mark.parametrize("env_id", IDS)
def test_every_environment_keeps_the_contract(env_id):
    check_text_env(env_id, **QUICK.get(env_id, {}))


@pytest.mark.long
@pytest.mark.usefixtures("episodes_played")
@pytest.mark.parametrize(
    ("env_id", "kwargs"),
    [
        ("ludic/TicTacToe-v0", {"opponent": "mixed", "seat": "random", "draw_reward": 0.5}),
        ("ludic/TicTacToe-v0", {"opponent": "perfect", "seat": "second"}),
        ("ludic/RockPaperScissors-v0", {"rounds": 2, "opponent": "mixed"}),
        ("ludic/Negotiation-v0", {"turns": 3, "seat": "random"}),
        ("ludic/InstructionFollowing-v0", {"constraints": 6}),
        ("ludic/Arithmetic-v0", {"operations": "+-*", "steps": 3, "split": "test"}),
    ],
)
def test_it_is_kept_with_other_options_too(env_id, kwargs):
    check_text_env(env_id, **kwargs)


@entries
def test_importing_ludic_gym_makes_every_view_known(entry):
    assert entry.id in gym.registry
    assert (entry.id in pettingzoo.aec_registry) == bool(entry.aec)
    assert (entry.id in pettingzoo.parallel_registry) == bool(entry.parallel)


def test_registering_again_changes_nothing():
    before = gym.spec("ludic/TicTacToe-v0")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        register_envs()
    assert gym.spec("ludic/TicTacToe-v0") is before


@entries
def test_every_entry_point_exists(entry):
    for entry_point in filter(None, (entry.gym, entry.aec, entry.parallel)):
        module, _, attribute = entry_point.partition(":")
        assert callable(getattr(importlib.import_module(module), attribute))


def test_ids_are_unique_and_carry_a_version():
    assert len(set(IDS)) == len(IDS)
    assert all(env_id.startswith("ludic/") and "-v" in env_id for env_id in IDS)


def test_suites_name_environments_that_exist():
    assert {"ludic/GSM8K-v0", "ludic/RepoRepair-v0"} <= set(SUITES["core"])
    assert all(set(ids) <= set(IDS) for ids in SUITES.values())


def test_a_suite_names_the_real_split_of_every_data_set():
    assert bench_kwargs("core")["ludic/GSM8K-v0"] == {"split": "test"}
    datasets = {entry.id for entry in CATALOG if "dataset" in entry.tags}
    named = {id_ for suite in SUITES for id_, kwargs in bench_kwargs(suite).items() if kwargs}
    assert named == datasets


def test_gymnasium_finds_an_id_through_the_module():
    program = "import gymnasium; print(gymnasium.make('ludic_gym:ludic/Arithmetic-v0').spec.id)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.strip() == "ludic/Arithmetic-v0", done.stderr


@pytest.mark.long
@pytest.mark.parametrize("every", [8, pytest.param(1, marks=pytest.mark.slow)])
def test_no_baseline_does_better_on_a_harder_level(every):
    stated = [entry.id for entry in CATALOG if entry.levels[0]][::every]
    found = {
        env_id: levels_are_ordered(
            AuditSubject(env_id=env_id, statement=statement_of(env_id), episodes=10)
        )
        for env_id in stated
    }
    outcomes = [outcome for outcome, _, _ in found.values()]
    assert "fail" not in outcomes, {i: f[1] for i, f in found.items() if f[0] == "fail"}
    assert outcomes.count("pass") >= 13 // every
