"""Rules that need other processes, or many episodes.

They find faults that one environment in one process hides: an order of sets that differs from
process to process, state that environments share, and memory that grows with every episode.
"""

import atexit
import base64
import contextlib
import gc
import io
import json
import os
import pickle
import subprocess
import sys
import tempfile
import time
import tracemalloc
import warnings
from collections.abc import Callable, Iterable
from functools import cache, partial
from itertools import islice
from typing import IO, Any

import gymnasium as gym
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv, VectorEnv
from gymnasium.vector.utils import CloudpickleWrapper

from ludic_gym.errors import ContractError
from ludic_gym.testing.rules import PLAYERS, SEEDS, Make, insist_same, spec_of, turns

# Episodes to play; the same tenth of the seeds comes again and again, so that caches are no leaks.
MANY, FEW = 1000, 50
# Episodes are played for about this long, tracing aside: running a program takes 30 ms.
BUDGET_S = 0.5
# Numbers of other lengths make some bytes of difference.
STATE_BYTES = 500
# Memory that the interpreter itself may hold, and what an episode may leave.
PROCESS_BYTES, EPISODE_BYTES = 2**15, 1000
TURNS_WHEN_MANY = 30
TURNS_IN_VECTORS = 20
HASH_SEEDS = ("1", "2")
# Variable of the processes that a check starts.
CHECKED_BY = "LUDIC_CHECKED_BY"
CHILD = "from ludic_gym.testing.scale import play_in_forks; play_in_forks()"
ACTIONS = ("5", "A1", "é\n😀 \ud800")


def same_in_other_processes(make: Make) -> None:
    """A seed has the same episodes in every process, so that a result can be repeated elsewhere.

    Compared with this process are two with other string hashes, which decide the order in which
    sets of str are iterated. Broken by

        goal = self.np_random.choice(list({"red", "green", "blue"}))

    and repaired by `sorted(...)` around the set. `hash(text)` and `id(thing)` break it too.
    """
    if CHECKED_BY in os.environ:
        # Each check would start two more, without end.
        raise ContractError(
            "its module checks the environment when it is imported, which a process of a check "
            'does: put the check below `if __name__ == "__main__":`, or into a test'
        )
    make_one = partial(gym.make, spec_of(make))
    # Cloudpickle also carries a class that a notebook or a script has defined.
    pickled = base64.b64encode(pickle.dumps(CloudpickleWrapper(make_one))).decode()
    folder = os.getcwd()
    request = json.dumps([folder, [*sys.path, folder], dict(os.environ), pickled, [*SEEDS]])
    players = [_player(hash_seed, os.getpid()) for hash_seed in HASH_SEEDS]
    for process, _ in players:
        print(request, file=process.stdin, flush=True)
    # Before anything here can raise: a reply that stays unread would be the next environment's.
    replies = [process.stdout.readline() for process, _ in players if process.stdout]
    if not all(replies):
        # The next environment gets new processes, even if playing it here raises too.
        _player.cache_clear()
    here = transcripts(make_one, SEEDS)
    for hash_seed, (process, errors), reply in zip(HASH_SEEDS, players, replies, strict=True):
        if not reply:
            status = process.wait()
            errors.seek(0)
            tail = errors.read().decode(errors="replace").strip()[-500:]
            raise ContractError(
                f"another process cannot play it: it ended with status {status}; {tail}"
            )
        for number, (one, other) in enumerate(zip(here, json.loads(reply), strict=True)):
            what = f"episode {number} in this process, and in one with PYTHONHASHSEED={hash_seed},"
            insist_same(what, one, other)


def transcripts(make: Make, seeds: Iterable[int]) -> list[str]:
    """Some episodes of an environment as text: observations, rewards, ends and infos.

    Every player of `PLAYERS` plays every seed. The texts are ASCII, so that they pass
    through a pipe of any encoding; lone surrogates are escaped.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        env = make()
    return [
        ascii((env.reset(seed=seed), list(turns(env, seed, player(seed)))))
        for player in PLAYERS
        for seed in seeds
    ]


@cache
def _player(hash_seed: str, owner: int) -> tuple[subprocess.Popen[str], IO[bytes]]:
    """A process with these string hashes, and the file of its errors.

    It plays each environment in a fork of itself, and ends at the first that it cannot play.
    owner: this process's id. A fork of this process must not read another's replies.
    """
    # Starting Python takes longer than playing most environments. A fork of a process that has
    # imported no environment is as good as a new process.
    path = os.pathsep.join([*filter(None, sys.path), os.getcwd()])
    # Not a pipe, which would block a process that writes a lot.
    errors = tempfile.TemporaryFile()  # noqa: SIM115 (open as long as the process)
    process = subprocess.Popen(
        [sys.executable, "-c", CHILD],
        env={
            **os.environ,
            "PYTHONHASHSEED": hash_seed,
            "PYTHONPATH": path,
            CHECKED_BY: str(owner),
        },
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=errors,
        text=True,
    )

    def end() -> None:
        # The process ends when its pipes are closed. A fork of this process does not own it.
        if os.getpid() == owner:
            process.communicate()
            errors.close()

    atexit.register(end)
    return process, errors


def play_in_forks() -> None:
    """Reply to lines [folder, import path, variables, pickled maker, seeds] with transcripts.

    Runs until stdin ends, in the process of `CHILD`. Each request is played in a fork, so that an
    environment's modules and caches cannot influence the next. A fork that fails ends the process
    with its status, and its traceback is in the file of errors.
    """
    for line in sys.stdin:
        # Windows has no forks: there, this process plays one environment after the other.
        child = os.fork() if hasattr(os, "fork") else 0
        if child:
            status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            if status:
                sys.exit(status)
            continue
        folder, sys.path[:], variables, pickled, seeds = json.loads(line)
        os.chdir(folder)
        os.environ.update(variables)
        with contextlib.redirect_stdout(io.StringIO()):
            episodes = transcripts(pickle.loads(base64.b64decode(pickled)), seeds)
        # ASCII, so that neither process depends on the other's locale.
        print(json.dumps(episodes), flush=True)
        if hasattr(os, "fork"):
            sys.exit()


def same_in_vectors(make: Make) -> None:
    """SyncVectorEnv and AsyncVectorEnv give equal turns, so that either can be used for training.

    Each has as many copies as there are `ACTIONS`, plays `TURNS_IN_VECTORS` turns with Gymnasium's
    defaults, and is reset in mid-episode. Broken by state on the class:

        class Riddle(TextEnv):
            used = set()  # copies in one process see each other's riddles

    because the copies of the first share a process, while those of the second have one each.
    """
    # The forked workers only play: threads and open files of this process do not matter to them.
    warnings.filterwarnings("ignore", category=ResourceWarning)
    warnings.filterwarnings("ignore", message=".*fork", category=DeprecationWarning)
    make_one = partial(gym.make, spec_of(make))
    one = _vector_turns(SyncVectorEnv([make_one] * len(ACTIONS)))
    other = _vector_turns(AsyncVectorEnv([make_one] * len(ACTIONS)))
    for turn, (sync, async_) in enumerate(zip(one, other, strict=True)):
        insist_same(f"turn {turn} in a SyncVectorEnv, and in an AsyncVectorEnv,", sync, async_)


def _vector_turns(vector: VectorEnv[Any, Any, Any]) -> list[str]:
    """The reset and the turns of a vector environment as text; the environment is closed."""
    seen: list[object] = [vector.reset(seed=3)]
    for turn in range(TURNS_IN_VECTORS):
        # A reset in mid-episode: the workers of both must drop the rest of the episode.
        if turn == TURNS_IN_VECTORS // 2 + 1:
            seen.append(vector.reset())
        observations, *numbers, infos = vector.step((str(turn % 9 + 1), *ACTIONS[1:]))
        seen.append((observations, [array.tolist() for array in numbers], infos))
    vector.close()
    return [ascii(each) for each in seen]


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


def _growth(env: gym.Env[str, str], play: Callable[[int], None], many: int) -> str:
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
    grown = len(pickle.dumps(env)) - before
    if grown > STATE_BYTES:
        return f"{8 * half} episodes more made its pickle {grown} bytes larger"
    lines = snapshots[1].compare_to(snapshots[0], "lineno")
    held = sum(line.size_diff for line in lines)
    if held <= PROCESS_BYTES + EPISODE_BYTES * half:
        return ""
    return (
        f"{half} episodes more left {held} bytes in memory, most of them made in "
        f"{lines[0].traceback}"
    )


def _play(env: gym.Env[str, str], count: int, *, different: int) -> None:
    """Play episodes, cut after `TURNS_WHEN_MANY` turns, whose seeds repeat after `different`."""
    for number in range(count):
        seed = number % different
        for _ in islice(turns(env, seed, PLAYERS[0](seed)), TURNS_WHEN_MANY):
            pass


SCALE_RULES = (
    ("Sync and Async vector environments give equal results", same_in_vectors),
    ("a seed means the same in every process", same_in_other_processes),
    (f"{FEW} to {MANY} episodes take no more memory than a few", stays_small),
)
