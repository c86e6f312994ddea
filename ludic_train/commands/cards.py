"""Cards of this machine for a run: which there are, what its roles need, and its own servers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Literal

from ludic_gym.errors import ConfigError
from ludic_train.cluster.servers.flags import served_model
from ludic_train.runs.config import RunConfig
from ludic_train.runs.layout import Card, Layout, Need, ServerCards, layout
from ludic_train.runs.machine import VLLM, Machine
from ludic_train.trainer.config import Load

VISIBLE = "CUDA_VISIBLE_DEVICES"
# How places are named that are processes on a CPU, and no cards.
CPU = "cpu:"
# Tokens whose keys and values a server must be able to hold at least: 16 episodes of 4k.
CACHE_TOKENS = 65_536
# In a process of its own, because asking CUDA for a card's memory takes some of it.
MEMORIES = (
    "import json, torch\n"
    "cards = range(torch.cuda.device_count())\n"
    "print(json.dumps([torch.cuda.get_device_properties(i).total_memory for i in cards]))"
)


def visible_cards(count: int, env: Mapping[str, str]) -> list[Card]:
    """The first `count` cards that torch finds, by the user's CUDA_VISIBLE_DEVICES if it is set.

    env: of this process. Raises ConfigError where there are fewer.
    """
    found = subprocess.run([sys.executable, "-c", MEMORIES], capture_output=True, check=True)
    memories: list[int] = json.loads(found.stdout)
    if not 1 <= count <= len(memories):
        raise ConfigError(
            f"gpus={count}, and torch finds {len(memories)} cards here ({VISIBLE}="
            f"{env.get(VISIBLE)!r}): take as many as there are, or --device cpu"
        )
    given = env.get(VISIBLE)
    names = given.split(",") if given else [str(i) for i in range(len(memories))]
    both = zip(names, memories, strict=False)
    return [Card(name=name.strip(), bytes=size) for name, size in list(both)[:count]]


def layout_of(
    config: RunConfig,
    machine: Machine,
    *,
    gpus: int,
    servers: int,
    engine: Literal["local", "vllm"],
    tensor_parallel: int | None,
) -> Layout:
    """The cards of a run's servers and ranks; on a CPU its processes, which need none.

    gpus: number of cards, or of processes. Raises ConfigError as `layout` does, and for tensor
    parallelism without vLLM.
    """
    if tensor_parallel not in (None, 1) and (engine != VLLM or machine.device == "cpu"):
        raise ConfigError(
            f"tensor_parallel={tensor_parallel} is for --engine vllm on several cards; the engine "
            f"is {engine!r} and the device {machine.device!r}"
        )
    if machine.device == "cpu":
        # Memory of a host is no card's, and is not divided here.
        cards = [Card(name=f"{CPU}{i}", bytes=sys.maxsize) for i in range(gpus)]
        need = Need(rank_bytes=lambda ranks: 0.0, server_bytes=0.0, heads=1)
        found = layout(cards, servers=servers, need=need, tensor_parallel=1)
        return replace(found, servers=tuple(replace(each, share=1.0) for each in found.servers))
    return layout(
        visible_cards(gpus, os.environ),
        servers=servers,
        need=need_of(config, machine),
        tensor_parallel=1 if engine != VLLM else tensor_parallel,
    )


def need_of(config: RunConfig, machine: Machine) -> Need:
    """Memory that a run's ranks and servers need, by the estimate of `ludic plan`.

    Raises ModelNotFound for a model without a config.
    """
    if config.model is None:
        # Made from nothing, and smaller than what CUDA itself takes.
        return Need(rank_bytes=lambda ranks: 0.0, server_bytes=0.0, heads=1)
    # torch takes seconds, and `ludic train --help` must not wait for it.
    import torch

    from ludic_train.trainer.memory_estimate import estimate_of, model_from_config, read_config

    name = served_model(config.model)
    settings = read_config(name)
    text, model = settings.get_text_config(), model_from_config(settings, torch.bfloat16)
    params = sum(param.numel() for param in model.parameters())
    is_reference_kept = config.kl > 0 and not (config.lora_rank or machine.offload)

    @cache
    def rank_bytes(ranks: int) -> float:
        estimate = estimate_of(
            name,
            Load(world_size=ranks),
            dtype="float32" if config.dtype == "float32" else "bfloat16",
            lora_rank=config.lora_rank,
            adamw_bits=config.adamw_bits,
            offload=machine.offload,
        )
        # A frozen float32 copy is spread over the ranks too.
        reference = 4 * params / ranks if is_reference_kept else 0
        return estimate.total_bytes + reference

    head_dim = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
    kv_heads = getattr(text, "num_key_value_heads", None) or text.num_attention_heads
    # Keys and values, of 2 bytes each, as the params.
    token_bytes = 2 * 2 * text.num_hidden_layers * kv_heads * head_dim
    return Need(
        rank_bytes=rank_bytes,
        server_bytes=2 * params + CACHE_TOKENS * token_bytes,
        heads=text.num_attention_heads,
    )


def cards_env(cards: Sequence[str]) -> dict[str, str]:
    """The variable by which a process sees these cards alone, and on a CPU none."""
    return {VISIBLE: ",".join(name for name in cards if not name.startswith(CPU))}


def vllm_flags(place: ServerCards) -> list[str]:
    """Flags of a vLLM on these cards; none on a CPU."""
    if place.cards[0].startswith(CPU):
        return []
    return [
        *("--tensor-parallel-size", str(len(place.cards))),
        *("--gpu-memory-utilization", str(place.share)),
    ]
