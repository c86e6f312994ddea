"""The model that learns, its client and its publisher; on one rank, or spread over all.

Rank 0 alone plays, samples, evaluates and writes; without servers it samples from a copy of the
model that gets the params at each publication. The model that learns is built on the meta device.
Params of a checkpoint are then read from its files, by each rank its rows of each; adapters, a
value head and a model made from nothing come from rank 0, which is also the one that reads a
checkpoint that other ranks do not see.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor, nn
from transformers import AutoConfig, PreTrainedModel, PreTrainedTokenizerBase

from ludic_gym.clients.vllm import VLLMTokenClient
from ludic_gym.harness import Harness
from ludic_gym.limits import RequestLimits
from ludic_gym.types import (
    ChatClient,
    Completion,
    MakePolicy,
    Message,
    Rollout,
    Sampling,
    ToolSchema,
)
from ludic_train.algorithms.presets import RLAlgorithm
from ludic_train.algorithms.value_head import add_value_head
from ludic_train.checkpoints.param_files import ParamFiles, hollow, read_own_rows
from ludic_train.distributed.fsdp import checkpoint_activations, shard_from_rank_0, whole_params
from ludic_train.distributed.ranks import all_gather, feed_rank_0, rank, scatter, world_size
from ludic_train.engine.client import LocalChatClient
from ludic_train.errors import ModelNotFound, RankError, UnsupportedModel
from ludic_train.models.adapters import active_adapter
from ludic_train.models.cache import model_and_harness
from ludic_train.models.chat_template import set_chat_args
from ludic_train.models.exact import make_exact
from ludic_train.models.load import LoRA, auto_class, base_of, load_model, quiet
from ludic_train.models.modules import VALUE_HEAD, is_adapted, unwrapped
from ludic_train.models.tiny import make_tiny_model
from ludic_train.models.tokenizer import make_tokenizer
from ludic_train.sources.publisher import CopyPublisher, InProcessPublisher, PolicyPublisher
from ludic_train.types import REFERENCE, VALUES, SAWBatch

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

# Texts that a tokenizer is made from; more do not change what it merges.
TOKENIZER_STEPS = 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Learner:
    """A model in training, the client that samples from its newest params, and its prompts.

    client: samples from `model` in this process, from a copy, or from servers of the same model.
    publisher: brings the params to where the client samples.
    harness: how the model plays, saved beside the params.
    reference: the model as it began, for a KL term, where it had to be made with the model.
    samples_copy: the client samples from a copy, because the model is sharded.
    computes_on: device of its forward passes; "" for that of its params, which may be offloaded.
    checkpoint: folder or hub id whose files hold the params of the model, beside adapters; "" for
        none.
    player: makes the policies of an agent program; None for policies of `harness`.
    """

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    client: ChatClient
    publisher: PolicyPublisher
    harness: Harness
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
        return self.player or self.harness.make_policy(self.client)


def learner_from_nothing(
    demonstrations: Sequence[Rollout],
    harness: Harness,
    *,
    reply: str = "{}",
    seed: int,
    device: str = "cpu",
    exact: bool = False,
) -> Learner:
    """A randomly initialised model of 0.1M parameters.

    demonstrations: their observations and actions are the texts that the tokenizer is made from.
    harness: of the policy; without a limit of tokens, that of the longest demonstration.
    reply: text of the model for an action, "{}" in the place of it.
    seed: of the params and of sampling; equal arguments make equal learners.
    exact: as in `learner_from_model`.
    """
    steps = [step for rollout in demonstrations for step in rollout.steps]
    replies = [reply.replace("{}", step.decision.action or "") for step in steps]
    texts = [step.observation for step in steps[:TOKENIZER_STEPS]] + replies[:TOKENIZER_STEPS]
    tokenizer = make_tokenizer(texts)
    if harness.reply_tokens is None:
        longest = max((len(tokenizer.encode(text)) for text in set(replies)), default=1)
        # One more for the end of the turn.
        harness = replace(harness, reply_tokens=longest + 1)
    model = make_tiny_model(tokenizer, seed=seed)
    return _local(model.to(device), tokenizer, harness, seed, exact=exact)


def learner_from_model(
    name: str,
    *,
    max_tokens: int,
    lora_rank: int,
    seed: int,
    lora: LoRA | None = None,
    harness: Harness | None = None,
    chat_args: Mapping[str, Any] | None = None,
    servers: str | Sequence[str] = (),
    limits: RequestLimits | None = None,
    sampling_masks: bool = False,
    device: str = "cpu",
    dtype: torch.dtype = torch.float32,
    exact: bool = False,
    router_replay: bool = False,
) -> Learner:
    """A model from a run's folder, prompted as in that run, or any other, which learns by LoRA.

    A model from its own folder or the hub sees the env's system prompt and all turns.
    name: folder of a run or of a model, or a hub id.
    max_tokens: of a completion, whatever the run before had.
    lora_rank: 0 trains all params. lora: adapters with other settings than a rank.
    seed: of sampling in this process.
    harness: how it plays, in what it leaves out as in that run.
    chat_args: arguments of its chat template, as of `set_chat_args`.
    servers: addresses of inference servers of the same model, which sample instead of this process.
    limits: of requests to these servers.
    sampling_masks: as in `VLLMTokenClient`, of these servers.
    dtype: of the params that are loaded; adapters are float32 always.
    exact: True for log-probs of the engine that are those of the trainer to the bit.
    router_replay: sampling in this process reports the experts of a mixture.
    Raises ModelNotFound where there is none, UnsupportedModel as the local engine does, and as
    `make_exact` does.
    """
    folder, saved = model_and_harness(name) if Path(name).is_dir() else (name, Harness())
    # How long replies may be belongs to the recipe, and the rest to the model.
    harness = replace((harness or Harness()).over(saved), reply_tokens=max_tokens)
    lora = lora or (LoRA(rank=lora_rank) if lora_rank else None)
    base = base_of(folder)
    model, tokenizer = load_model(folder, lora=lora, device=device, dtype=dtype)
    set_chat_args(tokenizer, chat_args or {})
    if not servers:
        learner = _local(model, tokenizer, harness, seed, exact=exact, router_replay=router_replay)
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
        harness=harness,
        checkpoint=base,
    )


def _local(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    harness: Harness,
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
    return Learner(
        model=model, tokenizer=tokenizer, client=client, publisher=publisher, harness=harness
    )


class OnRank0:
    """Stands for rank 0's client, tokenizer, source and publisher on the other ranks."""

    async def complete(
        self, messages: Sequence[Message], sampling: Sampling, tools: Sequence[ToolSchema] = ()
    ) -> Completion:
        """Raise RankError."""
        raise RankError(f"rank {rank()} was to sample, which rank 0 alone does")

    async def next_batch(self, algo: RLAlgorithm) -> SAWBatch:
        """Raise RankError."""
        raise RankError(f"rank {rank()} was to get a batch, which rank 0 alone does")

    async def publish(self, params: object, version: int) -> None:
        """Raise RankError."""
        raise RankError(f"rank {rank()} was to publish, which rank 0 alone does")

    def state_dict(self) -> dict[str, Any]:
        """Nothing: the state is rank 0's."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take nothing."""


def sharded_learner(
    whole: Learner | None,
    algo: RLAlgorithm,
    *,
    device: str,
    param_dtype: torch.dtype | None,
    offload: bool,
    recompute: bool = False,
    replicas: int = 1,
    router_replay: bool = False,
    seed: int,
) -> Learner:
    """The learner over all ranks, which all call this; None on ranks other than 0.

    whole: rank 0's, on the CPU; its model becomes the shards.
    algo: decides on a value head and on a reference, which has to be sharded like the model.
    param_dtype: type of forward and backward, and of the copy that is sampled from.
    offload, replicas: as of `shard_model`. recompute: activations, in the backward pass.
    router_replay: the copy reports the experts of a mixture.
    """
    description = scatter(
        lambda: [_described(whole)] * world_size(), lambda d: json.dumps(d).encode(), json.loads
    )
    learner = whole or _follower(description)
    learner = replace(learner, samples_copy=description["samples_copy"])
    files = _files(description["checkpoint"], learner.model)
    if whole is not None and description["samples_copy"]:
        # Shards that come from files leave the model itself to be the copy.
        is_kept = files.on_rank_0 is None
        twin = copy.deepcopy(whole.model) if is_kept else whole.model
        learner = replace(learner, model=whole.model if is_kept else hollow(whole.model))
        twin = twin.to(device=device, dtype=param_dtype)
        client = LocalChatClient(
            twin.requires_grad_(False), whole.tokenizer, seed=seed, routed_experts=router_replay
        )
        learner = replace(learner, client=client, publisher=CopyPublisher(client, twin))

    def spread(model: nn.Module) -> None:
        shard_from_rank_0(
            model,
            device=device,
            param_dtype=param_dtype,
            offload=offload,
            replicas=replicas,
            others=files.own or (),
            read=files.on_rank_0.whole if files.on_rank_0 else None,
        )
        if files.own is not None:
            read_own_rows(model, files.own)

    reference: nn.Module | None = None
    if REFERENCE in algo.attach and not is_adapted(learner.model):
        reference = copy.deepcopy(learner.model).requires_grad_(False)
        spread(reference)
    if VALUES in algo.attach:
        # Not on the meta device on rank 0, whose head the others get.
        add_value_head(learner.model, "cpu" if rank() == 0 else None)
    if recompute:
        checkpoint_activations(learner.model)
    spread(learner.model)
    return replace(learner, reference=reference, computes_on=device)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Files:
    """Files of the params. own: on every rank, if all see them. on_rank_0: where it reads them."""

    own: ParamFiles | None = None
    on_rank_0: ParamFiles | None = None


def _files(checkpoint: str, model: nn.Module) -> _Files:
    """The files that this rank reads its shards from; all ranks call this.

    Rank 0 prints a line where another rank does not see them, or where they cannot be read by rank.
    """
    if not checkpoint or world_size() == 1:
        return _Files()
    files, problem = None, ""
    try:
        files = ParamFiles.of(checkpoint)
        files.check(model)
    except (ModelNotFound, UnsupportedModel) as error:
        problem = str(error)
    problems = [text.decode() for text in all_gather(problem.encode())]
    lacking = [number for number, text in enumerate(problems) if text]
    if not lacking:
        return _Files(own=files, on_rank_0=files if rank() == 0 else None)
    if rank() == 0:
        first = lacking[0]
        print(f"rank 0 reads the params for all: on rank {first}, {problems[first]}", flush=True)
    # A model that rank 0 cannot read by part was loaded whole there.
    return _Files(on_rank_0=files if rank() == 0 and not problems[0] else None)


def _described(learner: Learner | None) -> dict[str, Any]:
    """All that another rank must know of rank 0's learner, as JSON.

    "params" has the type of each param, and True if it is trained; "checkpoint" is "" where the
    model is not read by rank.
    """
    assert learner is not None
    model = learner.model
    adapter = None
    if is_adapted(model):
        name = active_adapter(model)
        settings = model.peft_config[name].to_dict()
        adapter = {n: sorted(v) if isinstance(v, set) else v for n, v in settings.items()}
        adapter = {"name": name, "settings": adapter}
    return {
        "config": json.loads(unwrapped(model).config.to_json_string(use_diff=False)),
        "adapter": adapter,
        "params": {n: (str(p.dtype)[6:], p.requires_grad) for n, p in model.named_parameters()},
        "harness": learner.harness.as_data(),
        "samples_copy": isinstance(learner.client, LocalChatClient),
        "checkpoint": learner.checkpoint,
    }


def _follower(description: Mapping[str, Any]) -> Learner:
    """A learner whose model has shapes only, of the kind that rank 0 described."""
    return Learner(
        model=_skeleton(description),
        tokenizer=cast("PreTrainedTokenizerBase", OnRank0()),
        client=OnRank0(),
        publisher=OnRank0(),
        harness=Harness(**description["harness"]),
    )


def _skeleton(description: Mapping[str, Any]) -> PreTrainedModel:
    config = AutoConfig.for_model(**description["config"])
    with quiet(), torch.device("meta"):
        model: PreTrainedModel = auto_class(config).from_config(config)
        if description["adapter"] is not None:
            from peft import PeftConfig, get_peft_model

            adapter = description["adapter"]
            config = PeftConfig.from_peft_type(**adapter["settings"])
            model = get_peft_model(model, config, adapter_name=adapter["name"])
    params = dict(model.named_parameters())
    if strange := sorted(params.keys() ^ description["params"].keys())[:3]:
        raise RankError(
            f"rank {rank()} built a model that differs from rank 0's in {strange}; install the "
            "same transformers and peft everywhere"
        )
    for name, (dtype, is_trained) in description["params"].items():
        params[name].data = params[name].data.to(getattr(torch, dtype))
        params[name].requires_grad_(is_trained)
    return model
