"""Small environments of our own without a fault, from which `mutants.small` plants faults.

Written from nothing, unlike the other mutants, so that nothing of the catalogue is assumed.
"""

from collections.abc import Callable
from typing import ClassVar

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from ludic_gym.adapters.numeric_env import as_text
from ludic_gym.envs.core.base import TextEnv, end, proceed
from ludic_gym.spaces import TEXT

FAULTS: dict[str, tuple[str, Callable]] = {}
"""Kind and constructor of each fault, by id."""

SOUND_SMALL: dict[str, Callable] = {}
"""Constructors of the environments without a fault, by id."""

# fmt: off
WORDS = (
    "anchor", "basket", "candle", "dragon", "eleven", "forest", "garden", "hammer", "island",
    "jacket", "kettle", "ladder", "magnet", "needle", "orange", "pencil", "quiver", "ribbon",
    "saddle", "tunnel", "violet", "walnut", "yellow", "zipper",
)
# fmt: on


def fault(kind):
    """Decorator that puts a class into `FAULTS`."""

    def put(cls):
        FAULTS[f"small/{cls.__name__}-v0"] = kind, cls
        return cls

    return put


def sound(cls):
    """Decorator that puts a class into `SOUND_SMALL`."""
    SOUND_SMALL[f"small/{cls.__name__}-v0"] = cls
    return cls


class Asked(TextEnv):
    """A question and its answer; subclasses draw it."""

    single_turn = True
    prompt = "Reply with the answer and nothing else."

    def draw(self):
        raise NotImplementedError

    def start(self, options):
        self.text, self.truth = self.draw()
        return self.text, {"system_prompt": self.prompt, **self.facts()}

    def facts(self):
        return {}

    def right(self, action):
        return action.strip().casefold() == self.truth.casefold()

    def extra(self, action, won):
        return 0.0

    def turn(self, action):
        won = self.right(action)
        return end(success=won, correct=float(won), extra=self.extra(action, won))

    def best_action(self):
        return self.truth

    def below(self, high):
        return int(self.np_random.integers(high))


@sound
class Sums(Asked):
    """Sums of two numbers."""

    def draw(self):
        a, b = 10 + self.below(990), 10 + self.below(990)
        return f"What is {a} + {b}?", str(a + b)


@sound
class Spelling(Asked):
    """The word in a list that comes first."""

    def draw(self):
        words = [str(w) for w in self.np_random.choice(WORDS, 8, replace=False)]
        return f"Which comes first in a dictionary: {', '.join(words)}?", min(words)


@sound
class Options(Asked):
    """One of four numbers is the largest."""

    prompt = "Reply with the letter of the option."

    def numbers(self):
        return [int(n) for n in self.np_random.choice(1000, 4, replace=False)]

    def lines(self, numbers):
        return [f"{letter}. {number}" for letter, number in zip("ABCD", numbers, strict=True)]

    def draw(self):
        numbers = self.numbers()
        truth = "ABCD"[numbers.index(max(numbers))]
        return "\n".join(["Which is the largest?", *self.lines(numbers)]), truth


@sound
class Hunt(TextEnv):
    """A hidden number from 1 to 30, found by guesses that are too high or too low."""

    turns = 6
    prompt = "Guess the number from 1 to 30. Reply with a number. You have 6 guesses."

    def start(self, options):
        self.number, self.left = int(self.np_random.integers(30)) + 1, self.turns
        self.low, self.high = 1, 30
        return "Your first guess?", self.prompt

    def answer(self, action):
        guess = int(action) if action.strip().isdecimal() and len(action) < 9 else 0
        if guess < self.number:
            self.low = max(self.low, guess + 1)
            return "Too low."
        self.high = min(self.high, guess - 1)
        return "Too high."

    def kept(self, action, text):
        """The turn after a miss."""
        return proceed(text)

    def lost(self):
        return end("No guesses are left.", success=False)

    def turn(self, action):
        self.left -= 1
        if action.strip() == str(self.number):
            return end("Found.", success=True)
        if self.left <= 0:
            return self.lost()
        return self.kept(action, self.answer(action))

    def best_action(self):
        return str((self.low + self.high) // 2)


@sound
class Chain(TextEnv):
    """Four doors, each opened by its colour, which a sign names."""

    steps, limit = 4, 12
    prompt = 'Reply with "open" and the colour of the sign. You have 12 moves.'

    def start(self, options):
        self.colours = [str(w) for w in self.np_random.choice(WORDS, self.steps)]
        self.at = self.moves = 0
        return self.sign(), self.prompt

    def sign(self):
        return f"Door {self.at + 1}. The sign says {self.colours[self.at]}."

    def pay(self, opened, action):
        return 0.0

    def turn(self, action):
        self.moves += 1
        opened = action.strip() == f"open {self.colours[self.at]}"
        reward = self.pay(opened, action)
        self.at += opened
        if self.at == self.steps:
            return end("You are out.", success=True, out=1.0, doors=reward)
        if self.moves >= self.limit:
            return end("It is night.", success=False, out=0.0, doors=reward)
        return proceed(self.sign(), reward)

    def best_action(self):
        return f"open {self.colours[self.at]}"


@sound
class Syllogisms(Asked):
    """Conclusions from two sentences, right if all worlds of the sentences have them."""

    prompt = "Answer yes or no."
    # Of Barbara, Celarent, Darii, Ferio and four fallacies: the sentences, and the truth.
    forms: ClassVar[list] = [
        ("all {a} are {b}; all {b} are {c}", "all {a} are {c}", "yes"),
        ("all {a} are {b}; no {b} are {c}", "no {a} are {c}", "yes"),
        ("some {a} are {b}; all {b} are {c}", "some {a} are {c}", "yes"),
        ("some {a} are {b}; no {b} are {c}", "some {a} are not {c}", "yes"),
        ("all {a} are {b}; all {c} are {b}", "all {a} are {c}", "no"),
        ("all {a} are {b}; some {b} are {c}", "some {a} are {c}", "no"),
        ("no {a} are {b}; all {c} are {b}", "all {a} are {c}", "no"),
        ("some {a} are {b}; some {b} are {c}", "some {a} are {c}", "no"),
    ]

    def draw(self):
        given, then, truth = self.forms[self.below(8)]
        kinds = [f"{w}s" for w in self.np_random.choice(WORDS, 3, replace=False)]
        names = dict(zip("abc", kinds, strict=True))
        text = f"Given: {given}. Does it follow that {then}?"
        return text.format(**names), truth


@sound
class Levers(TextEnv):
    """Four levers of unknown worth are tried twelve times; the best one is named in the end."""

    levers = ("left", "right", "upper", "lower")
    prompt = "Reply with the name of a lever. You have 12 pulls, then name the best lever."

    def start(self, options):
        self.odds = dict(
            zip(self.levers, self.np_random.permutation([0.1, 0.2, 0.3, 0.9]).tolist(), strict=True)
        )
        self.left = 12
        return f"The levers: {', '.join(self.levers)}.", self.prompt

    def allowed_actions(self):
        return self.levers

    def worth(self, lever):
        return self.odds[lever] / 0.9

    def turn(self, action):
        if action not in self.levers:
            return end("There is no such lever.", success=False)
        if self.left == 0:
            worth = self.worth(action)
            return end("", success=worth >= 1, reward=worth if worth >= 1 else worth / 10)
        self.left -= 1
        won = int(self.np_random.random() < self.odds[action])
        ask = "Name the best lever." if self.left == 0 else "Pull a lever."
        return proceed(f"You pulled {action} and got {won}. {ask}")

    def best_action(self):
        return max(self.odds, key=self.odds.get)


@sound
class Plain(gym.Env):
    """A plain Gymnasium environment of texts: no prompt, no oracle, no success."""

    observation_space = action_space = TEXT
    metadata: ClassVar[dict] = {"render_modes": []}

    def __init__(self, render_mode=None):
        self.render_mode = render_mode

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        a, b = (int(n) for n in self.np_random.integers(10, 1000, 2))
        self.truth = str(a + b)
        return f"What is {a} + {b}?", self.facts()

    def facts(self):
        return {}

    def reward(self, action):
        return float(action.strip() == self.truth)

    def step(self, action):
        return "", self.reward(action), True, False, {"truth": self.truth}


class Line(gym.Env):
    """A walk of numbers on a line, from 4 to the end that the second number names."""

    observation_space = spaces.MultiDiscrete([9, 9])
    action_space = spaces.Discrete(2)
    per_step = 0.0

    def __init__(self):
        self.render_mode = None

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.at, self.steps = 4, 0
        self.goal = 8 * int(self.np_random.integers(2))
        return np.array([self.at, self.goal]), {}

    def step(self, action):
        self.steps += 1
        self.at += 1 if action == 1 else -1
        over, won = self.at in (0, 8), self.at == self.goal
        reward = float(won) + self.per_step
        seen = np.array([self.at, self.goal])
        return seen, reward, over, self.steps >= 40, {"is_success": won}


class SlowLine(Line):
    """The same, with pay for every step."""

    per_step = 0.1


def line(render_mode=None):
    """The walk as texts."""
    return as_text(Line(), actions=["left", "right"])


def slow_line(render_mode=None):
    """An environment of numbers, as texts, pays for every step."""
    return as_text(SlowLine(), actions=["left", "right"])
