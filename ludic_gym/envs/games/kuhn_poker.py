"""Kuhn Poker: the smallest game of bluffing (H. W. Kuhn, 1950)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from itertools import permutations
from typing import NamedTuple

import numpy as np

from ludic_gym.envs.core.base import pick
from ludic_gym.envs.core.game import Game, Opponent, caseless, random_action
from ludic_gym.envs.core.one_player import OnePlayerEnv
from ludic_gym.envs.core.two_player import GameAECEnv, GameParallelEnv

# In ascending order: the higher card wins the showdown.
CARDS = "JQK"
PROMPT = (
    "You play Kuhn Poker with the cards J, Q and K, of which K is the highest. Both players put in "
    "one chip and get one card, which only they see. You act {order}. A player may check or bet "
    "one more chip; the other player then has to call the bet with one chip or to fold. A player "
    "who folds loses the pot; otherwise the higher card wins it. Reply with just one of the "
    "actions that you are asked for, such as check."
)
PAST = {"check": "checked", "bet": "bet", "call": "called", "fold": "folded"}
# The most chips that can be won; returns are multiples of it.
STAKE = 2


class State(NamedTuple):
    """The cards of both players, and the actions so far."""

    cards: str
    actions: tuple[str, ...] = ()


DEALS = tuple(State(a + b) for a, b in permutations(CARDS, 2))


def initial(rng: np.random.Generator) -> State:
    """Two different cards."""
    return pick(rng, DEALS)


def mover(state: State) -> int:
    """The players alternate."""
    return len(state.actions) % 2


def legal_actions(state: State) -> tuple[str, ...]:
    """Call or fold after a bet, otherwise check or bet."""
    return ("call", "fold") if state.actions[-1:] == ("bet",) else ("check", "bet")


def play(state: State, action: str) -> State:
    """The game with one more action."""
    return State(state.cards, (*state.actions, action))


@cache
def returns(state: State) -> tuple[float, float] | None:
    """Chips won, divided by `STAKE`; None before the end."""
    chips = won_chips(state)
    return None if chips is None else (chips / STAKE, -chips / STAKE)


def won_chips(state: State) -> int | None:
    """Chips that the first player wins; None before the end."""
    last = state.actions[-1:]
    if last == ("fold",):
        return 1 if mover(state) == 0 else -1
    if last == ("call",) or state.actions == ("check", "check"):
        # Cards differ, so there is no draw.
        higher = CARDS.index(state.cards[0]) > CARDS.index(state.cards[1])
        pot = STAKE if last == ("call",) else 1
        return pot if higher else -pot
    return None


def observation(state: State, player: int) -> str:
    """The player's card, the actions so far and the legal ones; the other card after a showdown."""
    seats = ("You", "The other player")
    done = [f"{seats[i % 2 ^ player]} {PAST[action]}." for i, action in enumerate(state.actions)]
    text = " ".join([f"Your card is {state.cards[player]}.", *done])
    if returns(state) is None:
        return f"{text} Reply with {' or '.join(legal_actions(state))}."
    is_showdown = state.actions[-1] != "fold"
    return f"{text} The other card is {state.cards[1 - player]}." if is_showdown else text


def system_prompt(player: int) -> str:
    """The rules, the player's order and the reply format."""
    return PROMPT.format(order=("first", "second")[player])


# The equilibrium in which the first player never bets first (Kuhn's alpha = 0). Actions so far ->
# probabilities, in thirds, of a bet or call with J, Q and K.
EQUILIBRIUM: Mapping[tuple[str, ...], tuple[int, int, int]] = {
    (): (0, 0, 0),
    ("check", "bet"): (0, 1, 3),
    ("check",): (1, 0, 3),
    ("bet",): (0, 1, 3),
}


def best_actions(state: State) -> tuple[str, ...]:
    """Three actions, maybe repeated; one of them uniformly at random is an equilibrium strategy.

    They depend on the mover's card and the actions only, not on the other card.
    """
    bold, timid = ("call", "fold") if "bet" in state.actions else ("bet", "check")
    bets = EQUILIBRIUM[state.actions][CARDS.index(state.cards[mover(state)])]
    bold_ones, timid_ones = (bold,) * bets, (timid,) * (3 - bets)
    # An oracle plays the first one, so the likelier action comes first.
    return bold_ones + timid_ones if bets > 1 else timid_ones + bold_ones


def bold_share(opponent: Opponent, state: State) -> float:
    """Probability with which a scripted opponent bets or calls in a state in which it moves."""
    if opponent is random_action:
        return 1 / 2
    return EQUILIBRIUM[state.actions][CARDS.index(state.cards[mover(state)])] / 3


def best_response(
    opponent: Opponent, states: Mapping[State, float], seat: int
) -> tuple[str, float]:
    """The action with the best mean return against the opponent, and that return.

    states: those that the player of the seat cannot tell apart, with their weights.
    """
    actions = legal_actions(next(iter(states)))
    values = {}
    for action in actions:
        after = {play(state, action): weight for state, weight in states.items()}
        values[action] = _mean_return(opponent, after, seat)
    # Of equal ones the bolder: a bet that is called shows what the other player holds.
    best = max(actions, key=lambda action: (values[action], action in ("bet", "call")))
    return best, values[best]


def _mean_return(opponent: Opponent, states: Mapping[State, float], seat: int) -> float:
    """Weighted return of states with equal actions, if the seat plays on by `best_response`."""
    first = next(iter(states))
    if returns(first) is not None:
        return sum(weight * (returns(s) or (0, 0))[seat] for s, weight in states.items())
    if mover(first) == seat:
        return best_response(opponent, states, seat)[1]
    bold, timid = ("call", "fold") if "bet" in first.actions else ("bet", "check")
    shares = {s: bold_share(opponent, s) for s in states}
    bolder = {play(s, bold): w * shares[s] for s, w in states.items()}
    timider = {play(s, timid): w * (1 - shares[s]) for s, w in states.items()}
    return _mean_return(opponent, bolder, seat) + _mean_return(opponent, timider, seat)


KUHN_POKER = Game(
    name="Kuhn Poker",
    initial=initial,
    mover=mover,
    legal_actions=legal_actions,
    play=play,
    returns=returns,
    observation=observation,
    system_prompt=system_prompt,
    best_actions=best_actions,
    read=caseless,
)


class KuhnPokerEnv(OnePlayerEnv[State]):
    """Kuhn Poker against a scripted opponent.

    - Observation: the agent's card and the actions so far; the other card after a showdown.
    - Action: check, bet, call or fold, in either case.
    - Reward: half of the chips won or lost (component "outcome"); -1 for an illegal action. The
      cards decide much of it: against an equilibrium, the best first player loses 1/18 chip per
      game.
    - Info: see `OnePlayerEnv`.

    Args:
        opponent: "random", "perfect" (plays an equilibrium), or "mixed" (one of the two, drawn
            for each episode).
    """

    game = KUHN_POKER

    def best_action(self) -> str:
        """The best response to the opponent of the episode, without a look at its card."""
        state, seat = self.state, self.seat
        weights = {}
        for deal in DEALS:
            if deal.cards[seat] != state.cards[seat]:
                continue
            # The opponent's own actions tell of its card.
            weight, before = 1.0, deal
            for action in state.actions:
                if mover(before) != seat:
                    share = bold_share(self.opponent, before)
                    weight *= share if action in ("bet", "call") else 1 - share
                before = play(before, action)
            weights[before] = weight
        return best_response(self.opponent, weights, seat)[0]


class KuhnPokerAECEnv(GameAECEnv[State]):
    """Kuhn Poker for two agents in turn (PettingZoo AEC); each sees its own card only."""

    game = KUHN_POKER


def parallel_env(render_mode: str | None = None) -> GameParallelEnv[State]:
    """Kuhn Poker for two agents with joint actions (PettingZoo Parallel)."""
    return GameParallelEnv(KuhnPokerAECEnv(render_mode))
