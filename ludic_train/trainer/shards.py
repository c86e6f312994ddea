"""Steps of an optimizer over the shards that this rank has.

torch's own go through DTensor's dispatcher, several times for each param: in a small model that is
a tenth of an update, in which a card has nothing to do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.adamw import adamw

from ludic_train.distributed.fsdp import local_part, whole
from ludic_train.distributed.ranks import world_size


class ShardAdamW(torch.optim.AdamW):
    """torch's AdamW with `fused=True`; its state is that of torch's, and so are the params."""

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> None:  # type: ignore[override]
        """Update the params by their gradients."""
        known = [p for group in self.param_groups for p in group["params"] if p.grad is not None]
        has_state = all(self.state.get(p) for p in known)
        # The first step makes the state.
        if closure is not None or not has_state:
            super().step(closure)
            return
        for group in self.param_groups:
            params = [p for p in group["params"] if p.grad is not None]
            states = [self.state[p] for p in params]
            beta1, beta2 = group["betas"]
            adamw(
                [local_part(p) for p in params],
                [local_part(p.grad) for p in params],
                [local_part(state["exp_avg"]) for state in states],
                [local_part(state["exp_avg_sq"]) for state in states],
                [],
                [local_part(state["step"]) for state in states],
                fused=True,
                amsgrad=False,
                beta1=beta1,
                beta2=beta2,
                lr=group["lr"],
                weight_decay=group["weight_decay"],
                eps=group["eps"],
                maximize=False,
            )


def clip_shards(params: Sequence[nn.Parameter], limit: float) -> Tensor:
    """The L2 norm of all gradients together, which are scaled down to `limit` if it is larger."""
    if world_size() > 1:
        return whole(nn.utils.clip_grad_norm_(params, limit))
    gradients = [local_part(param.grad) for param in params if param.grad is not None]
    norm = nn.utils.get_total_norm(gradients)
    # As torch's own function has it, to the bit.
    scale = torch.clamp(limit / (norm + 1e-6), max=1.0)
    torch._foreach_mul_(gradients, scale)
    return norm
