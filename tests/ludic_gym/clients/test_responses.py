"""Statuses of responses: which are sent again, and what the error of another says."""

import pytest
from aiohttp import web

from ludic_gym.errors import ClientError


@pytest.mark.parametrize("status", [408, 409, 429, 500, 502, 503])
async def test_a_server_in_trouble_is_asked_again(http, status):
    trouble = web.Response(status=status, text="busy")

    assert (await http.asked(http.replying(trouble, http.answer()))).text == "4"


@pytest.mark.parametrize("status", [400, 401, 404, 422])
async def test_a_refused_request_is_not_sent_again_and_shows_what_the_server_says(http, status):
    with pytest.raises(ClientError, match=f"returned {status}: the prompt is too long"):
        await http.asked(http.replying(web.Response(status=status, text="the prompt is too long")))


@pytest.mark.parametrize("status", [408, 429, 502])
@pytest.mark.parametrize("in_choice", [False, True])
async def test_a_failure_within_a_response_of_status_200_is_a_failure(http, status, in_choice):
    body = {"error": {"code": status, "message": "the provider is busy"}}
    if in_choice:
        body = {"choices": [{"finish_reason": "error", "message": {"content": ""}, **body}]}

    asked = http.asked(http.replying(web.json_response(body), http.answer()))
    assert (await asked).text == "4"


async def test_a_refusal_within_a_response_of_status_200_shows_what_the_server_says(http):
    body = {"error": {"code": 403, "message": "no such region"}, "id": "gen-1"}
    with pytest.raises(ClientError, match=r"returned 403: no such region$") as caught:
        await http.asked(http.replying(web.json_response(body)))
    assert caught.value.status == 403


async def test_a_redirect_is_not_followed_with_the_key_in_hand(http):
    with pytest.raises(ClientError, match="returned 302"):
        await http.asked(
            http.replying(web.Response(status=302, headers={"Location": "/elsewhere"}))
        )
