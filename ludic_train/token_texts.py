"""Token ids as people read them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from tokenizers import Tokenizer

from ludic_gym.errors import ConfigError


def token_texts(folder: Path) -> Callable[[Sequence[int]], list[str]]:
    """What gives each id's own text, special tokens as they are written.

    folder: of a model, or of a run that holds one; or a tokenizer.json itself. A character that
    spans tokens is shown as the replacement character in each of them.
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
