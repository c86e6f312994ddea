"""A plug-in of vLLM: an engine that takes params from files, checked and all at once.

vLLM finds it by the entry point `vllm.general_plugins`; `ludic serve` makes it importable for a
vLLM in an environment of its own. This package needs torch, safetensors and vLLM, and nothing else
of Ludic; a trainer imports only `ludic_vllm.files`, which needs no vLLM.
"""

import functools

BACKEND = "ludic"

__all__ = ["BACKEND", "register"]


@functools.cache
def register() -> None:
    """Register the backend with vLLM; further calls have no effect."""
    # The trainer imports this package for its names, without vLLM.
    from vllm.distributed.weight_transfer.factory import WeightTransferEngineFactory

    WeightTransferEngineFactory.register_engine(BACKEND, "ludic_vllm.engine", "StagedEngine")
