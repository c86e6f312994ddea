"""A run whose episodes actors play: files that the trainer leaves in its folder for them.

OUT/queue.json      where groups go, and who samples: {"url": ..., "key": ..., "servers": [...]};
                    "join" among the servers stands for those on the registry
OUT/queue.password  password of the queue's Redis, if it has one
OUT/published/      model/ and harness.json to begin with, then each version of the params, unless
                    servers sample: these are started from here, and get each version themselves
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from ludic_gym.errors import ConfigError
from ludic_gym.harness import write_harness
from ludic_train.cluster.address import Address, read_address, write_address
from ludic_train.cluster.background_publisher import BackgroundPublisher
from ludic_train.cluster.publish.files import FilesPublisher, folder_for
from ludic_train.cluster.publish.folder import FolderPublisher
from ludic_train.cluster.queues.open_queue import open_queue, open_registry
from ludic_train.cluster.servers.health import PatientPublisher, WatchedSource, none_joined
from ludic_train.cluster.servers.vllm_command import SERVED_DTYPES
from ludic_train.models.adapters import merged_params
from ludic_train.models.load import save_model
from ludic_train.models.modules import is_adapted, vocabulary_of
from ludic_train.queue_urls import PASSWORD_VARIABLE, REDIS
from ludic_train.runs.config import RunConfig
from ludic_train.runs.folder import PUBLISHED
from ludic_train.runs.learner import Learner
from ludic_train.runs.machine import JOIN
from ludic_train.runs.signals import StopSign
from ludic_train.sources.levels import Levels
from ludic_train.sources.publisher import CopyPublisher, PolicyPublisher


def remote_ends(
    config: RunConfig,
    learner: Learner,
    url: str,
    servers: Sequence[str] = (),
    levels: Levels | None = None,
) -> tuple[WatchedSource, BackgroundPublisher]:
    """Source of batches and publisher of params for a trainer whose actors follow `config.out`.

    url: of the queue. servers: addresses of servers that sample, to be started from the folder's
        published/, and JOIN if others may join; without any, actors do, with params from there.
    levels: of a curriculum.
    Raises ConfigError for router replay without servers, and for JOIN with a queue in a file.
    The files are written in an order in which each may be read as soon as it is there: the model,
    its prompts, and last queue.json. A crash between them leaves a folder in which actors wait.
    A new run gets a queue key of its own, so that it never finds groups of another.
    """
    out = config.out
    if config.tune.router_replay and not servers:
        raise ConfigError(
            "router_replay needs the experts that each token went through, which actors with a "
            "model of their own do not report: sample from servers, --engine vllm"
        )
    if JOIN in servers and not url.startswith(REDIS):
        raise ConfigError(f"engine={JOIN} with queue={url}: servers join by a Redis")
    published = out / PUBLISHED
    published.mkdir(exist_ok=True)
    _save_to_begin_with(learner, published / "model", is_served=bool(servers))
    write_harness(published, learner.harness)
    # A resumed run continues with its queue, where groups may wait.
    before = read_address(out)
    key = before.key if before else f"{out.resolve().name}-{secrets.token_hex(4)}"
    stop, look = StopSign(), None
    frozen = [name for name, p in learner.model.named_parameters() if not p.requires_grad]
    publisher: PolicyPublisher
    # One stop for both ends: a signal must end a wait for a batch and a wait for a server.
    if servers:
        # Others may join from other machines.
        folder = folder_for(servers, out)

        def to(urls: Sequence[str]) -> FilesPublisher:
            dtype = SERVED_DTYPES[config.tune.dtype]
            return FilesPublisher(urls, folder, model=learner.model, dtype=dtype, on_failure="skip")

        fixed = [server for server in servers if server != JOIN]
        joined = partial(joined_servers, url, key) if JOIN in servers else none_joined
        publisher = patient = PatientPublisher(to, fixed, stop, joined=joined)
        look = patient.look
    else:
        publisher = FolderPublisher(published, frozen=frozen)
    away = BackgroundPublisher(publisher, look=look, frozen=frozen, here=learner.publisher)
    source = WatchedSource(
        open_queue(url, key),
        stop,
        away.look,
        groups_per_batch=config.learn.groups,
        group_size=config.learn.group_size,
        # Actors are other processes, perhaps with another tokenizer.
        vocab_size=vocabulary_of(learner.model),
        levels=levels,
    )
    # Actors wait for this file, so it names only a queue that could be opened.
    password = os.environ.get(PASSWORD_VARIABLE)
    write_address(out, Address(url=url, key=key, servers=tuple(servers), password=password))
    return source, away


async def joined_servers(url: str, key: str) -> Sequence[str]:
    """Addresses of the servers that have joined a run by now. url, key: of its queue.

    Raises QueueUnavailable, and ConfigError for a queue that is a file.
    """
    # A connection per look: a publication comes once in a batch, in any event loop.
    async with open_registry(url, key) as registry:
        return await registry.servers()


def _save_to_begin_with(learner: Learner, folder: Path, *, is_served: bool) -> None:
    """Write the model; for servers with its adapter merged, as later versions reach them."""
    model = learner.model
    if isinstance(learner.publisher, CopyPublisher):
        # Rank 0 alone is here, and has no more than its shards of the model that learns.
        model = learner.publisher.twin
    if not is_served or not is_adapted(model):
        save_model(model, learner.tokenizer, folder)
        return
    params = dict(merged_params(model.named_parameters(), model))
    save_model(model.get_base_model(), learner.tokenizer, folder, params)
