from hypothesis import given
from hypothesis import strategies as st

from ludic_gym.types import Sampling
from ludic_train.engine.batch import (
    FREE_PADDING,
    MAX_PADDING,
    PREFILL_TOKENS,
    Request,
    prefills,
)


def request(*prompt):
    return Request(prompt_ids=prompt, sampling=Sampling(seed=0))


def test_equal_prompts_are_read_once_for_all_who_share_them():
    first, other, second = request(1, 2), request(3, 4), request(1, 2)
    (prefill,) = prefills([first, other, second])
    assert prefill.prompts == ((1, 2), (3, 4))
    assert [list(requests) for requests in prefill.sharers] == [[first, second], [other]]


def test_prompts_of_very_different_length_are_read_apart():
    short, long = [request(i) for i in range(200)], request(*range(500))
    assert [len(prefill.prompts) for prefill in prefills([long, *short])] == [200, 1]


def test_a_little_padding_is_cheaper_than_a_second_pass():
    (prefill,) = prefills([request(1, 2, 3), request(4)])
    assert prefill.prompts == ((4,), (1, 2, 3))


def test_a_prompt_too_long_to_share_is_read_alone():
    requests = [request(*range(PREFILL_TOKENS + 10)), request(*range(1, PREFILL_TOKENS + 10))]
    assert [len(prefill.prompts) for prefill in prefills(requests)] == [1, 1]


@given(st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=300), max_size=40))
def test_every_request_is_read_exactly_once_and_padding_stays_bounded(prompts):
    requests = [request(*prompt) for prompt in prompts]
    read = []
    for prefill in prefills(requests):
        sizes = [len(prompt) for prompt in prefill.prompts]
        padded = max(sizes) * len(sizes)
        assert padded - sum(sizes) <= max(FREE_PADDING, MAX_PADDING * padded)
        for prompt, sharers in zip(prefill.prompts, prefill.sharers, strict=True):
            assert all(sharer.prompt_ids == prompt for sharer in sharers)
            read += sharers
    assert sorted(map(id, read)) == sorted(map(id, requests))
