"""One environment of a benchmark: what its folder lacks is played, kept and counted."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ludic_gym.bench.folder import TIMES, transcript_path
from ludic_gym.bench.records import keep_finished, open_transcripts, put_in_order, read_scores
from ludic_gym.bench.runner import Job, run_bench
from ludic_gym.bench.tally import Tally
from ludic_gym.types import Episode, MakePolicy

OnEpisode = Callable[[Episode], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Play:
    """How a benchmark's episodes are played.

    folder: where they are kept, or None. policy: how the policy is called in the records.
    concurrency, timeout_s: as in `run_bench`.
    """

    make_policy: MakePolicy
    policy: str
    folder: Path | None = None
    concurrency: int = 64
    timeout_s: float | None = None


def earlier_scores(folder: Path | None, env_id: str, tally: Tally) -> set[int]:
    """The indices of the env's episodes that the folder holds already, now in the tally as well.

    What did not come to an end is taken out of the file, to be played again.
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


async def play_env(
    env_id: str,
    jobs: Iterable[Job],
    play: Play,
    *,
    tally: Tally,
    skip: set[int],
    on_episode: OnEpisode,
) -> None:
    """Play the env's tasks but those in `skip`; at the end its file is in their order."""
    with _kept(env_id, play) as (record, time):

        def ended(episode: Episode) -> None:
            record(episode)
            on_episode(episode)

        await run_bench(
            jobs,
            play.make_policy,
            concurrency=play.concurrency,
            timeout_s=play.timeout_s,
            on_episode=ended,
            on_time=time,
            skip=skip,
            tally=tally,
        )
    if play.folder is not None:
        put_in_order(transcript_path(play.folder, env_id))


@contextmanager
def _kept(env_id: str, play: Play) -> Iterator[tuple[OnEpisode, Callable[[int, float], None]]]:
    """What keeps an episode, and what keeps how long it took; neither does without a folder."""
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
