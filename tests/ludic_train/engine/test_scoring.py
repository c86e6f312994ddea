"""Scores of tokens that are there already, held against transformers' own forward."""

import asyncio
import time

import pytest
import torch

from ludic_gym.errors import ConfigError, PromptTooLong
from ludic_gym.types import Sampling
from ludic_train.engine.client import LocalChatClient
from ludic_train.engine.sampling import ROWS, Ranking

IDS = [5, 6, 7, 8, 9, 10]


@pytest.fixture
def client(model, tokenizer):
    return LocalChatClient(model, tokenizer)


@pytest.mark.parametrize("first", [1, 4])
async def test_each_token_is_scored_by_what_came_before_it(model, client, reference_logits, first):
    scored = await client.scored(IDS, first, Ranking())
    expected = reference_logits(model, IDS).log_softmax(-1)
    assert [list(scores) for scores in scored] == [[token] for token in IDS[first:]]
    for i, scores in enumerate(scored, first):
        assert scores[IDS[i]] == pytest.approx(float(expected[i - 1, IDS[i]]), abs=1e-5)


async def test_the_likeliest_follow_in_order(model, client, reference_logits):
    (scores,) = await client.scored(IDS, 5, Ranking(top=3, sampling=Sampling(temperature=0.5)))
    values, best = (reference_logits(model, IDS)[4] / 0.5).log_softmax(-1).topk(3)
    assert list(scores) == [10, *(i for i in best.tolist() if i != 10)]
    assert [scores[i] for i in best.tolist()] == pytest.approx(values.tolist(), abs=1e-5)


async def test_outside_the_nucleus_nothing_is_possible(client):
    (scores,) = await client.scored(IDS, 5, Ranking(top=300, sampling=Sampling(top_p=0.5)))
    possible = [value for value in scores.values() if value > -torch.inf]
    assert 1 < len(possible) < len(scores) - 100
    assert sum(map(torch.exp, torch.tensor(possible))) == pytest.approx(1.0, abs=1e-5)


async def test_long_texts_are_scored_in_parts_without_a_seam(model, client, reference_logits):
    ids = [3 + i % 200 for i in range(2 * ROWS + 5)]
    scored = await client.scored(ids, 1, Ranking(top=1))
    expected = reference_logits(model, ids).log_softmax(-1)[:-1]
    own = expected.gather(1, torch.tensor(ids[1:])[:, None])[:, 0]
    got = [scores[token] for scores, token in zip(scored, ids[1:], strict=True)]
    assert got == pytest.approx(own.tolist(), abs=1e-4)


async def test_scores_come_while_others_are_sampled(client):
    sampling = Sampling(seed=0, max_tokens=240, temperature=50.0)
    asking = asyncio.create_task(client.continued([5], sampling))
    while not client.in_flight:
        await asyncio.sleep(0)
    scored = await client.scored(IDS, 1, Ranking())
    assert not asking.done()
    assert scored == await client.scored(IDS, 1, Ranking())
    await asking


async def test_scoring_that_was_given_up_is_waited_for_until_params_may_change(model, client):
    ended = []
    model.lm_head.register_forward_pre_hook(lambda *_: time.sleep(0.2))
    model.lm_head.register_forward_hook(lambda *_: ended.append(1))
    scoring = asyncio.create_task(client.scored(IDS, 1, Ranking()))
    await asyncio.sleep(0.05)
    scoring.cancel()
    await client.settled()
    assert ended == [1]


async def test_what_the_model_cannot_read_is_refused(client):
    with pytest.raises(ConfigError, match="token 999 is none of the model's"):
        await client.scored([5, 999], 1, Ranking())
    with pytest.raises(PromptTooLong, match="257 tokens"):
        await client.scored([5] * 257, 1, Ranking())
