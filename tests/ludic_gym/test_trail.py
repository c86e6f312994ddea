import itertools
import pickle
from copy import deepcopy
from threading import Thread

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ludic_gym.errors import ConfigError
from ludic_gym.trail import Trail, as_trail, float_numbers, token_ids

IDS = st.lists(st.integers(0, 2), max_size=4)


@pytest.mark.parametrize("make", [token_ids, lambda ids: Trail(list(ids))], ids=["ids", "objects"])
@given(st.lists(st.tuples(st.integers(0, 9), IDS)))
def test_trails_that_continue_each_other_are_like_tuples(make, continuations):
    # Each continues one of those before, also one that others have continued.
    trails, tuples = [make([])], [()]
    for at, ids in continuations:
        trails.append(trails[at % len(trails)] + ids)
        tuples.append((*tuples[at % len(tuples)], *ids))

    assert trails == tuples
    for trail, plain in zip(trails, tuples, strict=True):
        assert (len(trail), list(trail), hash(trail)) == (len(plain), list(plain), hash(plain))
        for part in (slice(1, -1), slice(None, None, 2), slice(2, 0, -1), slice(-2, None)):
            assert trail[part] == plain[part]
        for other, plain_other in zip(trails, tuples, strict=True):
            same = [a == b for a, b in zip(plain, plain_other, strict=False)]
            assert trail.kept(other) == (*same, False).index(False)
            assert (trail == other) == (plain == plain_other)
            assert trail.on(other) == plain
    assert pickle.loads(pickle.dumps(trails)) == deepcopy(trails) == tuples


def test_a_dialog_takes_the_memory_of_its_last_prompt():
    prompts = [token_ids(range(100))]
    for _ in range(1000):
        prompts.append(prompts[-1] + range(100))

    # 400 kB, where prompts of their own would have 200 MB.
    assert len(pickle.dumps(prompts)) < 450_000
    assert all(after.continues(before) for before, after in itertools.pairwise(prompts))


def test_a_list_of_prompts_is_put_into_the_memory_of_the_first():
    first, other = token_ids([1, 2]), token_ids([1, 2, 3])

    assert not other.continues(first)
    assert other.on(first).continues(first)
    assert not token_ids([1, 3]).on(first).continues(first)


def test_equal_candidates_for_a_turn_share_a_prompt_but_not_messages():
    prompt = token_ids([1])
    assert prompt.then(2).continues(prompt.then(2))
    # Replies of equal texts may have been sampled as other tokens.
    first, second = {"content": "5"}, {"content": "5"}
    dialog = as_trail([])
    assert dialog.then(first)[0] is first
    assert dialog.then(second)[0] is second


def test_threads_that_continue_one_prompt_do_not_mix():
    start, made = token_ids([]), {}

    def go(thread):
        trail = start
        for number in range(500):
            trail += [thread, number]
        made[thread] = trail

    threads = [Thread(target=go, args=(thread,)) for thread in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for thread, trail in made.items():
        assert trail == [i for number in range(500) for i in (thread, number)]


@given(st.lists(st.floats(allow_nan=False) | st.floats(allow_nan=False, width=32)))
def test_no_number_is_rounded(numbers):
    assert float_numbers(numbers) == numbers


def test_numbers_of_32_bits_take_4_bytes():
    assert float_numbers([-0.5, float("-inf")]).items.itemsize == 4
    assert float_numbers([-1 / 3]).items.itemsize == 8
    assert float_numbers([-1e300]).items.itemsize == 8


@pytest.mark.parametrize("bad", [[2**31], [-(2**31) - 1], [1.5], ["5"], [None]])
def test_what_is_no_token_id_is_named(bad):
    with pytest.raises(ConfigError, match="token ids are integers of 32 bits, got"):
        token_ids(bad)


def test_an_index_beyond_the_trail_is_an_error_though_its_memory_goes_on():
    trail = token_ids([1, 2])
    trail.then(3)

    assert trail[-1] == 2
    with pytest.raises(IndexError):
        trail[2]
