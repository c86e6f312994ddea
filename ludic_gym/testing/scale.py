"""Rules that need another process, or many episodes.

They find faults that one environment in one process hides: an order of sets that differs from
process to process, and memory that grows with every episode.
"""

import gc
import json
import os
import pickle
import subprocess
import sys
import time
import tracemalloc
import warnings
from collections.abc import Callable
from functools import partial
from itertools import islice

from gymnasium.vector.utils import CloudpickleWrapper

from ludic_gym.errors import ContractError
from ludic_gym.making import make_env
from ludic_gym.testing.rules import PLAYERS, SEEDS, Make, insist_same, spec_of, turns
from ludic_gym.types import Env

# Episodes to play; the same tenth of the seeds comes again and again, so that caches are no leaks.
MANY, FEW = 1000, 50
# Episodes are played for about this long, tracing aside: running a program takes 30 ms.
BUDGET_S = 0.5
# Numbers of other lengths make some bytes of difference.
STATE_BYTES = 500
# Memory that the interpreter itself may hold, and what an episode may leave.
PROCESS_BYTES, EPISODE_BYTES = 2**15, 1000
TURNS_WHEN_MANY = 30
# Variable of the processes that a check starts.
CHECKED_BY = "LUDIC_CHECKED_BY"
CHILD = "from ludic_gym.testing.scale import print_episodes; print_episodes()"


def same_in_other_processes(make: Make) -> None:
    """A seed has the same episodes in every process, so that a result can be repeated elsewhere.

    Compared with this process is one with other string hashes, which decide the order in which
    sets of str are iterated. Broken by

        goal = self.np_random.choice(list({"red", "green", "blue"}))

    and repaired by `sorted(...)` around the set. `hash(text)` and `id(thing)` break it too.
    """
    if CHECKED_BY in os.environ:
        # Each check would start another one, without end.
        raise ContractError(
            "its module checks the environment when it is imported, which a process of a check "
            'does: put the check below `if __name__ == "__main__":`, or into a test'
        )
    make_one = partial(make_env, spec_of(make))
    hash_seed = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"
    path = os.pathsep.join([*filter(None, sys.path), os.getcwd()])
    done = subprocess.run(
        [sys.executable, "-c", CHILD],
        # Cloudpickle also carries a class that a notebook or a script has defined.
        input=pickle.dumps(CloudpickleWrapper(make_one)),
        env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": path, CHECKED_BY: "1"},
        capture_output=True,
        check=False,
    )
    if done.returncode:
        tail = done.stderr.decode(errors="replace").strip()[-500:]
        raise ContractError(
            f"another process cannot play it: it ended with status {done.returncode}; {tail}"
        )
    there = json.loads(done.stdout.splitlines()[-1])
    for number, (one, other) in enumerate(zip(transcripts(make_one), there, strict=True)):
        what = f"episode {number} in this process, and in one with PYTHONHASHSEED={hash_seed},"
        insist_same(what, one, other)


def transcripts(make: Make) -> list[str]:
    """The episodes of all seeds and players, in ASCII: observations, rewards, ends and infos."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        env = make()
    return [
        ascii((env.reset(seed=seed), list(turns(env, seed, player(seed)))))
        for player in PLAYERS
        for seed in SEEDS
    ]


def print_episodes() -> None:
    """Print the transcripts of the environment whose pickled maker is on stdin; see `CHILD`."""
    print("\n" + json.dumps(transcripts(pickle.loads(sys.stdin.buffer.read()))))


def stays_small(make: Make) -> None:
    """`FEW` to `MANY` episodes leave an environment no larger than a few do.

    Long training runs out of memory otherwise, hours after its start. The env's pickle may grow by
    `STATE_BYTES`, the memory that Python has allocated by `EPISODE_BYTES` per episode. Broken by

        def step(self, action):
            self.history.append(action)  # and no `self.history.clear()` in `reset`

    and by an unbounded `functools.cache` whose keys are the players' actions.
    """
    env = make()
    start = time.perf_counter()
    _play(env, 10, different=10)
    affordable = int(10 * BUDGET_S / (time.perf_counter() - start))
    many = min(max(FEW, affordable), MANY)
    play = partial(_play, env, different=many // 10)
    # Fills caches and draws each seed at least once, so that the growth below is a leak.
    play(many // 5)
    # Caches that fill late look like a leak once; a leak continues.
    if _growth(env, play, many) and (growth := _growth(env, play, many)):
        raise ContractError(growth)


def _growth(env: Env, play: Callable[[int], None], many: int) -> str:
    """The growth of an environment and of the memory over episodes, "" for little."""
    before = len(pickle.dumps(env))
    play(many // 5 * 3)
    # Only the last episodes are traced, which is up to eight times slower. Both halves end with the
    # same episode, so that the state of the environment itself makes no difference.
    half, snapshots = many // 10, []
    tracemalloc.start()
    try:
        for _ in range(2):
            play(half)
            # Cycles that wait for the collector are no leak.
            gc.collect()
            snapshots.append(tracemalloc.take_snapshot())
    finally:
        tracemalloc.stop()
    if (grown := len(pickle.dumps(env)) - before) > STATE_BYTES:
        return f"{8 * half} episodes more made its pickle {grown} bytes larger"
    lines = snapshots[1].compare_to(snapshots[0], "lineno")
    size = sum(line.size_diff for line in lines)
    if size <= PROCESS_BYTES + EPISODE_BYTES * half:
        return ""
    where = lines[0].traceback
    return f"{half} episodes more left {size} bytes in memory, most of them made in {where}"


def _play(env: Env, count: int, *, different: int) -> None:
    """Play episodes, cut after `TURNS_WHEN_MANY` turns, whose seeds repeat after `different`."""
    for seed in (number % different for number in range(count)):
        for _ in islice(turns(env, seed, PLAYERS[0](seed)), TURNS_WHEN_MANY):
            pass


SCALE_RULES = (
    ("a seed means the same in every process", same_in_other_processes),
    (f"{FEW} to {MANY} episodes take no more memory than a few", stays_small),
)
