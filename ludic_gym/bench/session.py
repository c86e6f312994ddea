"""One environment of a benchmark: play, keep and count the episodes that its folder lacks."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ludic_gym.bench.folder import TIMES, transcript_path
from ludic_gym.bench.plans import EnvPlan
from ludic_gym.bench.progress import progress_bar
from ludic_gym.bench.records import keep_finished, open_transcripts, put_in_order, read_scores
from ludic_gym.bench.runner import run_bench
from ludic_gym.bench.tally import Tally
from ludic_gym.types import Episode, MakePolicy

OnEpisode = Callable[[Episode], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Play:
    """Settings of a benchmark's episodes.

    folder: where they are kept, or None. policy: its name in the records.
    concurrency, timeout_s: as in `run_bench`.
    """

    make_policy: MakePolicy
    policy: str
    folder: Path | None = None
    concurrency: int = 64
    timeout_s: float | None = None


async def play_env(
    env_id: str, plan: EnvPlan, play: Play, *, tally: Tally, note: Callable[[], str]
) -> None:
    """Play the env's tasks that its file lacks, behind a bar, then sort the file by task.

    tally: receives all scores, those in the file first. note: the text behind the bar.
    """
    done = _earlier_indices(play.folder, env_id, tally)
    bar = progress_bar(env_id, total=plan.count, done=len(done), note=note)
    with bar as show, _kept(env_id, play) as (record, time):

        def ended(episode: Episode) -> None:
            record(episode)
            show(episode)

        await run_bench(
            plan.jobs,
            play.make_policy,
            concurrency=play.concurrency,
            timeout_s=play.timeout_s,
            on_episode=ended,
            on_time=time,
            skip=done,
            tally=tally,
        )
    if play.folder is not None:
        put_in_order(transcript_path(play.folder, env_id))


def _earlier_indices(folder: Path | None, env_id: str, tally: Tally) -> set[int]:
    """Add the env's finished episodes in the folder to the tally; their indices.

    Unfinished ones are removed from the file, to be played again.
    """
    if folder is None:
        return set()
    path = transcript_path(folder, env_id)
    keep_finished(path)
    indices = set()
    for score in read_scores(path):
        tally.add(score)
        indices.add(score.index)
    return indices


@contextmanager
def _kept(env_id: str, play: Play) -> Iterator[tuple[OnEpisode, Callable[[int, float], None]]]:
    """Functions that keep an episode and its duration; without a folder they do nothing."""
    if play.folder is None:
        yield (lambda episode: None), (lambda index, seconds: None)
        return
    path = transcript_path(play.folder, env_id)
    with (
        open_transcripts(path, policy=play.policy) as record,
        (play.folder / TIMES).open("a", encoding="ascii") as times,
    ):

        def time(index: int, seconds: float) -> None:
            line = {"env": env_id, "index": index, "seconds": round(seconds, 4)}
            times.write(json.dumps(line) + "\n")

        yield record, time
