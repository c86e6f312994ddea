"""A forward pass whose results do not depend, to the bit, on the rows that are computed together.

Matrix products of 16 rows or more, and operations on rows, give a row the same bits beside any
others; products of fewer rows and the usual attention kernels do not, because they add in another
order. Here rows are padded, and attention adds one block of keys after the other ("Defeating
Nondeterminism in LLM Inference", Thinking Machines 2025). The local engine and the trainer then
compute equal log-probs, so that importance ratios at lag 0 are 1 and not nearly.

This holds for float32 on one thread of a CPU; more threads cut operations at other places.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, PreTrainedModel

from ludic_train.errors import UnsupportedModel

# Name of the attention among those of transformers.
EXACT = "ludic_exact"
# Families whose log-probs were compared, by tests/exactness/test_bitwise.py.
PROVEN = ("llama", "qwen3")
# Rows of a matrix product, and keys of a block of attention, are padded to multiples of these.
ROWS, KEYS = 16, 64


def make_exact(model: PreTrainedModel) -> None:
    """Have the model compute equal bits for a row beside any others, in one thread of the CPU.

    model: may have adapters; changed in place, together with torch's number of threads.
    Raises UnsupportedModel for an architecture, type or device that this was not proven for.
    """
    # Below peft's wrappers, whose own class says nothing of the architecture.
    inner = next((m for m in model.modules() if isinstance(m, PreTrainedModel)), None)
    kind = type(model).__name__ if inner is None else inner.config.model_type
    if inner is None or kind not in PROVEN:
        raise UnsupportedModel(
            f"exact log-probs were proven for {' and '.join(PROVEN)} models, and not for {kind!r}: "
            "leave out --exact"
        )
    places = {f"{p.dtype} on {p.device.type}" for p in model.parameters()}
    if others := ", ".join(sorted(places - {"torch.float32 on cpu"})):
        raise UnsupportedModel(
            f"exact log-probs were proven for float32 on a CPU, and params are {others}: "
            "take --dtype float32 --device cpu; on a GPU, vLLM has VLLM_BATCH_INVARIANT=1"
        )
    # More threads would cut sums at other places, and so round them differently.
    torch.set_num_threads(1)
    inner.set_attn_implementation(EXACT)


def is_exact(model: nn.Module) -> bool:
    """True for a model that `make_exact` changed, adapters or not."""
    inner = next((m for m in model.modules() if isinstance(m, PreTrainedModel)), None)
    return inner is not None and inner.config._attn_implementation == EXACT


def param_checksums(model: nn.Module) -> dict[str, str]:
    """Type and CRC-32 of each param, by name, such as "float32 9ae0daaf"."""
    checksums = {}
    for name, param in model.named_parameters():
        # As octets, because numpy has no bfloat16.
        octets = param.detach().cpu().contiguous().view(-1).view(torch.uint8)
        kind = str(param.dtype).removeprefix("torch.")
        checksums[name] = f"{kind} {zlib.crc32(octets.numpy().tobytes()):08x}"
    return checksums


def padded(x: Tensor, dim: int, multiple: int = ROWS) -> Tensor:
    """The tensor with zeros at the end of a dimension, up to a multiple."""
    missing = -x.shape[dim] % multiple
    if not missing:
        return x
    shape = list(x.shape)
    shape[dim] = missing
    return torch.cat((x, x.new_zeros(shape)), dim)


def exact_linear(linear: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """The layer's result for each row of x, [N, D], by a product of a multiple of ROWS rows."""
    return linear(padded(x, 0))[: len(x)]


def exact_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float,
    position_ids: Tensor | None = None,
    **_: object,
) -> tuple[Tensor, None]:
    """Causal attention, [B, T, heads, size], adding up blocks of KEYS keys in their order.

    query: [B, heads, T, size]; key, value: [B, kv_heads, slots, size].
    position_ids: [B, T], the last slot that each query sees; None for its own number.
    """
    batch, heads, length, size = query.shape
    if position_ids is None:
        position_ids = torch.arange(length, device=query.device)[None]
    # Heads that share keys are rows of one product.
    shared = heads // key.shape[1]
    rows = padded((query * scaling).reshape(batch, key.shape[1], shared * length, size), 2)
    # Rows of padding get slot 0: one that sees nothing would be nan, also in the gradient.
    last = padded(position_ids[:, None, :, None].repeat(1, 1, shared, 1), 2)
    keys, values = (torch.split(padded(each, 2, KEYS), KEYS, dim=2) for each in (key, value))
    slots = torch.arange(KEYS, device=query.device)
    scores = [
        (rows @ block.contiguous().transpose(-1, -2)).masked_fill(
            slots + KEYS * i > last, -torch.inf
        )
        for i, block in enumerate(keys)
    ]
    # No gradient: the largest score shifts all of a row, which changes no weight.
    largest = torch.stack([each.detach().amax(-1, keepdim=True) for each in scores]).amax(0)
    total = summed = torch.zeros(())
    for score, block in zip(scores, values, strict=True):
        weight = (score - largest).exp()
        total = total + weight.sum(-1, keepdim=True)
        summed = summed + weight @ block.contiguous()
    attended = (summed / total)[:, :, : shared * length].reshape(batch, heads, length, size)
    return attended.transpose(1, 2).contiguous(), None


AttentionInterface.register(EXACT, exact_attention)
