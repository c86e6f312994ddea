"""Run as ranks: learners whose params each rank reads, against those that rank 0 sends.

python -m two_ranks.by_rank FOLDER OUT
"""

import json
import os
import sys
from dataclasses import replace
from pathlib import Path

import torch
import torch.distributed as dist
from two_ranks.invariance import process_group

from ludic_train.algorithms.presets import grpo, ppo
from ludic_train.distributed.fsdp import whole_params
from ludic_train.runs.learner import learner_from_model, sharded_learner
from ludic_train.sources.publisher import CopyPublisher
from ludic_train.types import REFERENCE

ALGOS = {"reference": grpo(attach=(REFERENCE,)), "values": ppo()}
# Options of the model, and of its shards.
CASES = {
    "reference": ({"lora_rank": 0}, None),
    "values": ({"lora_rank": 0}, torch.bfloat16),
    "adapters": ({"lora_rank": 2}, None),
    "bf16 adapters": ({"lora_rank": 2, "dtype": torch.bfloat16}, torch.bfloat16),
    "adapters and servers": ({"lora_rank": 2, "servers": "http://localhost:1"}, None),
    "servers": ({"lora_rank": 0, "servers": "http://localhost:1"}, None),
}


def learner(case, *, from_files):
    """The learner of a case, over all ranks."""
    options, dtype = CASES[case]
    whole = None
    if dist.get_rank() == 0:
        whole = learner_from_model("model", max_tokens=4, seed=0, is_sharded=from_files, **options)
        whole = whole if from_files else replace(whole, checkpoint="")
    return sharded_learner(
        whole, ALGOS.get(case, grpo()), device="cpu", param_dtype=dtype, offload=False, seed=0
    )


def bits(made):
    """All whole params of a learner, of its reference and of the copy that it samples from."""
    found = {name: param.clone() for name, param in whole_params(made.model)}
    if made.reference is not None:
        found |= {f"reference {n}": p.clone() for n, p in whole_params(made.reference)}
    found |= {f"buffer {name}": buffer for name, buffer in made.model.named_buffers()}
    if isinstance(made.publisher, CopyPublisher):
        copied = made.publisher.twin.named_parameters()
        found |= {f"copy {name}": param for name, param in copied}
    return found


def main(folder, out):
    with process_group():
        os.chdir(folder)
        found = {}
        for case in CASES:
            expected = bits(learner(case, from_files=False))
            if case == "adapters and servers" and dist.get_rank() == 1:
                # This rank no longer sees the files.
                os.chdir("/")
            made = bits(learner(case, from_files=True))
            os.chdir(folder)
            differ = [n for n in expected if not torch.equal(made[n], expected[n])]
            found[case] = {"same names": list(made) == list(expected), "differ": differ}
        (Path(out) / f"{dist.get_rank()}.json").write_text(json.dumps(found))
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
