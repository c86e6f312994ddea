"""Recipes for any environment, and their tasks."""

import inspect
from collections import Counter
from dataclasses import replace
from itertools import islice

import gymnasium as gym
import pytest
from trajectories import trajectory

import ludic_gym as lg
from ludic_gym.errors import ConfigError
from ludic_train.algorithms import presets
from ludic_train.algorithms.composite import CompositeLoss
from ludic_train.algorithms.entropy_control import AdaptiveEntropy, AdaptiveEntropyBonus
from ludic_train.algorithms.losses import EntropyBonus
from ludic_train.recipes.catalog import ARITHMETIC
from ludic_train.runs.algo_options import ALGO_OPTIONS, OPTION_HELP
from ludic_train.runs.algorithm import PRESETS, algorithm_of, entropy_of
from ludic_train.runs.any_env import named_env, recipe_for, with_demonstrator, with_model
from ludic_train.runs.config import RunConfig
from ludic_train.runs.tasks import demonstration_tasks, evaluation_tasks, training_tasks
from ludic_train.types import REFERENCE


def config(recipe, **changes):
    return replace(recipe.defaults, **changes)


class Plain(gym.Env):
    """No class of ours."""

    observation_space = action_space = gym.spaces.Text(10, min_length=0)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return "say a", {}

    def step(self, action):
        return "", float(action == "a"), True, False, {"success": action == "a"}


gym.register("test/AnyPlain-v0", Plain)


def test_weights_share_any_number_of_first_tasks_to_within_one():
    recipe = recipe_for(["ludic/Wordle-v0=2", "ludic/Hangman-v0", "ludic/ConnectFour-v0=0.5"])
    shares = {"ludic/Wordle-v0": 4 / 7, "ludic/Hangman-v0": 2 / 7, "ludic/ConnectFour-v0": 1 / 7}
    seen = Counter()
    for number, task in enumerate(islice(training_tasks(recipe, config(recipe), 0), 300), 1):
        seen[task.env_id] += 1
        assert all(abs(seen[name] - share * number) <= 1 for name, share in shares.items())
    assert sum(seen.values()) == 300


def test_several_environments_are_measured_each_under_its_name():
    recipe = recipe_for(["ludic/Wordle-v0", "ludic/Hangman-v0"], eval_kwargs={})
    assert {n: t[0].env_id for n, t in evaluation_tasks(recipe, config(recipe), 1).items()} == {
        "Wordle": "ludic/Wordle-v0",
        "Hangman": "ludic/Hangman-v0",
    }


def test_a_suite_is_all_of_its_environments():
    recipe = recipe_for(["games"])
    assert "ludic/Countdown-v0" in {env.id for env in recipe.envs}
    assert len(recipe.envs) > 2


def test_rows_are_learned_from_once_a_pass_and_never_measured():
    recipe = recipe_for(["ludic/GSM8K-v0"])
    measured = [t.options["row"] for t in evaluation_tasks(recipe, config(recipe), 500)["test"]]
    kept = 53 - len(measured)
    tasks = list(islice(training_tasks(recipe, config(recipe), 0), 2 * kept))
    first, second = ([t.options["row"] for t in part] for part in (tasks[:kept], tasks[kept:]))
    assert len(measured) == len(set(measured)) == 11
    assert sorted(first) == sorted(second) == sorted(set(range(53)) - set(measured))
    assert first != second
    shown = {t.options["row"] for t in demonstration_tasks(recipe, config(recipe), 100)}
    assert shown == set(first)
    other_seed = islice(training_tasks(recipe, config(recipe), 1), kept)
    assert [t.options["row"] for t in other_seed] != first


def test_other_arguments_for_the_evaluation_leave_all_rows_on_both_sides():
    recipe = recipe_for(["ludic/MATH-v0"], env_kwargs={"level": 1}, eval_kwargs={"level": 2})
    train = next(training_tasks(recipe, config(recipe), 0))
    test = evaluation_tasks(recipe, config(recipe), 1)["test"][0]
    assert (train.kwargs, test.kwargs) == ({"level": 1}, {"level": 2})


def test_turns_and_attempts_are_settings_of_training_and_of_evaluation():
    recipe = recipe_for(["ludic/GSM8K-v0"])
    given = config(recipe, max_turns=3, attempts=2)
    train = next(training_tasks(recipe, given, 0))
    (test,) = evaluation_tasks(recipe, given, 1)["test"]
    assert (train.max_turns, train.attempts) == (test.max_turns, test.attempts) == (3, 2)


def test_the_best_demonstrator_that_an_environment_has_is_found():
    assert with_demonstrator(recipe_for(["ludic/ConnectFour-v0"])).demonstrator.policy == "oracle"
    parsed = with_demonstrator(recipe_for(["ludic/GSM8K-v0"]), "xml:answer")
    assert parsed.demonstrator.reply == "<answer>{}</answer>"
    with pytest.raises(ConfigError, match=r"test/AnyPlain-v0 has no demonstrator .*--model"):
        with_demonstrator(recipe_for(["test/AnyPlain-v0"]))


def test_an_environment_that_is_no_class_of_ours_has_tasks():
    recipe = recipe_for(["test/AnyPlain-v0"], model="m")
    assert next(training_tasks(recipe, config(recipe), 0)).options is None


@pytest.mark.parametrize("weight", ["0", "-1", "inf", "x"])
def test_weights_that_cannot_work_are_refused(weight):
    with pytest.raises(ConfigError, match=r"ludic/ConnectFour-v0.*weight"):
        named_env(f"ludic/ConnectFour-v0={weight}")


def test_defaults_follow_the_model():
    tiny = recipe_for(["ludic/ConnectFour-v0"])
    assert tiny.defaults.demonstrations > 0
    assert tiny.defaults.resolved().lr == 1e-3
    given = recipe_for(["ludic/ConnectFour-v0"], model="m").defaults
    assert (given.demonstrations, given.resolved().lr) == (0, 5e-4)
    assert replace(given, lora_rank=0).resolved().lr == 1e-5
    of_tiny = with_model(with_demonstrator(tiny), "m").defaults
    assert (of_tiny.demonstrations, of_tiny.sft_updates, of_tiny.lr) == (0, 0, None)


def test_the_options_of_each_algorithm_are_those_of_its_preset():
    given = {"entropy", "max_tokens", "parts"}
    for name, options in ALGO_OPTIONS.items():
        known = inspect.signature(PRESETS[name]).parameters
        assert set(options) == set(known) - given, name
        for option, usual in options.items():
            assert known[option].default in (usual, inspect.Parameter.empty), (name, option)
    assert {option for options in ALGO_OPTIONS.values() for option in options} == set(OPTION_HELP)


@pytest.mark.parametrize("name", ALGO_OPTIONS)
def test_every_algorithm_is_made_with_entropy_and_a_kl_term(name, tmp_path):
    made = algorithm_of(RunConfig(out=tmp_path, algo=name, entropy=0.1, kl=0.2, max_lag=3))
    assert made.name == name
    assert (made.max_lag, REFERENCE in made.attach) == (3, True)


def test_a_lag_of_none_at_all_is_a_limit(tmp_path):
    assert algorithm_of(RunConfig(out=tmp_path, max_lag=0)).max_lag == 0
    assert algorithm_of(RunConfig(out=tmp_path)).max_lag is None
    assert algorithm_of(RunConfig(out=tmp_path, algo="scalerl")).max_lag == 8


def test_full_batches_drop_equal_groups_where_the_preset_keeps_them(tmp_path):
    flat = [trajectory(1.0), trajectory(1.0)]
    assert algorithm_of(RunConfig(out=tmp_path, algo="rloo")).filter is None
    made = algorithm_of(RunConfig(out=tmp_path, algo="rloo", full_batches=True))
    assert (made.full_batches, made.filter(flat)) == (True, [])


def test_options_reach_the_preset(tmp_path):
    made = algorithm_of(RunConfig(out=tmp_path, algo="dapo", max_tokens=100))
    assert (made.credit.max_tokens, made.credit.buffer) == (100, 20)
    made = algorithm_of(RunConfig(out=tmp_path, algo="grpo", algo_options={"clip": 0.3}))
    assert made.loss == presets.grpo(clip=0.3).loss


def test_a_target_entropy_makes_the_bonus_follow_it(tmp_path):
    made = algorithm_of(RunConfig(out=tmp_path, entropy=0.06, target_entropy=0.3))
    assert made.refine == AdaptiveEntropy(0.3, highest=0.06)
    assert made.loss == CompositeLoss((presets.grpo().loss, AdaptiveEntropyBonus()))


@pytest.mark.parametrize(
    "settings",
    [{"entropy": 0.0}, {"target_entropy": -1.0}, {"final_entropy": 0.0}],
)
def test_a_target_entropy_without_a_largest_coefficient_is_refused(settings, tmp_path):
    with pytest.raises(ConfigError, match=r"target_entropy=.* with entropy="):
        RunConfig(out=tmp_path, **{"entropy": 0.06, "target_entropy": 0.3, **settings})


@pytest.mark.parametrize("final", [-0.01, 0.07])
def test_an_entropy_bonus_that_rises_or_turns_negative_is_refused(final, tmp_path):
    with pytest.raises(ConfigError, match=rf"final_entropy={final}; .* from entropy=0\.06"):
        RunConfig(out=tmp_path, entropy=0.06, final_entropy=final)


@pytest.mark.parametrize(
    ("settings", "bonus"),
    [
        ({"entropy": 0.06}, 0.06),
        ({"entropy": 0.0, "final_entropy": 0.0}, 0.0),
        ({"entropy": 0.06, "final_entropy": 0.01}, EntropyBonus(0.06, final=0.01, updates=200)),
    ],
)
def test_the_entropy_bonus_falls_over_the_updates_where_a_final_one_is_given(
    settings, bonus, tmp_path
):
    assert entropy_of(RunConfig(out=tmp_path, **settings)) == bonus


@pytest.mark.parametrize(
    ("spec", "text", "action"),
    [
        ("last-number", "so 1,200 - 3 = 1,197.", "1197"),
        ("last-number", "x = -3/4", "-3/4"),
        ("last-number", "none", None),
        ("xml:move", "<move>left</move>", "left"),
        ("json:move", '{"move": "up"}', "up"),
        ("boxed", r"\boxed{4}", "4"),
    ],
)
def test_parsers_have_names(spec, text, action):
    assert lg.named_parser(spec)(text).action == action


@pytest.mark.parametrize(
    "made",
    [lambda m: recipe_for(["ludic/ConnectFour-v0"], model=m), lambda m: with_model(ARITHMETIC, m)],
)
def test_a_model_of_our_own_is_trained_whole_and_in_large_steps(made):
    own, other = made("ludic-small").defaults, made("some/model").defaults
    assert (own.lora_rank, own.lr) == (0, 4e-4)
    assert (other.lora_rank, other.lr) == (16, None)
