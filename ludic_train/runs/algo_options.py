"""Algorithms of `ludic train --algo`, by name, with their options: no torch for `--help`."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

from ludic_gym.errors import ConfigError

# The options of each preset and their defaults, as its own function has them; what every run gives
# them (entropy, max_tokens) apart. Distillation, whose teacher is a model, is not among them.
ALGO_OPTIONS: Mapping[str, Mapping[str, float | None]] = {
    "grpo": {"clip": 0.2, "dual_clip": None},
    "dr_grpo": {"clip": 0.2},
    "dapo": {"buffer": None},
    "gspo": {"clip_low": 3e-4, "clip_high": 4e-4},
    "cispo": {"low": 0.0, "high": 5.0},
    "scalerl": {"high": 5.0},
    "rloo": {"max_ratio": None, "max_sequence_ratio": None},
    "max_rl": {"max_ratio": None},
    "lite_ppo": {"clip": 0.2},
    "dppo": {"low": 0.2, "high": 0.2, "max_ratio": 20.0},
    "sapo": {"tau_positive": 1.0, "tau_negative": 1.05},
    "gmpo": {"clip": 0.4},
    "clip_cov": {"clip": 0.2, "share": 2e-4, "cov_low": 1.0, "cov_high": 5.0},
    "kl_cov": {"clip": 0.2, "share": 2e-3, "penalty": 1.0},
    "reinforce": {"gamma": 1.0, "max_ratio": None, "max_sequence_ratio": None},
    "reinforce_baseline": {"gamma": 1.0, "max_ratio": None},
    "reinforce_plus_plus": {"gamma": 1.0, "clip": 0.2},
    "reinforce_plus_plus_baseline": {"clip": 0.2},
    "ppo": {"gamma": 1.0, "lam": 0.95, "clip": 0.2, "value_coefficient": 0.5},
    "turn_ppo": {"gamma": 1.0, "lam": 0.95, "clip": 0.2, "value_coefficient": 0.5},
    "gigpo": {"gamma": 0.95, "step_weight": 1.0, "clip": 0.2},
    "process_grpo": {"clip": 0.2},
    "self_play": {"decay": 0.95},
    "awr": {"beta": 1.0, "max_weight": 20.0},
    "rejection_sampling": {"best": 1, "above": 0.0},
}

OPTION_HELP = {
    "above": "Return that an imitated rollout must exceed.",
    "best": "Rollouts of a group that are imitated.",
    "beta": "Temperature of the weights.",
    "buffer": "Last tokens of a reply over which a penalty grows; without it, a fifth.",
    "clip": "Distance from a ratio of 1, on both sides; for gmpo of its log from 0.",
    "clip_high": "Distance above a ratio of 1.",
    "clip_low": "Distance below a ratio of 1.",
    "cov_high": "Largest covariance of a token that may be left out.",
    "cov_low": "Least covariance of a token that may be left out.",
    "decay": "Share of a seat's mean that a further rollout leaves.",
    "dual_clip": "Bound of the loss where the advantage is negative.",
    "gamma": "Discount per step.",
    "high": "Upper bound of the ratio; for dppo largest rise of a probability.",
    "lam": "1 trusts rewards alone, 0 the values alone.",
    "low": "Lower bound of the ratio; for dppo largest fall of a probability.",
    "max_ratio": "Bound of the importance weights against the sampler.",
    "max_sequence_ratio": "Bound of one importance weight per rollout, in place of max_ratio.",
    "max_weight": "Largest weight.",
    "penalty": "Weight of the distance of held tokens to the sampler.",
    "share": "Share of tokens whose weight and log-prob vary together, that is treated apart.",
    "step_weight": "Weight of a step's advantage beside the episode's.",
    "tau_negative": "Steepness of the gate where the advantage is not positive.",
    "tau_positive": "Steepness of the gate where the advantage is positive.",
    "value_coefficient": "Weight of the value loss.",
}


def checked_options(algo: str, options: Mapping[str, Any]) -> Mapping[str, Any]:
    """The options. Raises ConfigError for one that the algorithm does not have."""
    known = ALGO_OPTIONS[algo]
    for name in options:
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"it has {', '.join(known)}"
            raise ConfigError(f"the algorithm {algo} has no option {name!r}; {hint}")
    return options
