"""A two-player game for PettingZoo: one agent at a time (AEC), or with joint actions (Parallel)."""

from __future__ import annotations

from typing import Any, Generic

from pettingzoo import ParallelEnv

from ludic_gym.envs.core.base import Info, ending
from ludic_gym.envs.core.game import Game, S
from ludic_gym.envs.core.seats import PLAYERS, SeatsAECEnv, other
from ludic_gym.errors import EnvError, NoOracle
from ludic_gym.spaces import TextObservation, TextSpace

JointTurn = tuple[
    dict[str, str], dict[str, float], dict[str, bool], dict[str, bool], dict[str, Info]
]


class GameAECEnv(SeatsAECEnv, Generic[S]):
    """The agents `player_0` (who moves first) and `player_1` take turns at `game`.

    An illegal action ends the game: -1 for who made it, +1 for the other. An agent's info has
    "system_prompt" until its first action, and at the end "success", "outcome" and the reward's
    components, as in the one-player view.
    """

    game: Game[S]

    def __init__(self, render_mode: str | None = None) -> None:
        super().__init__(f"{self.game.name.lower().replace('-', '_')}_v0", render_mode)

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        """Start a game."""
        self._state = self.game.initial(self._drawn(seed))
        self._seat((self.game.system_prompt(0), self.game.system_prompt(1)))
        self.agent_selection = PLAYERS[self.game.mover(self._state)]

    def observe(self, agent: str) -> str:
        """The state as the agent sees it. Raises EpisodeOver before the first reset."""
        self.check_open()
        return TextObservation(self.game.observation(self._state, PLAYERS.index(agent)))

    def step(self, action: str | None) -> None:
        """Play for the selected agent; `None` retires it once the game is over.

        Raises EpisodeOver when no game is running or the agent's is over, EnvError for an action
        that is no text.
        """
        self.check_open()
        agent = self.agent_selection
        if self.terminations[agent]:
            return self._retire(agent, action)
        if not isinstance(action, str):
            raise EnvError(f"{agent} is to move: an action is a str, got {action!r}")
        self.infos[agent] = {}
        action = self.game.read(action)
        if not self.game.is_allowed(self._state, action):
            return self._end({agent: -1.0, other(agent): 1.0}, illegal=(agent,))
        self._state = self.game.play(self._state, action)
        result = self.game.returns(self._state)
        if result is not None:
            return self._end(dict(zip(PLAYERS, result, strict=True)))
        self._cumulative_rewards[agent] = 0.0
        self.agent_selection = PLAYERS[self.game.mover(self._state)]
        return None

    def play_jointly(self, actions: list[str]) -> None:
        """Play an action of each player, in order; illegal ones lose, also both at once."""
        read = zip(PLAYERS, map(self.game.read, actions), strict=True)
        wrong = [agent for agent, action in read if not self.game.is_allowed(self._state, action)]
        if wrong:
            self.infos = {agent: {} for agent in PLAYERS}
            rewards = {agent: -1.0 if agent in wrong else 1.0 for agent in PLAYERS}
            return self._end(rewards, illegal=tuple(wrong))
        for action in actions:
            self.step(action)
        return None

    def _end(self, rewards: dict[str, float], illegal: tuple[str, ...] = ()) -> None:
        self.rewards = rewards
        self._cumulative_rewards = dict(rewards)
        self.terminations = dict.fromkeys(PLAYERS, True)
        for agent, reward in rewards.items():
            outcome, success = self._verdict(agent, illegal)
            final = ending(success=success, outcome=reward)
            self.infos[agent] = {**self.infos[agent], **final, "outcome": outcome}
        self.agent_selection = other(self.agent_selection)

    def _verdict(self, agent: str, illegal: tuple[str, ...]) -> tuple[str, bool]:
        if illegal:
            return ("illegal", False) if agent in illegal else ("win", True)
        return self.game.end(self._state, PLAYERS.index(agent))

    def legal_actions(self) -> tuple[str, ...]:
        """What the selected agent may do now; nothing once the game is over."""
        return self.game.legal_actions(self._state) if self._is_running() else ()

    def oracle_action(self) -> str:
        """A best action of the selected agent. Raises NoOracle once the game is over."""
        if not self._is_running():
            raise NoOracle(f"{self.game.name}: no game is running; call reset() first")
        return self.game.best_actions(self._state)[0]

    def _title(self) -> str:
        return self.game.name


class GameParallelEnv(ParallelEnv[str, str, str | None], Generic[S]):
    """A turn-based game with joint actions: only the action of the agent to move is read.

    Every agent's info has "active_agent", who moves next, as long as the game goes on.
    """

    # PettingZoo's own conversion returns four values instead of five, instead of an error, when
    # a finished game is stepped, and says who is to move only after the first step.

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
        """Any text; each agent samples on its own."""
        return self._aec_env.action_space(agent)

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, str], dict[str, Info]]:
        """Start a game: observations and infos by agent."""
        self._aec_env.reset(seed, options)
        self.agents = list(self._aec_env.agents)
        return self._observations(), self._infos()

    def step(self, actions: dict[str, str | None]) -> JointTurn:
        """Play the moving agent's action: five dictionaries by agent, as in `ParallelEnv.step`.

        Raises EpisodeOver when no game is running, EnvError if the moving agent does not act.
        """
        env = self._aec_env
        env.check_open()
        if env.agent_selection not in actions:
            raise EnvError(f"{env.agent_selection} is to move, but acted: {sorted(actions)}")
        env.step(actions[env.agent_selection])
        ended = dict(env.terminations)
        turn = (self._observations(), dict(env.rewards), ended, dict(env.truncations))
        infos = {agent: _without_prompt(info) for agent, info in self._infos().items()}
        if any(ended.values()):
            self._retire_all()
        return *turn, infos

    def _observations(self) -> dict[str, str]:
        return {agent: self._aec_env.observe(agent) for agent in self.agents}

    def _infos(self) -> dict[str, Info]:
        env = self._aec_env
        active = {} if any(env.terminations.values()) else {"active_agent": env.agent_selection}
        return {agent: {**env.infos[agent], **active} for agent in self.agents}

    def _retire_all(self) -> None:
        while self._aec_env.agents:
            self._aec_env.step(None)
        self.agents = []

    def render(self) -> str:
        """The state as the agent to move sees it, as text or as an HTML fragment."""
        return self._aec_env.render()

    def close(self) -> None:
        """Nothing is held open."""


class SimultaneousEnv(GameParallelEnv[S]):
    """A game whose players act at once: every step takes the actions of both.

    The game is one in which the first player's action is hidden until the second has acted.
    """

    def step(self, actions: dict[str, str | None]) -> JointTurn:
        """Play both actions: five dictionaries by agent, as in `ParallelEnv.step`.

        Raises EpisodeOver when no game is running, EnvError if an agent does not act.
        """
        env = self._aec_env
        env.check_open()
        if not all(isinstance(actions.get(agent), str) for agent in PLAYERS):
            raise EnvError(f"both agents act with a str, got {actions!r}")
        env.play_jointly([actions[agent] or "" for agent in PLAYERS])
        ended = dict(env.terminations)
        turn = (self._observations(), dict(env.rewards), ended, dict(env.truncations))
        infos = self._infos()
        if any(ended.values()):
            self._retire_all()
        return *turn, infos

    def _infos(self) -> dict[str, Info]:
        return {agent: dict(self._aec_env.infos[agent]) for agent in self.agents}


def _without_prompt(info: Info) -> Info:
    return {key: value for key, value in info.items() if key != "system_prompt"}
