"""The optimizer of a trainer: AdamW, whose moments have 32 bits, or 8 in blocks of one scale.

8 bits are after Dettmers et al. 2022 (arXiv:2110.02861), but no optimizer of bitsandbytes or
torchao: the first knows no sharded params, and the second keeps its moments in tensor types that no
checkpoint of other ranks can read. Blocks lie inside rows here, as shards do, so that any number of
ranks can read them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import cache
from math import ceil, prod
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from ludic_gym.errors import ConfigError
from ludic_train.distributed.fsdp import local_part
from ludic_train.trainer.config import TrainerConfig

# Numbers of a block, which share a scale.
BLOCK = 256
# Params of fewer numbers keep moments of 32 bits: they cost nothing, and norms are sensitive.
LEAST_SIZE = 4096
# Numbers that are computed with at a time, in float32.
CHUNK = 2**24
SCALE = "_scale"


def make_optimizer(params: Sequence[nn.Parameter], cfg: TrainerConfig) -> torch.optim.Optimizer:
    """AdamW with moments of the configured bits."""
    settings = asdict(cfg.adamw)
    if settings.pop("bits") == 8:
        return AdamW8bit(params, lr=cfg.lr, **settings)
    return torch.optim.AdamW(params, lr=cfg.lr, fused=True, **settings)


def check_precision(model: nn.Module) -> None:
    """Raise ConfigError for trained params that are too coarse for an optimizer's steps."""
    for name, param in model.named_parameters():
        # A step of AdamW is about lr, and 8 bits of mantissa round 1 + 1e-3 back to 1.
        if param.requires_grad and param.dtype in (torch.bfloat16, torch.float16):
            raise ConfigError(
                f"the trained param {name} is {param.dtype}, in which AdamW's small steps are "
                "rounded away: load the model in float32, and compute in bfloat16 with "
                "shard_model(model, param_dtype=torch.bfloat16) or `ludic train --dtype bf16`"
            )


class AdamW8bit(torch.optim.Optimizer):
    """AdamW (Loshchilov & Hutter 2019, arXiv:1711.05101) with moments of 8 bits.

    params, lr, betas, eps, weight_decay: as of torch.optim.AdamW. Computes in float32.

    State of a param of `has_8_bits`: "step"; "exp_avg" and "exp_avg_sq", uint8 in its shape, and
    the largest number of each block, "exp_avg_scale" and "exp_avg_sq_scale", float32 of
    `scale_shape`. Other params have two moments of float32. All are sharded as the param is.
    """

    def __init__(
        self,
        params: Iterable[nn.Parameter],
        lr: float,
        betas: tuple[float, float],
        eps: float,
        weight_decay: float,
    ) -> None:
        defaults = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}
        super().__init__(params, defaults)

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Update all params that have a gradient; `closure` is not called."""
        for group in self.param_groups:
            for param in group["params"]:
                if param.grad is None:
                    continue
                state: dict[str, Tensor] = self.state[param]
                if not state:
                    state["step"] = torch.tensor(0.0)
                    state.update(zero_moments(param))
                state["step"] += 1
                whole = {"param": param, "grad": param.grad, **state}
                rows = {n: local_part(t) for n, t in whole.items() if t is not None and n != "step"}
                # Some rows at a time.
                for part in _chunks(rows):
                    _step(part, group, int(state["step"]))

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Take the state of each param as it is."""
        # torch's own would turn the codes into numbers of the type of the params.
        params = [param for group in self.param_groups for param in group["params"]]
        for index, state in state_dict["state"].items():
            self.state[params[index]] = dict(state)


def has_8_bits(param: Tensor) -> bool:
    """True if AdamW8bit keeps the moments of such a param in 8 bits."""
    return param.ndim >= 2 and param.numel() >= LEAST_SIZE


def scale_shape(param: Tensor) -> tuple[int, int]:
    """Shape of a param's scales: its rows, and the blocks of a row."""
    return param.shape[0], ceil(prod(param.shape[1:]) / BLOCK)


def zero_moments(param: Tensor) -> dict[str, Tensor]:
    """Moments of a param before its first step, by name."""
    # Of 8 bits, 0 is the code of 0 times the scale, which is 0 too.
    dtype = torch.uint8 if has_8_bits(param) else torch.float32
    moments = {name: torch.zeros_like(param, dtype=dtype) for name in ("exp_avg", "exp_avg_sq")}
    if has_8_bits(param):
        for name in list(moments):
            shape = scale_shape(param)
            local = local_part(param)
            scales = torch.zeros(len(local), shape[1], device=local.device)
            if isinstance(param, DTensor):
                # Sharded by rows as the param is.
                mesh, placements, stride = param.device_mesh, param.placements, (shape[1], 1)
                scales = DTensor.from_local(
                    scales, mesh, placements, shape=torch.Size(shape), stride=stride
                )
            moments[name + SCALE] = scales
    return {name: moment.detach() for name, moment in moments.items()}


def moment_bytes(param: Tensor) -> int:
    """Bytes of both moments."""
    if not has_8_bits(param):
        return 8 * param.numel()
    return 2 * (param.numel() + 4 * prod(scale_shape(param)))


def quantized(values: Tensor, *, signed: bool) -> tuple[Tensor, Tensor]:
    """The nearest codes of 8 bits, and the largest number of each block.

    values: float32 [rows, ...]. signed: False for squares, of which none is rounded to 0 in a block
        that is not all 0: a step divides by them.
    Returns uint8 in the shape of `values` and float32 [rows, blocks].
    """
    flat = values.flatten(1)
    rows, width = flat.shape
    blocks = F.pad(flat, (0, -width % BLOCK)).view(rows, -1, BLOCK)
    scale = blocks.abs().amax(-1)
    # In a block of zeros anything may be divided by.
    shares = blocks / scale.where(scale > 0, 1.0)[..., None]
    levels = _levels(signed).to(values.device)
    codes = torch.bucketize(shares, (levels[1:] + levels[:-1]) / 2)
    codes = codes.clamp_(min=0 if signed else 1).to(torch.uint8)
    return codes.view(rows, -1)[:, :width].reshape(values.shape), scale


def restored(codes: Tensor, scale: Tensor, *, signed: bool) -> Tensor:
    """The numbers that the codes and scales stand for, float32."""
    flat = _levels(signed).to(codes.device)[codes.flatten(1).int()]
    factor = scale.repeat_interleave(BLOCK, dim=1)[:, : flat.shape[1]]
    return (flat * factor).view(codes.shape)


@cache
def _levels(signed: bool) -> Tensor:
    """The 256 shares of a block's largest number that codes stand for, in order.

    Dynamic quantization: from 1e-7 to 1 each power of ten has twice as many as the one below, so
    that large numbers are exact and small ones are not lost.
    """
    positive: list[float] = []
    for power in range(7):
        count = 2 ** (power if signed else power + 1)
        # The middles of `count` equal parts of 0.1 to 1.
        middles = (0.1 + 0.9 * (i + 0.5) / count for i in range(count))
        positive += [middle * 10.0 ** (power - 6) for middle in middles]
    negative = [-level for level in positive] if signed else []
    return torch.tensor(sorted([*negative, 0.0, *positive, 1.0]))


def _step(part: dict[str, Tensor], group: Mapping[str, Any], count: int) -> None:
    """One step of AdamW for some rows of a param; all tensors are changed in place."""
    (beta1, beta2), lr = group["betas"], group["lr"]
    grad, is_small = part["grad"].float(), "exp_avg" + SCALE not in part
    moments = {}
    for name, signed in (("exp_avg", True), ("exp_avg_sq", False)):
        own = part[name]
        moments[name] = own if is_small else restored(own, part[name + SCALE], signed=signed)
    mean, square = moments["exp_avg"], moments["exp_avg_sq"]
    mean.lerp_(grad, 1 - beta1)
    square.mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
    # As torch: eps comes after the bias is taken out, or it would outweigh the first squares.
    root = (square / (1 - beta2**count)).sqrt_().add_(group["eps"])
    # Of the param itself: as a part of the gradient, decay would be divided by the root.
    part["param"].mul_(1 - lr * group["weight_decay"])
    part["param"].addcdiv_(mean, root, value=-lr / (1 - beta1**count))
    if is_small:
        return
    for name, signed in (("exp_avg", True), ("exp_avg_sq", False)):
        codes, scale = quantized(moments[name], signed=signed)
        part[name].copy_(codes)
        part[name + SCALE].copy_(scale)


def _chunks(tensors: dict[str, Tensor]) -> Iterator[dict[str, Tensor]]:
    """The tensors cut into equal rows, of at most CHUNK numbers of the param or one row."""
    param = tensors["param"]
    if not param.numel() or "exp_avg" + SCALE not in tensors:
        yield tensors
        return
    size = max(CHUNK // (param.numel() // len(param)), 1)
    for first in range(0, len(param), size):
        yield {name: tensor[first : first + size] for name, tensor in tensors.items()}
