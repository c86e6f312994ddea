"""What runs inside vLLM: an engine that takes params from a trainer, checked and all at once.

vLLM finds it by the entry point `vllm.general_plugins`; `ludic serve` brings it along for a vLLM
in an environment of its own. This package needs torch, safetensors and vLLM, and nothing else of
Ludic; a trainer imports only `ludic_vllm.wire`, which needs torch alone.
"""

import functools

BACKEND = "ludic"
WORKER_EXTENSION = "ludic_vllm.worker.WorkerExtension"

__all__ = ["BACKEND", "WORKER_EXTENSION", "register"]


@functools.cache
def register() -> None:
    """Make the backend known to vLLM. Called again, it does nothing."""
    from vllm.distributed.weight_transfer.factory import WeightTransferEngineFactory

    WeightTransferEngineFactory.register_engine(BACKEND, "ludic_vllm.engine", "StagedEngine")
