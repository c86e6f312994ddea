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

    model_runner: Any

    def ludic_repair_tied_head(self) -> bool:
        """Repair the head on a CPU after the stock `reload_weights`; True if there was one."""
        return repair_tied_head(self.model_runner.get_model())


def repair_tied_head(model: nn.Module) -> bool:
    """Pack a tied output head on a CPU again from the embeddings; True if there was one.

    On a CPU, vLLM 0.32 computes linear layers from a packed copy of their params. A reload renews
    the copies of all layers but that of a head that is tied to the embeddings.
    """
    tied = getattr(getattr(model, "config", None), "tie_word_embeddings", False)
    if not (current_platform.is_cpu() and tied):
        return False
    tables = [m for m in model.modules() if isinstance(m, VocabParallelEmbedding)]
    heads = [m for m in tables if isinstance(m, ParallelLMHead)]
    embeddings = [m for m in tables if not isinstance(m, ParallelLMHead)]
    for head in heads:
        head.weight = embeddings[0].weight
        dispatch_cpu_unquantized_gemm(head, remove_weight=False)
    return bool(heads)
