"""Rules that take other processes, or many episodes."""

from __future__ import annotations

import gc
import os
import pickle
import subprocess
import sys
import time
import tracemalloc
import warnings
from functools import partial
from itertools import islice
from typing import Any

import gymnasium as gym
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv, VectorEnv
from gymnasium.vector.utils import CloudpickleWrapper

from ludic_gym.errors import ContractError
from ludic_gym.testing.playing import (
    SEEDS,
    Make,
    insist_same,
    legal_or_sampled,
    oracle_or_sampled,
    turns,
)

# Episodes to play; the same tenth comes again and again: what is cached for them is no leak.
MANY = 1000
# So many where an episode takes long, which running programs or asking others does.
MANY_SLOW, SLOW_EPISODE_S = 100, 0.02
# Numbers of other lengths make some bytes of difference.
STATE_BYTES, PROCESS_BYTES = 500, 2**18
TURNS_WHEN_MANY = 30
HASH_SEEDS = ("1", "2")
CHILD = "from ludic_gym.testing.scale import play_in_child; play_in_child()"
ACTIONS = ("5", "A1", "é\n😀 \ud800")


def _same_in_other_processes(make: Make) -> None:
    """With other hashes of strings, too: these decide in which order sets are walked through."""
    make_one = partial(gym.make, _spec(make))
    here = transcripts(make_one)
    # Cloudpickle also carries a class that a notebook or a script has defined.
    pickled = pickle.dumps(CloudpickleWrapper(make_one))
    children = [_child(hash_seed) for hash_seed in HASH_SEEDS]
    answers = [(*child.communicate(pickled), child.returncode) for child in children]
    for hash_seed, (output, errors, code) in zip(HASH_SEEDS, answers, strict=True):
        if code:
            found = errors.decode(errors="replace").strip()[-500:]
            raise ContractError(f"another process cannot play it: {found}")
        there = output.decode("ascii").split("\f")
        for number, (one, other) in enumerate(zip(here, there, strict=True)):
            what = f"episode {number} in this process, and in one with PYTHONHASHSEED={hash_seed},"
            insist_same(what, one, other)


def transcripts(make: Make) -> list[str]:
    """Some episodes of an environment as text, all that is seen of them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        env = make()
    return [
        ascii((env.reset(seed=seed), list(turns(env, seed, player(seed)))))
        for player in (legal_or_sampled, oracle_or_sampled)
        for seed in SEEDS
    ]


def play_in_child() -> None:
    """Print the episodes of the environment that the pickle on standard input makes."""
    print("\f".join(transcripts(pickle.load(sys.stdin.buffer))), end="")


def _child(hash_seed: str) -> subprocess.Popen[bytes]:
    path = os.pathsep.join([*filter(None, sys.path), os.getcwd()])
    return subprocess.Popen(
        [sys.executable, "-c", CHILD],
        env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": path},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def _same_in_vectors(make: Make) -> None:
    """With the defaults of both, also when they are reset in mid-episode."""
    # Neither threads of the program nor its open files matter to workers that only play.
    warnings.filterwarnings("ignore", category=ResourceWarning)
    warnings.filterwarnings("ignore", message=".*fork", category=DeprecationWarning)
    make_one = partial(gym.make, _spec(make))
    one = _vector_turns(SyncVectorEnv([make_one] * len(ACTIONS)))
    other = _vector_turns(AsyncVectorEnv([make_one] * len(ACTIONS)))
    for turn, (sync, async_) in enumerate(zip(one, other, strict=True)):
        insist_same(f"turn {turn} in a SyncVectorEnv, and in an AsyncVectorEnv,", sync, async_)


def _vector_turns(vector: VectorEnv[Any, Any, Any], count: int = 30) -> list[str]:
    seen: list[object] = [vector.reset(seed=3)]
    for turn in range(count):
        if turn == 17:
            seen.append(vector.reset())
        observations, *numbers, infos = vector.step((str(turn % 9 + 1), *ACTIONS[1:]))
        seen.append((observations, [array.tolist() for array in numbers], infos))
    vector.close()
    return [ascii(each) for each in seen]


def _stays_small(make: Make) -> None:
    env = make()
    many = _affordable(env)
    # Only the last episodes are traced, which is slow.
    traced = many // 5
    _play(env, many - traced, many // 10)
    before = len(pickle.dumps(env))
    tracemalloc.start()
    try:
        _play(env, traced, many // 10)
        gc.collect()
        lines = tracemalloc.take_snapshot().statistics("lineno")
    finally:
        tracemalloc.stop()
    grown = len(pickle.dumps(env)) - before
    if grown > STATE_BYTES:
        raise ContractError(f"{traced} episodes more made its pickle {grown} bytes larger")
    held = sum(line.size for line in lines)
    if held > PROCESS_BYTES:
        raise ContractError(
            f"{traced} episodes more left {held} bytes in memory, most of them made in "
            f"{lines[0].traceback}"
        )


def _affordable(env: gym.Env[str, str]) -> int:
    """How many episodes to play, by how long ten of them take."""
    start = time.perf_counter()
    _play(env, 10, 10)
    return MANY if time.perf_counter() - start < 10 * SLOW_EPISODE_S else MANY_SLOW


def _play(env: gym.Env[str, str], count: int, different: int) -> None:
    for number in range(count):
        seed = number % different
        for _ in islice(turns(env, seed, legal_or_sampled(seed)), TURNS_WHEN_MANY):
            pass


def _spec(make: Make) -> EnvSpec:
    spec = make().spec
    if spec is None:
        raise ContractError("the environment has no spec")
    return spec


SCALE_RULES = (
    ("Sync and Async vector environments show the same", _same_in_vectors),
    ("a seed means the same in every process", _same_in_other_processes),
    (f"{MANY} episodes (slow ones: {MANY_SLOW}) take no more memory than a few", _stays_small),
)
