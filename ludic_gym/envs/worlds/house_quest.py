"""HouseQuest: errands in a house that is seen room by room."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ludic_gym.envs.core.base import TextEnv, Turn, checked_choice, end, proceed
from ludic_gym.envs.core.levels import LEVELS, SPLITS, Level, Split, draw_in_split
from ludic_gym.envs.worlds.quests import DIRECTIONS, SIZES, House, next_action, quest_of, task_text

LONGEST_ACTION = 200
# Other words for the beginning of an action, the longest first.
VERBS = {
    "pick up": "take", "go to": "go", "walk to": "go", "move to": "go", "look around": "look",
    "check inventory": "inventory", "get": "take", "grab": "take", "walk": "go", "move": "go",
    "place": "put", "insert": "put",
}  # fmt: skip
SHORT = {name[0]: f"go {name}" for name in DIRECTIONS}
SHORT |= {name: f"go {name}" for name in DIRECTIONS} | {"i": "inventory", "l": "look"}
PROMPT = (
    "You are in a house and see only the room that you are in. Move the items that the task names "
    "to their places. Doors and containers may be closed or locked; the key of the brass door is "
    "the brass key, and the key of a locked container may have any name. Reply with one action and "
    "nothing else: go DIRECTION, open THING, unlock THING with KEY, take ITEM, put ITEM in THING, "
    "put ITEM on THING, look (which describes the room and repeats the task), or inventory. You "
    "have {moves} moves."
)


class HouseQuestEnv(TextEnv):
    """A quest in a house of rooms, doors, keys, containers and furniture, seen room by room.

    In the manner of TextWorld (Côté et al. 2018, arXiv:1806.11532), generated here: no score of it
    is one of TextWorld. Nothing that a player does makes a quest unsolvable.

    - Observation: the task and the first room, then the result of each action; a room is described
      when it is entered.
    - Action: one of `legal_actions()`, also with articles, a full stop or a common synonym; another
      one uses up a move, and its observation lists those that are legal.
    - Reward: 1 once all items of the task are in their places (component "quest"), else 0.
    - Info: "illegal" in every step; "placed" in the last one is the number of items in place.

    Args:
        level: "easy" (4 to 5 rooms, solutions of 6 to 14 actions, 30 moves), "medium" (7 to 9, 15
            to 28, 80) or "hard" (10 to 13, 29 to 50, 150; two or three items).
    """

    def __init__(
        self, level: Level = "medium", split: Split = "all", render_mode: str | None = None
    ) -> None:
        super().__init__(render_mode)
        self._size = SIZES[checked_choice("level", level, LEVELS)]
        self._split = checked_choice("split", split, SPLITS)
        self._moves_left = self._size.moves
        self._prompt = PROMPT.format(moves=self._size.moves)

    def start(self, options: Mapping[str, Any]) -> tuple[str, str]:
        """Draw a quest of the split."""
        quest = draw_in_split(lambda: quest_of(self._size, self.np_random), self._split)
        self.house = House(quest)
        self._moves_left = self._size.moves
        return f"{task_text(quest)} {self.house.description()}", self._prompt

    def turn(self, action: str) -> Turn:
        """Perform the action."""
        # Before the action, so that an illegal one counts too.
        self._moves_left -= 1
        legal = tuple(self.house.actions())
        if illegal := action not in legal:
            text = f"That is not possible here. You can: {', '.join(legal)}."
        else:
            text = self.house.act(action)
        success = self.house.solved()
        if self._moves_left and not success:
            return proceed(text, info={"illegal": illegal})
        placed = sum(self.house.places[item] == at for item, at in self.house.quest.goals)
        return end(
            text, success=success, info={"illegal": illegal, "placed": placed}, quest=success
        )

    def picture(self) -> str:
        """The present room, and the task."""
        return f"{task_text(self.house.quest)}\n{self.house.description()}"

    def spelt_action(self, text: str) -> str | None:
        """The possible action that a text spells in its words; None if it spells none."""
        action = normal_form(text)
        return action if action in self.house.actions() else None

    def allowed_actions(self) -> tuple[str, ...]:
        """All actions that are possible in the present state."""
        return tuple(self.house.actions())

    def best_action(self) -> str:
        """The next action of a player who knows the house."""
        return next_action(self.house)


def normal_form(text: str) -> str:
    """The action that a text spells, in its normal form."""
    plain = re.sub(r"[^a-z ]", " ", text[:LONGEST_ACTION].lower()).split()
    words = " ".join(word for word in plain if word not in ("the", "a", "an"))
    if words in SHORT:
        return SHORT[words]
    words = re.sub(r"^i (will )?", "", words)
    words = re.sub(r"\b(into|inside)\b", "in", re.sub(r"\b(onto|upon)\b", "on", words))
    for other, verb in VERBS.items():
        if words == other or words.startswith(f"{other} "):
            words = verb + words[len(other) :]
            break
    # "take red cup from pine box" names a place that is known anyway.
    return words.partition(" from ")[0] if words.startswith("take ") else words
