"""Servers that run and do not respond."""

import socket
import time

import pytest
from fake_vllm.fleet import running

from ludic_train.cluster.servers import supervisor
from ludic_train.cluster.servers.process import ended_with_log, last_error
from ludic_train.cluster.servers.supervisor import Pulse


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["INFO ready", "RuntimeError: out of memory", "INFO shutting down"], "out of memory"),
        (["INFO ready", "Killed", ""], "Killed"),
        (
            [
                "EngineDeadError: EngineCore encountered an issue",
                'INFO:     127.0.0.1:42756 - "GET /weight_info HTTP/1.1" 500 Internal Server Error',
            ],
            "EngineCore encountered an issue",
        ),
        (
            [
                "ERROR RuntimeError: no such kernel",
                "ERROR EngineDeadError: EngineCore encountered an issue",
                'INFO:     127.0.0.1:42756 - "POST /generate HTTP/1.1" 500 Internal Server Error',
            ],
            "no such kernel",
        ),
        (["INFO one", "INFO two", "  "], "INFO two"),
        ([], ""),
    ],
)
def test_the_last_error_of_a_log_comes_before_its_shutdown(tmp_path, lines, expected):
    log = tmp_path / "log"
    log.write_text("\n".join(lines))
    assert last_error(log).endswith(expected)
    assert bool(last_error(log)) == bool(expected)


def test_an_error_far_from_the_end_of_a_log_is_told_with_the_end(tmp_path):
    log = tmp_path / "log"
    lines = ["RuntimeError: no such kernel", *(f"request {i} failed" for i in range(100))]
    log.write_text("\n".join(lines))
    told = str(ended_with_log("vLLM ended", log)).splitlines()
    assert told[:2] == [
        "vLLM ended. Its last error: RuntimeError: no such kernel",
        f"The end of its log, {log}:",
    ]
    assert told[2:] == lines[-20:]
    log.write_text("\n".join(lines[:5]))
    told = str(ended_with_log("vLLM ended", log)).splitlines()
    assert told == [f"vLLM ended. The end of its log, {log}:", *lines[:5]]


def lost_after(url, lost_s):
    """Seconds until the server is lost."""
    watched, began = Pulse(url, lost_s=lost_s), time.monotonic()
    while not watched.is_lost():
        assert time.monotonic() - began < 30
        time.sleep(0.01)
    return time.monotonic() - began


def test_a_closed_port_is_noticed():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    assert lost_after(f"http://127.0.0.1:{port}", 0.3) >= 0.3


def test_a_server_that_accepts_and_does_not_respond_is_noticed(monkeypatch):
    monkeypatch.setattr(supervisor, "LOOK_S", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert lost_after(f"http://127.0.0.1:{server.getsockname()[1]}", 0.3) >= 0.3


async def test_a_server_that_responds_in_time_is_not_lost(monkeypatch):
    import asyncio

    async with running(1, {}) as (server,):
        watched = Pulse(server.url, lost_s=0.2)
        for _ in range(20):
            assert not await asyncio.to_thread(watched.is_lost)
            await asyncio.sleep(0.05)


def test_a_server_is_lost_within_30_seconds_of_its_last_response():
    # The last look that succeeds comes up to LOOK_EVERY_S after the server is stopped, never later.
    assert supervisor.LOOK_EVERY_S + supervisor.LOST_S + supervisor.LOOK_S <= 30
