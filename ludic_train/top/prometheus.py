"""A sample in the text format of Prometheus (version 0.0.4), and a server that gives it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from aiohttp import web

from ludic_train.top.sample import Rate, Sample
from ludic_train.top.servers import Load

Labels = tuple[tuple[str, str], ...]
Values = Mapping[Labels, float]
GAUGE, COUNTER = "gauge", "counter"


def metrics_text(sample: Sample) -> str:
    """All that `ludic top` shows."""
    return "\n".join(_lines(sample)) + "\n"


async def serve_metrics(newest: Callable[[], Sample], *, host: str, port: int) -> web.AppRunner:
    """Answer /metrics with the newest sample; the caller cleans the runner up."""

    async def metrics(request: web.Request) -> web.Response:
        return web.Response(text=metrics_text(newest()), content_type="text/plain")

    app = web.Application()
    app.router.add_get("/metrics", metrics)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, host, port).start()
    return runner


def _lines(sample: Sample) -> Iterator[str]:
    status = sample.status
    yield from _metric("queue_groups", GAUGE, {(): status.queued})
    yield from _metric("queue_pending_groups", GAUGE, {(): status.pending})
    yield from _metric("queue_held_groups", GAUGE, {(): status.held})
    ends: Values = {(("end", name),): count for name, count in sorted(status.counts.items())}
    yield from _metric("groups_total", COUNTER, ends)
    lags: Values = {(("lag", str(lag)),): groups for lag, groups in status.lags.items()}
    yield from _metric("groups_by_lag_total", COUNTER, lags)
    if status.trainer is not None:
        yield from _metric("trainer_version", GAUGE, {(): status.trainer.version})
    yield from _metric("actors", GAUGE, {(): len(status.actors)})
    yield from _metric("tokens_per_second", GAUGE, {(): sample.tokens_per_s})
    names: list[Labels] = [(("actor", report.name),) for report in status.actors]
    for field, kind in (("version", GAUGE), ("running", GAUGE), ("groups", COUNTER)):
        values = [getattr(report, field) for report in status.actors]
        suffix = "_total" if kind == COUNTER else ""
        yield from _metric(f"actor_{field}{suffix}", kind, dict(zip(names, values, strict=True)))
    rates: Values = {name: sample.actors.get(name[0][1], Rate()).tokens for name in names}
    yield from _metric("actor_tokens_per_second", GAUGE, rates)
    yield from _server_lines(sample.servers)


def _server_lines(loads: Sequence[Load]) -> Iterator[str]:
    """Of servers that do not answer, only that they do not."""

    def values(of: Callable[[Load], float], among: Sequence[Load]) -> Values:
        return {(("server", load.status.url),): of(load) for load in among}

    up = [load for load in loads if not load.status.error]
    # One that was started again calls its params otherwise.
    named = [load for load in up if load.status.version.isdecimal()]
    yield from _metric("server_up", GAUGE, values(lambda load: not load.status.error, loads))
    yield from _metric("server_version", GAUGE, values(lambda x: int(x.status.version), named))
    yield from _metric("server_paused", GAUGE, values(lambda load: load.status.is_paused, up))
    yield from _metric("server_running", GAUGE, values(lambda load: load.status.running, up))
    yield from _metric("server_waiting", GAUGE, values(lambda load: load.status.waiting, up))
    yield from _metric("server_cache_share", GAUGE, values(lambda load: load.status.cache, up))
    yield from _metric("server_tokens_total", COUNTER, values(lambda x: x.status.sampled, up))
    rates = values(lambda load: load.tokens_per_s, up)
    yield from _metric("server_tokens_per_second", GAUGE, rates)


def _metric(name: str, kind: str, values: Values) -> Iterator[str]:
    if not values:
        return
    yield f"# TYPE ludic_{name} {kind}"
    for labels, value in values.items():
        inside = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels)
        yield f"ludic_{name}{{{inside}}} {value:g}" if inside else f"ludic_{name} {value:g}"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
