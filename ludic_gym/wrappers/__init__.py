"""Wrappers of Gymnasium environments: recording, limits, rewards, chat messages, curricula."""

from ludic_gym.wrappers.curriculum import Curriculum
from ludic_gym.wrappers.limits import TurnLimit
from ludic_gym.wrappers.messages import ChatMessages
from ludic_gym.wrappers.recorder import RecordText
from ludic_gym.wrappers.rewards import WeighRewards

__all__ = ["ChatMessages", "Curriculum", "RecordText", "TurnLimit", "WeighRewards"]
