import asyncio
import threading
import time

import pytest
import torch

from ludic_gym.errors import ClientError, ConfigError, PromptTooLong
from ludic_gym.types import Message, Sampling
from ludic_train.engine.client import LocalChatClient
from ludic_train.errors import EngineError, UnsupportedModel
from ludic_train.models.chat_template import render_chat


def user(text="1 2 X"):
    return [Message(role="user", content=text)]


def asked(client, count, **sampling):
    """`count` coroutines that ask for a completion each, with seeds 0, 1, ..."""
    return [
        client.complete(user(str(i % 3)), Sampling(**{"seed": i, "max_tokens": 9, **sampling}))
        for i in range(count)
    ]


async def turns(client, texts, seed):
    """A dialog: each user text is answered, and the answers are part of what follows."""
    dialog, completions = [], []
    for text in texts:
        dialog.append(Message(role="user", content=text))
        completions.append(await client.complete(dialog, Sampling(seed=seed, max_tokens=3)))
        dialog.append(Message(role="assistant", content=completions[-1].text))
    return completions


@pytest.fixture
def client(model, tokenizer):
    return LocalChatClient(model, tokenizer, max_batch_size=16)


async def test_a_completion_tells_what_was_asked_and_sampled(client, tokenizer):
    client.policy_version = 7
    sampling = Sampling(seed=5, max_tokens=4, temperature=0.9)
    completion = await client.complete(user(), sampling)
    assert completion.prompt_ids == tuple(render_chat(tokenizer, user()))
    assert completion.sampling == sampling
    assert completion.policy_version == 7
    assert len(completion.completion_ids) == len(completion.logprobs) <= 4


def test_runs_repeat_bit_for_bit_on_one_event_loop_after_another(model, tokenizer):
    async def play(client):
        dialogs = (turns(client, ["a", "bc", "1 2"], seed) for seed in range(20))
        return await asyncio.gather(*dialogs)

    client = LocalChatClient(model, tokenizer, max_batch_size=16)
    first = asyncio.run(play(client))
    assert asyncio.run(play(client)) == first
    assert asyncio.run(play(LocalChatClient(model, tokenizer, max_batch_size=16))) == first


async def test_a_changed_model_is_sampled_from_at_the_next_request(model, client):
    before = await asyncio.gather(*asked(client, 5))
    with torch.no_grad():
        for param in model.parameters():
            param.mul_(1.5)
    client.policy_version += 1
    after = await asyncio.gather(*asked(client, 5))
    assert [c.policy_version for c in before + after] == [0] * 5 + [1] * 5
    assert all(a.logprobs != b.logprobs for a, b in zip(after, before, strict=True))


async def test_without_a_seed_no_two_completions_repeat_and_each_tells_its_seed(client):
    ones = await asyncio.gather(*asked(client, 10, seed=None))
    twos = await asyncio.gather(*asked(client, 10, seed=None))
    seeds = {completion.sampling.seed for completion in ones + twos}
    assert len(seeds) == 20
    assert None not in seeds
    again = await client.complete(user("0"), ones[0].sampling)
    assert again.completion_ids == ones[0].completion_ids


async def test_equal_clients_draw_equal_seeds(model, tokenizer):
    drawn = []
    for seed in (1, 1, 2):
        client = LocalChatClient(model, tokenizer, seed=seed)
        completions = await asyncio.gather(*asked(client, 3, seed=None))
        drawn.append([completion.sampling.seed for completion in completions])
    assert drawn[0] == drawn[1] != drawn[2]


@pytest.mark.long
async def test_the_event_loop_stays_alive_while_the_model_runs(client):
    ticks = []

    async def tick():
        while True:
            ticks.append(threading.get_ident())
            await asyncio.sleep(0.001)

    ticker = asyncio.create_task(tick())
    await client.complete(user(), Sampling(seed=0, max_tokens=150, temperature=3.0))
    before = len(ticks)
    await asyncio.gather(*asked(client, 200, max_tokens=100, temperature=3.0))
    assert len(ticks) - before > 10
    ticker.cancel()


async def test_a_prompt_that_does_not_fit_is_refused_and_the_others_are_served(client):
    long = client.complete(user("1" * 250), Sampling(max_tokens=10))
    *good, bad = await asyncio.gather(*asked(client, 3), long, return_exceptions=True)
    assert isinstance(bad, PromptTooLong)
    assert isinstance(bad, ClientError)
    # 250 characters and the 8 tokens around them.
    assert "a prompt of 258 tokens leaves no room" in str(bad)
    assert "at most 256 tokens" in str(bad)
    assert all(completion.logprobs for completion in good)


async def test_a_begun_reply_is_continued(client, tokenizer):
    dialog = [*user(), Message(role="assistant", content="6")]
    completion = await client.complete(dialog, Sampling(seed=0, max_tokens=1))
    assert tokenizer.decode(completion.prompt_ids).endswith("assistant\n6")


async def test_tools_are_refused_where_the_template_writes_none(client):
    tool = {"type": "function", "function": {"name": "search"}}
    with pytest.raises(ConfigError, match="1 tools were offered, and the model"):
        await client.complete(user(), Sampling(), [tool])


@pytest.mark.parametrize(
    "wrong",
    [
        {"temperature": -1.0},
        {"temperature": float("nan")},
        {"top_p": 0.0},
        {"top_p": 1.1},
        {"max_tokens": 0},
        {"stop": ("",)},
    ],
)
async def test_a_sampling_that_makes_no_sense_is_refused(client, wrong):
    ((name, value),) = wrong.items()
    with pytest.raises(ConfigError, match=name) as error:
        await client.complete(user(), Sampling(**wrong))
    assert repr(value) in str(error.value)


async def test_a_broken_model_fails_everybody_who_waits_and_nobody_hangs(model, client):
    weight = model.model.norm.weight.data.clone()
    model.model.norm.weight.data.fill_(torch.nan)
    answers = await asyncio.gather(*asked(client, 40), return_exceptions=True)
    assert all(isinstance(answer, EngineError) for answer in answers)
    assert "not finite" in str(answers[0])
    model.model.norm.weight.data.copy_(weight)
    assert all(c.logprobs for c in await asyncio.gather(*asked(client, 40)))


async def test_a_cancelled_request_makes_room_and_the_others_do_not_notice(model, tokenizer):
    client = LocalChatClient(model, tokenizer, max_batch_size=2)
    expected = await asyncio.gather(*asked(client, 6))
    endless = [
        asyncio.create_task(
            client.complete(user(), Sampling(seed=i, temperature=9.0, max_tokens=240))
        )
        for i in range(2)
    ]
    rest = asyncio.gather(*asked(client, 6))
    await asyncio.sleep(0.02)
    for task in endless:
        task.cancel()
    got = await rest
    assert [c.completion_ids for c in got] == [c.completion_ids for c in expected]
    await asyncio.wait(endless)
    assert all(task.cancelled() for task in endless)


async def test_when_all_have_given_up_the_sampler_stops(model, client):
    calls = []
    model.model.embed_tokens.register_forward_pre_hook(lambda *_: calls.append(time.monotonic()))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await client.complete(user(), Sampling(seed=1, temperature=50.0, max_tokens=240))
    await client.wait_until_idle()
    count = len(calls)
    await asyncio.sleep(0.05)
    assert len(calls) == count < 240
    assert asyncio.all_tasks() == {asyncio.current_task()}


def test_a_loop_that_ends_with_requests_in_flight_leaves_the_client_usable(client):
    async def give_up():
        for coroutine in asked(client, 20, max_tokens=200, temperature=50.0):
            asyncio.create_task(coroutine)  # noqa: RUF006 - abandoned on purpose
        await asyncio.sleep(0.005)

    async def play():
        return await asyncio.gather(*asked(client, 5))

    expected = asyncio.run(play())
    asyncio.run(give_up())
    assert asyncio.run(play()) == expected


async def test_a_second_event_loop_at_the_same_time_is_refused(client):
    waiting = asyncio.create_task(
        client.complete(user(), Sampling(seed=1, temperature=50.0, max_tokens=240))
    )
    await asyncio.sleep(0)

    def elsewhere():
        asyncio.run(client.complete(user(), Sampling(seed=2, max_tokens=2)))

    with pytest.raises(EngineError, match="another event loop"):
        await asyncio.to_thread(elsewhere)
    await waiting


def test_no_model_or_batch_size_is_refused_at_construction(model, tokenizer):
    with pytest.raises(UnsupportedModel, match="Linear is no model of transformers"):
        LocalChatClient(torch.nn.Linear(2, 2), tokenizer)
    with pytest.raises(ConfigError, match="max_batch_size=0"):
        LocalChatClient(model, tokenizer, max_batch_size=0)


@pytest.mark.parametrize(
    ("ids", "reason"),
    [([], "no tokens"), ([5, -1], "token -1 is none"), ([5, 10**9], "token 1000000000 is none")],
)
async def test_tokens_that_the_model_has_not_are_refused_and_hurt_nobody(client, ids, reason):
    good, bad = await asyncio.gather(
        asked(client, 1)[0], client.continued(ids, Sampling()), return_exceptions=True
    )
    assert isinstance(bad, ConfigError)
    assert reason in str(bad)
    assert good.logprobs


async def test_settled_means_that_no_step_is_under_way_not_even_of_who_gave_up(model, client):
    await client.wait_until_idle()
    during = []
    model.model.embed_tokens.register_forward_pre_hook(lambda *_: time.sleep(0.005))
    asking = asyncio.create_task(client.continued([5], Sampling(max_tokens=200, seed=0)))
    while not client.in_flight:
        await asyncio.sleep(0)
    await asyncio.sleep(0.02)
    asking.cancel()
    await client.wait_until_idle()
    model.model.embed_tokens.register_forward_pre_hook(lambda *_: during.append(1))
    await asyncio.sleep(0.05)
    assert (client.in_flight, during) == (0, [])
