"""The algorithm that a run's settings name."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import replace

from ludic_gym.errors import ConfigError
from ludic_train.algorithms import presets, variants
from ludic_train.algorithms.composite import CompositeLoss
from ludic_train.algorithms.filters import drop_zero_variance_groups
from ludic_train.algorithms.kl import TokenKLLoss
from ludic_train.algorithms.losses import EntropyBonus
from ludic_train.algorithms.presets import Entropy, RLAlgorithm, with_entropy
from ludic_train.algorithms.variants import with_target_entropy
from ludic_train.runs.algo_options import ALGO_OPTIONS
from ludic_train.runs.config import IN_PYTHON, MAX_TOKENS, RunConfig
from ludic_train.types import REFERENCE

PRESETS: Mapping[str, Callable[..., RLAlgorithm]] = {
    name: {**vars(presets), **vars(variants)}[name] for name in ALGO_OPTIONS
}


def algorithm_of(config: RunConfig) -> RLAlgorithm:
    """The preset of `config.algo` with its options, an entropy bonus and a KL term.

    Raises ConfigError for the algorithm of a run that was given it as an object.
    """
    if config.algo == IN_PYTHON:
        raise ConfigError(
            "this run's algorithm was given in Python, and no file holds it: call lt.train(..., "
            "algo=...) with it again"
        )
    preset, limit = PRESETS[config.algo], config.max_tokens or MAX_TOKENS
    options = {**ALGO_OPTIONS[config.algo], **config.algo_options}
    takes = inspect.signature(preset).parameters
    if "max_tokens" in takes:
        options["max_tokens"] = limit
    if "buffer" in takes and options["buffer"] is None:
        # The share in the paper: 4,096 of 20,480.
        options["buffer"] = max(1, limit // 5)
    # Not `or`: a lag of 0 is a limit.
    lag = ALGO_LAG.get(config.algo) if config.max_lag is None else config.max_lag
    algo = preset(**options, max_lag=lag)
    if config.full_batches:
        # Only what a filter drops can be replaced, and some presets drop nothing.
        algo = replace(algo, full_batches=True, filter=algo.filter or drop_zero_variance_groups())
    if config.target_entropy is not None:
        algo = with_target_entropy(algo, config.target_entropy, highest=config.entropy)
    else:
        algo = replace(algo, loss=with_entropy(algo.loss, entropy_of(config)))
    if config.kl:
        loss = CompositeLoss((algo.loss, TokenKLLoss(config.kl)))
        algo = replace(algo, loss=loss, attach=algo.attach | {REFERENCE})
    return algo


def entropy_of(config: RunConfig) -> Entropy:
    """The entropy bonus of the updates on a policy's own episodes, as presets take it."""
    if config.final_entropy is None or not config.entropy:
        return config.entropy
    return EntropyBonus(config.entropy, final=config.final_entropy, updates=config.updates)


# Presets that limit the lag by themselves.
ALGO_LAG = {"scalerl": 8}
