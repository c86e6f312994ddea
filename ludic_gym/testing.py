"""The contract that every text environment keeps, as one call: `check_text_env(id)`."""

from __future__ import annotations

import contextlib
import copy
import io
import math
import pickle
import random
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, SupportsFloat

import gymnasium as gym
import numpy as np
import pettingzoo
from gymnasium.envs.registration import EnvSpec
from gymnasium.utils.env_checker import check_env

from ludic_gym.envs.base import RENDER_MODES, Info, TextEnv
from ludic_gym.errors import ConfigError, ContractError, EpisodeOver, NoOracle
from ludic_gym.types import Env

Make = Callable[[], Env]
Act = Callable[[Env], str]
AnyTurn = tuple[str, SupportsFloat, bool, bool, dict[str, Any]]

SEEDS = range(8)
MOST_TURNS = 200
HOSTILE_TEXTS = (
    "",
    " \n",
    "\0",
    "\ud800",
    "é 你好 😀\n",
    "x" * 100_000,
    "<answer>" * 1000,
    "\\boxed{" * 1000,
    "9**9**9",
    "__import__('os')",
)
# What PettingZoo advises about every observation and space that is not made of arrays.
_ADVICE = (
    "Observation is not a NumPy array",
    "Observation space for each agent probably should be",
    "Action space for each agent probably should be",
)


def check_text_env(env_id: str, **kwargs: Any) -> None:  # noqa: ANN401 (as gymnasium.make)
    """Hold the environment against the contract.

    env_id, kwargs: arguments of `gymnasium.make`; an id that is also in PettingZoo's registries
        must pass PettingZoo's own tests too.
    Raises ContractError, naming the first rule that is broken and the values that break it.
    """
    make: Make = partial(gym.make, env_id, **kwargs)
    for rule, check in _RULES:
        _hold(env_id, rule, partial(check, make))
    for rule, check_zoo in _pettingzoo_rules(env_id):
        _hold(env_id, rule, check_zoo)


def _hold(env_id: str, rule: str, check: Callable[[], None]) -> None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            check()
    # Whatever a stranger's environment raises is what this function is there to report.
    except Exception as error:
        found = str(error) if isinstance(error, ContractError) else f"{error!r}"
        raise ContractError(f"{env_id} breaks the rule '{rule}': {found}") from error


def _passes_gymnasium(make: Make) -> None:
    check_env(make().unwrapped)


def _spec_is_json(make: Make) -> None:
    spec = make().spec
    if spec is None:
        raise ContractError("the environment has no spec")
    again = gym.make(EnvSpec.from_json(spec.to_json()))
    _same("reset(seed=0)", make().reset(seed=0), again.reset(seed=0))


def _renders(make: Make) -> None:
    env = make()
    missing = set(RENDER_MODES) - set(env.metadata.get("render_modes", ()))
    if missing or env.spec is None:
        raise ContractError(f"render modes that are missing: {sorted(missing)}")
    for mode in RENDER_MODES:
        again = env.spec.make(render_mode=mode)
        again.reset(seed=0)
        picture: object = again.render()
        if not isinstance(picture, str):
            raise ContractError(f"render_mode={mode!r} gives {picture!r}, not a str")


def _suggests_prompt(make: Make) -> None:
    _, info = make().reset(seed=0)
    if not isinstance(info.get("system_prompt"), str):
        raise ContractError(f'reset gives no text in info["system_prompt"]: {info!r}')


def _takes_any_text(make: Make) -> None:
    env = make().unwrapped
    for seed, text in enumerate(HOSTILE_TEXTS):
        env.reset(seed=seed)
        try:
            env.step(text)
        except Exception as error:
            raise ContractError(f"the action {text[:20]!r} raises {error!r}") from error


def _infos_can_be_merged(make: Make) -> None:
    types: dict[str, type] = {}
    for info in _infos(make):
        for key, value in info.items():
            kind = types.setdefault(key, type(value))
            if value is None or key in ("episode", "_episode"):
                raise ContractError(f"info[{key!r}] is {value!r}; None and that key are reserved")
            if type(value) is not kind:
                raise ContractError(
                    f"info[{key!r}] is {value!r}, a {type(value).__name__}, and was a "
                    f"{kind.__name__} before"
                )


def _turns_are_valid(make: Make) -> None:
    env = make().unwrapped
    for record in _episodes(make):
        for text, reward, terminated, truncated, info in record:
            if text not in env.observation_space:
                raise ContractError(f"the observation {text!r} is not in {env.observation_space}")
            if not isinstance(reward, float) or not math.isfinite(reward):
                raise ContractError(f"the reward {reward!r} is not a finite float")
            if terminated and truncated:
                raise ContractError(f"terminated and truncated at once, info {info!r}")


def _explains_reward(make: Make) -> None:
    for record in _episodes(make):
        _, reward, terminated, truncated, info = record[-1]
        if not (terminated or truncated):
            continue
        parts = {key: value for key, value in info.items() if key.startswith("reward/")}
        if not isinstance(info.get("success"), bool):
            raise ContractError(f"the last info has no success of type bool: {info!r}")
        if not parts or not all(isinstance(value, float) for value in parts.values()):
            raise ContractError(f'the last info has no floats under "reward/<name>": {info!r}')
        if not math.isclose(sum(parts.values()), float(reward), abs_tol=1e-9):
            raise ContractError(f"{parts} sum to {sum(parts.values())}, but the reward is {reward}")


def _keeps_order(make: Make) -> None:
    env = make().unwrapped
    _refuses(env, "before the first reset")
    for seed in SEEDS:
        if _ended(list(_turns(env, seed, _legal_or_sampled(seed)))[-1]):
            _refuses(env, "after the end of the episode")


def _refuses(env: Env, when: str) -> None:
    try:
        env.step("")
    except EpisodeOver:
        return
    raise ContractError(f"step() {when} raises no EpisodeOver")


def _depends_on_seed_alone(make: Make) -> None:
    state, old = random.getstate(), np.random.get_state()
    try:
        for seed in SEEDS:
            random.seed(seed)
            np.random.seed(seed)
            alone = list(_turns(make().unwrapped, seed, _legal_or_sampled(seed)))
            random.seed(seed + 1)
            np.random.seed(seed + 1)
            _same(f"the episode of seed {seed}", alone, _played_beside_another(make, seed))
    finally:
        random.setstate(state)
        np.random.set_state(old)


def _played_beside_another(make: Make, seed: int) -> list[AnyTurn]:
    """The episode of the seed, while another environment plays its own in between."""
    env, other = make().unwrapped, make().unwrapped
    record = []
    beside = _turns(other, seed + 1, _legal_or_sampled(seed + 1))
    for turn in _turns(env, seed, _legal_or_sampled(seed)):
        record.append(turn)
        next(beside, None)
    return record


def _goes_on_as_copy(make: Make) -> None:
    for seed in SEEDS:
        env = make().unwrapped
        act = _legal_or_sampled(seed)
        env.reset(seed=seed)
        if _ended(env.step(act(env))):
            env.reset()
        twins = {"a deep copy": copy.deepcopy(env), "a pickle": pickle.loads(pickle.dumps(env))}
        rest = list(_rest(env, _legal_or_sampled(seed)))
        for name, twin in twins.items():
            _same(f"{name} made in mid-episode", rest, list(_rest(twin, _legal_or_sampled(seed))))


def _plays_rows(make: Make) -> None:
    env = make().unwrapped
    if not isinstance(env, TextEnv) or env.num_rows is None:
        return
    for row in {0, env.num_rows - 1}:
        first, again = (env.reset(seed=seed, options={"row": row})[0] for seed in (0, 1))
        _same(f"row {row}", first, again)
    try:
        env.reset(options={"row": env.num_rows})
    except ConfigError:
        return
    raise ContractError(f"row {env.num_rows} of {env.num_rows} raises no ConfigError")


def _oracle_is_legal(make: Make) -> None:
    env = make().unwrapped
    if not isinstance(env, TextEnv):
        return
    for seed in SEEDS:
        env.reset(seed=seed)
        try:
            action = env.oracle_action()
        except NoOracle:
            return
        legal = env.legal_actions()
        if legal and action not in legal:
            raise ContractError(f"the oracle wants {action!r}, legal are {legal}")


_RULES: tuple[tuple[str, Callable[[Make], None]], ...] = (
    ("any text is an action", _takes_any_text),
    ("every info key has one type, is never None, never 'episode'", _infos_can_be_merged),
    ("it passes Gymnasium's check_env without a warning", _passes_gymnasium),
    ("its spec survives JSON", _spec_is_json),
    ("it renders as 'ansi' and 'html'", _renders),
    ("reset suggests a system prompt", _suggests_prompt),
    ("observations are in their space, rewards finite floats", _turns_are_valid),
    ("the last info says success and adds up the reward", _explains_reward),
    ("no step without a running episode", _keeps_order),
    ("the seed alone decides", _depends_on_seed_alone),
    ("a copy or a pickle goes on like the original", _goes_on_as_copy),
    ("a row is the same task for every seed", _plays_rows),
    ("the oracle's action is legal", _oracle_is_legal),
)


def _pettingzoo_rules(env_id: str) -> Iterator[tuple[str, Callable[[], None]]]:
    """PettingZoo's tests, for the registries that know the id."""
    from pettingzoo.test.api_test import api_test
    from pettingzoo.test.parallel_test import parallel_api_test
    from pettingzoo.test.seed_test import parallel_seed_test, seed_test

    if env_id in pettingzoo.aec_registry:
        aec = partial(pettingzoo.make, "aec", env_id)
        yield "it passes PettingZoo's api_test", lambda: _quietly(api_test, aec())
        yield "it passes PettingZoo's seed_test", lambda: _quietly(seed_test, aec)
    if env_id in pettingzoo.parallel_registry:
        joint = partial(pettingzoo.make, "parallel", env_id)
        yield (
            "it passes PettingZoo's parallel_api_test",
            lambda: _quietly(parallel_api_test, joint()),
        )
        yield (
            "it passes PettingZoo's parallel_seed_test",
            lambda: _quietly(parallel_seed_test, joint),
        )


def _quietly(test: Callable[[Any], None], subject: object) -> None:
    """Run one of PettingZoo's tests without its prints and its advice against texts."""
    for advice in _ADVICE:
        warnings.filterwarnings("ignore", message=advice)
    with contextlib.redirect_stdout(io.StringIO()):
        test(subject)


def _oracle_or_sampled(seed: int) -> Act:
    """Acts like the oracle, or at random where there is none."""
    otherwise = _legal_or_sampled(seed)

    def act(env: Env) -> str:
        try:
            return env.oracle_action() if isinstance(env, TextEnv) else otherwise(env)
        except NoOracle:
            return otherwise(env)

    return act


def _legal_or_sampled(seed: int) -> Act:
    """Acts at random, mostly legally: equal seeds act alike."""
    rng = random.Random(seed)

    def act(env: Env) -> str:
        legal = env.legal_actions() if isinstance(env, TextEnv) else ()
        if legal and rng.random() < 0.9:
            return rng.choice(legal)
        return "".join(map(chr, rng.choices(range(32, 127), k=8)))

    return act


def _turns(env: Env, seed: int, act: Act) -> Iterator[AnyTurn]:
    env.reset(seed=seed)
    return _rest(env, act)


def _rest(env: Env, act: Act) -> Iterator[AnyTurn]:
    """The turns up to the end of the episode that is running, or up to `MOST_TURNS`."""
    for _ in range(MOST_TURNS):
        turn = env.step(act(env))
        yield turn
        if _ended(turn):
            return


def _ended(turn: AnyTurn) -> bool:
    return turn[2] or turn[3]


def _episodes(make: Make) -> Iterator[list[AnyTurn]]:
    """Some episodes, some cut off after `MOST_TURNS`."""
    env = make().unwrapped
    for seed in SEEDS:
        yield list(_turns(env, seed, _legal_or_sampled(seed)))
        yield list(_turns(env, seed, _oracle_or_sampled(seed)))


def _infos(make: Make) -> Iterator[Info]:
    for seed in SEEDS:
        yield make().reset(seed=seed)[1]
    for record in _episodes(make):
        yield from (turn[4] for turn in record)


def _same(what: str, first: object, second: object) -> None:
    if first != second:
        raise ContractError(f"{what} is {_short(first)} at one time, {_short(second)} at another")


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 300 else f"{text[:300]}..."
