"""Games for PettingZoo: in turn (AEC), and those of two with joint actions (Parallel)."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any, ClassVar, Generic

import numpy as np
from pettingzoo import ParallelEnv

from ludic_gym.envs.core.base import Info
from ludic_gym.envs.core.game import OPPONENTS, Game, Opponent, S, find_opponent
from ludic_gym.envs.core.seats import PLAYERS, GameOver, SeatsAECEnv
from ludic_gym.errors import EnvError
from ludic_gym.reader import Reading
from ludic_gym.spaces import TextSpace

JointTurn = tuple[
    dict[str, str], dict[str, float], dict[str, bool], dict[str, bool], dict[str, Info]
]


class GameAECEnv(SeatsAECEnv, Generic[S]):
    """A game in turn. A subclass sets `game`, and `opponents` if they differ from `OPPONENTS`.

    Observations, actions and the infos at the end are those of `OnePlayerEnv`, for each agent. An
    illegal action ends the game, unless it has another rule: -1 for its player, 1 for the other.

    >>> import pettingzoo
    >>> env = pettingzoo.make("aec", "ludic/TicTacToe-v0")
    >>> env.reset(seed=1)
    >>> env.step("not a cell")
    >>> env.rewards, env.infos["player_0"]["outcome"]
    ({'player_0': -1.0, 'player_1': 1.0}, 'illegal')
    """

    game: Game[S]
    opponents: ClassVar[Mapping[str, tuple[Opponent, ...]]] = OPPONENTS

    def __init__(self, render_mode: str | None = None) -> None:
        name = re.sub(r"\W+", "_", self.game.name.lower().replace("'", ""))
        super().__init__(f"{name}_v0", render_mode, self.game.players)

    def deal(self, rng: np.random.Generator) -> int:
        """Draw the first state."""
        self._state = self.game.initial(rng)
        return self.game.mover(self._state)

    def move(self, seat: int, action: str) -> int | GameOver:
        """Play the action of the seat."""
        game = self.game
        if not game.is_allowed(self._state, action):
            if game.refused is None:
                return lost_by({seat})
            self._state = game.refused(self._state, action)
        else:
            self._state = game.play(self._state, action)
        result = game.returns(self._state)
        if result is None:
            return game.mover(self._state)
        outcomes, successes = zip(
            *(game.outcome(self._state, player) for player in range(game.players)), strict=True
        )
        return GameOver(result, outcomes, successes)

    def play_jointly(self, actions: list[str]) -> None:
        """Play one action of each player, in order; players of illegal actions lose, even both."""
        game = self.game
        # Both are checked before either is played: in turn, the first illegal action would end the
        # game and hide the second.
        read = [game.read_reply(self._state, action).action for action in actions]
        wrong = {seat for seat in (0, 1) if not game.is_allowed(self._state, read[seat])}
        if wrong:
            self.infos = {agent: {} for agent in PLAYERS}
            self.finish(lost_by(wrong))
            return
        for action in actions:
            self.step(action)

    def view(self, seat: int) -> str:
        """The state as the player of the seat sees it."""
        return self.game.observation(self._state, seat)

    def system_prompt(self, seat: int) -> str:
        """The rules and the reply format."""
        return self.game.system_prompt(seat)

    def allowed_actions(self) -> tuple[str, ...]:
        """Legal actions of the selected agent."""
        return self.game.legal_actions(self._state)

    def best_action(self) -> str:
        """An action of perfect play."""
        return self.game.best_actions(self._state)[0]

    def read(self, reply: str) -> Reading:
        """The action in a reply of the selected agent."""
        return self.game.read_reply(self._state, reply)

    def spelt_action(self, text: str) -> str | None:
        """The legal action that a text spells; None if it spells none."""
        return self.game.spelt(self._state, text)

    def opponent_action(self, name: str, rng: np.random.Generator) -> str:
        """The action of a scripted opponent in the place of the selected agent.

        name: one of `opponents`. Raises ConfigError for another one.
        """
        return find_opponent(name, self.opponents, rng)(self.game, self._state, rng)


def lost_by(seats: Collection[int]) -> GameOver:
    """The result after illegal actions of these seats."""
    # An illegal action costs as much as a real loss: a cheaper one would be a way out of a lost
    # position.
    first, second = (0 in seats, 1 in seats)
    return GameOver(
        (-1.0 if first else 1.0, -1.0 if second else 1.0),
        ("illegal" if first else "win", "illegal" if second else "win"),
        (not first, not second),
    )


class GameParallelEnv(ParallelEnv[str, str, str | None], Generic[S]):
    """A turn-based game with joint actions: only the action of the agent to move is played.

    While the game runs, every agent's info has "active_agent", the agent that moves next.

    Args:
        aec_env: the game in turn.

    >>> import pettingzoo
    >>> env = pettingzoo.make("parallel", "ludic/TicTacToe-v0")
    >>> observations, infos = env.reset(seed=1)
    >>> infos["player_1"]["active_agent"]
    'player_0'
    """

    # PettingZoo's own conversion names the agent to move only after the first step, and a step
    # after the end returns four values instead of an error.

    def __init__(self, aec_env: GameAECEnv[S]) -> None:
        self._aec_env = aec_env
        self.metadata = aec_env.metadata
        self.render_mode = aec_env.render_mode
        self.possible_agents = aec_env.possible_agents
        self.agents: list[str] = []

    def observation_space(self, agent: str) -> TextSpace:
        """Any text, for each agent."""
        return self._aec_env.observation_space(agent)

    def action_space(self, agent: str) -> TextSpace:
        """Any text; each agent has a space of its own to sample from."""
        return self._aec_env.action_space(agent)

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, str], dict[str, Info]]:
        """Start a game: observations and infos by agent."""
        self._aec_env.reset(seed, options)
        self.agents = list(self._aec_env.agents)
        return self._observations(), self._infos()

    def step(self, actions: dict[str, str | None]) -> JointTurn:
        """Play a joint action: five dictionaries by agent, as in `ParallelEnv.step`.

        Raises EpisodeOver if no game is running, EnvError if an agent to move has no action.
        """
        env = self._aec_env
        env.check_open()
        self._play(actions)
        ended = dict(env.terminations)
        # Copies, because retiring the agents empties the tables.
        turn = (self._observations(), dict(env.rewards), ended, dict(env.truncations))
        # An agent that has not moved still has the prompt in its info, but only a reset returns it.
        infos = self._infos()
        for info in infos.values():
            info.pop("system_prompt", None)
        if any(ended.values()):
            # The game in turn ends only after a step with None for each agent.
            while self._aec_env.agents:
                self._aec_env.step(None)
            self.agents = []
        return *turn, infos

    def _play(self, actions: dict[str, str | None]) -> None:
        agent = self._aec_env.agent_selection
        if agent not in actions:
            raise EnvError(f"{agent} is to move, got actions of {sorted(actions)}")
        self._aec_env.step(actions[agent])

    def _observations(self) -> dict[str, str]:
        return {agent: self._aec_env.observe(agent) for agent in self.agents}

    def _infos(self) -> dict[str, Info]:
        env = self._aec_env
        active = {} if any(env.terminations.values()) else {"active_agent": env.agent_selection}
        return {agent: {**env.infos[agent], **active} for agent in self.agents}

    def render(self) -> str:
        """The game as the agent to move sees it, as text or as an HTML fragment."""
        return self._aec_env.render()

    def close(self) -> None:
        """Do nothing: no resources are held."""


class SimultaneousEnv(GameParallelEnv[S]):
    """A game of simultaneous moves: every step takes the actions of both agents.

    Its `Game` hides the first player's action until the second player has acted.

    >>> import pettingzoo
    >>> env = pettingzoo.make("parallel", "ludic/RockPaperScissors-v0", rounds=1)
    >>> observations, infos = env.reset(seed=1)
    >>> env.step({"player_0": "rock", "player_1": "paper"})[1]
    {'player_0': -1.0, 'player_1': 1.0}
    """

    def _play(self, actions: dict[str, str | None]) -> None:
        if not all(isinstance(actions.get(agent), str) for agent in PLAYERS):
            raise EnvError(f"both agents act with a str, got {actions!r}")
        self._aec_env.play_jointly([actions[agent] or "" for agent in PLAYERS])

    def _infos(self) -> dict[str, Info]:
        return {agent: dict(self._aec_env.infos[agent]) for agent in self.agents}
