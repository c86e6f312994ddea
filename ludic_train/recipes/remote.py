"""A recipe whose episodes actors play: what the trainer leaves in its folder for them.

OUT/queue.json      where groups go: {"url": ..., "key": ...}
OUT/published/      model/ and policy.json to begin with, then each version of the params
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from ludic_gym.errors import ConfigError
from ludic_gym.types import Task
from ludic_train.actor import ActorOptions, ActorSummary, run_pipeline_actor
from ludic_train.algorithms import RLAlgorithm
from ludic_train.config import TrainerConfig
from ludic_train.errors import ActorError
from ludic_train.inference import EmbeddedChatClient
from ludic_train.inference.saved import model_and_spec, policies, write_policy_spec
from ludic_train.model import load_model, save_model
from ludic_train.published import FolderPublisher, FollowingClient, newest
from ludic_train.publishers import PolicyPublisher
from ludic_train.queues.urls import open_queue
from ludic_train.recipes.folder import CONFIG
from ludic_train.recipes.learner import Learner
from ludic_train.sources import PipelineBatchSource

QUEUE, PUBLISHED = "queue.json", "published"
WAIT_S = 0.2


class Both:
    """Publishes to one publisher, then to another."""

    def __init__(self, first: PolicyPublisher, second: PolicyPublisher) -> None:
        self.first, self.second = first, second

    async def publish(self, params: Iterable[tuple[str, Tensor]], version: int) -> None:
        """Return once both have published."""
        known = list(params)
        await self.first.publish(known, version)
        await self.second.publish(known, version)


def lag_of(minibatches: int) -> int:
    """The `max_lag` of a recipe: one batch may be played while another is trained on."""
    return 2 * minibatches - 1


def remote_games(
    out: Path, learner: Learner, url: str, *, groups: int, cfg: TrainerConfig
) -> tuple[PipelineBatchSource, PolicyPublisher]:
    """Where the trainer's batches come from and its params go to, with actors that follow `out`.

    A new run gets a queue key of its own, so that it never finds groups of another.
    """
    key = _key(out)
    (out / QUEUE).write_text(json.dumps({"url": url, "key": key}) + "\n", encoding="utf-8")
    published = out / PUBLISHED
    published.mkdir(exist_ok=True)
    save_model(learner.model, learner.tokenizer, published / "model")
    write_policy_spec(published, learner.spec)
    source = PipelineBatchSource(
        open_queue(url, key),
        groups_per_batch=groups,
        cfg=cfg,
        vocab_size=learner.model.config.vocab_size,
    )
    return source, Both(learner.publisher, FolderPublisher(published))


def _key(out: Path) -> str:
    path = out / QUEUE
    if path.is_file():
        return str(json.loads(path.read_text(encoding="utf-8"))["key"])
    return f"{out.resolve().name}-{secrets.token_hex(4)}"


def forget_queue(out: Path) -> None:
    """Let the next run in this folder begin with a queue of its own, and nothing published."""
    (out / QUEUE).unlink(missing_ok=True)
    (out / PUBLISHED / "newest.json").unlink(missing_ok=True)


async def until_published(out: Path, stop: asyncio.Event) -> None:
    """Return once the run in `out` has published params. Raises ActorError if asked to stop."""
    while newest(out / PUBLISHED) is None or not (out / QUEUE).is_file():
        if stop.is_set():
            raise ActorError(f"asked to stop before the run in {out} published any params")
        await asyncio.sleep(WAIT_S)


async def play_remotely(
    out: Path,
    algo: RLAlgorithm,
    tasks: Iterator[Task],
    *,
    url: str | None = None,
    name: str | None = None,
    options: ActorOptions,
    stop: asyncio.Event,
) -> ActorSummary:
    """Be an actor of the run in `out`, which has published params, until `stop`.

    url: the queue's, where it has another address here than at the trainer.
    """
    published = out / PUBLISHED
    address = json.loads((out / QUEUE).read_text(encoding="utf-8"))
    folder, spec = model_and_spec(published)
    model, tokenizer = load_model(folder)
    embedded = EmbeddedChatClient(model, tokenizer, seed=secrets.randbits(31))
    client = FollowingClient(embedded, model, published)
    queue = open_queue(url or address["url"], address["key"])

    async def refresh() -> int | None:
        if _key(out) != address["key"]:
            raise ActorError(f"the run in {out} was started anew; start the actor again")
        return await client.refresh()

    try:
        return await run_pipeline_actor(
            tasks,
            policies(client, spec),
            algo,
            queue,
            refresh,
            options,
            name=name,
            stop=stop,
        )
    finally:
        await queue.aclose()


def started_with(out: Path) -> Mapping[str, Any]:
    """The config.json of a run. Raises ConfigError where there is none."""
    path = out / CONFIG
    if not path.is_file():
        raise ConfigError(f"{out} is no run: {path} does not exist")
    found: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found
