"""Log-probs of the trainer beside a model's own, in small models of many architectures.

    python benchmarks/exactness.py

"difference" is in nats per token, on average over 60 tokens; "without" is that of a trainer which
takes the output of the head for the logits.
"""

from __future__ import annotations

from unittest import mock

from architectures import ARCHITECTURES, made
from rich.console import Console
from rich.table import Table
from torch import nn

from ludic_train.models import head
from ludic_train.trainer.probes import (
    logprob_difference,
    reason_not_to_pack,
    reason_not_to_share_prompts,
)


def without_finish(model: nn.Module) -> float:
    """The difference, with the output of the head as logits."""
    with mock.patch.object(head, "logit_finish", return_value=None):
        return logprob_difference(model)[0]


def main() -> None:
    table = Table("architecture", "difference", "without", "rows are packed", "prompts are shared")
    for name in ARCHITECTURES:
        model = made(name)
        packs = reason_not_to_pack(model)
        shares = packs or reason_not_to_share_prompts(model)
        found, without = logprob_difference(model)[0], without_finish(model)
        table.add_row(name, f"{found:.1e}", f"{without:.1e}", packs or "yes", shares or "yes")
    Console(width=130).print(table)


if __name__ == "__main__":
    main()
