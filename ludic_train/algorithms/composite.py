"""CompositeLoss: several losses as one, with weights, and names for their metrics."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from types import FunctionType

import torch
from torch import Tensor

from ludic_gym.errors import ConfigError
from ludic_train.algorithms.losses import Loss, LossMetrics
from ludic_train.errors import LossError
from ludic_train.types import LossBatch, TokenLogprobs


@dataclass(frozen=True, slots=True)
class CompositeLoss:
    """The weighted sum of several losses.

        CompositeLoss((clipped, ValueLoss()), weights=(1.0, 0.5), names=("policy", "value"))

    terms: losses on the same tokens.
    weights: a factor per term, beside its own coefficient; None: 1 for each. Metrics of a term are
        not weighted.
    names: a name per term; None: made from its class, as "token_kl" from TokenKLLoss, with a number
        from the second term of a class on. They stand before a metric that several terms report:
        "policy/clip_low". A metric of one term keeps its own name.

    >>> import torch
    >>> from ludic_train import REFERENCE, MaskedCausalLMCrossEntropyLoss, TokenKLLoss
    >>> one = torch.ones(1)
    >>> known = LossBatch(
    ...     weight=one,
    ...     scale=one,
    ...     rollout=torch.tensor([0]),
    ...     num_rollouts=1,
    ...     attachments={REFERENCE: -2 * one},
    ... )
    >>> terms = (MaskedCausalLMCrossEntropyLoss(), TokenKLLoss(1.0))
    >>> loss = CompositeLoss(terms, weights=(1.0, 0.1))
    >>> total, metrics = loss(TokenLogprobs(logprobs=-one, entropy=one), known)
    >>> round(total.item(), 3), sorted(metrics)
    (1.05, ['nll', 'reference_kl'])
    """

    terms: Sequence[Loss]
    weights: Sequence[float] | None = None
    names: Sequence[str] | None = None

    def __post_init__(self) -> None:
        if not self.terms:
            raise ConfigError("CompositeLoss has no terms; give it at least one loss")
        for name, parts in (("weights", self.weights), ("names", self.names)):
            if parts is not None and len(parts) != len(self.terms):
                raise ConfigError(
                    f"CompositeLoss has {len(self.terms)} terms and {name}={parts!r}; give one per "
                    "term"
                )
        if not all(map(math.isfinite, self.weights or ())):
            raise ConfigError(f"CompositeLoss has weights={self.weights}; they must be finite")
        if len(set(self._names())) < len(self.terms) or not all(self._names()):
            raise ConfigError(
                f"CompositeLoss has names={self.names!r}; they must differ and not be empty"
            )

    def __call__(self, out: TokenLogprobs, batch: LossBatch) -> tuple[Tensor, LossMetrics]:
        """The summed loss and all terms' metrics."""
        # On the batch's device and of its type, which a plain 0.0 would not be.
        total = torch.zeros_like(batch.scale[:0]).sum()
        reports: list[LossMetrics] = []
        for term, weight in zip(self.terms, self.weights or [1.0] * len(self.terms), strict=True):
            value, own = term(out, batch)
            total = total + weight * value
            reports.append(own)
        return total, _side_by_side(self._names(), reports)

    def _names(self) -> list[str]:
        return _names_of(self.terms) if self.names is None else list(self.names)


def _names_of(terms: Sequence[Loss]) -> list[str]:
    """Names made from the classes of the losses: "token_kl", "token_kl_2"."""
    made = [_snake_case(_plain_name(term).removesuffix("Loss") or "loss") for term in terms]
    earlier = [made[:i].count(name) for i, name in enumerate(made)]
    return [f"{name}_{n + 1}" if n else name for name, n in zip(made, earlier, strict=True)]


def _plain_name(term: Loss) -> str:
    """Name of a function, or of the class of any other callable."""
    return term.__name__ if isinstance(term, FunctionType) else type(term).__name__


def _snake_case(name: str) -> str:
    """The name of a class in lower case, its words joined by "_"."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


def _side_by_side(names: Sequence[str], reports: Sequence[LossMetrics]) -> LossMetrics:
    """All metrics; one of several reports has the name of its own before it.

    Raises LossError if a name made so belongs to a further metric.
    """
    counts = Counter(metric for report in reports for metric in report)
    merged: LossMetrics = {}
    for name, report in zip(names, reports, strict=True):
        for metric, pair in report.items():
            key = metric if counts[metric] == 1 else f"{name}/{metric}"
            # One would overwrite the other and the log would show half of the truth.
            if key in merged:
                raise LossError(
                    f"two metrics of a CompositeLoss have the name {key!r}; give its terms other "
                    f"names than {list(names)}"
                )
            merged[key] = pair
    return merged
