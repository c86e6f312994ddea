"""An actor of a run: its tasks, prompts and params come from the run's folder."""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from ludic_gym.clients.vllm import VLLMTokenClient
from ludic_gym.errors import ClientError, ConfigError
from ludic_gym.limits import RequestLimits
from ludic_gym.recorder import Recorder
from ludic_gym.sampling import leaves_out_tokens
from ludic_gym.types import ChatClient, Episode, MakePolicy, Task
from ludic_train.cluster.actor import ActorOptions, ActorSummary, Refresh, run_pipeline_actor
from ludic_train.cluster.address import Address, read_address
from ludic_train.cluster.queues.open_queue import open_queue, open_registry
from ludic_train.cluster.queues.retry import retry
from ludic_train.cluster.server_versions import ServedVersions
from ludic_train.disk import disk_failure
from ludic_train.errors import ActorError
from ludic_train.models.cache import model_and_harness
from ludic_train.models.token_client import token_client
from ludic_train.models.tokenizer import load_tokenizer, torch_hidden
from ludic_train.queue_urls import REDIS
from ludic_train.runs.ends import agent_policies
from ludic_train.runs.folder import PUBLISHED, QUEUE, RESULTS
from ludic_train.runs.machine import JOIN
from ludic_train.sources.publisher import newest
from ludic_train.sources.rollouts import Score, playing

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from ludic_train.cluster.queues.run_registry import RunRegistry

WAIT_S, FIRST_NOTE_S, NOTE_EVERY_S = 0.2, 3.0, 30.0
# Failures in a row that an actor of servers survives: ten minutes, as long as a trainer waits.
OUTAGES = 24


async def until_published(out: Path, stop: asyncio.Event) -> None:
    """Return once the run in `out` has published params, or named servers that sample.

    out: folder of the run, which need not exist yet: actors may be started before their trainer.
        What is missing is logged twice a minute.
    stop: checked a few times a second. Raises ActorError if it is set before.
    """
    loop = asyncio.get_running_loop()
    next_note_at = loop.time() + FIRST_NOTE_S
    while True:
        address = read_address(out)
        if address is not None and (address.servers or newest(out / PUBLISHED) is not None):
            return
        if stop.is_set():
            raise ActorError(f"stopped before the run in {out} published any params")
        if loop.time() >= next_note_at:
            next_note_at = loop.time() + NOTE_EVERY_S
            logging.getLogger(__name__).warning("waiting for %s", _missing(out, address))
        await asyncio.sleep(WAIT_S)


def _missing(out: Path, address: Address | None) -> str:
    """The missing part of a run's folder, and the command that writes it."""
    if address is not None:
        return f"the first params of the run in {out}"
    if not out.is_dir():
        return f"{out}, where no run is yet: ludic train ... --out {out} --queue URL"
    return (
        f"{out / QUEUE}, which a run with --queue writes after its supervised updates, and one "
        "without --queue never"
    )


async def play_remotely(
    out: Path,
    tasks: Iterator[Task],
    *,
    url: str | None = None,
    servers: Sequence[str] = (),
    name: str | None = None,
    options: ActorOptions,
    stop: asyncio.Event,
    self_play: bool = False,
    score: Score | None = None,
    agent: str | None = None,
    limits: RequestLimits | None = None,
    levels: dict[str, int] | None = None,
    recorder: Recorder | None = None,
) -> ActorSummary:
    """Be an actor of the run in `out`, for which `until_published` returned, until `stop`.

    Ends with the run too, and sets `stop` then.

    out: folder of the run, on a disk that the trainer writes to as well.
    tasks: without end, or the actor ends with them. name: as in `run_pipeline_actor`.
    url, servers: of the queue and the servers, where they have other addresses here than at the
        trainer.
    self_play: the model plays all agents of PettingZoo environments.
    score: gives rollouts their rewards, in place of the environment.
    agent: program that plays with the model, as of `AgentPolicies.named`.
    recorder: keeps the episodes; where its folder cannot be written, a warning is logged.
    limits: of requests to servers. levels: as in `run_pipeline_actor`.
    options: `max_failures` is raised where servers sample, which are started again in minutes.
    Raises ConfigError for a folder without a queue, and for servers that return no sampling masks
    where the tasks need them; ActorError as `run_pipeline_actor` does and when the folder's run was
    replaced by another.
    """
    address = read_address(out)
    if address is None:
        raise ConfigError(f"{out} is no run with a queue: {out / QUEUE} does not exist")
    # The trainer's own addresses may lead nowhere here, such as localhost or those of a container.
    servers = tuple(servers) or address.servers
    async with AsyncExitStack() as stack:
        queue = open_queue(url or address.url, address.key, password=address.password)
        # Closed last, after the actor has left the queue.
        stack.push_async_callback(queue.aclose)
        folder, harness = model_and_harness(out / PUBLISHED)
        # One task is looked at: the sampling parameters of all are equal.
        first = next(tasks, None)
        tasks = chain(() if first is None else (first,), tasks)
        masks = first is not None and leaves_out_tokens(first.sampling)
        where, registry = url or address.url, None
        if JOIN in servers:
            if not where.startswith(REDIS):
                raise ConfigError("servers that join need a Redis as the queue")
            opening = open_registry(where, address.key, address.password)
            registry = await stack.enter_async_context(opening)
        client, tokenizer, refresh = await _sampling(
            out, servers, stack, registry, stop, masks=masks, limits=limits or RequestLimits()
        )
        if agent is None:
            make_policy: MakePolicy = harness.make_policy(client)
        else:
            config = Path(folder) / "config.json"
            # Of servers, only the tokenizer may be here.
            settings = json.loads(config.read_text()) if config.is_file() else {}
            make_policy, aclose = agent_policies(
                agent,
                client,
                tokenizer,
                max_tokens=harness.reply_tokens,
                max_positions=settings.get("max_position_embeddings"),
                parser=harness.parse,
            )
            stack.push_async_callback(aclose)
        return await run_pipeline_actor(
            tasks,
            playing(make_policy, score, self_play=self_play),
            queue,
            _of_the_same_run(out, address, refresh, stop),
            replace(options, max_failures=OUTAGES) if servers else options,
            name=name,
            stop=stop,
            levels=levels,
            record=partial(_kept_if_possible, recorder) if recorder else None,
        )


def _kept_if_possible(recorder: Recorder, episodes: Sequence[Episode]) -> None:
    """Record the episodes of a group; an actor may have no right to write, which ends no run."""
    try:
        recorder.write(episodes, use="train")
    except OSError as error:
        reason = disk_failure(recorder.folder, error)
        logging.getLogger(__name__).warning("the episodes of a group are not kept: %s", reason)


async def _sampling(
    out: Path,
    servers: Sequence[str],
    stack: AsyncExitStack,
    registry: RunRegistry | None,
    stop: asyncio.Event,
    *,
    masks: bool,
    limits: RequestLimits,
) -> tuple[ChatClient, PreTrainedTokenizerBase, Refresh]:
    """The client that samples: of servers, or of a model here that follows the run's folder.

    servers: with JOIN among them, those on the registry too; the first is waited for.
    masks: True if servers must return sampling masks.
    """
    published = out / PUBLISHED
    folder = model_and_harness(published)[0]
    if not servers:
        # An actor of servers holds no model, and must not pay for torch.
        from ludic_train.cluster.publish.folder import follow_folder
        from ludic_train.engine.client import LocalChatClient
        from ludic_train.models.load import load_model

        model, tokenizer = load_model(folder)
        local = LocalChatClient(model, tokenizer, seed=secrets.randbits(31))
        return local, tokenizer, follow_folder(local, model, published)
    with torch_hidden():
        tokenizer = load_tokenizer(folder)

    fixed = [server for server in servers if server != JOIN]
    urls: Sequence[str] = fixed
    while registry is not None and not urls:
        if stop.is_set():
            raise ActorError("stopped before a server joined the run")
        if not (urls := await retry(registry.servers)):
            await asyncio.sleep(WAIT_S)
    # Seeds would end a vLLM on a CPU, and repeat no run elsewhere: batches change the rounding.
    client = token_client(
        urls, tokenizer, options=limits.options, seeds=False, sampling_masks=masks
    )
    served = ServedVersions(fixed, [client], joined=registry.servers if registry else None)
    stack.push_async_callback(client.aclose)
    stack.push_async_callback(served.aclose)
    refresh = _patient_at_first(served)
    refresh = _after_masks(client, refresh) if masks else refresh
    return client, tokenizer, refresh


def _after_masks(client: VLLMTokenClient, refresh: Refresh) -> Refresh:
    """`refresh`, which raises ConfigError if the servers, once they respond, return no masks."""
    is_known = False

    async def checked() -> int | None:
        nonlocal is_known
        version = await refresh()
        if version is not None and not is_known:
            await client.require_sampling_masks()
            is_known = True
        return version

    return checked


def _patient_at_first(served: ServedVersions) -> Refresh:
    """Takes a server that does not respond to be starting still, until one had a version."""
    loop = asyncio.get_running_loop()
    began_at = next_note_at = loop.time()

    async def refresh() -> int | None:
        nonlocal next_note_at
        try:
            return await served.refresh()
        except ClientError as error:
            if served.version is not None:
                raise
            if loop.time() >= next_note_at:
                next_note_at = loop.time() + NOTE_EVERY_S
                waited_s = loop.time() - began_at
                log = logging.getLogger(__name__)
                log.warning("waiting for the servers, %.0f s so far: %s", waited_s, error)
            return None

    return refresh


def _of_the_same_run(out: Path, address: Address, refresh: Refresh, stop: asyncio.Event) -> Refresh:
    """`refresh`, as long as the run in `out` is the one that the actor began with.

    Sets `stop` once the run has ended.
    """
    # A run that is continued has the results of its former end until it ends again.
    before = _ended_at(out)

    async def checked() -> int | None:
        if _ended_at(out) != before and not stop.is_set():
            logging.getLogger(__name__).warning("the run in %s has ended; so does this actor", out)
            stop.set()
        # With each refresh, because a new run has a queue of its own and never reads this one's.
        now = read_address(out)
        if now is None or now.key != address.key:
            raise ActorError(f"the run in {out} was started anew; start the actor again")
        if now.servers != address.servers:
            raise ActorError(f"the run in {out} has other servers now; start the actor again")
        return await refresh()

    return checked


def _ended_at(out: Path) -> int | None:
    """When the run wrote its results, in nanoseconds; None before it has ended."""
    try:
        return (out / RESULTS).stat().st_mtime_ns
    except FileNotFoundError:
        return None
