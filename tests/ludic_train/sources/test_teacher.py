import math
from contextlib import asynccontextmanager
from dataclasses import replace

import numpy as np
import pytest
import torch
from aiohttp import web
from two_ranks.learning import Fixed, random_rows, settings, tiny_model

from ludic_gym.errors import ClientError
from ludic_gym.limits import HttpOptions
from ludic_train.algorithms.presets import distillation, top_k_distillation
from ludic_train.errors import TeacherError
from ludic_train.sources.teacher import TaughtBatchSource, VLLMTeacher
from ludic_train.trainer.config import Execution
from ludic_train.trainer.prepare import attach_streams
from ludic_train.types import REFERENCE, SAWItem


def logprobs_of(model, ids, k=0):
    """vLLM's response: nothing for the first token, then {id: {...}} for each and the k likeliest.

    The token itself comes first, and is one entry more where it is none of the k.
    """
    with torch.no_grad():
        found = model(torch.tensor([ids])).logits[0].log_softmax(-1)
    after = [
        {
            str(one): {"logprob": found[t, one].item(), "rank": rank, "decoded_token": "?"}
            for rank, one in enumerate([token, *found[t].topk(k).indices.tolist()])
        }
        for t, token in enumerate(ids[1:])
    ]
    return [None, *after]


@asynccontextmanager
async def served(answer):
    """A teacher whose server answers `answer(body)` as prompt_logprobs, and the bodies it got."""
    bodies = []

    async def complete(request):
        bodies.append(await request.json())
        choice = {"text": "", "finish_reason": "length", "index": 0}
        return web.json_response({"choices": [{**choice, "prompt_logprobs": answer(bodies[-1])}]})

    async def models(request):
        return web.json_response({"data": [{"id": "teacher"}]})

    app = web.Application()
    app.router.add_post("/v1/completions", complete)
    app.router.add_get("/v1/models", models)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        async with VLLMTeacher(url, options=HttpOptions(max_retries=0)) as teacher:
            yield teacher, bodies
    finally:
        await runner.cleanup()


async def test_rows_are_sent_as_tokens_and_their_sampled_ones_judged():
    items, model = random_rows(5, masked=0.3), tiny_model(1)
    async with served(lambda body: logprobs_of(model, body["prompt"])) as (teacher, bodies):
        found = await teacher.logprobs(items)
    assert sorted(body["prompt"] for body in bodies) == sorted(i.input_ids.tolist() for i in items)
    assert {(b["model"], b["max_tokens"], b["prompt_logprobs"]) for b in bodies} == {
        ("teacher", 1, 0)
    }
    for item, values in zip(items, found, strict=True):
        own = logprobs_of(model, item.input_ids.tolist())
        for t in range(len(item.input_ids)):
            token = str(item.input_ids[t])
            expected = own[t][token]["logprob"] if item.action_mask[t] else 0.0
            assert values[t] == pytest.approx(expected, abs=1e-6)


async def test_a_source_with_a_teacher_keeps_the_state_of_its_own_source():
    class Echo:
        async def logprobs(self, items):
            return [item.behavior_logprobs for item in items]

    class At3(Fixed):
        def state_dict(self):
            return {"at": 3}

    source = TaughtBatchSource(At3(random_rows(4)), Echo())
    batch = await source.next_batch(distillation())
    assert all(item.attachments[REFERENCE] is item.behavior_logprobs for item in batch.items)
    assert source.state_dict() == {"at": 3}


async def test_what_http_attaches_is_what_a_reference_model_in_memory_attaches():
    items, model = random_rows(6), tiny_model(1)
    async with served(lambda body: logprobs_of(model, body["prompt"])) as (teacher, _):
        batch = await TaughtBatchSource(Fixed(items), teacher).next_batch(distillation())
    alone = attach_streams(
        items, tiny_model(0), model, distillation(), settings(), execution=Execution()
    )
    for judged, own in zip(batch.items, alone, strict=True):
        expected = own.attachments[REFERENCE]
        np.testing.assert_allclose(judged.attachments[REFERENCE], expected, atol=1e-5)


async def test_most_likely_tokens_are_those_of_a_reference_model_in_memory():
    items, model, algo = random_rows(6, masked=0.3), tiny_model(1), top_k_distillation(k=4)
    # Where the token of the row is one of the 4, the server names no fifth.
    ids = items[0].input_ids.tolist()
    first = int(np.flatnonzero(items[0].action_mask)[0])
    entries = logprobs_of(model, ids[: first + 1], 2)[first]
    items[0].input_ids[first] = int(list(entries)[-1])

    def answer(body):
        return logprobs_of(model, body["prompt"], body["prompt_logprobs"])

    async with served(answer) as (teacher, bodies):
        batch = await TaughtBatchSource(Fixed(items), teacher).next_batch(algo)
    assert {body["prompt_logprobs"] for body in bodies} == {4}
    assert len(bodies) == 6
    alone = attach_streams(items, tiny_model(0), model, algo, settings(), execution=Execution())
    for judged, own in zip(batch.items, alone, strict=True):
        assert REFERENCE not in judged.attachments
        np.testing.assert_array_equal(judged.teacher.ids, own.teacher.ids)
        np.testing.assert_allclose(judged.teacher.logprobs, own.teacher.logprobs, atol=1e-5)
        assert judged.teacher.ids.dtype == np.int32
        assert judged.teacher.logprobs.dtype == np.float32


def scores(*pairs):
    return {str(token): {"logprob": logprob} for token, logprob in pairs}


async def test_what_others_have_is_the_difference_to_1():
    row = SAWItem(
        input_ids=np.array([4, 5, 6], np.int32),
        action_mask=np.array([False, True, True]),
        weight=np.zeros(3, np.float32),
    )
    half, tenth = math.log(0.5), math.log(0.1)
    # The second entry adds up to 1, so that float32 cannot tell what others have: 1e-6 at most.
    found = [None, scores((5, tenth), (9, half), (8, math.log(0.2))), scores((6, half), (7, half))]
    async with served(lambda body: found) as (teacher, _):
        (top,) = await teacher.top_tokens([row], 2)
    assert top.ids.tolist() == [[9, 8], [6, 7]]
    expected = [[0.5, 0.2, 0.3], [0.5, 0.5, 1e-6]]
    np.testing.assert_allclose(np.exp(top.logprobs), expected, rtol=1e-5)


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        (scores((1, -0.5)), "row has token 5"),
        (scores((5, -0.5)), "names 1 tokens"),
        (scores((5, -0.5), (6, -9999.0)), "names 1 tokens .* --max-logprobs"),
        (scores((5, -0.5), (6, -0.5)), "exceed 1"),
        (scores((5, -0.5), (6, None)), "token 6 the log-prob None"),
    ],
)
async def test_entries_that_are_not_the_most_likely_tokens_are_refused(entry, why):
    mask = np.array([False, True])
    ids = np.array([4, 5], np.int32)
    row = SAWItem(input_ids=ids, action_mask=mask, weight=np.zeros(2, np.float32))
    async with served(lambda body: [None, entry]) as (teacher, _):
        with pytest.raises(TeacherError, match=why):
            await teacher.top_tokens([row], 2)


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (lambda body: None, "'prompt_logprobs' is None"),
        (lambda body: [None], "scored 1 tokens"),
        (lambda body: [None] * len(body["prompt"]), "scored None"),
        (lambda body: [{"1": {"logprob": -1.0}}] * len(body["prompt"]), "the student's tokenizer"),
        (
            lambda body: [{str(i): {"logprob": None}} for i in body["prompt"]],
            "the log-prob None",
        ),
    ],
)
async def test_an_answer_about_other_tokens_is_refused(answer, why):
    async with served(answer) as (teacher, _):
        with pytest.raises((TeacherError, ClientError), match=why):
            await teacher.logprobs(random_rows(3))


async def test_a_temperature_that_servers_do_not_score_at_is_refused():
    async with served(lambda body: None) as (teacher, bodies):
        rows = [replace(random_rows(1)[0], temperature=0.7)]
        for request in (teacher.logprobs(rows), teacher.top_tokens(rows, 2)):
            with pytest.raises(TeacherError, match=r"temperature 0\.7"):
                await request
    assert bodies == []
