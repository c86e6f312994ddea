"""vLLM's `LLM` on the CPU, one batch of requests after the other, for benchmarks/sampler_vllm.py.

Started by that program with a Python that has vLLM: `python vllm_offline.py FOLDER DTYPE MODE`, one
model and one way to run it. Each line of stdin is {"prompts": [ids, ...], "sizes": [tokens, ...]};
each line of stdout {"seconds": of the CPU, "tokens": number sampled, "ids", "logprobs": of the
first request}.
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
from vllm import LLM, SamplingParams

# Bytes of keys and values, for 64 requests of 200 tokens in the largest model.
CACHE = 2**30


def sampled(llm: LLM, prompts: list[list[int]], sizes: list[int]) -> dict[str, object]:
    """Sample so many tokens after each prompt, with the log-prob of each."""
    params = [
        SamplingParams(temperature=1.0, max_tokens=size, ignore_eos=True, logprobs=0)
        for size in sizes
    ]
    requests = [{"prompt_token_ids": prompt} for prompt in prompts]
    started = time.process_time()
    found = llm.generate(requests, params, use_tqdm=False)
    seconds = time.process_time() - started
    first = found[0].outputs[0]
    return {
        "seconds": seconds,
        "tokens": sum(len(each.outputs[0].logprobs) for each in found),
        "ids": list(first.token_ids),
        "logprobs": [
            step[token].logprob for step, token in zip(first.logprobs, first.token_ids, strict=True)
        ],
    }


def main() -> None:
    folder, dtype, mode = sys.argv[1:]
    # vLLM prints its log to the standard output.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    llm = LLM(
        folder,
        dtype=dtype,
        skip_tokenizer_init=True,
        enforce_eager=mode == "eager",
        max_model_len=512,
        max_num_seqs=64,
        kv_cache_memory_bytes=CACHE,
        disable_log_stats=True,
    )
    threads = torch.get_num_threads()
    assert threads == 1, f"{threads} threads"
    print(json.dumps({"ready": True}), file=answers)
    for line in sys.stdin:
        print(json.dumps(sampled(llm, **json.loads(line))), file=answers)


if __name__ == "__main__":
    main()
