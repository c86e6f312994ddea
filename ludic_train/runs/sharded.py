"""A learner over all ranks: rank 0 describes it, and each rank gets its shards.

Rank 0 alone plays, samples, evaluates and writes; without servers it samples from a copy of the
model that gets the params at each publication. The model that learns is built on the meta device.
Params of a checkpoint are then read from its files, by each rank its rows of each; adapters, a
value head and a model made from nothing come from rank 0, which is also the one that reads a
checkpoint that other ranks do not see.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM

from ludic_gym.types import Completion, Message, Sampling, ToolSchema
from ludic_train.algorithms.presets import RLAlgorithm
from ludic_train.algorithms.value_head import add_value_head
from ludic_train.checkpoints.param_files import ParamFiles, hollow, read_own_rows
from ludic_train.distributed.fsdp import checkpoint_activations, shard_from_rank_0
from ludic_train.distributed.ranks import all_gather, rank, scatter, world_size
from ludic_train.engine.client import LocalChatClient
from ludic_train.engine.policy_spec import PolicySpec
from ludic_train.errors import ModelNotFound, RankError, UnsupportedModel
from ludic_train.models.load import quiet
from ludic_train.models.modules import is_adapted, unwrapped
from ludic_train.runs.learner import Learner
from ludic_train.sources.publisher import CopyPublisher
from ludic_train.types import REFERENCE, VALUES, SAWBatch

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Description:
    """All that another rank must know of rank 0's learner.

    config: of the model. adapter: settings of its adapters, if any. params: type of each param by
        name, and True if it is trained. spec: of the policy. samples_copy: as of `Learner`.
    checkpoint: as of `Learner`; "" where the model is not read by rank.
    """

    config: Mapping[str, Any]
    adapter: Mapping[str, Any] | None
    params: Mapping[str, tuple[str, bool]]
    spec: Mapping[str, Any]
    samples_copy: bool
    checkpoint: str


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
    own = scatter(lambda: [_described(whole)] * world_size(), _encoded, _decoded)
    learner = whole or _follower(own)
    learner = replace(learner, samples_copy=own.samples_copy)
    files = _files(own.checkpoint, learner.model)
    if whole is not None and own.samples_copy:
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
    found, problem = None, ""
    try:
        found = ParamFiles.of(checkpoint)
        found.check(model)
    except (ModelNotFound, UnsupportedModel) as error:
        problem = str(error)
    problems = [text.decode() for text in all_gather(problem.encode())]
    lacking = [number for number, text in enumerate(problems) if text]
    if not lacking:
        return _Files(own=found, on_rank_0=found if rank() == 0 else None)
    if rank() == 0:
        first = lacking[0]
        print(f"rank 0 reads the params for all: on rank {first}, {problems[first]}", flush=True)
    # A model that rank 0 cannot read by part was loaded whole there.
    return _Files(on_rank_0=found if rank() == 0 and not problems[0] else None)


def _described(learner: Learner | None) -> _Description:
    """The description of rank 0's learner."""
    assert learner is not None
    model = learner.model
    adapter = None
    if is_adapted(model):
        settings = model.peft_config["default"].to_dict()
        adapter = {n: sorted(v) if isinstance(v, set) else v for n, v in settings.items()}
    return _Description(
        config=json.loads(unwrapped(model).config.to_json_string(use_diff=False)),
        adapter=adapter,
        params={n: (str(p.dtype)[6:], p.requires_grad) for n, p in model.named_parameters()},
        spec=asdict(learner.spec),
        samples_copy=isinstance(learner.client, LocalChatClient),
        checkpoint=learner.checkpoint,
    )


def _encoded(description: _Description) -> bytes:
    return json.dumps(asdict(description)).encode()


def _decoded(data: bytes) -> _Description:
    return _Description(**json.loads(data))


def _follower(own: _Description) -> Learner:
    """A learner whose model has shapes only, of the kind that rank 0 described."""
    return Learner(
        model=_skeleton(own),
        tokenizer=cast("PreTrainedTokenizerBase", OnRank0()),
        client=OnRank0(),
        publisher=OnRank0(),
        spec=PolicySpec(**own.spec),
    )


def _skeleton(own: _Description) -> PreTrainedModel:
    """The described model on the meta device."""
    config = AutoConfig.for_model(**own.config)
    with quiet(), torch.device("meta"):
        model: PreTrainedModel = AutoModelForCausalLM.from_config(config)
        if own.adapter is not None:
            from peft import PeftConfig, get_peft_model

            model = get_peft_model(model, PeftConfig.from_peft_type(**own.adapter))
    params = dict(model.named_parameters())
    if strange := sorted(params.keys() ^ own.params.keys())[:3]:
        raise RankError(
            f"rank {rank()} built a model that differs from rank 0's in {strange}; install the "
            "same transformers and peft everywhere"
        )
    for name, (dtype, is_trained) in own.params.items():
        params[name].data = params[name].data.to(getattr(torch, dtype))
        params[name].requires_grad_(is_trained)
    return model
