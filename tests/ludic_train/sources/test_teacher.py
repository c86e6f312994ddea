from contextlib import asynccontextmanager
from dataclasses import replace

import numpy as np
import pytest
import torch
from aiohttp import web
from two_ranks.learning import Fixed, random_rows, settings, tiny_model

from ludic_gym.clients.transport import HttpOptions
from ludic_gym.errors import ClientError
from ludic_train.algorithms.variants import distillation
from ludic_train.errors import TeacherError
from ludic_train.sources.teacher import TaughtBatchSource, VLLMTeacher
from ludic_train.trainer.prepare import prepared
from ludic_train.trainer.trainer import Trainer
from ludic_train.types import REFERENCE


def logprobs_of(model, ids):
    """vLLM's response: nothing for the first token, then {id: {...}} for each."""
    with torch.no_grad():
        found = model(torch.tensor([ids])).logits[0].log_softmax(-1)
    after = [
        {str(token): {"logprob": found[t, token].item(), "rank": 1, "decoded_token": "?"}}
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


async def test_a_student_comes_closer_to_a_teacher_behind_http():
    student, teacher_model = tiny_model(0), tiny_model(1)
    distances = []
    async with served(lambda body: logprobs_of(teacher_model, body["prompt"])) as (teacher, _):
        source = TaughtBatchSource(Fixed(random_rows(8)), teacher)
        trainer = Trainer(student, distillation(), source, cfg=settings())
        await trainer.train(20, lambda version, m: distances.append(m["teacher_kl"].value))
    assert distances[-1] < 0.5 * distances[0]


async def test_what_http_attaches_is_what_a_reference_model_in_memory_attaches():
    items, model = random_rows(6), tiny_model(1)
    async with served(lambda body: logprobs_of(model, body["prompt"])) as (teacher, _):
        batch = await TaughtBatchSource(Fixed(items), teacher).next_batch(distillation())
    alone = prepared(items, tiny_model(0), model, distillation(), settings(), packing=True)
    for judged, own in zip(batch.items, alone, strict=True):
        expected = own.attachments[REFERENCE]
        np.testing.assert_allclose(judged.attachments[REFERENCE], expected, atol=1e-5)


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (lambda body: [None], "scored 1 tokens of a row of"),
        (lambda body: [None] * len(body["prompt"]), "scored None where the row has token"),
        (lambda body: [{"1": {"logprob": -1.0}}] * len(body["prompt"]), "the student's tokenizer"),
        (
            lambda body: [{str(i): {"logprob": None}} for i in body["prompt"]],
            "the log-prob None",
        ),
    ],
)
async def test_an_answer_about_other_tokens_is_refused(answer, why):
    async with served(answer) as (teacher, _):
        with pytest.raises(TeacherError, match=why):
            await teacher.logprobs(random_rows(3))


async def test_an_answer_without_log_probs_is_refused():
    async with served(lambda body: None) as (teacher, _):
        with pytest.raises(ClientError, match="'prompt_logprobs' is None"):
            await teacher.logprobs(random_rows(1))


async def test_a_temperature_that_servers_do_not_score_at_is_refused():
    async with served(lambda body: None) as (teacher, bodies):
        with pytest.raises(TeacherError, match=r"temperature 0\.7, and servers score prompts at 1"):
            await teacher.logprobs([replace(random_rows(1)[0], temperature=0.7)])
    assert bodies == []
