"""Waiting for busy servers: no request is lost, and none waits longer than it may."""

import asyncio
import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from aiohttp import web

from ludic_gym.clients.openai import OpenAIChatClient
from ludic_gym.clients.responses import check_status, retry_after_s
from ludic_gym.errors import ClientError, QuotaExhausted
from ludic_gym.limits import HttpOptions
from ludic_gym.types import Sampling

ASK = [{"role": "user", "content": "2+2?"}]
GOOD = {"choices": [{"message": {"content": "4"}, "finish_reason": "stop"}]}


class AtOnce:
    """A server that takes `places` requests at a time. seen: numbers of responses by status."""

    def __init__(self, places, status=429):
        self.places = places
        self.status = status
        self.seen = Counter()
        self.now = 0

    async def handle(self, request):
        self.now += 1
        try:
            status = self.status if self.now > self.places else 200
            if status == 200:
                await asyncio.sleep(0.005)
            self.seen[status] += 1
            return web.json_response(GOOD, status=status)
        finally:
            self.now -= 1


@pytest.mark.parametrize("status", [429, 503, 529])
async def test_a_server_that_takes_four_at_once_serves_all_requests(http, status):
    server = AtOnce(4, status)
    # More rejections than retries of other failures.
    options = HttpOptions(concurrency=32, backoff_s=0.01, max_retries=0)
    async with (
        http.serving(server.handle) as url,
        OpenAIChatClient(f"{url}/v1", "m", options=options) as client,
    ):
        await asyncio.gather(*(client.complete(ASK, Sampling()) for _ in range(60)))
        assert client.usage.retries == server.seen[status] > 0
    assert (server.seen[200], client.usage.requests, client.usage.failures) == (60, 60, 0)


async def test_a_server_that_serves_nobody_is_waited_for_until_the_limit(http):
    options = HttpOptions(backoff_s=0.01, max_wait_s=0.2, max_retries=0)
    async with (
        http.serving(AtOnce(0).handle) as url,
        OpenAIChatClient(f"{url}/v1", "m", options=options) as client,
    ):
        start = time.monotonic()
        with pytest.raises(ClientError, match=r"no request for max_wait_s=0\.2 s$") as caught:
            await client.complete(ASK, Sampling())
    # The next pause of up to 0.16 s would be longer than what is left.
    assert 0.04 <= time.monotonic() - start < 1
    assert caught.value.status == 429


async def test_requests_that_wait_are_counted_while_they_do(http):
    is_busy = True

    async def handler(request):
        return web.Response(status=429) if is_busy else web.json_response(GOOD)

    options = HttpOptions(backoff_s=0.05, jitter=lambda: 0.0)
    async with (
        http.serving(handler) as url,
        OpenAIChatClient(f"{url}/v1", "m", options=options) as client,
    ):
        calls = [asyncio.create_task(client.complete(ASK, Sampling())) for _ in range(3)]
        async with asyncio.timeout(5):
            while client.usage.waiting < 3:
                await asyncio.sleep(0.001)
        is_busy = False
        await asyncio.gather(*calls)
        assert client.usage.waiting == 0


async def test_a_server_may_say_that_another_attempt_is_useless(http):
    spent = web.Response(status=429, text="quota", headers={"x-should-retry": "false"})
    with pytest.raises(ClientError, match=r"returned 429: quota$"):
        await http.asked(http.replying(spent))


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "2.5"}, 2.5),
        ({"retry-after-ms": "1500", "retry-after": "2"}, 1.5),
        ({"retry-after-ms": "soon", "retry-after": "2"}, 2),
        ({"retry-after": "1m2.5s"}, 62.5),
        ({"retry-after": "-5"}, 0),
        ({"retry-after": "nan"}, 0),
        ({"retry-after": "soon"}, 0),
        ({}, 0),
    ],
)
def test_pauses_are_read_from_headers(headers, seconds):
    assert retry_after_s(headers) == seconds


@pytest.mark.parametrize("written", [format_datetime, datetime.isoformat])
def test_a_pause_may_be_a_date(written):
    date = written(datetime.now(UTC) + timedelta(seconds=20))
    assert 15 < retry_after_s({"retry-after": date}) <= 20


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("Rate limit reached for m on requests per min. Please try again in 120ms.", 0.12),
        ("Please try again in 6m0s.", 360),
        ('{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "38s"}', 38),
        ("Quota exceeded, limit: 15\\nPlease retry in 37.5s.", 37.5),
        ("Please try again later.", 0),
    ],
)
def test_pauses_are_read_from_what_vendors_write(text, seconds):
    assert retry_after_s({}, text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (429, '{"error": {"message": "You exceeded ...", "code": "insufficient_quota"}}'),
        (429, '{"error": {"message": "no", "code": "billing_not_active"}}'),
        (400, "Your credit balance is too low to access the Anthropic API."),
        (402, "Payment is due"),
        (403, "Insufficient Balance"),
        (429, '{"quotaId": "GenerateRequestsPerDayPerProjectPerModel-FreeTier"}'),
    ],
)
def test_a_quota_that_is_used_up_is_not_waited_for(status, text):
    with pytest.raises(QuotaExhausted, match="add credit or raise the limit at the vendor"):
        check_status("http://x", status, text, {"retry-after": "1"})
