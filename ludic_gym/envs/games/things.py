"""A table of things with what is true of them, and the words in which one asks about it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

TABLE = Path(__file__).parents[1] / "data" / "twenty_questions.txt"


class Attribute(NamedTuple):
    """A question about a thing, and the phrases by which others ask the same."""

    question: str
    phrases: str


# The phrases are separated by bars; one that begins with "!" asks for the opposite.
ATTRIBUTES: Mapping[str, Attribute] = {
    "alive": Attribute("Is it alive?", "alive|living|live thing"),
    "animal": Attribute("Is it an animal?", "animal|creature|beast"),
    "mammal": Attribute("Is it a mammal?", "mammal"),
    "bird": Attribute("Is it a bird?", "bird|have feathers|has feathers|feathered"),
    "fish": Attribute("Is it a fish?", "fish"),
    "insect": Attribute("Is it an insect?", "insect|bug"),
    "reptile": Attribute("Is it a reptile?", "reptile"),
    "plant": Attribute("Is it a plant?", "plant"),
    "fruit": Attribute("Is it a fruit?", "fruit"),
    "vegetable": Attribute("Is it a vegetable?", "vegetable"),
    "food": Attribute("Is it food?", "food"),
    "eaten": Attribute("Do people eat it?", "eat it|eat this|edible|eaten|eat"),
    "drink": Attribute("Is it a drink?", "drink|drink it|beverage|drinkable"),
    "tool": Attribute("Is it a tool?", "tool"),
    "furniture": Attribute("Is it a piece of furniture?", "piece of furniture|furniture"),
    "clothing": Attribute(
        "Is it a piece of clothing?", "piece of clothing|clothing|clothes|garment"
    ),
    "worn": Attribute("Is it worn on the body?", "worn on the body|worn|wear it|wear"),
    "vehicle": Attribute("Is it a vehicle?", "vehicle|means of transport|transport"),
    "instrument": Attribute(
        "Is it a musical instrument?",
        "musical instrument|instrument|make music|play music|produce music|make music with",
    ),
    "building": Attribute("Is it a building?", "building"),
    "device": Attribute("Is it an electronic device?", "electronic device|electronic|device"),
    "electric": Attribute(
        "Does it need electricity?",
        "need electricity|use electricity|electric|electrical|run on electricity|electricity",
    ),
    "container": Attribute(
        "Is it made to hold other things?",
        "made to hold other things|container|hold other things|put things in it|store things in it",
    ),
    "toy": Attribute("Is it a toy?", "toy|play with it|children play with it|play with"),
    "sport": Attribute("Is it used in a sport or a game?", "in a sport or a game|in sport|sport"),
    "made": Attribute(
        "Is it made by people?",
        "made by people|made by human|made by man|made by human being|man made|manmade|"
        "human made|artificial|manufactured|!natural|!in nature|!occur in nature|!made by nature",
    ),
    "big": Attribute(
        "Is it bigger than a person?",
        "bigger than a person|bigger than a human|bigger than a man|bigger than me|"
        "bigger than you|larger than a person|larger than a human|larger than a man|big|large|huge",
    ),
    "hand": Attribute(
        "Does it fit in a hand?",
        "fit in a hand|fit in one hand|fit in your hand|fit in my hand|fit in the palm of a hand|"
        "fit in a pocket|fit in your pocket|hold it in one hand|hold it in your hand|small|tiny",
    ),
    "metal": Attribute("Is it made of metal?", "made of metal|metal|metallic|made from metal"),
    "wood": Attribute("Is it made of wood?", "made of wood|wooden|wood|made from wood"),
    "glass": Attribute("Is it made of glass?", "made of glass|glass|made from glass"),
    "paper": Attribute("Is it made of paper?", "made of paper|paper|made from paper"),
    "cloth": Attribute("Is it made of cloth?", "made of cloth|cloth|fabric|textile|made of fabric"),
    "stone": Attribute("Is it made of stone?", "made of stone|stone|mineral|rock|made of rock"),
    "wheels": Attribute("Does it have wheels?", "wheel"),
    "four_legs": Attribute("Does it have four legs?", "four leg|4 leg|four legged|four feet"),
    "wings": Attribute("Does it have wings?", "wing|winged"),
    "tail": Attribute("Does it have a tail?", "tail"),
    "fur": Attribute("Does it have fur?", "fur|furry|hair|hairy"),
    "horns": Attribute("Does it have horns?", "horn|antler"),
    "shell": Attribute("Does it have a shell?", "shell"),
    "strings": Attribute("Does it have strings?", "string"),
    "keys": Attribute("Does it have keys or buttons?", "key or button|button"),
    "screen": Attribute("Does it have a screen?", "screen|display"),
    "engine": Attribute("Does it have an engine?", "engine|motor"),
    "blade": Attribute("Does it have a blade?", "blade|cut thing|cut|cutting|for cutting"),
    "sharp": Attribute("Is it sharp or pointed?", "sharp or pointed|sharp|pointed|pointy|prickly"),
    "striped": Attribute("Does it have stripes?", "stripe|striped"),
    "flies": Attribute("Can it fly?", "fly|flies|flying|in the air"),
    "jumps": Attribute("Does it move by jumping?", "move by jumping|jump|hop|jumping"),
    "water": Attribute(
        "Is it found in or on water?",
        "in or on water|live in water|in water|in the water|aquatic|on water|on the water|"
        "near water",
    ),
    "sea": Attribute(
        "Is it found in or by the sea?",
        "in or by the sea|live in the sea|in the sea|in the ocean|live in the ocean|at sea|"
        "by the sea|at the beach|on the beach",
    ),
    "wild": Attribute("Does it live in the wild?", "live in the wild|in the wild|wild animal|wild"),
    "farm": Attribute(
        "Is it found on a farm?", "on a farm|live on a farm|farm animal|kept on a farm|on farm"
    ),
    "pet": Attribute("Is it kept as a pet?", "kept as a pet|pet|keep it as a pet"),
    "meat": Attribute(
        "Does it eat meat?", "eat meat|carnivore|predator|hunt|eat other animal|carnivorous|hunter"
    ),
    "eggs": Attribute("Does it lay eggs?", "lay egg|lays egg|come from an egg"),
    "milk": Attribute("Do people milk it?", "milk it|milked|give milk|produce milk"),
    "africa": Attribute("Does it live in Africa?", "live in africa|in africa|african|from africa"),
    "desert": Attribute(
        "Is it found in the desert?", "in the desert|in desert|live in the desert|in a desert"
    ),
    "forest": Attribute(
        "Is it found in forests?",
        "in forest|in the forest|in a forest|live in the forest|in the woods",
    ),
    "indoors": Attribute(
        "Is it used indoors?",
        "indoor|in a house|inside a house|inside the house|in the house|in most houses|household|"
        "at home|in a home|inside",
    ),
    "outdoors": Attribute("Is it found outdoors?", "outdoor|outside|out of doors"),
    "kitchen": Attribute("Is it used in the kitchen?", "in the kitchen|in a kitchen|kitchen"),
    "bathroom": Attribute(
        "Is it used in the bathroom?", "in the bathroom|in a bathroom|bathroom|washroom"
    ),
    "cleaning": Attribute("Is it used for cleaning?", "for cleaning|to clean|clean thing|cleaning"),
    "writing": Attribute("Is it used for writing?", "for writing|write with|write|writing"),
    "read": Attribute("Can it be read?", "be read|read|read it|reading"),
    "money": Attribute("Is it money?", "money|currency|to pay with|pay with it"),
    "time": Attribute("Does it tell the time?", "tell the time|tell time|show the time|time"),
    "light": Attribute(
        "Does it give light?", "give light|produce light|give off light|source of light|shine|glow"
    ),
    "hot": Attribute("Is it usually hot?", "hot|warm"),
    "cold": Attribute("Is it usually cold?", "cold|frozen|cool"),
    "sky": Attribute("Is it found in the sky?", "in the sky|in space|in outer space|sky|space"),
    "sweet": Attribute("Is it sweet?", "sweet"),
    "soft": Attribute("Is it soft?", "soft|fluffy"),
    "round": Attribute("Is it round?", "round|spherical|circular|ball shaped"),
    "red": Attribute("Is it usually red?", "red"),
    "yellow": Attribute("Is it usually yellow?", "yellow"),
    "green": Attribute("Is it usually green?", "green"),
    "white": Attribute("Is it usually white?", "white"),
    "pair": Attribute("Does it come in pairs?", "come in pair|in pair|pair"),
    "sat_on": Attribute("Do people sit on it?", "sit on it|sit in it|sit on|sit in|for sitting"),
    "sleep": Attribute(
        "Is it used for sleeping?", "for sleeping|sleep on it|sleep in it|sleep on|sleep in"
    ),
    "ridden": Attribute(
        "Can people ride on or in it?", "ride on or in it|ride it|ride on it|ride in it|ride|ridden"
    ),
    "rails": Attribute("Does it run on rails?", "run on rail|on rail|rail|on track"),
    "blown": Attribute("Does one blow into it?", "blow into it|blow in it|blow|wind instrument"),
    "lived_in": Attribute("Do people live in it?", "people live in it|live in it|live in"),
}  # fmt: skip
# What follows from what.
IMPLIES: Mapping[str, tuple[str, ...]] = {
    "mammal": ("animal",),
    "bird": ("animal", "wings"),
    "fish": ("animal", "water"),
    "insect": ("animal", "hand", "wild"),
    "reptile": ("animal",),
    "animal": ("alive", "natural"),
    "plant": ("alive", "natural", "outdoors"),
    "fruit": ("food", "natural"),
    "vegetable": ("food", "natural"),
    "food": ("eaten",),
    "furniture": ("indoors",),
    "kitchen": ("indoors",),
    "bathroom": ("indoors",),
    "device": ("electric", "indoors"),
    "clothing": ("worn",),
    "vehicle": ("ridden", "outdoors"),
    "building": ("big", "outdoors"),
    "wild": ("outdoors",),
    "farm": ("outdoors",),
    "sky": ("outdoors",),
    "sea": ("water",),
}


@cache
def things() -> Mapping[str, frozenset[str]]:
    """Every thing by its name, with all that is true of it."""
    lines = TABLE.read_text(encoding="utf-8").splitlines()
    pairs = (line.split(":") for line in lines if not line.startswith("#"))
    return {name: facts_from(said.split()) for name, said in pairs}


def facts_from(said: list[str]) -> frozenset[str]:
    """What is said, and what follows from it."""
    facts: set[str] = set()
    while said:
        fact = said.pop()
        facts.add(fact)
        said += IMPLIES.get(fact, ())
    if "natural" not in facts:
        facts.add("made")
    if "animal" in facts and "mammal" not in facts:
        facts.add("eggs")
    return frozenset(facts - {"natural"})
