"""Rooms of a TextWorld house: a tree on a grid, with doors, some locked; names of all things."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ludic_gym.envs.core.base import pick, shuffled
from ludic_gym.envs.worlds.quests.house import DIRECTIONS, Exit

ROOMS = (
    "kitchen", "pantry", "hall", "library", "study", "bedroom", "bathroom", "cellar", "attic",
    "workshop", "garage", "parlour", "nursery", "laundry", "studio", "gallery", "chapel",
    "greenhouse", "armoury", "wine store", "music room", "dining room", "guest room", "stable",
)  # fmt: skip
MATERIALS = (
    "oak", "pine", "beech", "ash", "walnut", "cherry", "maple", "birch", "cedar", "teak", "elm",
    "larch", "willow", "bamboo", "marble", "wicker",
)  # fmt: skip
CONTAINERS = ("chest", "box", "cabinet", "crate", "cupboard", "trunk")
SUPPORTS = ("table", "shelf", "bench", "desk", "stool")
METALS = ("brass", "iron", "copper", "silver", "bronze", "steel", "golden", "tin", "pewter", "zinc")
COLOURS = ("red", "blue", "green", "white", "black", "yellow", "grey", "violet")
THINGS = ("cup", "book", "lamp", "rope", "vase", "bell", "comb", "flute", "scarf", "ball", "coin")
ITEMS = tuple(f"{colour} {thing}" for colour in COLOURS for thing in THINGS)
STEPS = {"north": (0, 1), "south": (0, -1), "east": (1, 0), "west": (-1, 0)}
Edges = dict[tuple[str, str], str]
"""Pairs of adjacent rooms, each with the direction from the first to the second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Rooms and doors.

    rooms: exits of each room, by direction.
    lids: "closed" or "locked", of each door. keys: of each locked door.
    ranks: the part of the house of each room: 0 at the start, another one behind each locked door,
        higher than that of the part from which it is entered.
    behind: rank of the part behind each locked door.
    """

    rooms: dict[str, dict[str, Exit]]
    lids: dict[str, str]
    keys: dict[str, str]
    ranks: dict[str, int]
    behind: dict[str, int]


def layout(
    names: Sequence[str], locked: int, metals: Iterator[str], rng: np.random.Generator
) -> Layout:
    """Connected rooms of these names, the first one at the start.

    locked: number of locked doors. metals: names of their keys.
    """
    tree, near = _edges(names, rng)
    locks = shuffled(rng, list(tree))[:locked]
    made = Layout(
        rooms={name: {} for name in names}, lids={}, keys={}, ranks=_ranks(tree, locks), behind={}
    )
    for (a, b), direction in {**tree, **near}.items():
        beside = (a, b) not in tree
        # A second way into a locked part of the house would make its key useless.
        if beside and (made.ranks[a] != made.ranks[b] or rng.random() < 0.5):
            continue
        door = _door(made, (a, b) in locks, metals, rng)
        if (a, b) in locks:
            made.behind[door] = made.ranks[b]
        made.rooms[a][direction] = Exit(b, door)
        made.rooms[b][DIRECTIONS[direction]] = Exit(a, door)
    return made


def _door(made: Layout, locked: bool, metals: Iterator[str], rng: np.random.Generator) -> str:
    """The name of a new door, whose lid is noted; "" for a passage."""
    if locked:
        metal = next(metals)
        made.lids[f"{metal} door"], made.keys[f"{metal} door"] = "locked", f"{metal} key"
        return f"{metal} door"
    if rng.random() < 0.7:
        return ""
    door = pick(rng, [f"{name} door" for name in MATERIALS if f"{name} door" not in made.lids])
    made.lids[door] = "closed"
    return door


def _edges(names: Sequence[str], rng: np.random.Generator) -> tuple[Edges, Edges]:
    """A tree of the rooms on a grid, and the pairs of neighbours beside it."""
    at = {(0, 0): names[0]}
    tree: Edges = {}
    for name in names[1:]:
        free = [
            (x, y, direction)
            for x, y in at
            for direction, (dx, dy) in STEPS.items()
            if (x + dx, y + dy) not in at
        ]
        x, y, direction = pick(rng, free)
        dx, dy = STEPS[direction]
        at[x + dx, y + dy] = name
        tree[at[x, y], name] = direction
    near: Edges = {}
    for (x, y), name in at.items():
        for direction in ("north", "east"):
            dx, dy = STEPS[direction]
            other = at.get((x + dx, y + dy))
            if other and (name, other) not in tree and (other, name) not in tree:
                near[name, other] = direction
    return tree, near


def _ranks(tree: Edges, locks: Sequence[tuple[str, str]]) -> dict[str, int]:
    first = next(iter(tree))[0]
    ranks, last = {first: 0}, 0
    # The tree grew from the start, so a part gets its number after the one it is entered from.
    for a, b in tree:
        last += (a, b) in locks
        ranks[b] = last if (a, b) in locks else ranks[a]
    return ranks
