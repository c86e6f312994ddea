"""A sample in the text format of Prometheus (version 0.0.4), and a server for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from aiohttp import web

from ludic_train.cluster.status.sample import Rate, Sample
from ludic_train.sources.levels import levels_from_text

GAUGE, COUNTER = "gauge", "counter"
# A metric: its name, its kind, the name of its label, and its value for each value of that.
Metric = tuple[str, str, str, Mapping[str, float]]


def metrics_text(sample: Sample) -> str:
    """All numbers of `ludic top`, as Prometheus reads them.

    A line per value, `ludic_NAME{LABEL="..."} VALUE`, after a line with the kind of the metric;
    metrics without any value are left out. Ends with a line end, as the format requires.
    """
    metrics = (*_of_queue(sample), *_of_actors(sample), *_of_servers(sample))
    return "".join(f"{line}\n" for metric in metrics for line in _lines(*metric))


async def serve_metrics(newest: Callable[[], Sample], *, host: str, port: int) -> web.AppRunner:
    """Serve the newest sample at /metrics; the caller cleans the runner up.

    newest: called for each request; must not block. host, port: to listen on.
    Raises OSError for an address that cannot be listened on.
    """

    async def metrics(request: web.Request) -> web.Response:
        return web.Response(text=metrics_text(newest()), content_type="text/plain")

    # The caller's loop and signals stay its own, which `web.run_app` would take.
    app = web.Application()
    app.router.add_get("/metrics", metrics)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, host, port).start()
    return runner


def _of_queue(sample: Sample) -> Iterator[Metric]:
    """Of the queue and its trainer."""
    # Names of the ends come from the queue, so that a new one needs no change here.
    status, trainer = sample.status, sample.status.trainer
    yield "queue_groups", GAUGE, "", {"": status.queued}
    yield "queue_pending_groups", GAUGE, "", {"": status.pending}
    yield "queue_held_groups", GAUGE, "", {"": status.held}
    yield "groups_total", COUNTER, "end", dict(sorted(status.counts.items()))
    yield "groups_by_lag_total", COUNTER, "lag", {str(lag): n for lag, n in status.lags.items()}
    yield "trainer_version", GAUGE, "", {} if trainer is None else {"": trainer.version}
    levels = levels_from_text("" if trainer is None else trainer.levels)
    yield "trainer_level", GAUGE, "env", levels


def _of_actors(sample: Sample) -> Iterator[Metric]:
    """Of the actors that live; one that ended has no values any more."""
    actors = sample.status.actors
    rates = {report.name: sample.actors.get(report.name, Rate()) for report in actors}
    yield "actors", GAUGE, "", {"": len(actors)}
    yield "tokens_per_second", GAUGE, "", {"": sample.tokens_per_s}
    yield "actor_version", GAUGE, "actor", {report.name: report.version for report in actors}
    yield "actor_running", GAUGE, "actor", {report.name: report.running for report in actors}
    yield "actor_groups_total", COUNTER, "actor", {report.name: report.groups for report in actors}
    tokens = {name: rate.tokens for name, rate in rates.items()}
    yield "actor_tokens_per_second", GAUGE, "actor", tokens


def _of_servers(sample: Sample) -> Iterator[Metric]:
    """Of servers that do not respond, only that they do not."""
    known = {load.status.url: load.status for load in sample.servers}
    up = {url: status for url, status in known.items() if not status.error}
    # A server that was started again calls its params otherwise.
    named = {url: int(s.version) for url, s in up.items() if s.version.isdecimal()}
    rates = {load.status.url: load.tokens_per_s for load in sample.servers}
    yield "server_up", GAUGE, "server", {url: url in up for url in known}
    yield "server_version", GAUGE, "server", named
    yield "server_paused", GAUGE, "server", {url: status.is_paused for url, status in up.items()}
    yield "server_running", GAUGE, "server", {url: status.running for url, status in up.items()}
    yield "server_waiting", GAUGE, "server", {url: status.waiting for url, status in up.items()}
    yield "server_cache_share", GAUGE, "server", {url: status.cache for url, status in up.items()}
    yield "server_tokens_total", COUNTER, "server", {url: s.sampled for url, s in up.items()}
    yield "server_tokens_per_second", GAUGE, "server", {url: rates[url] for url in up}


def _lines(name: str, kind: str, label: str, values: Mapping[str, float]) -> Iterator[str]:
    """Lines of a metric in the text format; none without values."""
    if values:
        yield f"# TYPE ludic_{name} {kind}"
    for value_of_label, value in values.items():
        # Actors and servers name themselves, so that any text may stand here.
        text = value_of_label.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
        labels = f'{{{label}="{text}"}}' if label else ""
        yield f"ludic_{name}{labels} {value:g}"
