"""Requests at a server with limits: none is lost, and the time is near the best one."""

import asyncio
import time
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest
from aiohttp import web

from ludic_gym.clients.openai import OpenAIChatClient
from ludic_gym.clients.responses import retry_after_s, used_up_s
from ludic_gym.clients.routing import Pace
from ludic_gym.errors import ClientError
from ludic_gym.limits import HttpOptions
from ludic_gym.types import Sampling

ASK = [{"role": "user", "content": "2+2?"}]
GOOD = {"choices": [{"message": {"content": "4"}, "finish_reason": "stop"}]}


class Limited:
    """A server that takes some requests and rejects the others. seen: numbers by status."""

    def __init__(self, seconds):
        self.seconds = seconds
        self.seen = Counter()
        self.now = self.most = 0

    async def handle(self, request):
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            rejected = self.reject()
            if rejected is not None:
                self.seen[rejected.status] += 1
                return rejected
            await asyncio.sleep(self.seconds)
            self.seen[200] += 1
            return web.json_response(GOOD, headers=self.headers())
        finally:
            self.now -= 1

    def headers(self):
        return {}


class AtOnce(Limited):
    """Takes `places` requests at a time."""

    def __init__(self, places, seconds=0.05, status=429):
        super().__init__(seconds)
        self.places = places
        self.status = status

    def reject(self):
        return web.Response(status=self.status) if self.now > self.places else None


class PerWindow(Limited):
    """Takes `number` requests in each window of `window_s` seconds, and says when the next begins.

    named: "retry-after", "reset" for the headers of limits on all responses, "" for no header.
    """

    def __init__(self, number, window_s, named):
        super().__init__(0.005)
        self.number, self.window_s, self.named = number, window_s, named
        self.window, self.used = -1, 0

    def left_s(self):
        return self.window_s - (time.monotonic() % self.window_s)

    def reject(self):
        window = int(time.monotonic() / self.window_s)
        if window != self.window:
            self.window, self.used = window, 0
        self.used += 1
        if self.used <= self.number:
            return None
        headers = {"retry-after-ms": str(1000 * self.left_s())}
        return web.Response(status=429, headers=headers if self.named == "retry-after" else {})

    def headers(self):
        if self.named != "reset":
            return {}
        remaining = str(max(0, self.number - self.used))
        return {
            "x-ratelimit-remaining-requests": remaining,
            "x-ratelimit-reset-requests": f"{1000 * self.left_s():.0f}ms",
        }


async def timed(http, limited, requests, **options):
    """Seconds that the requests took together."""
    async with http.serving(limited.handle) as url:
        limits = HttpOptions(**{"concurrency": 64, **options})
        async with OpenAIChatClient(f"{url}/v1", "m", options=limits) as client:
            start = time.monotonic()
            calls = (client.complete(ASK, Sampling()) for _ in range(requests))
            completions = await asyncio.gather(*calls)
            took_s = time.monotonic() - start
    assert [completion.text for completion in completions] == ["4"] * requests
    assert limited.seen[200] == requests
    return took_s


async def within(limit_s, attempt):
    """One of three attempts took at most so long: a busy machine delays any of them."""
    took = []
    while len(took) < 3 and (not took or min(took) > limit_s):
        took.append(await attempt())
    assert min(took) <= limit_s, took


@pytest.mark.parametrize("status", [429, 529])
async def test_a_server_that_takes_four_at_once_is_kept_busy_and_no_request_is_lost(http, status):
    # 120 / 4 rounds of 0.05 s, and what a client that knows the limit adds on this machine.
    known_s = await timed(http, AtOnce(4, status=status), 120, concurrency=4)
    assert known_s >= 1.5
    # One guessed pause of up to 0.5 s at the start.
    await within(
        1.5 * known_s + 0.5, lambda: timed(http, AtOnce(4, status=status), 120, concurrency=64)
    )


@pytest.mark.parametrize("named", ["retry-after", "reset"])
async def test_a_server_that_takes_twenty_a_window_gets_them_in_every_window(http, named):
    # At best the rest of a window and four whole ones.
    await within(1.3 * 2.5, lambda: timed(http, PerWindow(20, 0.5, named), 100))


async def test_a_server_that_names_no_pause_loses_no_request_either(http):
    await within(2 * 2.5, lambda: timed(http, PerWindow(20, 0.5, ""), 100, backoff_s=0.1))


async def test_a_server_that_rejects_everything_ends_all_requests_soon(http):
    limited = AtOnce(0)
    async with http.serving(limited.handle) as url:
        options = HttpOptions(concurrency=16, backoff_s=0.02, max_retries=3)
        async with OpenAIChatClient(f"{url}/v1", "m", options=options) as client:
            start = time.monotonic()
            calls = (client.complete(ASK, Sampling()) for _ in range(64))
            ends = await asyncio.gather(*calls, return_exceptions=True)
    # Pauses of 0.02, 0.04 and 0.08 s; then the others fail without one.
    assert time.monotonic() - start < 2.0
    assert all(isinstance(end, ClientError) and end.status == 429 for end in ends)
    assert "4 times in a row" in str(ends[0])


async def test_a_limit_that_is_full_again_in_hours_is_no_reason_to_give_up(http):
    full = {"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "6h0m0s"}
    rejected = web.Response(status=429, headers=full)
    options = HttpOptions(max_pause_s=0.1)
    start = time.monotonic()
    assert (await http.asked(http.replying(rejected, http.answer()), options=options)).text == "4"
    assert 0.1 <= time.monotonic() - start < 60


async def test_requests_that_are_being_served_are_no_sign_that_all_are_rejected(http):
    # Four slow requests take all places for longer than four pauses.
    limited = AtOnce(4, seconds=0.5)
    await timed(http, limited, 8, backoff_s=0.01, max_retries=3)


async def test_a_server_may_say_that_another_attempt_is_useless(http):
    spent = web.Response(status=429, text="quota", headers={"x-should-retry": "false"})
    with pytest.raises(ClientError, match=r"returned 429: quota$"):
        await http.asked(http.replying(spent))


async def test_rejected_requests_come_before_newer_ones_and_cancelled_ones_take_no_place():
    pace = Pace(1, 4, lambda rejections: 0.01)
    order = []

    async def request(ticket):
        async with pace.place(ticket) as attempt:
            order.append(ticket)
            await asyncio.sleep(0.001)
            if order == [0]:
                pace.rejected(attempt)
            else:
                pace.served()

    async def again():
        await request(0)
        await request(0)

    first = asyncio.create_task(again())
    await asyncio.sleep(0)
    others = [asyncio.create_task(request(ticket)) for ticket in (1, 2, 3)]
    await asyncio.sleep(0)
    others[1].cancel()
    await asyncio.gather(first, *others, return_exceptions=True)
    assert order == [0, 0, 1, 3]
    async with asyncio.timeout(1), pace.place(4):
        assert pace.limit == 1


async def test_a_request_cancelled_with_its_place_in_hand_gives_it_back():
    pace = Pace(1, 4, lambda rejections: 0.01)

    async def request(ticket):
        async with pace.place(ticket):
            await asyncio.sleep(0.001)

    async with pace.place(0):
        waiting = asyncio.create_task(request(1))
        await asyncio.sleep(0)
    # The place is given to it; it has not run yet.
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert waiting.cancelled()
    async with asyncio.timeout(1), pace.place(2):
        pass


def later(seconds):
    return (datetime.now(UTC) + timedelta(seconds=seconds)).isoformat().replace("+00:00", "Z")


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "2.5"}, 2.5),
        ({"retry-after-ms": "1500", "retry-after": "2"}, 1.5),
        ({"retry-after-ms": "soon", "retry-after": "2"}, 2),
        ({"retry-after": "-5"}, 0),
        ({"retry-after": "nan"}, 0),
        ({"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "6m0s"}, 360),
        ({"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "1h0.5s"}, 3600.5),
        ({"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "12ms"}, 0.012),
        ({"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "7"}, 7),
        # As Azure sends it where it has no limit.
        ({"x-ratelimit-remaining-tokens": "-1", "x-ratelimit-reset-tokens": "0"}, 0),
        ({"x-ratelimit-remaining-requests": "0"}, 0),
    ],
)
def test_pauses_are_read_from_the_headers_of_openai_style_servers(headers, seconds):
    assert (retry_after_s(headers) or used_up_s(headers)) == pytest.approx(seconds)


def test_pauses_are_read_from_anthropics_headers():
    headers = {
        "anthropic-ratelimit-requests-remaining": "49",
        "anthropic-ratelimit-requests-reset": later(50),
        "anthropic-ratelimit-input-tokens-remaining": "0",
        "anthropic-ratelimit-input-tokens-reset": later(20),
        "anthropic-ratelimit-output-tokens-remaining": "0",
        "anthropic-ratelimit-output-tokens-reset": later(10),
    }
    assert 15 < used_up_s(headers) <= 20
