"""Replies by a JSON schema: passed on to engines that have it, refused by all others."""

import pytest
from scripted_engine import ScriptedEngine, tokenizer

from ludic_gym.errors import ClientError
from ludic_gym.types import Sampling
from ludic_train.agents.gateway import Gateway

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


async def post(http, engine, path, body, sampling=None):
    """Status, text and the rollout of a request."""
    async with Gateway(engine, engine.tokenizer).running() as gateway:
        session = gateway.open(sampling=sampling)
        async with http.post(gateway.base_url(session) + path, json=body) as response:
            return response.status, await response.text(), gateway.save(session, 1.0)


@pytest.mark.parametrize("path", BODIES)
async def test_an_engine_gets_the_schema_of_each_dialect(http, path):
    engine = StructuredEngine()
    status, text, rollout = await post(http, engine, path, BODIES[path])
    assert (status, engine.schemas, "red" in text) == (200, [SCHEMA], True)
    # Tokens that a schema chose are not learned from.
    (step,) = rollout.steps
    assert (step.decision.completions, step.reward) == ((), 1.0)


@pytest.mark.parametrize("path", BODIES)
async def test_a_schema_is_refused_where_it_cannot_be_had(http, path):
    for engine, sampling in (
        (ScriptedEngine(lambda text: "", tokenizer()), None),
        (StructuredEngine(), Sampling()),
    ):
        status, text, _ = await post(http, engine, path, BODIES[path], sampling)
        assert (status, "JSON schema" in text, engine.sampled) == (400, True, [])


@pytest.mark.parametrize(
    ("form", "status"),
    [({"type": "json_object"}, 200), ({"type": "grammar"}, 400), ("json", 400), (3, 400)],
)
async def test_any_object_is_a_schema_and_other_formats_are_refused(http, form, status):
    body = {"messages": [USER], "response_format": form}
    assert (await post(http, StructuredEngine(), "/chat/completions", body))[0] == status


@pytest.mark.parametrize(("of_engine", "shown"), [(400, 400), (500, 502), (None, 502)])
async def test_what_the_server_of_an_engine_refuses_is_a_wrong_request(http, of_engine, shown):
    engine = StructuredEngine()

    async def refused(prompt_ids, sampling, schema):
        raise ClientError("Grammar error: Invalid type: nope", status=of_engine)

    engine.structured = refused
    status, text, _ = await post(http, engine, *next(iter(BODIES.items())))
    assert (status, "Invalid type" in text) == (shown, True)
