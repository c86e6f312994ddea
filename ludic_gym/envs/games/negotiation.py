"""Negotiation: items to divide by messages and proposals.

After the task of Lewis et al. 2017, "Deal or No Deal?" (arXiv:1706.05125), with rules, scenarios
and texts of its own.
"""

from __future__ import annotations

import re
from functools import cache, lru_cache, partial
from itertools import product
from typing import Any, Literal, NamedTuple

import numpy as np

from ludic_gym.envs.core.base import checked_choice, checked_range, pick
from ludic_gym.envs.core.game import Game, one_line
from ludic_gym.envs.core.levels import SPLITS, Split
from ludic_gym.envs.core.one_player import OnePlayerEnv
from ludic_gym.envs.core.two_player import GameAECEnv, GameParallelEnv
from ludic_gym.reader import bare_text

ITEMS = ("book", "hat", "ball")
# Value of all items together, for each player.
TOTAL = 10
# Least value of a good deal.
FAIR = 5
# Number of each item.
Share = tuple[int, ...]
_COUNTS = tuple(c for c in product(range(1, 5), repeat=len(ITEMS)) if 5 <= sum(c) <= 7)
_PIECE = re.compile(r"(\d{1,2})\s*([a-z]+)")
_NUMBERS = re.compile(r"\s*(\d{1,2})[\s,]+(\d{1,2})[\s,]+(\d{1,2})\s*")


class Scenario(NamedTuple):
    """The number of each item, and each player's value of one of each."""

    counts: Share
    values: tuple[Share, Share]


def any_scenario(rng: np.random.Generator) -> Scenario:
    """A random scenario of five to seven items that is worth negotiating (`is_interesting`)."""
    while True:
        counts = pick(rng, _COUNTS)
        values = pick(rng, values_of(counts)), pick(rng, values_of(counts))
        scenario = Scenario(counts, values)
        if is_interesting(scenario):
            return scenario


@lru_cache(maxsize=2**14)
def is_interesting(scenario: Scenario) -> bool:
    """True if the values differ, no item is worthless to both, and a deal gives `FAIR` to each."""
    first, second = scenario.values
    if first == second or not all(a or b for a, b in zip(first, second, strict=True)):
        return False
    return min(points(scenario, fair_share(scenario))) >= FAIR


@cache
def values_of(counts: Share) -> tuple[Share, ...]:
    """All values of single items for which the items are worth `TOTAL` together."""
    each = product(*(range(TOTAL // count + 1) for count in counts))
    return tuple(values for values in each if worth(counts, values) == TOTAL)


def worth(share: Share, values: Share) -> int:
    """The value of the share."""
    return sum(n * value for n, value in zip(share, values, strict=True))


def points(scenario: Scenario, share: Share) -> tuple[int, int]:
    """The values for both players if the first one takes the share."""
    first, second = scenario.values
    return worth(share, first), worth(rest_of(scenario.counts, share), second)


@cache
def shares(counts: Share) -> tuple[Share, ...]:
    """All shares of these items."""
    return tuple(product(*(range(count + 1) for count in counts)))


@lru_cache(maxsize=2**14)
def is_efficient(scenario: Scenario, share: Share) -> bool:
    """True if no other deal is better for one player and no worse for the other (Pareto)."""
    both = points(scenario, share)
    others = (points(scenario, other) for other in shares(scenario.counts))
    return not any(a >= both[0] and b >= both[1] and (a, b) != both for a, b in others)


@lru_cache(maxsize=2**14)
def fair_share(scenario: Scenario) -> Share:
    """The first player's share in the efficient deal with the highest minimum of both values."""

    def rank(share: Share) -> tuple[int, int]:
        both = points(scenario, share)
        return min(both), sum(both)

    return max(shares(scenario.counts), key=rank)


def parsed_share(text: str, counts: Share) -> Share | None:
    """The share in "1 book, 2 hats" or "1 2 0"; None if there is none or it exceeds the items."""
    if numbers := _NUMBERS.fullmatch(text):
        share = tuple(int(n) for n in numbers.groups())
    else:
        pieces = _PIECE.findall(text.casefold())
        named = {name.removesuffix("s"): int(n) for n, name in pieces}
        # A name that occurs twice has no single meaning.
        if not pieces or len(named) < len(pieces) or not set(named) <= set(ITEMS):
            return None
        # An item that is not named is none of it.
        share = tuple(named.get(item, 0) for item in ITEMS)
    return share if all(k <= n for k, n in zip(share, counts, strict=True)) else None


def rest_of(counts: Share, share: Share) -> Share:
    """The items that are left."""
    return tuple(n - k for n, k in zip(counts, share, strict=True))


def in_words(share: Share) -> str:
    """The share as "1 book, 2 hats", or "nothing"."""
    named = zip(share, ITEMS, strict=True)
    return ", ".join(f"{n} {item}{'s' * (n > 1)}" for n, item in named if n) or "nothing"


TURNS, MOST_TURNS = 10, 100
# Points that a scripted player demands in its first and last turn, by its name.
DEMANDS = {"soft": (7, 2), "fair": (8, 4), "hard": (9, 6)}
# Characters of an action that are parsed, and of a message that the other player sees.
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


class Exchange(NamedTuple):
    """One turn: the player's message and move ("" for none).

    proposal: the share that the player would take, if the move is "propose".
    """

    player: int
    message: str
    proposal: Share | None = None
    move: Literal["", "propose", "accept", "reject"] = ""


class State(NamedTuple):
    """The state of a negotiation.

    turns: number of turns of both players together.
    history: the turns so far, the latest last.
    offer: the open proposal: the player who made it, and the share that this player would take.
    deal: the first player's share, once both players agree.
    """

    scenario: Scenario
    turns: int
    history: tuple[Exchange, ...] = ()
    offer: tuple[int, Share] | None = None
    deal: Share | None = None


def initial(turns: int, rng: np.random.Generator) -> State:
    """A random scenario before the first turn."""
    return State(any_scenario(rng), turns)


def mover(state: State) -> int:
    """The players alternate."""
    return len(state.history) % 2


def legal_actions(state: State) -> tuple[str, ...]:
    """None in particular: any text is legal."""
    return ()


def play(state: State, action: str) -> State:
    """The state after a text; an impossible move is part of the message."""
    player = mover(state)
    # The cut bounds the cost of parsing, whatever a player sends. The move is at the end.
    turn = understood(state, action[-LONGEST_ACTION:])
    # A new proposal replaces the open one, even the other player's.
    offer = (player, turn.proposal) if turn.proposal else state.offer
    deal = _first_players(state) if turn.move == "accept" else None
    if turn.move == "reject":
        offer = None
    return state._replace(history=(*state.history, turn), offer=offer, deal=deal)


def understood(state: State, text: str) -> Exchange:
    """The message and the move in the text; of several moves, the last one."""
    player, message = mover(state), []
    turn = Exchange(player, "")
    # A player cannot accept its own proposal.
    is_offered = state.offer is not None and state.offer[0] != player
    for line in text.splitlines():
        # Models end a move with a full stop, or print it in bold.
        plain = bare_text(line)
        word = plain.casefold()
        proposal = _PROPOSAL.fullmatch(plain)
        share = parsed_share(proposal[1], state.scenario.counts) if proposal else None
        if share is not None:
            turn = Exchange(player, "", share, "propose")
        elif word in ("accept", "reject") and is_offered:
            turn = Exchange(player, "", None, "accept" if word == "accept" else "reject")
        else:
            message.append(line)
    # On one line: a message must not look like lines of the game.
    return turn._replace(message=one_line(" ".join(message), LONGEST_MESSAGE))


def _first_players(state: State) -> Share:
    """The first player's share in the open proposal."""
    assert state.offer, "only an open proposal can be accepted"
    player, share = state.offer
    return share if player == 0 else rest_of(state.scenario.counts, share)


def returns(state: State) -> tuple[float, float] | None:
    """The value of the deal for each player, divided by `TOTAL`; 0 for both without a deal."""
    if state.deal is not None:
        first, second = points(state.scenario, state.deal)
        return first / TOTAL, second / TOTAL
    return (0.0, 0.0) if len(state.history) >= state.turns else None


def verdict(state: State, player: int) -> tuple[str, bool]:
    """The outcome; a success is an efficient deal that is worth `FAIR` or more to the player."""
    if state.deal is None:
        return "no deal", False
    enough = points(state.scenario, state.deal)[player] >= FAIR
    return "deal", enough and is_efficient(state.scenario, state.deal)


def observation(state: State, player: int) -> str:
    """The items, the player's own values, and the turns since the player's latest one, with it."""
    counts, values = state.scenario
    worths = ", ".join(f"{item} {v}" for item, v in zip(ITEMS, values[player], strict=True))
    lines = [f"To share: {in_words(counts)}", f"One of each is worth to you: {worths}"]
    # From the player's latest turn on.
    turns = [number for number, turn in enumerate(state.history) if turn.player == player]
    news = state.history[turns[-1] if turns else 0 :]
    if state.offer and state.deal is None and not any(turn.proposal for turn in news):
        # The dialog has it, but a player that sees the newest text alone would not know.
        maker, share = state.offer
        lines.append(f"Still open: {_proposal_text(maker, share, counts, player)}")
    for turn in news:
        lines += _lines(turn, counts, player)
    if state.deal is not None:
        mine = state.deal if player == 0 else rest_of(counts, state.deal)
        got = points(state.scenario, state.deal)[player]
        lines.append(f"Deal: you get {in_words(mine)}, worth {got} of {TOTAL} to you")
    else:
        left = state.turns - len(state.history)
        lines.append(f"Turns left: {left}" if left else "No deal")
    return "\n".join(lines)


def _lines(turn: Exchange, counts: Share, player: int) -> list[str]:
    """A turn as the player sees it."""
    who = "You" if turn.player == player else "They"
    lines = [f"{who} said: {turn.message}"] if turn.message else []
    if turn.proposal is not None:
        lines.append(_proposal_text(turn.player, turn.proposal, counts, player))
    elif turn.move:
        lines.append(f"{who} {turn.move}ed the proposal")
    return lines or [f"{who} said nothing"]


def _proposal_text(maker: int, share: Share, counts: Share, player: int) -> str:
    """A proposal as the player sees it."""
    mine, theirs = share, rest_of(counts, share)
    who = "You" if maker == player else "They"
    if maker != player:
        mine, theirs = theirs, mine
    return f"{who} proposed: you get {in_words(mine)}; they get {in_words(theirs)}"


def best_actions(state: State) -> tuple[str, ...]:
    """Propose the fair share; accept an efficient deal that is worth as much or more.

    The strategy knows the values of both players.
    """
    player = mover(state)
    fair = fair_share(state.scenario)
    if state.offer and state.offer[0] != player:
        offered = _first_players(state)
        enough = points(state.scenario, fair)[player]
        if points(state.scenario, offered)[player] >= enough and is_efficient(
            state.scenario, offered
        ):
            return ("accept",)
    # Shares of the scenario are the first player's.
    mine = fair if player == 0 else rest_of(state.scenario.counts, fair)
    return (f"propose: {' '.join(map(str, mine))}",)


def conceding(
    first: int, last: int, game: Game[Any], state: State, rng: np.random.Generator
) -> str:
    """Demand `first` points in the first turn, `last` in the last one, linearly fewer in between.

    The strategy knows its own values only. Of the shares that are worth the demand, it proposes
    one that leaves the other player the most items.
    """
    player, (counts, values) = mover(state), state.scenario
    mine = values[player]
    wanted = demand(first, last, len(state.history), state.turns)
    if state.offer and state.offer[0] != player:
        got = worth(rest_of(counts, state.offer[1]), mine)
        if got >= wanted:
            return "That suits me.\naccept"
    # All items are worth TOTAL to it, so the demand can always be met.
    enough = [share for share in shares(counts) if worth(share, mine) >= wanted]
    # Items and not points, because it does not know their values for the other player.
    fewest = min(map(sum, enough))
    share = pick(rng, [share for share in enough if sum(share) == fewest])
    return f"How about this?\npropose: {' '.join(map(str, share))}"


def most_won(state: State, first: int, last: int) -> Share | None:
    """The first player's share that gives the mover most of what a conceding player accepts later.

    Of equal ones, that which gives the other player most, so that it is efficient. What the other
    player demands in its last turn is the least it ever accepts, and proposes. None if it has no
    turn left.
    """
    player, scenario = mover(state), state.scenario
    # Its turns are the second, fourth ... from now on.
    turns = range(len(state.history) + 1, state.turns, 2)
    if not turns:
        return None
    least = demand(first, last, turns[-1], state.turns)
    both = {share: points(scenario, share) for share in shares(scenario.counts)}
    enough = [share for share, worths in both.items() if worths[1 - player] >= least]
    return max(enough, key=lambda share: (both[share][player], both[share][1 - player]))


def demand(first: int, last: int, turn: int, turns: int) -> int:
    """Points that a conceding player demands in a turn, rounded up; turns count from 0."""
    # The seat that moves second has as many turns only if their number is even.
    own_turns = max((turns - 1 - turn % 2) // 2, 1)
    done = min(turn // 2, own_turns)
    return first - (first - last) * done // own_turns


@cache
def negotiation(turns: int = TURNS) -> Game[State]:
    """The game of `turns` turns in all. Raises ConfigError unless these are 2 to 100."""
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
    """Divide books, hats and balls with a scripted player, by messages and proposals.

    All items together are worth 10 points to each player. A player knows its own values only; the
    oracle knows both, and what the other player will accept: no player gets more than it.

    - Observation: the items, the agent's values, its latest turn with the reply, and an earlier
      proposal that is still open.
    - Action: any text. A line "propose: ...", "accept" or "reject" is a move; the other lines are
      the message, on one line and cut to 300 characters. An impossible move is part of the message.
    - Reward: a tenth of the agent's points in the deal, 0 without a deal (component "outcome").
    - Info at the end: "outcome" ("deal" or "no deal"). A success is an efficient deal (none is
      better for one player and no worse for the other) of at least 5 points.

    Args:
        opponent: its demands in its first and last turn, in points: "soft" 7 and 2, "fair" 8 and 4,
            "hard" 9 and 6, or "mixed" (one of the three, drawn for each episode). It ignores
            messages.
        seat: see `OnePlayerEnv`.
        turns: number of turns of both players together.
        split: "train" and "test" have no items with their values in common; one scenario in five is
            in "test".
    """

    opponents = {  # noqa: RUF012 (as the base class has it)
        **{name: (partial(conceding, *ends),) for name, ends in DEMANDS.items()},
        "mixed": tuple(partial(conceding, *ends) for ends in DEMANDS.values()),
    }

    def __init__(
        self,
        opponent: str = "fair",
        seat: Literal["first", "second", "random"] = "first",
        turns: int = TURNS,
        split: Split = "all",
        render_mode: str | None = None,
    ) -> None:
        super().__init__(opponent, seat, render_mode=render_mode)
        self.split = checked_choice("split", split, SPLITS)
        self.game = negotiation(turns)

    def best_action(self) -> str:
        """Propose the share with most points of those that the other player will accept."""
        state, scenario = self.state, self.state.scenario
        assert isinstance(self.opponent, partial), "all `opponents` are conceding players"
        best = most_won(state, *self.opponent.args)
        if state.offer and state.offer[0] != self.seat:
            offered = _first_players(state)
            got = points(scenario, offered)[self.seat]
            if best is None or (
                points(scenario, best)[self.seat] <= got and is_efficient(scenario, offered)
            ):
                return "accept"
        best = fair_share(scenario) if best is None else best
        mine = best if self.seat == 0 else rest_of(scenario.counts, best)
        return f"propose: {' '.join(map(str, mine))}"

    def task(self, state: State) -> str:
        """The items and their values, whichever player has which."""
        counts, values = state.scenario
        return repr((counts, sorted(values)))


class NegotiationAECEnv(GameAECEnv[State]):
    """Negotiation for two agents in turn (PettingZoo AEC); each sees its own values only.

    `opponent_action(name, rng)` is the action of a scripted player, "soft", "fair" or "hard".
    """

    opponents = NegotiationEnv.opponents

    def __init__(self, turns: int = TURNS, render_mode: str | None = None) -> None:
        self.game = negotiation(turns)
        super().__init__(render_mode)


def parallel_env(turns: int = TURNS, render_mode: str | None = None) -> GameParallelEnv[State]:
    """Negotiation for two agents with joint actions (PettingZoo Parallel)."""
    return GameParallelEnv(NegotiationAECEnv(turns, render_mode))
