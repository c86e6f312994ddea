import re
from collections import Counter
from fractions import Fraction

import gymnasium as gym
import pettingzoo
import pytest

import ludic_gym  # noqa: F401 (registers the ids)
from ludic_gym.envs.games.kuhn_poker import (
    CARDS,
    DEALS,
    EQUILIBRIUM,
    State,
    best_actions,
    legal_actions,
    mover,
    observation,
    play,
    won_chips,
)

ID = "ludic/KuhnPoker-v0"
# Card of the mover and the actions so far -> probability of a bet or call.
OURS = {
    (card, actions): Fraction(thirds, 3)
    for actions, row in EQUILIBRIUM.items()
    for card, thirds in zip(CARDS, row, strict=True)
}


def exploitability(strategy):
    """Chips per game that a best response wins against the strategy, averaged over both seats."""
    return sum(best_response(strategy, seat) for seat in (0, 1)) / 2


def best_response(strategy, seat):
    even = Fraction(1, len(DEALS))
    own_cards = ([(s, even) for s in DEALS if s.cards[seat] == card] for card in CARDS)
    return sum(response_value(strategy, seat, beliefs) for beliefs in own_cards)


def response_value(strategy, seat, beliefs):
    """Chips that the seat wins from one information set: its states, each with its probability."""
    state = beliefs[0][0]
    ends = [(chips, p) for s, p in beliefs if (chips := won_chips(s)) is not None]
    if ends:
        return sum(p * chips for chips, p in ends) * (1 if seat == 0 else -1)
    actions = legal_actions(state)
    if mover(state) == seat:
        after = [[(play(s, action), p) for s, p in beliefs] for action in actions]
        return max(response_value(strategy, seat, states) for states in after)
    after = [
        [(play(s, action), p * likelihood(strategy, s, action)) for s, p in beliefs]
        for action in actions
    ]
    return sum(response_value(strategy, seat, states) for states in after)


def likelihood(strategy, state, action):
    p = strategy[state.cards[mover(state)], state.actions]
    return p if action in ("bet", "call") else 1 - p


@pytest.mark.parametrize(
    ("actions", "chips"),
    [
        ("", None),
        ("check", None),
        ("bet", None),
        ("check bet", None),
        ("check check", 1),
        ("bet call", 2),
        ("check bet call", 2),
        ("bet fold", 1),
        ("check bet fold", -1),
    ],
)
def test_the_pot_goes_to_the_higher_card_or_to_who_does_not_fold(actions, chips):
    actions = tuple(actions.split())
    assert won_chips(State("KJ", actions)) == chips
    if chips and "fold" not in actions:
        assert won_chips(State("JK", actions)) == -chips


def test_a_player_sees_its_own_card_only_until_the_showdown():
    assert observation(State("QK", ("check",)), 1) == (
        "Your card is K. The other player checked. Reply with check or bet."
    )
    assert observation(State("QK", ("bet", "fold")), 0) == (
        "Your card is Q. You bet. The other player folded."
    )
    assert observation(State("QK", ("bet", "call")), 0).endswith("The other card is K.")


def test_agents_do_not_see_each_others_cards():
    env = pettingzoo.make("aec", ID)
    seen = {}
    for seed in range(60):
        env.reset(seed=seed)
        for agent in env.agents:
            text = env.observe(agent)
            card = re.search(r"Your card is (\w)", text)[1]
            assert seen.setdefault((agent, card), text) == text
    assert len(seen) == 6


def test_the_equilibrium_cannot_be_exploited():
    assert exploitability(OURS) == 0


def test_what_best_responses_win():
    # Known for play at random: a sum of 11/12 over both seats.
    assert exploitability(dict.fromkeys(OURS, Fraction(1, 2))) == Fraction(11, 24)
    # Never bets, never calls: a best response bets always and wins one chip, from both seats.
    assert exploitability(dict.fromkeys(OURS, Fraction(0))) == 1


def test_another_equilibrium_of_the_first_player_cannot_be_exploited_either():
    # alpha = 1/3: bets J one time in three, K always, and calls with Q two times in three.
    third = {
        ("J", ()): Fraction(1, 3),
        ("K", ()): Fraction(1),
        ("Q", ("check", "bet")): Fraction(2, 3),
    }
    assert exploitability({**OURS, **third}) == 0
    assert exploitability({**OURS, ("Q", ()): Fraction(1)}) > 0


def test_perfect_play_mixes_as_the_equilibrium_does():
    assert Counter(best_actions(State("QJ", ("check", "bet")))) == {
        "call": 1,
        "fold": 2,
    }
    assert best_actions(State("QJ", ("check",))) == ("check", "check", "bet")
    assert set(best_actions(State("QK", ("bet",)))) == {"call"}


@pytest.mark.parametrize("seat", [0, 1])
@pytest.mark.parametrize("opponent", ["random", "perfect"])
def test_nothing_wins_more_than_the_oracle(opponent, seat):
    env = gym.make(ID, opponent=opponent).unwrapped
    env.reset(seed=0)
    env.seat = seat
    strategy = OURS if opponent == "perfect" else dict.fromkeys(OURS, Fraction(1, 2))

    def value(state):
        """Chips of the oracle, over all cards of its opponent and all that this one may do."""
        if (chips := won_chips(state)) is not None:
            return chips * (1 if seat == 0 else -1)
        if mover(state) == seat:
            env.state = state
            return value(play(state, env.oracle_action()))
        actions = legal_actions(state)
        return sum(likelihood(strategy, state, a) * value(play(state, a)) for a in actions)

    assert sum(map(value, DEALS)) / Fraction(len(DEALS)) == best_response(strategy, seat)
