"""Tokenizers: trained on texts in memory, or loaded."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from ludic_gym.errors import ConfigError
from ludic_train.errors import ModelNotFound
from ludic_train.models.cache import resolved
from ludic_train.models.chat_profile import add_stops

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

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


@contextmanager
def torch_hidden() -> Iterator[None]:
    """Have transformers loaded without torch, if neither is loaded yet.

    Tokenizers need no torch, but transformers imports it wherever it is installed: 2 seconds and
    250 MB. Afterwards torch can be imported as usual.
    """
    hidden = "torch" not in sys.modules and "transformers" not in sys.modules
    if hidden:
        # Python takes None for a module that cannot be imported.
        sys.modules["torch"] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        if hidden:
            del sys.modules["torch"]


def make_tokenizer(
    texts: Iterable[str], *, vocab_size: int = 320, special_tokens: Sequence[str] = ()
) -> PreTrainedTokenizerBase:
    """Byte-level BPE tokenizer with a chat template, trained on `texts` in memory.

    texts: samples of what it will encode. special_tokens: further ones, never split.
    vocab_size: at most; bytes and special tokens come first, merged words take what is left.
    Its alphabet is all 256 bytes, so any text comes back exactly from `decode(encode(text))`.
    Padding is "<|pad|>", a turn ends with "<|im_end|>", which is the eos token.
    Raises ConfigError for a vocabulary smaller than bytes and special tokens.

    >>> tokenizer = make_tokenizer(["the cat sat on the mat"] * 10)
    >>> [tokenizer.decode([token]) for token in tokenizer.encode("the cat ate 42")]
    ['the', ' cat', ' ', 'at', 'e', ' ', '4', '2']
    """
    specials = [PAD, TURN_START, TURN_END, *special_tokens]
    if vocab_size < 256 + len(specials):
        raise ConfigError(
            f"vocab_size={vocab_size} is too small: 256 bytes and {len(specials)} special tokens "
            f"need {256 + len(specials)}"
        )
    # Imported here, so that reading texts of tokens, as reports do, loads no transformers.
    from transformers import PreTrainedTokenizerFast

    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=_trained_bpe(list(texts), vocab_size, specials),
        pad_token=PAD,
        eos_token=TURN_END,
        additional_special_tokens=[TURN_START, *special_tokens],
        clean_up_tokenization_spaces=False,
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


def _trained_bpe(texts: list[str], vocab_size: int, specials: list[str]) -> Tokenizer:
    """Byte-level BPE trained on the texts, with the special tokens first."""
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


def load_tokenizer(name: str | Path) -> PreTrainedTokenizerBase:
    """Tokenizer alone of a model's folder or a hub id; it pads with "eos" where it has no pad.

    Raises ModelNotFound where there is none, ConfigError for one without a chat template.
    """
    from transformers import AutoTokenizer, GenerationConfig

    name = resolved(name)
    try:
        tokenizer = AutoTokenizer.from_pretrained(str(name))
    except (OSError, ValueError) as error:
        raise model_not_found(name, error) from error
    if not tokenizer.chat_template:
        raise ConfigError(f"the tokenizer of {str(name)!r} has no chat template: use a chat model")
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    # A model without the file has the stop tokens of its template and tokenizer alone.
    with suppress(OSError):
        add_stops(tokenizer, GenerationConfig.from_pretrained(str(name)).eos_token_id)
    return tokenizer


def model_not_found(name: str | Path, error: Exception) -> ModelNotFound:
    """The error for a model or tokenizer that could not be loaded, with the reason."""
    # The first line alone: the rest lists general advice.
    reason = str(error).strip().splitlines()[0]
    return ModelNotFound(
        f"cannot load a model from {str(name)!r}: give a folder in Hugging Face format with "
        f"safetensors, or a hub id that can be reached ({reason})"
    )


def token_texts(folder: Path) -> Callable[[Sequence[int]], list[str]]:
    """Function from ids to each id's own text, special tokens as they are written.

    folder: of a model, or of a run that holds one; or a tokenizer.json itself. A character that
    spans tokens becomes the replacement character in each of them.
    Raises ConfigError where there is no tokenizer.
    """
    places = (folder, folder / "tokenizer.json", folder / "model" / "tokenizer.json")
    path = next((place for place in places if place.is_file()), None)
    if path is None:
        raise ConfigError(f"{folder} holds no tokenizer.json; name the folder of a model")
    tokenizer = Tokenizer.from_file(str(path))

    def texts(ids: Sequence[int]) -> list[str]:
        return [tokenizer.decode([number], skip_special_tokens=False) for number in ids]

    return texts
