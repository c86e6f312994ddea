"""TrainedRun: what `lt.train` returns."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from html import escape
from pathlib import Path
from typing import Any

from ludic_gym.bench.result import BenchResult
from ludic_gym.errors import ConfigError
from ludic_gym.types import Env
from ludic_train.loggers.console import readable
from ludic_train.loggers.loggers import read_metrics
from ludic_train.runs.folder import METRICS, RESULTS, started_recipe
from ludic_train.runs.tasks import eval_id

WIDTH, HEIGHT = 320, 90


class TrainedRun(Mapping[str, float]):
    """A finished run: the numbers of its final evaluation by name, and what is in its folder.

    out: folder of the run. results: its final evaluation; that of the folder if left out.
    Raises ConfigError for a folder without one. A notebook shows the reward over the run.

        run = lt.train("ludic/Arithmetic-v0", out="runs/sums")
        run["test/success"], run.curves["reward"][-1]
        run.evaluate(episodes=200).first_failure
    """

    def __init__(self, out: str | Path, results: Mapping[str, float] | None = None) -> None:
        self.out = Path(out)
        if results is None:
            path = self.out / RESULTS
            if not path.is_file():
                raise ConfigError(f"{out} holds no finished run: {path} does not exist")
            results = json.loads(path.read_text(encoding="utf-8"))
        self._results: Mapping[str, float] = results

    def __getitem__(self, name: str) -> float:
        return self._results[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._results)

    def __len__(self) -> int:
        return len(self._results)

    def __repr__(self) -> str:
        return f"TrainedRun({str(self.out)!r}, {dict(self._results)!r})"

    @property
    def model(self) -> Path:
        """Folder of the model, as transformers and vLLM read it."""
        return self.out / "model"

    @property
    def curves(self) -> dict[str, list[float]]:
        """The numbers of each metric in the order of the updates; of evaluations, there are fewer.

        The number of the update of each is not in them: see `read_metrics`.
        """
        curves: dict[str, list[float]] = {}
        for record in read_metrics(self.out / METRICS):
            for name, value in record.items():
                if name != "update":
                    curves.setdefault(name, []).append(value)
        return curves

    def evaluate(
        self,
        env: str | Callable[[], Env] | None = None,
        **options: Any,  # noqa: ANN401 - those of lg.evaluate
    ) -> BenchResult:
        """The model on an environment, or on the one of the run's evaluations.

        options: of `lg.evaluate`; the sampling is that of the run's evaluations if left out.
        """
        # Imported here: training evaluates by its own policy.
        from ludic_gym.bench.evaluation import evaluate

        recipe = started_recipe(self.out)[0]
        tasks = next(iter(recipe.evals.values()))
        sampling = replace(recipe.defaults.sample.sampling, temperature=tasks.temperature)
        own: dict[str, Any] = {"sampling": sampling}
        own |= {"env_kwargs": dict(tasks.kwargs)} if env is None else {}
        return evaluate(env or eval_id(recipe, tasks), str(self.out), **{**own, **options})

    def _repr_html_(self) -> str:
        # Imported here: most runs are shown by no notebook.
        from ludic_gym.bench.shown import table_html

        values = [[name, readable(value)] for name, value in self._results.items()]
        reward = self.curves.get("reward", []) if (self.out / METRICS).is_file() else []
        picture = curve_svg("reward", reward) if len(reward) > 1 else ""
        return f"<div>{escape(str(self.out))}</div>{picture}" + table_html(
            [["result", "value"], *values]
        )


def curve_svg(name: str, values: Sequence[float]) -> str:
    """A picture of a curve of two values or more, with its lowest, highest and last value.

    >>> curve_svg("reward", [0.0, 1.0]).count("<polyline")
    1
    """
    low, high = min(values), max(values)
    span = (high - low) or 1.0
    last = len(values) - 1
    points = " ".join(
        f"{i * WIDTH / last:.1f},{HEIGHT - (value - low) / span * HEIGHT:.1f}"
        for i, value in enumerate(values)
    )
    label = f"{name}: {values[-1]:.3g} (from {low:.3g} to {high:.3g}, {len(values)} updates)"
    return (
        f'<svg width="{WIDTH}" height="{HEIGHT + 24}" viewBox="0 -4 {WIDTH} {HEIGHT + 28}" '
        f'role="img"><polyline points="{points}" fill="none" stroke="#2a6f97" stroke-width="2"/>'
        f'<text x="0" y="{HEIGHT + 18}" font-size="12">{escape(label)}</text></svg>'
    )
