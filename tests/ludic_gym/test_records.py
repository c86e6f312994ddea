import gzip
import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ludic_gym.commands.main import main
from ludic_gym.errors import DataError
from ludic_gym.records import (
    episode_from_json,
    episode_to_json,
    open_records,
    read_episodes,
    read_rollouts,
    record_episodes,
    record_line,
)
from ludic_gym.types import (
    Completion,
    Decision,
    Episode,
    ModelCall,
    Rollout,
    Sampling,
    Step,
    Task,
    ToolCall,
)

COMPLETION = Completion(
    text="é \ud800",
    finish_reason="tool_calls",
    sampling=Sampling(temperature=0.1 + 0.2, stop=("\n",), seed=2**62),
    prompt_ids=(1, 2),
    completion_ids=(3,),
    logprobs=(-1 / 3,),
    sampling_mask=b"\x03\x80\x01\x00",
    policy_version=4,
    versions=(4,),
    routed_experts="k05VTVBZ",
    tool_calls=(ToolCall(id="c", name="f", arguments="{"),),
    reasoning="first",
    call=ModelCall(
        model="m-2",
        fingerprint="fp",
        messages=({"role": "user", "content": "?"},),
        parameters={"stop": ["x"], "seed": 2**62},
        usage={"cost": 0.1},
        seconds=0.25,
    ),
)
TASK = Task(
    env_id="e",
    kwargs={"pair": (1, 2), "table": {1: "a", "$x": [None]}, "deep": {"a": {"b": (True,)}}},
    seed=7,
    options={"row": 3},
    group="g",
    sampling=Sampling(seed=1),
    max_turns=5,
)
STEP = Step(
    observation="o",
    decision=Decision(
        action=None, reward=0.1, feedback="f", completions=(COMPLETION,), give_up="budget"
    ),
    reward=1e-300,
    truncated=True,
    info={"success": False, "score": np.float32(0.1), "board": np.arange(6).reshape(2, 3)},
)
EPISODE = Episode(
    index=2,
    task=TASK,
    rollouts=(
        Rollout(task=TASK, steps=(replace(STEP, info={"a": 1}),), agent="a", player="p"),
        Rollout(task=TASK, steps=(), agent="b", final_observation="end"),
    ),
)


def test_an_episode_is_read_back_exactly():
    line = json.dumps(episode_to_json(EPISODE))

    assert episode_from_json(json.loads(line)) == EPISODE


def test_numpy_values_keep_their_type_and_shape():
    episode = replace(EPISODE, rollouts=(Rollout(task=TASK, steps=(STEP,)),))
    (step,) = episode_from_json(json.loads(json.dumps(episode_to_json(episode)))).rollouts[0].steps

    assert type(step.info["score"]) is np.float32
    assert step.info["score"] == np.float32(0.1)
    np.testing.assert_array_equal(step.info["board"], np.arange(6).reshape(2, 3))
    assert step.info["board"].dtype == np.arange(6).dtype


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: (
        st.lists(inner)
        | st.lists(inner).map(tuple)
        | st.dictionaries(st.text() | st.integers() | st.sampled_from(["$tuple", "$x"]), inner)
    ),
    max_leaves=10,
)


@given(values)
def test_any_plain_value_is_read_back_with_its_types(value):
    task = Task(env_id="e", kwargs={"value": value})
    line = json.dumps(episode_to_json(Episode(index=0, task=task)))

    assert repr(episode_from_json(json.loads(line)).task.kwargs["value"]) == repr(value)


@pytest.mark.parametrize("value", [{1, 2}, b"x", object(), 1j, np.array([None])])
def test_a_value_that_could_not_be_read_back_is_refused(value):
    with pytest.raises(DataError, match="cannot record"):
        episode_to_json(Episode(index=0, task=Task(env_id="e", kwargs={"value": value})))


@pytest.mark.parametrize(
    "value",
    [{1, 2}, b"x", object(), 1j, np.array([None]), pytest.param(7**6000, id="long")],
)
def test_an_info_that_no_record_can_hold_is_its_text_and_the_episode_stands(value):
    step = Step(observation="?", decision=Decision(action="a"), reward=1.0, info={"x": value})
    rollout = Rollout(task=Task(env_id="e"), steps=(step,))
    episode = Episode(index=0, task=rollout.task, rollouts=(rollout,))
    with pytest.warns(UserWarning, match="the info 'x' is recorded as text"):
        record = json.loads(record_line(episode, {}))
    assert isinstance(record["rollouts"][0]["steps"][0]["info"]["x"], str)


def test_a_rollout_of_another_task_is_refused():
    other = Episode(index=0, task=Task(env_id="f"), rollouts=EPISODE.rollouts)

    with pytest.raises(DataError, match="'a' has another task"):
        episode_to_json(other)


def test_files_are_appended_to_and_read_line_by_line(tmp_path):
    path = tmp_path / "new" / "episodes.jsonl"
    failed = Episode(index=3, task=TASK, error="RuntimeError: broke")
    for episode in (EPISODE, failed):
        with open_records(path) as append:
            append(episode)

    assert list(read_episodes(path)) == [EPISODE, failed]
    assert list(read_rollouts(path)) == list(EPISODE.rollouts)


@pytest.mark.parametrize("kept", [0, 1])
@pytest.mark.parametrize("cut", [1, 100_000])
def test_a_line_that_a_crash_cut_is_removed_before_the_next(tmp_path, kept, cut):
    path = tmp_path / "episodes.jsonl"
    episode = Episode(index=0, task=Task(env_id="x", kwargs={"text": "y" * 200_000}), error="z")
    with open_records(path) as append:
        append(episode)
    line = path.read_bytes()
    path.write_bytes(line * kept + line[:-cut])
    with open_records(path) as append:
        append(episode)
    assert list(read_episodes(path)) == [episode] * (kept + 1)


async def test_a_stream_of_episodes_can_be_recorded_as_it_passes(tmp_path):
    async def stream():
        yield EPISODE

    path = tmp_path / "episodes.jsonl"
    passed = [episode async for episode in record_episodes(stream(), path)]

    assert passed == list(read_episodes(path)) == [EPISODE]


def dialog(*texts):
    messages = tuple({"role": "user", "content": text} for text in texts)
    call = ModelCall(model="m", messages=messages)
    completion = Completion(text="", finish_reason="stop", call=call)
    return replace(STEP, decision=Decision(action="", completions=(completion,)), info={})


def test_a_dialog_is_written_once_and_read_back_whole():
    # The third call has dropped the first message, as a sliding window does.
    steps = dialog("a", "b"), dialog("a", "b", "c"), dialog("b", "c")
    episode = replace(EPISODE, rollouts=(Rollout(task=TASK, steps=steps),))
    record = json.loads(json.dumps(episode_to_json(episode)))
    calls = [s["decision"]["completions"][0]["call"] for s in record["rollouts"][0]["steps"]]
    assert [call["kept"] for call in calls] == [0, 2, 0]
    assert [len(call["messages"]) for call in calls] == [2, 1, 2]
    # Twice: reading must leave the record readable.
    assert episode_from_json(record) == episode_from_json(record) == episode


def played(*calls):
    """A rollout with a step for each (prompt, reply); log-probs are floats of 32 bits or not."""
    steps = [
        replace(
            STEP,
            decision=Decision(
                action="",
                completions=(
                    Completion(
                        text="é",
                        finish_reason="stop",
                        prompt_ids=prompt,
                        completion_ids=reply,
                        logprobs=[-1 / 3 if reply[0] % 2 else -0.5] * len(reply),
                    ),
                ),
            ),
            info={},
        )
        for prompt, reply in calls
    ]
    return replace(EPISODE, rollouts=(Rollout(task=TASK, steps=tuple(steps)),))


def test_a_call_is_written_as_what_it_adds_to_the_one_before():
    # It continues the call before; repeats its prompt alone; shares two tokens; shares none.
    calls = [([1, 2], [3]), ([1, 2, 3, 4], [5]), ([1, 2, 3, 4], [6]), ([1, 2, 9], [7]), ([8], [1])]
    episode = played(*calls)

    for line in (json.dumps(episode_to_json(episode)), record_line(episode, {})):
        record = json.loads(line)
        completions = [s["decision"]["completions"][0] for s in record["rollouts"][0]["steps"]]
        assert [c["kept"] for c in completions] == [0, 3, 4, 2, 0]
        assert [c["prompt_ids"] for c in completions] == [[1, 2], [4], [], [9], [8]]
        # Those that float32 does not hold are not rounded.
        assert [type(c["logprobs"]) for c in completions] == [list, list, str, list, list]
        assert episode_from_json(record) == episode_from_json(record) == episode


@given(st.lists(st.tuples(st.lists(st.integers(0, 1)), st.lists(st.integers(0, 1), min_size=1))))
def test_any_calls_are_read_back_exactly(calls):
    episode = played(*calls)

    assert episode_from_json(json.loads(record_line(episode, {}))) == episode


def test_calls_that_keep_more_than_there_was_are_refused():
    record = episode_to_json(played(([1, 2], [3])))
    record["rollouts"][0]["steps"][0]["decision"]["completions"][0]["kept"] = 1

    with pytest.raises(DataError, match="keeps 1 of 0"):
        episode_from_json(record)


@pytest.mark.parametrize("name", ["episodes.jsonl", "rollouts/000001.jsonl.gz"])
def test_records_of_the_version_before_are_converted_by_one_command(tmp_path, name, capsys):
    episodes = [EPISODE, played(([1, 2], [3]), ([1, 2, 3, 4], [5]))]
    old = b"".join(json.dumps({"score": 1} | as_version_4(e)).encode() + b"\n" for e in episodes)
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    opened = gzip.open if name.endswith("gz") else open
    with opened(path, "wb") as file:
        file.write(old + b'{"update":1,"group":"","credit":[]}\n{"schema": "ludic.ep')

    assert main(["view", str(tmp_path), "--convert"]) == 0
    assert capsys.readouterr().out == f"{path}: converted\n"
    with opened(path, "rb") as file:
        *lines, credit, cut = file.read().splitlines()
    assert lines == [record_line(episode, {"score": 1}).strip() for episode in episodes]
    assert (credit, cut) == (b'{"update":1,"group":"","credit":[]}', b'{"schema": "ludic.ep')
    assert main(["view", str(tmp_path), "--convert"]) == 0
    assert capsys.readouterr().out == ""


def as_version_4(episode):
    """The record that the version before wrote: all tokens of each prompt, and `repeated`."""
    record = episode_to_json(episode) | {"version": 4}
    calls = [
        (item, call)
        for rollout, written in zip(episode.rollouts, record["rollouts"], strict=True)
        for step, other in zip(rollout.steps, written["steps"], strict=True)
        for call, item in zip(
            step.decision.completions, other["decision"]["completions"], strict=True
        )
    ]
    for item, call in calls:
        del item["kept"]
        item |= {"prompt_ids": list(call.prompt_ids), "logprobs": list(call.logprobs)}
        if item["call"]:
            item["call"]["repeated"] = item["call"].pop("kept")
    return record


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ('{"schema": "ludic.episode", "version": 2, "ind', "line 2, .*: JSONDecodeError"),
        ("[]", "line 2, is no such record: TypeError"),
        ("{}", "line 2, is no such record: KeyError: 'schema'"),
        ('{"schema": "ludic.bench", "version": 1}', "'ludic.bench' version 1; this code reads"),
        ('{"schema": "ludic.episode", "version": 4}', "version 5; `ludic view FOLDER --convert`"),
    ],
)
def test_a_line_that_is_no_record_is_named(tmp_path, line, complaint):
    path = tmp_path / "episodes.jsonl"
    path.write_text(f"{json.dumps(episode_to_json(EPISODE))}\n{line}\n")

    with pytest.raises(DataError, match=complaint):
        list(read_episodes(path))


def test_the_schema_is_written_down():
    record = episode_to_json(EPISODE)
    # Whoever changes a field here raises VERSION.
    assert record["version"] == 5
    rollout = record["rollouts"][0]
    step = rollout["steps"][0]
    completion = step["decision"]["completions"][0]
    fields = [" ".join(sorted(part)) for part in (record, rollout, step, step["decision"])]
    assert fields == [
        "blame error index rollouts schema task version",
        "agent final_observation player steps",
        "decision info observation reward terminated truncated",
        "action completions feedback give_up reward",
    ]
    assert " ".join(sorted(completion)) == (
        "call completion_ids finish_reason kept logprobs policy_version prompt_ids reasoning "
        "routed_experts sampling sampling_mask text tool_calls versions"
    )
    assert " ".join(sorted(record["task"])) == (
        "attempts env_id group kwargs max_turns options sampling seed"
    )
