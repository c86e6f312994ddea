"""Liar's Dice: bids on the dice of all players, of which each sees its own only."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, partial

import numpy as np

from ludic_gym.envs.core.base import checked_choice, checked_range
from ludic_gym.envs.core.game import Game, Opponent, random_action
from ludic_gym.envs.core.levels import SPLITS, Level, Split
from ludic_gym.envs.core.one_player import OnePlayerEnv
from ludic_gym.envs.core.two_player import GameAECEnv
from ludic_gym.envs.games.dice import (
    REFUSALS,
    Reveal,
    State,
    best_actions,
    counting,
    deal,
    inferring,
    legal_actions,
    play,
    raises,
    read,
    refuse,
    returns,
    verdict,
)

MOST_PLAYERS, MOST_DICE = 6, 5
OPPONENTS: Mapping[str, tuple[Opponent, ...]] = {
    "easy": (random_action,),
    "medium": (counting,),
    "hard": (inferring,),
}
PROMPT = (
    "You play Liar's Dice with {players} players in all. You are Player {you}. Each player begins"
    " with {dice} and sees only their own dice. In every round all dice are rolled. Then the "
    "players take turns in the order of their numbers. The first player of a round makes a bid, "
    "such as 'bid 3 fives', which claims that at least three dice of all players together show a "
    "five. Each next player either makes a higher bid or says 'liar'. A bid is higher if it has a"
    " larger number of dice, with any face, or the same number of dice and a higher face. After "
    "'liar' all dice are shown. If the latest bid is true, the player who said 'liar' loses one "
    "die; if it is false, the player who made the bid loses one die. The player who lost the die "
    "begins the next round. A player without dice is out, and the last player who has dice wins "
    "the game. There are no wild dice. Reply with one bid, in the form 'bid 3 fives', or with "
    "'liar', and nothing else. After {refusals} illegal replies in a row you are out of the game."
)


def initial(players: int, dice: int, rng: np.random.Generator) -> State:
    """The first roll, and a player drawn to begin."""
    return deal(int(rng.integers(2**31)), players, dice, int(rng.integers(players)))


def observation(state: State, player: int) -> str:
    """The ends of rounds since the player's last reply, its dice, and the bids of this round."""
    mine = state.hands[player]
    # A player who is out replies no more, and reads the latest end only.
    new = state.ends[state.read[player] :] if mine else state.ends[-1:]
    lines = [_reveal(end, player) for end in new]
    result = returns(state)
    if result is not None:
        winner = _name(result.index(1.0), player, "have", "has").capitalize()
        return "\n".join([*lines, f"The game is over. {winner} won."])
    left = ", ".join(
        f"{_name(seat, player, 'have', 'has')} {len(hand)}"
        for seat, hand in enumerate(state.hands)
        if hand
    )
    lines.append(f"Round {state.round + 1}. Of {state.total} dice in all, {left}.")
    lines.append(f"Your dice: {' '.join(map(str, mine))}" if mine else "You are out.")
    bids = "; ".join(f"{_name(seat, player)} bid {bid.text()}" for seat, bid in state.bids)
    lines.append(f"Bids of this round: {bids or 'none'}.")
    if state.mover == player:
        lines.append(_request(state))
    return "\n".join(lines)


def _name(seat: int, player: int, mine: str = "", others: str = "") -> str:
    """A player as another one, or the player itself, reads of it, with the fitting verb."""
    name, verb = ("you", mine) if seat == player else (f"Player {seat + 1}", others)
    return f"{name} {verb}".strip()


def _reveal(end: Reveal, player: int) -> str:
    """The end of a round in sentences."""
    if end.challenger < 0:
        loser = _name(end.loser, player, "are", "is")
        return f"Last round: {loser} out after {REFUSALS} illegal replies."
    hands = "; ".join(
        f"{_name(seat, player)}: {' '.join(map(str, hand))}"
        for seat, hand in enumerate(end.hands)
        if hand
    )
    was = "true" if end.matching >= end.bid.number else "false"
    die = "the last die, and is out" if len(end.hands[end.loser]) == 1 else "a die"
    if end.loser == player:
        die = die.replace("the last die, and is", "your last die, and are")
    return (
        f"Last round: {_name(end.bidder, player)} bid {end.bid.text()}, and "
        f"{_name(end.challenger, player)} said liar. The dice were ({hands}). {end.matching} of "
        f"them had this face, so the bid was {was}, and {_name(end.loser, player)} lost {die}."
    )


def _request(state: State) -> str:
    """The form of the reply, with what is legal."""
    higher = raises(state.bid, state.total)
    bids = ""
    if higher:
        bids = f"'bid {higher[0].text()}' or any higher bid (of at most {state.total} dice)"
    choices = " or ".join(filter(None, [bids, "'liar'" if state.bid else ""]))
    again = "That is not a legal reply. " if state.refused else ""
    tries = f" Tries left: {REFUSALS - state.refused}." if state.refused else ""
    return f"{again}It is your turn. Reply with {choices}.{tries}"


@cache
def liars_dice(players: int = 3, dice: int = 3) -> Game[State]:
    """The game. Raises ConfigError unless there are 2 to 6 players with 1 to 5 dice."""
    checked_range("players", players, 2, MOST_PLAYERS)
    checked_range("dice", dice, 1, MOST_DICE)
    each = f"{dice} dice" if dice > 1 else "one die"
    return Game(
        name="Liar's Dice",
        initial=partial(initial, players, dice),
        mover=lambda state: state.mover,
        legal_actions=legal_actions,
        play=play,
        returns=returns,
        observation=observation,
        system_prompt=lambda player: PROMPT.format(
            players=players, you=player + 1, dice=each, refusals=REFUSALS
        ),
        best_actions=best_actions,
        read=read,
        verdict=verdict,
        players=players,
        refused=refuse,
        made_by=partial(liars_dice, players, dice),
    )


class LiarsDiceEnv(OnePlayerEnv[State]):
    """Liar's Dice at a table of scripted players.

    - Observation: the end of the last round, the numbers of dice, the agent's dice, the bids of
      this round, and what may be replied.
    - Action: "bid 3 fives" or "liar", also with another spelling such as "three 5s." or inside a
      sentence; a reply with several bids is illegal. The third illegal reply in a row costs all
      dice.
    - Reward: at the end 1 for the winner, -1 for all others (component "outcome").
    - Info at the end: "outcome" ("win", "loss" or "illegal"). A win is a success.

    Success rates at the levels easy, medium and hard: random play 0.33, 0.00 and 0.00; the oracle
    1.00, 0.99 and 0.99. The oracle sees all dice, and may still lose a game: the highest true bid
    can only be raised by a bluff.

    Args:
        level: scripted players: "easy" (random legal actions), "medium" (bids that are likely, by
            its own dice and chance) or "hard" (also infers dice from the bids of others, and
            bluffs).
        players: number of players, 2 to 6; the agent's seat is drawn.
        dice: dice of each player at the start, 1 to 5.
    """

    opponents = OPPONENTS

    def __init__(
        self,
        level: Level = "medium",
        players: int = 3,
        dice: int = 3,
        split: Split = "all",
        render_mode: str | None = None,
    ) -> None:
        super().__init__(level, render_mode=render_mode)
        self.split = checked_choice("split", split, SPLITS)
        self.game = liars_dice(players, dice)
        self._seats = tuple(range(players))

    def task(self, state: State) -> str:
        """The first roll."""
        return repr(state.hands)


class LiarsDiceAECEnv(GameAECEnv[State]):
    """Liar's Dice for 2 to 6 agents in turn (PettingZoo AEC); each sees its own dice only.

    `opponent_action(name, rng)` is the action of a scripted player, "easy", "medium" or "hard".
    """

    opponents = OPPONENTS

    def __init__(self, players: int = 3, dice: int = 3, render_mode: str | None = None) -> None:
        self.game = liars_dice(players, dice)
        super().__init__(render_mode)
