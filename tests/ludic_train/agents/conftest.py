"""A gateway before an engine of scripted texts."""

import json
import re

import aiohttp
import pytest
from scripted_engine import ScriptedEngine, tokenizer

from ludic_train.agents.gateway import Gateway

ADD = {
    "name": "add",
    "description": "Add two numbers.",
    "parameters": {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
    },
}


def adder(text):
    """Calls `add` for the last question of a prompt, and tells the result."""
    results = re.findall(r"<tool_re\w+>\n(.*?)\n</tool_re", text, re.S)
    if results:
        return f"The sum is {results[-1]}."
    call = json.dumps({"name": "add", "arguments": {"b": 2, "a": 1}}, separators=(" ,", ":  "))
    return f"I  add.\n<tool_call>\n{call}\n</tool_call>"


@pytest.fixture(params=[True, False], ids=["tools in the template", "tools in text"])
def engine(request):
    return ScriptedEngine(adder, tokenizer(request.param))


@pytest.fixture
async def gateway(engine):
    async with Gateway(engine, engine.tokenizer, max_positions=4096).running() as running:
        yield running


@pytest.fixture
async def http():
    async with aiohttp.ClientSession() as session:
        yield session
