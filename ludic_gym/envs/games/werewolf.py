"""Werewolf: a village of hidden roles that talks and votes."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, partial
from types import MappingProxyType

import numpy as np

from ludic_gym.envs.core.base import checked_choice, checked_range, shuffled
from ludic_gym.envs.core.game import Game, Opponent
from ludic_gym.envs.core.levels import SPLITS, Level, Split
from ludic_gym.envs.core.one_player import OnePlayerEnv
from ludic_gym.envs.core.two_player import GameAECEnv
from ludic_gym.envs.games.village.players import at_random, best_actions, by_claims, by_evidence
from ludic_gym.envs.games.village.rules import (
    LEVELS,
    ROLES,
    State,
    dealt,
    legal_actions,
    play,
    read,
    refused,
    returns,
    side,
    verdict,
)
from ludic_gym.envs.games.village.texts import observation, system_prompt

OPPONENTS: Mapping[str, tuple[Opponent, ...]] = MappingProxyType(
    {"easy": (at_random,), "medium": (by_claims,), "hard": (by_evidence,)}
)


def initial(players: int, rng: np.random.Generator) -> State:
    """Names, roles and the first speaker, drawn at random."""
    names = tuple(shuffled(rng, list(NAMES))[:players])
    roles = tuple(shuffled(rng, list(ROLES[players])))
    return dealt(names, roles, int(rng.integers(players)))


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
        refused=refused,
        made_by=partial(werewolf, players),
    )


class WerewolfEnv(OnePlayerEnv[State]):
    """One player of a village with hidden roles, among scripted players.

    By night, the werewolves kill a player, the seer learns the side of a player, and the doctor
    protects one; by day, all talk and vote for a player to be hanged. The village wins without a
    werewolf, the werewolves once they are half of the players. The agent's role is drawn.

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
        split: "train" and "test" have no village in common; one in five is in "test".
        render_mode: "ansi", "html" or None.

    ```text
    You are Ida, the seer. You have learnt: Ben is a werewolf. Day 1. Living players: Ida, Ben, ...
    A new day begins.
    It is your turn to speak. Reply with your message to all players.
    > I am the seer: Ben is a werewolf.
    ```
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

    >>> env = WerewolfAECEnv()
    >>> env.reset(seed=1)
    >>> env.last()[0].splitlines()[0]
    'You are Rosa, the seer. Night 0. Living players: Ben, Kira, Tess, Rosa, Hana, Leo, Mona.'
    """

    opponents = OPPONENTS

    def __init__(self, players: int = 7, render_mode: str | None = None) -> None:
        self.game = werewolf(players)
        super().__init__(render_mode)
