"""Checks that a server computes the trainer's log-probs to the bit; each names what differs.

A server that computes like the trainer, such as `ludic serve MODEL --engine local --exact`, has
equal bits. Where it has not, a check names the sampling masks, the params, or their type.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing

import torch
from torch import Tensor, nn

from ludic_gym.sampling import leaves_out_tokens
from ludic_gym.types import Completion, Decision, Rollout, Sampling, Step, Task
from ludic_train.cluster.doctor.checks import (
    TOKENS,
    Finding,
    Patient,
    check_round_trip,
    expected_masks,
    finding,
)
from ludic_train.cluster.publish.control import ControlClient
from ludic_train.cluster.status import LIMIT_S
from ludic_train.errors import PublishError
from ludic_train.models.exact import param_checksums
from ludic_train.rows import trajectory_from
from ludic_train.trainer.microbatches import plan_update
from ludic_train.trainer.step import forward
from ludic_train.types import SAWItem

# Mean differences below this are rounding, in nats.
CLOSE = 1e-3
SAMPLINGS = {
    "bits at T=1": Sampling(max_tokens=TOKENS),
    "bits at T=0.7": Sampling(max_tokens=TOKENS, temperature=0.7),
    "bits, top_p=0.8, top_k=20": Sampling(max_tokens=TOKENS, top_p=0.8, top_k=20),
}
NAMED = 3


def bits(name: str, sampling: Sampling) -> Callable[[Patient], Awaitable[Finding]]:
    """A check that log-probs at this sampling are those of the trainer, bit for bit.

    name: of the finding. A bad one names wrong sampling masks.
    """

    async def check(patient: Patient) -> Finding:
        completions = await patient.samples(sampling)
        off = _distances(patient.model, completions)
        is_equal = bool(off.max() == 0)
        message = f"{int((off > 0).sum())} of {len(off)} log-probs differ, by up to {off.max():.1e}"
        if not is_equal:
            message += "; it is rounding" if off.mean() < CLOSE else "; the params are others"
        if not is_equal and leaves_out_tokens(sampling):
            if any(c.sampling_mask is None for c in completions):
                message += "; the server returns no sampling masks"
            elif any(expected_masks(patient.model, c) != c.sampling_mask for c in completions):
                message += "; the sampling masks are others"
        return finding(name, is_equal, message, REMEDY)

    return check


async def check_params(patient: Patient) -> Finding:
    """Check that the server has each bit of the params; skipped if it cannot tell.

    Params of another type or with another bit are named.
    """
    async with aclosing(ControlClient(patient.url, limit_s=LIMIT_S)) as server:
        try:
            version = (await server.get("/weight_info"))["weight_version"]
            answer = await server.post("/collective_rpc", {"method": "ludic_checksums"})
            theirs: Mapping[str, str] = answer["results"][0]
        except (PublishError, KeyError, TypeError):
            text = "the server has no checksums of its params"
            return Finding(
                check="params",
                verdict="skipped",
                found=text,
                remedy="serve with --engine local to compare the params themselves",
            )
    ours = param_checksums(patient.model)
    wrong = [name for name in ours if theirs.get(name) != ours[name]]
    types = {theirs.get(name, "missing ").split(" ")[0] for name in wrong}
    types -= {ours[name].split(" ")[0] for name in wrong}
    some = f"{len(wrong)} of {len(ours)} params differ at version {version!r}"
    message = f"all {len(ours)} params have equal bits"
    if wrong:
        message = f"{some}: {', '.join(wrong[:NAMED])}"
    remedy = "publish once more: the server has params of another version, or they were damaged"
    if types:
        message = f"{some}: they are {', '.join(sorted(types))}"
        remedy = "serve and train in the same type, float32 for equal bits"
    return finding("params", not wrong, message, remedy)


def _distances(model: nn.Module, completions: Sequence[Completion]) -> Tensor:
    """|trainer's log-prob - server's| of all tokens, in the trainer's own rows."""
    items: list[SAWItem] = []
    for completion in completions:
        decision = Decision(action="", completions=(completion,))
        step = Step(observation="", decision=decision, reward=0.0)
        items += trajectory_from(Rollout(task=Task(env_id="doctor"), steps=(step,))).rows
    # Unpacked, so that each row is computed as the engine did, alone.
    (parts,) = plan_update(items, token_budget=4096, packing=False)
    distances = []
    with torch.no_grad():
        for part in parts:
            assert part.behavior_logprobs is not None
            sampled = torch.from_numpy(part.behavior_logprobs)
            distances.append((forward(model, part).logprobs.cpu() - sampled).abs())
    return torch.cat(distances)


REMEDY = (
    "for equal bits, start the server with `ludic serve MODEL --engine local --exact`, with the "
    "model that --model names"
)
BITWISE_CHECKS: Sequence[tuple[str, Callable[[Patient], Awaitable[Finding]]]] = (
    ("tokens", check_round_trip),
    ("params", check_params),
    *((name, bits(name, sampling)) for name, sampling in SAMPLINGS.items()),
)
