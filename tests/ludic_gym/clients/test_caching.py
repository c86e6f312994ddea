import pytest

from ludic_gym.clients.caching import CachingClient
from ludic_gym.clients.scripted import ScriptedClient
from ludic_gym.errors import DataError, ScriptExhausted
from ludic_gym.types import Sampling

SEEDED = Sampling(seed=1)


def user(content):
    return [{"role": "user", "content": content}]


async def test_a_second_run_is_answered_from_disk_exactly(tmp_path):
    first = CachingClient(ScriptedClient(["a"]), tmp_path, model="m")
    second = CachingClient(ScriptedClient([]), tmp_path, model="m")

    answer = await first.complete(user("q"), SEEDED)

    assert await second.complete(user("q"), SEEDED) == answer
    assert (first.hits, first.misses, second.hits, second.misses) == (0, 1, 1, 0)


TOOL = {"type": "function", "function": {"name": "f"}}


@pytest.mark.parametrize(
    ("question", "sampling", "tools", "model"),
    [
        ("other", SEEDED, (), "m"),
        ("q", Sampling(seed=2), (), "m"),
        ("q", Sampling(seed=1, temperature=0.5), (), "m"),
        ("q", Sampling(seed=1, max_tokens=5), (), "m"),
        ("q", Sampling(seed=1, stop=("x",)), (), "m"),
        ("q", SEEDED, (TOOL,), "m"),
        ("q", SEEDED, (), "other"),
    ],
)
async def test_all_that_matters_makes_another_request(tmp_path, question, sampling, tools, model):
    await CachingClient(ScriptedClient(["a"]), tmp_path, model="m").complete(user("q"), SEEDED)
    other = CachingClient(ScriptedClient(["b"]), tmp_path, model=model)

    assert (await other.complete(user(question), sampling, tools)).text == "b"


async def test_a_draw_without_a_seed_is_always_a_new_one(tmp_path):
    client = CachingClient(ScriptedClient(["a", "b"]), tmp_path, model="m")
    drawn = [(await client.complete(user("q"), Sampling())).text for _ in range(2)]

    assert drawn == ["a", "b"]


async def test_a_failure_is_not_kept(tmp_path):
    with pytest.raises(ScriptExhausted):
        await CachingClient(ScriptedClient([]), tmp_path, model="m").complete(user("q"), SEEDED)

    again = CachingClient(ScriptedClient(["a"]), tmp_path, model="m")
    assert (await again.complete(user("q"), SEEDED)).text == "a"


async def test_a_file_that_is_broken_is_named(tmp_path):
    client = CachingClient(ScriptedClient(["a"]), tmp_path, model="m")
    await client.complete(user("q"), SEEDED)
    (path,) = tmp_path.rglob("*.json")
    path.write_text("{")

    with pytest.raises(DataError, match=path.name):
        await client.complete(user("q"), SEEDED)
