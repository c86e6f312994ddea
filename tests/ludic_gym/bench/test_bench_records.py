import json

import pytest

from ludic_gym.bench.folder import keep_finished, open_transcripts, put_in_order, read_scores
from ludic_gym.bench.runner import bench_tasks, run_bench
from ludic_gym.clients.scripted import ScriptedClient
from ludic_gym.errors import DataError
from ludic_gym.policies.chat import ChatPolicy
from ludic_gym.policies.reference import OraclePolicy, ScriptedPolicy
from ludic_gym.records import read_episodes

SILENT = ScriptedPolicy([])


async def recorded(path, tasks, make_policy):
    with open_transcripts(path, policy="mine") as record:
        await run_bench(tasks, make_policy, on_episode=record)
    return [json.loads(line) for line in path.read_text().splitlines()]


def sums(episodes):
    return bench_tasks("ludic/Arithmetic-v0", kwargs={"digits": 1}, episodes=episodes, seed=3)


async def test_what_was_played_is_read_back_exactly_with_its_tokens(tmp_path):
    client = ScriptedClient(["<answer>7</answer>"] * 3)
    seen = []
    path = tmp_path / "a.jsonl"
    with open_transcripts(path, policy="mine") as record:

        def keep(episode):
            seen.append(episode)
            record(episode)

        await run_bench(sums(3), lambda env: ChatPolicy(client), on_episode=keep)
    assert list(read_episodes(path)) == seen
    assert sorted(episode.index for episode in seen) == [0, 1, 2]
    assert tuple(sorted((e.task for e in seen), key=lambda task: task.seed)) == sums(3)


def test_a_file_without_any_episode_does_not_stand_in_the_way_of_the_next_run(tmp_path):
    for _ in range(2):
        with open_transcripts(tmp_path / "a.jsonl", policy="mine"):
            pass
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("line", ["no json", "{}", '{"score": {"index": 0}}', '{"score": 3}'])
async def test_a_line_that_is_no_record_is_named(tmp_path, line):
    path = tmp_path / "a.jsonl"
    await recorded(path, sums(2), lambda env: ScriptedPolicy(["1"]))
    path.write_text(f"{path.read_text()}{line}\n")
    with pytest.raises(DataError, match=r"a\.jsonl, line 3, is no such record: "):
        list(read_scores(path))


async def test_a_line_that_a_crash_cut_is_taken_out_wherever_it_was_cut(tmp_path):
    path = tmp_path / "a.jsonl"
    await recorded(path, sums(2), lambda env: ScriptedPolicy(["1"]))
    whole = path.read_bytes()
    first = whole.splitlines(keepends=True)[0]
    for end in range(len(first), len(whole)):
        path.write_bytes(whole[:end])
        keep_finished(path, sums(2))
        assert path.read_bytes() == first


async def test_failed_episodes_are_taken_out(tmp_path):
    path = tmp_path / "a.jsonl"
    good, bad = [await recorded(path, sums(1), p) for p in (OraclePolicy, lambda e: SILENT)]
    assert (len(good), len(bad)) == (1, 2)
    assert keep_finished(path, sums(1)) == [0]
    assert [json.loads(line) for line in path.read_text().splitlines()] == good


async def test_an_episode_that_the_model_ended_by_an_error_is_kept(tmp_path):
    path = tmp_path / "a.jsonl"
    await recorded(path, sums(1), lambda env: SILENT)
    path.write_text(path.read_text().replace('"blame":"infrastructure"', '"blame":"model"'))
    assert (keep_finished(path, sums(1)), len(list(read_scores(path)))) == ([], 1)


async def test_episodes_are_put_in_the_order_of_their_tasks(tmp_path):
    path = tmp_path / "a.jsonl"
    await recorded(path, sums(12), OraclePolicy)
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[7:] + lines[:7]))
    put_in_order(path)
    assert sorted(path.read_text().splitlines()) == sorted(line.strip() for line in lines)
    assert [episode.index for episode in read_episodes(path)] == list(range(12))
    assert list(tmp_path.iterdir()) == [path]
