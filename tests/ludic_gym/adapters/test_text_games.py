"""Games of TextWorld and ALFWorld: made here, played by the packages."""

import copy
import json
import pickle
from pathlib import Path

import gymnasium as gym
import pytest

from ludic_gym.adapters.text_games import StoryEnv
from ludic_gym.errors import DataError
from ludic_gym.testing.check import check_text_env

textworld = pytest.importorskip("textworld", reason="pip install 'textworld[pddl]' alfworld")

# In the domain of ALFWorld: an apple in a closed drawer, and a countertop where it is to be.
PROBLEM = """
(define (problem plan_1) (:domain alfred)
(:objects agent1 - agent loc_1 loc_2 loc_3 - location Apple_bar_1 - object
 Drawer_bar_1 CounterTop_bar_1 - receptacle AppleType - otype DrawerType CounterTopType - rtype)
(:init (= (total-cost) 0) (atLocation agent1 loc_1)
 (receptacleAtLocation Drawer_bar_1 loc_2) (receptacleAtLocation CounterTop_bar_1 loc_3)
 (receptacleType Drawer_bar_1 DrawerType) (receptacleType CounterTop_bar_1 CounterTopType)
 (openable Drawer_bar_1) (objectType Apple_bar_1 AppleType) (pickupable Apple_bar_1)
 (canContain CounterTopType AppleType) (canContain DrawerType AppleType)
 (objectAtLocation Apple_bar_1 loc_2) (inReceptacle Apple_bar_1 Drawer_bar_1))
(:goal (and (exists (?r - receptacle) (exists (?o - object) (and (inReceptacle ?o ?r)
 (objectType ?o AppleType) (receptacleType ?r CounterTopType))))))
(:metric minimize (total-cost)))
"""
APPLE = [
    "go to drawer 1",
    "open drawer 1",
    "take apple 1 from drawer 1",
    "go to countertop 1",
    "move apple 1 to countertop 1",
]


@pytest.fixture(scope="module")
def machine(tmp_path_factory):
    """A folder with a game of TextWorld's own generator."""
    folder = tmp_path_factory.mktemp("games")
    options = textworld.GameOptions()
    options.seeds, options.nb_rooms, options.nb_objects, options.quest_length = 3, 3, 6, 4
    options.path = str(folder / "quest.z8")
    textworld.make(options)
    return folder


@pytest.fixture(scope="module")
def household(tmp_path_factory):
    """A folder with a task in the layout of ALFWorld's data."""
    alfworld = pytest.importorskip("alfworld", reason="pip install alfworld")
    logic = Path(alfworld.__file__).parent / "data"
    grammar = (logic / "alfred.twl2").read_text()
    folder = tmp_path_factory.mktemp("valid_seen")
    task = folder / "pick_and_place_simple-Apple" / "trial_T1"
    task.mkdir(parents=True)
    game = {
        "pddl_domain": (logic / "alfred.pddl").read_text(),
        "grammar": grammar.replace("UNKNOWN GOAL", "put some apple on countertop"),
        "pddl_problem": PROBLEM,
        "solvable": True,
    }
    (task / "game.tw-pddl").write_text(json.dumps(game))
    return folder


def test_a_household_task_is_won_by_the_commands_of_its_plan(household):
    env = gym.make("ludic/ALFWorld-v0", data=str(household)).unwrapped
    text, info = env.reset(seed=0)
    assert "you see a countertop 1, and a drawer 1." in text
    assert text.endswith("Your task is to: put some apple on countertop.")
    assert "You have 50 moves" in info["system_prompt"]
    for command in APPLE:
        assert env.best_action() == command
        assert command in env.legal_actions()
        text, reward, done, _, info = env.step(f"**{command}**")
    assert (reward, done, info["success"]) == (1, True, True)
    assert info["game"] == "pick_and_place_simple-Apple/trial_T1/game.tw-pddl"


def test_a_game_of_textworld_is_won_by_its_plan(machine):
    env = gym.make("ludic/TextWorld-v0", data=str(machine / "quest.z8")).unwrapped
    env.reset(seed=0)
    done = False
    while not done:
        text, reward, done, _, info = env.step(env.best_action())
        assert ">" not in text
    assert (reward, info["metric/score"], info["game"]) == (1, 1, "quest.z8")


@pytest.mark.parametrize("command", ["quit", "undo", "save", "fly away", "", "x" * 10_000])
def test_other_commands_use_up_moves_and_reach_no_game(machine, command):
    env = StoryEnv("textworld", str(machine), moves=2)
    env.reset(seed=0)
    legal = env.legal_actions()
    text, reward, done, _, info = env.step(command)
    assert (text, reward, done, info["illegal"]) == ("That is not possible now.", 0, False, True)
    assert env.legal_actions() == legal
    _, reward, done, _, info = env.step(command)
    assert (reward, done, info["success"], info["metric/score"]) == (0, True, False, 0)


@pytest.mark.parametrize("twin_of", [copy.deepcopy, lambda env: pickle.loads(pickle.dumps(env))])
def test_a_copy_in_the_middle_of_a_game_plays_on_from_there(household, twin_of):
    env = StoryEnv("alfworld", str(household))
    env.reset(seed=0)
    for command in APPLE[:3]:
        env.step(command)
    twin = twin_of(env)
    env.step("look")
    for command in APPLE[3:]:
        result = twin.step(command)
    assert result[1:3] == (1, True)


def test_data_without_games_is_an_error_that_says_where_they_come_from(tmp_path):
    with pytest.raises(DataError, match=r"ending \.z8, .* got None; tw-make custom"):
        StoryEnv("textworld")
    with pytest.raises(DataError, match="alfworld-download gets its data"):
        StoryEnv("alfworld", str(tmp_path))


@pytest.mark.slow
def test_it_keeps_the_contract(machine):
    check_text_env("ludic/TextWorld-v0", data=str(machine))
