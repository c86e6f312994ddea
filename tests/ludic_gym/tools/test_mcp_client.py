"""Servers of the Model Context Protocol that die, or do not respond."""

import asyncio
import sys
import time

import gymnasium as gym
import pytest
from aiohttp.test_utils import TestServer

import ludic_gym as lg
from ludic_gym.commands.serve import EnvServer, make_app
from ludic_gym.tools import mcp_client

pytest.importorskip("mcp", reason="MCP servers need the extra mcp")

# By hand, so that it starts in no time: `clock` tells the process, and the others fail.
SERVER = """
import json, os, sys, threading
if os.path.exists("broken"):
    sys.exit("broken")
NAMES = ("clock", "crash", "leave", "hang", "slow")
INFO = {"name": "s", "version": "1"}
for line in sys.stdin:
    message = json.loads(line)
    number, method, name = message.get("id"), message.get("method"), ""
    result = {}
    if method == "initialize":
        version = message["params"]["protocolVersion"]
        result = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": INFO}
    elif method == "tools/list":
        result = {"tools": [{"name": n, "inputSchema": {"type": "object"}} for n in NAMES]}
    elif method == "tools/call":
        name = message["params"]["name"]
        result = {"content": [{"type": "text", "text": str(os.getpid())}]}
    if name == "crash":
        os._exit(1)
    if name == "hang":
        threading.Event().wait()
    if number is not None and name != "slow":
        print(json.dumps({"jsonrpc": "2.0", "id": number, "result": result}), flush=True)
    if name == "leave":
        os._exit(0)
"""


@pytest.fixture
def tools(tmp_path, monkeypatch):
    monkeypatch.setattr(mcp_client, "CHECK_S", 0.5)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "server.py").write_text(SERVER)
    return lg.mcp_tools([sys.executable, "server.py"], timeout_s=0.5)


async def call(tools, name):
    named = {tool.name: tool for tool in tools}
    return await lg.call_tool(named, lg.ToolCall(id="1", name=name, arguments="{}"))


async def test_a_server_that_dies_in_a_call_is_started_again(tools):
    async with tools as named:
        first = await call(named, "clock")
        died = await call(named, "crash")
        second = await call(named, "clock")
        assert (first.isdigit(), second.isdigit(), first != second) == (True, True, True)
        assert died == (
            "Error: crash failed, MCPError: Connection closed; its server was started again"
        )


async def test_a_server_that_has_died_between_calls_is_started_again(tools):
    async with tools as named:
        first = await call(named, "leave")
        # Until its output has closed.
        await asyncio.sleep(0.3)
        second = await call(named, "clock")
        assert (second.isdigit(), first != second) == (True, True)


async def test_calls_at_the_same_time_start_one_server(tools):
    async with tools as named:
        await call(named, "leave")
        await asyncio.sleep(0.3)
        assert len({*await asyncio.gather(*(call(named, "clock") for _ in range(8)))}) == 1


async def test_a_server_that_cannot_be_started_again_fails_the_episode(tools, tmp_path):
    async with tools as named:
        (tmp_path / "broken").touch()
        for name in ("crash", "clock"):
            with pytest.raises(lg.EpisodeError, match="does not start"):
                await call(named, name)
        (tmp_path / "broken").unlink()
        assert (await call(named, "clock")).isdigit()


async def test_a_server_that_answers_no_call_fails_the_episode(tools):
    async with tools as named:
        with pytest.raises(lg.EpisodeError, match=r"answers no call: took longer than 0\.5 s"):
            await call(named, "hang")
        assert (await call(named, "clock")).isdigit()


async def test_a_server_that_hangs_in_a_later_call_is_started_again(tools):
    async with tools as named:
        first = await call(named, "clock")
        late = await call(named, "hang")
        assert late == "Error: hang took longer than 0.5 s; its server was started again"
        assert (await call(named, "clock")) != first


async def test_a_tool_that_is_slow_leaves_its_server_running(tools):
    async with tools as named:
        first = await call(named, "clock")
        assert await call(named, "slow") == "Error: slow took longer than 0.5 s"
        assert await call(named, "clock") == first


async def test_a_call_that_its_episode_cancels_is_followed_by_a_look_at_the_server(tools):
    async with tools as named:
        first = await call(named, "clock")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await call(named, "hang")
        assert (await call(named, "clock")) != first


async def test_an_episode_whose_server_has_gone_is_no_result_of_the_model(tools, tmp_path):
    said = ['<tool_call>{"name": "crash", "arguments": {}}</tool_call>', "5"]

    async with tools as named:
        (tmp_path / "broken").touch()

        def plays(env):
            chat = lg.ChatPolicy(lg.ScriptedClient(said))
            return lg.ToolUse(chat, named, protocol=lg.TextTools())

        tasks = [lg.Task(env_id="ludic/Arithmetic-v0", seed=1)]
        (episode,) = [e async for e in lg.run_episodes(tasks, plays)]
        assert (episode.blame, episode.rollouts) == ("infrastructure", ())


async def test_a_server_that_hangs_is_ended_with_the_block(tools):
    start = time.monotonic()
    async with tools as named:
        with pytest.raises(lg.EpisodeError):
            await call(named, "hang")
    assert time.monotonic() - start < 30


async def test_the_server_of_an_address_is_connected_again(monkeypatch):
    monkeypatch.setattr(mcp_client, "CHECK_S", 1.0)

    def started(port=None):
        env = gym.make("ludic/Arithmetic-v0")
        return TestServer(make_app(EnvServer(env)), port=port)

    server = started()
    await server.start_server()
    port = server.port
    async with lg.mcp_tools(f"http://127.0.0.1:{port}/mcp", timeout_s=5) as named:
        question = await call(named, "reset")
        await server.close()
        with pytest.raises(lg.EpisodeError, match="does not start"):
            await call(named, "reset")
        again = started(port)
        await again.start_server()
        assert "Error" not in question + await call(named, "reset")
    await again.close()
