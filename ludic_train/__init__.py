"""A trainer that learns from episodes: rollouts -> credit -> rows -> loss -> update -> publish."""

from ludic_train.actor import run_pipeline_actor
from ludic_train.algorithms import (
    RLAlgorithm,
    make_awr,
    make_cispo,
    make_dapo,
    make_distillation,
    make_dr_grpo,
    make_grpo,
    make_gspo,
    make_ppo,
    make_reinforce,
    make_reinforce_baseline,
    make_reinforce_plus_plus,
    make_rejection_sampling,
    make_rloo,
    make_scalerl,
    make_self_play,
    make_sft,
)
from ludic_train.checkpoint import CheckpointManager
from ludic_train.config import TrainerConfig
from ludic_train.credit import ConstantCredit, GroupNormalizedReturn, MonteCarloReturn
from ludic_train.inference import EmbeddedChatClient
from ludic_train.publishers import InProcessPublisher, PolicyPublisher
from ludic_train.saw import SAWBatch, SAWItem, items_from
from ludic_train.sources import (
    BatchSource,
    OfflineBatchSource,
    PipelineBatchSource,
    RolloutBatchSource,
)
from ludic_train.trainer import Trainer

__all__ = [
    "BatchSource",
    "CheckpointManager",
    "ConstantCredit",
    "EmbeddedChatClient",
    "GroupNormalizedReturn",
    "InProcessPublisher",
    "MonteCarloReturn",
    "OfflineBatchSource",
    "PipelineBatchSource",
    "PolicyPublisher",
    "RLAlgorithm",
    "RolloutBatchSource",
    "SAWBatch",
    "SAWItem",
    "Trainer",
    "TrainerConfig",
    "items_from",
    "make_awr",
    "make_cispo",
    "make_dapo",
    "make_distillation",
    "make_dr_grpo",
    "make_grpo",
    "make_gspo",
    "make_ppo",
    "make_reinforce",
    "make_reinforce_baseline",
    "make_reinforce_plus_plus",
    "make_rejection_sampling",
    "make_rloo",
    "make_scalerl",
    "make_self_play",
    "make_sft",
    "run_pipeline_actor",
]
