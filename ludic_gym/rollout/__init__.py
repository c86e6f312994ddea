"""Rollouts: policies and environments brought together, one episode or many at once."""

from ludic_gym.rollout.episode import run_episode
from ludic_gym.rollout.episodes import (
    env_pool,
    fixed_seats,
    rotating_seats,
    run_episodes,
    run_matches,
)
from ludic_gym.rollout.groups import by_group, grouped
from ludic_gym.rollout.match import run_match
from ludic_gym.rollout.stream import Progress

__all__ = [
    "Progress",
    "by_group",
    "env_pool",
    "fixed_seats",
    "grouped",
    "rotating_seats",
    "run_episode",
    "run_episodes",
    "run_match",
    "run_matches",
]
