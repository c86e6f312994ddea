"""What a trainer can have vLLM's workers do, by /collective_rpc."""

from __future__ import annotations

from typing import Any

from ludic_vllm.tied import repair_tied_head


class WorkerExtension:
    """Mixed into the worker by `--worker-extension-cls ludic_vllm.worker.WorkerExtension`."""

    model_runner: Any

    def ludic_repair_tied_head(self) -> bool:
        """Needed on a CPU after the stock `reload_weights`."""
        return repair_tied_head(self.model_runner.get_model())
