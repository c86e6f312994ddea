"""`ludic model`: a small chat model, made on this machine."""

from __future__ import annotations

import asyncio
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from ludic_gym.commands.arguments import option, parse
from ludic_train.models.cache import cache_folder

EXAMPLES = """\
ludic model
ludic model --size tiny
ludic model --seed 1 --out models/other"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelOptions:
    """Make a small chat model from episodes of the environments' oracles.

    It is kept under the name ludic-small (or ludic-tiny), which --model of other commands takes. A
    model that was made before in the same way is left as it is. Equal seeds make equal models.
    """

    size: Literal["small", "tiny"] = "small"
    """small: 2.1 million params, 19 minutes of one core; tiny: 0.3 million, two minutes."""
    seed: int = 0
    """Of episodes, wording, params and batches."""
    out: Annotated[Path | None, option("DIR")] = None
    """Folder of the model; by default ~/.cache/ludic/models/NAME, or below LUDIC_CACHE."""


def main(argv: list[str]) -> int:
    """Make the model, unless it is there; the exit code."""
    options = parse(ModelOptions, argv, command="model", examples=EXAMPLES)
    name = f"ludic-{options.size}"
    folder = options.out or cache_folder(name)
    # torch takes seconds, and --help must not wait for it.
    from ludic_train.loggers.console import ConsoleLogger
    from ludic_train.small_model.make import SIZES, is_made, make_small_model

    size = SIZES[options.size]
    if is_made(folder, size, options.seed):
        print(f"{name} is in {folder} already, of seed {options.seed}")
        return 0
    print(f"playing the episodes that {name} learns from", flush=True)
    with closing(ConsoleLogger(size.updates, title=name, headline="loss", every=50)) as logger:
        asyncio.run(make_small_model(size, folder, seed=options.seed, on_update=logger.log))
    used = name if options.out is None else str(folder)
    print(f"{name} is in {folder}\ntry it   ludic bench ludic/TicTacToe-v0 --policy {used}")
    return 0
