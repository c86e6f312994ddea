"""Werewolf: hidden roles, talk and votes, with scripted players.

A player uses what its seat knows: its role, the other werewolf, its results as a seer, and public
events. The oracle knows all roles.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache, lru_cache, partial
from typing import Any, NamedTuple

import numpy as np

from ludic_gym.envs.core.base import checked_choice, checked_range, pick, random_order
from ludic_gym.envs.core.game import Game, Opponent
from ludic_gym.envs.core.levels import SPLITS, Level, Split
from ludic_gym.envs.core.one_player import OnePlayerEnv
from ludic_gym.envs.core.two_player import GameAECEnv
from ludic_gym.envs.games.village import (
    NAMES,
    ROLES,
    State,
    deal,
    legal_actions,
    observation,
    play,
    read,
    refuse,
    returns,
    side,
    system_prompt,
    targets,
    verdict,
)

NOTHING = "I have nothing to say."
# Evidence that a player is a werewolf, added up: claims of a seer and its claims of innocence,
# suspicions of today, votes against a player who turned out to be innocent or a werewolf.
ACCUSED, CLEARED, SUSPECTED, WRONG_VOTE, RIGHT_VOTE = 4.0, -3.0, 0.5, 0.6, -1.5
# Evidence against each of two players who both claim to be the seer, and for the only one.
RIVAL_SEER, ONLY_SEER = 1.5, -1.5
KNOWN = 1000.0
_CLAIM = re.compile(r"\b(\w+) is (not )?a werewolf\b", re.IGNORECASE)
_SUSPECT = re.compile(r"\bsuspect (\w+)\b", re.IGNORECASE)
_SEER = re.compile(r"\bi am the seer\b", re.IGNORECASE)


class Claims(NamedTuple):
    """The claims in a message.

    seer: True if the speaker claims to be the seer. named: names and True for "is a werewolf".
    suspected: names.
    """

    seer: bool
    named: tuple[tuple[str, bool], ...]
    suspected: tuple[str, ...]


@lru_cache(maxsize=4096)
def claims_in(text: str) -> Claims:
    """The claims that scripted players understand."""
    named = tuple((name.lower(), not innocent) for name, innocent in _CLAIM.findall(text))
    return Claims(bool(_SEER.search(text)), named, tuple(map(str.lower, _SUSPECT.findall(text))))


def at_random(game: Game[Any], state: State, rng: np.random.Generator) -> str:
    """A legal choice, uniformly at random; nothing in a talk."""
    legal = legal_actions(state)
    return pick(rng, legal) if legal else NOTHING


def scripted(game: Game[Any], state: State, rng: np.random.Generator, *, careful: bool) -> str:
    """The action of a player who believes claims and suspicions.

    careful: weigh claims against each other and against votes and deaths.
    """
    me = state.mover
    doubts = suspicions(state, careful=careful)
    if state.roles[me] == "werewolf":
        return _wolf(state, rng, doubts, careful=careful)
    for seat in state.living:
        if (result := seen_by(state, me, seat)) is not None:
            doubts[seat] = KNOWN if result else -KNOWN
    if state.phase == "talk":
        return _villagers_words(state, rng, doubts, careful=careful)
    if state.phase == "protect":
        return _action_on(state, _most(rng, targets(state), _trust(state, doubts)))
    if state.phase == "see":
        # Innocence that is known already is not learnt again.
        new = [seat for seat in targets(state) if abs(doubts[seat]) < KNOWN]
        return _action_on(state, _most(rng, new or targets(state), doubts))
    return _action_on(state, _most(rng, targets(state), doubts))


by_claims = partial(scripted, careful=False)
by_evidence = partial(scripted, careful=True)


def _villagers_words(
    state: State, rng: np.random.Generator, doubts: dict[int, float], *, careful: bool
) -> str:
    me, others = state.mover, [seat for seat in state.living if seat != state.mover]
    if state.roles[me] == "seer":
        wolves = [seat for seat in others if doubts[seat] == KNOWN]
        cleared = [seat for seat in others if doubts[seat] == -KNOWN]
        if wolves:
            return f"I am the seer: {state.names[wolves[0]]} is a werewolf."
        # A seer who speaks up early is the next victim.
        if cleared and careful and (doubts[me] >= SUSPECTED or state.day > 1):
            return f"I am the seer: {state.names[cleared[-1]]} is not a werewolf."
    worst = _most(rng, others, doubts)
    if doubts[worst] > (0 if careful else SUSPECTED):
        return f"I suspect {state.names[worst]}."
    return NOTHING


def _wolf(
    state: State, rng: np.random.Generator, doubts: dict[int, float], *, careful: bool
) -> str:
    me, wolves = state.mover, state.seats_of("werewolf")
    prey = [seat for seat in state.living if seat not in wolves]
    if state.phase == "kill":
        trusted = _trust(state, doubts)
        # Without experience: the claimed seer, or any player.
        careless = {seat: float(seat in claimed_seers(state)) for seat in prey}
        return _action_on(state, _most(rng, prey, trusted if careful else careless))
    worst = _most(rng, prey, doubts)
    if state.phase == "talk":
        accusers = [seat for seat in claimed_seers(state) if seat in prey]
        if careful and accusers and (doubts[me] >= ACCUSED / 2 or me in claimed_seers(state)):
            return f"I am the seer: {state.names[accusers[0]]} is a werewolf."
        return f"I suspect {state.names[worst]}." if careful or rng.random() < 0.5 else NOTHING
    lost = [seat for seat in wolves if seat != me and doubts[seat] >= ACCUSED]
    # A vote for a partner who is lost anyway looks innocent.
    if careful and lost and doubts[lost[0]] > max(doubts[seat] for seat in prey) + 2:
        return _action_on(state, lost[0])
    return _action_on(state, worst)


def _action_on(state: State, seat: int) -> str:
    return f"{state.phase} {state.names[seat]}"


def _most(rng: np.random.Generator, seats: Iterable[int], values: dict[int, float]) -> int:
    """A seat with the highest value."""
    seats = list(seats)
    best = max(values[seat] for seat in seats)
    return pick(rng, [seat for seat in seats if values[seat] == best])


def _trust(state: State, doubts: dict[int, float]) -> dict[int, float]:
    """Value of a player to the village: a claimed seer first, then the least suspicious one."""
    seers = claimed_seers(state)
    return {seat: 10 * (seat in seers) - doubts[seat] for seat in state.living}


def seen_by(state: State, seer: int, seat: int) -> bool | None:
    """True or False for a result of the seer; None if it has not looked."""
    if state.roles[seer] != "seer":
        return None
    looked = any(e.kind == "see" and e.seat == seer and e.target == seat for e in state.log)
    return state.roles[seat] == "werewolf" if looked else None


def claimed_seers(state: State) -> tuple[int, ...]:
    """Living players who claim to be the seer."""
    said = (e.seat for e in state.log if e.kind == "said" and claims_in(e.text).seer)
    return tuple(seat for seat in dict.fromkeys(said) if seat in state.living)


def suspicions(state: State, *, careful: bool) -> dict[int, float]:
    """Public evidence that each living player is a werewolf.

    careful: weigh claims by the fate of the speaker, votes, and claims against each other; else
    believe them all.
    """
    doubts = dict.fromkeys(range(len(state.names)), 0.0)
    seats = {name.lower(): seat for seat, name in enumerate(state.names)}
    today = 0
    claimed: dict[tuple[int, str], float] = {}
    for event in state.log:
        if event.kind == "day":
            today += 1
        elif event.kind == "said":
            claims = claims_in(event.text)
            if claims.seer:
                for name, is_wolf in claims.named:
                    # The latest claim of a player about another one counts, once.
                    claimed[event.seat, name] = ACCUSED if is_wolf else CLEARED
            if today == state.day:
                for name in claims.suspected:
                    if name in seats:
                        doubts[seats[name]] += SUSPECTED
        elif event.kind == "voted" and careful and event.target not in state.living:
            guilty = state.roles[event.target] == "werewolf"
            doubts[event.seat] += RIGHT_VOTE if guilty else WRONG_VOTE
    for (speaker, name), weight in claimed.items():
        if name in seats:
            # Certain for a dead seer, and without weight for a dead player who was none.
            if careful and speaker not in state.living:
                weight *= KNOWN if state.roles[speaker] == "seer" else 0.0
            doubts[seats[name]] += weight
    if careful:
        _weigh_seers(state, doubts)
    return doubts


def _weigh_seers(state: State, doubts: dict[int, float]) -> None:
    """Add the evidence of who claims to be the seer."""
    seers = claimed_seers(state)
    # The role of a dead player is public.
    is_dead = any(
        role == "seer" and seat not in state.living for seat, role in enumerate(state.roles)
    )
    for seat in seers:
        doubts[seat] += KNOWN if is_dead else ONLY_SEER if len(seers) == 1 else RIVAL_SEER


def best_actions(state: State) -> tuple[str, ...]:
    """The action of a player who knows all roles, and uses the words of a seer."""
    me = state.mover
    wolves = state.seats_of("werewolf")
    prey = [seat for seat in state.living if seat not in wolves]
    doubts = suspicions(state, careful=True)
    if side(state, me) == "village":
        # The werewolf against whom there is the most evidence is the easiest to hang.
        aim = max(wolves, key=lambda seat: doubts[seat])
        if state.phase == "talk":
            return (f"I am the seer: {state.names[aim]} is a werewolf.",)
        if state.phase == "protect":
            trust = _trust(state, doubts)
            # The victim of this night, who is named already.
            choice = max(targets(state), key=lambda seat: (seat == state.victim, trust[seat]))
            return (_action_on(state, choice),)
        return (_action_on(state, aim),)
    if state.phase == "kill":
        order = {"seer": 0, "doctor": 1}
        return (_action_on(state, min(prey, key=lambda seat: order.get(state.roles[seat], 2))),)
    aim = max(prey, key=lambda seat: doubts[seat])
    if state.phase == "talk":
        return (f"I am the seer: {state.names[aim]} is a werewolf.",)
    return (_action_on(state, aim),)


OPPONENTS: Mapping[str, tuple[Opponent, ...]] = {
    "easy": (at_random,),
    "medium": (by_claims,),
    "hard": (by_evidence,),
}


def initial(players: int, rng: np.random.Generator) -> State:
    """Names, roles and the first speaker, drawn at random."""
    names = tuple(random_order(rng, list(NAMES))[:players])
    roles = tuple(random_order(rng, list(ROLES[players])))
    return deal(names, roles, int(rng.integers(players)))


@cache
def werewolf(players: int = 7) -> Game[State]:
    """The game. Raises ConfigError unless there are 5 to 7 players."""
    checked_range("players", players, min(ROLES), max(ROLES))
    return Game(
        name="Werewolf",
        initial=partial(initial, players),
        mover=lambda state: state.mover,
        legal_actions=legal_actions,
        play=play,
        returns=returns,
        observation=observation,
        system_prompt=lambda player: system_prompt(players),
        best_actions=best_actions,
        read_in=read,
        verdict=verdict,
        players=players,
        refused=refuse,
        made_by=partial(werewolf, players),
    )


class WerewolfEnv(OnePlayerEnv[State]):
    """One player of a village with hidden roles, among scripted players.

    The rules are in `PROMPT`; the agent's role is drawn.

    - Observation: the agent's role and knowledge, the living players, what has happened since its
      last reply, and what may be replied.
    - Action: a message of any text when it is to speak; else the word of the phase and a name, such
      as "vote Ann", also inside a sentence. The third illegal reply in a row loses the game.
    - Reward: at the end 1 if the agent's side wins, also if the agent is dead, else -1 (component
      "outcome").
    - Info at the end: "outcome" ("win", "loss" or "illegal"). A win is a success.

    Success rates at the levels easy, medium and hard: random play 0.54, 0.27 and 0.06; the oracle,
    which knows all roles and talks like a seer, 0.99, 0.96 and 0.69. Random play wins games because
    a side wins as a team.

    Args:
        level: scripted players of the other side: "easy" (silent, random choices), "medium" (they
            believe claims and suspicions) or "hard" (they weigh claims, votes and deaths, and
            claim to be the seer when accused). Those of the agent's side play "medium".
        players: number of players, 5 to 7; of 7, two are werewolves, of fewer, one is.
    """

    opponents = OPPONENTS

    def __init__(
        self,
        level: Level = "medium",
        players: int = 7,
        split: Split = "all",
        render_mode: str | None = None,
    ) -> None:
        super().__init__(level, render_mode=render_mode)
        self.split = checked_choice("split", split, SPLITS)
        self.game = werewolf(players)
        self._seats = tuple(range(players))

    def rival_action(self, state: State) -> str:
        """The action of another player, whose strength depends on its side."""
        # A level that also made partners stronger would not make the game harder.
        is_partner = side(state, state.mover) == side(state, self.seat)
        strategy = by_claims if is_partner else self.opponent
        return strategy(self.game, state, self.np_random)


class WerewolfAECEnv(GameAECEnv[State]):
    """Werewolf for 5 to 7 agents in turn (PettingZoo AEC).

    The dead stay until the end of the game, which pays them too. `opponent_action(name, rng)` is
    the action of a scripted player, "easy", "medium" or "hard".
    """

    opponents = OPPONENTS

    def __init__(self, players: int = 7, render_mode: str | None = None) -> None:
        self.game = werewolf(players)
        super().__init__(render_mode)
