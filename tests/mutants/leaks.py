"""Answers that can be read before the end of the episode."""

import base64

from ludic_gym.envs.core.question import Question
from ludic_gym.envs.games.guessing import GuessTheNumberEnv
from ludic_gym.envs.games.words import WordleEnv
from ludic_gym.envs.questions.arithmetic import ArithmeticEnv
from ludic_gym.envs.questions.multiple_choice import MultipleChoiceEnv
from ludic_gym.envs.questions.short_answer import ShortAnswerEnv
from mutants.planted import planted


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
        return (*turn, {**info, "hidden": self.word})


@planted
class WordAfterIllegal(WordleEnv):
    """A text that is no word is answered by the hidden word."""

    def turn(self, action):
        text, *turn, info = super().turn(action)
        hint = f"Try a word such as {self.word}.\n" if info["illegal"] else ""
        return (hint + text, *turn, info)


@planted
class NumberAfterMiss(GuessTheNumberEnv):
    """The first hint shows the hidden number."""

    def view(self):
        text = super().view()
        return f"{text}\nThe number was: {self.number}" if self.turns_left < self.turns else text


@planted
class WordInRender(WordleEnv):
    """The picture has the hidden word from the start."""

    def picture(self):
        return f"{self.view()}\nword: {self.word}"
