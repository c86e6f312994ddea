"""Liar's Dice: hand-worked rounds, readers, hidden dice, and the strengths of scripted players."""

import itertools
import random
from collections import Counter
from fractions import Fraction

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ludic_gym  # noqa: F401 (registers the ids)
from ludic_gym.envs.core.game import random_action
from ludic_gym.envs.games.dice import (
    Bid,
    State,
    believed_chances,
    best_actions,
    binomial,
    by_inference,
    chances_of_named,
    counting,
    inferring,
    legal_actions,
    play,
    raises,
    read,
    refuse,
)
from ludic_gym.envs.games.liars_dice import liars_dice, observation

# Three fives in all: 5 5 | 5 2 | 1.
TABLE = State(seed=1, round=0, hands=((5, 5), (5, 2), (1,)), mover=0, read=(0, 0, 0))


def after(*actions, state=TABLE):
    for action in actions:
        state = play(state, action)
    return state


def counts(state):
    return [len(hand) for hand in state.hands]


def test_a_true_bid_costs_the_challenger_a_die():
    state = after("bid 2 fives", "bid 3 fives", "liar")
    # Player 2 said liar to a true bid, and had one die: player 0 begins.
    assert (counts(state), state.mover, state.bids) == ([2, 2, 0], 0, ())
    assert observation(state, 1).startswith(
        "Last round: you bid 3 fives, and Player 3 said liar. The dice were (Player 1: 5 5; you: 5 "
        "2; Player 3: 1). 3 of them had this face, so the bid was true, and Player 3 lost the last "
        "die, and is out.\nRound 2. Of 4 dice in all, Player 1 has 2, you have 2."
    )


def test_the_last_player_with_dice_wins():
    game = liars_dice(3)
    state = TABLE._replace(hands=((4,), (), (6,)), mover=0)
    end = after("bid 1 five", "liar", state=state)
    assert game.returns(state) is None
    assert game.returns(end) == (-1.0, -1.0, 1.0)
    assert [game.outcome(end, seat) for seat in (0, 2)] == [("loss", False), ("win", True)]
    assert observation(end, 2).endswith("The game is over. You have won.")


def test_a_higher_bid_has_more_dice_or_a_higher_face():
    assert raises(Bid(2, 5), 3) == (Bid(2, 6), *(Bid(3, face) for face in range(1, 7)))
    # Nothing is higher than sixes of all dice: only the challenge is left.
    assert legal_actions(TABLE._replace(bids=((2, Bid(5, 6)),))) == ("liar",)
    assert len(legal_actions(TABLE)) == 30


def test_the_third_illegal_reply_in_a_row_costs_all_dice():
    game, state = liars_dice(3), after("bid 2 fives")
    state = refuse(refuse(state, "?"), "")
    assert "Tries left: 1." in observation(state, 1)
    # A legal reply makes up for the first two.
    assert refuse(play(state, "bid 2 sixes")._replace(mover=1), "").hands[1]
    out = refuse(state, "what")
    assert (counts(out), out.mover) == ([2, 0, 1], 2)
    assert observation(out, 1) == (
        "Last round: you are out after 3 illegal replies.\n"
        "Round 2. Of 3 dice in all, Player 1 has 2, Player 3 has 1.\n"
        "You are out.\nBids of this round: none."
    )
    assert game.verdict(out, 1) == ("illegal", False)


@pytest.mark.parametrize(
    ("text", "action"),
    [
        ("bid 3 fives", "bid 3 fives"),
        ("3 5s.", "bid 3 fives"),
        ("I bid three fives!", "bid 3 fives"),
        ("bid 1 fives", "bid 1 five"),
        ("bid 12 5's", "bid 12 fives"),
        ("Liar.", "liar"),
        ("I challenge that", "liar"),
        # None, several, or no number of dice that there are.
        ("", ""),
        ("pass", "pass"),
        ("bid 3 fives or 2 sixes", "bid 3 fives or 2 sixes"),
        ("liar, bid 3 fives", "liar, bid 3 fives"),
        ("bid 0 fives", "bid 0 fives"),
        ("bid 3 sevens", "bid 3 sevens"),
        ("bid 31 fives", "bid 31 fives"),
    ],
)
def test_replies_are_read_without_regard_to_spelling(text, action):
    assert read(text) == action


def test_a_bid_in_a_thought_is_not_read():
    env = gym.make("ludic/LiarsDice-v0").unwrapped
    env.reset(seed=1)
    assert env.read("<think>bid 9 sixes</think> Bid 2 x 3").action == "bid 2 threes"


def playthrough(state, seed):
    """States of a game of random legal actions."""
    rng = random.Random(seed)
    while sum(map(bool, state.hands)) > 1:
        yield state
        state = play(state, rng.choice(legal_actions(state)))


@pytest.mark.long
@given(st.integers(0, 10**6), st.integers(2, 6), st.integers(1, 5))
def test_no_player_sees_or_acts_on_dice_of_others(seed, players, dice):
    start = liars_dice(players, dice).initial(np.random.default_rng(seed))
    for state in itertools.islice(playthrough(start, seed), 12):
        me = state.mover
        hands = tuple(
            hand if seat == me else tuple(7 - die for die in hand)
            for seat, hand in enumerate(state.hands)
        )
        other = state._replace(hands=hands)
        assert observation(other, me) == observation(state, me)
        for strategy in (random_action, counting, inferring):
            mine, theirs = (
                strategy(liars_dice(players, dice), one, np.random.default_rng(seed))
                for one in (state, other)
            )
            assert mine == theirs
            assert mine in legal_actions(state)


@given(st.integers(0, 10**6), st.integers(2, 6), st.integers(1, 5))
def test_every_round_costs_one_die_and_the_game_ends(seed, players, dice):
    start = liars_dice(players, dice).initial(np.random.default_rng(seed))
    for number, state in enumerate(playthrough(start, seed)):
        assert state.total == players * dice - state.round
        assert number < 6 * (players * dice) ** 2


def test_chances_are_those_of_all_rolls_counted():
    # The second way: all 6**3 rolls of a player who names the face that most dice show.
    mine, other = Counter(), Counter()
    for roll in itertools.product(range(6), repeat=3):
        most = max(roll.count(face) for face in roll)
        faces = [face for face in range(6) if roll.count(face) == most]
        for face in faces:
            mine[roll.count(face)] += Fraction(1, 216 * len(faces))
            # Each of the five other faces, with equal weight.
            for rest in set(range(6)) - {face}:
                other[roll.count(rest)] += Fraction(1, 216 * len(faces) * 5)
    assert chances_of_named(3)[0] == pytest.approx([float(mine[k]) for k in range(4)])
    assert chances_of_named(3)[1] == pytest.approx([float(other[k]) for k in range(4)])
    # Two dice: 25/36, 10/36, 1/36.
    assert binomial(2) == pytest.approx((25 / 36, 10 / 36, 1 / 36))
    assert believed_chances(((2, 0),)) == pytest.approx((1, 11 / 36, 1 / 36))


def test_counting_challenges_what_is_unlikely_and_believes_its_own_dice():
    # Two rivals with a die each, and two dice of its own that do not show a six.
    state = TABLE._replace(hands=((2, 3), (6,), (6,)), bids=((2, Bid(2, 6)),))
    # Two sixes by chance: 1 in 36.
    assert counting(liars_dice(3), state, np.random.default_rng(0)) == "liar"
    # It holds a pair of sixes of its own, which makes the bid true.
    sixes = state._replace(hands=((6, 6), (1,), (2,)))
    assert counting(liars_dice(3), sixes, np.random.default_rng(0)) != "liar"


def test_inference_finds_a_face_likelier_once_a_rival_has_named_it():
    # A rival with three dice has bid sixes; the player has two dice without a six.
    state = TABLE._replace(hands=((2, 3), (6, 6, 1), ()), bids=((1, Bid(1, 6)),))
    fives, sixes = by_inference(state, 0)[4:]
    # By chance: 1 - (5/6)**3.
    assert fives[1] < 1 - (5 / 6) ** 3 < sixes[1]


def test_the_oracle_challenges_what_is_false_and_bids_the_most_that_is_true():
    assert best_actions(TABLE) == ("bid 3 fives",)
    assert best_actions(after("bid 1 two")) == ("bid 3 fives",)
    assert best_actions(after("bid 2 fives", "bid 4 ones")) == ("liar",)
    # Above the highest true bid there are bluffs only.
    assert best_actions(after("bid 3 fives"))[0].startswith("bid ")


def wins(one, rest, players=3, games=60):
    """Share of games that `one` wins against `rest`, from every seat in turn."""
    game, won = liars_dice(players), 0
    for seed in range(games):
        rng = np.random.default_rng(seed)
        state = game.initial(rng)
        while game.returns(state) is None:
            strategy = one if state.mover == seed % players else rest
            state = game.play(state, strategy(game, state, rng))
        won += game.returns(state)[seed % players] == 1
    return won / games


def test_each_scripted_player_beats_the_weaker_one():
    # A third of the games would be equal play. Measured in 300 games: 1.00, 0.55, 0.14.
    assert wins(counting, random_action) > 0.9
    assert wins(inferring, counting) > 0.4
    assert wins(counting, inferring) < 0.3
