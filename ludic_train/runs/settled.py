"""The one algorithm and the settings of a run, from what its user and its recipe left open.

The only place where an algorithm meets the settings of a run that change it: `kl`, `entropy`,
`final_entropy`, `full_batches`, `max_lag`, and the limit of thoughts. A preset by
name and the same one as an object become the same algorithm; a setting that an object cannot take
is an error.
"""

from __future__ import annotations

import inspect
import os
from dataclasses import fields, is_dataclass, replace

from ludic_gym.errors import ConfigError
from ludic_gym.harness import IN_PYTHON
from ludic_train.algorithms import presets
from ludic_train.algorithms.filters import (
    Filter,
    combine,
    drop_incomplete_completions,
    drop_zero_variance_groups,
)
from ludic_train.algorithms.kl import TokenKLLoss, UnbiasedTokenKLLoss
from ludic_train.algorithms.losses import CompositeLoss, EntropyBonus
from ludic_train.algorithms.presets import RLAlgorithm, with_entropy
from ludic_train.runs.config import MAX_TOKENS, RunConfig
from ludic_train.runs.machine import Machine
from ludic_train.runs.preset_options import PRESET_OPTIONS
from ludic_train.runs.recipe import Recipe
from ludic_train.runs.rewards import Reward
from ludic_train.types import REFERENCE

# Peak learning rates where none is given: adapters bear and need a far larger one.
LR = {"nothing": 1e-3, "lora": 5e-4, "full": 1e-5}
# A bonus without which a tiny model settles on the first answer that pays; it falls to nothing.
TINY_ENTROPY = 0.05


def settled(
    algo: RLAlgorithm | None, config: RunConfig, machine: Machine | None = None
) -> tuple[RLAlgorithm, RunConfig]:
    """The algorithm of a run, and its settings with a number for each that was left open.

        algo, config = settled(None, RunConfig(out=out, algo="scalerl", model="m"))
        algo, config = settled(scalerl(), RunConfig(out=out, algo=IN_PYTHON, model="m"))

    algo: an object in place of the preset that `config.algo` names.
    machine: with a queue and without any limit, rows may be as old as it takes to play one batch
        while another is trained on: 2 * minibatches - 1 updates.
    A run writes these settings, so that later versions with other defaults repeat it.
    Raises ConfigError for settings that the object has parts for already, and for the name of an
    algorithm that was given as an object.
    """
    if (config.algo == IN_PYTHON) != (algo is not None):
        raise ConfigError(
            f"algo={config.algo!r} and an algorithm that was given as {algo}: give one of "
            f"{', '.join(PRESET_OPTIONS)}, or an object to lt.train(algo=...); no file holds one"
        )
    if algo is None:
        preset, options = vars(presets)[config.algo], dict(config.algo_options)
        if "max_tokens" in inspect.signature(preset).parameters:
            options["max_tokens"] = config.sample.max_tokens or MAX_TOKENS
        algo = preset(**options)
    else:
        _refuse_parts_twice(algo, config)
    config = _completed(algo, config)
    learn = config.learn
    # Not `or`: a lag of 0 is a limit.
    lag = algo.max_lag if learn.max_lag is None else learn.max_lag
    if lag is None and machine is not None and machine.queue is not None:
        lag = 2 * learn.minibatches - 1
    algo = replace(algo, max_lag=lag)
    if config.harness.cut_off == "drop":
        algo = replace(algo, filter=_with(drop_incomplete_completions, algo.filter))
    if config.harness.cut_off == "mask":
        after = _with(drop_incomplete_completions, algo.filter_after_credit)
        algo = replace(algo, filter_after_credit=after)
    if learn.full_batches:
        # Only what a filter drops can be replaced, and some algorithms drop nothing.
        algo = replace(algo, full_batches=True, filter=algo.filter or drop_zero_variance_groups())
    if learn.entropy:
        falling = learn.final_entropy is not None
        bonus = EntropyBonus(
            learn.entropy, final=learn.final_entropy, updates=learn.updates if falling else None
        )
        algo = replace(algo, loss=with_entropy(algo.loss, bonus))
    if learn.kl:
        # k2 has the gradient of the divergence on policy alone.
        is_on_policy = learn.minibatches == 1 and (machine is None or machine.queue is None)
        term = TokenKLLoss(learn.kl) if is_on_policy else UnbiasedTokenKLLoss(learn.kl)
        loss = CompositeLoss((algo.loss, term))
        algo = replace(algo, loss=loss, attach=algo.attach | {REFERENCE})
    return algo, config


def _with(first: Filter, second: Filter | None) -> Filter:
    return first if second is None else combine(first, second)


def _completed(algo: RLAlgorithm, config: RunConfig) -> RunConfig:
    """The settings with numbers for learning rate, entropy bonus and the limit of thoughts."""
    learn, sample = config.learn, config.sample
    lr = LR[config.mode] if learn.lr is None else learn.lr
    entropy, final = learn.entropy, learn.final_entropy
    if entropy is None and config.mode == "nothing" and not _has_bonus(algo):
        entropy = TINY_ENTROPY
        final = 0.0 if final is None else final
    thought = config.harness.think_tokens
    # An agent program makes its own requests, and a tiny model has no thoughts.
    if thought is None and algo.think_share and config.mode != "nothing" and not sample.agent:
        thought = int((sample.max_tokens or MAX_TOKENS) * algo.think_share)
    return config.changed(lr=lr, entropy=entropy or 0.0, final_entropy=final, think_tokens=thought)


def _refuse_parts_twice(algo: RLAlgorithm, config: RunConfig) -> None:
    """Raise ConfigError for settings of which an algorithm that is an object has its own."""
    if config.algo_options:
        raise ConfigError(
            f"algo_options={dict(config.algo_options)} are for an algorithm that is named: give "
            f"them to the function that made the object, or take algo={algo.name!r}"
        )
    learn = config.learn
    if learn.entropy and _has_bonus(algo):
        raise ConfigError(
            f"entropy={learn.entropy}, and {algo.name} has an entropy bonus of its own: leave out "
            "one of them (entropy=0 keeps the algorithm's)"
        )
    if learn.kl and REFERENCE in algo.attach:
        raise ConfigError(
            f"kl={learn.kl}, and {algo.name} compares with a reference model already: leave out "
            "kl, or its own term"
        )


def _has_bonus(algo: RLAlgorithm) -> bool:
    def found_in(loss: object) -> bool:
        if isinstance(loss, list | tuple):
            return any(map(found_in, loss))
        inner = fields(loss) if is_dataclass(loss) else ()
        return isinstance(loss, EntropyBonus) or any(
            found_in(getattr(loss, field.name)) for field in inner
        )

    return found_in(algo.loss)


def check_combination(
    recipe: Recipe, config: RunConfig, machine: Machine, reward: Reward | None
) -> None:
    """Raise ConfigError for settings that cannot be meant together."""
    has_prompt = config.harness.system_prompt is not None
    if recipe.self_play and config.learn.demonstrations and config.model and not has_prompt:
        raise ConfigError(
            "demonstrations of self-play do not hold the prompts of the seats: give one "
            "`system_prompt`, or learn from rewards alone (demonstrations=0)"
        )
    if config.model is None and not config.learn.demonstrations:
        raise ConfigError(
            f"{recipe.name} has no demonstrations to make a tiny model from: name a `model`, or a "
            "number of `demonstrations`"
        )
    if machine.servers and machine.queue is None and config.model is None:
        raise ConfigError(
            f"engine={list(machine.servers)} serve a model that exists: name the same one as "
            "`model`, or give a queue, through which actors and servers follow a new model too"
        )
    if config.sample.agent is not None and recipe.self_play:
        raise ConfigError(f"agent={config.sample.agent!r} plays alone: leave out self-play")
    if machine.exact and (config.tune.dtype == "bf16" or "WORLD_SIZE" in os.environ):
        raise ConfigError(
            "exact log-probs are of float32 in one process: leave out --dtype bf16 and torchrun"
        )
    if config.learn.max_lag is not None and machine.queue is None:
        raise ConfigError(
            f"max_lag={config.learn.max_lag} is for runs with a queue; without one, nothing lags"
        )
    if (config.reward == IN_PYTHON) != (reward is not None):
        raise ConfigError("this run's reward was given in Python: call lt.train(reward=...) again")
    if machine.queue is not None and reward is not None:
        raise ConfigError(
            "actors are other programs and cannot get a reward that is an object: name it as "
            "module:function"
        )
