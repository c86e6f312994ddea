"""CPU seconds that vLLM's own reload of params takes, for benchmarks/publish.py.

Started by that program with a Python that has vLLM: `python vllm_load.py FOLDER REPEATS`. It prints
JSON: seconds of each round after the first, in which vLLM loads and packs the params of a
checkpoint that are in memory already. vLLM 0.32 leaves a tied head out.
"""

from __future__ import annotations

import json
import os
import sys
import time

# Before the import of vLLM, which reads them: one process, which computes in one thread.
os.environ |= {
    "OMP_NUM_THREADS": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_NO_USAGE_STATS": "1",
}

import torch
from safetensors.torch import load_file
from vllm import LLM
from vllm.model_executor.model_loader.reload import (
    finalize_layerwise_reload,
    initialize_layerwise_reload,
)


def reload_seconds(llm: LLM, folder: str, repeats: int) -> list[float]:
    """CPU seconds of each reload but the first."""
    runner = llm.llm_engine.model_executor.driver_worker.worker.model_runner
    model = runner.get_model()
    params = {
        name: tensor.clone() for name, tensor in load_file(f"{folder}/model.safetensors").items()
    }
    seconds = []
    for _ in range(repeats + 1):
        started = time.process_time()
        with torch.no_grad():
            initialize_layerwise_reload(model)
            model.load_weights(iter(params.items()))
            finalize_layerwise_reload(model, runner.model_config)
        seconds.append(time.process_time() - started)
    return seconds[1:]


def main() -> None:
    folder, repeats = sys.argv[1:]
    # vLLM prints its log to the standard output.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    llm = LLM(
        folder,
        dtype="float32",
        skip_tokenizer_init=True,
        enforce_eager=True,
        max_model_len=512,
        kv_cache_memory_bytes=2**28,
        distributed_executor_backend="uni",
        disable_log_stats=True,
    )
    print(json.dumps(reload_seconds(llm, folder, int(repeats))), file=answers)


if __name__ == "__main__":
    main()
