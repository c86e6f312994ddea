import base64
import hashlib
import json
import re
import threading
import urllib.error
import urllib.request
from dataclasses import replace
from html import unescape

import pytest

from ludic_gym.bench.records import open_transcripts
from ludic_gym.commands.main import main
from ludic_gym.errors import ConfigError
from ludic_gym.records import episode_to_json, read_episodes
from ludic_gym.types import Completion, Decision, Episode, Rollout, Step, Task, ToolCall
from ludic_gym.view.bench import bench_view
from ludic_gym.view.page import page, view_of, write_page
from ludic_gym.view.server import make_server
from ludic_gym.view.training import training_view
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


def rows(view):
    columns = view["runs"][0]["columns"]
    return [
        dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)
    ]


def test_every_episode_has_a_row_and_a_transcript(bench_folder):
    view = bench_view([bench_folder])
    assert len(rows(view)) == 24
    assert [row["env"] for row in rows(view)] == [0] * 12 + [1] * 12
    run = view["runs"][0]
    kept = [json.loads(text) for chunk in run["chunks"] for text in chunk["episodes"]]
    assert [one["index"] for one in kept] == [row["index"] for row in rows(view)]
    assert [env["success_rate"] for env in run["envs"]] == [1.0, 1.0]
    assert [env["random"] for env in run["envs"]] == [0.0, pytest.approx(0.585, abs=0.1)]


def test_a_transcript_says_all_that_was_said(bench_folder):
    (first, *_) = read_episodes(bench_folder / "ludic-TicTacToe-v0.jsonl")
    shown = transcript(first)
    steps = first.rollouts[0].steps
    assert [s["observation"] for s in shown["rollouts"][0]["steps"]] == [
        s.observation for s in steps
    ]
    assert [s["action"] for s in shown["rollouts"][0]["steps"]] == [
        s.decision.action for s in steps
    ]
    assert shown["rollouts"][0]["steps"][-1]["ended"] == "terminated"
    assert shown["seed"] == str(first.task.seed)


def test_numbers_that_javascript_rounds_are_text():
    task = replace(TASK, seed=2**60 + 1, kwargs={"small": 7, "large": 2**60 + 1})
    shown = transcript(Episode(index=0, task=task, error="boom"))
    assert shown["seed"] == shown["kwargs"]["large"] == "1152921504606846977"
    assert shown["kwargs"]["small"] == 7


def test_tasks_of_large_seeds_stay_apart(tmp_path):
    with open_transcripts(tmp_path / "ludic-Arithmetic-v0.jsonl", policy="p") as record:
        for i in range(2):
            task = replace(TASK, seed=2**60 + i)
            record(Episode(index=i, task=task, error="boom"))
    request = {"schema": "ludic.bench", "version": 1, "policy": "p"}
    request["envs"] = {"ludic/Arithmetic-v0": {"kwargs": {}}}
    (tmp_path / "bench.json").write_text(json.dumps(request))
    tasks = [row["task"] for row in rows(bench_view([tmp_path]))]
    assert tasks == ["1152921504606846976", "1152921504606846977"]


def test_chunks_start_at_their_row_also_where_only_some_transcripts_are_kept(
    bench_folder, monkeypatch
):
    monkeypatch.setattr("ludic_gym.view.transcript.CHUNK_CHARS", 1500)
    view = bench_view([bench_folder], most=10)
    table, chunks = rows(view), view["runs"][0]["chunks"]
    assert len(chunks) > 3
    seen = []
    for chunk in chunks:
        for k, text in enumerate(chunk["episodes"]):
            row = chunk["start"] + k
            assert json.loads(text)["index"] == table[row]["index"]
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
    html = page(bench_view([tmp_path]))
    # Two scripts of data and one of code: none of the text's own.
    assert html.count("<script") == html.count("</script>") == 3
    assert "<img" not in html
    (text,) = blocks(html)["chunk-0-0"]
    assert json.loads(text)["rollouts"][0]["final"] == HOSTILE


def test_a_title_is_escaped(tmp_path):
    view = {"kind": "train", "title": "<b>&", "runs": [], "curves": []}
    assert "<title>&lt;b&gt;&amp;</title>" in page(view)


def test_only_the_pages_own_script_and_style_may_run(bench_folder):
    html = page(bench_view([bench_folder]))
    policy = unescape(re.search(r'Content-Security-Policy" content="(.*?)"', html).group(1))
    assert policy.startswith("default-src 'none'; ")
    for tag, source in (("script", "script-src"), ("style", "style-src")):
        text = re.search(rf"<{tag}>(.*?)</{tag}>", html, re.DOTALL).group(1)
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{source} 'sha256-{digest}'" in policy
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", html)


def test_numbers_that_browsers_do_not_read_are_null(tmp_path):
    (tmp_path / "metrics.jsonl").write_text('{"update": 1, "loss": NaN}\n{"update": 2, "lo')
    view = training_view(tmp_path)
    assert blocks(page(view))["data"]["curves"] == [{"name": "loss", "points": [[1, None]]}]


def test_a_training_run_shows_its_curves_and_rollouts(tmp_path):
    lines = [{"update": i, "loss": 1 / i, "eval/won": i / 2} for i in (1, 2)]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    kept = [{**episode_to_json(episode(index=i)), "update": 10 * i} for i in (1, 2)]
    (tmp_path / "rollouts.jsonl").write_text("".join(json.dumps(line) + "\n" for line in kept))
    view = view_of([tmp_path])
    assert view["curves"] == [
        {"name": "loss", "points": [[1, 1.0], [2, 0.5]]},
        {"name": "eval/won", "points": [[1, 0.5], [2, 1.0]]},
    ]
    assert [(row["nth"], row["success"]) for row in rows(view)] == [(10, True), (20, True)]


def test_two_benchmarks_are_shown_side_by_side(bench_folder, other_folder):
    view = view_of([bench_folder, other_folder])
    assert [run["name"] for run in view["runs"]] == ["oracle-run", "random-run"]


@pytest.mark.parametrize("count", [0, 3])
def test_one_or_two_runs_are_shown(count, tmp_path):
    with pytest.raises(
        ConfigError, match=f"name one run, or two to show side by side; got {count}"
    ):
        view_of([tmp_path] * count)


def test_a_folder_without_a_run_is_refused(tmp_path, capsys):
    assert main(["view", str(tmp_path)]) == 2
    assert "no run; name a folder of `ludic train`" in capsys.readouterr().err


def test_the_file_lies_in_the_run_unless_another_is_named(bench_folder, tmp_path, capsys):
    assert main(["view", str(bench_folder)]) == 0
    assert (bench_folder / "view.html").read_text().startswith("<!doctype html>")
    out = tmp_path / "new" / "page.html"
    assert main(["view", str(bench_folder), "--out", str(out)]) == 0
    assert f"{out}, " in capsys.readouterr().out
    assert out.exists()


def test_a_page_is_replaced_whole(bench_folder, tmp_path):
    path = tmp_path / "view.html"
    path.write_text("old")
    write_page(path, bench_view([bench_folder]))
    assert [p.name for p in tmp_path.iterdir()] == ["view.html"]
    assert path.read_text() == page(bench_view([bench_folder]))


@pytest.fixture
def server(tmp_path):
    (tmp_path / "metrics.jsonl").write_text('{"update": 1, "loss": 2}\n')
    with make_server(lambda: training_view(tmp_path), [tmp_path]) as made:
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
    assert blocks(fetched(f"{url}/"))["data"]["live"] is True
    before = json.loads(fetched(f"{url}/data.json"))
    assert before == json.loads(fetched(f"{url}/data.json"))
    with (folder / "metrics.jsonl").open("a") as file:
        file.write('{"update": 2, "loss": 1}\n')
    after = json.loads(fetched(f"{url}/data.json"))
    assert after["version"] != before["version"]
    assert after["view"]["curves"][0]["points"] == [[1, 2], [2, 1]]


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
