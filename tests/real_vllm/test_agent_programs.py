"""Agents of three packages before a real vLLM, recorded by `ludic serve`: tokens are its own.

LUDIC_AGENTS_PYTHON names the Python that has the packages; without it, the openai SDK plays alone.
"""

import asyncio
import json
import os
import sys
from pathlib import Path

import aiohttp
import pytest
import torch
from fake_vllm.started import started_server

from ludic_gym.records import from_json
from ludic_gym.types import Rollout
from ludic_train.cluster.servers.vllm_command import ServeOptions, find_vllm
from ludic_train.models.load import save_model
from ludic_train.models.tiny import make_tiny_model
from ludic_train.models.tokenizer import make_tokenizer
from ludic_train.rows import trajectory_from

pytestmark = pytest.mark.vllm
AGENTS = Path(__file__).with_name("agent_programs.py")
AGENTS_PYTHON = os.environ.get("LUDIC_AGENTS_PYTHON")
KINDS = ["openai", "anthropic", "smolagents"] if AGENTS_PYTHON else ["openai"]
EPISODES = 20
CLOSE = 1e-4


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """A server of a random model whose positions hold the long prompts of frameworks."""
    python = os.environ.get("LUDIC_VLLM_PYTHON")
    if python is None:
        pytest.skip("LUDIC_VLLM_PYTHON names no Python with vLLM; `make test-vllm` does")
    folder = tmp_path_factory.mktemp("agents")
    tokenizer = make_tokenizer([AGENTS.read_text()] * 2, vocab_size=1000)
    # vLLM's kernels for CPUs have heads of 32 and more.
    model = make_tiny_model(tokenizer, num_heads=2, num_kv_heads=1, max_positions=16384).eval()
    save_model(model, tokenizer, folder)
    flags = ["--max-model-len", "16384", "--max-num-seqs", "16"]
    with started_server(str(folder), ServeOptions(port=0), find_vllm(python), flags) as server:
        yield server.url, folder, model


@pytest.fixture
async def gateway(served):
    """Address and token of `ludic serve --server`, a process of its own."""
    url, folder, _ = served
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "ludic_gym", "serve", str(folder), "--server", url),
        *("--port", "0", "--max-tokens", "24"),
        stdout=asyncio.subprocess.PIPE,
    )
    ready, url, *_, token = (await process.stdout.readline()).decode().split()
    assert ready == "ready"
    yield url, token
    process.terminate()
    await process.wait()


async def played(url, token, kind):
    """Rollouts of the sessions, each played by an agent of that kind."""
    async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {token}"}) as http:
        sessions = []
        for _ in range(EPISODES):
            async with http.post(f"{url}/sessions") as response:
                sessions.append(await response.json())
        agents = await asyncio.create_subprocess_exec(
            *(AGENTS_PYTHON or sys.executable, str(AGENTS), kind),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        await agents.communicate(json.dumps(sessions).encode())
        assert agents.returncode == 0
        rollouts = []
        for session in sessions:
            async with http.post(f"{url}/sessions/{session['key']}/close") as response:
                rollouts.append(from_json(Rollout, await response.json()))
        return rollouts


@torch.no_grad()
def error_of(row, model):
    """Greatest difference of a row's log-probs from those of the trainer's model."""
    ids = torch.as_tensor(row.input_ids).long()[None]
    chosen = model(ids).logits[0, :-1].log_softmax(-1).gather(1, ids[0, 1:, None])[:, 0]
    sampled = torch.as_tensor(row.action_mask)[1:].bool()
    expected = torch.as_tensor(row.behavior_logprobs)[1:][sampled]
    return (chosen[sampled] - expected).abs().max()


@pytest.mark.parametrize("kind", KINDS)
async def test_the_tokens_of_an_agent_are_those_of_vllm(served, gateway, kind):
    _, _, model = served
    for rollout in await played(*gateway, kind):
        completions = [c for step in rollout.steps for c in step.decision.completions]
        rows = trajectory_from(rollout).rows
        sampled = sum(len(each.completion_ids) for each in completions)
        assert sum(int(row.action_mask.sum()) for row in rows) == sampled > 0
        # smolagents writes a prompt of its own for the answer after its last step.
        assert len(rows) <= (2 if kind == "smolagents" else 1)
        assert max(error_of(row, model) for row in rows) < CLOSE
