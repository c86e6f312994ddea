"""Rules for one environment, each a function that raises where it is broken; and their players.

`make` returns a new environment. A ContractError names the values that break the rule.
"""

import copy
import math
import pickle
import random
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import chain, product
from typing import Any, SupportsFloat, TypeVar

import numpy as np
from gymnasium.envs.registration import EnvSpec
from gymnasium.utils.env_checker import check_env

from ludic_gym.envs.core.base import RENDER_MODES, TextEnv
from ludic_gym.errors import ConfigError, ContractError, EpisodeOver, NoOracle
from ludic_gym.making import make_env
from ludic_gym.offered import action_schemas, env_tools
from ludic_gym.types import Env

T = TypeVar("T")
Make = Callable[[], Env]
Act = Callable[[Env], str]
AnyTurn = tuple[str, SupportsFloat, bool, bool, dict[str, Any]]

SEEDS = range(8)
MOST_TURNS = 200
# Blank, broken or endless text, control characters, marks of an answer, code to evaluate.
HOSTILE_TEXTS = (
    "",
    " \n",
    "\0",
    "\ud800",
    "é 你好 😀\n",
    "\x1b[2J\x1b]0;title\x07",
    "x" * 100_000,
    "<answer>" * 1000,
    "\\boxed{" * 1000,
    "9**9**9",
    "__import__('os')",
)


def text_env_of(env: Env) -> TextEnv | None:
    """The environment below all wrappers, if it is a TextEnv: others list no legal actions."""
    inner = env.unwrapped
    return inner if isinstance(inner, TextEnv) else None


def oracle_or_sampled(seed: int) -> Act:
    """A player like the oracle, or a random one where there is none."""
    otherwise = legal_or_sampled(seed)

    def act(env: Env) -> str:
        inner = text_env_of(env)
        try:
            return otherwise(env) if inner is None else inner.oracle_action()
        except NoOracle:
            return otherwise(env)

    return act


def legal_or_sampled(seed: int) -> Act:
    """A random player of mostly legal actions, determined by the seed."""
    rng = random.Random(seed)

    def act(env: Env) -> str:
        inner = text_env_of(env)
        return draw_action(rng, () if inner is None else inner.legal_actions())

    return act


PLAYERS = (legal_or_sampled, oracle_or_sampled)


def draw_action(rng: random.Random, legal: tuple[str, ...]) -> str:
    """A legal action, or in one of ten cases any eight characters."""
    # Illegal actions too, because the branches that refuse them can break rules as well.
    if legal and rng.random() < 0.9:
        return rng.choice(legal)
    return "".join(map(chr, rng.choices(range(32, 127), k=8)))


def turns(env: Env, seed: int, act: Act) -> Iterator[AnyTurn]:
    """The turns of the episode of that seed: (observation, reward, terminated, truncated, info)."""
    env.reset(seed=seed)
    return rest(env, act)


def rest(env: Env, act: Act) -> Iterator[AnyTurn]:
    """The turns up to the end of the episode that is running, or up to `MOST_TURNS`."""
    for _ in range(MOST_TURNS):
        turn = env.step(act(env))
        yield turn
        if ended(turn):
            return


def ended(turn: AnyTurn) -> bool:
    """True if the turn ends the episode."""
    return turn[2] or turn[3]


def episodes(make: Make) -> Iterator[list[AnyTurn]]:
    """Some episodes, each of at most `MOST_TURNS` turns."""
    env = make()
    for seed, player in product(SEEDS, PLAYERS):
        yield list(turns(env, seed, player(seed)))


@contextmanager
def must_take(action: str) -> Iterator[None]:
    """A block that plays the action. Raises ContractError instead of any other error."""
    try:
        yield
    except Exception as error:
        raise ContractError(f"the action {action[:20]!r} raises {error!r}") from error


def interleave(turns: Iterator[T], others: Iterator[object]) -> list[T]:
    """The turns of an episode, while another environment plays its own turn after each of them."""
    record = []
    for turn in turns:
        record.append(turn)
        next(others, None)
    return record


def insist_copies_continue(env: T, play: Callable[[T], Iterator[object]]) -> None:
    """Raise ContractError unless copies of the environment play the same turns as itself."""
    # Copies first: the original must not change them by playing on.
    twins = {"a deep copy": copy.deepcopy(env), "a pickle": pickle.loads(pickle.dumps(env))}
    original = list(play(env))
    for name, twin in twins.items():
        insist_same(f"{name} made in mid-episode", original, list(play(twin)))


def insist_same(what: str, first: object, second: object) -> None:
    """Raise ContractError unless both are equal."""
    if first != second:
        # Cut, so that a complaint stays readable.
        one, other = (text[:300] + "..." * (len(text) > 300) for text in map(repr, (first, second)))
        raise ContractError(f"{what} is {one} at one time, {other} at another")


def passes_gymnasium(make: Make) -> None:
    """Gymnasium's own `check_env` passes, with every warning as an error.

    Broken by `reset` that returns the observation without the info.
    """
    # Another rule is about rendering, which environments of others may lack.
    check_env(make().unwrapped, skip_render_check=True)


def spec_of(make: Make) -> EnvSpec:
    """The environment's spec. Raises ContractError if there is none."""
    spec = make().spec
    if spec is None:
        raise ContractError("the environment has no spec")
    return spec


def spec_is_json(make: Make) -> None:
    """The env built from its spec in JSON is equal, so that a stored result can be repeated.

    Broken by `register(..., kwargs={"rng": random.Random(0)})`, which JSON cannot hold.
    """
    spec = spec_of(make)
    # Gymnasium refuses a class as entry point, though it is the shortest way to register one.
    arguments = replace(spec, entry_point=None).to_json()
    again = make_env(replace(EnvSpec.from_json(arguments), entry_point=spec.entry_point))
    insist_same("reset(seed=0)", make().reset(seed=0), again.reset(seed=0))


def renders(make: Make) -> None:
    """`render()` returns a str in both modes: "ansi" for terminals, "html" for pages.

    Broken by `metadata = {"render_modes": ["ansi"]}`.
    """
    env = make()
    missing = set(RENDER_MODES) - set(env.metadata.get("render_modes", ()))
    if missing:
        raise ContractError(f"render modes that are missing: {sorted(missing)}")
    for mode in RENDER_MODES:
        again = spec_of(make).make(render_mode=mode)
        again.reset(seed=0)
        picture: object = again.render()
        if not isinstance(picture, str):
            raise ContractError(f"render_mode={mode!r} gives {picture!r}, not a str")


def suggests_prompt(make: Make) -> None:
    """`reset` gives a system prompt, without which a policy does not know the format of actions.

    Broken by `return observation, {}`; not by {"system_prompt": ""}, if none is needed.
    """
    _, info = make().reset(seed=0)
    if not isinstance(info.get("system_prompt"), str):
        raise ContractError(f'reset gives no text in info["system_prompt"]: {info!r}')


def takes_any_text(make: Make) -> None:
    """`step` takes every str: actions are untrusted text, and an exception ends the rollout.

    Broken by `cell = self.board[int(action)]`, which raises ValueError for "".
    """
    env = make()
    for seed, text in enumerate(HOSTILE_TEXTS):
        env.reset(seed=seed)
        with must_take(text):
            env.step(text)


def infos_can_be_merged(make: Make) -> None:
    """Every key of the infos has one type, so that vector environments can merge them.

    Broken by info {"rule": "tag"} after one action and {"rule": None} after another.
    """
    # Vector environments merge the infos of several, in one array per key.
    types: dict[str, type] = {}
    infos = [make().reset(seed=seed)[1] for seed in SEEDS]
    for info in chain(infos, (turn[4] for record in episodes(make) for turn in record)):
        for key, value in info.items():
            kind = types.setdefault(key, type(value))
            if value is None or key in ("episode", "_episode"):
                raise ContractError(f"info[{key!r}] is {value!r}; None and that key are reserved")
            if type(value) is not kind:
                raise ContractError(
                    f"info[{key!r}] is {value!r}, a {type(value).__name__}, and was a "
                    f"{kind.__name__} before"
                )


def turns_are_valid(make: Make) -> None:
    """Observations are in their space, rewards are finite floats, and an end has one reason.

    Broken by `reward = 1` (an int), by a reward of nan, and by (text, 1.0, True, True, info).
    """
    env = make()
    for record in episodes(make):
        for text, reward, terminated, truncated, info in record:
            if text not in env.observation_space:
                raise ContractError(f"the observation {text!r} is not in {env.observation_space}")
            if not isinstance(reward, float) or not math.isfinite(reward):
                raise ContractError(f"the reward {reward!r} is not a finite float")
            if terminated and truncated:
                raise ContractError(f"terminated and truncated at once, info {info!r}")


def explains_reward(make: Make) -> None:
    """The last info has a bool `success`, and floats that sum to the reward, for logs.

    Broken by a reward of 0.5 with {"success": True, "reward/correct": 1.0}.
    """
    for record in episodes(make):
        _, reward, _, _, info = record[-1]
        # `episodes` stops long ones, whose last turn explains nothing.
        if not ended(record[-1]):
            continue
        parts = {key: value for key, value in info.items() if key.startswith("reward/")}
        if not isinstance(info.get("success"), bool):
            raise ContractError(f"the last info has no success of type bool: {info!r}")
        if not parts or not all(isinstance(value, float) for value in parts.values()):
            raise ContractError(f'the last info has no floats under "reward/<name>": {info!r}')
        if not math.isclose(sum(parts.values()), float(reward), abs_tol=1e-9):
            raise ContractError(f"{parts} sum to {sum(parts.values())}, but the reward is {reward}")


def keeps_order(make: Make) -> None:
    """`step` raises EpisodeOver before the first reset and after the end: a loop's fault is seen.

    Broken by `step` that raises AttributeError there, or plays on after `terminated`.
    """
    env = make().unwrapped

    def refuse(when: str) -> None:
        with suppress(EpisodeOver):
            env.step("")
            raise ContractError(f"step() {when} raises no EpisodeOver")

    refuse("before the first reset")
    for seed in SEEDS:
        if ended(list(turns(env, seed, legal_or_sampled(seed)))[-1]):
            refuse("after the end of the episode")


def depends_on_seed_alone(make: Make) -> None:
    """Equal seeds and actions give equal episodes, whatever else the process has drawn or played.

    Broken by `random.choice(tasks)` in place of `self.np_random`, and by state on the class.
    """
    state, old = random.getstate(), np.random.get_state()
    try:
        for seed in SEEDS:
            # Different states of the global generators: an env that draws from them is found out.
            random.seed(seed)
            np.random.seed(seed)
            alone = list(turns(make(), seed, legal_or_sampled(seed)))
            random.seed(seed + 1)
            np.random.seed(seed + 1)
            # Another environment shows state that is shared by all of a class.
            other = turns(make(), seed + 1, legal_or_sampled(seed + 1))
            together = interleave(turns(make(), seed, legal_or_sampled(seed)), other)
            insist_same(f"the episode of seed {seed}", alone, together)
    finally:
        random.setstate(state)
        np.random.set_state(old)


def continues_as_copy(make: Make) -> None:
    """Deep copies and pickles play on like the original, which tree search and checkpoints need.

    Broken by an attribute that is a lock, a generator or an open file.
    """
    for seed in SEEDS:
        env = make()
        act = legal_or_sampled(seed)
        env.reset(seed=seed)
        # One turn, so that the copy is made in mid-episode where an episode has several.
        if ended(env.step(act(env))):
            env.reset()

        def play(one: Env, seed: int = seed) -> Iterator[AnyTurn]:
            return rest(one, legal_or_sampled(seed))

        insist_copies_continue(env, play)


def plays_rows(make: Make) -> None:
    """`options={"row": n}` selects a row whatever the seed, and a row beyond the last is refused.

    Broken by an env that reads `options["row"] % num_rows`, or shuffles a row by the seed.
    """
    env = text_env_of(make())
    if env is None or env.num_rows is None:
        return
    for row in {0, env.num_rows - 1}:
        first, again = (env.reset(seed=seed, options={"row": row})[0] for seed in (0, 1))
        insist_same(f"row {row}", first, again)
    try:
        env.reset(options={"row": env.num_rows})
    except ConfigError:
        return
    raise ContractError(f"row {env.num_rows} of {env.num_rows} raises no ConfigError")


_NAMES_TOOLS = re.compile(
    r"\b(?:tool[ _-]calls?|(?:call|use|using|your|these|the|following)\s+(?:\w+\s+)?tools?)\b",
    re.IGNORECASE,
)


def offers_named_tools(make: Make) -> None:
    """An env whose prompt names tools offers them: `tools()`, or `action_tools` for its actions.

    Tools have different names, and types that JSON has. Broken by "Use the tools you have." alone.
    """
    # Imported here: the help of the command has no use for schemas.
    from ludic_gym.tools.tool import tools_by_name

    env = make()
    _, info = env.reset(seed=0)
    tools = tools_by_name(env_tools(env))
    actions = [schema["function"]["name"] for schema in action_schemas(env)]
    if both := tools.keys() & set(actions):
        raise ContractError(f"{sorted(both)} are names of tools and of actions")
    named = _NAMES_TOOLS.search(str(info.get("system_prompt", "")))
    if named and not tools and not actions:
        raise ContractError(
            f"the prompt has {named[0]!r}, and no player is offered any: return functions by "
            "`tools()`, or set `action_tools` to the schemas of calls that are actions"
        )


def oracle_is_legal(make: Make) -> None:
    """The oracle's action is one of `legal_actions()`, if the env lists any.

    Broken by the oracle's "e4" where the legal actions are ("e2e4", "d2d4").
    """
    env = text_env_of(make())
    if env is None:
        return
    for seed in SEEDS:
        env.reset(seed=seed)
        try:
            action = env.oracle_action()
        except NoOracle:
            return
        legal = env.legal_actions()
        # No legal actions are listed where there are too many of them.
        if legal and action not in legal:
            raise ContractError(f"the oracle plays {action!r}, legal are {legal}")


FORM_RULES = frozenset(
    {infos_can_be_merged, renders, suggests_prompt, explains_reward, keeps_order}
)
"""Rules about the form of an environment, which say nothing about its reward."""

RULES: tuple[tuple[str, Callable[[Make], None]], ...] = (
    ("any text is an action", takes_any_text),
    ("every info key has one type, is never None, never 'episode'", infos_can_be_merged),
    ("it passes Gymnasium's check_env without a warning", passes_gymnasium),
    ("its spec survives JSON", spec_is_json),
    ("it renders as 'ansi' and 'html'", renders),
    ("reset suggests a system prompt", suggests_prompt),
    ("observations are in their space, rewards finite floats", turns_are_valid),
    ("the last info has success, and components that sum to the reward", explains_reward),
    ("no step without a running episode", keeps_order),
    ("the seed alone decides", depends_on_seed_alone),
    ("a copy or a pickle continues like the original", continues_as_copy),
    ("a row is the same task for every seed", plays_rows),
    ("the oracle's action is legal", oracle_is_legal),
    ("tools that the prompt names are offered", offers_named_tools),
)
