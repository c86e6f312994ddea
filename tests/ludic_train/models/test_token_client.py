"""The client of vLLM servers knows where the model's template ends turns."""

import pytest
from chat_families import FAMILIES, family_tokenizer

from ludic_gym.errors import ClientError
from ludic_gym.types import Sampling
from ludic_train.models.token_client import token_client


def client_of(tokenizer, token, sent):
    """A client whose server samples this token at once."""
    client = token_client("http://127.0.0.1:9", tokenizer, "m")

    async def request(route, body, **options):
        sent.append(body["sampling_params"]["stop_token_ids"])
        content = [{"logprob": -0.5}]
        choice = {"text": "", "finish_reason": "stop", "token_ids": [token]}
        return {"choices": [choice | {"logprobs": {"content": content}}]}

    client.request = request
    return client


async def test_a_spare_row_that_a_server_samples_costs_its_reply():
    tokenizer = family_tokenizer("gemma")
    client = client_of(tokenizer, len(tokenizer), [])
    with pytest.raises(ClientError, match=f"the id {len(tokenizer)}, and the tokenizer has"):
        await client.complete([{"role": "user", "content": "hi"}], Sampling())
    await client.aclose()


@pytest.mark.parametrize("name", ["qwen base", "gemma", "phi 3"])
async def test_all_stop_ids_are_sent(name):
    tokenizer, sent = family_tokenizer(name), []
    end = tokenizer.convert_tokens_to_ids(FAMILIES[name].end)
    client = client_of(tokenizer, end, sent)
    reply = await client.complete([{"role": "user", "content": "hi"}], Sampling())
    await client.aclose()
    (ids,) = sent
    assert set(tokenizer.convert_ids_to_tokens(ids)) == FAMILIES[name].stops
    assert (reply.completion_ids, reply.finish_reason) == ((end,), "stop")
