import gymnasium as gym
import pytest
from IPython.core.interactiveshell import InteractiveShell

from ludic_gym.bench.result import Score, Tally
from ludic_gym.notebook import load_ipython_extension
from ludic_gym.policies.reference import ScriptedPolicy
from ludic_gym.rollout.episode import run_episode
from ludic_gym.types import Completion, Decision, Episode, Rollout, Step, Task

TASK = Task(env_id="ludic/Arithmetic-v0")
HOSTILE = "<script>alert(1)</script>"


@pytest.fixture
def html():
    """HTML that a notebook would show for an object."""
    shell = InteractiveShell()
    load_ipython_extension(shell)
    return lambda value: shell.display_formatter.formatters["text/html"](value)


def test_an_env_shows_its_picture_once_an_episode_has_begun(html):
    env = gym.make("ludic/TicTacToe-v0")
    assert "<pre" in html(env)
    env.reset(seed=0)
    assert "  1 2 3\nA . . .\nB . . .\nC . . .</pre>" in html(env)
    assert html(env) == html(env.unwrapped)


def test_envs_of_others_are_left_to_the_notebook(html):
    assert html(gym.make("CartPole-v1")) is None


async def test_a_rollout_is_shown_turn_by_turn(html):
    env = gym.make("ludic/TicTacToe-v0")
    rollout = await run_episode(env, ScriptedPolicy(["A1", "A1"]), Task(env_id=env.spec.id, seed=0))
    shown = html(rollout)
    assert [f"turn {i}" in shown for i in (1, 2, 3)] == [True, True, False]
    assert "ludic/TicTacToe-v0, agent, reward -1" in shown


def test_text_is_escaped(html):
    completion = Completion(text=HOSTILE, finish_reason="stop")
    decision = Decision(action=None, completions=(completion,))
    step = Step(observation=HOSTILE, decision=decision, reward=0.0)
    rollout = Rollout(task=TASK, steps=(step,), final_observation=HOSTILE)
    shown = html(Episode(index=0, task=TASK, rollouts=(rollout,)))
    assert shown.count("&lt;script&gt;alert(1)") == 3
    assert "<script" not in shown
    assert "(not parsed)" in shown
    assert "<script" not in html(Episode(index=0, task=TASK, error=HOSTILE))


def test_of_a_long_rollout_the_first_turns_are_shown(html):
    step = Step(observation="?", decision=Decision(action="x"), reward=0.0)
    shown = html(Rollout(task=TASK, steps=(step,) * 60))
    assert shown.count("turn ") == 50
    assert "10 more turns" in shown


def test_a_result_shows_its_intervals(html):
    scores = [Score(index=i, task=i, success=i < 3, reward=float(i < 3)) for i in range(4)]
    shown = html(Tally(scores).result())
    # Wilson, 3 of 4.
    assert "75.0% [30.1%, 95.4%]" in shown
    assert "<th>failed</th><td>0</td>" in shown


def test_what_is_not_ours_is_left_alone(html):
    assert html("text") is None
