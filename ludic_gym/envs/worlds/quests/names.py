"""Names of rooms and things in TextWorld, and random orders of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np

T = TypeVar("T")

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


def shuffled(rng: np.random.Generator, items: Sequence[T]) -> list[T]:
    """The items in a random order."""
    return [items[int(i)] for i in rng.permutation(len(items))]
