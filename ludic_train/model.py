"""Models and tokenizers: made from nothing, loaded, saved; and the one way from messages to ids."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from ludic_gym.errors import ConfigError
from ludic_gym.prompts import Render
from ludic_gym.types import Message
from ludic_train.errors import ModelNotFound

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

PAD, TURN_START, TURN_END = "<|pad|>", "<|im_start|>", "<|im_end|>"
ROLES = ("system", "user", "assistant")
CHAT_TEMPLATE = (
    "{% for m in messages %}{% if m['tool_calls'] %}{{ raise_exception('it knows no tool calls') }}"
    "{% endif %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
# Digits, lone capitals and signs stay single tokens, so that a board or a number is read cell by
# cell; only words of letters and the names of cells ("B2") can merge, and anything with the space
# before it.
PIECES = r" ?[A-Z]?[a-z]+| ?[A-Z][0-9](?![0-9A-Za-z])| ?[\s\S]"


def make_tokenizer(
    texts: Iterable[str], *, vocab_size: int = 320, special_tokens: Sequence[str] = ()
) -> PreTrainedTokenizerBase:
    """Byte-level BPE tokenizer with a chat template, trained on `texts` in memory.

    Its alphabet is all 256 bytes, so any text comes back exactly from `decode(encode(text))`; what
    `vocab_size` leaves beyond bytes and special tokens goes to merged words. Padding is
    "<|pad|>", a turn ends with "<|im_end|>", which is the eos token.
    Raises ConfigError for a vocabulary smaller than bytes and special tokens.
    """
    specials = [PAD, TURN_START, TURN_END, *special_tokens]
    if vocab_size < 256 + len(specials):
        raise ConfigError(
            f"vocab_size={vocab_size} is too small: 256 bytes and {len(specials)} special tokens "
            f"need {256 + len(specials)}"
        )
    return _with_chat_template(_trained_bpe(list(texts), vocab_size, specials), special_tokens)


def _trained_bpe(texts: list[str], vocab_size: int, specials: list[str]) -> Tokenizer:
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PIECES), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=specials,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    # The template writes a role before every text, so roles count as often as texts.
    bpe.train_from_iterator([*texts, *ROLES * max(1, len(texts))], trainer)
    return bpe


def _with_chat_template(bpe: Tokenizer, special_tokens: Sequence[str]) -> PreTrainedTokenizerBase:
    from transformers import PreTrainedTokenizerFast

    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=bpe,
        pad_token=PAD,
        eos_token=TURN_END,
        additional_special_tokens=[TURN_START, *special_tokens],
        clean_up_tokenization_spaces=False,
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


def render_chat(
    tokenizer: PreTrainedTokenizerBase, messages: Sequence[Message], *, reply_comes: bool = True
) -> list[int]:
    """Prompt ids for the next assistant message; the one way from a dialog to ids.

    A dialog that ends with an assistant message has that one continued. Without `reply_comes`, the
    ids end where the last message does. Equals
    `tokenizer.apply_chat_template`, except that a special token spelled out inside a message
    ("<|im_end|>") stays ordinary text: nobody's words can end a turn or open another.
    Raises ConfigError for a dialog that the chat template refuses.
    """
    safe, fence = _fence_specials(tokenizer, messages)
    text = _rendered(tokenizer, safe, reply_comes)
    ids: list[int] = []
    for i, piece in enumerate(text.split(fence) if fence else [text]):
        fenced = i % 2 == 1
        ids += tokenizer.encode(piece, add_special_tokens=False, split_special_tokens=fenced)
    return ids


def chat_renderer(tokenizer: PreTrainedTokenizerBase) -> Render:
    """`render_chat` with this tokenizer, for clients that make their prompts themselves."""

    def render(messages: Sequence[Message], reply_comes: bool) -> Sequence[int]:
        return render_chat(tokenizer, messages, reply_comes=reply_comes)

    return render


def _rendered(
    tokenizer: PreTrainedTokenizerBase, messages: Sequence[Message], reply_comes: bool
) -> str:
    from jinja2 import TemplateError

    goes_on = reply_comes and bool(messages) and messages[-1]["role"] == "assistant"
    try:
        text: str = tokenizer.apply_chat_template(
            messages,
            add_generation_prompt=reply_comes and not goes_on,
            continue_final_message=goes_on,
            tokenize=False,
        )
    except (TemplateError, ValueError) as error:
        raise ConfigError(f"the chat template refuses this dialog: {error}") from error
    return text


def _fence_specials(
    tokenizer: PreTrainedTokenizerBase, messages: Sequence[Message]
) -> tuple[Sequence[Message], str]:
    """`messages` with each special token's spelling between two fences, and the fence.

    The fence is a private-use character that no message contains, "" if none was needed.
    """
    said = "\0".join(_strings(list(messages)))
    specials = [token for token in tokenizer.all_special_tokens if token in said]
    if not specials:
        return messages, ""
    fence = next(c for c in map(chr, range(0xF0000, 0xFFFFE)) if c not in said)
    longest_first = sorted(specials, key=len, reverse=True)
    pattern = re.compile("|".join(map(re.escape, longest_first)))
    fenced: Sequence[Message] = _replaced(list(messages), pattern, rf"{fence}\g<0>{fence}")
    return fenced, fence


def _strings(value: Any) -> Iterator[str]:  # noqa: ANN401 - JSON
    """Every string value in JSON data."""
    match value:
        case str():
            yield value
        case list():
            for item in value:
                yield from _strings(item)
        case dict():
            yield from _strings(list(value.values()))


def _replaced(value: Any, pattern: re.Pattern[str], by: str) -> Any:  # noqa: ANN401 - JSON
    """JSON data with the pattern replaced in every string."""
    match value:
        case str():
            return pattern.sub(by, value)
        case list():
            return [_replaced(item, pattern, by) for item in value]
        case dict():
            return {key: _replaced(item, pattern, by) for key, item in value.items()}
    return value


def make_tiny_model(
    tokenizer: PreTrainedTokenizerBase,
    *,
    hidden_size: int = 64,
    num_layers: int = 2,
    num_heads: int = 4,
    num_kv_heads: int = 2,
    max_positions: int = 2048,
    initializer_range: float = 0.09,
    seed: int = 0,
) -> PreTrainedModel:
    """Randomly initialised Qwen3-shaped model in float32, equal for equal seeds.

    torch's global random state is left as it was. An `initializer_range` far above the usual 0.02
    is what lets a model this narrow learn quickly.
    Raises ConfigError if the heads do not divide the hidden size or each other.
    """
    if hidden_size % (2 * num_heads) or num_heads % num_kv_heads:
        raise ConfigError(
            f"hidden_size={hidden_size} must be a multiple of 2 * num_heads={num_heads}, and that "
            f"of num_kv_heads={num_kv_heads}"
        )
    from transformers import Qwen3Config, Qwen3ForCausalLM

    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=hidden_size,
        intermediate_size=3 * hidden_size,
        num_hidden_layers=num_layers,
        num_attention_heads=num_heads,
        num_key_value_heads=num_kv_heads,
        head_dim=hidden_size // num_heads,
        max_position_embeddings=max_positions,
        initializer_range=initializer_range,
        tie_word_embeddings=True,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        bos_token_id=None,
    )
    with _quiet(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return Qwen3ForCausalLM(config)


def load_model(
    name: str | Path,
    *,
    lora_rank: int | None = None,
    device: str | torch.device = "cpu",
    dtype: torch.dtype = torch.float32,
    seed: int = 0,
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Model and tokenizer from a Hugging Face folder, a folder of `save_model`, or a hub id.

    `lora_rank` freezes the model and trains low-rank adapters on its attention and MLP matrices
    (Hu et al. 2021, arXiv:2106.09685), drawn from `seed`; a folder that holds an adapter gives base
    and adapter.
    Only safetensors are read, and no code from the hub is run.
    Raises ModelNotFound, or ConfigError for a tokenizer without a chat template.
    """
    if _is_path(name) and not Path(name).is_dir():
        raise ModelNotFound(f"there is no model folder {str(name)!r}")
    adapter = Path(name) / "adapter_config.json"
    if adapter.is_file() and lora_rank is not None:
        raise ConfigError(
            f"{str(name)!r} already holds an adapter: leave out lora_rank={lora_rank}"
        )
    with _quiet():
        tokenizer = load_tokenizer(name)
        model = _with_adapter(name, dtype) if adapter.is_file() else _load_base(name, dtype)
        model = model if lora_rank is None else _with_new_lora(model, lora_rank, seed)
    return model.to(device), tokenizer


def save_model(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    folder: str | Path,
    params: Mapping[str, torch.Tensor] | None = None,
) -> None:
    """Write model and tokenizer in Hugging Face format; `load_model` reads them back equal.

    A LoRA model writes its adapter and the name of its base, not the base itself.
    params: written in place of the model's own, by the same names: copies, or shards made whole.
    """
    with _quiet():
        model.save_pretrained(folder, state_dict=None if params is None else dict(params))
        tokenizer.save_pretrained(folder)


def load_params(model: nn.Module, folder: str | Path) -> None:
    """Put the params that `save_model` wrote to `folder` into `model`, in place.

    Raises ModelNotFound where there are none, and ConfigError where names do not match.
    """
    from safetensors.torch import load_file

    files = sorted(Path(folder).glob("*.safetensors"))
    if not files:
        raise ModelNotFound(f"there are no *.safetensors in {str(folder)!r}")
    params = {name: tensor for file in files for name, tensor in load_file(file).items()}
    missing, unexpected = _put(model, params)
    if missing or unexpected:
        raise ConfigError(
            f"the params in {str(folder)!r} are of another model: missing {sorted(missing)[:4]}, "
            f"unexpected {sorted(unexpected)[:4]}"
        )


def _put(model: nn.Module, params: dict[str, torch.Tensor]) -> tuple[set[str], set[str]]:
    """Names that `model` lacked in `params`, and those it does not know."""
    from peft import PeftModel, set_peft_model_state_dict

    if isinstance(model, PeftModel):
        result = set_peft_model_state_dict(model, params)
        return {n for n in result.missing_keys if "lora_" in n}, set(result.unexpected_keys)
    try:
        result = model.load_state_dict(params, strict=False)
    except RuntimeError as error:
        reason = str(error).splitlines()[-1].strip()
        raise ConfigError(f"the params are of a model of another shape: {reason}") from error
    tied = set(getattr(model, "all_tied_weights_keys", None) or ())
    return set(result.missing_keys) - tied, set(result.unexpected_keys)


def _is_path(name: str | Path) -> bool:
    return isinstance(name, Path) or name.startswith((".", "/", "~")) or Path(name).exists()


def load_tokenizer(name: str | Path) -> PreTrainedTokenizerBase:
    """The tokenizer alone of a model's folder or a hub id; it pads with "eos" where it has no pad.

    Raises ModelNotFound where there is none, ConfigError for one without a chat template.
    """
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(str(name))
    except (OSError, ValueError) as error:
        raise _not_found(name, error) from error
    if not tokenizer.chat_template:
        raise ConfigError(f"the tokenizer of {str(name)!r} has no chat template: use a chat model")
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def _load_base(name: str | Path, dtype: torch.dtype) -> PreTrainedModel:
    from transformers import AutoModelForCausalLM

    try:
        return AutoModelForCausalLM.from_pretrained(str(name), dtype=dtype, use_safetensors=True)
    except (OSError, ValueError) as error:
        raise _not_found(name, error) from error


def _with_adapter(folder: str | Path, dtype: torch.dtype) -> PreTrainedModel:
    from peft import PeftConfig, PeftModel

    base = _load_base(PeftConfig.from_pretrained(str(folder)).base_model_name_or_path, dtype)
    return PeftModel.from_pretrained(base, str(folder), is_trainable=True)


def _with_new_lora(model: PreTrainedModel, rank: int, seed: int) -> PreTrainedModel:
    from peft import LoraConfig, get_peft_model

    if rank < 1:
        raise ConfigError(f"lora_rank={rank} must be at least 1")
    config = LoraConfig(
        r=rank,
        lora_alpha=2 * rank,
        lora_dropout=0.0,
        target_modules="all-linear",
        task_type="CAUSAL_LM",
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return get_peft_model(model, config)


def _not_found(name: str | Path, error: Exception) -> ModelNotFound:
    reason = str(error).strip().splitlines()[0]
    return ModelNotFound(
        f"cannot load a model from {str(name)!r}: give a folder in Hugging Face format with "
        f"safetensors, or a hub id that can be reached ({reason})"
    )


@contextmanager
def _quiet() -> Iterator[None]:
    """No progress bars and no advice from transformers inside the block."""
    from transformers.utils import logging

    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()
