"""Requests through the packages of vendors: keys, connections, time limits and retries."""

import asyncio
import shutil
import ssl
import subprocess
import warnings

import pytest
from aiohttp import web

from ludic_gym.clients.anthropic import AnthropicChatClient
from ludic_gym.clients.openai import OpenAIChatClient
from ludic_gym.errors import ClientError, ConfigError
from ludic_gym.limits import HttpOptions
from ludic_gym.types import Sampling

ASK = [{"role": "user", "content": "2+2?"}]
# A response in both formats.
GOOD = {
    "choices": [{"message": {"content": "4"}, "finish_reason": "stop"}],
    "content": [{"type": "text", "text": "4"}],
}
FAST = HttpOptions(backoff_s=0.001, request_timeout_s=5)
# Keys of other kinds, which the packages look for.
OTHER_KEYS = ("OPENAI_ADMIN_KEY", "ANTHROPIC_AUTH_TOKEN")


def openai(url, **options):
    return OpenAIChatClient(f"{url}/v1", "m", **{"options": FAST, **options})


def anthropic(url, **options):
    return AnthropicChatClient(url, "m", **{"options": FAST, **options})


@pytest.fixture(params=[openai, anthropic])
def client_of(request):
    return request.param


async def ask(client):
    return (await client.complete(ASK, Sampling())).text


@pytest.fixture
def replied(http, client_of):
    """The text that a client makes of a handler's response."""

    async def replied(handler, **options):
        async with http.serving(handler) as url, client_of(url, **options) as client:
            return await ask(client)

    return replied


async def test_the_key_is_read_at_the_first_request_and_no_other_is_sent(
    http, client_of, monkeypatch
):
    def keys_of(headers):
        return headers.get("Authorization"), headers.get("X-Api-Key")

    async def handler(request):
        keys.append(keys_of(request.headers))
        return web.json_response(GOOD)

    keys = []
    for name in OTHER_KEYS:
        monkeypatch.setenv(name, "another")
    monkeypatch.delenv("MY_KEY", raising=False)
    async with http.serving(handler) as url:
        async with client_of(url, api_key_env="MY_KEY") as client:
            await ask(client)
        async with client_of(url, api_key_env="MY_KEY") as client:
            # The end of a line, as files of keys have it, cannot be sent.
            monkeypatch.setenv("MY_KEY", "secret\n")
            await ask(client)
    assert keys == [
        (None, None),
        ("Bearer secret", None) if client_of is openai else (None, "secret"),
    ]


async def test_a_redirect_is_not_followed_with_the_key_in_hand(http, replied):
    moved = web.Response(status=302, headers={"Location": "/elsewhere"})
    with pytest.raises(ClientError, match="returned 302"):
        await replied(http.replying(moved, GOOD))


@pytest.mark.parametrize("status", [408, 409, 429, 500, 502, 503, 529])
async def test_a_server_in_trouble_is_asked_again(http, replied, status):
    trouble = web.Response(status=status, text="busy")
    assert await replied(http.replying(trouble, GOOD)) == "4"


@pytest.mark.parametrize("text", ["<html>", '{"choices": [{"mess', '{"choices": []}'])
async def test_a_response_that_was_cut_or_has_no_choice_is_requested_again(http, replied, text):
    assert await replied(http.replying(web.Response(text=text), GOOD)) == "4"


async def test_a_connection_lost_in_mid_answer_is_tried_again(http, replied):
    calls = 0

    async def handler(request):
        nonlocal calls
        calls += 1
        if calls > 1:
            return web.json_response(GOOD)
        response = web.StreamResponse(headers={"Content-Length": "1000"})
        await response.prepare(request)
        await response.write(b'{"choices": [')
        request.transport.close()
        return response

    assert await replied(handler) == "4"


async def test_a_response_that_drips_is_not_waited_for(replied):
    async def drips(request):
        response = web.StreamResponse()
        await response.prepare(request)
        for _ in range(1000):
            await response.write(b" ")
            await asyncio.sleep(0.01)

    with pytest.raises(ClientError, match=r"no response within request_timeout_s=0\.1$"):
        await replied(drips, options=HttpOptions(request_timeout_s=0.1))


async def test_a_server_that_never_responded_is_not_tried_again(client_of, unused_tcp_port):
    async with client_of(f"http://127.0.0.1:{unused_tcp_port}") as client:
        with pytest.raises(ClientError, match=r"nothing can be reached at .*: start the server"):
            await ask(client)
        assert client.usage.retries == 0


async def test_a_server_that_stops_is_tried_again(http, client_of):
    async with http.serving(http.replying(GOOD)) as url:
        client = client_of(url, options=HttpOptions(backoff_s=0.001, max_retries=2))
        assert await ask(client) == "4"
    with pytest.raises(ClientError, match="3 times in a row"):
        await ask(client)
    await client.aclose()


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl")
async def test_a_wrong_certificate_is_named_and_not_tried_again(client_of, tmp_path):
    key = tmp_path / "own.pem"
    words = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN=localhost"
    command = ["openssl", *words.split(), "-keyout", str(key), "-out", str(tmp_path / "cert.pem")]
    subprocess.run(command, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "cert.pem", key)
    server = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0, ssl=context)
    port = server.sockets[0].getsockname()[1]
    async with server, client_of(f"https://127.0.0.1:{port}") as client:
        with pytest.raises(ClientError, match=r"^https://127.*CERTIFICATE_VERIFY_FAILED"):
            await ask(client)
        assert client.usage.retries == 0


async def test_requests_are_counted_once_and_cancelling_reaches_the_server(http, client_of):
    arrived, gone = asyncio.Event(), asyncio.Event()

    async def handler(request):
        arrived.set()
        try:
            await asyncio.sleep(60)
        finally:
            gone.set()

    async with http.serving(handler) as url, client_of(url) as client:
        call = asyncio.create_task(ask(client))
        await arrived.wait()
        call.cancel()
        async with asyncio.timeout(5):
            await gone.wait()
        await asyncio.gather(call, return_exceptions=True)
        assert (client.usage.requests, client.usage.failures) == (0, 1)


async def test_one_client_works_from_several_event_loops_and_leaves_nothing_open(http, client_of):
    with warnings.catch_warnings():
        warnings.simplefilter("error", ResourceWarning)
        async with http.serving(http.replying(GOOD, GOOD, GOOD)) as url:
            client = client_of(url)
            for _ in range(2):
                await asyncio.to_thread(asyncio.run, ask(client))
            assert await ask(client) == "4"
            await client.aclose()
    assert client.usage.requests == 3


async def test_no_more_requests_are_in_flight_than_there_may_be(http, client_of):
    now = most = 0

    async def handler(request):
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(0.01)
        now -= 1
        return web.json_response(GOOD)

    options = HttpOptions(concurrency=3)
    async with http.serving(handler) as url, client_of(url, options=options) as client:
        await asyncio.gather(*(ask(client) for _ in range(12)))
    assert most == 3


async def test_a_proxy_of_the_environment_is_used(http, client_of, monkeypatch):
    async def proxy(reader, writer):
        lines.append(await reader.readline())
        writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 2\r\n\r\nno")
        writer.close()

    lines = []
    server = await asyncio.start_server(proxy, "127.0.0.1", 0)
    monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
    async with server, client_of("http://model.invalid") as client:
        with pytest.raises(ClientError, match="returned 400: no"):
            await ask(client)
    assert lines[0].startswith(b"POST http://model.invalid/v1/")


async def test_a_server_on_this_machine_is_reached_without_a_proxy(http, replied, monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://proxy.invalid:3128")
    assert await replied(http.replying(GOOD)) == "4"


@pytest.mark.parametrize("url", ["localhost:8000", "ftp://x", "http://", "http://x:99999", ""])
def test_an_address_that_is_none_is_refused(url):
    with pytest.raises(ConfigError, match="base_url is an http"):
        OpenAIChatClient(url)
