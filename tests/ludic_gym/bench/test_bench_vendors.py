"""A benchmark by a server that sends every row of what vendors send, in turn."""

import pytest
from vendors.chat import CALLS, TEXTS
from vendors.faults import FAULTS
from vendors.messages import MESSAGES
from vendors.server import serving
from vendors.streams import STREAMS

from ludic_gym.bench.result import score
from ludic_gym.bench.runner import bench_tasks, run_bench
from ludic_gym.clients.anthropic import AnthropicChatClient
from ludic_gym.clients.openai import OpenAIChatClient
from ludic_gym.errors import ClientError, PromptTooLong, QuotaExhausted
from ludic_gym.harness import Harness
from ludic_gym.limits import HttpOptions

# Nothing is given up, so that those rows alone end an episode that no retry mends.
PATIENT = HttpOptions(backoff_s=0.001, max_retries=100, request_timeout_s=60)
ENDS = {"success", "failure", "illegal", "filtered", "refused", "empty", "cut_off", "too_long"}


def add(a: int, b: int = 2) -> int:
    """Add two numbers."""
    return a + b


@pytest.mark.parametrize(
    ("kind", "rows", "episodes"),
    [
        (OpenAIChatClient, [*CALLS, *TEXTS, *FAULTS, *STREAMS], 200),
        (AnthropicChatClient, MESSAGES, 100),
        pytest.param(
            OpenAIChatClient, [*CALLS, *TEXTS, *FAULTS, *STREAMS], 2000, marks=pytest.mark.long
        ),
    ],
)
async def test_every_episode_is_accounted_for_whatever_vendors_send(kind, rows, episodes):
    # One without credit ends a run.
    rows = [row for row in rows if row.error is not QuotaExhausted]
    questions = bench_tasks("ludic/Arithmetic-v0", episodes=episodes // 2)
    games = bench_tasks("ludic/TicTacToe-v0", episodes=episodes // 2)
    scores = []
    async with (
        serving(*((row.status, row.sent) for row in rows), endless=True) as (url, seen),
        kind(url, "m", options=PATIENT) as client,
    ):
        result = await run_bench(
            [*questions, *games],
            Harness(tools=(add,), rounds=3).make_policy(client),
            concurrency=32,
            on_episode=lambda episode: scores.append(score(episode)),
        )
    sent = [rows[number % len(rows)].error for number in range(len(seen))]
    assert sorted(each.index for each in scores) == list(range(episodes))
    assert result.blames == {"infrastructure": sent.count(ClientError)}
    assert result.episodes == sum(result.outcomes.values()) == episodes - sent.count(ClientError)
    assert result.outcomes["too_long"] == sent.count(PromptTooLong)
    assert {"filtered", "empty", "illegal"} <= set(result.outcomes) <= ENDS
