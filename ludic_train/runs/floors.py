"""Floors of entropy and reward, below which a run has collapsed."""

from __future__ import annotations

from collections import defaultdict, deque

from ludic_train.errors import Collapsed
from ludic_train.metrics import Metrics
from ludic_train.runs.config import RunConfig

# One update's mean is noise.
UPDATES = 10


class Floors:
    """Raises Collapsed when the mean of the last ten updates is below a floor of the settings."""

    def __init__(self, config: RunConfig) -> None:
        floors = {"entropy": config.evaluate.least_entropy, "reward": config.evaluate.least_reward}
        self._floors = {name: floor for name, floor in floors.items() if floor is not None}
        self._out = config.out
        self._seen: dict[str, deque[float]] = defaultdict(lambda: deque(maxlen=UPDATES))

    def __call__(self, metrics: Metrics) -> None:
        """Look at the metrics of an update."""
        # Of learning from rewards: updates that imitate have none.
        if "reward" not in metrics and not self._seen["reward"]:
            return
        for name, floor in self._floors.items():
            if name in metrics:
                self._seen[name].append(metrics[name].value)
            seen = self._seen[name]
            if len(seen) == UPDATES and sum(seen) / UPDATES < floor:
                raise Collapsed(
                    f"{name} was {sum(seen) / UPDATES:.4g} over {UPDATES} updates, below "
                    f"least_{name}={floor:g}: {self._out}/checkpoints has earlier states; start "
                    "again with a lower --lr, or with --entropy or --kl"
                )
