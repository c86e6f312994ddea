from functools import partial
from importlib.util import find_spec

import gymnasium as gym
import pytest

import ludic_gym  # noqa: F401 (registers the ids)
from envs_registry.catalog import ADAPTERS, SKIPPED
from ludic_gym.adapters.reasoning_gym_env import GUARDS, ReasoningGymEnv, answer_of
from ludic_gym.errors import ConfigError
from ludic_gym.testing.check import check_text_env
from ludic_gym.testing.rules import RULES

# Not imported here: every worker of a run collects this file, and few run its tests.
pytestmark = pytest.mark.skipif(
    find_spec("reasoning_gym") is None, reason="needs the extra `adapters`"
)
ATTACKS = (
    "9**9**9",
    "__import__('os').getpid()",
    "[].__class__",
    "(lambda: 1)()",
    "[print(1)]",
    "'a'*10**9",
    "entry['answer']",
    "[entry['answer']]",
    "oracle_answer",
    "F'{entry}'",
    "1\n*\n*9",
)


@pytest.mark.long
def test_a_data_set_keeps_the_contract():
    check_text_env("ludic/rg-chain_sum-v0")


@pytest.mark.parametrize(("rule", "check"), RULES, ids=[rule for rule, _ in RULES])
def test_one_whose_scorer_runs_answers_keeps_it_too(rule, check):
    check(partial(gym.make, "ludic/rg-spiral_matrix-v0", disable_env_checker=True))


@pytest.mark.parametrize(
    "name", ["ab", "countdown", "n_queens", "puzzle24", "pool_matrix", "string_insertion"]
)
def test_the_oracle_scores_1_and_nothing_said_scores_less(name):
    env = gym.make(f"ludic/rg-{name}-v0").unwrapped
    for row in range(5):
        env.reset(options={"row": row})
        _, reward, over, _, info = env.step(env.oracle_action())
        assert (reward, over, info["success"], info["score"]) == (1.0, True, True, 1.0)
        env.reset(options={"row": row})
        assert not env.step("?")[4]["success"]


@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.parametrize("name", sorted(GUARDS))
def test_a_scorer_that_runs_answers_does_not_get_to_see_a_program(name, attack):
    env = ReasoningGymEnv(name)
    env.reset(seed=0)
    info = env.step(f"<answer>{attack}</answer>")[4]
    assert (info["score"], info["scorer_error"][:7]) == (0.0, "refused")


@pytest.mark.parametrize("name", sorted(GUARDS))
def test_the_guard_lets_right_answers_through(name):
    env = ReasoningGymEnv(name)
    for row in range(10):
        env.reset(options={"row": row})
        assert env.step(env.oracle_action())[4]["scorer_error"] == ""


def test_raw_pays_the_score_and_strict_only_full_marks():
    for mode, expected in (("raw", 0.01), ("strict", 0.0)):
        env = ReasoningGymEnv("fraction_simplification", mode=mode)
        env.reset(seed=0)
        _, reward, _, _, info = env.step("no fraction")
        assert (reward, info["score"], info["success"]) == (expected, 0.01, False)
        assert info["reward/score"] == reward


def test_a_scorer_that_breaks_gives_nothing_and_says_why():
    env = ReasoningGymEnv("game_of_life")
    env.reset(seed=0)
    info = env.step("<answer>{}</answer>")[4]
    assert (info["score"], info["scorer_error"]) == (0.0, "KeyError(0)")


@pytest.mark.parametrize("answer", ["nan", "NaN", "nan+nanj"])
def test_what_is_no_number_is_close_to_none(answer):
    env = ReasoningGymEnv("complex_arithmetic")
    env.reset(seed=0)
    assert env.step(answer)[1] == 0.0


def test_settings_and_seed_of_the_data_choose_the_puzzles():
    terms = {"min_terms": 2, "max_terms": 2, "min_digits": 1, "max_digits": 1}
    plain, small, other = (
        ReasoningGymEnv("chain_sum", **kwargs).reset(options={"row": 0})[0]
        for kwargs in ({}, {"config": terms}, {"config": terms, "data_seed": 1})
    )
    assert len({plain, small, other}) == 3
    assert len(small) < len(plain)


def test_a_row_is_a_puzzle_and_seeds_draw_among_all():
    env = ReasoningGymEnv("chain_sum", size=5)
    assert {env.reset(seed=seed)[1]["row"] for seed in range(60)} == set(range(5))
    assert env.reset(options={"row": 3})[0] == env.reset(seed=9, options={"row": 3})[0]


@pytest.mark.parametrize(
    ("kwargs", "complaint"),
    [
        ({"dataset": "chain_sums"}, "cannot make 'chain_sums'"),
        ({"dataset": "chain_sum", "mode": "lenient"}, "mode is one of strict, raw"),
        ({"dataset": "chain_sum", "config": {"terms": 3}}, "'chain_sum' with .*terms"),
        ({"dataset": "chain_sum", "config": {"min_terms": -1}}, "cannot make 'chain_sum'"),
        ({"dataset": "simple_integration"}, "runs answers as Python"),
        ({"dataset": "composite"}, "consists of other data sets"),
    ],
)
def test_what_cannot_be_made_is_refused_when_it_is_made(kwargs, complaint):
    with pytest.raises(ConfigError, match=complaint):
        ReasoningGymEnv(**kwargs)


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("12", "12"),
        ("<think><answer>1</answer></think> so <answer>12</answer>.", "12"),
        ("<answer>12</answer> yes, <answer>12</answer>", "12"),
        ("<answer>12</answer> or <answer>13</answer>", ""),
        ("<answer>\n1 2\n3 4\n</answer>", "1 2\n3 4"),
        ("<answer>12", "<answer>12"),
        ("<think>maybe <answer>12</answer>", ""),
        ("", ""),
    ],
)
def test_the_answer_is_in_tags_or_all_there_is(text, answer):
    assert answer_of(text) == answer


def test_opening_tags_behind_the_answer_are_not_followed_to_the_end():
    # It takes minutes otherwise.
    assert answer_of("<answer>1</answer>" + "<answer>" * 100_000) == "1"


def test_every_data_set_is_an_environment_or_has_a_reason_not_to_be():
    from reasoning_gym.factory import DATASETS

    ours = {entry.kwargs["dataset"] for entry in ADAPTERS if entry.package == "reasoning-gym"}
    assert ours | SKIPPED["reasoning-gym"].keys() == set(DATASETS)
    assert not ours & SKIPPED["reasoning-gym"].keys()
