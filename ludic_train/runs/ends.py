"""The ends of a run: where batches come from, where params go to, and who samples.

Those of runs in several processes are in the wings `ludic_train.cluster` and `ludic_train.agents`,
which no other module of the core imports.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ludic_gym.limits import RequestLimits
from ludic_gym.parsers import Parser
from ludic_gym.types import ChatClient
from ludic_train.runs.config import MAX_TOKENS, RunConfig
from ludic_train.runs.learner import Learner
from ludic_train.runs.machine import Machine
from ludic_train.runs.signals import StopSign
from ludic_train.sources.base import BatchSource
from ludic_train.sources.levels import Levels
from ludic_train.sources.publisher import PolicyPublisher

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from ludic_train.cluster.servers.supervisor import SupervisedServer
    from ludic_train.cluster.servers.vllm_command import Installed
    from ludic_train.cluster.source import RecordCredit


async def _nothing() -> None:
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class Ends:
    """Controls of the source and the publisher of a stage.

    stop: ends their waits.
    finish: returns once the last version is published; raises PublishError, StopRequested.
    is_settled: True if a run that is resumed at a version repeats no update.
    aclose: ends their threads and connections.
    """

    stop: StopSign = field(default_factory=StopSign)
    finish: Callable[[], Awaitable[None]] = _nothing
    is_settled: Callable[[int], bool] = lambda version: True
    aclose: Callable[[], Awaitable[None]] = _nothing


def served_client(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    servers: str | Sequence[str],
    limits: RequestLimits,
    *,
    sampling_masks: bool = False,
) -> tuple[ChatClient, PolicyPublisher]:
    """A client of inference servers of a model, and the publisher that brings its params to them.

    sampling_masks: as in `VLLMTokenClient`.
    """
    from ludic_train.cluster.publish.files import FilesPublisher
    from ludic_train.models.token_client import token_client

    client = token_client(
        servers,
        tokenizer,
        options=limits.options,
        # Seeds would end a vLLM on a CPU, and repeat no run elsewhere: batches change the rounding.
        seeds=False,
        sampling_masks=sampling_masks,
    )
    return client, FilesPublisher(servers, clients=[client], model=model)


def queue_ends(
    config: RunConfig,
    learner: Learner,
    machine: Machine,
    levels: Levels | None,
    credit: RecordCredit | None,
) -> tuple[BatchSource, PolicyPublisher, Ends]:
    """Source, publisher and controls of a run whose actors play, through the machine's queue.

    credit: keeps the credit of each batch.
    Raises QueueError for a URL that names no queue, and ConfigError as `remote_ends` does.
    """
    from ludic_train.cluster.trainer_ends import remote_ends

    assert machine.queue is not None
    source, publisher = remote_ends(config, learner, machine.queue, machine.servers, levels)
    source.credit = credit

    async def aclose() -> None:
        await publisher.aclose()
        await source.aclose()

    ends = Ends(
        stop=source.stop,
        finish=publisher.finish,
        # A queue gives whole batches again, so all updates from the last one must have been made.
        is_settled=lambda version: source.settled == version,
        aclose=aclose,
    )
    return source, publisher, ends


def installed_vllm(config: RunConfig, machine: Machine) -> Installed | None:
    """The vLLM that a run starts; None for a run that starts none.

    Raises ConfigError where there is none, or one that cannot serve the run's model.
    """
    if not machine.starts_vllm:
        return None
    from ludic_train.cluster.servers.run_server import usable_vllm

    return usable_vllm(config, machine)


def served_learner(
    learner: Learner, config: RunConfig, machine: Machine, vllm: Installed | None, device: str
) -> AbstractAsyncContextManager[tuple[Learner, Machine, SupervisedServer | None]]:
    """Context of the learner and the machine of a run, with the servers that sample for it.

    vllm: result of `installed_vllm`. device: where this process trains.
    With a queue, actors sample from the servers, and the learner stays as it is.
    Raises ServerError for a server that cannot be started, with the end of its log.
    """
    if vllm is not None:
        from ludic_train.cluster.servers.run_server import with_own_server

        return with_own_server(learner, config, machine, vllm, device)
    if machine.servers and machine.queue is None:
        from ludic_train.cluster.servers.run_server import with_found_servers

        return with_found_servers(learner, config, machine)
    return nullcontext((learner, machine, None))


@asynccontextmanager
async def with_agent(learner: Learner, agent: str | None) -> AsyncIterator[Learner]:
    """The learner whose episodes an agent program plays; itself without one.

    Raises ConfigError for a "module:function" that does not exist.
    """
    if agent is None:
        yield learner
        return
    harness, config = learner.harness, learner.model.config
    make_policy, aclose = agent_policies(
        agent,
        learner.client,
        learner.tokenizer,
        max_tokens=harness.reply_tokens,
        max_positions=getattr(config, "max_position_embeddings", None),
        parser=harness.parse,
    )
    try:
        yield replace(learner, player=make_policy)
    finally:
        await aclose()


def agent_policies(
    agent: str,
    client: Any,  # noqa: ANN401 - continues token ids
    tokenizer: Any,  # noqa: ANN401
    *,
    max_tokens: int | None,
    max_positions: int | None,
    parser: Parser | None,
) -> tuple[Any, Callable[[], Awaitable[None]]]:
    """Policies of an agent program that plays with a client, and a function that ends its gateway.

    max_tokens: of a reply. max_positions: of the model. parser: finds the action in an answer.
    """
    # Its server takes a third of a second to import.
    from ludic_train.agents.gateway import Gateway
    from ludic_train.agents.policies import AgentPolicies

    gateway = Gateway(
        client, tokenizer, max_tokens=max_tokens or MAX_TOKENS, max_positions=max_positions
    )
    policies = AgentPolicies.named(gateway, agent, parser)
    return policies, gateway.aclose
