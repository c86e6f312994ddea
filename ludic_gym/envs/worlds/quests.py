"""Quests of HouseQuest: layouts of houses, the rules of actions, planner and maker."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from ludic_gym.envs.core.base import pick, random_int, random_order
from ludic_gym.envs.games.grids import shortest_path

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
    locks = random_order(rng, list(tree))[:locked]
    ranks, last = {names[0]: 0}, 0
    # The tree grew from the start, so a part gets its number after the one it is entered from.
    for a, b in tree:
        last += (a, b) in locks
        ranks[b] = last if (a, b) in locks else ranks[a]
    made = Layout(rooms={name: {} for name in names}, lids={}, keys={}, ranks=ranks, behind={})
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


DIRECTIONS = {"north": "south", "south": "north", "east": "west", "west": "east"}
YOU = "you"


@dataclass(frozen=True, slots=True)
class Exit:
    """A way out of a room. door: "" for an open passage."""

    to: str
    door: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quest:
    """A house at the start of an episode, and the goals.

    rooms: exits of each room, by direction.
    furniture: room of each container and support.
    lids: "open", "closed" or "locked", of each door and container.
    keys: the key of each lockable door and container.
    places: of each item: a room (for its floor) or a piece of furniture.
    goals: item and furniture, for each item that has to be moved there.
    start: the first room.
    """

    rooms: Mapping[str, Mapping[str, Exit]]
    furniture: Mapping[str, str]
    lids: Mapping[str, str]
    keys: Mapping[str, str]
    places: Mapping[str, str]
    goals: tuple[tuple[str, str], ...]
    start: str


@dataclass(slots=True)
class House:
    """The present state of a quest's house.

    here: the player's room. lids, places: as in `Quest`, or `YOU` for what the player holds.
    """

    quest: Quest
    here: str = field(init=False)
    lids: dict[str, str] = field(init=False)
    places: dict[str, str] = field(init=False)

    def __post_init__(self) -> None:
        self.here = self.quest.start
        self.lids = dict(self.quest.lids)
        self.places = dict(self.quest.places)

    def solved(self) -> bool:
        """True if every item of the goals is in its place."""
        return all(self.places[item] == place for item, place in self.quest.goals)

    def exits(self) -> Mapping[str, Exit]:
        """Exits of the present room, by direction."""
        return self.quest.rooms[self.here]

    def furniture(self) -> list[str]:
        """Containers and supports of the present room."""
        return [name for name, room in self.quest.furniture.items() if room == self.here]

    def items(self, place: str) -> list[str]:
        """Items in a place."""
        return [item for item, where in self.places.items() if where == place]

    def is_open(self, name: str) -> bool:
        """True for an open door or container, for a support, and for a passage without a door."""
        return self.lids.get(name, "open") == "open"

    def actions(self) -> Iterator[str]:
        """Legal actions in their normal form."""
        for direction, way in self.exits().items():
            if self.is_open(way.door):
                yield f"go {direction}"
        here = self.furniture()
        for name in [*(way.door for way in self.exits().values()), *here]:
            lid = self.lids.get(name, "open")
            if lid == "closed":
                yield f"open {name}"
            elif lid == "locked" and self.places[self.quest.keys[name]] == YOU:
                yield f"unlock {name} with {self.quest.keys[name]}"
        reachable = [self.here, *(name for name in here if self.is_open(name))]
        for place in reachable:
            for item in self.items(place):
                yield f"take {item}"
        for item in self.items(YOU):
            for name in reachable[1:]:
                yield f"put {item} {preposition(self.quest, name)} {name}"
        yield "look"
        yield "inventory"

    def act(self, action: str) -> str:
        """Perform a legal action in its normal form, and return its result as text."""
        verb, _, rest = action.partition(" ")
        if verb == "go":
            self.here = self.exits()[rest].to
            return self.description()
        if verb == "open":
            self.lids[rest] = "open"
            return f"You open the {rest}. {self._contents(rest)}".strip()
        if verb == "unlock":
            name, _, key = rest.partition(" with ")
            self.lids[name] = "closed"
            return f"You unlock the {name} with the {key}. It is closed now."
        if verb == "take":
            self.places[rest] = YOU
            return f"You take the {rest}."
        if verb == "put":
            item, name = re.split(" in | on ", rest, maxsplit=1)
            self.places[item] = name
            return f"You put the {item} {preposition(self.quest, name)} the {name}."
        if verb == "inventory":
            return f"You hold {enumeration(self.items(YOU))}."
        return f"{self.description()} {task_text(self.quest)}"

    def description(self) -> str:
        """The present room: furniture, items in sight, and exits."""
        parts = [f"You are in the {self.here}."]
        for name in self.furniture():
            lid = self.lids.get(name)
            parts.append(f"There is {article(name)}{f', which is {lid}' if lid else ''}.")
            parts.append(self._contents(name))
        if items := self.items(self.here):
            parts.append(f"On the floor you see {enumeration(items)}.")
        for direction, way in self.exits().items():
            door = f"To the {direction} is the {way.door}, which is {self.lids.get(way.door)}."
            parts.append(door if way.door else f"A passage leads {direction}.")
        return " ".join(filter(None, parts))

    def _contents(self, name: str) -> str:
        """The items in an open container or on a support; "" for a door or a closed container."""
        if name not in self.quest.furniture or not self.is_open(name):
            return ""
        where = f"{preposition(self.quest, name).capitalize()} the {name}"
        items = self.items(name)
        return f"{where} you see {enumeration(items)}." if items else f"{where} there is nothing."


def task_text(quest: Quest) -> str:
    """The goals as a sentence."""
    parts = [f"the {item} {preposition(quest, name)} the {name}" for item, name in quest.goals]
    return f"Your task: put {', and '.join(parts)}."


def preposition(quest: Quest, furniture: str) -> str:
    """The preposition for items there: "in" for a container, "on" for a support."""
    return "in" if furniture in quest.lids else "on"


def enumeration(items: list[str]) -> str:
    """The items with their articles, in a sentence; "nothing" for none."""
    named = [article(item) for item in items]
    if len(named) < 2:
        return named[0] if named else "nothing"
    return f"{', '.join(named[:-1])} and {named[-1]}"


def article(name: str) -> str:
    """The name after "a" or "an"."""
    return f"{'an' if name[0] in 'aeiou' else 'a'} {name}"


def next_action(house: House) -> str:
    """The next action towards the first goal that is not met.

    The number of actions is not always the smallest possible, but nothing is done in vain: no
    action makes anything unreachable, and keys are fetched before the way that needs them.
    """
    goals = house.quest.goals
    item, target = next(goal for goal in goals if house.places[goal[0]] != goal[1])
    if house.places[item] != YOU:
        return _take(house, item)
    return _reach(house, target) or f"put {item} {preposition(house.quest, target)} {target}"


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
    directions = shortest_path(
        start,
        lambda room: [(direction, way.to) for direction, way in quest.rooms[room].items()],
        lambda room: room == goal,
    )
    assert directions is not None, "a house is connected"
    return directions


def plan(quest: Quest, longest: int) -> list[str]:
    """The actions that solve the quest, at most `longest` of them."""
    house, actions = House(quest), list[str]()
    while not house.solved() and len(actions) < longest:
        actions.append(next_action(house))
        house.act(actions[-1])
    return actions


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
SIZES: Mapping[str, Size] = {
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
}  # fmt: skip


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
    metals = iter(random_order(rng, METALS))
    names = random_order(rng, ROOMS)[: random_int(rng, *size.rooms)]
    house = layout(names, random_int(rng, *size.doors), metals, rng)
    furniture = _furniture(house, rng)
    boxes = [name for name in furniture if name in house.lids]
    for box in random_order(rng, boxes)[: random_int(rng, *size.boxes)]:
        house.lids[box], house.keys[box] = "locked", f"{next(metals)} key"
    count = random_int(rng, *size.goals)
    items = random_order(rng, ITEMS)[: count + random_int(rng, *size.others)]
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
        places={item: places[item] for item in random_order(rng, sorted(places))},
        goals=tuple(targets.items()),
        start=names[0],
    )


def _furniture(house: Layout, rng: np.random.Generator) -> dict[str, str]:
    """One or two pieces in each room; the containers among them get a lid, closed."""
    furniture: dict[str, str] = {}
    for room in house.rooms:
        for _ in range(random_int(rng, 1, 2)):
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
