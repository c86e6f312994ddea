import asyncio
import itertools

import gymnasium as gym
import numpy as np
import pytest

from ludic_gym.clients.scripted import ScriptedClient
from ludic_gym.errors import ConfigError, EnvError
from ludic_gym.parsers import compose_parsers, think_prefix_parser, xml_tag_parser
from ludic_gym.policies.chat import ChatPolicy
from ludic_gym.policies.reference import ScriptedPolicy
from ludic_gym.policies.tool_use import ReAct, TextTools
from ludic_gym.policies.wrappers import Parsed, RejectCutOff
from ludic_gym.rollout.episode import is_single_turn, run_episode
from ludic_gym.types import Sampling, Task


class EchoEnv(gym.Env[str, str]):
    """Shows what was played; "win" earns 1 and ends it, "stop" cuts it short."""

    observation_space = action_space = gym.spaces.Text(100, min_length=0)

    def __init__(self):
        self.played = []

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.played = []
        self.options = options
        return f"start {seed}", {"system_prompt": "Echo."}

    def step(self, action):
        self.played.append(action)
        return f"you said {action}", float(action == "win"), action == "win", action == "stop", {}


def play(policy, env=None, **task):
    return asyncio.run(run_episode(env or EchoEnv(), policy, Task(env_id="echo", **task)))


def test_a_turn_without_action_costs_the_penalty_and_leaves_the_env_alone():
    env = EchoEnv()
    client = ScriptedClient(["hm", "<move>win</move>"])
    parser = xml_tag_parser("move", success_reward=0.0, error_reward=-0.5)

    rollout = play(Parsed(ChatPolicy(client), parser), env)

    failed, won = rollout.steps
    assert (failed.reward, failed.terminated, failed.truncated) == (-0.5, False, False)
    assert failed.info == {"parse_error": True}
    assert won.observation == "Reply with <move>...</move>."
    assert env.played == ["win"]
    assert rollout.total_reward == 0.5


def test_format_rewards_add_to_the_reward_of_the_env():
    parser = compose_parsers(
        think_prefix_parser(success_reward=0.1), xml_tag_parser("move", success_reward=0.1)
    )
    client = ScriptedClient(["<think>easy</think><move>win</move>"])

    rollout = play(Parsed(ChatPolicy(client), parser))

    assert rollout.total_reward == pytest.approx(1.2)  # 1.0 + 0.1 + 0.1


def test_a_reply_that_was_cut_off_earns_nothing_and_leaves_the_env_alone():
    env = EchoEnv()
    policy = RejectCutOff(ChatPolicy(ScriptedClient(["win, of course", "win"])))

    # "win" and the end of the turn are 4 tokens; the first reply has more.
    rollout = play(policy, env, sampling=Sampling(max_tokens=4))

    assert [step.reward for step in rollout.steps] == [0.0, 1.0]
    assert rollout.steps[0].info == {"parse_error": True, "cut_off": True}
    assert rollout.steps[1].observation == "Your reply was cut off. Reply more briefly."
    assert env.played == ["win"]


def test_the_last_allowed_turn_is_truncated_and_says_so():
    rollout = play(ScriptedPolicy(["a", "b", "c"]), max_turns=2)

    assert [step.truncated for step in rollout.steps] == [False, True]
    assert rollout.steps[1].info == {"truncation_reason": "max_turns"}
    assert rollout.final_observation == "you said b"


@pytest.mark.parametrize(("action", "flags"), [("win", (True, False)), ("stop", (False, True))])
def test_an_episode_that_ends_in_the_last_turn_ended_by_itself(action, flags):
    (step,) = play(ScriptedPolicy([action]), max_turns=1).steps

    assert (step.terminated, step.truncated) == flags
    assert step.info == {}


class QuestionEnv(EchoEnv):
    single_turn = True

    def reset(self, *, seed=None, options=None):
        observation, info = super().reset(seed=seed)
        return observation, {**info, "row": 7}


def asks_for_a_move(*replies):
    parser = xml_tag_parser("move", error_reward=-0.5)
    return Parsed(ChatPolicy(ScriptedClient(replies)), parser)


def test_a_parse_failure_ends_an_episode_of_one_question_as_a_failure_and_not_as_truncated():
    env = QuestionEnv()
    # The second reply would earn 1 if the model were told the format.
    rollout = play(asks_for_a_move("win", "<move>win</move>"), env)

    (step,) = rollout.steps
    assert (step.reward, step.terminated, step.truncated) == (-0.5, True, False)
    assert step.info == {
        "row": 7,
        "parse_error": True,
        "success": False,
        "termination_reason": "parse_error",
    }
    assert rollout.final_observation == "Reply with <move>...</move>."
    assert env.played == []


@pytest.mark.parametrize(("attempts", "turns", "reward"), [(1, 1, -0.5), (2, 2, -1.0), (3, 3, 0.0)])
@pytest.mark.parametrize("env", [EchoEnv, QuestionEnv])
def test_a_task_gives_its_own_number_of_attempts_in_any_env(env, attempts, turns, reward):
    # Two failures cost 1.0; the third reply wins 1.
    policy = asks_for_a_move("a", "b", "<move>win</move>")
    rollout = play(policy, env(), attempts=attempts)

    assert len(rollout.steps) == turns
    assert rollout.total_reward == pytest.approx(reward)


def test_failures_in_a_row_end_the_episode():
    policy = asks_for_a_move("a", "<move>b</move>", "<move>c</move>", "d", "e")
    rollout = play(policy, EchoEnv(), attempts=2)
    assert [step.terminated for step in rollout.steps] == [False, False, False, False, True]


@pytest.mark.parametrize("attempts", [0, -1, 1.5, "2"])
def test_a_number_of_attempts_that_cannot_be_is_refused(attempts):
    with pytest.raises(ConfigError, match=rf"attempts is an int .* got {attempts!r} for echo"):
        play(ScriptedPolicy(["a"]), attempts=attempts)


def test_tool_calls_before_an_answer_are_no_attempts():
    call = '<tool_call>{"name": "double", "arguments": {"number": 4}}</tool_call>'

    def double(number: int) -> int:
        """Twice the number."""
        return 2 * number

    chat = ChatPolicy(ScriptedClient([call, call, "<move>win</move>"]))
    policy = ReAct(chat, [double], xml_tag_parser("move"), protocol=TextTools())
    (step,) = play(policy, QuestionEnv()).steps

    assert step.info == {}
    assert len(step.decision.completions) == 3


def test_an_env_of_one_question_says_so_through_its_wrappers_and_a_wrapper_may_say_otherwise():
    class SeveralTurns(gym.Wrapper):
        single_turn = False

    assert is_single_turn(gym.make("ludic/Arithmetic-v0"))
    assert is_single_turn(gym.wrappers.TimeLimit(QuestionEnv(), 5))
    assert not is_single_turn(SeveralTurns(QuestionEnv()))
    assert not is_single_turn(gym.make("ludic/ConnectFour-v0"))
    assert not is_single_turn(EchoEnv())


@pytest.mark.parametrize(("steps", "expected"), [(1, True), (2, False), (None, False)])
def test_a_foreign_env_of_one_step_says_so_by_its_spec(steps, expected):
    spec = gym.envs.registration.EnvSpec("Echo-v0", entry_point=EchoEnv, max_episode_steps=steps)
    env = gym.make(spec, disable_env_checker=True)

    assert is_single_turn(env) == expected


def test_the_seed_and_the_options_reach_the_env():
    env = EchoEnv()
    rollout = play(ScriptedPolicy(["win"]), env, seed=7, options={"row": 3})

    assert rollout.steps[0].observation == "start 7"
    assert env.options == {"row": 3}


def test_every_turn_is_sampled_with_a_seed_of_its_own_that_follows_from_the_task():
    def seeds(seed):
        client = ScriptedClient(["a", "b", "win"])
        steps = play(ChatPolicy(client), sampling=Sampling(seed=seed, top_p=0.5)).steps
        samplings = [step.decision.completions[0].sampling for step in steps]
        assert {sampling.top_p for sampling in samplings} == {0.5}
        return [sampling.seed for sampling in samplings]

    assert seeds(3) == seeds(3)
    assert len({*seeds(3), *seeds(4)}) == 6
    assert all(0 <= seed < 2**63 for seed in seeds(3))
    assert seeds(None) == [None, None, None]


def test_the_prompt_of_a_turn_extends_the_tokens_of_the_turn_before():
    client = ScriptedClient(["a", "é", "win"])
    calls = [step.decision.completions[0] for step in play(ChatPolicy(client)).steps]

    for before, after in itertools.pairwise(calls):
        so_far = before.prompt_ids + before.completion_ids
        assert after.prompt_ids[: len(so_far)] == so_far


def test_the_callers_system_prompt_wins_over_the_envs_suggestion():
    def system_messages(**kwargs):
        client = ScriptedClient(["win"])
        play(ChatPolicy(client, **kwargs))
        return [m["content"] for m in client.requests[0] if m["role"] == "system"]

    assert system_messages() == ["Echo."]
    assert system_messages(system_prompt="Mine.") == ["Mine."]
    assert system_messages(system_prompt="") == []


def test_an_observation_that_is_no_text_is_refused():
    class ArrayEnv(EchoEnv):
        def reset(self, *, seed=None, options=None):
            return np.zeros(2), {}

    with pytest.raises(EnvError, match="ndarray"):
        play(ScriptedPolicy(["a"]), ArrayEnv())


@pytest.mark.parametrize("reward", [float("nan"), float("inf"), float("-inf"), -2e15])
def test_a_reward_that_no_mean_could_bear_is_refused(reward):
    class Broken(EchoEnv):
        def step(self, action):
            return "", reward, True, False, {}

    with pytest.raises(EnvError, match=rf"a turn earned {reward}; .* finite".replace("+", r"\+")):
        play(ScriptedPolicy(["a"]), Broken())


def test_an_env_that_blocks_runs_on_one_thread_of_its_own():
    import threading

    class SlowEnv(EchoEnv):
        metadata = {"render_modes": [], "blocking": True}  # noqa: RUF012

        def __init__(self):
            super().__init__()
            self.threads = set()

        def reset(self, **kwargs):
            self.threads.add(threading.current_thread())
            return super().reset(**kwargs)

        def step(self, action):
            self.threads.add(threading.current_thread())
            return super().step(action)

    env = SlowEnv()
    play(ScriptedPolicy(["a", "win"]), env)

    assert len(env.threads) == 1
    assert threading.current_thread() not in env.threads
