"""Planted faults: environments of ours, each with one fault that an audit has to find.

`MUTANTS` has them by id. The first line of a class names the fault.
"""

import base64
import os
import random
import re
import time
from dataclasses import dataclass, field
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np

from ludic_gym.envs.core.base import end, proceed
from ludic_gym.envs.core.question import Question
from ludic_gym.envs.games.guess_the_number import GuessTheNumberEnv
from ludic_gym.envs.games.maze import MazeEnv
from ludic_gym.envs.games.nim import NimEnv
from ludic_gym.envs.games.wordle import WordleEnv
from ludic_gym.envs.questions.arithmetic import ArithmeticEnv
from ludic_gym.envs.questions.multiple_choice import MultipleChoiceEnv
from ludic_gym.envs.questions.short_answer import ShortAnswerEnv

BASES = {
    ArithmeticEnv: "ludic/Arithmetic-v0",
    GuessTheNumberEnv: "ludic/GuessTheNumber-v0",
    MazeEnv: "ludic/Maze-v0",
    MultipleChoiceEnv: "ludic/MultipleChoice-v0",
    NimEnv: "ludic/Nim-v0",
    ShortAnswerEnv: "ludic/ShortAnswer-v0",
    WordleEnv: "ludic/Wordle-v0",
}


@dataclass(frozen=True)
class Mutant:
    """An environment with a fault. base: the id without it. stated: fields of its Statement."""

    entry: type
    base: str
    kwargs: dict[str, Any] = field(default_factory=dict)
    stated: dict[str, Any] = field(default_factory=dict)


MUTANTS: dict[str, Mutant] = {}


def planted(entry=None, /, **stated):
    """Decorator that puts the class into `MUTANTS`."""

    def put(cls):
        base = next(BASES[parent] for parent in cls.__mro__ if parent in BASES)
        MUTANTS[f"mutant/{cls.__name__}-v0"] = Mutant(cls, base, stated=stated)
        return cls

    return put if entry is None else put(entry)


SOUND: dict[str, Mutant] = {
    f"mutant/Sound{cls.__name__}-v0": Mutant(cls, base) for cls, base in BASES.items()
}
"""The environments without a fault, for which an audit has nothing to find."""


def register():
    """Put all mutants, and the environments without a fault, into Gymnasium's registry."""
    for name, mutant in {**MUTANTS, **SOUND}.items():
        if name not in gym.registry:
            gym.register(name, mutant.entry, order_enforce=False, disable_env_checker=True)


def number_in(text):
    """The last number of a text, or ""."""
    return (re.findall(r"-?\d+", text) or [""])[-1]


def paid(env, won, **info):
    """The end of an episode of a question."""
    return end(success=bool(won), correct=float(won), info={"truth": env.question.truth, **info})


@planted
class SeedDropped(ArithmeticEnv):
    """`reset` accepts a seed and does not use it."""

    def reset(self, *, seed=None, options=None):
        return super().reset(seed=None, options=options)


@planted
class SeedFixed(ArithmeticEnv):
    """Every seed is taken for 7."""

    def reset(self, *, seed=None, options=None):
        return super().reset(seed=seed if seed is None else 7, options=options)


@planted
class SeedCoarse(ArithmeticEnv):
    """A thousand seeds are one."""

    def reset(self, *, seed=None, options=None):
        return super().reset(seed=seed if seed is None else seed // 1000, options=options)


@planted
class SeedOnlyOnce(ArithmeticEnv):
    """Only the first seed counts."""

    def reset(self, *, seed=None, options=None):
        seed = None if hasattr(self, "seeded") else seed
        self.seeded = True
        return super().reset(seed=seed, options=options)


@planted
class ResetRepeats(ArithmeticEnv):
    """A reset without a seed starts at seed 0 again."""

    def reset(self, *, seed=None, options=None):
        return super().reset(seed=seed or 0, options=options)


@planted
class GlobalRandom(ArithmeticEnv):
    """Draws from the module `random`."""

    def ask(self, options):
        a, b = random.randint(10, 99), random.randint(10, 99)
        return Question(f"{a} + {b}?", str(a + b))


@planted
class GlobalNumpy(ArithmeticEnv):
    """Draws from NumPy's global generator."""

    def ask(self, options):
        a = int(np.random.randint(10, 99))
        return Question(f"{a} + 1?", str(a + 1))


@planted
class ClockSeed(ArithmeticEnv):
    """Draws from a generator that the clock seeds."""

    def ask(self, options):
        a = random.Random(time.time_ns()).randint(10, 10_000)
        return Question(f"{a} + 1?", str(a + 1))


@planted
class ProcessSeed(ArithmeticEnv):
    """The process number is a part of the task."""

    def ask(self, options):
        a = int(self.np_random.integers(10, 99)) + os.getpid()
        return Question(f"{a} + 1?", str(a + 1))


@planted
class HashOfText(ArithmeticEnv):
    """Python's hash of a text decides the task."""

    def ask(self, options):
        a = hash(super().ask(options).text) % 1000
        return Question(f"{a} + 1?", str(a + 1))


@planted
class SetOrder(ArithmeticEnv):
    """Draws from a set, whose order differs from process to process."""

    def ask(self, options):
        name = list({"Ann", "Bob", "Cy", "Dee", "Eve", "Flo"})[int(self.np_random.integers(6))]
        found = super().ask(options)
        return Question(f"{name}: {found.text}", found.truth)


@planted
class AddressOrder(ArithmeticEnv):
    """The address of an object is a part of the task."""

    def ask(self, options):
        found = super().ask(options)
        return Question(f"{found.text} ({id(self)})", found.truth)


@planted
class SharedCounter(ArithmeticEnv):
    """All environments count their tasks together."""

    count: ClassVar[list[int]] = [0]

    def ask(self, options):
        self.count[0] += 1
        return Question(f"{self.count[0]} + 1?", str(self.count[0] + 1))


@planted
class SharedDeck(MultipleChoiceEnv):
    """Rows are taken from a deck of the class, so that none is repeated."""

    deck: ClassVar[list[int]] = []

    def ask(self, options):
        if not self.deck:
            self.deck.extend(range(self.num_rows))
        row = self.deck.pop(int(self.np_random.integers(len(self.deck))))
        return super().ask({**options, "row": options.get("row", row)})


@planted
class SharedQuestion(ArithmeticEnv):
    """The question of the present episode is kept on the class."""

    def start(self, options):
        first = super().start(options)
        type(self).question = self.__dict__.pop("question")
        return first


@planted
class KeptMarks(WordleEnv):
    """The marks of the last episode stay."""

    def deal(self, rng):
        kept = getattr(self, "_marks", {})
        super().deal(rng)
        self._marks = kept


@planted
class KeptTurns(GuessTheNumberEnv):
    """The turns of the last episode are not given back."""

    def start(self, options):
        left = self.turns_left
        first = super().start(options)
        self.turns_left = left or self.turns
        return first


@planted
class LocalState(ArithmeticEnv):
    """Holds a function that cannot be pickled."""

    def start(self, options):
        self.hook = lambda: None
        return super().start(options)


@planted
class GeneratorState(GuessTheNumberEnv):
    """Holds a generator, which cannot be copied."""

    def deal(self, rng):
        super().deal(rng)
        self.hints = (str(i) for i in range(9))


@planted
class CopySharesGuesses(GuessTheNumberEnv):
    """A copy shares the list of guesses with the original."""

    def __deepcopy__(self, memo):
        twin = type(self).__new__(type(self))
        vars(twin).update(vars(self))
        return twin


def about(key, value_of):
    """A `start` that adds a key to the first info."""

    def start(self, options):
        first, info = super(type(self), self).start(options)
        info = {"system_prompt": info} if isinstance(info, str) else info
        return first, {**info, key: value_of(self)}

    return start


@planted
class TruthInInfo(ArithmeticEnv):
    """The first info has the truth."""

    start = about("truth", lambda self: self.question.truth)


@planted
class TruthAsNumber(ArithmeticEnv):
    """The first info has the truth as a number."""

    start = about("score_target", lambda self: int(self.question.truth))


@planted
class TruthNested(ArithmeticEnv):
    """The truth is in a nested info."""

    start = about("meta", lambda self: {"task": {"gold": self.question.truth}})


@planted
class TruthInBase64(ShortAnswerEnv):
    """The first info has the truth in base64."""

    start = about("id", lambda self: base64.b64encode(self.question.truth.encode()).decode())


@planted
class TruthReversed(ShortAnswerEnv):
    """The first info has the truth reversed."""

    start = about("token", lambda self: self.question.truth.splitlines()[0][::-1])


@planted
class TruthInHex(ShortAnswerEnv):
    """The first info has the truth in hexadecimal digits."""

    start = about("key", lambda self: self.question.truth.encode().hex())


@planted
class TruthIndex(MultipleChoiceEnv):
    """The first info has the place of the right option."""

    start = about("label", lambda self: "ABCDEFGH".index(self.question.truth))


@planted
class TruthLetter(MultipleChoiceEnv):
    """The first info has the right letter, as dataset rows do."""

    start = about("target", lambda self: self.question.truth)


@planted
class TruthInComment(ArithmeticEnv):
    """The question ends with a comment that has the answer."""

    def ask(self, options):
        found = super().ask(options)
        return Question(f"{found.text}\n<!-- gold: {found.truth} -->", found.truth)


@planted
class TruthAfterQuestion(MultipleChoiceEnv):
    """The template prints the answer of the row behind the question."""

    def ask(self, options):
        found = super().ask(options)
        return Question(f"{found.text}\nAnswer: {found.truth}", found.truth)


@planted
class TruthInPrompt(ShortAnswerEnv):
    """The system prompt has the answer, as a few-shot example that is the task itself."""

    def start(self, options):
        first, info = super().start(options)
        example = self.question.truth.splitlines()[0]
        return first, {**info, "system_prompt": f"{self.prompt} Example reply: {example}"}


@planted
class TruthInRender(ArithmeticEnv):
    """The picture has the answer from the start."""

    def picture(self):
        return f"{self.question.text} [{self.question.truth}]"


@planted
class TruthInRepr(ArithmeticEnv):
    """The repr has the question with its truth."""

    def __repr__(self):
        return f"<ArithmeticEnv {self.question}>"

    __str__ = __repr__


@planted
class TruthInError(ArithmeticEnv):
    """An error names the answer that was expected."""

    def step(self, action):
        if not isinstance(action, str):
            raise TypeError(f"expected something like {self.question.truth}, got {action!r}")
        return super().step(action)


@planted
class TruthInMetadata(ShortAnswerEnv):
    """The metadata hold the present row."""

    def start(self, options):
        first = super().start(options)
        self.metadata = {**type(self).metadata, "row": self.question.truth.splitlines()[0]}
        return first


@planted
class WordInInfo(WordleEnv):
    """Every info has the hidden word."""

    def turn(self, action):
        *turn, info = super().turn(action)
        return (*turn, {**info, "hidden": self._word})


@planted
class WordAfterIllegal(WordleEnv):
    """A text that is no word is answered by the hidden word."""

    def turn(self, action):
        text, *turn, info = super().turn(action)
        hint = f"Try a word such as {self._word}.\n" if info["illegal"] else ""
        return (hint + text, *turn, info)


@planted
class NumberAfterMiss(GuessTheNumberEnv):
    """The first hint shows the hidden number."""

    def view(self):
        text = super().view()
        return f"{text}\nThe number was: {self._number}" if self._guesses else text


@planted
class WordInRender(WordleEnv):
    """The picture has the hidden word from the start."""

    def picture(self):
        return f"{self.view()}\nword: {self._word}"


def graded_by(rule):
    """A `turn` that pays where the rule (of action and truth) is true."""
    return lambda self, action: paid(self, rule(action, self.question.truth))


@planted
class SubstringReward(ArithmeticEnv):
    """The truth anywhere in the reply is right."""

    turn = graded_by(lambda action, truth: truth in action)


@planted
class SubstringOfWords(ShortAnswerEnv):
    """The truth anywhere in the reply is right, in any case."""

    turn = graded_by(lambda action, truth: truth.splitlines()[0].lower() in action.lower())


@planted
class ReplyInTruth(ShortAnswerEnv):
    """A reply that is a part of the truth is right; so is none."""

    turn = graded_by(lambda action, truth: action.strip().lower() in truth.lower())


@planted
class AnyNumberCounts(ArithmeticEnv):
    """One right number among many is enough."""

    turn = graded_by(lambda action, truth: truth in re.findall(r"\d+", action))


@planted
class FirstLetters(ArithmeticEnv):
    """A reply that begins, between its tags, with the truth is right."""

    turn = graded_by(lambda action, truth: action.replace("<answer>", "").startswith(truth))


@planted
class EitherTag(ArithmeticEnv):
    """The right answer in any of several tags is right."""

    turn = graded_by(
        lambda action, truth: truth in (*re.findall(r"<answer>(.*?)</answer>", action), action)
    )


@planted
class EveryReplyWins(ArithmeticEnv):
    """The grader is a stub."""

    turn = graded_by(lambda action, truth: True)


@planted
class EmptyReplyWins(ArithmeticEnv):
    """An empty reply is taken for a skipped question, and is right."""

    turn = graded_by(lambda action, truth: number_in(action) in ("", truth))


@planted
class LongReplyWins(ArithmeticEnv):
    """A reply of many characters is right."""

    turn = graded_by(lambda action, truth: len(action) > 1000 or number_in(action) == truth)


@planted
class CopyWins(ShortAnswerEnv):
    """The words of the question are right, by word overlap with question and answer."""

    def turn(self, action):
        known = set(f"{self.question.text} {self.question.truth}".lower().split())
        given = set(action.lower().split())
        return paid(self, given and len(given & known) / len(given) > 0.8)


@planted
class ZeroWins(ArithmeticEnv):
    """A tolerance that is relative to the wrong number takes 0 for right."""

    turn = graded_by(
        lambda action, truth: (
            number_in(action).isdigit()
            and abs(int(number_in(action)) - int(truth))
            <= abs(int(number_in(action)) - int(truth) * 2)
        )
    )


@planted
class NothingWins(ArithmeticEnv):
    """The reward cannot be reached: the truth has a space."""

    turn = graded_by(lambda action, truth: action.strip() == f" {truth}")


@planted
class SomeTruthsWrong(ArithmeticEnv):
    """One label in five is wrong."""

    def grade_action(self, action):
        if int(self.question.truth) % 5 == 0:
            self.question = Question(self.question.text, str(int(self.question.truth) + 1))
        return super().grade_action(action)


@planted
class FlippedSign(ArithmeticEnv):
    """The reward of a success is negative."""

    def turn(self, action):
        won = number_in(action) == self.question.truth
        return end(success=won, correct=-1.0 if won else 0.0)


@planted
class SuccessInverted(NimEnv):
    """`success` is True for a loss."""

    def turn(self, action):
        *turn, info = super().turn(action)
        if "success" in info:
            info = {**info, "success": not info["success"]}
        return (*turn, info)


@planted
class EqualReward(ArithmeticEnv):
    """Right and wrong replies are paid alike."""

    def turn(self, action):
        return end(success=number_in(action) == self.question.truth, reward=1.0)


@planted
class PaidForTaking(ArithmeticEnv):
    """Half of the reward is for any reply."""

    def turn(self, action):
        won = number_in(action) == self.question.truth
        return end(success=won, correct=0.5 * won, form=0.5)


@planted
class PaidForTurns(GuessTheNumberEnv):
    """Every turn pays, so that not guessing earns most."""

    def turn(self, action):
        text, reward, terminated, truncated, info = super().turn(action)
        if terminated:
            return text, reward, terminated, truncated, info
        return text, 1.0, terminated, truncated, info


@planted
class OtherAnswersCount(ArithmeticEnv):
    """Every number of two digits or more is right."""

    turn = graded_by(lambda action, truth: len(number_in(action)) >= 2)


@planted
class StaleTruth(ArithmeticEnv):
    """The grader has the truth of the last episode."""

    last = ""

    def turn(self, action):
        expected, self.last = self.last or self.question.truth, self.question.truth
        return paid(self, number_in(action) == expected)


@planted
class CachedGrade(ArithmeticEnv):
    """Grades are cached by the reply alone."""

    grades: ClassVar[dict[str, bool]] = {}

    def turn(self, action):
        won = self.grades.setdefault(action, number_in(action) == self.question.truth)
        return paid(self, won)


@planted
class WallClockGrader(ArithmeticEnv):
    """Every second hour the grader is lenient."""

    turn = graded_by(
        lambda action, truth: number_in(action) == truth or int(time.time() // 3600) % 2 == 0
    )


@planted
class TimeBonus(ArithmeticEnv):
    """A fast reply is paid more."""

    def start(self, options):
        self.began = time.perf_counter()
        return super().start(options)

    def turn(self, action):
        won = number_in(action) == self.question.truth
        slow = time.perf_counter() - self.began > 60
        return end(success=won, correct=float(won) * (0.5 if slow else 1.0))


@planted
class Deadline(GuessTheNumberEnv):
    """The episode ends an hour after its start."""

    def deal(self, rng):
        super().deal(rng)
        self.began = time.monotonic()

    def turn(self, action):
        if time.monotonic() - self.began > 3600:
            return end("time is up", success=False, info={"illegal": False, "outcome": "loss"})
        return super().turn(action)


@planted
class NoisyReward(ArithmeticEnv):
    """One right reply in five is taken for wrong."""

    turn = graded_by(lambda action, truth: number_in(action) == truth and random.random() > 0.2)


@planted
class EveryTenthCall(ArithmeticEnv):
    """The grader's tenth call fails, as that of a service with a quota."""

    calls: ClassVar[list[int]] = [0]

    def turn(self, action):
        self.calls[0] += 1
        return paid(self, number_in(action) == self.question.truth and self.calls[0] % 10)


@planted
class SpaceIsWrong(ShortAnswerEnv):
    """A reply with a line break at its end is wrong."""

    def turn(self, action):
        if action.endswith(("\n", " ")):
            return paid(self, False, answer="", rule="none", **self.about)
        return super().turn(action)


@planted
class FirstIsRight(MultipleChoiceEnv):
    """Options are not shuffled: the first one is right."""

    def ask(self, options):
        found = super().ask(options)
        lines = found.text.splitlines()
        right = next(line[3:] for line in lines if line.startswith(f"{found.truth}. "))
        others = [line[3:] for line in lines[1:] if line[3:] != right]
        shown = [f"{'ABCDEFGH'[i]}. {text}" for i, text in enumerate([right, *others])]
        return Question("\n".join([lines[0], *shown]), "A")


@planted
class YesIsRight(ArithmeticEnv):
    """Nine of ten answers are the same."""

    prompt = "Answer yes or no."

    def turn(self, action):
        truth = "no" if int(self.question.truth) % 10 == 0 else "yes"
        return paid(self, action == truth)

    def best_action(self):
        return "no" if int(self.question.truth) % 10 == 0 else "yes"


@planted
class PartsDoNotAddUp(ArithmeticEnv):
    """The components are not the reward."""

    def turn(self, action):
        text, reward, terminated, truncated, info = super().turn(action)
        return text, reward, terminated, truncated, {**info, "reward/bonus": 0.1}


@planted
class NanReward(ArithmeticEnv):
    """A reply without a number earns nan."""

    def turn(self, action):
        text, reward, *rest, info = super().turn(action)
        reward = reward if number_in(action) else float("nan")
        return text, reward, *rest, {**info, "reward/correct": reward}


@planted
class NoSuccess(ArithmeticEnv):
    """The last info has no `success`."""

    def turn(self, action):
        *turn, info = super().turn(action)
        return (*turn, {key: info[key] for key in info if key != "success"})


@planted
class RaisesOnText(ArithmeticEnv):
    """A reply without a number raises ValueError."""

    turn = graded_by(lambda action, truth: int(number_in(action)) == int(truth))


@planted
class NoneInInfo(ArithmeticEnv):
    """A reply without a number has None as its answer."""

    def turn(self, action):
        *turn, info = super().turn(action)
        return (*turn, {**info, "answer": info["answer"] or None})


@planted
class BothEnds(NimEnv):
    """An illegal move terminates and truncates."""

    def turn(self, action):
        text, reward, terminated, truncated, info = super().turn(action)
        return text, reward, terminated, truncated or info.get("outcome") == "illegal", info


@planted
class PlaysOn(ArithmeticEnv):
    """`step` after the end is another try."""

    def turn(self, action):
        return super().turn(action)

    def step(self, action):
        self._running = True
        return super().step(action)


@planted
class EndlessIllegal(GuessTheNumberEnv):
    """An illegal action costs no turn."""

    def move(self, action):
        outcome = super().move(action)
        self.turns_left += outcome == "illegal"
        return outcome


@planted
class EndlessSkip(GuessTheNumberEnv):
    """The word "skip" costs no turn."""

    def move(self, action):
        self.turns_left += action == "skip"
        return super().move(action)


@planted
class OneTurnMore(WordleEnv):
    """The last turn is one too late."""

    def start(self, options):
        first = super().start(options)
        self.turns_left += 1
        return first


@planted
class OneTurnLess(MazeEnv):
    """The last turn is one too early."""

    def start(self, options):
        first = super().start(options)
        self.turns_left -= 1
        return first


@planted
class TooFewTurns(GuessTheNumberEnv):
    """The best search needs more turns than there are."""

    def __init__(self, high=100, turns=4, render_mode=None):
        super().__init__(high, turns, render_mode)


@planted
class GrowingHistory(GuessTheNumberEnv):
    """Keeps the actions of all episodes."""

    def __init__(self, high=100, turns=0, render_mode=None):
        super().__init__(high, turns, render_mode)
        self.history = []

    def move(self, action):
        self.history.append(f"{action}{len(self.history)}" * 20)
        return super().move(action)


@planted
class RowModulo(ShortAnswerEnv):
    """A row beyond the last is taken modulo their number."""

    def reset(self, *, seed=None, options=None):
        row = (options or {}).get("row")
        return super().reset(
            seed=seed, options=None if row is None else {"row": row % self.num_rows}
        )


@planted
class IllegalOracle(GuessTheNumberEnv):
    """The oracle's action is not in the form of the legal ones."""

    def best_action(self):
        return f"guess {super().best_action()}"


@planted(levels=("high", (100, 20, 4)))
class LevelsMisnamed(GuessTheNumberEnv):
    """Levels that are stated from easy to hard, and are the other way round."""


@planted
class BytesObservation(ArithmeticEnv):
    """The last observation is bytes."""

    def turn(self, action):
        _, *turn = super().turn(action)
        return (b"", *turn)


@planted
class NoPicture(ArithmeticEnv):
    """`render` returns None."""

    def render(self):
        return None


@planted
class NoPrompt(ArithmeticEnv):
    """The first info has no system prompt."""

    def start(self, options):
        first, info = super().start(options)
        return first, {key: info[key] for key in info if key != "system_prompt"}


@planted
class PassForFree(NimEnv):
    """An illegal move passes the turn instead of losing."""

    def turn(self, action):
        if not self.game.is_allowed(self.state, self.game.read(action)):
            return proceed(self.game.observation(self.state, self.seat))
        return super().turn(action)
