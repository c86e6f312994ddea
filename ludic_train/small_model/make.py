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

from ludic_gym.types import Completion, Decision, Rollout, Step, Task
from ludic_train.algorithms.presets import sft
from ludic_train.metrics import values
from ludic_train.models.chat_template import render_chat
from ludic_train.models.load import quiet, save_model
from ludic_train.models.tokenizer import make_tokenizer
from ludic_train.rows import rows_from
from ludic_train.small_model.dialogs import Dialog, all_dialogs, first_texts, opening
from ludic_train.small_model.lessons import FURTHER_IDS, LESSONS, Lesson
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
        further: Episodes of each environment whose texts are in the vocabulary only.
    """

    vocab_size: int
    hidden_size: int
    num_layers: int
    num_kv_heads: int
    initializer_range: float
    dialogs: int
    updates: int
    rows: int = 5
    lr: float = 1.5e-3
    further: int = 200


SIZES = {
    "small": Size(
        vocab_size=4096,
        hidden_size=256,
        num_layers=2,
        num_kv_heads=2,
        initializer_range=0.06,
        dialogs=9_000,
        updates=3_000,
    ),
    "tiny": Size(
        vocab_size=1536,
        hidden_size=96,
        num_layers=2,
        num_kv_heads=1,
        initializer_range=0.08,
        dialogs=2_000,
        updates=600,
        lr=3e-3,
        further=50,
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
    Raises OSError at once for one that cannot be written.
    """
    unfinished = folder.with_name(folder.name + ".unfinished")
    # First: a folder that cannot be written should not cost the minutes of the episodes.
    unfinished.mkdir(parents=True, exist_ok=True)
    dialogs = await all_dialogs(lessons, size.dialogs, seed)
    texts = [message["content"] or "" for dialog in dialogs for message in dialog]
    texts += [text for env_id in FURTHER_IDS for text in first_texts(env_id, size.further)]
    tokenizer = make_tokenizer(texts, vocab_size=size.vocab_size)
    model = random_llama(tokenizer, size, seed)
    await imitate(model, tokenizer, dialogs, size, seed=seed, on_update=on_update)
    # Half the bytes of float32; the rounding is far below the noise of sampling.
    save_model(model.to(torch.bfloat16), tokenizer, unfinished)
    key = {"made_from": recipe_key(size, lessons, seed)}
    (unfinished / MADE_FROM).write_text(json.dumps(key) + "\n", encoding="utf-8")
    # Only now: a stop while the model is made leaves the one before.
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
    """Short hash of the arguments and of the environments' wording that a model is made from."""
    # A model that was made from other prompts would not know the present ones.
    wording = tuple(opening(lesson.env_id, lesson.kwargs) for lesson in lessons)
    made_from = (size, tuple(lessons), seed, wording)
    return hashlib.sha256(repr(made_from).encode()).hexdigest()[:16]


def random_llama(tokenizer: PreTrainedTokenizerBase, size: Size, seed: int) -> PreTrainedModel:
    """Randomly initialised model of Llama's architecture, float32, with tied embeddings."""
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=size.hidden_size,
        intermediate_size=2 * size.hidden_size,
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
    rows = rows_from((typed_dialog(dialog, tokenizer) for dialog in dialogs), sft())
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


def typed_dialog(dialog: Dialog, tokenizer: PreTrainedTokenizerBase) -> Rollout:
    """The dialog in tokens, as `dialog_rollout` makes it, for the template of `make_tokenizer`.

    That template writes each message by itself, so none is rendered again for each one after it.
    """
    # The header of a reply is what the template adds where one comes next, after any message.
    first, eos = dialog[:1], int(tokenizer.eos_token_id)
    header = render_chat(tokenizer, first)[len(render_chat(tokenizer, first, reply_comes=False)) :]
    ids: list[int] = []
    steps = []
    for message in dialog:
        text = message["content"] or ""
        if message["role"] == "assistant":
            reply = tokenizer.encode(text, add_special_tokens=False, split_special_tokens=True)
            call = Completion(
                text=text,
                finish_reason="stop",
                prompt_ids=(*ids, *header),
                completion_ids=(*reply, eos),
            )
            decision = Decision(action=text, completions=(call,))
            steps.append(Step(observation="", decision=decision, reward=0.0))
        ids += render_chat(tokenizer, [message], reply_comes=False)
    return Rollout(task=Task(env_id="dialog"), steps=tuple(steps))
