"""Each field of a request that changes what is sampled reaches the engine, in each dialect."""

import pytest

ALL = {"temperature": 0.5, "top_p": 0.75, "max_tokens": 7, "seed": 3, "top_k": 9, "min_p": 0.125}
ASKED = [{"role": "user", "content": "Hi"}]
DIALECTS = {
    "chat/completions": ({"messages": ASKED, **ALL, "stop": "."}, ALL),
    "completions": ({"prompt": "Hi", **ALL, "stop": ["."]}, ALL),
    "responses": (
        {"input": "Hi", "temperature": 0.5, "top_p": 0.75, "max_output_tokens": 7},
        {"temperature": 0.5, "top_p": 0.75, "max_tokens": 7},
    ),
    "messages": (
        {
            "messages": ASKED,
            "temperature": 0.5, "top_p": 0.75, "max_tokens": 7, "top_k": 9,
            "stop_sequences": ["."],
        },
        {"temperature": 0.5, "top_p": 0.75, "max_tokens": 7, "top_k": 9},
    ),
}  # fmt: skip


@pytest.mark.parametrize("engine", [True], indirect=True)
@pytest.mark.parametrize("dialect", DIALECTS)
async def test_each_field_of_a_request_reaches_the_engine(gateway, engine, http, dialect):
    body, expected = DIALECTS[dialect]
    session = gateway.open()
    url = f"{gateway.base_url(session)}/{dialect}"
    async with http.post(url, json={"model": "any", **body}) as response:
        assert response.status == 200, await response.text()
    (completion,) = engine.sampled
    sampling = completion.sampling
    assert {name: getattr(sampling, name) for name in expected} == expected
    assert sampling.stop == (() if dialect == "responses" else (".",))
