import asyncio
import threading
import time

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv
from gymnasium.wrappers import RecordEpisodeStatistics
from gymnasium.wrappers.vector import DictInfoToList
from gymnasium.wrappers.vector import RecordEpisodeStatistics as RecordAllStatistics

import ludic_gym  # noqa: F401 (registers the ids)
from envs_registry.catalog import CATALOG
from ludic_gym.envs.core.base import TextEnv, end, proceed
from ludic_gym.errors import ConfigError, EnvError
from ludic_gym.spaces import TEXT
from ludic_gym.vector import Arrival, RaggedVectorEnv, kind_conflicts, make_ragged, merge_infos
from ludic_gym.wrappers.messages import MESSAGES

GAME = "ludic/TicTacToe-v0"
PROGRAMS = "ludic/RepoRepair-v0"  # The one of its kind that CI plays.


class Echo(TextEnv):
    """Says what it is told, until it is told "end"; fails at what is named after "raise"."""

    def start(self, options):
        self.said = 0
        return "hello", "Say something."

    def turn(self, action):
        self.said += 1
        if action.startswith("raise"):
            raise RuntimeError(action[6:])
        if action == "int":
            return proceed(action, info={"said": "once"})
        if action == "end":
            return end(action, success=True, info={"said": self.said}, ended=1.0)
        return proceed(action, info={"said": self.said})


class Slow(Echo):
    """Takes its time for "wait", until somebody lets it go."""

    metadata = Echo.metadata | {"blocking": True}

    def __init__(self):
        super().__init__()
        self.let_go = threading.Event()
        self.threads = set()

    def turn(self, action):
        self.threads.add(threading.get_ident())
        if action == "wait":
            self.let_go.wait(60)
        return super().turn(action)


def played(vector, turns=30):
    """All that a vector environment shows of some games, with resets of all and of some between."""
    seen = [vector.reset(seed=3)]
    for turn in range(turns):
        if turn == 11:
            seen.append(vector.reset(seed=[7, None, 7], options={"row": None}))
        actions = [str(turn % 9 + 1), "5", "é\n😀 \ud800"]
        seen.append(vector.step(actions))
        over = seen[-1][2] | seen[-1][3]
        if vector.metadata["autoreset_mode"] is AutoresetMode.DISABLED and over.any():
            seen.append(vector.reset(seed=turn, options={"reset_mask": over}))
    vector.close()
    return seen


def as_lists(value):
    if isinstance(value, dict):
        return {key: as_lists(item) for key, item in value.items()}
    if isinstance(value, np.ndarray):
        return [str(value.dtype), *map(as_lists, value.tolist())]
    return [as_lists(item) for item in value] if isinstance(value, list | tuple) else value


@pytest.mark.long
@pytest.mark.parametrize(
    ("env_id", "mode"),
    [
        *(
            pytest.param(
                entry.id,
                AutoresetMode.NEXT_STEP,
                marks=[pytest.mark.slow]
                if "sandbox" in entry.tags and entry.id != PROGRAMS
                else [],
            )
            for entry in CATALOG
        ),
        (GAME, AutoresetMode.SAME_STEP),
        (GAME, AutoresetMode.DISABLED),
    ],
)
def test_reset_and_step_give_what_a_sync_vector_env_gives(env_id, mode):
    sync = SyncVectorEnv([lambda: gym.make(env_id)] * 3, autoreset_mode=mode)
    ragged = make_ragged(env_id, 3, autoreset_mode=mode)
    assert as_lists(played(ragged)) == as_lists(played(sync))


def test_spaces_and_metadata_are_those_of_a_sync_vector_env():
    sync, ragged = gym.make_vec(GAME, 2, vectorization_mode="sync"), make_ragged(GAME, 2)
    for name in ("observation_space", "action_space", "single_action_space", "num_envs"):
        assert getattr(ragged, name) == getattr(sync, name)
    assert ragged.metadata == sync.metadata


def test_gymnasiums_vector_wrappers_fit_around():
    vector = DictInfoToList(RecordAllStatistics(RaggedVectorEnv([Echo, Echo])))
    vector.reset()
    vector.step(("a", "b"))
    infos = vector.step(("end", "c"))[4]
    # One environment ended: two turns, reward 1.
    assert (infos[0]["episode"]["l"], infos[0]["episode"]["r"]) == (2, 1.0)
    assert "episode" not in infos[1]


def test_nested_infos_are_merged_as_by_a_sync_vector_env():
    sync = SyncVectorEnv([lambda: RecordEpisodeStatistics(Echo())] * 2)
    ragged = RaggedVectorEnv([lambda: RecordEpisodeStatistics(Echo())] * 2)
    for vector in (sync, ragged):
        vector.reset()
    one, other = (vector.step(("end", "on"))[4] for vector in (sync, ragged))
    for infos in (one, other):
        del infos["episode"]["t"]
    assert as_lists(one) == as_lists(other)


def test_answers_come_only_from_those_who_were_sent_something():
    vector = RaggedVectorEnv([Echo] * 3)
    vector.send_reset({0: 1, 2: None})
    assert [(a.env_id, a.observation) for a in vector.recv(2)] == [(0, "hello"), (2, "hello")]
    vector.send({2: "hi"})
    assert vector.recv() == [Arrival(2, "hi", 0.0, False, False, {"said": 1})]


def test_what_is_sent_after_the_end_starts_the_next_episode():
    vector = RaggedVectorEnv([Echo])
    vector.reset()
    vector.send({0: "end"})
    assert vector.recv()[0].terminated
    vector.send({0: "ignored"})
    (first,) = vector.recv()
    assert (first.observation, first.reward, first.terminated) == ("hello", 0.0, False)


def test_one_failure_ends_one_episode_and_the_others_go_on():
    vector = RaggedVectorEnv([Echo] * 3)
    vector.reset(seed=0)
    vector.step(("a", "b", "c"))
    shown, rewards, terminated, truncated, infos = vector.step(("d", "raise hell", "end"))
    assert shown == ("d", "b", "end")
    assert rewards.tolist() == [0.0, 0.0, 1.0]
    assert terminated.tolist() == [False, False, True]
    assert truncated.tolist() == [False, True, False]
    assert infos["error"].tolist() == [None, "RuntimeError: hell", None]
    assert infos["said"].tolist() == [2, 0, 2]
    # The next step resets the second and the third; the first has not noticed anything.
    shown, _, terminated, truncated, infos = vector.step(("e", "", ""))
    assert shown == ("e", "hello", "hello")
    assert not (terminated | truncated).any()
    assert infos["said"].tolist() == [3, 0, 0]


def test_a_failed_environment_is_made_anew_and_the_old_one_closed():
    made, closed = [], []

    class Counted(Echo):
        def close(self):
            closed.append(self)

    def make():
        made.append(Counted())
        return made[-1]

    vector = RaggedVectorEnv([make])
    vector.reset()
    vector.step(["raise it"])
    assert closed == made[:1]
    assert len(made) == 1
    vector.step(["next"])
    assert len(made) == 2
    vector.close()
    assert closed == made


def test_an_environment_that_cannot_be_made_again_fails_episode_by_episode():
    envs = [Echo()]
    vector = RaggedVectorEnv([lambda: envs.pop()])
    vector.reset()
    vector.step(["raise it"])
    for _ in range(2):
        *_, truncated, infos = vector.step(["on"])
        assert (truncated.tolist(), infos["error"].tolist()) == (
            [True],
            ["IndexError: pop from empty list"],
        )


def test_trouble_with_closing_is_told_too():
    class Stuck(Echo):
        def close(self):
            raise OSError("jammed")

    vector = RaggedVectorEnv([Stuck])
    vector.reset()
    infos = vector.step(["raise it"])[4]
    assert infos["error"][0] == "RuntimeError: it; closing its env raised OSError: jammed"


def test_an_info_that_changes_a_type_is_a_failure_of_its_environment():
    vector = RaggedVectorEnv([Echo] * 2)
    vector.reset()
    vector.step(("a", "b"))
    *_, truncated, infos = vector.step(("int", "c"))
    assert truncated.tolist() == [True, False]
    assert infos["error"][0] == "info['said'] is 'once', of str, and was of int before"
    assert infos["said"].tolist() == [0, 2]


def test_the_first_reset_may_fail():
    class Closed(Echo):
        def start(self, options):
            raise OSError("closed today")

    shown, infos = RaggedVectorEnv([Echo, Closed]).reset()
    assert shown == ("hello", "")
    assert infos["error"].tolist() == [None, "OSError: closed today"]


def test_slow_environments_do_not_hold_up_the_others():
    vector = RaggedVectorEnv([Slow] * 3)
    vector.reset()
    slow = vector.get_attr("let_go")
    vector.send({0: "wait", 1: "quick", 2: "wait"})
    assert [a.env_id for a in vector.recv()] == [1]
    vector.send({1: "again"})
    assert [a.observation for a in vector.recv()] == ["again"]
    slow[2].set()
    assert [a.env_id for a in vector.recv()] == [2]
    slow[0].set()
    assert [a.env_id for a in vector.recv()] == [0]


def test_a_blocking_environment_stays_on_one_thread_of_its_own():
    vector = RaggedVectorEnv([Slow, Slow])
    vector.reset()
    for _ in range(3):
        vector.step(("a", "b"))
    one, other = vector.get_attr("threads")
    assert len(one) == len(other) == 1
    assert len(one | other | {threading.get_ident()}) == 3


def test_a_call_that_takes_too_long_is_a_failure_and_its_late_answer_is_dropped():
    made = []

    def make():
        made.append(Slow())
        return made[-1]

    vector = RaggedVectorEnv([make, make], timeout_s=1)
    vector.reset()
    shown, _, _, truncated, infos = vector.step(("wait", "b"))
    assert truncated.tolist() == [True, False]
    assert shown == ("hello", "b")
    assert infos["error"][0] == "TimeoutError: the call took longer than timeout_s=1"
    made[0].let_go.set()
    time.sleep(0.2)
    assert vector.step(("", "c"))[0] == ("hello", "c")
    # The one that was stuck is left alone, and another is played on another thread.
    assert len(made) == 3
    vector.step(("d", "d"))
    assert len(made[2].threads - made[0].threads) == 1


class Mutable(gym.Env):
    """Shows a list, which callers may change."""

    observation_space = MESSAGES
    action_space = TEXT

    def reset(self, *, seed=None, options=None):
        return ({"role": "user", "content": "hello"},), {}

    def step(self, action):
        return ({"role": "user", "content": action},), 0.0, False, False, {}


def test_an_environment_that_is_not_reset_shows_a_copy_of_what_it_showed():
    vector = RaggedVectorEnv([Mutable, Mutable])
    vector.reset()
    before = vector.step(("a", "b"))[0]
    after, _ = vector.reset(options={"reset_mask": np.array([False, True])})
    assert [dialog[0]["content"] for dialog in after] == ["a", "hello"]
    after[0][0]["content"] = "changed"
    assert before[0][0]["content"] == "a"


async def test_an_event_loop_goes_on_while_answers_are_awaited():
    vector = RaggedVectorEnv([Slow, Slow])
    vector.reset()
    slow = vector.get_attr("let_go")
    vector.send({0: "wait", 1: "wait"})
    waiting = asyncio.create_task(vector.ready(2))
    slow[1].set()
    await asyncio.wait_for(vector.ready(), 30)
    assert not waiting.done()
    slow[0].set()
    await asyncio.wait_for(waiting, 30)
    assert sorted(a.env_id for a in vector.recv(2)) == [0, 1]


async def test_one_task_may_wait_for_what_another_sends():
    vector = RaggedVectorEnv([Echo])
    waiting = asyncio.create_task(vector.ready())
    await asyncio.sleep(0)
    assert not waiting.done()
    vector.send_reset({0: None})
    await asyncio.wait_for(waiting, 30)
    assert vector.recv()[0].observation == "hello"


async def test_who_stops_waiting_leaves_nothing_behind():
    vector = RaggedVectorEnv([Echo])
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(vector.ready(), 0.01)
    vector.reset()
    assert vector.step(["a"])[0] == ("a",)


@pytest.mark.parametrize(
    ("misuse", "complaint"),
    [
        (lambda v: v.send({3: "a"}), "no environment 3, only 0 to 1"),
        (lambda v: v.send({-1: "a"}), "no environment -1"),
        (lambda v: v.send_reset({2: None}), "no environment 2"),
        (lambda v: (v.send({0: "a"}), v.send({0: "b"})), "environment 0 has a pending result"),
        (lambda v: (v.send({0: "a"}), v.step(("a", "b"))), "environment 0 has a pending result"),
        (lambda v: (v.send({0: "a"}), v.render()), "environment 0 has a pending result"),
        (lambda v: v.recv(), "1 results are required, but 0 are pending"),
        (lambda v: (v.send({0: "a"}), v.recv(2)), "2 results are required, but 1 are pending"),
        (lambda v: v.step(["a"]), "2 environments need as many actions"),
        (lambda v: v.step("ab"), "2 environments need as many actions, got 'ab'"),
        (lambda v: v.reset(seed=[1]), "2 environments need as many seeds"),
        (lambda v: (v.step(("raise it", "b")), v.render()), "failed and was not reset since"),
    ],
)
def test_misuse_is_refused(misuse, complaint):
    vector = RaggedVectorEnv([Echo] * 2)
    vector.reset()
    with pytest.raises((EnvError, ConfigError), match=complaint):
        misuse(vector)


def test_nothing_can_be_sent_before_the_first_reset():
    with pytest.raises(EnvError, match="environment 0 has no running episode; reset it first"):
        RaggedVectorEnv([Echo]).send({0: "a"})


def test_without_autoreset_an_ended_episode_takes_no_action():
    vector = RaggedVectorEnv([Echo], autoreset_mode="Disabled")
    vector.reset()
    vector.step(["end"])
    with pytest.raises(EnvError, match="environment 0 has no running episode; reset it first"):
        vector.step(["a"])


def test_environments_of_several_kinds_share_a_vector_but_not_several_spaces():
    assert RaggedVectorEnv([Echo, lambda: gym.make(GAME)]).reset(seed=0)[0] == (
        "hello",
        gym.make(GAME).reset(seed=1)[0],
    )
    with pytest.raises(ConfigError, match="environment 1 has the spaces"):
        RaggedVectorEnv([Echo, lambda: gym.make("CartPole-v1")])
    with pytest.raises(ConfigError, match="at least one environment"):
        RaggedVectorEnv([])
    with pytest.raises(ConfigError, match="timeout_s is positive or None, got 0"):
        RaggedVectorEnv([Echo], timeout_s=0)


def test_arguments_and_wrappers_reach_every_environment():
    vector = make_ragged(
        GAME, 2, wrappers=[RecordEpisodeStatistics], opponent="perfect", render_mode="ansi"
    )
    vector.reset(seed=0)
    assert vector.render() == vector.call("render")
    assert vector.render()[0].count("\n") == 3
    for action in "123456789":
        infos = vector.step((action, action))[4]
        if "episode" in infos:
            break
    assert infos["episode"]["l"].dtype == int


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        ((True, False), "bool"),
        ((3, 4), "int64"),
        ((0.5, 1.0), "float64"),
        ((np.float32(1), np.float32(2)), "float32"),
        (("a", "b"), "object"),
        ((("a", "b"), ()), "object"),
        (([1], [2, 3]), "object"),
    ],
)
def test_values_keep_their_type_and_nobody_without_gets_one(values, dtype):
    infos, _ = merge_infos([{"key": values[0]}, {}, {"key": values[1]}])
    nothing = None if dtype == "object" else 0
    assert infos["key"].dtype == dtype
    assert infos["key"].tolist() == [values[0], nothing, values[1]]
    assert infos["_key"].tolist() == [True, False, True]


@pytest.mark.parametrize(
    "rows",
    [
        [{"a": 1, "b": "x", "c": {"d": 0.5}}, {"b": "y"}, {"c": {"e": True}, "f": np.eye(2)}],
        [{"final_obs": np.ones(2), "final_info": {"a": 1}}, {}, {"final_obs": np.zeros(2)}],
        [{}, {"final_obs": 3}, {}],
        [{"final_obs": {"at": np.ones(2)}}, {"final_obs": {"at": np.zeros(2)}}, {}],
    ],
)
def test_it_is_what_gymnasium_makes_of_them(rows):
    vector, theirs = VectorEnv(), {}
    vector.num_envs = 3
    for place, row in enumerate(rows):
        theirs = vector._add_info(theirs, row, place)
    assert repr(merge_infos(rows)[0]) == repr(theirs)


def test_conflicts_are_found_at_once_and_later():
    kinds = {}
    assert kind_conflicts(kinds, [{"a": 1}, {"a": 2, "b": "x"}]) == {}
    assert kind_conflicts(kinds, [{"b": "y"}, {"a": True}]) == {
        1: "info['a'] is True, of bool, and was of int before"
    }
    assert kind_conflicts({}, [{"a": 1}, {}, {"a": 0.5}]) == {
        2: "info['a'] is 0.5, of float, and was of int before"
    }


def test_infos_with_conflicts_are_not_merged():
    kinds = {}
    assert merge_infos([{}, {"a": 1, "b": np.zeros(2)}], kinds)[1] == {}
    assert merge_infos([{"a": "x"}, {"a": 2}, {"c": 1, "b": np.zeros(3)}], kinds) == (
        {},
        {
            0: "info['a'] is 'x', of str, and was of int before",
            2: "info['b'] is array([0., 0., 0.]), of ('array', '<f8', (3,)), and was of "
            "('array', '<f8', (2,)) before",
        },
    )
