"""Negotiation: two players share out items that are worth something else to each of them.

After the task of Lewis et al. 2017, "Deal or No Deal?" (arXiv:1706.05125); rules, scenarios and
texts are our own.
"""

from __future__ import annotations

import re
from functools import cache, partial
from typing import Any, Literal, NamedTuple

import numpy as np

from ludic_gym.envs.core.base import one_line, pick
from ludic_gym.envs.core.game import Game
from ludic_gym.envs.core.one_player import OnePlayerEnv
from ludic_gym.envs.core.solitaire import checked_range
from ludic_gym.envs.core.two_player import GameAECEnv, GameParallelEnv
from ludic_gym.envs.games.sharing import (
    FAIR,
    ITEMS,
    TOTAL,
    Scenario,
    Share,
    any_scenario,
    fair_share,
    in_words,
    is_efficient,
    parsed_share,
    points,
    rest_of,
    shares,
    worth,
)

TURNS, MOST_TURNS = 10, 100
# More of an action is not read, more of a message not shown.
LONGEST_ACTION, LONGEST_MESSAGE = 4_000, 300
PROMPT = (
    "You and another player share out some items. What each item is worth to you, only you know; "
    "to the other player they are worth something else. Write anything to the other player, and "
    "end with one line that is a move: 'propose: 1 book, 2 hats' says what you would take, and the "
    "other player would get the rest; 'accept' takes the proposal of the other player; 'reject' "
    "turns it down. Without a deal after {turns} turns in all, both get nothing. Get as much as "
    "you can, and leave nothing on the table that only the other player has a use for."
)
_PROPOSAL = re.compile(r"propose\s*:(.*)", re.IGNORECASE)


class Said(NamedTuple):
    """One turn: the message, and the move in words for both players ("" for none)."""

    player: int
    message: str
    proposal: Share | None = None
    move: Literal["", "propose", "accept", "reject"] = ""


class State(NamedTuple):
    """A negotiation so far: what was said, the latest turn last, and how it may end.

    turns: how many there are in all.
    offer: the proposal on the table: who made it, and what they would take.
    deal: what the first player gets, once both agree.
    """

    scenario: Scenario
    turns: int
    said: tuple[Said, ...] = ()
    offer: tuple[int, Share] | None = None
    deal: Share | None = None


def initial(turns: int, rng: np.random.Generator) -> State:
    """Any scenario, and nothing said."""
    return State(any_scenario(rng), turns)


def mover(state: State) -> int:
    """The players alternate."""
    return len(state.said) % 2


def legal_actions(state: State) -> tuple[str, ...]:
    """Any text is allowed."""
    return ()


def play(state: State, action: str) -> State:
    """The state after a text; a move that cannot be made is only a message."""
    player = mover(state)
    turn = understood(state, action[:LONGEST_ACTION])
    offer = (player, turn.proposal) if turn.proposal else state.offer
    deal = _first_players(state) if turn.move == "accept" else None
    if turn.move == "reject":
        offer = None
    return state._replace(said=(*state.said, turn), offer=offer, deal=deal)


def understood(state: State, text: str) -> Said:
    """The message and the move in the text: the last line that is a move counts."""
    player, message = mover(state), []
    turn = Said(player, "")
    is_offered = state.offer is not None and state.offer[0] != player
    for line in text.splitlines():
        word = line.strip().rstrip(".!").casefold()
        found = _PROPOSAL.fullmatch(line.strip().rstrip(".!"))
        share = parsed_share(found[1], state.scenario.counts) if found else None
        if share is not None:
            turn = Said(player, "", share, "propose")
        elif word in ("accept", "reject") and is_offered:
            turn = Said(player, "", None, "accept" if word == "accept" else "reject")
        else:
            message.append(line)
    return turn._replace(message=one_line(" ".join(message), LONGEST_MESSAGE))


def _first_players(state: State) -> Share:
    """What the first player gets of the proposal on the table."""
    assert state.offer, "only an open proposal can be accepted"
    player, share = state.offer
    return share if player == 0 else rest_of(state.scenario.counts, share)


def returns(state: State) -> tuple[float, float] | None:
    """A tenth of the points of each; nothing for both if there is no deal after the last turn."""
    if state.deal is not None:
        first, second = points(state.scenario, state.deal)
        return first / TOTAL, second / TOTAL
    return (0.0, 0.0) if len(state.said) >= state.turns else None


def verdict(state: State, player: int) -> tuple[str, bool]:
    """Whether there is a deal; a success is an efficient one worth half or more to the player."""
    if state.deal is None:
        return "no deal", False
    enough = points(state.scenario, state.deal)[player] >= FAIR
    return "deal", enough and is_efficient(state.scenario, state.deal)


def observation(state: State, player: int) -> str:
    """The items, what they are worth to the player, and all that was said and proposed."""
    counts, values = state.scenario
    own = ", ".join(f"{item} {v}" for item, v in zip(ITEMS, values[player], strict=True))
    lines = [f"To share: {in_words(counts)}", f"One of each is worth to you: {own}"]
    for turn in state.said:
        lines += _told(turn, counts, player)
    return "\n".join([*lines, _standing(state, player)])


def _told(turn: Said, counts: Share, player: int) -> list[str]:
    """A turn as the player sees it."""
    who = "You" if turn.player == player else "They"
    lines = [f"{who} said: {turn.message}"] if turn.message else []
    if turn.proposal is not None:
        mine, theirs = turn.proposal, rest_of(counts, turn.proposal)
        if turn.player != player:
            mine, theirs = theirs, mine
        lines.append(f"{who} proposed: you get {in_words(mine)}; they get {in_words(theirs)}")
    elif turn.move:
        lines.append(f"{who} {turn.move}ed the proposal")
    return lines or [f"{who} said nothing"]


def _standing(state: State, player: int) -> str:
    """Where the negotiation stands."""
    if state.deal is not None:
        mine = state.deal if player == 0 else rest_of(state.scenario.counts, state.deal)
        got = points(state.scenario, state.deal)[player]
        return f"Deal: you get {in_words(mine)}, worth {got} of {TOTAL} to you"
    left = state.turns - len(state.said)
    return f"Turns left: {left}" if left else "No deal"


def best_actions(state: State) -> tuple[str, ...]:
    """Proposes the fairest efficient deal, from the values of both; accepts it and better ones."""
    player = mover(state)
    fair = fair_share(state.scenario)
    if state.offer and state.offer[0] != player:
        offered = _first_players(state)
        enough = points(state.scenario, fair)[player]
        if points(state.scenario, offered)[player] >= enough and is_efficient(
            state.scenario, offered
        ):
            return ("accept",)
    mine = fair if player == 0 else rest_of(state.scenario.counts, fair)
    return (f"propose: {' '.join(map(str, mine))}",)


def conceding(
    first: int, last: int, game: Game[Any], state: State, rng: np.random.Generator
) -> str:
    """Wants so many points at first and so many in its last turn, evenly fewer in between.

    It knows its own values only, and offers what leaves the other player the most items.
    """
    player, (counts, values) = mover(state), state.scenario
    own = values[player]
    wanted = demand(first, last, len(state.said), state.turns)
    if state.offer and state.offer[0] != player:
        got = worth(rest_of(counts, state.offer[1]), own)
        if got >= wanted:
            return "That suits me.\naccept"
    enough = [share for share in shares(counts) if worth(share, own) >= wanted]
    fewest = min(map(sum, enough))
    share = pick(rng, [share for share in enough if sum(share) == fewest])
    return f"How about this?\npropose: {' '.join(map(str, share))}"


def demand(first: int, last: int, turn: int, turns: int) -> int:
    """What a conceding player wants in a turn, rounded up; turns count from 0."""
    own_turns = max((turns - 1 - turn % 2) // 2, 1)
    done = min(turn // 2, own_turns)
    return first - (first - last) * done // own_turns


@cache
def negotiation(turns: int = TURNS) -> Game[State]:
    """A negotiation of so many turns in all. Raises ConfigError unless they are 2 to 100."""
    checked_range("turns", turns, 2, MOST_TURNS)
    return Game(
        name="Negotiation",
        initial=partial(initial, turns),
        mover=mover,
        legal_actions=legal_actions,
        play=play,
        returns=returns,
        observation=observation,
        system_prompt=lambda player: PROMPT.format(turns=turns),
        best_actions=best_actions,
        verdict=verdict,
        made_by=partial(negotiation, turns),
    )


class NegotiationEnv(OnePlayerEnv[State]):
    """Share out books, hats and balls with a scripted player, by words and proposals.

    opponent: what it wants at first and in its last turn, of 10 points: "soft" 7 and 2, "fair" 8
        and 4, "hard" 9 and 6, or "mixed": one of the three, drawn for every episode. It reads
        proposals, not messages.
    seat: see `OnePlayerEnv`.
    turns: how many there are for both together.
    efficiency_bonus: what a deal earns on top, as "reward/efficiency", if no other deal would be
        better for one and no worse for the other player. Nothing unless given.

    Observation: the items, what each is worth to the agent alone, and all that was said. Action:
    any text; a line "propose: ...", "accept" or "reject" in it is a move, and the rest is said to
    the other player, on one line and cut to 300 characters. A move that is not possible is a
    message. Reward: a tenth of the points of the deal, 0 without one. Outcome: "deal" or "no
    deal". Success: an efficient deal that is worth at least 5 points. The oracle knows both sides'
    values.

        To share: 1 book, 2 hats, 3 balls
        One of each is worth to you: book 1, hat 3, ball 1
        Turns left: 10
    The hats matter to me.
    propose: 2 hats
        To share: 1 book, 2 hats, 3 balls
        One of each is worth to you: book 1, hat 3, ball 1
        You said: The hats matter to me.
        You proposed: you get 2 hats; they get 1 book, 3 balls
        They said: That suits me.
        They accepted the proposal
        Deal: you get 2 hats, worth 6 of 10 to you             (reward 0.6)
    """

    opponents = {  # noqa: RUF012 (as the base class has it)
        "soft": (partial(conceding, 7, 2),),
        "fair": (partial(conceding, 8, 4),),
        "hard": (partial(conceding, 9, 6),),
        "mixed": tuple(partial(conceding, *ends) for ends in ((7, 2), (8, 4), (9, 6))),
    }

    def __init__(
        self,
        opponent: str = "fair",
        seat: Literal["first", "second", "random"] = "first",
        turns: int = TURNS,
        efficiency_bonus: float = 0.0,
        render_mode: str | None = None,
    ) -> None:
        super().__init__(opponent, seat, render_mode=render_mode)
        self.game = negotiation(turns)
        self._efficiency_bonus = float(efficiency_bonus)

    def _extras(self, outcome: str) -> dict[str, float]:
        if not self._efficiency_bonus:
            return {}
        deal, scenario = self._state.deal, self._state.scenario
        is_earned = deal is not None and is_efficient(scenario, deal)
        return {"efficiency": self._efficiency_bonus if is_earned else 0.0}


class NegotiationAECEnv(GameAECEnv[State]):
    """Negotiation for two agents in turn; each sees its own values only."""

    def __init__(self, turns: int = TURNS, render_mode: str | None = None) -> None:
        self.game = negotiation(turns)
        super().__init__(render_mode)


def parallel_env(turns: int = TURNS, render_mode: str | None = None) -> GameParallelEnv[State]:
    """Negotiation for two agents with joint actions: only who is to move is heard."""
    return GameParallelEnv(NegotiationAECEnv(turns, render_mode))
