"""Replies by a JSON schema: passed on to engines that have it, refused by all others."""

import json

import pytest
from scripted_engine import ScriptedEngine, tokenizer

from ludic_gym.errors import ClientError
from ludic_gym.types import Sampling
from ludic_train.agents.gateway import Gateway
from ludic_train.agents.trace import completions_of, trace_of

SCHEMA = {"type": "object", "properties": {"color": {"enum": ["red", "green"]}}}
FLAT = {"type": "json_schema", "name": "color", "schema": SCHEMA}
USER = {"role": "user", "content": "?"}
CHAT = {"type": "json_schema", "json_schema": {"name": "color", "schema": SCHEMA}}
BODIES = {
    "/chat/completions": {"messages": [USER], "response_format": CHAT},
    "/responses": {"input": "?", "text": {"format": FLAT}},
    "/messages": {"messages": [USER], "output_config": {"format": FLAT}},
}


class StructuredEngine(ScriptedEngine):
    """One that writes by a schema, and notes it."""

    def __init__(self):
        super().__init__(lambda text: "free", tokenizer())
        self.schemas = []

    async def structured(self, prompt_ids, sampling, schema):
        self.schemas.append(schema)
        self.reply = lambda text: '{"color": "red"}'
        return await self.continued(prompt_ids, sampling)


async def post(http, gateway, session, path, body):
    async with http.post(gateway.base_url(session) + path, json=body) as response:
        return response.status, await response.text()


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", BODIES)
async def test_an_engine_gets_the_schema_of_each_dialect(http, path, stream):
    engine = StructuredEngine()
    async with Gateway(engine, engine.tokenizer).running() as gateway:
        session = gateway.open()
        body = {**BODIES[path], "stream": stream}
        status, text = await post(http, gateway, session, path, body)
        assert (status, engine.schemas) == (200, [SCHEMA])
        assert "red" in text
        # Tokens that a schema chose are not learned from.
        assert completions_of(trace_of(session.calls)) == ()


async def test_any_object_is_a_schema_too(http):
    engine = StructuredEngine()
    async with Gateway(engine, engine.tokenizer).running() as gateway:
        body = {"messages": [USER], "response_format": {"type": "json_object"}}
        await post(http, gateway, gateway.open(), "/chat/completions", body)
        assert engine.schemas == [{"type": "object"}]


@pytest.mark.parametrize("path", BODIES)
async def test_a_schema_is_refused_where_it_cannot_be_had(http, path):
    for engine, sampling, reason in (
        (ScriptedEngine(lambda text: "", tokenizer()), None, "does not sample by a JSON schema"),
        (StructuredEngine(), Sampling(), "those of the policy"),
    ):
        async with Gateway(engine, engine.tokenizer).running() as gateway:
            session = gateway.open(sampling=sampling)
            status, text = await post(http, gateway, session, path, BODIES[path])
            assert status == 400
            assert reason in json.loads(text)["error"]["message"]
            assert engine.sampled == []


@pytest.mark.parametrize("form", [{"type": "grammar"}, {"type": "json_schema"}, "json", 3])
async def test_another_format_is_refused(http, form):
    engine = StructuredEngine()
    async with Gateway(engine, engine.tokenizer).running() as gateway:
        body = {"messages": [USER], "response_format": form}
        status, text = await post(http, gateway, gateway.open(), "/chat/completions", body)
        assert (status, "a format is text" in text) == (400, True)


@pytest.mark.parametrize(("of_engine", "shown"), [(400, 400), (500, 502), (None, 502)])
async def test_what_the_server_of_an_engine_refuses_is_a_wrong_request(http, of_engine, shown):
    engine = StructuredEngine()

    async def refused(prompt_ids, sampling, schema):
        raise ClientError("Grammar error: Invalid type: nope", status=of_engine)

    engine.structured = refused
    async with Gateway(engine, engine.tokenizer).running() as gateway:
        path, body = next(iter(BODIES.items()))
        status, text = await post(http, gateway, gateway.open(), path, body)
        assert (status, "Invalid type" in text) == (shown, True)
