"""Servers that end or no longer respond, and are started again."""

import asyncio
import os
import signal

import pytest
from fake_vllm.install import install

from ludic_train.cluster.servers import supervisor
from ludic_train.cluster.servers.process import ended_with_log, last_error, launched
from ludic_train.cluster.servers.supervisor import supervised_server
from ludic_train.cluster.servers.vllm_command import Installed, ServeOptions
from ludic_train.errors import ServerError
from ludic_train.processes import free_port


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


@pytest.fixture
def start(tmp_path, monkeypatch):
    """Starts a server, with flags that a test may change."""
    (tmp_path / "site").mkdir()
    python = install(tmp_path / "site")
    vllm = Installed(python=python, version="0.32.0", on_cpu=True)
    options, log, flags = ServeOptions(port=free_port()), tmp_path / "log", []
    env = {**os.environ, "PYTHONPATH": str(tmp_path / "site")}

    def start():
        made = launched("org/m", options, vllm, flags, plugin=tmp_path, log=log, env=env)
        start.servers.append(made)
        return made

    start.servers, start.flags = [], flags
    monkeypatch.setattr(supervisor, "LOST_S", 1.0)
    monkeypatch.setattr("ludic_train.cluster.servers.supervisor.LOOK_S", 1.0)
    yield start
    for server in start.servers:
        server.process.kill()


async def until(condition):
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.02)


@pytest.mark.parametrize("signum", [signal.SIGSTOP, signal.SIGKILL])
async def test_a_server_that_stops_responding_has_a_successor_at_its_address(start, signum, capsys):
    async with supervised_server(start) as server:
        url = server.url
        start.servers[0].process.send_signal(signum)
        await until(lambda: server.starts == 2)
        assert start.servers[0].process.poll() == -signal.SIGKILL
        await server.ready()
        assert server.url == url
    said = capsys.readouterr().out
    reason = "did not respond for 1 s" if signum == signal.SIGSTOP else "ended with code -9"
    assert f"vLLM {reason}; starting it again (1 of 3" in said
    assert "its last error: serving on port" in said


async def broken_after_its_start(start):
    async with supervised_server(start) as server:
        start.flags.append("--break")
        start.servers[0].process.kill()
        await until(lambda: server.error)
        await server.ready()


async def test_a_server_that_dies_at_once_three_times_ends_the_run_with_its_last_error(start):
    with pytest.raises(ServerError, match=r"after 3 restarts .*\n(.*\n)*.*not enough memory"):
        await broken_after_its_start(start)
    assert len(start.servers) == 4
