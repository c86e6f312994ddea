"""Score: one episode in numbers. Tally: the scores so far. BenchResult: many in numbers."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import groupby
from statistics import fmean
from typing import Any, NamedTuple, TypeVar, cast

from ludic_gym.bench.statistics import (
    Interval,
    bootstrap_interval,
    clustered_wilson_interval,
    pass_at_k,
    pass_hat_k,
)
from ludic_gym.errors import Blame, QuotaExhausted
from ludic_gym.rollout.outcome import TOO_LONG, last_info, outcome, succeeded
from ludic_gym.rollout.transcript import Transcript, first_failure, reply_text
from ludic_gym.types import Completion, Episode, Rollout

T = TypeVar("T", int, float)
SAMPLE_NOTE = (
    "sample: a few home-made questions, not the data set, which split=test of --env-kwargs names"
)
# Equal client errors in a row, after which more requests would be refused too.
REFUSALS = 20
# Servers put numbers and ids of requests into their messages.
_NUMBERS = re.compile(r"\b(?=[\w-]*\d)[\w-]+\b")
# Seeds may have any size, but the integers of a parquet file have 64 bits.
_SEED_BITS = (1 << 63) - 1


class Price(NamedTuple):
    """Cost of a million tokens.

    cached: of prompt tokens that the server had in its cache; None if they cost as much as others.

    >>> Price(2.0, 8.0, 0.5).cost(prompt=1_000_000, completion=0, cached=800_000)
    0.8
    """

    prompt: float
    completion: float
    cached: float | None = None

    def cost(self, prompt: int, completion: int, cached: int = 0) -> float:
        """Cost of so many tokens. cached: those of the prompt that were in the cache."""
        cached_price = self.prompt if self.cached is None else self.cached
        spent = (
            (prompt - cached) * self.prompt + cached * cached_price + completion * self.completion
        )
        return spent / 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """One episode in numbers.

    index: the episode's position in the request.
    task: the same for all samples of a task: its env seed, or the index where it has none.
    row: of a task that names a row of the data, its number; None for others.
    success: None where the environment does not say.
    outcome: the end in a word, as of `rollout.outcome`; "error" where an error ended the episode.
    prompt_tokens, completion_tokens: of all model calls, by their token ids or the server's count;
        None where a server returned neither.
    cost: of all model calls, as the server states it, or by the given price; None if unknown.
    model: the served model, by its server's responses; several are joined by ", ".
    cut_off: turns whose reply ran into `max_tokens`. illegal: turns without a legal action. empty:
        turns whose reply is blank. tool_calls: replies that call tools; None without a model.
    data: the rows it was played from, with their hash; "" for an env without rows.
    metrics: further figures of the episode by name. weights: theirs in the mean, where it is not 1.
    error: of an episode that it ended, whose other numbers are 0; None for others. blame: the cause
        of the error; None without one, and in records of earlier versions.
    """

    index: int
    task: int
    row: int | None = None
    success: bool | None = False
    reward: float = 0.0
    outcome: str = "error"
    turns: int = 0
    prompt_tokens: int | None = 0
    completion_tokens: int | None = 0
    cost: float | None = None
    model: str = ""
    cut_off: int = 0
    illegal: int = 0
    empty: int = 0
    tool_calls: int | None = None
    data: str = ""
    metrics: Mapping[str, float] = field(default_factory=dict)
    weights: Mapping[str, float] = field(default_factory=dict)
    error: str | None = None
    blame: Blame | None = None

    @property
    def counts(self) -> bool:
        """True if the model ended the episode, which is evidence about it."""
        return self.error is None or self.blame == "model"


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchResult:
    """Many episodes in numbers. Those that the model did not end are no evidence: see `errors`.

    episodes: number of episodes that the model ended; `success_rate` and `mean_reward` are over
        these, nan if there are none.
        `success_rate` is also nan where the environment says nothing of success.
    success_interval: Wilson's, 95%, on the effective number of trials if tasks have samples.
    reward_interval: 95%, from resampling tasks; None with fewer than two of them, and where all
        have the same reward, which shows no spread.
    tasks: number of different tasks.
    pass_at_k, pass_hat_k: entry k - 1 is the probability that one of k samples succeeds, or all of
        them, averaged over tasks; up to the number of samples that every task has, if it is at
        least two.
    outcomes: number of episodes with each outcome, the most frequent first.
    turns, prompt_tokens, completion_tokens, cost, cut_off, illegal, empty, tool_calls: sums over
        the episodes; None where it is unknown for one of them.
    model: the served model, by its server's responses; "" for a policy without one.
    data: the rows they were played from, with their hash: "sample@..." for a bundled sample.
    metrics: weighted means of the benchmark's further figures, such as "f1", by name.
    errors: (index of the episode, reason) of each one that the environment or infrastructure ended,
        by index. blames: number of them by cause.
    stopped: the error that ended the run before its last episode; "" for a whole run.
    note: what the numbers are not, such as those of a data set; "" for nothing.
    played: the episodes by index; () in results of commands. A notebook shows the result with three
        of them.
    """

    episodes: int
    successes: int
    success_rate: float
    success_interval: Interval
    mean_reward: float
    reward_interval: Interval | None
    tasks: int = 0
    pass_at_k: tuple[float, ...] = ()
    pass_hat_k: tuple[float, ...] = ()
    outcomes: Mapping[str, int] = field(default_factory=dict)
    turns: int = 0
    prompt_tokens: int | None = 0
    completion_tokens: int | None = 0
    cost: float | None = None
    model: str = ""
    cut_off: int = 0
    illegal: int = 0
    empty: int = 0
    tool_calls: int | None = None
    data: str = ""
    metrics: Mapping[str, float] = field(default_factory=dict)
    errors: tuple[tuple[int, str], ...] = ()
    blames: Mapping[str, int] = field(default_factory=dict)
    stopped: str = ""
    note: str = ""
    played: tuple[Episode, ...] = field(default=(), repr=False, compare=False)

    @property
    def dropped(self) -> float:
        """Share of all episodes that the environment or infrastructure ended."""
        return len(self.errors) / max(1, self.episodes + len(self.errors))

    @property
    def numbers(self) -> dict[str, Any]:
        """All fields but `played`, as JSON holds them."""
        numbers = asdict(replace(self, played=()))
        del numbers["played"]
        return numbers

    @property
    def first_failure(self) -> Transcript | None:
        """The first of `played` with a reply that went wrong, to print; None if there is none."""
        return first_failure(self.played)

    def rows(self) -> list[dict[str, Any]]:
        """A flat dict for each of `played`, as `pandas.DataFrame(result.rows())` takes them."""
        return [_row(episode) for episode in self.played]

    def _repr_html_(self) -> str:
        # It shows this class, and needs it to be imported.
        from ludic_gym.bench.shown import result_html

        return result_html(self)


def score(episode: Episode, price: Price | None = None) -> Score:
    """The episode in numbers; its one rollout is that of the one-player view.

    price: for servers that state no cost.
    Raises ValueError for a finished match, which has a rollout for each player.

    >>> from ludic_gym import Task
    >>> score(Episode(index=3, task=Task(env_id="ludic/Maze-v0", seed=7), error="it broke")).task
    7
    """
    seed = episode.task.seed
    task = episode.index if seed is None else seed & _SEED_BITS
    row = (episode.task.options or {}).get("row")
    if episode.error is not None:
        return Score(
            index=episode.index,
            task=task,
            row=row,
            # The one error of a model.
            outcome=TOO_LONG if episode.blame == "model" else "error",
            error=episode.error,
            blame=episode.blame,
        )
    (rollout,) = episode.rollouts
    calls = [call for step in rollout.steps for call in step.decision.completions]
    counts = [token_counts(call) for call in calls]
    prompts = known_sum(prompt for prompt, _ in counts)
    sampled = known_sum(completion for _, completion in counts)
    return Score(
        index=episode.index,
        task=task,
        row=row,
        success=succeeded(rollout),
        reward=rollout.total_reward,
        outcome=outcome(rollout),
        turns=len(rollout.steps),
        prompt_tokens=prompts,
        completion_tokens=sampled,
        cost=known_sum(call_cost(call, price) for call in calls) if calls else None,
        model=", ".join(served_models(episode)),
        cut_off=sum(step.decision.cut_off for step in rollout.steps),
        illegal=sum(step.illegal for step in rollout.steps),
        empty=sum(step.decision.empty for step in rollout.steps),
        tool_calls=sum(map(_calls_tools, calls)) if calls else None,
        data=str(last_info(rollout).get("data", "")),
        metrics=_figures(rollout, "metric/"),
        weights=_figures(rollout, "weight/"),
    )


def _calls_tools(completion: Completion) -> bool:
    # A call in text is one too, in whatever form a protocol reads it.
    return bool(completion.tool_calls) or "<tool_call>" in completion.text


def _row(episode: Episode) -> dict[str, Any]:
    """The score, the seed, the first observation and the last reply."""
    one = score(episode)
    steps = episode.rollouts[0].steps if episode.rollouts else ()
    plain = {name: getattr(one, name) for name in one.__slots__}
    metrics = {f"metric/{name}": value for name, value in plain.pop("metrics").items()}
    plain.pop("weights")
    return {
        "env": episode.task.env_id,
        "seed": episode.task.seed,
        **plain,
        **metrics,
        "observation": steps[0].observation if steps else "",
        "reply": reply_text(steps[-1]) if steps else "",
    }


def _figures(rollout: Rollout, prefix: str) -> dict[str, float]:
    """The numbers of the last info under names that begin with the prefix."""
    info = last_info(rollout).items()
    named = [(name, value) for name, value in info if str(name).startswith(prefix)]
    return {name.removeprefix(prefix): float(value) for name, value in named}


def served_models(episode: Episode) -> list[str]:
    """The models that an episode was played by, as their servers name them, each once."""
    calls = (
        completion.call
        for rollout in episode.rollouts
        for step in rollout.steps
        for completion in step.decision.completions
    )
    return list(dict.fromkeys(call.model for call in calls if call is not None))


def known_sum(values: Iterable[T | None]) -> T | int | None:
    """The sum; None if one of the values is None.

    >>> known_sum([1, 2]), known_sum([1, None])
    (3, None)
    """
    # A sum without the tokens that a server did not return would look like a short reply.
    numbers = list(values)
    return None if None in numbers else sum(cast(list[T], numbers))


def token_counts(completion: Completion) -> tuple[int | None, int | None]:
    """Number of tokens of the prompt and of the completion; None where it is unknown.

    By the token ids, or else by the server's count.
    """
    return (
        _tokens(completion, completion.prompt_ids, "prompt_tokens"),
        _tokens(completion, completion.completion_ids, "completion_tokens"),
    )


def call_cost(completion: Completion, price: Price | None) -> float | None:
    """Cost of a model call, as its server states it, or by the price; None if unknown."""
    stated = _stated(completion, "cost")
    if stated is not None or price is None:
        return stated
    prompt, sampled = token_counts(completion)
    if prompt is None or sampled is None:
        return None
    return price.cost(prompt, sampled, int(_stated(completion, "cached_tokens") or 0))


def _tokens(completion: Completion, ids: Sequence[int] | None, counted: str) -> int | None:
    """Number of tokens. counted: name of the server's count, for a response without token ids."""
    if ids is not None:
        return len(ids)
    count = _stated(completion, counted)
    return None if count is None else int(count)


def _stated(completion: Completion, name: str) -> float | None:
    """A number of the server's usage. Servers leave one out, or send null."""
    value = None if completion.call is None else completion.call.usage.get(name)
    return value if isinstance(value, int | float) else None


class Tally:
    """Scores so far, added in any order; those that the model did not end count as errors only.

    >>> tally = Tally([Score(index=0, task=0, success=True), Score(index=1, task=1)])
    >>> tally.success_rate, tally.result().episodes
    (0.5, 2)
    """

    def __init__(self, scores: Iterable[Score] = ()) -> None:
        self.scores: list[Score] = []
        self._counted: list[Score] = []
        self._dropped: list[Score] = []
        self._successes, self._unknown = 0, 0
        self._failure, self._in_a_row = "", 0
        for score in scores:
            self.add(score)

    def add(self, score: Score) -> None:
        """Count one more episode."""
        self.scores.append(score)
        if score.counts:
            self._in_a_row = 0
            self._counted.append(score)
            self._successes += bool(score.success)
            self._unknown += score.success is None
        else:
            self._dropped.append(score)
            failure = _NUMBERS.sub("#", score.error or "")
            self._in_a_row = self._in_a_row + 1 if failure == self._failure else 1
            self._failure = failure

    @property
    def stopped(self) -> str:
        """The error of the last 20 episodes, if it is the same ClientError; else "".

        One of them is enough if it is a quota that is used up.
        """
        is_refused = self._in_a_row >= REFUSALS and self._failure.startswith("ClientError")
        is_refused |= self._in_a_row > 0 and self._failure.startswith(QuotaExhausted.__name__)
        return self._dropped[-1].error or "" if is_refused else ""

    @property
    def success_rate(self) -> float:
        """The share of successes so far; nan before the first episode, and where none is known."""
        if not self._counted or self._unknown:
            return math.nan
        return self._successes / len(self._counted)

    def result(self) -> BenchResult:
        """The result, independent of the order of the scores."""
        # Sums of floats and resampled tasks depend on the order, and episodes end in any order.
        scores = sorted(self._counted, key=lambda score: (score.task, score.index))
        tasks = [list(group) for _, group in groupby(scores, key=lambda score: score.task)]
        trials = [len(task) for task in tasks]
        # Without successes that are known there is no rate, and no interval of one.
        known = [] if self._unknown else tasks
        wins = [sum(bool(score.success) for score in task) for task in known]
        tried = [len(task) for task in known]
        totals = [math.fsum(score.reward for score in task) for task in tasks]
        outcomes = Counter(score.outcome for score in scores)
        # Records of earlier versions name no blame; most of their errors are of servers.
        blames = Counter(score.blame or "infrastructure" for score in self._dropped)
        return BenchResult(
            episodes=len(scores),
            successes=self._successes,
            success_rate=self.success_rate,
            success_interval=clustered_wilson_interval(wins, tried),
            mean_reward=fmean(score.reward for score in scores) if scores else math.nan,
            reward_interval=bootstrap_interval(totals, trials) if len(trials) > 1 else None,
            tasks=len(trials),
            pass_at_k=_over_tasks(pass_at_k, wins, tried),
            pass_hat_k=_over_tasks(pass_hat_k, wins, tried),
            # Equal counts by name, so that equal results are equal texts.
            outcomes=dict(sorted(outcomes.items(), key=lambda item: (-item[1], item[0]))),
            turns=sum(score.turns for score in scores),
            prompt_tokens=known_sum(score.prompt_tokens for score in scores),
            completion_tokens=known_sum(score.completion_tokens for score in scores),
            cost=known_sum(score.cost for score in scores) if scores else None,
            model=", ".join(sorted({score.model for score in scores} - {""})),
            cut_off=sum(score.cut_off for score in scores),
            illegal=sum(score.illegal for score in scores),
            empty=sum(score.empty for score in scores),
            tool_calls=known_sum(score.tool_calls for score in scores) if scores else None,
            data=", ".join(sorted({score.data for score in scores} - {""})),
            metrics=_weighted_means(scores),
            errors=tuple(sorted((score.index, score.error or "") for score in self._dropped)),
            blames=dict(sorted(blames.items())),
            stopped=self.stopped,
            note=SAMPLE_NOTE if any(s.data.startswith("sample@") for s in scores) else "",
        )


def _weighted_means(scores: Iterable[Score]) -> dict[str, float]:
    """The mean of each metric over the episodes, by its weights.

    An episode without them, such as one without a reply, counts as 0 with the weight 1.
    """
    scores = list(scores)
    names = dict.fromkeys(name for score in scores for name in score.metrics)
    means = {}
    for name in names:
        weights = [score.weights.get(name, 1.0) for score in scores]
        values = [score.metrics.get(name, 0.0) for score in scores]
        total = math.fsum(w * v for w, v in zip(weights, values, strict=True))
        means[name] = total / math.fsum(weights)
    return means


def _over_tasks(
    estimate: Callable[[int, int, int], float], wins: list[int], trials: list[int]
) -> tuple[float, ...]:
    """The estimate for k = 1, 2 ... samples, averaged over tasks; () if a task has but one."""
    most = min(trials, default=0)
    if most < 2:
        return ()
    # Many tasks have the same counts, and binomials of large numbers are slow.
    pairs = Counter(zip(wins, trials, strict=True))
    return tuple(
        math.fsum(count * estimate(*pair, k) for pair, count in pairs.items()) / len(trials)
        for k in range(1, most + 1)
    )
