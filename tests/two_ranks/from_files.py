"""Run as ranks: a model that each rank reads its shards of, against one that is loaded whole.

    python -m two_ranks.from_files FOLDER OUT [plain | sharded]

The last word measures one way alone: how far the process grows, in bytes, and its shards.
"""

import json
import os
import resource
import sys

import torch
import torch.distributed as dist
from two_ranks.invariance import process_group
from two_ranks.learning import relative_error

from ludic_train.checkpoints.param_files import load_sharded
from ludic_train.distributed.fsdp import shard_model, whole
from ludic_train.models.head import action_logprobs
from ludic_train.models.load import load_model


def peak_bytes():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def measured(folder, way):
    before = peak_bytes()
    model = load_sharded(folder)[0] if way == "sharded" else shard_model(load_model(folder)[0])
    shards = sum(p.to_local().nbytes for p in model.parameters())
    return {"grown": peak_bytes() - before, "shards": shards}


def gradient(model):
    """Of the log-probs of some tokens."""
    ids = torch.arange(3, 13)[None]
    at = torch.arange(1, 10)
    logprobs = action_logprobs(model, ids, torch.zeros_like(at), at, torch.ones(9)).logprobs
    logprobs.sum().backward()
    grads = [whole(p.grad).flatten() for p in model.parameters()]
    return logprobs.detach(), torch.cat(grads)


def compared(folder):
    """Names of params and buffers that differ, and if log-probs and gradients are equal."""
    model, _ = load_sharded(folder)
    plain, _ = load_model(folder)
    expected = dict(plain.named_parameters()) | dict(plain.named_buffers())
    found = dict(model.named_parameters()) | dict(model.named_buffers())
    differ = [n for n in found if not torch.equal(whole(found[n]).detach(), expected[n])]
    same = found.keys() == expected.keys()
    copies = load_sharded(folder, replicas=2, offload=True)[0]
    differ += [n for n, p in copies.named_parameters() if not torch.equal(whole(p), expected[n])]
    logprobs, grads = gradient(model)
    shard_model(plain)
    expected_logprobs, expected_grads = gradient(plain)
    return {
        "differ": differ,
        "same names": same,
        "log-probs": torch.equal(logprobs, expected_logprobs),
        "gradients": relative_error(grads, expected_grads),
    }


def main(folder, out, *way):
    with process_group():
        found = measured(folder, *way) if way else compared(folder)
        with open(f"{out}/{dist.get_rank()}.json", "w") as file:
            json.dump(found, file)
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
