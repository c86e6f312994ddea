"""An environment as tools, by the Model Context Protocol and by HTTP."""

import gymnasium as gym
import pytest
from aiohttp.test_utils import TestClient, TestServer
from vault import VAULT

from ludic_gym.commands.serve import EnvServer, make_app
from ludic_gym.tools.mcp_server import mcp_reply
from ludic_gym.tools.tool import call_tool
from ludic_gym.types import ToolCall


@pytest.fixture
async def game():
    async with TestServer(make_app(EnvServer(gym.make("ludic/ConnectFour-v0")))) as server:
        yield server


def request(method, **params):
    return {"jsonrpc": "2.0", "id": 7, "method": method, "params": params}


@pytest.mark.long
async def test_a_client_of_the_protocol_plays_an_episode():
    pytest.importorskip("mcp")
    from ludic_gym.tools.mcp_client import mcp_tools

    env = gym.make("ludic/ToolCalls-v0", errands=1)
    server = TestServer(make_app(EnvServer(env)))
    await server.start_server()
    try:
        async with mcp_tools(str(server.make_url("/mcp"))) as tools:
            named = {tool.name: tool for tool in tools}
            assert set(named) >= {"reset", "list_events", "finish"}

            async def call(name, arguments="{}"):
                return await call_tool(named, ToolCall(id="1", name=name, arguments=arguments))

            assert "call `reset` first" in await call("finish")
            assert (await call("reset", '{"seed": 1}')) == (await call("reset", '{"seed": 1}'))
            assert "savings" in await call("list_accounts")
            assert "should be of type integer" in await call("list_events", '{"day": "x"}')
            assert await call("finish") == "The episode is over: reward 0, success False."
            assert "call `reset` first" in await call("finish")
    finally:
        await server.close()


async def test_plain_http_calls_the_same_tools(game):
    async with TestClient(game) as client:
        listed = await (await client.get("/tools")).json()
        assert [tool["function"]["name"] for tool in listed["tools"]] == ["reset", "act"]
        negative = await (await client.post("/tools/reset", json={"seed": -1})).json()
        assert negative == {"result": "seed is 0 or more, got -1", "is_error": True}
        begun = await (await client.post("/tools/reset", json={"seed": 1})).json()
        assert "1 2 3 4 5 6 7" in begun["result"]
        wrong = await (await client.post("/tools/act", json={"action": 3})).json()
        assert wrong["is_error"]
        assert "'action'" in wrong["result"]
        assert (await client.post("/tools/act", data=b"[" * 9999)).status == 400
        page = await client.post("/mcp", json={}, headers={"Origin": "http://evil.example"})
        assert page.status == 403


async def test_an_environment_offers_its_tools_beside_its_actions():
    async with TestClient(TestServer(make_app(EnvServer(gym.make(VAULT))))) as client:

        async def call(name, **arguments):
            reply = await client.post(f"/tools/{name}", json=arguments)
            return (await reply.json())["result"]

        listed = await (await client.get("/tools")).json()
        names = [tool["function"]["name"] for tool in listed["tools"]]
        assert names == ["reset", "act", "open_vault"]
        assert "call `reset` first" in await call("open_vault", key=1)
        key = int((await call("reset", seed=3)).partition("Key: ")[2].partition(".")[0])
        assert await call("open_vault", key=key + 1) == "wrong key"
        number = await call("open_vault", key=key)
        assert await call("act", action=number) == "The episode is over: reward 1, success True."


@pytest.mark.parametrize(
    ("message", "code"),
    [
        ([], -32600),
        ({"method": "ping"}, -32600),
        (request("resources/list"), -32601),
        ({**request("ping"), "params": [1]}, -32602),
    ],
)
async def test_messages_that_are_no_calls_get_an_error(message, code):
    reply = await mcp_reply(message, EnvServer(gym.make("ludic/ConnectFour-v0")))
    assert reply["error"]["code"] == code


async def test_notifications_have_no_response():
    server = EnvServer(gym.make("ludic/ConnectFour-v0"))
    for message in (
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 1, "result": {}},
    ):
        assert await mcp_reply(message, server) is None
