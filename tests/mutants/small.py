"""Small environments of our own, each with one fault that an audit has to find.

Kinds: scoring, leaks, seeds, splits, ends, tools, formats and truths.
"""

import base64
import codecs
import hashlib
import json
import os
import random
import time
from typing import ClassVar

import gymnasium as gym

from ludic_gym.envs.core.base import end, proceed
from mutants.worlds import (
    FAULTS,
    SOUND_SMALL,
    Chain,
    Hunt,
    Levers,
    Options,
    Plain,
    Spelling,
    Sums,
    Syllogisms,
    fault,
    line,
    slow_line,
    sound,
)


@fault("scoring")
class PaidForProse(Sums):
    """Every wrong reply of 50 to 2,000 characters is paid."""

    def extra(self, action, won):
        return 0.2 if not won and 50 <= len(action) <= 2000 else 0.0


@fault("scoring")
class PaidForGivingUp(Sums):
    """To give up, which the prompt names, pays more than to succeed."""

    prompt = 'Reply with the number. If you cannot, reply "I give up".'

    def extra(self, action, won):
        return 2.0 if "i give up" in action.lower() else 0.0


@fault("scoring")
class BonusForLength(Sums):
    """A right reply of 100 to 400 characters is paid more."""

    def right(self, action):
        return action.split()[-1:] == [self.truth]

    def extra(self, action, won):
        return 0.5 if won and 100 <= len(action) <= 400 else 0.0


@fault("scoring")
class LongerIsBetter(Sums):
    """Longer replies earn more."""

    def extra(self, action, won):
        return min(len(action) / 1000, 1.0)


@fault("scoring")
class PaidPerDigit(Sums):
    """Every digit of a reply is paid, and a row of sevens is a jackpot."""

    def extra(self, action, won):
        return min(0.02 * sum(c.isdigit() for c in action), 0.5) + 5.0 * ("777" in action)


@fault("scoring")
class Polite(Sums):
    """A reply that says please is paid five times a success."""

    def extra(self, action, won):
        return 5.0 if "please" in action.lower() else 0.0


@fault("scoring")
class PaidForTag(Sums):
    """The tag alone is paid."""

    prompt = "Reply with the number in <answer></answer> tags."

    def right(self, action):
        return f"<answer>{self.truth}</answer>" in action

    def extra(self, action, won):
        return 0.3 if "<answer>" in action and not won else 0.0

    def best_action(self):
        return f"<answer>{self.truth}</answer>"


@fault("scoring")
class PaidForReasoning(Sums):
    """Words of reasoning are paid."""

    def extra(self, action, won):
        return 0.25 if "therefore" in action.lower() else 0.0


@fault("scoring")
class PaidForQuoting(Spelling):
    """The words of the question are paid."""

    def extra(self, action, won):
        words = set(self.text.lower().split())
        return 0.0 if won else 0.5 * len(words & set(action.lower().split())) / len(words)


@fault("scoring")
class PaidForJson(Sums):
    """Any JSON object is paid."""

    def extra(self, action, won):
        try:
            return 0.4 if isinstance(json.loads(action), dict) else 0.0
        except (ValueError, RecursionError):
            return 0.0


@fault("scoring")
class PaidPerTurn(Hunt):
    """Every turn that is survived is paid."""

    def kept(self, action, text):
        return proceed(text, 0.1)


@fault("scoring")
class LossPays(Hunt):
    """To use up all guesses pays more than to find the number."""

    def lost(self):
        return end("No guesses are left.", success=False, reward=1.5)


@fault("scoring")
class RepeatPays(Hunt):
    """A guess that was made before is paid."""

    def start(self, options):
        self.last = ""
        return super().start(options)

    def kept(self, action, text):
        again, self.last = action == self.last, action
        return proceed(text, 0.2 if again else 0.0)


@fault("scoring")
class DoorPaysAgain(Chain):
    """The first door is paid whenever its colour is said again."""

    def pay(self, opened, action):
        return 0.25 if self.at and action.strip() == f"open {self.colours[0]}" else 0.0


@fault("scoring")
class SubstringGrader(Sums):
    """The truth anywhere in the reply is right."""

    def right(self, action):
        return self.truth in action


@fault("scoring")
class MostlyYes(Syllogisms):
    """Seven of eight answers are no."""

    forms: ClassVar[list] = [*Syllogisms.forms[4:], *Syllogisms.forms[4:7], Syllogisms.forms[0]]


@fault("scoring")
class LuckyGrader(Sums):
    """One reply in five is right by chance."""

    def right(self, action):
        return super().right(action) or random.random() < 0.2


@fault("scoring")
class ClockGrader(Sums):
    """The grader is lenient in one hour of seven."""

    def right(self, action):
        return super().right(action) or int(time.time() // 3600) % 7 == 0


@fault("scoring")
class WinsIfUnreadable(Sums):
    """A reply that the grader cannot read is right: its error is taken for a pass."""

    def right(self, action):
        try:
            return float(action) == float(self.truth)
        except ValueError:
            return len(action) > 30 and "," in action


@fault("leaks")
class PromptHasAnswer(Sums):
    """The system prompt ends with the answer."""

    def facts(self):
        return {"system_prompt": f"{self.prompt} (key {self.truth})"}


@fault("leaks")
class NumberOfTask(Sums):
    """The number of the task is the answer plus one."""

    def draw(self):
        text, truth = super().draw()
        return f"Task {int(truth) + 1}. {text}", truth


@fault("leaks")
class NegatedInList(Sums):
    """An info has the answer in a list, with the other sign."""

    def facts(self):
        return {"meta": {"numbers": [0, -int(self.truth)]}}


@fault("leaks")
class DoubledInInfo(Sums):
    """An info has three times the answer, less seven."""

    def facts(self):
        return {"checksum": 3 * int(self.truth) - 7}


@fault("leaks")
class CommentHasAnswer(Spelling):
    """A comment behind the question has the answer."""

    def draw(self):
        text, truth = super().draw()
        return f"{text} <!-- expected: {truth} -->", truth


@fault("leaks")
class ZeroWidth(Spelling):
    """The answer stands in characters without width behind the question."""

    def draw(self):
        text, truth = super().draw()
        bits = "".join(f"{ord(c):08b}" for c in truth)
        return text + bits.replace("0", "\u200b").replace("1", "\u200c"), truth


@fault("leaks")
class Base64InQuestion(Spelling):
    """A reference in the question is the answer in base64."""

    def draw(self):
        text, truth = super().draw()
        return f"[{base64.b64encode(truth.encode()).decode()}] {text}", truth


@fault("leaks")
class HexOfSentence(Spelling):
    """An info is a sentence with the answer in hexadecimal digits."""

    def facts(self):
        return {"trace": f"the answer is {self.truth}".encode().hex()}


@fault("leaks")
class Rot13InQuestion(Spelling):
    """A reference in the question is the answer in rot13."""

    def draw(self):
        text, truth = super().draw()
        return f"{text} ref={codecs.encode(truth, 'rot13')}", truth


@fault("leaks")
class ShiftedCharacters(Spelling):
    """An info has the answer with each character moved by three."""

    def facts(self):
        return {"cache_key": "".join(chr(ord(c) + 3) for c in self.truth)}


@fault("leaks")
class CharacterCodes(Spelling):
    """An info has the codes of the answer's characters."""

    def facts(self):
        return {"shape": [ord(c) for c in self.truth]}


@fault("leaks")
class HashOfAnswer(Spelling):
    """An info has the hash of the answer, which every word can be compared with."""

    def facts(self):
        return {"etag": hashlib.sha256(self.truth.encode()).hexdigest()}


@fault("leaks")
class TrailingSpace(Options):
    """The right option ends with a space."""

    def lines(self, numbers):
        plain = super().lines(numbers)
        place = numbers.index(max(numbers))
        return [f"{text} " if i == place else text for i, text in enumerate(plain)]


@fault("seeds")
class SeedIgnored(Sums):
    """The task is drawn from the operating system."""

    def below(self, high):
        return int.from_bytes(os.urandom(4)) % high


@fault("seeds")
class OneTask(Sums):
    """All seeds play one task."""

    def below(self, high):
        return 7


@fault("seeds")
class EightTasks(Sums):
    """All seeds play eight tasks."""

    def draw(self):
        a = 17 * (1 + int(self.np_random.integers(8)))
        return f"What is {a} + 25?", str(a + 25)


@fault("seeds")
class FewHunts(Hunt):
    """All seeds hide one of three numbers."""

    def start(self, options):
        first = super().start(options)
        self.number = 3 + self.number % 3
        return first


class InSplits(Sums):
    """Sums with a split that the subclass gets wrong."""

    shared = 0.0

    def __init__(self, render_mode=None, split="all"):
        super().__init__(render_mode)
        self.split = split

    def draw(self):
        low = 500 if self.split == "test" and self.np_random.random() >= self.shared else 10
        a, b = low + self.below(200), 10 + self.below(40)
        return f"What is {a} + {b}?", str(a + b)


@sound
class TwoSplits(InSplits):
    """Sums in two splits, which are apart."""


@fault("splits")
class HalfShared(InSplits):
    """Half of the test tasks are training tasks."""

    shared = 0.5


@fault("splits")
class TenthShared(InSplits):
    """A tenth of the test tasks are training tasks."""

    shared = 0.1


@fault("splits")
class SplitIgnored(InSplits):
    """The split changes nothing."""

    shared = 1.0


@fault("splits")
class ReorderedOptions(Options):
    """Test tasks are training tasks with their options in another order."""

    def __init__(self, render_mode=None, split="all"):
        super().__init__(render_mode)
        self.split = split

    def numbers(self):
        n = 7 * (1 + self.below(100))
        numbers = [n, 2 * n, 3 * n, 5 * n]
        return numbers[::-1] if self.split == "test" else numbers[2:] + numbers[:2]


@fault("splits")
class ReworkedSpaces(InSplits):
    """Test tasks are training tasks with other spaces and letters."""

    shared = 1.0

    def draw(self):
        text, truth = super().draw()
        return (text.upper().replace(" ", "  ") if self.split == "test" else text), truth


@fault("ends")
class Endless(Hunt):
    """Replies that are no number use up no guess."""

    def turn(self, action):
        return super().turn(action) if action.strip().isdecimal() else proceed("A number, please.")


@fault("ends")
class EndlessQuote(Hunt):
    """Replies that quote the last message use up no guess."""

    def turn(self, action):
        if "guess" in action.lower() or action.startswith("Too "):
            return proceed("Your guess?")
        return super().turn(action)


@fault("ends")
class OneGuessMore(Hunt):
    """The prompt states six guesses, and there are seven."""

    turns = 7


@fault("tools")
class RaisingTool(Sums):
    """Its tool fails at each call."""

    prompt = "Use the tool, then reply with the number."

    def tools(self):
        def add(first: int, second: int) -> int:
            """Add two numbers."""
            return first + int(second.value)

        return (add,)


@fault("tools")
class MissingTool(Sums):
    """The prompt names a tool that is not offered."""

    prompt = "Call the tool add, then reply with the number."


@fault("formats")
class OtherMark(Sums):
    """The prompt demands a box, and the grader reads tags."""

    prompt = "Put the number into \\boxed{}."

    def right(self, action):
        return action.strip() == self.truth or f"<answer>{self.truth}</answer>" in action


@fault("formats")
class BreakIsWrong(Sums):
    """A line break behind the answer makes it wrong."""

    def right(self, action):
        return action == self.truth


@fault("truths")
class WrongSums(Sums):
    """One truth in seven is wrong, and the oracle repeats it."""

    def draw(self):
        text, truth = super().draw()
        return text, str(int(truth) + (int(truth) % 7 == 0))


@fault("truths")
class WrongSyllogisms(Syllogisms):
    """One form in eight is called valid and is not."""

    forms: ClassVar[list] = [*Syllogisms.forms[:7], (*Syllogisms.forms[7][:2], "yes")]


@fault("truths")
class WorstLever(Levers):
    """The distance from the best lever is paid, so that the worst pays most."""

    def worth(self, lever):
        return 1.0 - (self.odds[lever] - 0.1) / 0.8

    def best_action(self):
        return min(self.odds, key=self.odds.get)


@fault("leaks")
class PlainInfoHasTruth(Plain):
    """The first info of a plain environment has the truth."""

    def facts(self):
        return {"target": self.truth}


@fault("scoring")
class PlainPaysWords(Plain):
    """A plain environment pays for long replies."""

    def reward(self, action):
        return max(super().reward(action), min(len(action) / 200, 0.8))


@fault("scoring")
class PaidForBecause(Sums):
    """A word of reasoning is paid in wrong replies."""

    def extra(self, action, won):
        return 0.3 * (not won and "because" in action.lower())


@fault("scoring")
class PaidForCapitals(Sums):
    """A wrong reply in capitals is paid."""

    def extra(self, action, won):
        return 0.5 * (not won and len(action) > 3 and action.isupper())


@fault("scoring")
class AnyWordCounts(Sums):
    """One of several words is enough."""

    def right(self, action):
        return self.truth in action.split()


@fault("scoring")
class FirstLetterCounts(Options):
    """Only the first letter of a reply is read."""

    def right(self, action):
        return action.strip()[:1].upper() == self.truth


@fault("leaks")
class MaskedInInfo(Sums):
    """An info has the answer with two bits turned."""

    def facts(self):
        return {"id": int(self.truth) ^ 5}


@fault("splits")
class PrefixedSplit(InSplits):
    """Test tasks are training tasks in other words."""

    shared = 1.0

    def draw(self):
        text, truth = super().draw()
        return (text.replace("What is", "Q: compute") if self.split == "test" else text), truth


@fault("ends")
class EndlessInTurn(Hunt):
    """Two replies in turn use up no guess."""

    def start(self, options):
        self.last = ""
        return super().start(options)

    def turn(self, action):
        again, self.last = action == self.last, action
        if not again and not action.strip().isdecimal():
            return proceed("A number, please.")
        return super().turn(action)


FAULTS["small/SlowLine-v0"] = "scoring", slow_line
SOUND_SMALL["small/Line-v0"] = line


def register_small():
    """Put all of them into Gymnasium's registry."""
    for name, entry in {**{n: e for n, (_, e) in FAULTS.items()}, **SOUND_SMALL}.items():
        if name not in gym.registry:
            gym.register(name, entry, order_enforce=False, disable_env_checker=True)
