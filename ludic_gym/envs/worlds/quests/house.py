"""The house of a TextWorld quest: its rooms and things, and the rules of actions in it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

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
                yield f"put {item} {self.preposition(name)} {name}"
        yield "look"
        yield "inventory"

    def preposition(self, furniture: str) -> str:
        """The preposition for items there: "in" for a container, "on" for a support."""
        return "in" if furniture in self.lids else "on"

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
            item, name = self._parts(rest)
            self.places[item] = name
            return f"You put the {item} {self.preposition(name)} the {name}."
        if verb == "inventory":
            return f"You hold {listed(self.items(YOU))}."
        return f"{self.description()} {task_text(self.quest)}"

    def description(self) -> str:
        """The present room: furniture, items in sight, and exits."""
        parts = [f"You are in the {self.here}."]
        for name in self.furniture():
            lid = self.lids.get(name)
            parts.append(f"There is {article(name)}{f', which is {lid}' if lid else ''}.")
            parts.append(self._contents(name))
        if items := self.items(self.here):
            parts.append(f"On the floor you see {listed(items)}.")
        for direction, way in self.exits().items():
            parts.append(self._exit(direction, way))
        return " ".join(filter(None, parts))

    def _contents(self, name: str) -> str:
        """The items in an open container or on a support; "" for a door or a closed container."""
        if name not in self.quest.furniture or not self.is_open(name):
            return ""
        where = f"{self.preposition(name).capitalize()} the {name}"
        items = self.items(name)
        return f"{where} you see {listed(items)}." if items else f"{where} there is nothing."

    def _exit(self, direction: str, way: Exit) -> str:
        if not way.door:
            return f"A passage leads {direction}."
        return f"To the {direction} is the {way.door}, which is {self.lids[way.door]}."

    def _parts(self, rest: str) -> tuple[str, str]:
        """Item and furniture of `put`."""
        for middle in (" in ", " on "):
            item, found, name = rest.partition(middle)
            if found:
                return item, name
        raise AssertionError(f"put {rest}: only legal actions come here")


def task_text(quest: Quest) -> str:
    """The goals as a sentence."""
    parts = [f"the {item} {preposition(quest, name)} the {name}" for item, name in quest.goals]
    return f"Your task: put {', and '.join(parts)}."


def preposition(quest: Quest, furniture: str) -> str:
    """As `House.preposition`."""
    return "in" if furniture in quest.lids else "on"


def listed(items: list[str]) -> str:
    """The items with their articles, in a sentence; "nothing" for none."""
    named = [article(item) for item in items]
    if len(named) < 2:
        return named[0] if named else "nothing"
    return f"{', '.join(named[:-1])} and {named[-1]}"


def article(name: str) -> str:
    """The name after "a" or "an"."""
    return f"{'an' if name[0] in 'aeiou' else 'a'} {name}"
