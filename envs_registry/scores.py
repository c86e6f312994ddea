"""Scores of reference players, read from `scores.json`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

PATH = Path(__file__).with_name("scores.json")


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """Scores in one environment with default arguments.

    scores: successes and episodes by player: "random", "oracle", "empty", "hack", or a model.
    hack: the fixed reply of the player "hack", "the observation" or "the prompt".
    characters: mean numbers that the oracle reads and writes in an episode.
    tokens: mean numbers of tokens of prompts and replies in an episode, by model.
    outgrown: episodes that failed because their dialog did not fit into the context, by model.
    """

    scores: Mapping[str, tuple[int, int]]
    hack: str
    characters: tuple[int, int]
    tokens: Mapping[str, tuple[int, int]]
    outgrown: Mapping[str, int]


def _card(block: Mapping[str, Any]) -> Card:
    return Card(
        scores={player: (wins, count) for player, (wins, count) in block["scores"].items()},
        hack=block["hack"],
        characters=(block["characters"][0], block["characters"][1]),
        tokens={model: (read, said) for model, (read, said) in block["tokens"].items()},
        outgrown=block["outgrown"],
    )


# Id -> its card, in the catalogue's order.
CARDS: Mapping[str, Card] = MappingProxyType(
    {env_id: _card(block) for env_id, block in json.loads(PATH.read_text(encoding="utf-8")).items()}
)
