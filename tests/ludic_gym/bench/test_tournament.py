import pytest

from ludic_gym.bench.tournament import game_of, round_robin
from ludic_gym.errors import ConfigError
from ludic_gym.parsers import regex_parser
from ludic_gym.policies.reference import OraclePolicy, RandomPolicy, ScriptedPolicy
from ludic_gym.policies.wrappers import Parsed
from ludic_gym.types import Decision, Episode, Rollout, Step, Task

TASK = Task(env_id="ludic/TicTacToe-v0", seed=5)
PLAYERS = {"random": RandomPolicy, "oracle": OraclePolicy, "other": RandomPolicy}


async def games(players=PLAYERS, task=TASK, **changes):
    return [e async for e in round_robin(players, task, **{"games": 3, **changes})]


async def test_every_two_play_the_same_games_from_both_seats():
    episodes = await games()
    assert len(episodes) == 3 * 2 * 3
    played = sorted((game_of(e)[:2], e.task.seed) for e in episodes)
    seats = [(a, b) for a in sorted(PLAYERS) for b in sorted(PLAYERS) if a != b]
    assert played == sorted((seat, seed) for seat in seats for seed in (5, 6, 7))
    of_a_game = {e.task.sampling.seed for e in episodes if e.task.seed == 6}
    assert len(of_a_game) == 1


async def test_games_are_the_same_again_at_any_concurrency():
    one, many = [sorted(map(game_of, await games(concurrency=c))) for c in (1, 64)]
    assert one == many


async def test_a_game_that_fails_is_told_and_the_others_go_on():
    players = {"random": RandomPolicy, "silent": lambda env: ScriptedPolicy([])}
    episodes = await games(players)
    assert len(episodes) == 6
    assert all("scripted actions" in episode.error for episode in episodes)
    with pytest.raises(ConfigError, match="no finished game"):
        game_of(episodes[0])


@pytest.mark.parametrize(("mine", "yours", "result"), [(1, -1, 1.0), (0, 0, 0.5), (-1, 1, 0.0)])
def test_who_has_more_reward_won(mine, yours, result):
    def rollout(agent, player, reward):
        steps = (Step(observation="", decision=Decision(action="x"), reward=reward),)
        return Rollout(task=TASK, steps=steps, agent=agent, player=player)

    both = (rollout("player_1", "you", yours), rollout("player_0", "me", mine))
    assert game_of(Episode(index=0, task=TASK, rollouts=both)) == ("me", "you", result)


async def test_rewards_of_parsers_decide_no_game():
    def parsed(env):
        # A reward of 0.1 for each action: in a draw of Tic-Tac-Toe, the first player has five.
        return Parsed(OraclePolicy(env), regex_parser(r"\w+", success_reward=0.1))

    results = [game_of(e).result for e in await games({"a": parsed, "b": parsed})]
    assert results == [0.5] * 6


async def test_a_tournament_needs_players_games_and_seeds():
    with pytest.raises(ConfigError, match=r"at least 2 players, got \['a'\]"):
        await games({"a": RandomPolicy})
    with pytest.raises(ConfigError, match="games is at least 1, got 0"):
        await games(games=0)
    with pytest.raises(ConfigError, match="give the task a seed"):
        await games(task=Task(env_id="ludic/TicTacToe-v0"))
