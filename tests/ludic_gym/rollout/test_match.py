import threading
from dataclasses import replace

import pettingzoo
import pytest
from pettingzoo import AECEnv, ParallelEnv

import ludic_gym  # noqa: F401
from ludic_gym.clients.scripted import ScriptedClient
from ludic_gym.errors import ConfigError
from ludic_gym.parsers import xml_tag_parser
from ludic_gym.policies.chat import ChatPolicy
from ludic_gym.policies.reference import OraclePolicy, RandomPolicy, ScriptedPolicy
from ludic_gym.policies.wrappers import Parsed
from ludic_gym.rollout.episodes import rotating_seats, run_matches
from ludic_gym.rollout.match import run_match
from ludic_gym.types import Decision, Sampling, Task

AGENTS = ["A", "B"]
TASK = Task(env_id="race")


class RaceEnv(AECEnv):
    """A and B take turns; who plays "win" wins (+1, -1). Every move costs its player 0.25."""

    def __init__(self):
        super().__init__()
        self.possible_agents = list(AGENTS)
        self.metadata = {"name": "race"}

    def reset(self, seed=None, options=None):
        self.agents = list(AGENTS)
        self.agent_selection = "A"
        self.board = "board"
        self.rewards = dict.fromkeys(AGENTS, 0.0)
        self._cumulative_rewards = dict.fromkeys(AGENTS, 0.0)
        self.terminations = dict.fromkeys(AGENTS, False)
        self.truncations = dict.fromkeys(AGENTS, False)
        self.infos = {agent: {"system_prompt": f"You are {agent}."} for agent in AGENTS}

    def observe(self, agent):
        return self.board

    def step(self, action):
        agent = self.agent_selection
        if self.terminations[agent]:
            return self._was_dead_step(action)
        other = AGENTS[1 - AGENTS.index(agent)]
        self._cumulative_rewards[agent] = 0.0
        self._clear_rewards()
        self.infos = {name: {} for name in AGENTS}
        self.board += f" {agent}:{action}"
        self.rewards[agent] = -0.25
        if action == "win":
            self.rewards = {agent: 1.0, other: -1.0}
            self.terminations = dict.fromkeys(AGENTS, True)
            self.infos = {name: {"success": name == agent} for name in AGENTS}
        self.agent_selection = other
        return self._accumulate_rewards()


async def test_the_loser_gets_its_loss_and_is_shown_the_winning_move():
    b = ScriptedClient(["y", "z"])
    policies = {"A": ScriptedPolicy(["x", "win"]), "B": ChatPolicy(b)}

    winner, loser = await run_match(RaceEnv(), policies, TASK)

    # A's first move costs 0.25, its second one wins.
    assert [step.reward for step in winner.steps] == [-0.25, 1.0]
    # B moved once, which cost 0.25; then A won.
    (step,) = loser.steps
    assert step.reward == -1.25
    assert step.terminated
    assert step.info == {"success": False}
    assert step.observation == "board A:x"
    assert loser.final_observation == "board A:x B:y A:win"


async def test_each_agent_gets_its_own_system_prompt():
    clients = {agent: ScriptedClient(["x", "win"]) for agent in AGENTS}
    await run_match(RaceEnv(), {a: ChatPolicy(clients[a]) for a in AGENTS}, TASK)

    prompts = {a: clients[a].requests[0][0]["content"] for a in AGENTS}
    assert prompts == {"A": "You are A.", "B": "You are B."}


async def test_a_failed_turn_is_the_same_agents_again_and_earns_nothing_twice():
    client = ScriptedClient(["hm", "<m>y</m>", "<m>win</m>"])
    parser = xml_tag_parser("m", success_reward=0.0, error_reward=-0.5)
    policies = {"A": ScriptedPolicy(["x", "z"]), "B": Parsed(ChatPolicy(client), parser)}

    a, b = await run_match(RaceEnv(), policies, TASK)

    failed, second, won = b.steps
    assert failed.reward == -0.5
    assert failed.info["parse_error"] is True
    assert second.observation == "Reply with <m>...</m>."
    assert [second.reward, won.reward] == [-0.25, 1.0]
    assert a.total_reward == -0.25 - 0.25 - 1.0
    assert won.observation == "board A:x B:y A:z"


async def test_a_player_that_never_finds_an_action_loses_and_cannot_stall():
    env = pettingzoo.make("aec", "ludic/TicTacToe-v0")
    client = ScriptedClient(lambda messages, sampling: "hm")
    silent = Parsed(ChatPolicy(client), xml_tag_parser("m"))
    task = Task(env_id="ludic/TicTacToe-v0", seed=0)

    a, b = await run_match(env, {"player_0": silent, "player_1": OraclePolicy(env)}, task)

    assert [len(a.steps), a.total_reward, b.total_reward] == [3, -1.0, 1.0]
    assert a.steps[-1].terminated
    assert a.steps[-1].info["parse_error"] is True


async def test_the_last_allowed_turn_truncates_every_agents_rollout():
    policies = {"A": ScriptedPolicy("xx"), "B": ScriptedPolicy("yy")}

    rollouts = await run_match(RaceEnv(), policies, Task(env_id="race", max_turns=3))

    assert [len(rollout.steps) for rollout in rollouts] == [2, 1]
    for rollout in rollouts:
        assert rollout.steps[-1].truncated
        assert not rollout.steps[-1].terminated
        assert rollout.steps[-1].info["truncation_reason"] == "max_turns"
        assert rollout.steps[-1].reward == -0.25
        assert rollout.final_observation == "board A:x B:y A:x"


async def test_an_agent_that_never_moved_still_gets_its_loss():
    policies = {"A": ScriptedPolicy(["win"]), "B": ScriptedPolicy([])}

    _, b = await run_match(RaceEnv(), policies, TASK)

    (step,) = b.steps
    assert step.decision == Decision(action=None)
    assert (step.reward, step.terminated) == (-1.0, True)
    assert "parse_error" not in step.info


async def test_a_policy_that_gives_up_ends_the_match_for_all():
    class Quitter(ScriptedPolicy):
        async def act(self, sampling):
            return Decision(action=None, give_up="budget")

    a, b = await run_match(RaceEnv(), {"A": ScriptedPolicy("xx"), "B": Quitter([])}, TASK)

    assert [r.steps[-1].info["truncation_reason"] for r in (a, b)] == ["budget", "budget"]
    assert [len(r.steps) for r in (a, b)] == [1, 1]


async def test_a_match_in_an_env_that_blocks_is_played_on_one_thread_of_its_own():
    threads = set()

    class SlowEnv(RaceEnv):
        def __init__(self):
            super().__init__()
            self.metadata = {"name": "slow", "blocking": True}

        def observe(self, agent):
            threads.add(threading.current_thread())
            return super().observe(agent)

        def step(self, action):
            threads.add(threading.current_thread())
            return super().step(action)

    policies = {"A": ScriptedPolicy("xx"), "B": ScriptedPolicy("yy")}
    await run_match(SlowEnv(), policies, Task(env_id="race", max_turns=3))

    assert len(threads) == 1
    assert threading.current_thread() not in threads


@pytest.mark.parametrize("policies", [{}, {"C": ScriptedPolicy([])}])
async def test_policies_have_to_be_for_agents_of_the_env(policies):
    with pytest.raises(ConfigError, match=r"agents are \['A', 'B'\]"):
        await run_match(RaceEnv(), policies, TASK)


async def test_every_turn_of_a_match_has_a_sampling_seed_of_its_own():
    clients = {agent: ScriptedClient(["x", "x", "win"]) for agent in AGENTS}
    policies = {a: ChatPolicy(clients[a]) for a in AGENTS}
    rollouts = await run_match(RaceEnv(), policies, Task(env_id="race", sampling=Sampling(seed=1)))

    calls = [s.decision.completions[0] for rollout in rollouts for s in rollout.steps]
    assert len({call.sampling.seed for call in calls}) == len(calls) == 5


class SumEnv(ParallelEnv):
    """All say a number at once and see what was said; "bot" is played by the env itself."""

    def __init__(self):
        self.possible_agents = ["A", "B", "bot"]
        self.metadata = {"name": "sum"}
        self.received = []

    def reset(self, seed=None, options=None):
        self.agents = list(self.possible_agents)
        self.received = []
        return dict.fromkeys(self.agents, "start"), {a: {"system_prompt": a} for a in self.agents}

    def step(self, actions):
        self.received.append(actions)
        said = {**actions, "bot": "7"}
        over = "9" in actions.values()
        seen = dict.fromkeys(self.agents, str(said))
        rewards = {agent: float(actions.get(agent) or 0) for agent in self.agents}
        ended, cut = dict.fromkeys(self.agents, over), dict.fromkeys(self.agents, False)
        infos = {agent: {"over": over} for agent in self.agents}
        if over:
            self.agents = []
        return seen, rewards, ended, cut, infos


PARSER = xml_tag_parser("n", error_reward=-0.5)


async def test_the_others_wait_for_an_agent_without_an_action():
    env = SumEnv()
    client = ScriptedClient(["hm", "<n>2</n>", "<n>9</n>"])
    policies = {"A": ScriptedPolicy("11"), "B": Parsed(ChatPolicy(client), PARSER)}

    a, b = await run_match(env, policies, TASK)

    assert env.received == [{"A": "1", "B": "2"}, {"A": "1", "B": "9"}]
    assert [step.reward for step in a.steps] == [1.0, 1.0]
    assert [step.reward for step in b.steps] == [-0.5, 2.0, 9.0]
    assert b.steps[0].info == {"parse_error": True}
    assert b.steps[1].observation == "Reply with <n>...</n>."
    # The bot's move, which nobody here manages, is in what is seen next.
    assert a.steps[1].observation == b.steps[2].observation == "{'A': '1', 'B': '2', 'bot': '7'}"
    assert a.steps[-1].terminated
    assert a.final_observation == "{'A': '1', 'B': '9', 'bot': '7'}"


async def test_the_third_reply_without_an_action_is_the_empty_text_in_the_joint_action():
    env = SumEnv()
    clients = {agent: ScriptedClient([*["hm"] * 3, "<n>9</n>"]) for agent in "AB"}
    policies = {agent: Parsed(ChatPolicy(clients[agent]), PARSER) for agent in "AB"}

    a, b = await run_match(env, policies, TASK)

    assert env.received == [{"A": "", "B": ""}, {"A": "9", "B": "9"}]
    assert [step.reward for step in a.steps] == [step.reward for step in b.steps]
    assert [step.reward for step in a.steps] == [-0.5, -0.5, -0.5, 9.0]
    assert a.steps[1].observation == "Reply with <n>...</n>."


@pytest.mark.parametrize(
    "replies", [["<move>rock</move>"] * 3, ["I pass"] * 9], ids=["all act", "one fails"]
)
async def test_a_reply_without_an_action_ends_no_game_of_joint_moves_with_an_error(replies):
    env = pettingzoo.make("parallel", "ludic/RockPaperScissors-v0", rounds=3)
    parser = xml_tag_parser("move")
    policies = {
        "player_0": ScriptedPolicy(["paper"] * 3),
        "player_1": Parsed(ChatPolicy(ScriptedClient(replies)), parser),
    }
    first, second = await run_match(env, policies, TASK)
    assert first.total_reward == 1.0
    assert second.total_reward == -1.0


async def test_a_match_of_joint_moves_is_cut_while_one_waits_for_the_other():
    client = ScriptedClient(["hm", "hm"])
    policies = {"A": ScriptedPolicy("12"), "B": Parsed(ChatPolicy(client), PARSER)}

    a, b = await run_match(SumEnv(), policies, replace(TASK, max_turns=2))

    assert [len(rollout.steps) for rollout in (a, b)] == [1, 2]
    assert all(rollout.steps[-1].truncated for rollout in (a, b))
    assert b.final_observation == "Reply with <n>...</n>."


async def test_agents_that_move_jointly_are_asked_at_the_same_time():
    import asyncio

    both = asyncio.Barrier(2)

    class Meeting(ScriptedClient):
        async def complete(self, messages, sampling, tools=()):
            await both.wait()
            return await super().complete(messages, sampling, tools)

    policies = {agent: ChatPolicy(Meeting(["9"])) for agent in "AB"}
    task = Task(env_id="sum", sampling=Sampling(seed=1))

    rollouts = await asyncio.wait_for(run_match(SumEnv(), policies, task), 2)

    seeds = {rollout.steps[0].decision.completions[0].sampling.seed for rollout in rollouts}
    assert len(seeds) == 2


def test_seats_rotate_by_one_with_every_game():
    games = [rotating_seats("xyz", ["a", "b", "c"], game) for game in range(4)]

    assert [list(game.values()) for game in games] == [
        ["x", "y", "z"],
        ["z", "x", "y"],
        ["y", "z", "x"],
        ["x", "y", "z"],
    ]


async def test_players_of_many_matches_change_seats_and_keep_their_names():
    tasks = [Task(env_id="ludic/TicTacToe-v0", seed=i) for i in range(4)]
    players = {"expert": OraclePolicy, "novice": RandomPolicy}

    episodes = [e async for e in run_matches(tasks, players, concurrency=2)]

    assert [episode.error for episode in episodes] == [None] * 4
    seats = {e.index: {r.player: r.agent for r in e.rollouts} for e in episodes}
    first, second = "player_0", "player_1"
    assert [seats[i]["expert"] for i in range(4)] == [first, second, first, second]
    assert all(r.total_reward >= 0 for e in episodes for r in e.rollouts if r.player == "expert")


async def test_the_members_of_a_group_have_the_same_seats():
    groups = ["a", "a", "b", "b", "", ""]
    tasks = [Task(env_id="ludic/TicTacToe-v0", seed=1, group=group) for group in groups]
    players = {"x": RandomPolicy, "y": RandomPolicy}

    episodes = [e async for e in run_matches(tasks, players)]

    firsts = {e.index: e.rollouts[0].player for e in episodes}
    assert [firsts[i] for i in range(6)] == ["x", "x", "y", "y", "x", "y"]


async def test_attempts_are_refused_in_a_match():
    policies = {agent: ScriptedPolicy([]) for agent in "AB"}
    with pytest.raises(ConfigError, match="attempts=1 for race: a match continues"):
        await run_match(RaceEnv(), policies, Task(env_id="race", attempts=1))
