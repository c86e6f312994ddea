import itertools
import json
import shutil
from dataclasses import replace
from importlib.util import find_spec

import pytest

from ludic_gym.bench.folder import open_transcripts
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
from ludic_gym.view.page import view_of

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
# Playwright is imported by tests alone: every worker of a run collects this file.
pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed"),
    pytest.mark.skipif(find_spec("playwright") is None, reason="playwright is not installed"),
]
HOSTILE = (
    "</script><script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">"
    "\u202ereversed\x1b[31mred\x07 <b>bold</b>"
)


EPISODES = "#/episodes"


def transcript_of(page):
    page.locator("#episode .side").first.wait_for()
    return page.locator("#episode").inner_text()


def chosen(page):
    return page.locator('.row[aria-selected="true"]').inner_text().split()


@pytest.mark.long
def test_results_are_there_at_once_and_lead_to_the_episodes(opened, bench_folder):
    page = opened(view_of([bench_folder]))
    assert "12/12" in page.get_by_role("region", name="all numbers").inner_text()
    page.get_by_role("link", name="Arithmetic-v0").click()
    assert "turn 1" in transcript_of(page)
    assert page.locator("#count").inner_text() == "12 of 24"


@pytest.mark.long
def test_the_matrix_has_the_paired_difference_from_the_chosen_run(
    opened, bench_folder, other_folder
):
    page = opened(view_of([bench_folder, other_folder]))
    matrix = page.get_by_role("region", name="runs by environment")
    # All twelve sums are lost instead of won: see the test of the differences.
    # Of twelve equal ones up to 1 - 0.05^(1/12) = 22.1% of all may be won.
    lost = "\u2212100.0 points [\u2212100.0, \u221255.8] p < 0.001"
    assert lost in matrix.locator("tbody tr").first.inner_text()
    page.get_by_label("differences from").select_option("random-run")
    won = "+100.0 points [+55.8, +100.0] p < 0.001"
    assert won in matrix.locator("tbody tr").first.inner_text()


@pytest.mark.long
def test_a_run_with_too_many_failed_episodes_is_not_compared(opened, bench_folder, tmp_path):
    folder = shutil.copytree(bench_folder, tmp_path / "broken")
    path = folder / "ludic-Arithmetic-v0.jsonl"
    lines = path.read_text().splitlines()
    record = json.loads(lines[0])
    record["score"] |= {"error": "ClientError: 503", "blame": "infrastructure"}
    path.write_text("\n".join([json.dumps(record), *lines[1:], ""]))
    page = opened(view_of([bench_folder, folder]))
    matrix = page.get_by_role("region", name="runs by environment")
    assert "not compared" in matrix.locator("tbody tr").first.inner_text()
    assert "Arithmetic-v0: no comparison: 1 of 12 episodes (8.3%)" in page.inner_text("body")
    assert "1 8.3%" in page.get_by_role("region", name="all numbers").inner_text()


@pytest.mark.long
def test_keys_walk_through_episodes(opened, bench_folder):
    page = opened(view_of([bench_folder]))
    page.keyboard.press("2")
    assert "episode 0" in transcript_of(page)
    for key, index in (("j", "1"), ("j", "2"), ("k", "1")):
        page.keyboard.press(key)
        assert chosen(page)[0] == index
        page.get_by_role("heading", name=f"episode {index}").wait_for()
    page.locator("#rows").focus()
    page.keyboard.press("ArrowDown")
    assert chosen(page)[0] == "2"
    page.keyboard.press("?")
    assert page.locator("#keys").is_visible()


@pytest.mark.long
def test_an_address_opens_the_same_episode_and_filters(opened, bench_folder, other_folder):
    view = view_of([bench_folder, other_folder])
    page = opened(view, EPISODES)
    page.get_by_label("run", exact=True).select_option("random-run")
    page.get_by_label("beside it").select_option("none")
    page.get_by_label("environment").select_option("ludic/TicTacToe-v0")
    page.keyboard.press("Escape")
    page.keyboard.press("j")
    page.keyboard.press("j")
    words = transcript_of(page)
    page.wait_for_url(lambda url: "%7C2%7C" in url)
    again = opened(view, page.evaluate("location.hash"))
    assert transcript_of(again) == words
    assert "random-run: ludic/TicTacToe-v0, episode 2" in words
    assert again.locator("#count").inner_text() == "12 of 24"


@pytest.mark.long
def test_filters_and_search_narrow_the_list(opened, other_folder):
    from playwright.sync_api import expect

    page = opened(view_of([other_folder]), EPISODES)
    page.get_by_label("environment").select_option("ludic/TicTacToe-v0")
    assert page.locator("#count").inner_text() == "12 of 24"
    page.get_by_label("outcome").select_option("is:win")
    words = page.locator(".row").all_inner_texts()
    assert words
    assert all("win" in word for word in words)
    page.get_by_label("outcome").select_option("")
    page.get_by_label("environment").select_option("")
    page.locator("#search").fill("HOW MANY")
    expect(page.locator("#count")).to_have_text("12 of 24")
    assert page.evaluate("CSS.highlights.get('found').size") == 1


@pytest.mark.long
def test_two_runs_are_side_by_side_and_their_differences_found(opened, bench_folder, other_folder):
    page = opened(view_of([bench_folder, other_folder]), EPISODES)
    page.locator("#episode .side").first.wait_for()
    assert page.locator("#episode h2").all_inner_texts() == [
        "oracle-run: ludic/Arithmetic-v0, episode 0",
        "random-run: ludic/Arithmetic-v0, episode 0",
    ]
    page.get_by_label("only where the runs differ").check()
    differ = int(page.locator("#count").inner_text().split()[0])
    assert 12 <= differ < 24


@pytest.mark.long
def test_the_page_is_accessible_and_fits(
    opened, bench_folder, other_folder, tmp_path, write_metrics, subtests
):
    from axe_playwright_python.sync_playwright import Axe

    write_metrics(tmp_path)
    page = opened(view_of([bench_folder, other_folder, tmp_path]))
    screens = (("light", 390), ("dark", 1280))
    for key, (scheme, width) in itertools.product("1234", screens):
        page.emulate_media(color_scheme=scheme)
        page.set_viewport_size({"width": width, "height": 840})
        page.keyboard.press(key)
        page.wait_for_timeout(200)
        with subtests.test(view=key, scheme=scheme, width=width):
            # The page scrolls by itself only downwards.
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            violations = Axe().run(page).response["violations"]
            assert [(v["id"], [n["html"][:200] for n in v["nodes"]]) for v in violations] == []


def folder_of(tmp_path, episodes):
    """A benchmark's folder with these episodes."""
    folder = tmp_path / "run"
    with open_transcripts(folder / "ludic-Arithmetic-v0.jsonl", policy="p") as record:
        for episode in episodes:
            record(episode)
    request = {"schema": "ludic.bench", "version": 1, "policy": "p"}
    request["envs"] = {"ludic/Arithmetic-v0": {"kwargs": {}}}
    (folder / "bench.json").write_text(json.dumps(request))
    return folder


def episode(text, index=0):
    task = Task(env_id="ludic/Arithmetic-v0", seed=index)
    step = Step(
        observation=text, decision=Decision(action=text), reward=0.5, terminated=True,
        info={"success": index % 3 == 0, "answer": text, "outcome": text[:40]},
    )  # fmt: skip
    return Episode(index=index, task=task, rollouts=(Rollout(task=task, steps=(step,)),))


@pytest.mark.long
def test_hostile_text_is_only_text(opened, tmp_path):
    page = opened(view_of([folder_of(tmp_path, [episode(HOSTILE)])]), EPISODES)
    transcript_of(page)
    page.wait_for_timeout(200)
    assert page.title() == "run"
    shown = page.locator(".turn pre").first.inner_text()
    assert "<script>document.title='owned'</script>" in shown
    # Escape and bell are pictures of themselves.
    assert "\u241b[31mred\u2407 <b>bold</b>" in shown
    assert page.locator("#episode img, #episode b, #rows b").count() == 0


@pytest.mark.long
def test_a_line_of_a_megabyte_is_cut_until_it_is_asked_for(opened, tmp_path):
    page = opened(view_of([folder_of(tmp_path, [episode("x" * 1_000_000)])]), EPISODES)
    assert len(page.locator(".turn pre").first.inner_text()) == 20_000
    page.get_by_role("button", name="show all 1,000,000 characters").first.click()
    assert len(page.locator(".turn pre").first.inner_text()) == 1_000_000
    assert page.evaluate("document.documentElement.scrollWidth") <= 1280


@pytest.mark.long
@pytest.mark.parametrize("count", [2000, pytest.param(10_000, marks=pytest.mark.slow)])
def test_many_episodes_put_few_elements_into_the_page(opened, tmp_path, count):
    from playwright.sync_api import expect

    many = [episode(f"question {i} " + "word " * 20, i) for i in range(count)]
    page = opened(view_of([folder_of(tmp_path, many)]), EPISODES)
    assert page.locator("#count").inner_text() == f"{count:,} of {count:,}"
    assert page.locator(".row").count() < 100
    page.locator("#rows").evaluate("(box) => { box.scrollTop = box.scrollHeight; }")
    page.locator(f"#row-{count - 1}").click()
    expect(page.locator("#episode")).to_contain_text(f"question {count - 1}")
    page.locator("#search").fill("question 1321 ")
    expect(page.locator("#count")).to_have_text(f"1 of {count:,}", timeout=60_000)


@pytest.mark.long
def test_a_turn_shows_what_was_sent_and_what_it_cost(opened, tmp_path):
    system = Message(role="system", content="Be brief.")
    asked = (system, Message(role="user", content="What is 1 + 1?"))
    tool = ToolCall(id="1", name="calculator", arguments='{"sum": "1 + 1"}')
    usage = {"prompt_tokens": 1000, "completion_tokens": 20, "cost": 0.25}
    call = ModelCall(model="m-1", messages=asked, parameters={"seed": 7}, usage=usage, seconds=1.5)
    first = Completion(text="", finish_reason="tool_calls", tool_calls=(tool,), call=call)
    function = {"name": tool.name, "arguments": tool.arguments}
    calls = [{"id": "1", "type": "function", "function": function}]
    said = Message(role="assistant", content=None, tool_calls=calls)
    answered = (*asked, said, Message(role="tool", content="it is 2", tool_call_id="1"))
    then = replace(call, messages=answered)
    last = Completion(text="2", finish_reason="stop", reasoning="One and one.", call=then)
    step = Step(
        observation="What is 1 + 1?",
        decision=Decision(action="2", completions=(first, last)),
        reward=1.0,
        terminated=True,
        info={"success": True, "reward/right": 0.75, "reward/brief": 0.25},
    )
    task = Task(env_id="ludic/Arithmetic-v0", seed=0)
    one = Episode(index=0, task=task, rollouts=(Rollout(task=task, steps=(step,)),))
    page = opened(view_of([folder_of(tmp_path, [one])]), EPISODES)
    words = transcript_of(page)
    assert "2,000 + 40 tokens \u00b7 3.00 s \u00b7 cost 0.50" in words
    assert "right 0.75" in words
    for part in ("calls calculator", '{"sum": "1 + 1"}', "result calculator", "it is 2"):
        assert part in words
    # The question is both the observation and a message, and is shown once.
    assert words.count("What is 1 + 1?") == 1
    for part in ("Be brief.", "One and one.", "seed: 7"):
        assert part not in words
    page.keyboard.press("o")
    words = transcript_of(page)
    for part in ("Be brief.", "One and one.", "seed: 7"):
        assert part in words


def training_folder(tmp_path):
    """A run whose task 0 is played at updates 0 and 50, and is hacked at 50."""
    (tmp_path / "metrics.jsonl").write_text('{"update": 50, "loss": 1}\n')
    record = Recorder(tmp_path / "rollouts")
    record.write([episode("an honest answer")], use="evaluate", update=0)
    for update in (10, 50):
        played = [episode(f"honest {update}", 7), episode(HOSTILE, update)]
        record.write(played, use="train", update=update, credit={"": [[-0.5], [1.25]]})
    record.write([episode("print('PASSED')")], use="evaluate", update=50)
    return tmp_path


@pytest.mark.long
def test_rollouts_of_training_are_chosen_by_update_and_sorted_by_weight(opened, tmp_path):
    from playwright.sync_api import expect

    page = opened(view_of([training_folder(tmp_path)]), EPISODES)
    expect(page.locator("#count")).to_have_text("6 of 6")
    page.get_by_label("update", exact=True).select_option("50")
    expect(page.locator("#count")).to_have_text("3 of 3")
    page.get_by_label("use").select_option("train")
    expect(page.locator("#count")).to_have_text("2 of 3")
    page.get_by_label("order").select_option("-weight")
    rows = page.locator(".row").all_inner_texts()
    assert ["weight 1.25" in row for row in rows] == [True, False]
    page.locator("#row-0").click()
    expect(page.locator(".turn h3")).to_contain_text("weight 1.25")
    assert page.title() == tmp_path.name


@pytest.mark.long
def test_the_same_task_at_two_updates_is_side_by_side_and_text_is_found(opened, tmp_path):
    from playwright.sync_api import expect

    page = opened(view_of([training_folder(tmp_path)]), EPISODES)
    page.get_by_label("update", exact=True).select_option("0")
    page.get_by_label("beside", exact=True).select_option("50")
    page.locator("#episode .side").nth(1).wait_for()
    assert page.locator("#episode h2").all_inner_texts() == [
        "ludic/Arithmetic-v0, update 0, evaluation",
        "ludic/Arithmetic-v0, update 50, evaluation",
    ]
    words = transcript_of(page)
    assert "an honest answer" in words
    assert "print('PASSED')" in words
    page.get_by_label("update", exact=True).select_option("")
    page.locator("#search").fill("passed")
    expect(page.locator("#count")).to_have_text("1 of 6")
    assert chosen(page)[:2] == ["update", "50,"]


@pytest.mark.long
def test_two_updates_side_by_side_are_accessible_and_fit(opened, tmp_path):
    from axe_playwright_python.sync_playwright import Axe

    page = opened(view_of([training_folder(tmp_path)]), f"{EPISODES}?update=0&beside=50")
    page.set_viewport_size({"width": 390, "height": 840})
    page.locator("#episode .side").nth(1).wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert [v["id"] for v in Axe().run(page).response["violations"]] == []
