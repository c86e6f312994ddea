import copy

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

import ludic_gym as lg
from ludic_gym.adapters.numeric_env import plain_picture
from ludic_gym.making import env_id_of, make_env

LAKE = {"is_slippery": False}


class Echo(gym.Env):
    """Shows the last action; the third ends the episode."""

    observation_space = spaces.Box(-9, 9, (2,))

    def __init__(self, space, info=None):
        self.action_space, self.info = space, info or {}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.seen = []
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.seen.append(action)
        ended = len(self.seen) == 3
        return np.array([1.23456, -1]), np.float32(0.5), ended, False, self.info


def played(env, *replies, seed=1):
    env.reset(seed=seed)
    return [env.step(reply) for reply in replies]


@pytest.mark.parametrize("env_id", ["FrozenLake-v1", "CliffWalking-v1", "Taxi-v4", "Blackjack-v1"])
def test_toy_texts_have_rules_and_are_played_by_their_ids(env_id):
    result = lg.evaluate(
        env_id, lg.RandomPolicy, episodes=4, progress=False, env_kwargs={}, attempts=1
    )
    assert (result.episodes, result.illegal, result.errors) == (4, 0, ())
    observation, info = make_env(env_id).reset(seed=1)
    assert "Reply with just your action: " in info["system_prompt"]
    assert any(start in observation for start in ("You are in row", "The taxi is", "Your cards"))


def test_the_picture_and_the_place_are_shown():
    env = make_env("FrozenLake-v1", **LAKE)
    env.reset(seed=1)
    lines = env.step("So I go down.")[0].splitlines()
    assert lines[1:5] == ["SFFF", "@HFH", "FFFH", "HFFG"]
    assert lines[-1] == "You are in row 1, column 0; row 0, column 0 is at the top left."
    assert plain_picture("\x1b[34;1mB\x1b[0m|\x1b[43m \x1b[0m") == "B|@"


def test_a_solved_lake_is_a_success_and_a_hole_is_none():
    way = ("down", "down", "right", "right", "down", "right")
    *_, last = played(make_env("FrozenLake-v1", **LAKE), *way)
    assert last[1:] == (1.0, True, False, {"prob": 1.0, "reward/total": 1.0, "success": True})
    *_, hole = played(make_env("FrozenLake-v1", **LAKE), "right", "down")
    assert (hole[1], hole[2], hole[4]["success"]) == (0.0, True, False)


@pytest.mark.parametrize(
    ("env_id", "kwargs", "reward"),
    # The shortest ways: 6 steps to the goal, 13 along the cliff.
    [("FrozenLake-v1", LAKE, 1.0), ("CliffWalking-v1", {}, -13.0)],
)
def test_the_oracle_plays_best_where_the_transitions_are_listed(env_id, kwargs, reward):
    result = lg.evaluate(env_id, lg.OraclePolicy, episodes=3, env_kwargs=kwargs, progress=False)
    assert (result.mean_reward, result.success_rate) == (reward, 1.0)


def test_an_environment_without_listed_transitions_has_no_oracle():
    env = make_env("Blackjack-v1")
    env.reset(seed=1)
    with pytest.raises(lg.NoOracle):
        env.oracle_action()


def test_equal_seeds_give_the_episodes_of_the_environment_itself():
    plain = gym.make("Blackjack-v1")
    for seed in range(5):
        env = make_env("Blackjack-v1")
        shown = env.reset(seed=seed)[0]
        assert f"sum to {plain.reset(seed=seed)[0][0]}," in shown
        first, again = copy.deepcopy(env).step("hit"), env.step("hit")
        assert first == again


@pytest.mark.parametrize(
    ("space", "reply", "action"),
    [
        (spaces.Discrete(3, start=1), "Action: 3", 3),
        (spaces.MultiDiscrete([3, 2]), "2, 1", [2, 1]),
        (spaces.MultiBinary(3), "[1, 0, 1]", [1, 0, 1]),
        (spaces.Box(-1, 1, (2,)), "My move is 0.5 -1", [0.5, -1]),
        (
            spaces.Dict(gear=spaces.Discrete(3), gas=spaces.Box(0, 1)),
            '{"gear": 2, "gas": 0.5}',
            None,
        ),
        (spaces.Tuple([spaces.Discrete(2), spaces.Box(0, 1, (2,))]), "[1, [0, 1]]", None),
    ],
)
def test_actions_of_every_space_are_read_from_replies(space, reply, action):
    inner = Echo(space)
    env = lg.as_text(inner)
    turn = played(env, reply)[0]
    assert turn[:2] == ("1.235 -1", 0.5)
    assert space.contains(inner.seen[0])
    assert action is None or np.array_equal(inner.seen[0], action)


@pytest.mark.parametrize(
    ("space", "reply"),
    [
        (spaces.Discrete(3), "3"),
        (spaces.MultiDiscrete([3, 2]), "2 2"),
        (spaces.MultiDiscrete([3, 2]), "1.5 1"),
        (spaces.Box(-1, 1, (2,)), "0.5"),
        (spaces.Box(-1, 1, (2,)), "0.5 nan"),
        (spaces.Box(-1, 1, (2,)), "[[[" * 9999),
        (spaces.Dict(gear=spaces.Discrete(3)), '{"gear": 1, "gas": 1}'),
        (spaces.Dict(gear=spaces.Discrete(3)), "1"),
    ],
)
def test_a_reply_that_is_no_action_is_not_played(space, reply):
    inner = Echo(space)
    observation, reward, *_, info = played(lg.as_text(inner), reply)[0]
    assert observation.startswith("No action was found. Reply with just your action: ")
    assert (inner.seen, reward, info["illegal"]) == ([], 0.0, True)


def test_the_third_reply_without_an_action_in_a_row_forfeits():
    env = make_env("Blackjack-v1")
    *_, last = played(env, "?", "?", "?")
    assert (last[1], last[2], last[4]["success"]) == (-1.0, True, False)


@pytest.mark.parametrize("env_id", ["Pendulum-v1", "CartPole-v1"])
def test_random_play_draws_from_the_space(env_id):
    result = lg.evaluate(env_id, lg.RandomPolicy, episodes=3, progress=False)
    assert (result.illegal, result.errors, result.episodes) == (0, (), 3)


def test_texts_and_names_of_ones_own():
    env = lg.as_text(gym.make("FrozenLake-v1", **LAKE), describe=str, actions=["w", "s", "e", "n"])
    assert [turn[0] for turn in played(env, "e", "<answer>w</answer>")] == ["1", "0"]
    assert env.legal_actions() == ("w", "s", "e", "n")
    named = lg.as_text(Echo(spaces.Box(-1, 1, (2,))), actions={"stop": np.zeros(2, np.float32)})
    assert played(named, "I stop.")[0][0] == "1.235 -1"


@pytest.mark.parametrize(
    ("env", "options", "message"),
    [
        (gym.make("FrozenLake-v1"), {"actions": ["a", "b"]}, "has 4 actions, got the names"),
        (gym.make("FrozenLake-v1"), {"actions": {"a": 7}}, "'a' is 7, which is not in Discrete"),
        (gym.make("Pendulum-v1"), {"actions": ["a"]}, "named by a dict"),
    ],
)
def test_names_that_do_not_fit_are_refused(env, options, message):
    with pytest.raises(lg.ConfigError, match=message):
        lg.as_text(env, **options)


def test_a_picture_needs_a_description():
    class Film(Echo):
        observation_space = spaces.Box(0, 255, (8, 8, 4), np.uint8)

    with pytest.raises(lg.ConfigError, match=r"256 numbers.*describe="):
        lg.as_text(Film(spaces.Discrete(2)))


def test_numbers_of_numpy_become_plain_ones_in_the_info():
    info = {"mask": np.array([1, 0]), "is_success": np.True_}
    *_, last = played(lg.as_text(Echo(spaces.Discrete(2), info)), "0", "0", "0")
    assert last[4] == {"mask": [1, 0], "is_success": True, "success": True, "reward/total": 0.5}


def test_a_function_is_played_under_an_id_of_its_own():
    def lake():
        return lg.as_text(gym.make("FrozenLake-v1", **LAKE), describe=str)

    policy = lg.ScriptedPolicy(["down", "down", "right", "right", "down", "right"])
    result = lg.evaluate(lake, lambda env: policy, episodes=2, concurrency=1, progress=False)
    assert result.success_rate == 1.0
    assert env_id_of(lake) == env_id_of(lake) == "python/lake-v0"


def test_legal_actions_of_any_environment_are_found():
    class Listed(gym.Wrapper):
        legal_actions = ("up", 2)

    assert lg.RandomPolicy(Listed(Echo(spaces.Discrete(2))))("?") in ("up", "2")

    class Legal(Echo):
        def legal_actions(self):
            return [np.int64(1)]

    env = lg.as_text(Legal(spaces.Discrete(2)), actions=["no", "yes"])
    env.reset(seed=1)
    assert env.legal_actions() == ("yes",)
