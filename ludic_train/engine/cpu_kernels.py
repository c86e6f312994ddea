"""The parts of a layer on a CPU, compiled from C++: products, norms, heads, attention; and draws.

Between the products torch makes some 45 calls per layer and step, each of which reads and writes
its tensors; the kernels of `cpu_kernels.cpp` take a half to a quarter of the time for few tokens.
The products of `cpu_products.cpp` (by vectors) and `cpu_tiles.cpp` (by the matrix unit, AMX) read
the matrices as fast as memory is, for up to 16 rows, and the attention of `cpu_attention.cpp` the
keys and values. `stack` calls all of them at once. `cpu_draws.cpp` draws tokens from logits.
"""

from __future__ import annotations

import ctypes
import hashlib
import logging
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

if TYPE_CHECKING:
    from ludic_train.engine.sampling import Draws

PARTS = ("kernels", "attention", "products", "tiles", "draws")
SOURCES = [Path(__file__).with_name(f"cpu_{part}.cpp") for part in PARTS]
HEADERS = [Path(__file__).with_name(f"cpu_{name}.h") for name in ("numbers", "panels")]
# Sums may be added in any order, so that they become vectors; NaN and infinity stay what they are.
FLAGS = (
    *("-std=c++17", "-O3", "-march=native", "-fopenmp", "-shared", "-fPIC"),
    *("-fno-math-errno", "-fassociative-math", "-fno-signed-zeros", "-fno-trapping-math"),
    *(["-mprefer-vector-width=512"] if platform.machine() == "x86_64" else []),
)
COMPILERS = ("c++", "g++", "clang++")
COMPILE_S = 120.0
# As `LARGEST_HEAD` of the source.
LARGEST_HEAD = 512

_POINTER, _INT, _FLOAT = ctypes.c_void_p, ctypes.c_int64, ctypes.c_float
_ARGUMENTS = {
    "added_norm": (*[_POINTER] * 4, *[_INT] * 2, _FLOAT, ctypes.c_int),
    "gated": (*[_POINTER] * 3, *[_INT] * 3, ctypes.c_int),
    "stored": (*[_POINTER] * 9, *[_INT] * 4, _FLOAT, ctypes.c_int),
    "attended": (*[_POINTER] * 6, *[_INT] * 5, ctypes.c_int),
    "packed": (*[_POINTER] * 2, *[_INT] * 3, ctypes.c_int),
    "product": (*[_POINTER] * 4, *[_INT] * 3, ctypes.c_int),
    "through": (*[_POINTER] * 8, ctypes.c_int),
    "drawn": (*[_POINTER] * 4, *[_INT] * 2, ctypes.c_int),
}
# Inputs of a matrix of bfloat16 come in so many at a time, as in the processor's matrix unit.
TILE_INPUTS = 32
# Fields of `Draws` in `cpu_draws.cpp`, in order.
DRAWN_BY = {
    "temperature": np.float32,
    "top_p": np.float32,
    "min_p": np.float32,
    "top_k": np.int64,
}


@dataclass(frozen=True, slots=True)
class Kernels:
    """The kernels for one type of tensors on the CPU; other types and layouts are copied.

    panel: rows of a matrix that are kept together for the products; 0 where others are faster.
    """

    dtype: torch.dtype
    functions: dict[str, Callable[..., None]]
    panel: int

    def can_multiply(self, weight: Tensor) -> bool:
        """True if there are products with this matrix, [outputs, inputs]."""
        tile = TILE_INPUTS if self.dtype is torch.bfloat16 else 1
        return self.panel > 0 and weight.dtype is self.dtype and weight.shape[1] % tile == 0

    def matrix(self, weight: Tensor, bias: Tensor | None) -> Matrix:
        """A copy of a matrix, [outputs, inputs], for products with it."""
        weight = self.plain(weight)
        outputs, inputs = weight.shape
        panels = weight.new_empty(-(-outputs // self.panel) * self.panel, inputs)
        self.functions["packed"](
            weight.data_ptr(), panels.data_ptr(), outputs, *panels.shape, torch.get_num_threads()
        )
        return Matrix(self, panels, None if bias is None else self.plain(bias), outputs)

    def added_norm(
        self, hidden: Tensor, more: Tensor | None, weight: Tensor, eps: float
    ) -> tuple[Tensor, Tensor]:
        """`hidden + more`, in the place of `hidden`, and its root-mean-square norm.

        hidden, more: [rows, width]. weight: [width].
        """
        hidden = self.plain(hidden)
        more = None if more is None else self.plain(more)
        weight, out = self.plain(weight), torch.empty_like(hidden)
        self.functions["added_norm"](
            hidden.data_ptr(),
            address(more),
            weight.data_ptr(),
            out.data_ptr(),
            *hidden.shape,
            eps,
            torch.get_num_threads(),
        )
        return hidden, out

    def gated(self, gate: Tensor, up: Tensor) -> Tensor:
        """silu(gate) * up, [rows, width]; both may be parts of one tensor's rows."""
        rows, width = gate.shape
        is_usable = gate.stride() == up.stride() and gate.stride(1) == 1
        if not is_usable or not gate.dtype is up.dtype is self.dtype:
            gate, up = self.plain(gate), self.plain(up)
        out = gate.new_empty(rows, width)
        self.functions["gated"](
            gate.data_ptr(),
            up.data_ptr(),
            out.data_ptr(),
            rows,
            width,
            gate.stride(0),
            torch.get_num_threads(),
        )
        return out

    def stored(
        self,
        heads: Tensor,
        turns: tuple[Tensor, Tensor],
        weights: tuple[Tensor, Tensor],
        cached: tuple[Tensor, Tensor],
        places: Tensor,
        eps: float | None,
    ) -> Tensor:
        """Turned queries, [tokens, num_queries, size]; keys and values go to the cache.

        heads: [tokens, heads, size], queries, keys and values side by side.
        turns: cosines and signed sines, [tokens, size]. weights: as `Layer.weight` and `swapped`.
        cached: keys and values of the layer, [rows, num_keys, slots, size]. places: as `KVCache`
            gives them. eps: of the norm of queries and keys, if there is one.
        """
        self.check(cached)
        heads = self.plain(heads)
        tokens, num_heads, size = heads.shape
        num_keys = cached[0].shape[1]
        num_queries = num_heads - 2 * num_keys
        out = heads.new_empty(tokens, num_queries, size)
        inputs = [self.plain(each) for each in (*turns, *weights)]
        self.functions["stored"](
            heads.data_ptr(),
            *[each.data_ptr() for each in inputs],
            out.data_ptr(),
            *[each.data_ptr() for each in cached],
            places.data_ptr(),
            tokens,
            num_queries,
            num_keys,
            size,
            -1.0 if eps is None else eps,
            torch.get_num_threads(),
        )
        return out

    def attended(
        self, query: Tensor, cached: tuple[Tensor, Tensor], rows: Tensor, lengths: Tensor
    ) -> Tensor:
        """Attention of queries, [tokens, heads, size] in and out; the scale is in them already.

        cached: as of `stored`. rows, lengths: int64 [tokens], the row of each token in the cache,
            and how many of its slots the token attends to.
        """
        self.check(cached)
        query = self.plain(query)
        tokens, num_queries, size = query.shape
        _, num_keys, slots, _ = cached[0].shape
        out = torch.empty_like(query)
        self.functions["attended"](
            query.data_ptr(),
            *[each.data_ptr() for each in cached],
            out.data_ptr(),
            rows.data_ptr(),
            lengths.data_ptr(),
            tokens,
            num_queries,
            num_keys,
            slots,
            size,
            torch.get_num_threads(),
        )
        return out

    def drawn(
        self, logits: Tensor, draws: Draws, uniform: NDArray[np.float64], inside: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Tokens and their nats as of `sampling.choose`, int64 and float32 [rows].

        logits: [rows, vocabulary], of the kernels' type. draws, uniform: [rows].
        inside: false, bool [rows, vocabulary]; becomes true for the tokens that are not left out,
            in rows that leave any out. None if there are no such rows.
        The log-prob of a row with NaN or infinity is NaN.
        """
        logits, rows = logits.contiguous(), len(logits)
        columns = [
            *(np.ascontiguousarray(draws[name], kind) for name, kind in DRAWN_BY.items()),
            np.ascontiguousarray(uniform, np.float64),
        ]
        pointers = (*(column.ctypes.data for column in columns), address(inside))
        table = (_POINTER * len(pointers))(*pointers)
        ids, logprobs = torch.empty(rows, dtype=torch.int64), torch.empty(rows)
        self.functions["drawn"](
            logits.data_ptr(),
            ctypes.addressof(table),
            ids.data_ptr(),
            logprobs.data_ptr(),
            *logits.shape,
            torch.get_num_threads(),
        )
        return ids, logprobs

    def plain(self, x: Tensor) -> Tensor:
        """The tensor as the kernels read it."""
        return x.to(self.dtype).contiguous()

    def check(self, cached: tuple[Tensor, Tensor]) -> None:
        """Refuse a cache that the kernels would read or write as numbers of another size."""
        for each in cached:
            if each.dtype is not self.dtype or not each.is_contiguous():
                raise ValueError(f"a cache of {each.dtype} and strides {each.stride()}")


@dataclass(frozen=True, slots=True)
class Matrix:
    """A linear map of rows, [rows, inputs] to [rows, outputs], by the kernels.

    panels: the matrix in their layout; zeros fill the last panel. bias: [outputs].
    A row's result is the same to the bit in any batch.
    """

    kernels: Kernels
    panels: Tensor
    bias: Tensor | None
    outputs: int

    def __call__(self, x: Tensor) -> Tensor:
        """The outputs, [rows, outputs]; ValueError if the rows have another number of inputs."""
        x = self.kernels.plain(x)
        if x.shape[1] != self.panels.shape[1]:
            raise ValueError(
                f"rows of {x.shape[1]} numbers and a matrix of {self.panels.shape[1]} inputs"
            )
        out = x.new_empty(len(x), self.outputs)
        self.kernels.functions["product"](
            x.data_ptr(),
            self.panels.data_ptr(),
            address(self.bias),
            out.data_ptr(),
            *x.shape,
            self.outputs,
            torch.get_num_threads(),
        )
        return out


def address(tensor: Tensor | None) -> int | None:
    """Address of a tensor's numbers; None, which is null in C, without a tensor."""
    return None if tensor is None else tensor.data_ptr()


def kernels_for(weight: Tensor, head_size: int) -> Kernels | None:
    """The kernels for a model with this param, compiled if need be; None if there are none."""
    name = {torch.float32: "float", torch.bfloat16: "bfloat16"}.get(weight.dtype)
    if weight.device.type != "cpu" or name is None or head_size > LARGEST_HEAD:
        return None
    library = _library()
    if library is None:
        return None
    panel: int = getattr(library, f"panel_{name}")()
    functions: dict[str, Callable[..., None]] = {}
    for function, arguments in _ARGUMENTS.items():
        found = getattr(library, f"{function}_{name}")
        found.argtypes, found.restype = arguments, None
        functions[function] = found
    return Kernels(weight.dtype, functions, panel)


@cache
def _library() -> ctypes.CDLL | None:
    """The kernels, compiled at the first call on a machine; None, with a warning, if they can't be.

    Only on Linux: elsewhere compilers take other flags.
    """
    if not sys.platform.startswith("linux"):
        return None
    warn = partial(
        logging.getLogger(__name__).warning,
        "the local engine samples by torch's functions alone, which is slower: %s",
    )
    compiler = _compiler()
    if not compiler:
        warn("it found no C++ compiler; install g++, or name one in the variable CXX")
        return None
    try:
        return _loaded(compiler)
    except subprocess.CalledProcessError as error:
        warn(f"{shlex.join(compiler)} failed with {error.stderr.strip()[:500]!r}")
    except (OSError, RuntimeError, subprocess.TimeoutExpired) as error:
        warn(f"{shlex.join(compiler)}: {error}")
    return None


def _compiler() -> list[str]:
    """The C++ compiler as the beginning of a command: that of CXX, or the first that is there."""
    if chosen := shlex.split(os.environ.get("CXX", "")):
        return chosen
    return next(([found] for name in COMPILERS if (found := shutil.which(name))), [])


def _loaded(compiler: Sequence[str]) -> ctypes.CDLL:
    """The shared library, from the user's cache if it is there."""
    command = [*compiler, *FLAGS]
    # A home may be shared by machines, and instructions of one end the process on another.
    sources = [path.read_bytes() for path in (*HEADERS, *SOURCES)]
    made_of = (*sources, repr(command).encode(), _processor())
    name = f"kernels-{hashlib.sha256(b'|'.join(made_of)).hexdigest()[:24]}.so"
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ludic"
    with suppress(OSError):
        return ctypes.CDLL(str(folder / name))
    with tempfile.TemporaryDirectory() as made:
        path = Path(made) / name
        command += ["-o", str(path), *map(str, SOURCES)]
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=COMPILE_S)
        # Where nothing can be kept, this process alone has it.
        with suppress(OSError):
            path = _kept(path, folder)
        return ctypes.CDLL(str(path))


def _kept(path: Path, folder: Path) -> Path:
    """A copy of the file in the folder."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = folder / f"{path.name}.{os.getpid()}"
    shutil.copyfile(path, draft)
    # In one step, since other processes may look for it meanwhile.
    return draft.replace(folder / path.name)


def _processor() -> bytes:
    """Facts of the first processor: its model and instructions."""
    with Path("/proc/cpuinfo").open("rb") as file:
        facts = file.read(2**14).split(b"\n\n")[0]
    kept = (b"model", b"flags", b"Features", b"CPU")
    return b"\n".join(line for line in facts.splitlines() if line.startswith(kept))
