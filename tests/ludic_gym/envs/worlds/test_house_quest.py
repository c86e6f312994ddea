"""HouseQuest: what the rules allow, and that every quest can be solved."""

import copy
import random

import numpy as np
import pytest

from ludic_gym.envs.games.grids import shortest_path
from ludic_gym.envs.worlds.house_quest import HouseQuestEnv, normal_form
from ludic_gym.envs.worlds.quests import SIZES, Exit, House, Quest, plan, quest_of

# The cup is in the box, which is locked; its key is on the floor of the hall, behind a closed door.
SMALL = Quest(
    rooms={
        "den": {"north": Exit("hall", "oak door")},
        "hall": {"south": Exit("den", "oak door")},
    },
    furniture={"pine box": "den", "elm desk": "hall"},
    lids={"oak door": "closed", "pine box": "locked"},
    keys={"pine box": "tin key"},
    places={"red cup": "pine box", "tin key": "hall"},
    goals=(("red cup", "elm desk"),),
    start="den",
)
SOLUTION = [
    "open oak door", "go north", "take tin key", "go south", "unlock pine box with tin key",
    "open pine box", "take red cup", "go north", "put red cup on elm desk",
]  # fmt: skip


def reachable(quest):
    """Rooms, items and lids that can be reached or opened at all, by a fixed point."""
    rooms, held, opened = {quest.start}, set(), set()
    while True:
        before = len(rooms), len(held), len(opened)
        near = {way.door for room in rooms for way in quest.rooms[room].values()}
        near |= {name for name, room in quest.furniture.items() if room in rooms}
        for name in near & set(quest.lids):
            if quest.lids[name] == "closed" or quest.keys.get(name) in held:
                opened.add(name)
        free = {name for name in near if name not in quest.lids or name in opened}
        held |= {item for item, place in quest.places.items() if place in free | rooms}
        for room in list(rooms):
            rooms |= {way.to for way in quest.rooms[room].values() if way.door in free}
        if before == (len(rooms), len(held), len(opened)):
            return rooms, held, opened


def test_a_quest_worked_out_by_hand():
    house = House(SMALL)
    assert set(house.actions()) == {"open oak door", "look", "inventory"}
    for action in SOLUTION:
        assert action in house.actions()
        assert not house.solved()
        house.act(action)
    assert house.solved()
    assert plan(SMALL, 50) == SOLUTION


@pytest.mark.parametrize("level", SIZES)
def test_every_quest_can_be_solved_by_a_second_proof(level):
    rng = np.random.default_rng(1)
    for _ in range(40):
        quest = quest_of(SIZES[level], rng)
        rooms, held, opened = reachable(quest)
        assert rooms == set(quest.rooms)
        assert held == set(quest.places)
        assert opened == set(quest.lids)
        low, high = SIZES[level].actions
        assert low <= len(plan(quest, 99)) <= high


def test_an_exhaustive_search_finds_no_solution_much_shorter():
    def key(house):
        return house.here, tuple(sorted(house.lids.items())), tuple(sorted(house.places.items()))

    def after(state):
        # Putting down anything but the goal's item opens nothing, so the search leaves it out.
        for action in states[state].actions():
            if action.startswith("put") and action.split()[1:3] != goal.split():
                continue
            house = copy.deepcopy(states[state])
            house.act(action)
            states.setdefault(key(house), house)
            yield action, key(house)

    def solved(state):
        return states[state].solved()

    rng = np.random.default_rng(0)
    for _ in range(3):
        quest = quest_of(SIZES["easy"], rng)
        goal = quest.goals[0][0]
        states = {key(House(quest)): House(quest)}
        best = shortest_path(key(House(quest)), after, solved)
        assert best is not None
        assert len(best) <= len(plan(quest, 99)) <= len(best) + 4


def test_nothing_a_player_does_makes_a_quest_unsolvable():
    env, rng = HouseQuestEnv("hard"), random.Random(0)
    for seed in range(10):
        env.reset(seed=seed)
        for _ in range(80):
            env.step(rng.choice(env.legal_actions()))
        # The moves that are left suffice for no walk home, so the house itself is played.
        house = env.house
        for _ in range(200):
            if house.solved():
                break
            house.act(env.best_action())
        assert house.solved(), seed


@pytest.mark.parametrize(
    ("text", "action"),
    [
        ("north", "go north"),
        ("N.", "go north"),
        ("Go to the north!", "go north"),
        ("I will open the pine chest.", "open pine chest"),
        ("`take the red cup from the oak table`", "take red cup"),
        ("Insert the red cup into the pine box", "put red cup in pine box"),
        ("i", "inventory"),
    ],
)
def test_a_reader_forgives(text, action):
    assert normal_form(text) == action


def test_an_illegal_action_costs_a_move_and_lists_the_legal_ones():
    env = HouseQuestEnv("easy")
    env.reset(seed=0)
    before = env.house.places
    text, reward, over, _, info = env.step("fly")
    assert text.startswith("That is not possible here. You can: ")
    assert all(action in text for action in env.legal_actions())
    assert (reward, over, info["illegal"]) == (0.0, False, True)
    assert env.house.places == before
