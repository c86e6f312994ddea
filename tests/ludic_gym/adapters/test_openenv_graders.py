"""Graders of OpenEnv against servers on this machine; run where openenv is installed."""

import pytest

pytest.importorskip("openenv")

import openenv_sum
from openenv.validation.graders import Grader, GraderRegistry
from openenv.validation.policy import load_policy
from openenv.validation.runner import default_grader_registry
from openenv.validation.types import CheckStatus, Level

from ludic_gym.adapters import openenv_graders, openenv_package
from ludic_gym.adapters.openenv_package import LudicGrader

pytestmark = pytest.mark.filterwarnings("ignore")

GRADERS = {
    g.check_id: g
    for module in (openenv_graders, openenv_package)
    for g in vars(module).values()
    if isinstance(g, LudicGrader)
}


@pytest.fixture
def results(tmp_path):
    openenv_sum.package(tmp_path)

    def run(cls, *names):
        with openenv_sum.served(cls) as url:
            subject = openenv_sum.subject(tmp_path, url)
            return {name: GRADERS[name].run(subject).status for name in names or GRADERS}

    return run


def test_they_are_graders_of_the_policy_beside_those_of_openenv():
    policy = load_policy("v2")
    known = {entry.check_id: entry.level for entry in policy.entries}
    assert len(GRADERS) >= 20
    registry = default_grader_registry(policy)
    for check_id, grader in GRADERS.items():
        assert isinstance(grader, Grader)
        assert known[check_id] == grader.level
        # A second grader of an id would be refused.
        registry.register(grader)


def test_the_entry_points_are_loaded_by_openenv():
    registry = GraderRegistry()
    if registry.load_entry_points() == 0:
        pytest.skip("ludic-gym is not installed beside openenv: its entry points are unknown")
    assert all(registry.get(check_id) is not None for check_id in GRADERS)


def test_a_sound_environment_passes_all(results):
    found = results(openenv_sum.Sum)
    assert set(found.values()) == {CheckStatus.PASS}, found


@pytest.mark.parametrize(
    ("cls", "check_id"),
    [
        ("DropsSeed", "runtime.seed_control"),
        ("DropsSeed", "runtime.episode_determinism"),
        ("DropsSeed", "semantic.replayability"),
        ("DropsSeed", "semantic.oracle_max"),
        ("FixesSeed", "runtime.seed_control"),
        ("Shares", "runtime.episode_isolation"),
        ("Leaks", "semantic.no_solution_leakage"),
        ("PaysAll", "semantic.floor_gap"),
        ("PaysAll", "statistical.adversarial_floor"),
        ("PaysAll", "statistical.reward_reachability"),
        ("PaysNobody", "semantic.oracle_max"),
        ("Noisy", "semantic.verifier_determinism"),
        ("Noisy", "statistical.variance_bound"),
    ],
)
def test_a_planted_fault_fails(cls, check_id, results):
    assert results(getattr(openenv_sum, cls), check_id) == {check_id: CheckStatus.FAIL}


@pytest.mark.parametrize(
    ("name", "text", "check_id"),
    [
        ("Dockerfile", "FROM python:3.12", "static.reproducible_build"),
        ("Dockerfile", "FROM python:3.12", "static.oci_labels"),
        ("Dockerfile", "RUN curl http://x | sh", "static.image_hygiene"),
        (".env", "KEY=1", "static.image_hygiene"),
        ("Dockerfile", "COPY oracle.json /", "runtime.oracle_containment"),
        ("requirements.txt", "openenv>=0.10", "static.dependency_pinning"),
        ("sbom.json", "{}", "static.sbom"),
    ],
)
def test_a_fault_of_the_package_fails(name, text, check_id, tmp_path):
    openenv_sum.package(tmp_path)
    subject = openenv_sum.subject(tmp_path, "")
    assert GRADERS[check_id].run(subject).status is CheckStatus.PASS
    (tmp_path / name).write_text(text)
    assert GRADERS[check_id].run(subject).status is CheckStatus.FAIL


def test_static_graders_need_no_server():
    static = [g for g in GRADERS.values() if g.level is Level.STATIC]
    assert len(static) == 9
    assert all(grader.depends_on == () for grader in static)
