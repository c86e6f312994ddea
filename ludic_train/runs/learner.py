"""The model that learns, its client and its publisher."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ludic_gym.clients.vllm import VLLMTokenClient
from ludic_gym.limits import RequestLimits
from ludic_gym.types import ChatClient, MakePolicy, Rollout
from ludic_train.checkpoints.param_files import hollow_from_files
from ludic_train.distributed.fsdp import whole_params
from ludic_train.distributed.ranks import feed_rank_0
from ludic_train.engine.client import LocalChatClient
from ludic_train.engine.policy_spec import PolicySpec, model_and_spec, policies
from ludic_train.errors import ModelNotFound, UnsupportedModel
from ludic_train.models.cache import resolved
from ludic_train.models.chat_template import set_chat_args
from ludic_train.models.exact import make_exact
from ludic_train.models.head import VALUE_HEAD
from ludic_train.models.load import LoRA, base_of, load_model
from ludic_train.models.tiny import make_tiny_model
from ludic_train.models.tokenizer import load_tokenizer, make_tokenizer
from ludic_train.sources.publisher import CopyPublisher, InProcessPublisher, PolicyPublisher

# Texts that a tokenizer is made from; more do not change what it merges.
TOKENIZER_STEPS = 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Learner:
    """A model in training, the client that samples from its newest params, and its prompts.

    client: samples from `model` in this process, from a copy, or from servers of the same model.
    publisher: brings the params to where the client samples.
    spec: context, system prompt and limits, saved beside the params.
    reference: the model as it began, for a KL term, where it had to be made with the model.
    samples_copy: the client samples from a copy, because the model is sharded.
    computes_on: device of its forward passes; "" for that of its params, which may be offloaded.
    checkpoint: folder or hub id whose files hold the params of the model, beside adapters; "" for
        none.
    player: makes the policies of an agent program; None for policies of `spec`.
    """

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    client: ChatClient
    publisher: PolicyPublisher
    spec: PolicySpec
    reference: nn.Module | None = None
    samples_copy: bool = False
    computes_on: str = ""
    checkpoint: str = ""
    player: MakePolicy | None = None

    async def refresh(self) -> None:
        """Bring the params to a copy that the client samples from; all ranks must call it."""
        if self.samples_copy:
            await feed_rank_0(whole_params(self.model), self._copied)

    async def _copied(self, params: Iterable[tuple[str, Tensor]]) -> None:
        """Copy the params; rank 0 alone calls it."""
        assert isinstance(self.publisher, CopyPublisher)
        await self.publisher.copy((name, p) for name, p in params if VALUE_HEAD not in name)

    async def aclose(self) -> None:
        """Close the connections of a client that has any."""
        if isinstance(self.client, VLLMTokenClient):
            await self.client.aclose()

    @property
    def device(self) -> str:
        """Device of its forward passes, such as "cpu" or "cuda:0"."""
        return self.computes_on or str(next(self.model.parameters()).device)

    @property
    def make_policy(self) -> MakePolicy:
        """Makes policies that sample from the params published last."""
        return self.player or policies(self.client, self.spec)


def learner_from_nothing(
    demonstrations: Sequence[Rollout],
    spec: PolicySpec,
    *,
    reply: str = "{}",
    seed: int,
    device: str = "cpu",
    exact: bool = False,
) -> Learner:
    """A randomly initialised model of 0.1M parameters.

    demonstrations: their observations and actions are the texts that the tokenizer is made from.
    spec: prompts of the policy; without a limit of tokens, that of the longest demonstration.
    reply: text of the model for an action, "{}" in the place of it.
    seed: of the params and of sampling; equal arguments make equal learners.
    exact: as in `learner_from_model`.

    >>> from ludic_gym import Decision, Step, Task
    >>> steps = (Step(observation="2 + 3 = ?", decision=Decision(action="5"), reward=1.0),)
    >>> played = Rollout(task=Task(env_id="ludic/Arithmetic-v0"), steps=steps)
    >>> learner = learner_from_nothing([played], PolicySpec(), reply="<answer>{}</answer>", seed=0)
    >>> learner.spec.max_tokens, learner.device
    (9, 'cpu')
    """
    steps = [step for rollout in demonstrations for step in rollout.steps]
    replies = [reply.replace("{}", step.decision.action or "") for step in steps]
    texts = [step.observation for step in steps[:TOKENIZER_STEPS]] + replies[:TOKENIZER_STEPS]
    tokenizer = make_tokenizer(texts)
    if spec.max_tokens is None:
        longest = max((len(tokenizer.encode(text)) for text in set(replies)), default=1)
        # One more for the end of the turn.
        spec = replace(spec, max_tokens=longest + 1)
    model = make_tiny_model(tokenizer, seed=seed)
    return _local(model.to(device), tokenizer, spec, seed, exact=exact)


def learner_from_model(
    name: str,
    *,
    max_tokens: int,
    lora_rank: int,
    seed: int,
    lora: LoRA | None = None,
    context: str | None = None,
    parser: str | None = None,
    system_prompt: str | None = None,
    think_tokens: int | None = None,
    think_closing: str | None = None,
    chat_args: Mapping[str, Any] | None = None,
    servers: str | Sequence[str] = (),
    limits: RequestLimits | None = None,
    sampling_masks: bool = False,
    device: str = "cpu",
    dtype: torch.dtype = torch.float32,
    exact: bool = False,
    router_replay: bool = False,
    is_sharded: bool = False,
) -> Learner:
    """A model from a run's folder, prompted as in that run, or any other, which learns by LoRA.

    A model from its own folder or the hub sees the env's system prompt and all turns.
    name: folder of a run or of a model, or a hub id.
    max_tokens: of a completion, whatever the run before had.
    lora_rank: 0 trains all params. lora: adapters with other settings than a rank.
    seed: of sampling in this process.
    context, parser, system_prompt: None for those of the run, or the environment's.
    think_tokens, think_closing: None for those of the run; 0 tokens let thoughts go on.
    chat_args: arguments of its chat template, as of `set_chat_args`.
    servers: addresses of inference servers of the same model, which sample instead of this process.
    limits: of requests to these servers.
    sampling_masks: as in `VLLMTokenClient`, of these servers.
    dtype: of the params that are loaded; adapters are float32 always.
    exact: True for log-probs of the engine that are those of the trainer to the bit.
    router_replay: sampling in this process reports the experts of a mixture.
    is_sharded: with servers, a model without values, on the meta device but for its adapters, whose
        files `sharded_learner` reads; a whole one where they cannot be read by rank.
    Raises ModelNotFound where there is none, UnsupportedModel as the local engine does, and as
    `make_exact` does.
    """
    folder, spec = model_and_spec(Path(name)) if Path(name).is_dir() else (name, PolicySpec())
    given = {
        "context": context,
        "parser": parser,
        "system_prompt": system_prompt,
        "think_closing": think_closing,
    }
    # How long replies may be belongs to the recipe, and prompts to the model.
    changes: dict[str, Any] = {n: value for n, value in given.items() if value is not None}
    if think_tokens is not None:
        changes["think_tokens"] = think_tokens or None
    spec = replace(spec, max_tokens=max_tokens, **changes)
    lora = lora or (LoRA(rank=lora_rank) if lora_rank else None)
    base = base_of(folder)
    if is_sharded and servers and base == str(resolved(folder)):
        model, tokenizer = _hollow_or_whole(folder, lora, dtype)
    else:
        model, tokenizer = load_model(folder, lora=lora, device=device, dtype=dtype)
    set_chat_args(tokenizer, chat_args or {})
    if not servers:
        learner = _local(model, tokenizer, spec, seed, exact=exact, router_replay=router_replay)
        return replace(learner, checkpoint=base)
    from ludic_train.runs.ends import served_client

    client, publisher = served_client(
        model, tokenizer, servers, limits or RequestLimits(), sampling_masks=sampling_masks
    )
    return Learner(
        model=model,
        tokenizer=tokenizer,
        client=client,
        publisher=publisher,
        spec=spec,
        checkpoint=base,
    )


def _hollow_or_whole(
    name: str | Path, lora: LoRA | None, dtype: torch.dtype
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Model and tokenizer; no params are read where each rank can read its own."""
    try:
        return hollow_from_files(name, lora=lora, dtype=dtype), load_tokenizer(resolved(name))
    except (ModelNotFound, UnsupportedModel):
        # Fused experts, for example, and a model that is yet to be downloaded.
        return load_model(name, lora=lora, dtype=dtype)


def _local(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    spec: PolicySpec,
    seed: int,
    *,
    exact: bool,
    router_replay: bool = False,
) -> Learner:
    """The learner that samples in this process, from the same params that it trains."""
    if exact:
        # Before the client, whose engine decodes as the model computes then.
        make_exact(model)
    client = LocalChatClient(model, tokenizer, seed=seed, routed_experts=router_replay)
    publisher = InProcessPublisher(client)
    return Learner(model=model, tokenizer=tokenizer, client=client, publisher=publisher, spec=spec)
