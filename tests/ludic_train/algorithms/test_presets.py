import pytest

from ludic_gym.errors import ConfigError
from ludic_train.algorithms.aggregation import (
    prompt_mean,
    sequence_mean,
    token_mean,
)
from ludic_train.algorithms.batch_credit import (
    OverlongPenalty,
    SeatBaselineReturn,
)
from ludic_train.algorithms.credit import (
    GroupNormalizedReturn,
    HybridNormalizedReturn,
    MonteCarloReturn,
    PerStepReward,
)
from ludic_train.algorithms.losses import (
    CISPOLoss,
    CompositeLoss,
    EntropyBonus,
    ReinforceLoss,
    SequenceClippedSurrogateLoss,
    TokenClippedSurrogateLoss,
)
from ludic_train.algorithms.presets import (
    dapo,
    grpo,
    gspo,
    ppo,
    reinforce,
    rloo,
    scalerl,
    self_play,
)
from ludic_train.algorithms.value_head import GAE, ValueLoss
from ludic_train.types import REWARDS, VALUES

CENTRED = GroupNormalizedReturn(divide_by_std=False)
CLIPPED = TokenClippedSurrogateLoss(0.2, 0.2)


def test_an_entropy_bonus_of_its_own_is_taken_as_it_is():
    falling = EntropyBonus(0.06, final=0.0, updates=100)
    assert grpo(entropy=falling).loss == CompositeLoss((CLIPPED, falling))


@pytest.mark.parametrize(
    ("algo", "credit", "loss", "aggregation"),
    [
        (
            reinforce(gamma=0.9, max_ratio=2.0),
            MonteCarloReturn(0.9),
            ReinforceLoss(2.0),
            token_mean,
        ),
        (
            grpo(clip=0.3, dual_clip=3.0, entropy=0.01),
            GroupNormalizedReturn(),
            CompositeLoss((TokenClippedSurrogateLoss(0.3, 0.3, 3.0), EntropyBonus(0.01))),
            sequence_mean,
        ),
        (
            dapo(max_tokens=9, buffer=3),
            OverlongPenalty(GroupNormalizedReturn(), 9, 3),
            TokenClippedSurrogateLoss(0.2, 0.28),
            token_mean,
        ),
        (
            gspo(),
            GroupNormalizedReturn(),
            SequenceClippedSurrogateLoss(3e-4, 4e-4),
            sequence_mean,
        ),
        (scalerl(), HybridNormalizedReturn(), CISPOLoss(0.0, 5.0), prompt_mean),
        (ppo(), PerStepReward(), CompositeLoss((CLIPPED, ValueLoss(0.5, 0.2))), token_mean),
        (self_play(), SeatBaselineReturn(0.95), ReinforceLoss(), sequence_mean),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_settings_that_no_gradient_shows_are_those_of_the_papers(algo, credit, loss, aggregation):
    assert algo.credit == credit
    assert algo.loss == loss
    assert algo.aggregation == aggregation


def test_weights_of_tokens_and_of_rollouts_exclude_each_other():
    with pytest.raises(ConfigError, match=r"max_ratio=2\.0 .*max_sequence_ratio=3\.0"):
        rloo(max_ratio=2.0, max_sequence_ratio=3.0)


def test_presets_that_play_differently_say_so():
    assert dapo(max_tokens=2, buffer=1).full_batches
    assert (reinforce().filter, grpo().filter is None) == (None, False)
    recipe = scalerl()
    assert (recipe.retire_at, recipe.max_lag) == (0.9, 8)
    critic = ppo(lam=0.9)
    assert (critic.attach, critic.refine) == ({VALUES, REWARDS}, GAE(1.0, 0.9))
