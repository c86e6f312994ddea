"""Params in a folder of safetensors files, and the checks before a server takes them.

Both ends import this file: the trainer and the servers. It needs torch and safetensors alone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

# Names that an error message lists.
FEW = 4


@dataclass(frozen=True, slots=True)
class Format:
    """Shape and dtype of a param."""

    shape: tuple[int, ...]
    dtype: torch.dtype

    def __str__(self) -> str:
        return f"{list(self.shape)} {str(self.dtype).removeprefix('torch.')}"


def format_of(tensor: Tensor) -> Format:
    """Shape and dtype of a tensor."""
    return Format(tuple(tensor.shape), tensor.dtype)


def params_in(folder: Path | str) -> Iterator[tuple[str, Tensor]]:
    """Names and params of all *.safetensors of a folder.

    The tensors share the pages of their file with all readers, also after it is removed on a local
    file system; it must not be cut. Raises ValueError for a folder without such files, and for one
    that is not whole.
    """
    paths = sorted(Path(folder).glob("*.safetensors"))
    if not paths:
        raise ValueError(f"{folder} has no *.safetensors here: the server must see the folder")
    for path in paths:
        try:
            with safe_open(path, "pt") as file:
                # An object of Rust, which is no iterable.
                for name in file.keys():  # noqa: SIM118
                    yield name, file.get_tensor(name)
        except (SafetensorError, OSError) as error:
            raise ValueError(f"{path} cannot be read: {error}") from error


def require_formats(
    params: Mapping[str, Tensor],
    expected: Mapping[str, Format],
    dtypes: Collection[torch.dtype] = (),
) -> None:
    """Raise ValueError unless there are all expected params, of their shapes and dtypes.

    dtypes: further ones that a param of floating-point numbers may have.
    """
    wrong = [
        f"{name} {format_of(tensor)}"
        for name, tensor in params.items()
        if not _fits(format_of(tensor), expected.get(name), dtypes)
    ]
    if wrong:
        needed = expected.get(wrong[0].split(" ")[0])
        here = "" if needed is None else f" (here it is {needed})"
        raise ValueError(
            f"the model has no params of {few(wrong)}{here}; is the trainer's model another one?"
        )
    if missing := sorted(expected.keys() - params.keys()):
        raise ValueError(f"the update lacks {few(missing)}")


def few(names: Iterable[str]) -> str:
    """The first names of a list for an error message, and the number of the others."""
    listed = list(names)
    more = f" and {len(listed) - FEW} more" if len(listed) > FEW else ""
    return ", ".join(listed[:FEW]) + more


def _fits(sent: Format, expected: Format | None, dtypes: Collection[torch.dtype]) -> bool:
    if expected is None or sent.shape != expected.shape:
        return False
    return sent.dtype == expected.dtype or (
        expected.dtype.is_floating_point and sent.dtype in dtypes
    )
