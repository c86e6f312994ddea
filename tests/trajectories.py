"""Trajectories without rows, for credit and filters, and weights that can be compared."""

import numpy as np

from ludic_train.types import Trajectory


def trajectory(*rewards, tokens=1, cut=False, parsed=True, **facts):
    """A trajectory of these rewards, with one completion of `tokens` tokens per step."""
    steps = len(rewards)
    completions = [(step, tokens, cut) for step in range(steps)]
    given = {"env_id": "ludic/X-v0", "group": "g", **facts}
    return Trajectory(
        rows=(),
        rewards=np.array(rewards, np.float64),
        parsed=np.full(steps, parsed),
        completions=np.array(completions, np.int32).reshape(-1, 3),
        **given,
    )


def plain(weights):
    """Weights as lists."""
    return [own.tolist() for own in weights]
