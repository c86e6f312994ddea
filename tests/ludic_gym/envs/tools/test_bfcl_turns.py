"""Conversations of BFCL on the worlds of the package: verdicts as by the published program."""

import copy
import json
import os
import pickle
import random
from itertools import count
from pathlib import Path

import gymnasium as gym
import pytest

pytest.importorskip("bfcl_eval", reason="pip install --no-deps bfcl-eval mpmath")
from bfcl_eval.eval_checker.multi_turn_eval.multi_turn_checker import multi_turn_checker

from ludic_gym.envs.tools.bfcl import answered_rows, data_folder
from ludic_gym.envs.tools.bfcl_turns import (
    CATEGORIES,
    MOST_REPLIES,
    NEW_FUNCTIONS,
    BFCLMultiTurnEnv,
    calls_of,
    run,
    world_class,
)
from ludic_gym.envs.tools.calls import Call
from ludic_gym.testing.check import check_text_env

NAMES = count()


def played(env, row, replies):
    """Reward and last info. replies: of each message, a list of replies."""
    env.reset(seed=0, options={"row": row})
    for reply in replies:
        text, reward, done, _, info = env.step(reply)
        if done:
            return reward, info
    raise AssertionError(text)


def by_oracle(env, row):
    env.reset(seed=0, options={"row": row})
    done = False
    while not done:
        _, reward, done, _, info = env.step(env.best_action())
    return reward, info


@pytest.mark.long
@pytest.mark.parametrize("category", CATEGORIES)
def test_the_oracle_wins_every_row_and_a_refusal_none(category):
    env = BFCLMultiTurnEnv(category=category)
    for row in range(0, env.num_rows, 5):
        reward, info = by_oracle(env, row)
        assert (reward, info["rule"]) == (1, "fulfilled"), row
        refusals = ["I cannot do that."] * 9
        assert played(env, row, refusals)[0] == 0


def as_python(call):
    return f"{call.name}({', '.join(f'{k}={v!r}' for k, v in call.arguments.items())})"


def changed(calls, rng):
    """Calls with one less, one twice, another argument or another order."""
    kind, calls = rng.randrange(6), list(calls)
    if not calls:
        return [Call("pwd", {})] if kind < 2 else []
    place = rng.randrange(len(calls))
    if kind == 0:
        del calls[place]
    elif kind == 1:
        calls.insert(place, calls[place])
    elif kind == 2 and calls[place].arguments:
        name, value = rng.choice(list(calls[place].arguments.items()))
        other = value + 1 if type(value) in (int, float) else f"{value}x"
        calls[place] = Call(calls[place].name, {**calls[place].arguments, name: other})
    elif kind == 3:
        rng.shuffle(calls)
    return calls


@pytest.mark.long
@pytest.mark.parametrize("category", CATEGORIES[:3])
def test_verdicts_are_those_of_the_published_program(category):
    env, rng, verdicts = BFCLMultiTurnEnv(category=category), random.Random(0), []
    rows = [row.fields for row in answered_rows(data_folder(None), category)]
    for row in range(0, env.num_rows, 4):
        for is_changed in (False, True, True):
            env.reset(seed=0, options={"row": row})
            made, ended = [], None
            for texts in env.question.calls:
                calls = [call for text in texts for call in calls_of(text, env._goal)]
                calls = changed(calls, rng) if is_changed else calls
                # All calls in one reply, or one in each.
                steps = rng.choice([[[call] for call in calls], [calls] if calls else []])
                made.append([[as_python(call) for call in step] for step in steps])
                if ended is not None:
                    continue
                for step in steps:
                    env.step(json.dumps([json.loads(call.as_json()) for call in step]))
                _, reward, done, *_ = env.step("That is all.")
                ended = reward if done else None
            theirs = multi_turn_checker(
                made,
                [list(texts) for texts in env.question.calls],
                copy.deepcopy(rows[row]),
                category,
                # The package keeps worlds by this name.
                f"model{next(NAMES)}",
            )
            assert ended == theirs["valid"], (rows[row]["id"], made, theirs)
            verdicts.append(ended)
    assert 0.2 < sum(verdicts) / len(verdicts) < 0.8


def test_a_function_that_is_held_back_is_offered_with_its_message():
    env = BFCLMultiTurnEnv(category="multi_turn_miss_func")
    env.reset(seed=0, options={"row": 0})
    names = [tool["function"]["name"] for tool in env.action_tools]
    assert "sort" not in names
    done, texts = False, []
    while not done:
        text, reward, done, *_ = env.step(env.best_action())
        texts.append(text)
    (late,) = [text for text in texts if NEW_FUNCTIONS in text]
    assert late.startswith('{"name": "sort"')
    assert "sort" in [tool["function"]["name"] for tool in env.action_tools]
    assert reward == 1


def test_replies_without_end_end_the_episode():
    env = BFCLMultiTurnEnv()
    reward, info = played(env, 0, ["[pwd()]"] * (MOST_REPLIES + 1))
    assert (reward, info["rule"]) == (0, f"more than {MOST_REPLIES} replies with calls")


@pytest.mark.parametrize(
    ("call", "result"),
    [
        (Call("no_such", {}), "Error during execution: name 'no_such' is not defined"),
        (Call("_load_scenario", {}), "Error during execution: name '_load_scenario' is not "),
        (Call("power", {"base": 2, "exponent": 10**9}), "Error during execution: 1000000000 is "),
        (Call("power", {"base": 2, "exponent": 3}), '{"result": 8}'),
        (Call("add", {"a": 1}), "Error during execution: MathAPI.add() missing 1 required"),
    ],
)
def test_calls_are_made_on_public_functions_only_and_end_soon(call, result):
    assert run({"MathAPI": world_class("MathAPI")()}, call).startswith(result)


def test_an_episode_can_be_copied_and_pickled_in_the_middle():
    env = BFCLMultiTurnEnv()
    env.reset(seed=0, options={"row": 0})
    env.step(env.best_action())
    for twin in (copy.deepcopy(env), pickle.loads(pickle.dumps(env))):
        assert twin.step(DONE := "That is all.")[:4] == copy.deepcopy(env).step(DONE)[:4]


@pytest.mark.long
def test_it_keeps_the_contract():
    check_text_env("ludic/BFCL-MultiTurn-v0")


def test_its_own_files_and_those_of_the_package_are_the_same():
    project = Path(__file__).parents[4]
    folder = Path(os.environ.get("LUDIC_DATA_DIR", project.parent / "shared" / "data")) / "bfcl"
    if not folder.is_dir():
        pytest.skip(f"needs the original data in {folder}; set LUDIC_DATA_DIR")
    env = gym.make("ludic/BFCL-MultiTurn-v0", data=str(folder)).unwrapped
    assert env.origin.hash == BFCLMultiTurnEnv().origin.hash
