"""Recipes for any environment, and their tasks."""

import shlex
from collections import Counter
from itertools import islice

import gymnasium as gym
import pytest

from ludic_gym.commands.arguments import keyword_arguments
from ludic_gym.errors import ConfigError
from ludic_gym.harness import Harness
from ludic_train.recipes.catalog import ARITHMETIC
from ludic_train.runs.recipe import named_env, recipe_for, with_demonstrator, with_model
from ludic_train.runs.tasks import demonstration_tasks, evaluation_tasks, training_tasks


def config(recipe, **changes):
    return recipe.defaults.changed(**changes)


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
    parsed = with_demonstrator(recipe_for(["ludic/GSM8K-v0"]), Harness(parser="xml:answer"))
    assert parsed.demonstrator.reply == "<answer>{}</answer>"
    with pytest.raises(ConfigError, match=r"test/AnyPlain-v0 has no demonstrator .*--model"):
        with_demonstrator(recipe_for(["test/AnyPlain-v0"]))


def test_legal_actions_of_any_environment_make_demonstrations():
    class Legal(Plain):
        def legal_actions(self):
            return ["a", "b"]

    gym.register("test/AnyLegal-v0", Legal)
    assert with_demonstrator(recipe_for(["test/AnyLegal-v0"])).demonstrator.policy == "random"
    assert with_demonstrator(recipe_for(["Taxi-v4"])).demonstrator.policy == "oracle"
    assert with_demonstrator(recipe_for(["Blackjack-v1"])).demonstrator.policy == "random"


def test_an_environment_that_is_no_class_of_ours_has_tasks():
    recipe = recipe_for(["test/AnyPlain-v0"], model="m")
    assert next(training_tasks(recipe, config(recipe), 0)).options is None


@pytest.mark.parametrize("weight", ["0", "-1", "inf", "x"])
def test_weights_that_cannot_work_are_refused(weight):
    with pytest.raises(ConfigError, match=r"ludic/ConnectFour-v0.*weight"):
        named_env(f"ludic/ConnectFour-v0={weight}")


def test_defaults_follow_the_model():
    tiny = recipe_for(["ludic/ConnectFour-v0"])
    assert tiny.defaults.learn.demonstrations > 0
    assert recipe_for(["ludic/ConnectFour-v0"], model="m").defaults.learn.demonstrations == 0
    of_tiny = with_model(with_demonstrator(tiny), "m").defaults
    assert (of_tiny.learn.demonstrations, of_tiny.learn.sft_updates, of_tiny.learn.lr) == (
        0,
        0,
        None,
    )


@pytest.mark.parametrize(
    "made",
    [lambda m: recipe_for(["ludic/ConnectFour-v0"], model=m), lambda m: with_model(ARITHMETIC, m)],
)
def test_a_model_of_our_own_is_trained_whole_and_in_large_steps(made):
    own, other = made("ludic-small").defaults, made("some/model").defaults
    assert (own.tune.lora_rank, own.learn.lr) == (0, 4e-4)
    assert (other.tune.lora_rank, other.learn.lr) == (16, None)


def test_the_command_that_tries_a_run_repeats_its_arguments(tmp_path):
    data = tmp_path / "my rows.jsonl"
    data.write_text('{"context": "Ann has 2.", "ask": "How many?", "n": 2}')
    fields = {"question": "{context} {ask}", "answer": "n"}
    kwargs = {"data": str(data), "fields": fields}
    recipe = recipe_for(["ludic/GSM8K-v0"], env_kwargs=kwargs)
    words = shlex.split(recipe.try_it.format(out="runs/x"))
    assert words[:4] == ["bench", "ludic/GSM8K-v0", "--policy", "runs/x"]
    assert keyword_arguments(words[words.index("--env-kwargs") + 1 :][:2]) == kwargs
