import base64
import hashlib
import json
import re
import shutil
import threading
import urllib.error
import urllib.request
import zlib
from dataclasses import replace
from html import unescape

import pytest

from ludic_gym.bench.folder import open_transcripts
from ludic_gym.bench.result import Price
from ludic_gym.commands.main import main
from ludic_gym.errors import ConfigError
from ludic_gym.recorder import Recorder
from ludic_gym.types import (
    Completion,
    Decision,
    Episode,
    Message,
    ModelCall,
    Rollout,
    Step,
    Task,
    ToolCall,
)
from ludic_gym.view.page import make_server, page, view_of
from ludic_gym.view.transcript import transcript

TASK = Task(env_id="ludic/Arithmetic-v0", seed=3, kwargs={"digits": 2})
BLOCK = re.compile(r'<script type="application/json" id="([\w-]+)">(.*?)</script>', re.DOTALL)


def episode(text="80", index=0, **completion):
    call = Completion(text=text, finish_reason="stop", **completion)
    step = Step(
        observation=text,
        decision=Decision(action=text, completions=(call,)),
        reward=1.0,
        terminated=True,
        info={"success": True, "answer": text},
    )
    rollout = Rollout(task=TASK, steps=(step,), final_observation=text)
    return Episode(index=index, task=TASK, rollouts=(rollout,))


def blocks(html):
    return {name: json.loads(text) for name, text in BLOCK.findall(html)}


def unpacked(data):
    return json.loads(zlib.decompress(base64.b64decode(data)))


def rows(view):
    columns = view["runs"][0]["columns"]
    return [
        dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)
    ]


def test_every_episode_has_a_row_and_a_transcript(bench_folder):
    view = view_of([bench_folder])
    assert len(rows(view)) == 24
    assert [row["env"] for row in rows(view)] == [0] * 12 + [1] * 12
    run = view["runs"][0]
    kept = [one for chunk in run["chunks"] for one in unpacked(chunk["data"])]
    assert [one["index"] for one in kept] == [row["index"] for row in rows(view)]
    sums, games = (env["success_rate"] for env in run["envs"])
    # Half of the games are against perfect play, which cannot be beaten.
    assert (sums, 0 < games < 1) == (1.0, True)
    assert [env["random"] for env in run["envs"]] == [0.0, pytest.approx(0.3, abs=0.1)]


def test_tasks_of_large_seeds_stay_apart(tmp_path):
    with open_transcripts(tmp_path / "ludic-Arithmetic-v0.jsonl", policy="p") as record:
        for i in range(2):
            task = replace(TASK, seed=2**60 + i)
            record(Episode(index=i, task=task, error="boom"))
    request = {"schema": "ludic.bench", "version": 1, "policy": "p"}
    request["envs"] = {"ludic/Arithmetic-v0": {"kwargs": {}}}
    (tmp_path / "bench.json").write_text(json.dumps(request))
    tasks = [row["task"] for row in rows(view_of([tmp_path]))]
    assert tasks == ["1152921504606846976", "1152921504606846977"]


def test_chunks_start_at_their_row_also_where_only_some_transcripts_are_kept(
    bench_folder, monkeypatch
):
    monkeypatch.setattr("ludic_gym.view.transcript.CHUNK_CHARS", 1500)
    view = view_of([bench_folder], most=10)
    table, chunks = rows(view), view["runs"][0]["chunks"]
    assert len(chunks) > 3
    seen = []
    for chunk in chunks:
        assert chunk["count"] == len(unpacked(chunk["data"]))
        for k, one in enumerate(unpacked(chunk["data"])):
            row = chunk["start"] + k
            assert one["index"] == table[row]["index"]
            seen.append(row)
    # Five of each env.
    assert seen == [*range(5), *range(12, 17)]


def test_tools_tokens_and_log_probs_are_shown():
    call = ToolCall(id="1", name="search", arguments='{"query": "x"}')
    one = episode(
        completion_ids=(5, 7), logprobs=(-0.25, -1.5), prompt_ids=(1, 2), tool_calls=(call,),
        policy_version=4,
    )  # fmt: skip
    (said,) = transcript(one)["rollouts"][0]["steps"][0]["completions"]
    assert said["tokens"] == ["5 ", "7 "]
    assert said["logprobs"] == [-0.25, -1.5]
    assert said["tools"] == [{"name": "search", "arguments": '{"query": "x"}'}]
    assert (said["version"], said["decoded"], said["prompt"]) == (4, False, "")
    names = {5: "fi", 7: "ve", 1: "<s>", 2: "?"}
    shown = transcript(one, lambda ids: [names[i] for i in ids])
    (said,) = shown["rollouts"][0]["steps"][0]["completions"]
    assert (said["tokens"], said["prompt"]) == (["fi", "ve"], "<s>?")


HOSTILE = "</script><script>alert(1)</script><!--<img src=x onerror=alert(2)>\u202e\x1b[31m\u2028"


def test_hostile_text_stays_data(tmp_path):
    with open_transcripts(tmp_path / "ludic-Arithmetic-v0.jsonl", policy=HOSTILE) as record:
        record(episode(HOSTILE))
    request = {"schema": "ludic.bench", "version": 1, "policy": HOSTILE}
    request["envs"] = {"ludic/Arithmetic-v0": {"kwargs": {"x": HOSTILE}}}
    (tmp_path / "bench.json").write_text(json.dumps(request))
    html = page(view_of([tmp_path]))
    # Two scripts of data and two of code: none of the text's own.
    assert html.count("<script") == html.count("</script>") == 4
    assert "<img" not in html
    (packed,) = re.findall(r'<script type="text/plain" id="chunk-0-0">([\w+/=]*)</script>', html)
    (shown,) = unpacked(packed)
    assert shown["rollouts"][0]["final"] == HOSTILE


def test_only_the_pages_own_script_and_style_may_run(bench_folder):
    html = page(view_of([bench_folder]))
    policy = unescape(re.search(r'Content-Security-Policy" content="(.*?)"', html).group(1))
    assert policy.startswith("default-src 'none'; ")
    for tag, source in (("script", "script-src"), ("style", "style-src")):
        texts = re.findall(rf"<{tag}>(.*?)</{tag}>", html, re.DOTALL)
        digests = [base64.b64encode(hashlib.sha256(t.encode()).digest()).decode() for t in texts]
        allowed = " ".join(f"'sha256-{digest}'" for digest in digests)
        assert f"{source} {allowed};" in policy
    # The name of a namespace, and the home of the chart library in its first line.
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg|github\.com/leeoniya/uPlot)", html)


def test_numbers_that_browsers_do_not_read_are_null(tmp_path):
    (tmp_path / "metrics.jsonl").write_text('{"update": 1, "loss": NaN}\n{"update": 2, "lo')
    view = view_of([tmp_path])
    (run,) = blocks(page(view))["data"]["runs"]
    assert run["curves"] == [{"name": "loss", "updates": [1], "values": [None]}]


def test_a_training_run_shows_its_curves_and_rollouts(tmp_path):
    lines = [{"update": i, "loss": 1 / i, "eval/won": i / 2} for i in (1, 2)]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    record = Recorder(tmp_path / "rollouts")
    for i in (2, 1):
        record.write([episode(index=i)], use="train", update=10 * i, credit={"": [[0.5 - i]]})
    record.write([episode()], use="evaluate", update=20)
    view = view_of([tmp_path])
    assert view["runs"][0]["curves"] == [
        {"name": "loss", "updates": [1, 2], "values": [1.0, 0.5]},
        {"name": "eval/won", "updates": [1, 2], "values": [0.5, 1.0]},
    ]
    assert [(row["nth"], row["use"], row["weight"], row["success"]) for row in rows(view)] == [
        (10, "train", -0.5, True),
        (20, "train", -1.5, True),
        (20, "evaluate", None, True),
    ]
    assert view["runs"][0]["note"] == ""


def test_a_page_has_as_many_updates_as_fit_and_says_what_it_left_out(tmp_path):
    (tmp_path / "metrics.jsonl").write_text("")
    record = Recorder(tmp_path / "rollouts")
    for update in range(1, 102):
        record.write([episode(index=i) for i in range(4)], use="train", update=update)
    (run,) = view_of([tmp_path], most=20)["runs"]
    assert run["columns"]["nth"] == [u for u in (1, 26, 51, 76, 101) for _ in range(4)]
    assert run["note"] == (
        "20 of 404 episodes, from 5 of 101 updates; ludic view --updates chooses others"
    )
    (run,) = view_of([tmp_path], updates={7, 8})["runs"]
    assert run["columns"]["nth"] == [7] * 4 + [8] * 4
    # A single update may be more than the page may hold.
    (run,) = view_of([tmp_path], updates={7, 8}, most=4)["runs"]
    assert run["columns"]["nth"] == [7] * 2 + [8] * 2
    assert run["note"].startswith("4 of 404 episodes, from 2 of 101 updates")


def test_differences_are_those_of_the_comparison(bench_folder, other_folder):
    view = view_of([bench_folder, other_folder])
    assert [run["name"] for run in view["runs"]] == ["oracle-run", "random-run"]
    sums = [d for d in view["differences"] if d["env"] == "ludic/Arithmetic-v0"]
    # Twelve tasks, each lost instead of won: p is two of 2^12 assignments of signs.
    assert [(d["measure"], d["tasks"], d["difference"], d["p"]) for d in sums] == [
        ("success", 12, -1.0, 2 / 2**12),
        ("reward", 12, -1.0, 2 / 2**12),
    ]


def test_of_many_runs_only_the_first_is_compared_with_each(bench_folder, tmp_path):
    for name in "abcdefg":
        shutil.copytree(bench_folder, tmp_path / name)
    view = view_of([tmp_path])
    assert [run["name"] for run in view["runs"]] == list("abcdefg")
    assert {d["first"] for d in view["differences"]} == {0}
    assert {d["second"] for d in view["differences"]} == {1, 2, 3, 4, 5, 6}


def test_a_run_that_was_killed_is_shown_without_its_half_lines(bench_folder, tmp_path):
    folder = shutil.copytree(bench_folder, tmp_path / "run")
    path = folder / "ludic-Arithmetic-v0.jsonl"
    path.write_text(path.read_text()[:-100])
    times = (folder / "times.jsonl").read_text().splitlines(keepends=True)
    # The killed process wrote half of the first line, its continuation the others behind it.
    (folder / "times.jsonl").write_text("".join([times[0][:20], *times[1:]]))
    table = rows(view_of([folder]))
    assert [row["index"] for row in table] == [*range(11), *range(12)]
    assert [row["seconds"] is None for row in table].count(True) == 2


def test_a_request_is_shown_as_sent_each_message_once():
    said = [Message(role="system", content="Be brief."), Message(role="user", content="1+1?")]
    more = [*said, Message(role="assistant", content="2"), Message(role="user", content="sure?")]
    asked = [
        ModelCall(
            model="m-1", messages=tuple(messages), parameters={"temperature": 0.5},
            usage={"prompt_tokens": 1000, "completion_tokens": 500}, seconds=0.25,
        )
        for messages in (said, more)
    ]  # fmt: skip
    steps = tuple(
        replace(episode(call=call, reasoning="hm").rollouts[0].steps[0], terminated=last)
        for call, last in zip(asked, (False, True), strict=True)
    )
    one = Episode(index=0, task=TASK, rollouts=(Rollout(task=TASK, steps=steps),))
    steps = transcript(one, price=Price(2, 4))["rollouts"][0]["steps"]
    shown = [step["completions"][0] for step in steps]
    assert [c["call"]["kept"] for c in shown] == [0, 2]
    assert [[m["content"] for m in c["call"]["messages"]] for c in shown] == [
        ["Be brief.", "1+1?"],
        ["2", "sure?"],
    ]
    # 1000 tokens at 2 and 500 at 4 per million.
    assert [c["call"]["cost"] for c in shown] == [0.004, 0.004]
    assert (shown[0]["counts"], shown[0]["reasoning"]) == ([1000, 500], "hm")
    assert shown[0]["call"]["parameters"] == {"temperature": 0.5}


def test_the_file_lies_in_the_run_unless_another_is_named(bench_folder, tmp_path, capsys):
    assert main(["view", str(bench_folder)]) == 0
    assert (bench_folder / "view.html").read_text().startswith("<!doctype html>")
    out = tmp_path / "new" / "page.html"
    assert main(["view", str(bench_folder), "--out", str(out)]) == 0
    assert f"{out}, " in capsys.readouterr().out
    assert out.exists()


@pytest.fixture
def server(tmp_path):
    (tmp_path / "metrics.jsonl").write_text('{"update": 1, "loss": 2}\n')
    with make_server(lambda: view_of([tmp_path]), [tmp_path]) as made:
        thread = threading.Thread(target=made.serve_forever, args=(0.02,))
        thread.start()
        yield f"http://127.0.0.1:{made.server_address[1]}", tmp_path
        made.shutdown()
        thread.join()


def fetched(url, **headers):
    request = urllib.request.Request(url, headers=headers)
    with urllib.request.urlopen(request) as answer:
        return answer.read().decode()


def test_a_served_page_learns_what_is_new(server):
    url, folder = server
    before = fetched(f"{url}/version")
    assert blocks(fetched(f"{url}/"))["data"]["version"] == before
    assert fetched(f"{url}/version") == before
    with (folder / "metrics.jsonl").open("a") as file:
        file.write('{"update": 2, "loss": 1}\n')
    after = json.loads(fetched(f"{url}/data.json"))["view"]
    assert after["version"] == fetched(f"{url}/version") != before
    assert after["runs"][0]["curves"][0]["values"] == [2, 1]


def test_nothing_but_the_page_is_served_and_under_no_other_name(server):
    url, _ = server
    with pytest.raises(urllib.error.HTTPError, match="404"):
        fetched(f"{url}/metrics.jsonl")
    with pytest.raises(urllib.error.HTTPError, match="403"):
        fetched(f"{url}/data.json", Host="rebound.example:80")


def test_a_port_that_is_taken_is_refused(server):
    url, folder = server
    with pytest.raises(ConfigError, match="name another --port"):
        make_server(lambda: None, [folder], port=int(url.rsplit(":", 1)[1]))
