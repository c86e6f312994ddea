"""One algorithm and one set of settings for a run, by name and as an object."""

import inspect
import json
import re
import tomllib
from types import SimpleNamespace

import pytest
from trajectories import trajectory

import ludic_train as lt
from ludic_gym.errors import ConfigError
from ludic_train.algorithms.losses import CompositeLoss, EntropyBonus
from ludic_train.rows import after_credit, credited
from ludic_train.runs.config import IN_PYTHON, RunConfig
from ludic_train.runs.machine import Machine
from ludic_train.runs.preset_options import PRESET_OPTIONS, check_options
from ludic_train.runs.settled import settled
from ludic_train.types import REFERENCE

QUEUE = Machine(queue="redis://x")
SETTINGS = {
    "nothing": {},
    "kl": {"kl": 0.5},
    "entropy": {"entropy": 0.3},
    "final_entropy": {"entropy": 0.3, "final_entropy": 0.1},
    "full_batches": {"full_batches": True},
    "max_lag": {"max_lag": 3},
    "a tiny model": {"model": None},
    "no thoughts": {"think_tokens": 0},
    "cut replies are dropped": {"cut_off": "drop"},
}
# Of a whole run; what it plays is the same for every algorithm.
SMALL = {
    "demonstrations": 130,
    "sft_updates": 1,
    "updates": 1,
    "groups": 2,
    "group_size": 4,
    "eval_episodes": 1,
    "final_episodes": 1,
    "max_tokens": 6,
    "preflight": False,
}


def preset(name):
    """The object that a run with `SMALL` or `by_both` makes from a name."""
    make = getattr(lt, name)
    needed = {"max_tokens": 6} if "max_tokens" in inspect.signature(make).parameters else {}
    return make(**needed)


def by_both(name, **settings):
    """Algorithm and settings by the name of a preset, and by its object."""
    config = RunConfig(out="x").changed(**{"model": "m", "max_tokens": 6, **settings})
    named = settled(None, config.changed(algo=name), QUEUE)
    return named, settled(preset(name), config.changed(algo=IN_PYTHON), QUEUE)


def told_apart(algo):
    """The parts of an algorithm that compare; a filter or a baseline is a new one each time."""
    return (
        algo.name,
        algo.loss,
        algo.attach,
        algo.full_batches,
        algo.retire_at,
        algo.max_lag,
        algo.think_share,
        algo.filter is None,
        type(algo.credit),
        type(algo.refine),
    )


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
@pytest.mark.parametrize("name", PRESET_OPTIONS)
def test_a_name_and_its_object_become_the_same_algorithm_and_settings(name, settings):
    (named, config), (made, other) = by_both(name, **settings)
    assert told_apart(named) == told_apart(made)
    assert config.changed(algo=IN_PYTHON) == other


@pytest.mark.long
@pytest.mark.parametrize("name", PRESET_OPTIONS)
def test_a_name_and_its_object_learn_the_same(name, tmp_path):
    outs, algos = [tmp_path / "named", tmp_path / "object"], [name, preset(name)]
    for out, algo in zip(outs, algos, strict=True):
        # The default bonus of a tiny model is in it.
        lt.train("ludic/Arithmetic-v0", algo=algo, out=out, reward=varied, kl=0.5, **SMALL)
    files = [tomllib.loads((out / "config.toml").read_text()) for out in outs]
    assert files[0]["algo"] == name
    learn = files[0]["learn"]
    assert (learn["kl"], learn["entropy"], learn["final_entropy"]) == (0.5, 0.05, 0.0)
    assert {**files[0], "algo": "", "out": ""} == {**files[1], "algo": "", "out": ""}
    first, second = ([numbers(line) for line in lines(out)] for out in outs)
    assert first == second
    assert any("reference_kl" in line for line in first)


def varied(rollout):
    """A reward that differs between the replies of a model that knows nothing."""
    return sum(rollout.steps[0].decision.completions[0].completion_ids) % 3


def lines(out):
    return (out / "metrics.jsonl").read_text().splitlines()


def numbers(line):
    """The numbers of an update, without times."""
    found = json.loads(line)
    return {n: x for n, x in found.items() if not re.search("second|memory|rate", n)}


def test_settings_reach_an_object_in_a_run():
    config = RunConfig(out="x").changed(algo=IN_PYTHON, model="m", kl=0.5, entropy=0.3)
    made, _ = settled(lt.reinforce(), config)
    loss = CompositeLoss((lt.reinforce().loss, EntropyBonus(0.3)))
    assert made.loss == CompositeLoss((loss, lt.TokenKLLoss(0.5)))
    assert made.attach == {REFERENCE}


@pytest.mark.parametrize(
    ("settings", "machine"),
    [({"minibatches": 2}, Machine()), ({}, Machine(queue="redis://localhost/0"))],
    ids=["minibatches", "queue"],
)
def test_kl_corrects_for_the_sampler_where_params_move_between(settings, machine):
    config = RunConfig(out="x").changed(algo="grpo", model="m", kl=0.5, **settings)
    made, _ = settled(None, config, machine)
    assert made.loss.terms[1] == lt.UnbiasedTokenKLLoss(0.5)


@pytest.mark.parametrize(
    ("algo", "settings", "setting"),
    [
        (lt.grpo(entropy=0.1), {"entropy": 0.3}, "entropy=0.3"),
        (lt.distillation(), {"kl": 0.5}, "kl=0.5"),
        (lt.grpo(), {"algo_options": {"clip": 0.1}}, "algo_options"),
    ],
)
def test_a_setting_that_an_object_has_of_its_own_is_refused(algo, settings, setting):
    with pytest.raises(ConfigError, match=setting):
        settled(algo, RunConfig(out="x").changed(algo=IN_PYTHON, **settings))


def test_the_bonus_of_an_object_is_kept_in_place_of_a_tiny_models():
    own = lt.grpo(entropy=0.2)
    made, config = settled(own, RunConfig(out="x").changed(algo=IN_PYTHON))
    assert (made.loss, config.learn.entropy) == (own.loss, 0.0)


def test_numbers_that_were_left_open_follow_the_model_and_the_algorithm():
    def of(**settings):
        made = settled(None, RunConfig(out="x").changed(**settings))[1]
        return SimpleNamespace(**made.flat())

    assert (of().lr, of(model="m").lr, of(model="m", lora_rank=0).lr) == (1e-3, 5e-4, 1e-5)
    assert (of().entropy, of().final_entropy, of(model="m").entropy) == (0.05, 0.0, 0.0)
    assert of(model="m", algo="scalerl").think_tokens == 219
    assert of(model="m", algo="scalerl", think_tokens=0).think_tokens == 0
    assert of(model="m", algo="scalerl", agent="a:b").think_tokens is None


def test_a_lag_of_none_at_all_is_a_limit():
    def lag(machine, **settings):
        return settled(None, RunConfig(out="x").changed(**settings), machine)[0].max_lag

    assert lag(QUEUE, max_lag=0) == 0
    assert lag(QUEUE, minibatches=3) == 5
    assert lag(QUEUE, algo="scalerl") == lag(Machine(), algo="scalerl") == 8
    assert lag(Machine()) is None


def test_full_batches_drop_equal_groups_where_the_preset_keeps_them():
    (made, _), _ = by_both("rloo", full_batches=True)
    assert made.filter([trajectory(1.0), trajectory(1.0)]) == []


def test_options_reach_the_preset():
    (made, _), _ = by_both("dapo")
    assert (made.credit.max_tokens, made.credit.buffer) == (6, 1)
    config = RunConfig(out="x").changed(algo="grpo", model="m", algo_options={"clip": 0.3})
    assert settled(None, config)[0].loss == lt.grpo(clip=0.3).loss
    with pytest.raises(ConfigError, match="did you mean 'clip'"):
        check_options("grpo", {"clop": 1})


def test_options_and_their_help_are_those_of_the_functions():
    for name, options in PRESET_OPTIONS.items():
        known = inspect.signature(getattr(lt, name)).parameters
        assert set(options) == set(known) - {"entropy", "max_tokens", "parts"}, name
        assert all(known[n].default == option.default for n, option in options.items())
        assert all(option.help for option in options.values()), name


@pytest.mark.parametrize(
    "settings",
    [
        {"entropy": 0.06, "final_entropy": -0.01},
        {"entropy": 0.06, "final_entropy": 0.07},
    ],
)
def test_coefficients_that_cannot_be_meant_are_refused(settings):
    with pytest.raises(ConfigError, match="entropy"):
        settled(None, RunConfig(out="x").changed(model="m", **settings))


def test_cut_replies_stay_in_the_baseline_and_are_not_learned_from():
    algo, _ = settled(None, RunConfig(out="x").changed(model="m", cut_off="mask"))
    cut, whole = trajectory(0.0, cut=True), trajectory(1.0)
    learned = after_credit([cut, whole], algo)
    assert learned == [whole]
    (weights,) = credited([cut, whole], learned, algo)
    # By hand: mean 0.5 and deviation 0.7071 of the rewards 0 and 1.
    assert weights.tolist() == pytest.approx([0.7071], abs=1e-3)


def test_a_rollout_with_a_cut_reply_is_dropped():
    algo, _ = settled(None, RunConfig(out="x").changed(model="m", cut_off="drop"))
    cut, bad, good = trajectory(0.5, cut=True), trajectory(0.0), trajectory(1.0)
    assert algo.filter([cut, bad, good]) == [bad, good]
