"""Generated quests of TextWorld, which can always be solved."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from ludic_gym.envs.core.base import between, pick, shuffled
from ludic_gym.envs.worlds.quests.house import Quest
from ludic_gym.envs.worlds.quests.layout import (
    CONTAINERS,
    ITEMS,
    MATERIALS,
    METALS,
    ROOMS,
    SUPPORTS,
    Layout,
    layout,
)
from ludic_gym.envs.worlds.quests.planner import plan

Range = tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """Sizes of a level's quests.

    rooms, doors, boxes: ranges of the numbers of rooms, locked doors and locked containers.
    goals, others: of items to move, and of items that have no use.
    actions: of the planner's solution. moves: number of actions that a player has.
    """

    rooms: Range
    doors: Range
    boxes: Range
    goals: Range
    others: Range
    actions: Range
    moves: int


# A player who explores the whole house needs about two moves per room and one per container, in
# addition to the solution.
SIZES: Mapping[str, Size] = MappingProxyType(
    {
        "easy": Size(
            rooms=(4, 5), doors=(0, 1), boxes=(0, 1), goals=(1, 1), others=(1, 2),
            actions=(6, 14), moves=30,
        ),
        "medium": Size(
            rooms=(7, 9), doors=(1, 2), boxes=(1, 2), goals=(1, 2), others=(2, 4),
            actions=(15, 28), moves=80,
        ),
        "hard": Size(
            rooms=(10, 13), doors=(2, 4), boxes=(2, 3), goals=(2, 3), others=(4, 6),
            actions=(29, 50), moves=150,
        ),
    }
)  # fmt: skip


def quest_of(size: Size, rng: np.random.Generator) -> Quest:
    """A quest of that size; the first drawn whose solution is neither too short nor too long."""
    low, high = size.actions
    while True:
        quest = _draft(size, rng)
        # One more than the highest is enough to see that a plan is too long.
        if low <= len(plan(quest, high + 1)) <= high:
            return quest


def _draft(size: Size, rng: np.random.Generator) -> Quest:
    """A quest with a solution of any length."""
    metals = iter(shuffled(rng, METALS))
    names = shuffled(rng, ROOMS)[: between(rng, *size.rooms)]
    house = layout(names, between(rng, *size.doors), metals, rng)
    furniture = _furniture(house, rng)
    boxes = [name for name in furniture if name in house.lids]
    for box in shuffled(rng, boxes)[: between(rng, *size.boxes)]:
        house.lids[box], house.keys[box] = "locked", f"{next(metals)} key"
    count = between(rng, *size.goals)
    items = shuffled(rng, ITEMS)[: count + between(rng, *size.others)]
    spots = list(furniture)
    places = {item: pick(rng, spots) for item in items}
    # Another room than the item's own: carrying is a part of every quest.
    targets = {
        item: pick(rng, [spot for spot in spots if furniture[spot] != furniture[places[item]]])
        for item in items[:count]
    }
    places |= {key: _key_place(lock, house, furniture, rng) for lock, key in house.keys.items()}
    return Quest(
        rooms=house.rooms,
        furniture=furniture,
        lids=house.lids,
        keys=house.keys,
        # In a random order, because lists of things in a room would begin with the goals.
        places={item: places[item] for item in shuffled(rng, sorted(places))},
        goals=tuple(targets.items()),
        start=names[0],
    )


def _furniture(house: Layout, rng: np.random.Generator) -> dict[str, str]:
    """One or two pieces in each room; the containers among them get a lid, closed."""
    furniture: dict[str, str] = {}
    for room in house.rooms:
        for _ in range(between(rng, 1, 2)):
            kinds = pick(rng, (CONTAINERS, SUPPORTS))
            kind = pick(rng, kinds)
            free = [f"{name} {kind}" for name in MATERIALS if f"{name} {kind}" not in furniture]
            name = pick(rng, free)
            furniture[name] = room
            if kinds is CONTAINERS:
                house.lids[name] = "closed"
    return furniture


def _key_place(
    lock: str, house: Layout, furniture: Mapping[str, str], rng: np.random.Generator
) -> str:
    """A place for the key of the lock, so that no key is behind what it opens, at any remove.

    The key of a door to the part of rank r is in a part of lower rank. A locked container's key is
    in a part of no higher rank than its own, and never in a locked container.
    """
    ranks = house.ranks
    if lock in house.behind:
        highest = house.behind[lock] - 1
        fits = [name for name, room in furniture.items() if ranks[room] <= highest]
    else:
        highest = ranks[furniture[lock]]
        fits = [
            name
            for name, room in furniture.items()
            if ranks[room] <= highest and house.lids.get(name) != "locked"
        ]
    # One floor among all the furniture: keys rarely lie in the open.
    floor = pick(rng, [room for room in house.rooms if ranks[room] <= highest])
    return pick(rng, [*fits, floor])
