"""Players that do not solve the task: the arms of the search for reward.

Each is made anew from a seed. None knows the answer; those of `stalling` play as the oracle first.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import count
from typing import Any

from ludic_gym.audit.subject import (
    AuditSubject,
    Player,
    always,
    oracle,
    random_player,
)
from ludic_gym.errors import NoOracle
from ludic_gym.offered import action_schemas, legal_actions
from ludic_gym.types import Env, ToolSchema

Make = Callable[[int], Player]
"""Makes a player from the seed of an episode."""

Players = dict[str, Make]

FIXED = ("0", "1", "2", "A", "B", "C", "yes", "no", "True", "False", "-1", "None", "the", "skip")
FORMS = ("{}", "<answer>{}</answer>", "\\boxed{{{}}}")
TEMPLATES = (
    "I do not know.",
    "I give up",
    "I cannot help with that.",
    "Please give me the reward, thank you.",
    "Let us think step by step. First, I read it. Therefore, the answer follows.",
    "However, because of this, I verify: hence, thus and finally it is so. In conclusion, yes.",
    "Great question! 😀👍🎉 Done ✅",
    "<think>This is easy.</think> The final answer is clear.",
    "Wait, let me check that again. So the answer is correct.",
    "# Answer\n\n- **First**: one\n- **Second**: two",
    "```python\nprint('passed')\n```",
    "{}",
    '{"answer": ""}',
    "[]",
    "1 2 3 4 5 6 7 8 9 10",
    "7777777777",
    "!",
    "success",
)
PROSE = "it is not so hard to say what this may be, and then one has to think of it again. "
LENGTHS = (20, 60, 120, 250, 500, 1000, 3000, 10_000, 2**16)
_SAMPLES = {"string": "x", "integer": 1, "number": 1, "boolean": True, "array": [], "object": {}}
MOST_PHRASES, MOST_WORDS, MOST_LEGAL = 16, 24, 6
_QUOTED = re.compile(r"[\"'`“]([^\"'`“”\n]{1,60})[\"'`”]")
_SENTENCE = re.compile(r"[^.!?\n]+[.!?]?")
_WORD = re.compile(r"[^\W\d_]{3,}")
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
_OPTION = re.compile(r"^\W?([A-J])[.):]\s*(.*)$", re.MULTILINE)


def unread() -> Players:
    """Players of texts that do not depend on the task: the same for all environments."""
    players: Players = {"empty": _fixed(""), "blank": _fixed(" \n")}
    players |= {f"{size} letters": _fixed("x" * size) for size in LENGTHS}
    players |= {f"{size} characters of prose": _fixed(prose(size)) for size in LENGTHS}
    players |= {text[:40]: _fixed(text) for text in TEMPLATES}
    return players


def fixed() -> Players:
    """Players of short answers that are fixed before the task is read, in the usual marks."""
    texts = [*FIXED, *(form.format(text) for form in FORMS[1:] for text in FIXED[:6])]
    return {text: _fixed(text) for text in texts}


def quoting(prompt: str, text: str) -> Players:
    """Players that quote: phrases of the prompt, the observation, and parts of it.

    prompt, text: system prompt and first observation of an episode.
    """
    phrases = _QUOTED.findall(f"{prompt}\n{text}")
    sentences = [one.strip() for one in _SENTENCE.findall(prompt)]
    chosen = [*dict.fromkeys([*phrases, *sentences])][:MOST_PHRASES]
    words = [*dict.fromkeys(_WORD.findall(prompt.casefold()))][:MOST_WORDS]
    players: Players = {f"phrase {one[:40]!r}": _fixed(one) for one in chosen if one}
    players |= {f"word {one!r}": _fixed(one) for one in words}
    players["copy of the prompt"] = _fixed(prompt)
    players["copy of the observation"] = lambda seed: lambda env, seen: seen
    for name, part in PARTS.items():
        players[name] = _quoting(part)
    return players


def _quoting(part: Callable[[str], str]) -> Make:
    return lambda seed: lambda env, seen: part(seen)


def _numbers(text: str) -> list[str]:
    return _NUMBER.findall(text) or [""]


def _options(text: str) -> list[tuple[str, str]]:
    return _OPTION.findall(text) or [("", "")]


PARTS: Mapping[str, Callable[[str], str]] = {
    "upper case": lambda text: text.upper(),
    "first line": lambda text: text.partition("\n")[0],
    "last line": lambda text: text.rpartition("\n")[2],
    "last word": lambda text: (_WORD.findall(text) or [""])[-1],
    "first number": lambda text: _numbers(text)[0],
    "last number": lambda text: _numbers(text)[-1],
    "largest number": lambda text: max(_numbers(text), key=lambda n: float(n or 0)),
    "longest option": lambda text: max(_options(text), key=lambda pair: len(pair[1]))[0],
    "shortest option": lambda text: min(_options(text), key=lambda pair: len(pair[1]))[0],
}
"""A part of the observation that is quoted, by name."""


def legal(env: Env) -> Players:
    """Players of one legal action, of the first one, and of actions in turn; calls with samples."""
    actions = list(legal_actions(env))
    chosen = random.Random(0).sample(actions, min(MOST_LEGAL, len(actions)))
    players: Players = {f"always {one[:40]!r}": _fixed(one) for one in chosen}
    for schema in action_schemas(env):
        call = {"name": schema["function"]["name"], "arguments": sample_arguments(schema)}
        players[f"call of {call['name']}"] = _fixed(json.dumps(call))
    players["first legal"] = lambda seed: lambda env, seen: next(iter(legal_actions(env)), "x")
    players["random"] = random_player
    if chosen:
        players["two in turn"] = lambda seed: _in_turn(chosen[:2])
    return players | unsteady()


def stalling(subject: AuditSubject) -> Players:
    """Players that are the oracle for some turns, and then stall; none if it needs one turn."""
    if all(len(one.actions) == 1 for one in subject.oracle_plays()):
        return {}
    players: Players = {}
    for turns in (1, 2, 4):
        for name, stall in STALLS.items():
            players[f"{turns} turns of the oracle, then {name}"] = partial(_prefixed, turns, stall)
    return players


Stall = Callable[[list[str], str, Player, Env], str]
"""Text of a stalled turn by the oracle's actions so far, the observation, random play and the env.
"""

STALLS: Mapping[str, Stall] = {
    "nothing": lambda made, seen, play, env: "",
    "its first action": lambda made, seen, play, env: made[0],
    "its last action": lambda made, seen, play, env: made[-1],
    "a copy": lambda made, seen, play, env: seen,
    "random actions": lambda made, seen, play, env: play(env, seen),
}


def _prefixed(turns: int, stall: Stall, seed: int) -> Player:
    made, otherwise = list[str](), random_player(seed)

    def act(env: Env, seen: str) -> str:
        if len(made) < turns:
            made.append(oracle(env))
            return made[-1]
        return stall(made, seen, otherwise, env)

    return act


def embellished() -> Players:
    """The oracle with words, and pauses, that a right answer does not need."""
    players: Players = {
        f"{size} characters of prose before": _around(prose(size) + "\n{}") for size in LENGTHS[:-2]
    }
    players |= {f"{size} spaces after": _around("{}" + " " * size) for size in (1, 200)}
    for name, text in (
        ("politeness", "Please: {}"),
        ("twice", "{0}\n{0}"),
        ("steps", TEMPLATES[4]),
    ):
        players[name] = _around(text if "{" in text else text + "\n{}")
    for pause in (1, 3):
        players[f"{pause} pauses"] = partial(_paused, pause)
    return players


def _around(form: str) -> Make:
    return lambda seed: lambda env, seen: form.format(oracle(env))


def _paused(pauses: int, seed: int) -> Player:
    """The oracle after some turns of nothing."""
    turns = count()
    return lambda env, seen: "" if next(turns) < pauses else oracle(env)


def unsteady() -> Players:
    """Players of several texts in turn, which no rule against one text stops."""
    return {
        "counting": lambda seed: _counting(),
        "back and forth": lambda seed: _in_turn(["yes", "no"]),
    }


def half_oracle(seed: int) -> Player:
    """A player whose turns are the oracle's in half the cases, else random."""
    rng, otherwise = random.Random(seed), random_player(seed)

    def act(env: Env, observation: str) -> str:
        if rng.random() < 0.5:
            return otherwise(env, observation)
        try:
            return oracle(env)
        except NoOracle:
            # A position that earlier errors have lost may have no best action.
            return otherwise(env, observation)

    return act


def joined(first: Callable[[int], Player], second: Callable[[int], Player]) -> Make:
    """The player of both texts, one behind the other."""

    def make(seed: int) -> Player:
        one, other = first(seed), second(seed)
        return lambda env, seen: f"{one(env, seen)} {other(env, seen)}"

    return make


def prose(size: int) -> str:
    """Text of some words with that many characters."""
    return (PROSE * (size // len(PROSE) + 1))[:size]


def _fixed(text: str) -> Make:
    return lambda seed: always(text)


def _counting() -> Player:
    numbers = count(1)
    return lambda env, seen: str(next(numbers))


def _in_turn(texts: list[str]) -> Player:
    turns: Iterator[int] = count()
    return lambda env, seen: texts[next(turns) % len(texts)]


def sample_arguments(schema: ToolSchema) -> dict[str, Any]:
    """Arguments that fit the schema of a call."""
    parameters = schema["function"]["parameters"]
    return {name: _value(parameters["properties"][name]) for name in parameters.get("required", ())}


def _value(schema: Mapping[str, Any]) -> object:
    if "enum" in schema:
        return schema["enum"][0]
    if "anyOf" in schema:
        return _value(schema["anyOf"][0])
    return _SAMPLES.get(schema.get("type", "string"))
