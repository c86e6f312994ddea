"""Known faults of tasks of other packages are dated, named and mended."""

import itertools
from importlib.metadata import version

import gymnasium as gym
import pytest

import ludic_gym  # noqa: F401 (registers the ids)
from envs_registry.catalog import ADAPTERS
from envs_registry.errata import ERRATA
from ludic_gym.adapters.mends import ANSWERS, ENTRIES, GAMES
from ludic_gym.commands.main import main

IDS = {entry.id: entry for entry in ADAPTERS}
pytest.importorskip("reasoning_gym")
pytest.importorskip("textarena")


@pytest.mark.parametrize(("env_id", "erratum"), list(ERRATA.items()))
def test_each_erratum_is_of_the_installed_version_and_says_what_is_done(env_id, erratum):
    # With a newer version, look whether the fault is still there, and write that version down.
    assert version(erratum.package) == erratum.version
    assert erratum.action in ("mended", "noted")
    assert bool(erratum.mend) == (erratum.action == "mended")
    assert IDS[env_id].package == erratum.package


def test_every_mend_is_of_a_mended_id():
    names = {f"ludic/rg-{name}-v0" for name in (*ENTRIES, *ANSWERS)}
    names |= {f"ludic/ta-{name}" for name in GAMES}
    assert names == {env_id for env_id, one in ERRATA.items() if one.action == "mended"}


def test_the_list_shows_errata(capsys):
    main(["list", "--all"])
    text = capsys.readouterr().out
    assert "mended, textarena 0.7.4, 2025-09-25: pays the distance from the best button" in text


def button_pays(seed, choose):
    env = gym.make("ludic/ta-Bandit-v0")
    env.reset(seed=seed)
    odds = env.unwrapped._match._env.state.game_state["ground_truth"]
    over = False
    while not over:
        _, reward, over, *_ = env.step(f"[{choose(odds, key=odds.get)}]")
    return reward


@pytest.mark.parametrize("seed", range(3))
def test_the_best_button_pays_1_and_the_worst_0(seed):
    assert (button_pays(seed, max), button_pays(seed, min)) == (1.0, 0.0)


# What follows by Aristotle's figures; others do not, in any reading.
VALID = {
    ("all", "all"): {"all", "some"},
    ("all", "no"): {"no", "some not"},
    ("some", "all"): {"some"},
    ("some", "no"): {"some not"},
}


def sentence(quantity, one, other):
    text = f"{quantity} {one} are {other}"
    return text if quantity != "some not" else f"some {one} are not {other}"


@pytest.mark.parametrize(("one", "two"), [*itertools.product(("all", "no", "some"), repeat=2)])
def test_truths_of_the_first_figure_are_aristotles(one, two):
    for then in ("all", "no", "some", "some not"):
        given = f"1. {sentence(one, 'ants', 'bees')}\n2. {sentence(two, 'bees', 'cats')}"
        question = f"{given}\nDoes it logically follow that:\n{sentence(then, 'ants', 'cats')}?"
        entry = ENTRIES["syllogism"]({"question": question, "answer": "as it was"})
        # Where an empty kind makes the difference, the package's answer stays.
        expected = "Yes" if then in VALID.get((one, two), ()) else "No"
        assert entry["answer"] in (expected, "as it was")
        strong = (one, two, then) in {("all", "all", "some"), ("all", "no", "some not")}
        assert (entry["answer"] == "as it was") == strong


def test_an_expression_of_other_numbers_is_not_24():
    env = gym.make("ludic/rg-puzzle24-v0")
    env.reset(seed=1)
    assert env.step("6*4*1*1")[1] == 0.0
    env.reset(seed=1)
    assert env.step(env.unwrapped.oracle_action())[1] == 1.0
