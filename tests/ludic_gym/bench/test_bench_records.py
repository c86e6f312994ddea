import json

import numpy as np
import pytest

from ludic_gym.bench import bench_tasks, open_records, run_bench
from ludic_gym.bench.records import plain
from ludic_gym.clients import ScriptedClient
from ludic_gym.errors import ConfigError
from ludic_gym.policies import ChatPolicy, ScriptedPolicy
from ludic_gym.types import Task


async def recorded(path, tasks, make_policy):
    with open_records(path, policy="mine") as record:
        await run_bench(tasks, make_policy, on_episode=record)
    return [json.loads(line) for line in path.read_text().splitlines()]


def sums(episodes):
    return bench_tasks("ludic/Arithmetic-v0", kwargs={"digits": 1}, episodes=episodes, seed=3)


async def test_the_header_says_which_schema_follows(tmp_path):
    header, *episodes = await recorded(
        tmp_path / "out" / "a.jsonl", sums(4), lambda env: ScriptedPolicy(["1"])
    )
    assert (header["schema"], header["version"]) == ("ludic.bench", 1)
    assert sorted(record["index"] for record in episodes) == [0, 1, 2, 3]


async def test_a_record_holds_what_it_takes_to_play_the_episode_again(tmp_path):
    (task,) = sums(1)
    _, record = await recorded(tmp_path / "a.jsonl", [task], lambda env: ScriptedPolicy(["1"]))
    again = Task(
        env_id=record["env_id"],
        kwargs=record["kwargs"],
        seed=record["seed"],
        options=record["options"],
        max_turns=record["max_turns"],
        sampling=type(task.sampling)(
            **{**record["sampling"], "stop": tuple(record["sampling"]["stop"])}
        ),
    )
    assert again == task
    assert record["policy"] == "mine"


async def test_a_record_holds_the_transcript_and_the_tokens(tmp_path):
    client = ScriptedClient(["x" * 7])
    _, record = await recorded(tmp_path / "a.jsonl", sums(1), lambda env: ChatPolicy(client))
    (step,) = record["rollouts"][0]["steps"]
    assert step["observation"].endswith("How many?")
    assert (step["action"], step["reward"], step["terminated"]) == ("xxxxxxx", 0.0, True)
    # Seven bytes and the end of the turn.
    assert step["completions"][0]["completion_tokens"] == 8
    assert (record["success"], record["outcome"], record["error"]) == (False, "failure", None)


async def test_a_failed_episode_is_recorded_with_its_reason(tmp_path):
    _, record = await recorded(tmp_path / "a.jsonl", sums(1), lambda env: ScriptedPolicy([]))
    assert "scripted actions" in record["error"]
    assert (record["outcome"], record["success"]) == ("error", False)


async def test_text_that_is_no_unicode_is_recorded(tmp_path):
    _, record = await recorded(
        tmp_path / "a.jsonl", sums(1), lambda env: ScriptedPolicy(["\ud800"])
    )
    assert record["rollouts"][0]["steps"][0]["action"] == "\ud800"


async def test_an_earlier_run_is_never_overwritten(tmp_path):
    path = tmp_path / "a.jsonl"
    await recorded(path, sums(1), lambda env: ScriptedPolicy(["1"]))
    before = path.read_text()
    with pytest.raises(ConfigError, match="holds an earlier run"), open_records(path, policy="p"):
        pass
    assert path.read_text() == before


async def test_episodes_are_on_disk_as_soon_as_they_end(tmp_path):
    path = tmp_path / "a.jsonl"
    lines = []
    with open_records(path, policy="mine") as record:

        def look(episode):
            record(episode)
            lines.append(len(path.read_text().splitlines()))

        await run_bench(sums(3), lambda env: ScriptedPolicy(["1"]), on_episode=look)
    assert lines == [2, 3, 4]


@pytest.mark.parametrize(
    ("value", "json_value"),
    [(np.float32(0.5), 0.5), (np.bool_(True), True), (np.arange(2), [0, 1]), ({1}, "{1}")],
)
def test_values_json_does_not_know_become_plain(value, json_value):
    assert plain(value) == json_value
