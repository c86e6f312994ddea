"""Small chat models: tokenizer, random params, and supervised fine-tuning on dialogs."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from ludic_train.algorithms.presets import sft
from ludic_train.metrics import values
from ludic_train.models.chat_template import dialog_rollout
from ludic_train.models.load import quiet, save_model
from ludic_train.models.tokenizer import make_tokenizer
from ludic_train.rows import rows_from
from ludic_train.small_model.dialogs import Dialog, all_dialogs
from ludic_train.small_model.lessons import LESSONS, Lesson
from ludic_train.sources.offline import OfflineBatchSource
from ludic_train.trainer.config import Decay, TrainerConfig
from ludic_train.trainer.trainer import Trainer

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

OnUpdate = Callable[[int, Mapping[str, float]], None]

# vLLM's attention on CPUs has kernels for few sizes of heads; this is the smallest.
HEAD_SIZE = 32
POSITIONS = 2048
WARMUP = 50
# On a CPU, long packed rows are slow: their attention mask is quadratic.
MICRO_TOKENS = 2048
# File with the key of all that the model follows from.
MADE_FROM = "made_from.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """Shape and training of a small model.

    Attributes:
        vocab_size: Tokens, at most.
        hidden_size: Width, a multiple of 32, which is the size of a head.
        num_layers: Layers.
        num_kv_heads: Heads of keys and values.
        initializer_range: Standard deviation of the initial params.
        dialogs: Number of dialogs.
        updates: Supervised updates.
        rows: Dialogs of an update.
        lr: Peak learning rate.
    """

    vocab_size: int
    hidden_size: int
    num_layers: int
    num_kv_heads: int
    initializer_range: float
    dialogs: int
    updates: int
    rows: int = 8
    lr: float = 2e-3


SIZES = {
    "small": Size(
        vocab_size=4096,
        hidden_size=192,
        num_layers=4,
        num_kv_heads=2,
        initializer_range=0.05,
        dialogs=20_000,
        updates=600,
    ),
    "tiny": Size(
        vocab_size=1024,
        hidden_size=96,
        num_layers=2,
        num_kv_heads=1,
        initializer_range=0.08,
        dialogs=6_000,
        updates=200,
        lr=3e-3,
    ),
}


async def make_small_model(
    size: Size,
    folder: Path,
    *,
    lessons: Sequence[Lesson] = LESSONS,
    seed: int = 0,
    on_update: OnUpdate | None = None,
) -> None:
    """Make a chat model from oracle episodes and save it in `folder`, in bfloat16.

    seed: of episodes, wording, params and batches; equal arguments make equal files.
    on_update: called after each update with its number and metrics.
    A folder that is there is replaced when the new model is complete.
    """
    dialogs = await all_dialogs(lessons, size.dialogs, seed)
    texts = (message["content"] or "" for dialog in dialogs for message in dialog)
    tokenizer = make_tokenizer(texts, vocab_size=size.vocab_size)
    model = random_llama(tokenizer, size, seed)
    await imitate(model, tokenizer, dialogs, size, seed=seed, on_update=on_update)
    unfinished = folder.with_name(folder.name + ".unfinished")
    # Half the bytes of float32; the rounding is far below the noise of sampling.
    save_model(model.to(torch.bfloat16), tokenizer, unfinished)
    key = {"made_from": recipe_key(size, lessons, seed)}
    (unfinished / MADE_FROM).write_text(json.dumps(key) + "\n", encoding="utf-8")
    if folder.exists():
        shutil.rmtree(folder)
    unfinished.rename(folder)


def is_made(folder: Path, size: Size, seed: int, lessons: Sequence[Lesson] = LESSONS) -> bool:
    """True if `folder` holds the model that `make_small_model` would make of these arguments."""
    path = folder / MADE_FROM
    if not path.is_file():
        return False
    made: str = json.loads(path.read_text(encoding="utf-8"))["made_from"]
    return made == recipe_key(size, lessons, seed)


def recipe_key(size: Size, lessons: Sequence[Lesson], seed: int) -> str:
    """Short hash of the arguments that a model is made from."""
    return hashlib.sha256(repr((size, tuple(lessons), seed)).encode()).hexdigest()[:16]


def random_llama(tokenizer: PreTrainedTokenizerBase, size: Size, seed: int) -> PreTrainedModel:
    """Randomly initialised model of Llama's architecture, float32, with tied embeddings."""
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=size.hidden_size,
        intermediate_size=size.hidden_size * 8 // 3,
        num_hidden_layers=size.num_layers,
        num_attention_heads=size.hidden_size // HEAD_SIZE,
        num_key_value_heads=size.num_kv_heads,
        head_dim=HEAD_SIZE,
        max_position_embeddings=POSITIONS,
        initializer_range=size.initializer_range,
        tie_word_embeddings=True,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        bos_token_id=None,
    )
    # From a generator of its own: torch's global state belongs to the caller.
    with quiet(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return LlamaForCausalLM(config)


async def imitate(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    dialogs: Sequence[Dialog],
    size: Size,
    *,
    seed: int,
    on_update: OnUpdate | None = None,
) -> None:
    """Train the model to write the assistant's messages of the dialogs."""
    rows = rows_from((dialog_rollout(dialog, tokenizer) for dialog in dialogs), sft())
    source = OfflineBatchSource(rows, batch_size=size.rows, seed=seed)
    cfg = TrainerConfig(
        lr=size.lr,
        warmup_updates=min(WARMUP, size.updates),
        decay_updates=size.updates,
        decay=Decay(to=0.02),
        micro_token_budget=MICRO_TOKENS,
        max_seq_len=POSITIONS,
    )
    trainer = Trainer(model, sft(), source, cfg=cfg)
    await trainer.train(
        size.updates, lambda n, metrics: on_update(n, values(metrics)) if on_update else None
    )
