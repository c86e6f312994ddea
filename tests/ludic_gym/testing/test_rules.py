import random
import re
import threading
from typing import ClassVar

import gymnasium as gym
import numpy as np
import pettingzoo
import pytest

import ludic_gym  # noqa: F401 (registers the ids)
from ludic_gym.envs.core.base import TextEnv, end, proceed
from ludic_gym.envs.games.tic_tac_toe import TicTacToeAECEnv
from ludic_gym.errors import ContractError
from ludic_gym.testing.check import check_text_env
from ludic_gym.tools.tool import tool_schema


class Sound(TextEnv):
    """Two turns; right is a digit that the seed decides."""

    def start(self, options):
        self.turns = 0
        self.right = str(int(self.np_random.random() * 10))
        return f"Not {self.right}.", {"system_prompt": "Say something."}

    def turn(self, action):
        self.turns += 1
        text, info = f"turn {self.turns}", {"turn": self.turns}
        if self.turns < 2:
            return proceed(text, info=info)
        right = action != self.right
        return end(text, success=right, info=info, other=float(right))


def changed(**changes):
    """A Sound whose step's result is changed: text, reward, terminated, truncated, or info."""

    def advance(self, action):
        text, reward, terminated, truncated, info = Sound.turn(self, action)
        turn = {"text": text, "reward": reward, "terminated": terminated, "truncated": truncated}
        turn["info"] = info
        for name, change in changes.items():
            turn[name] = change(self, turn)
        return tuple(turn.values())

    return advance


def with_info(**values):
    """A Sound whose info has more keys; a value may be a function of the turn."""
    return changed(
        info=lambda self, turn: (
            turn["info"]
            | {
                key: value(self.turns) if callable(value) else value
                for key, value in values.items()
            }
        )
    )


class NoneInInfo(Sound):
    turn = with_info(hint=None)


class EpisodeInInfo(Sound):
    turn = with_info(episode=1)


class TypeChanges(Sound):
    turn = with_info(score=lambda turn: 1 if turn == 1 else 0.5)


class CutOffAtOnce(Sound):
    turn = changed(
        truncated=lambda self, turn: True,
        terminated=lambda self, turn: False,
        info=lambda self, turn: end(success=False, other=turn["reward"])[-1],
    )


class NeitherSum(Sound):
    turn = changed(
        info=lambda self, turn: turn["info"] | ({"reward/bonus": 0.5} if self.turns == 2 else {})
    )


class NoSuccess(Sound):
    turn = changed(
        info=lambda self, turn: {k: v for k, v in turn["info"].items() if k != "success"}
    )


class NanReward(Sound):
    turn = changed(reward=lambda self, turn: float("nan") if self.turns == 2 else 0.0)


class BothEnds(Sound):
    turn = changed(truncated=lambda self, turn: turn["terminated"])


class TooLong(Sound):
    turn = changed(text=lambda self, turn: "x" * 100_000)


class Raises(Sound):
    def turn(self, action):
        int(action)
        return Sound.turn(self, action)


class OwnRandomness(Sound):
    def start(self, options):
        text, info = Sound.start(self, options)
        return text + str(random.random()), info


class NumpyRandomness(Sound):
    def turn(self, action):
        text, *rest = Sound.turn(self, action)
        return (text if self.turns == 1 else text + str(np.random.random()), *rest)


class SharedState(Sound):
    played = 0

    def turn(self, action):
        type(self).played += 1
        text, *rest = Sound.turn(self, action)
        return (text if self.turns == 1 else text + str(self.played), *rest)


class NoPrompt(Sound):
    def start(self, options):
        return Sound.start(self, options)[0], {}


class NoHtml(Sound):
    metadata: ClassVar = {"render_modes": ["ansi"], "render_fps": 1}


class RendersBytes(Sound):
    def render(self):
        return "ok" if self.render_mode == "ansi" else b"ok"


class CannotBeCopied(Sound):
    def start(self, options):
        self.lock = threading.Lock()
        return Sound.start(self, options)


class ForgetsWhenCopied(Sound):
    def __getstate__(self):
        return vars(self) | {"right": "none", "turns": 0}


class RowsIgnored(Sound):
    num_rows = 10


class WrongOracle(Sound):
    def legal_actions(self):
        return ("a", "b")

    def oracle_action(self):
        return "c"


class StepsAfterTheEnd(Sound):
    def step(self, action):
        self._running = self._observation is not None
        return super().step(action)


class StepsBeforeReset(Sound):
    def __init__(self, render_mode=None):
        super().__init__(render_mode)
        self.reset()


class PromisesTools(Sound):
    def start(self, options):
        return Sound.start(self, options)[0], "Use the tools you have."


class UntypedTool(Sound):
    def tools(self):
        return (lambda query: query,)


class ToolLikeAnAction(Sound):
    action_tools = (tool_schema("push", "", {}),)

    def tools(self):
        def push() -> str:
            return ""

        return (push,)


def broken(cls, **options):
    """Complaint of the check about the class, registered under its name."""
    env_id = f"broken/{cls.__name__}-v0"
    gym.register(env_id, f"{__name__}:{cls.__name__}", order_enforce=False)
    try:
        with pytest.raises(ContractError) as caught:
            check_text_env(env_id, **options)
    finally:
        del gym.registry[env_id]
    return str(caught.value)


@pytest.mark.long
def test_a_sound_environment_passes():
    gym.register("sound/Sound-v0", f"{__name__}:Sound")
    try:
        check_text_env("sound/Sound-v0")
    finally:
        del gym.registry["sound/Sound-v0"]


@pytest.mark.parametrize(
    ("cls", "rule", "found"),
    [
        (NoneInInfo, "is never None", r"info\['hint'\] is None"),
        (EpisodeInInfo, "never 'episode'", r"info\['episode'\] is 1"),
        (TypeChanges, "has one type", r"info\['score'\] is 0.5, a float, and was a int"),
        (CutOffAtOnce, "check_env", "truncates after 1 step"),
        (NeitherSum, "sum to the reward", r"sum to 1.5, but the reward is 1.0"),
        (NoSuccess, "has success", "no success of type bool"),
        (NanReward, "finite float", "nan"),
        (BothEnds, "finite floats", "terminated and truncated at once"),
        (TooLong, "check_env", "not within the observation space"),
        (Raises, "any text is an action", "the action '' raises ValueError"),
        (OwnRandomness, "check_env", "deterministic"),
        (NumpyRandomness, "seed alone decides", "the episode of seed 0"),
        (SharedState, "seed alone decides", "the episode of seed 0"),
        (NoPrompt, "system prompt", r"info\[\"system_prompt\"\]: \{\}"),
        (NoHtml, "renders", r"missing: \['html'\]"),
        (RendersBytes, "renders", "render_mode='html' gives b'ok'"),
        (CannotBeCopied, "copy or a pickle", "cannot pickle"),
        (ForgetsWhenCopied, "copy or a pickle", "a deep copy made in mid-episode"),
        (RowsIgnored, "a row is the same task", "row "),
        (WrongOracle, "oracle's action is legal", r"plays 'c', legal are \('a', 'b'\)"),
        (PromisesTools, "tools that the prompt names", "'Use the tools', and no player is offered"),
        (UntypedTool, "tools that the prompt names", "parameter 'query' of <lambda> needs a type"),
        (
            ToolLikeAnAction,
            "tools that the prompt",
            r"\['push'\] are names of tools and of actions",
        ),
        (StepsAfterTheEnd, "without a running episode", "after the end"),
        (StepsBeforeReset, "without a running episode", "before the first reset"),
    ],
)
def test_a_broken_rule_is_named_with_the_values(cls, rule, found):
    message = broken(cls)
    assert message.startswith(f"broken/{cls.__name__}-v0 breaks the rule '")
    assert rule in message.partition(": ")[0]
    assert re.search(found, message)


class Unwritable(Sound):
    def __init__(self, reward=None, render_mode=None):
        super().__init__(render_mode)


def test_options_that_are_not_json_break_the_spec():
    assert "its spec survives JSON" in broken(Unwritable, reward=len)


class StingyAECEnv(TicTacToeAECEnv):
    """Tells no rewards."""

    def finish(self, over):
        super().finish(over)
        self._cumulative_rewards = dict.fromkeys(self.agents, 0.0)


@pytest.mark.long
def test_an_aec_view_must_pass_pettingzoos_tests():
    gym.register("broken/Stingy-v0", f"{__name__}:Sound")
    pettingzoo.register("aec", "broken/Stingy-v0", f"{__name__}:StingyAECEnv")
    try:
        with pytest.raises(ContractError, match=r"PettingZoo's api_test': .*accumulated rewards"):
            check_text_env("broken/Stingy-v0")
    finally:
        del gym.registry["broken/Stingy-v0"]
        del pettingzoo.aec_registry["broken/Stingy-v0"]
