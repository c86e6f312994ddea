"""Methods that a trainer calls in vLLM's workers, by /collective_rpc."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from vllm.model_executor.layers.utils import dispatch_cpu_unquantized_gemm
from vllm.model_executor.layers.vocab_parallel_embedding import (
    ParallelLMHead,
    VocabParallelEmbedding,
)
from vllm.platforms import current_platform

from ludic_vllm.cards import own_peer
from ludic_vllm.peers import peer_fields


class WorkerExtension:
    """Mixed into the worker by `--worker-extension-cls ludic_vllm.worker.WorkerExtension`."""

    model_runner: Any
    weight_transfer_engine: Any
    device: Any

    def ludic_peer(self) -> dict[str, Any]:
        """The worker as a receiver of params, see `ludic_vllm.cards.peer_of`."""
        return peer_fields(own_peer(torch.device(self.device)))

    def ludic_settled(self) -> dict[str, bool]:
        """State of the announced params: "settled" if they have arrived, or have failed to.

        "prepared": True if they are made ready before a swap. "merges": True if adapters can come
        alone.
        """
        engine = self.weight_transfer_engine
        return {
            "settled": engine.is_settled,
            "prepared": bool(engine.is_prepared),
            "merges": engine.merges,
        }

    def ludic_repair_packed(self) -> bool:
        """Pack params on a CPU again after the stock `reload_weights`; True if there were any."""
        return repair_packed(self.model_runner.get_model())


def repair_packed(model: nn.Module) -> bool:
    """Pack params on a CPU again that a reload leaves as they are; True if there were any.

    On a CPU, vLLM 0.32 computes from a packed copy of its params. A reload renews all copies but
    that of a head that is tied to the embeddings, and leaves experts of a mixture unpacked.
    """
    if not current_platform.is_cpu():
        return False
    repaired = [_repaired_experts(module) for module in model.modules()]
    return _repaired_head(model) or any(repaired)


def _repaired_head(model: nn.Module) -> bool:
    """Pack a tied output head again from the embeddings; True if there was one."""
    if not getattr(getattr(model, "config", None), "tie_word_embeddings", False):
        return False
    tables = [m for m in model.modules() if isinstance(m, VocabParallelEmbedding)]
    heads = [m for m in tables if isinstance(m, ParallelLMHead)]
    embeddings = [m for m in tables if not isinstance(m, ParallelLMHead)]
    for head in heads:
        head.weight = embeddings[0].weight
        dispatch_cpu_unquantized_gemm(head, remove_weight=False)
    return bool(heads)


def _repaired_experts(module: nn.Module) -> bool:
    """Pack the experts of a layer, as vLLM does when it loads them first; True if it has some."""
    kernel = getattr(getattr(module, "quant_method", None), "moe_kernel", None)
    if kernel is None:
        return False
    kernel.fused_experts.process_weights_after_loading(module)
    return True
