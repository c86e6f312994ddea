"""Topics of texts, and the words by which a program recognises a text about one of them."""

from __future__ import annotations

import re
from collections.abc import Mapping

# Topic -> beginnings of words that a text about it uses and its name does not contain.
TOPICS: Mapping[str, tuple[str, ...]] = {
    topic: tuple(stems.split())
    for topic, stems in {
        "a lost umbrella": "rain wet found left black handle forgot forgott bus owner seat shelter",
        "the first snow of the year": "cold white flake ice frost sled boot glov mitten froz melt",
        "a village fair": "stall music dance prize cake ride tent crowd games children booth",
        "how to repair a bicycle": "wheel tyre tire chain brake pump wrench spoke pedal gear tool",
        "a train that comes late": "station platform delay wait passeng track minut timetab rail",
        "moving to a smaller flat": "box furniture apartment space rent sell pack van decl shelf",
        "a cat that will not eat": "food bowl vet fish hungry meal appetit kitten fur purr feed",
        "the new opening hours of a library": "book reader open clos monday saturday evening loan",
        "growing tomatoes on a balcony": "pot soil water sun plant seed fruit ripe leaf leav pick",
        "a broken lift": "stair elevator floor repair button technic door climb engineer build",
        "learning to swim as an adult": "pool water breath float stroke lesson coach fear goggle",
        "a night without electricity": "power dark torch outage lamp blackout flashlight",
        "the best soup for winter": "broth carrot onion potato pot cook recipe bowl leek lentil",
        "a neighbour who plays the drums": "noise loud beat rhythm sleep practi quiet",
        "an old map": "paper road town treasure ink border fold compass river draw route",
        "saving water": "tap shower leak toilet rain bath litre liter drop drip bucket hose",
        "a walk along the coast": "sea beach wave sand cliff shore gull shell tide ocean",
        "the choice of a first musical instrument": "piano guitar violin flute play lesson teach",
        "a school trip to a museum": "pupil teach exhibit bus class student guide painting paint",
        "bees in the attic": "hive honey swarm sting roof buzz keeper nest queen wasp insect",
        "packing for a week in the hills": "boot sock tent trail backpack jacket hik mountain bag",
        "a chess club for beginners": "board pawn king queen game move opponent piece rook knight",
        "baking bread": "flour yeast dough oven knead loaf crust salt rise bake rising",
        "a football match in the rain": "goal ball team mud pitch player score kick wet referee",
        "keeping a diary": "write page pen thought day note memor entry secret feel wrote journal",
        "a market that moves to another square": "stall vendor trader sell fruit vegetab customer",
        "a telescope on the roof": "moon planet sky lens night saturn jupiter galax astronom",
        "sharing a kitchen": "fridge dish cook clean sink wash shelf stove pan roommate flatmate",
        "a bridge that is closed for repairs": "river traffic detour road driver work cyclist",
        "planting a hedge": "shrub soil root dig spade prun leaf leav bush trim water fence",
    }.items()
}
LEAST = 2
# A text that names many topics is about none of them.
SHARE = 1 / 3
_WORD = re.compile(r"[a-z]+")


def is_on_topic(text: str, topic: str) -> bool:
    """True if the text uses words of the topic, and not as many of other topics.

    It needs two of the words in `TOPICS[topic]`, and they must be a third of all such words in it.
    So a fixed text is about three topics at most, and one that repeats the task about none.

    >>> is_on_topic("It was left on the bus. The rain came, and I got wet.", "a lost umbrella")
    True
    >>> is_on_topic("A note about a lost umbrella.", "a lost umbrella")
    False
    """
    words = set(_WORD.findall(text.casefold()))
    used = {
        stem
        for stems in TOPICS.values()
        for stem in stems
        if any(word.startswith(stem) for word in words)
    }
    own = used & set(TOPICS[topic])
    return len(own) >= LEAST and len(own) >= SHARE * len(used)
