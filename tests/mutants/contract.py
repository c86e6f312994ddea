"""Faults of the contract of text environments: ends, infos, limits, oracle, texts."""

from ludic_gym.envs.core.base import proceed
from ludic_gym.envs.games.grids import MazeEnv
from ludic_gym.envs.games.guessing import GuessTheNumberEnv
from ludic_gym.envs.games.tic_tac_toe import TicTacToeEnv
from ludic_gym.envs.games.words import WordleEnv
from ludic_gym.envs.questions.arithmetic import ArithmeticEnv
from ludic_gym.envs.questions.short_answer import ShortAnswerEnv
from mutants.planted import graded_by, number_in, planted


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
class BothEnds(TicTacToeEnv):
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
class PassForFree(TicTacToeEnv):
    """An illegal move passes the turn instead of losing."""

    def turn(self, action):
        if not self.game.is_allowed(self.state, self.game.read(action)):
            return proceed(self.game.observation(self.state, self.seat))
        return super().turn(action)
