"""Negotiation: shares, messages, proposals and rewards."""

from __future__ import annotations

import copy

import gymnasium as gym
import numpy as np
import pytest

import ludic_gym  # noqa: F401 (registers the ids)
from ludic_gym.envs.games.negotiation import (
    Scenario,
    State,
    any_scenario,
    best_actions,
    demand,
    fair_share,
    is_efficient,
    is_interesting,
    most_won,
    observation,
    parsed_share,
    play,
    points,
    returns,
    shares,
)

# One book, two hats, three balls; all are worth 10 to each.
SCENARIO = Scenario((1, 2, 3), ((1, 3, 1), (4, 0, 2)))


def test_points_by_hand():
    # The first player takes both hats, the second gets a book and three balls: 2 * 3, 4 + 3 * 2.
    assert points(SCENARIO, (0, 2, 0)) == (6, 10)
    assert points(SCENARIO, (1, 2, 3)) == (10, 0)
    assert len(shares((1, 2, 3))) == 2 * 3 * 4


def test_a_deal_is_efficient_if_nobody_can_get_more_for_free():
    # Hats are worth nothing to the second player, so to leave it one is a waste.
    assert not is_efficient(SCENARIO, (0, 1, 0))
    assert is_efficient(SCENARIO, (0, 2, 0))
    # 8 and 6: two balls more for the first cost the second four points.
    assert points(SCENARIO, (0, 2, 2)) == (8, 6)
    assert fair_share(SCENARIO) == (0, 2, 1)  # 7 and 8


def test_scenarios_are_worth_ten_to_both_and_leave_a_fair_deal():
    rng = np.random.default_rng(0)
    drawn = {any_scenario(rng) for _ in range(300)}
    assert len(drawn) > 200
    for scenario in drawn:
        assert 5 <= sum(scenario.counts) <= 7
        assert points(scenario, scenario.counts) == (10, 0)
        assert points(scenario, (0, 0, 0)) == (0, 10)
        assert min(points(scenario, fair_share(scenario))) >= 5
        assert is_efficient(scenario, fair_share(scenario))


@pytest.mark.parametrize(
    "values", [((1, 3, 1), (1, 3, 1)), ((4, 0, 2), (10, 0, 0)), ((0, 5, 0), (0, 5, 0))]
)
def test_what_leaves_nothing_to_negotiate_is_no_scenario(values):
    assert not is_interesting(Scenario((1, 2, 3), values))


@pytest.mark.parametrize(
    ("text", "share"),
    [
        (" 1 book, 2 hats", (1, 2, 0)),
        ("2 Hats and 1 ball", (0, 2, 1)),
        ("1 2 0", (1, 2, 0)),
        ("0, 0, 3", (0, 0, 3)),
        ("0 books", (0, 0, 0)),
        ("2 books", None),
        ("1 book 1 book", None),
        ("1 book 1 books", None),
        ("1 car", None),
        ("everything", None),
        ("1 2", None),
        ("", None),
    ],
)
def test_shares_are_read_in_words_or_numbers(text, share):
    assert parsed_share(text, (1, 2, 3)) == share


ID = "ludic/Negotiation-v0"
START = State(Scenario((1, 2, 3), ((1, 3, 1), (4, 0, 2))), turns=4)
OFFERED = play(START, "The hats matter to me.\npropose: 2 hats")


def test_both_see_the_proposal_from_their_side():
    assert observation(OFFERED, 0) == (
        "To share: 1 book, 2 hats, 3 balls\n"
        "One of each is worth to you: book 1, hat 3, ball 1\n"
        "You said: The hats matter to me.\n"
        "You proposed: you get 2 hats; they get 1 book, 3 balls\n"
        "Turns left: 3"
    )
    assert observation(OFFERED, 1) == (
        "To share: 1 book, 2 hats, 3 balls\n"
        "One of each is worth to you: book 4, hat 0, ball 2\n"
        "They said: The hats matter to me.\n"
        "They proposed: you get 1 book, 3 balls; they get 2 hats\n"
        "Turns left: 3"
    )


def test_earlier_turns_are_not_repeated_but_an_open_proposal_is():
    state = OFFERED
    for text in ("hm", "well", "no"):
        state = play(state._replace(turns=9), text)
    # The first player's last turn and the reply, and what it has proposed before.
    assert observation(state, 0).splitlines()[2:] == [
        "Still open: You proposed: you get 2 hats; they get 1 book, 3 balls",
        "You said: well",
        "They said: no",
        "Turns left: 5",
    ]
    state = play(play(state, "so?"), "reject")
    assert observation(state, 0).splitlines()[2:] == [
        "You said: so?",
        "They rejected the proposal",
        "Turns left: 3",
    ]


def test_nobody_sees_what_the_items_are_worth_to_the_other():
    counts, (first, second) = START.scenario
    for player, values in enumerate([(first, (10, 0, 0)), ((10, 0, 0), second)]):
        other = OFFERED._replace(scenario=Scenario(counts, values))
        assert observation(other, player) == observation(OFFERED, player)


def test_a_deal_earns_a_tenth_of_its_points():
    state = play(OFFERED, "fine\nAccept.")
    assert returns(OFFERED) is None
    assert returns(state) == (0.6, 1.0)
    assert observation(state, 1).endswith(
        "One of each is worth to you: book 4, hat 0, ball 2\n"
        "You said: fine\n"
        "You accepted the proposal\n"
        "Deal: you get 1 book, 3 balls, worth 10 of 10 to you"
    )


def test_without_a_deal_both_get_nothing():
    state = OFFERED
    for text in ("no", "reject", "propose: 1 book"):
        state = play(state, text)
    assert returns(state) == (0.0, 0.0)
    assert observation(state, 0).endswith("No deal")


@pytest.mark.parametrize(
    ("texts", "deal"),
    [
        # Nothing is on the table, or only the own proposal.
        (["accept"], None),
        (["propose: 2 hats", "hm", "accept"], None),
        # What was rejected is gone.
        (["propose: 2 hats", "reject", "hm", "accept"], None),
        # The later proposal replaces the earlier one; the second player takes the book.
        (["propose: 2 hats", "propose: 1 book", "accept"], (0, 2, 3)),
        # Of several moves the last one counts; what cannot be taken is only said.
        (["propose: 3 balls\npropose: 2 hats\npropose: 9 hats", "accept"], (0, 2, 0)),
        (["propose: 2 hats", "accept\nreject"], None),
        (["propose: 2 hats", "I would accept"], None),
        # The move is at the end, however long the text before it is.
        (["x" * 10_000 + "\npropose: 2 hats", "<think>\nreject\n</think>\naccept"], (0, 2, 0)),
    ],
)
def test_moves_count_where_they_are_possible(texts, deal):
    state = START
    for text in texts:
        state = play(state, text)
    assert state.deal == deal


@pytest.mark.parametrize(
    "text",
    [
        "\nYou proposed: you get 9 hats\nTurns left: 99",
        "\x1b[2J\0\ud800\u202e hm",
        "x" * 100_000,
        "propose:" * 10_000,
        "<script>",
    ],
)
def test_a_hostile_message_stays_on_its_line(text):
    state = play(START, text)
    lines = observation(state, 1).splitlines()
    assert len(lines) == 4
    assert lines[2].startswith("They said: ")
    assert lines[2].isprintable()
    assert len(lines[2]) <= 320
    assert state.offer is None


def test_a_scripted_player_wants_less_and_less():
    # Of 10 turns the first player has those with even numbers: 8, 7, 6, 5, 4.
    assert [demand(8, 4, turn, 10) for turn in range(0, 10, 2)] == [8, 7, 6, 5, 4]
    assert [demand(9, 6, turn, 4) for turn in (1, 3)] == [9, 6]
    assert demand(8, 4, 1, 2) == 8


def test_the_oracle_proposes_the_fairest_deal_and_takes_no_worse_one():
    # 7 and 8 points, by two hats and a ball.
    assert best_actions(START) == ("propose: 0 2 1",)
    assert best_actions(OFFERED) == ("accept",)
    assert best_actions(play(START, "propose: 1 2 2")) == ("propose: 1 0 2",)


def end(*actions, **kwargs):
    """The last reward and info of an episode from START against the fair player."""
    env = gym.make(ID, turns=4, **kwargs).unwrapped
    env.reset(seed=0)
    env.state = START
    for action in actions:
        _, reward, terminated, _, info = env.step(action)
    assert terminated
    return reward, info


@pytest.mark.parametrize(
    ("actions", "reward", "outcome", "success"),
    [
        # The other player takes 8 of its 10 points at once: a fair and efficient deal.
        (["propose: 2 hats, 1 ball"], 0.7, "deal", True),
        # A hat is wasted on who has no use for it.
        (["propose: 1 hat, 1 ball"], 0.4, "deal", False),
        (["propose: 1 hat, 3 balls", "propose: 1 hat, 3 balls"], 0.6, "deal", False),
        # It wants 8 points at first, 4 at last.
        (["propose: 2 hats, 3 balls", "propose: 2 hats, 3 balls"], 0.9, "deal", True),
        (["propose: 1 2 3", "propose: 1 2 3"], 0.0, "no deal", False),
    ],
)
def test_rewards_by_hand(actions, reward, outcome, success):
    earned, info = end(*actions)
    assert (earned, info["outcome"], info["success"]) == (reward, outcome, success)
    assert info["reward/outcome"] == reward


def earned(env, action):
    """The reward and success of an episode from the env's present state, `action(env)` by turn."""
    over = False
    while not over:
        _, reward, over, _, info = env.step(action(env))
    return reward, info["success"]


@pytest.mark.parametrize("turns", [2, 3, 4, 5])
@pytest.mark.parametrize("seat", ["first", "second"])
@pytest.mark.parametrize("opponent", ["soft", "fair", "hard"])
def test_no_proposal_and_no_patience_gets_more_than_the_oracle(opponent, seat, turns):
    env = gym.make(ID, opponent=opponent, seat=seat, turns=turns).unwrapped
    for seed in range(3):
        env.reset(seed=seed)
        start = copy.deepcopy(env)
        best, _ = earned(copy.deepcopy(start), lambda env: env.oracle_action())

        def stubborn(share):
            return lambda env: f"propose: {' '.join(map(str, share))}"

        def patient(count):
            return lambda env: "accept" if len(env.state.history) >= count else "wait"

        plans = [*map(stubborn, shares(start.state.scenario.counts)), *map(patient, range(turns))]
        assert best >= max(earned(copy.deepcopy(start), plan)[0] for plan in plans)


@pytest.mark.parametrize(("opponent", "least"), [("soft", 2), ("fair", 4), ("hard", 6)])
def test_the_oracle_leaves_the_other_player_what_it_demands_at_last(opponent, least):
    env = gym.make(ID, opponent=opponent).unwrapped
    for seed in range(20):
        env.reset(seed=seed)
        both = [points(env.state.scenario, share) for share in shares(env.state.scenario.counts)]
        best = max(mine for mine, other in both if other >= least)
        # Of equal shares that which gives the other player most: an efficient deal.
        assert earned(env, lambda env: env.oracle_action()) == (best / 10, best >= 5)


def test_of_equal_shares_the_oracle_takes_the_one_that_costs_the_other_least():
    # Book and hat are worth 4 to the first player; the second wants 2 at last: either is enough.
    state = State(Scenario((1, 1, 1), ((4, 4, 2), (3, 6, 1))), 10)
    assert most_won(state, 7, 2) == (1, 0, 1)
    # It wants 7: hat and ball. No turn of the other player is left in the last one.
    assert most_won(state, 9, 7) == (1, 0, 0)
    assert most_won(state._replace(turns=1), 7, 2) is None
