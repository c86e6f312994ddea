"""State of the servers, in one table."""

import asyncio
import json

import pytest
from fake_vllm.fleet import running

from ludic_gym.commands.main import main
from ludic_train.cluster.status.servers import Status, statuses

NOBODY = "http://127.0.0.1:1"


async def test_a_servers_version_and_load_are_added_up_over_its_engines():
    async with running(1, {}) as (server,):
        server.version, server.paused = "12", True
        assert await statuses([f"{server.url}/v1"]) == [
            Status(
                url=server.url,
                version="12",
                is_paused=True,
                running=7,
                waiting=2,
                cache=0.25,
                sampled=12345,
            )
        ]


async def test_a_server_that_does_not_answer_hides_no_other():
    async with running(1, {}) as (server,):
        missing, found = await statuses([NOBODY, server.url])
    assert "ClientConnectorError" in missing.error
    assert found.error == ""


@pytest.mark.parametrize(
    "answers",
    [
        {"/weight_info": {}},
        {"/metrics": "vllm:x one"},
        {"/metrics": "vllm:num_requests_running inf"},
    ],
)
async def test_a_server_that_answers_otherwise_is_shown_so(answers):
    async with running(1, {}) as (server,):
        server.answers = answers
        (found,) = await statuses([server.url])
    assert "its responses differ from vLLM" in found.error


async def test_the_command_prints_a_row_each_and_its_code_says_if_one_is_missing(capsys):
    async with running(1, {}) as (server,):
        assert await asyncio.to_thread(main, ["status", server.url]) == 0
        assert await asyncio.to_thread(main, ["status", server.url, NOBODY]) == 1
    rows = [line for line in capsys.readouterr().out.splitlines() if "http" in line]
    assert len(rows) == 3
    assert rows[0].count("12,345") == 1


def test_without_an_address_there_is_nothing_to_show(capsys):
    assert main(["status"]) == 2
    assert "name the address of a server" in capsys.readouterr().err


def test_the_states_are_printed_as_json(capsys):
    assert main(["status", NOBODY, "--json"]) == 1
    (state,) = json.loads(capsys.readouterr().out)
    assert (state["url"], bool(state["error"])) == (NOBODY, True)
