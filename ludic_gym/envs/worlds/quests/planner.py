"""A player of TextWorld who knows the whole house, which proves that a quest can be solved."""

from __future__ import annotations

from ludic_gym.envs.games.grid import shortest_path
from ludic_gym.envs.worlds.quests.house import YOU, House, Quest


def next_action(house: House) -> str:
    """The next action towards the first goal that is not met.

    The number of actions is not always the smallest possible, but nothing is done in vain: no
    action makes anything unreachable, and keys are fetched before the way that needs them.
    """
    goals = house.quest.goals
    item, target = next(goal for goal in goals if house.places[goal[0]] != goal[1])
    if house.places[item] != YOU:
        return _take(house, item)
    return _reach(house, target) or f"put {item} {house.preposition(target)} {target}"


def _take(house: House, item: str) -> str:
    """The next action towards holding the item."""
    return _reach(house, house.places[item]) or f"take {item}"


def _reach(house: House, place: str) -> str:
    """The next action towards standing beside the open place; "" if that is so."""
    room = house.quest.furniture.get(place, place)
    way = path(house.quest, house.here, room)
    barriers, here = list[str](), house.here
    for direction in way:
        exit_ = house.quest.rooms[here][direction]
        barriers.append(exit_.door)
        here = exit_.to
    # All keys come first, also that of the place itself: a way is not walked twice.
    for barrier in (*barriers, place):
        if house.lids.get(barrier) == "locked" and house.places[house.quest.keys[barrier]] != YOU:
            return _take(house, house.quest.keys[barrier])
    # Only what is next to the player now: the rest of the way is planned anew after each action.
    barrier, step = (barriers[0], f"go {way[0]}") if way else (place, "")
    lid = house.lids.get(barrier, "open")
    if lid == "locked":
        return f"unlock {barrier} with {house.quest.keys[barrier]}"
    return f"open {barrier}" if lid == "closed" else step


def path(quest: Quest, start: str, goal: str) -> tuple[str, ...]:
    """The directions of a shortest way between two rooms, through any door."""
    found = shortest_path(
        start,
        lambda room: [(direction, way.to) for direction, way in quest.rooms[room].items()],
        lambda room: room == goal,
    )
    assert found is not None, "a house is connected"
    return found


def plan(quest: Quest, longest: int) -> list[str]:
    """The actions that solve the quest, at most `longest` of them."""
    house, actions = House(quest), list[str]()
    while not house.solved() and len(actions) < longest:
        actions.append(next_action(house))
        house.act(actions[-1])
    return actions
