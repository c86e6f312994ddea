"""Faults of graders and rewards."""

import random
import re
import time
from typing import ClassVar

from ludic_gym.envs.core.base import end
from ludic_gym.envs.core.question import Question
from ludic_gym.envs.games.guessing import GuessTheNumberEnv
from ludic_gym.envs.games.tic_tac_toe import TicTacToeEnv
from ludic_gym.envs.questions.arithmetic import ArithmeticEnv
from ludic_gym.envs.questions.multiple_choice import MultipleChoiceEnv
from ludic_gym.envs.questions.short_answer import ShortAnswerEnv
from mutants.planted import graded_by, number_in, paid, planted


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
class SuccessInverted(TicTacToeEnv):
    """`success` is True for a loss."""

    def turn(self, action):
        *turn, info = super().turn(action)
        if "success" in info:
            info = {**info, "success": not info["success"]}
        return (*turn, info)


@planted
class EqualReward(ArithmeticEnv):
    """Right and wrong replies earn the same reward."""

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
class TagIsWrong(ShortAnswerEnv):
    """A reply without the tag of the prompt is wrong, and harnesses take it off."""

    def turn(self, action):
        if "</answer>" not in action:
            return paid(self, False, answer="", rule="none", **self.about)
        return super().turn(action)

    def best_action(self):
        """The answer in the tag."""
        return f"<answer>{super().best_action()}</answer>"


@planted
class BrokenTool(ArithmeticEnv):
    """Its tool fails at each call."""

    def tools(self):
        def total(numbers: list[int]) -> int:
            """Add the numbers."""
            return sum(number.value for number in numbers) + missing  # noqa: F821

        return (total,)


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
