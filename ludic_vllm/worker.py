"""Methods that a trainer calls in vLLM's workers, by /collective_rpc."""

from __future__ import annotations

from typing import Any

from torch import nn
from vllm.model_executor.layers.utils import dispatch_cpu_unquantized_gemm
from vllm.model_executor.layers.vocab_parallel_embedding import (
    ParallelLMHead,
    VocabParallelEmbedding,
)
from vllm.platforms import current_platform


class WorkerExtension:
    """Mixed into the worker by `--worker-extension-cls ludic_vllm.worker.WorkerExtension`."""

    weight_transfer_engine: Any

    def ludic_settled(self) -> dict[str, Any]:
        """State of the params that are staged, see `Staging.state`."""
        state: dict[str, Any] = self.weight_transfer_engine.staging.state
        return state


def repair_packed(model: nn.Module) -> None:
    """Pack params on a CPU again that a reload leaves as they are.

    On a CPU, vLLM 0.32 computes from a packed copy of its params. A reload renews all copies but
    that of a head that is tied to the embeddings, and leaves experts of a mixture unpacked.
    """
    if not current_platform.is_cpu():
        return
    for module in model.modules():
        if (kernel := getattr(getattr(module, "quant_method", None), "moe_kernel", None)) is None:
            continue
        # As vLLM does when it loads the experts first.
        kernel.fused_experts.process_weights_after_loading(module)
    if not getattr(getattr(model, "config", None), "tie_word_embeddings", False):
        return
    tables = [m for m in model.modules() if isinstance(m, VocabParallelEmbedding)]
    embeddings = [m for m in tables if not isinstance(m, ParallelLMHead)]
    for head in tables:
        if isinstance(head, ParallelLMHead):
            head.weight = embeddings[0].weight
            dispatch_cpu_unquantized_gemm(head, remove_weight=False)
