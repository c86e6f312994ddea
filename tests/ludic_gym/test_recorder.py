import gzip
import json

import numpy as np
import pytest

from ludic_gym import recorder
from ludic_gym.errors import ConfigError
from ludic_gym.recorder import Recorder, forget_after, read_recorded, recorded_sizes
from ludic_gym.records import episode_to_json, record_line
from ludic_gym.types import Completion, Decision, Episode, ModelCall, Rollout, Sampling, Step, Task

PLAIN = {"success": True, "reward/right": 0.5, "outcome": "win", "n": 3, "none": None}


def episode(seed=0, *, group="a", info=PLAIN, text="2 + 3 \u2028 \u00e9", **options):
    task = Task(env_id="ludic/Arithmetic-v0", seed=seed, group=group, kwargs={"level": 2})
    completion = Completion(
        text=text, finish_reason="stop", sampling=Sampling(seed=7, stop=("\n",)),
        prompt_ids=(1, 2), completion_ids=(3,), logprobs=(-0.1,), sampling_mask=b"\0\1",
        policy_version=4, **options,
    )  # fmt: skip
    decision = Decision(action=text, completions=(completion,))
    step = Step(observation=text, decision=decision, reward=0.5, terminated=True, info=info)
    return Episode(index=seed, task=task, rollouts=(Rollout(task=task, steps=(step,)),))


@pytest.mark.parametrize(
    "one",
    [
        episode(),
        episode(info={"a": (1, 2), "$b": np.float32(0.5), "c": [1], "inf": float("inf")}),
        episode(text="half a pair \ud800"),
        episode(call=ModelCall(model="m", messages=({"role": "user", "content": "hi"},))),
        Episode(index=1, task=Task(env_id="ludic/Maze-v0", options={"row": 3}), error="it broke"),
    ],
)
def test_a_line_is_the_record_of_the_episode_after_further_fields(one):
    line = record_line(one, {"update": 3})
    assert json.loads(line) == {"update": 3} | json.loads(json.dumps(episode_to_json(one)))
    assert line.startswith(b'{"update":3,"schema":')
    assert (line.count(b"\n"), line[-1:]) == (1, b"\n")


def test_what_was_written_is_read_back_with_its_update_and_weights(tmp_path):
    record = Recorder(tmp_path)
    first = [episode(0), Episode(index=1, task=episode(1).task, error="it broke")]
    record.write(first, use="train", update=1, credit={"a": [[0.25]]})
    record.write([episode(2)], use="evaluate", update=1)
    record.write([episode(3)], use="train", update=2, credit={})
    assert [
        (one.episode, one.update, one.use, one.weights) for one in read_recorded(str(tmp_path))
    ] == [
        (first[0], 1, "train", [[0.25]]),
        (first[1], 1, "train", []),
        (episode(2), 1, "evaluate", None),
        (episode(3), 2, "train", [None]),
    ]
    assert [count for count, _ in recorded_sizes(tmp_path).values()] == [3, 1]
    assert list(read_recorded(tmp_path, {3})) == []


def test_a_value_that_no_file_can_hold_is_its_text_and_the_episode_stands(tmp_path):
    with pytest.warns(UserWarning, match="the info 'it' is recorded as text"):
        Recorder(tmp_path).write([episode(info={"it": object()})], use="train", update=1)
    (one,) = read_recorded(tmp_path)
    assert one.episode.error is None
    assert one.episode.rollouts[0].steps[-1].info["it"].startswith("<object")


def test_files_rotate_and_the_oldest_are_dropped_at_the_cap(tmp_path, monkeypatch):
    monkeypatch.setattr(recorder, "FILES", 4)
    rng = np.random.default_rng(0)
    record = Recorder(tmp_path, cap_gb=40e-6)
    for update in range(60):
        # Numbers that hardly compress: about 2 kB.
        text = " ".join(map(str, rng.integers(0, 2**62, 200)))
        record.write([episode(text=text)], use="train", update=update)
        assert sum(path.stat().st_size for path in tmp_path.iterdir()) < 45_000
    updates = [one.update for one in read_recorded(tmp_path)]
    assert updates == list(range(updates[0], 60))
    assert 10 < updates[0] < 50
    names = sorted(path.name for path in tmp_path.iterdir())
    assert len(names) in (3, 4)
    assert names[-1] > "000004.jsonl.gz"


def test_a_share_keeps_whole_groups_and_the_same_tasks_each_time(tmp_path):
    record = Recorder(tmp_path, share=0.3)
    for update in (1, 2):
        groups = [episode(seed, group=f"{update}-{seed}") for seed in range(100) for _ in range(2)]
        record.write(groups, use="train", update=update)
    kept = [one.episode.task.seed for one in read_recorded(tmp_path)]
    assert kept[: len(kept) // 2] == kept[len(kept) // 2 :]
    assert kept[::2] == kept[1::2]
    assert 20 < len(set(kept)) < 40


@pytest.mark.parametrize("options", [{"share": 1.5}, {"share": -0.1}, {"cap_gb": 0.0}])
def test_a_share_or_cap_that_cannot_be_is_refused(tmp_path, options):
    with pytest.raises(ConfigError, match="record="):
        Recorder(tmp_path, **options)


def test_later_updates_are_forgotten_and_so_is_a_line_that_a_crash_has_cut(tmp_path):
    for start in (0, 3):
        record = Recorder(tmp_path)
        for update in range(start, start + 3):
            record.write([episode(update)], use="train", update=update)
    actor = Recorder(tmp_path, writer="actor-1")
    actor.write([episode(9)], use="train")
    path = tmp_path / "000002.jsonl.gz"
    path.write_bytes(path.read_bytes()[:-20])
    assert [one.update for one in read_recorded(tmp_path)] == [0, 1, 2, 3, 4, None]
    forget_after(tmp_path, 3)
    assert [one.update for one in read_recorded(tmp_path)] == [0, 1, 2, 3, None]
    forget_after(tmp_path, 1)
    # A resumed run goes on in a file of its own.
    Recorder(tmp_path).write([episode(2)], use="train", update=2)
    assert [one.update for one in read_recorded(tmp_path)] == [0, 1, 2, None]
    assert all(gzip.decompress(path.read_bytes()) is not None for path in tmp_path.iterdir())


def test_credit_of_the_trainer_comes_to_the_episodes_of_its_actors(tmp_path):
    actor = Recorder(tmp_path, writer="actor-1")
    failed = Episode(index=0, task=episode(group="a:1").task, error="it broke")
    actor.write([failed, episode(1, group="a:1"), episode(2, group="a:1")], use="train")
    actor.write([episode(3, group="a:2")], use="train")
    Recorder(tmp_path).write_credit(5, {"a:1": [[0.5], None]})
    assert [(one.update, one.weights) for one in read_recorded(tmp_path)] == [
        (5, []),
        (5, [[0.5]]),
        (5, [None]),
        (None, None),
    ]
