import itertools
import json
import shutil
from importlib.util import find_spec

import pytest

from ludic_gym.bench.records import open_transcripts
from ludic_gym.bench.result import Score, score
from ludic_gym.records import episode_to_json
from ludic_gym.types import Decision, Episode, Rollout, Step, Task
from ludic_gym.view.bench import bench_view
from ludic_gym.view.page import write_page
from ludic_gym.view.training import training_view

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
# Playwright is imported by tests alone: every worker of a run collects this file.
pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed"),
    pytest.mark.skipif(find_spec("playwright") is None, reason="playwright is not installed"),
]
QUIET = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-sync"]
HOSTILE = (
    "</script><script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">"
    "\u202ereversed\x1b[31mred\x07 <b>bold</b>"
)


@pytest.fixture(scope="module")
def browser():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=QUIET)
        yield chromium
        chromium.close()


@pytest.fixture
def opened(browser, tmp_path):
    """Opens a view from disk, offline; whatever goes wrong in the page fails the test."""
    pages = []

    def open_view(view, **context):
        path = tmp_path / f"view-{len(pages)}.html"
        write_page(path, view)
        page = browser.new_context(offline=True, **context).new_page()
        page.wrong = []
        page.on("pageerror", lambda error: page.wrong.append(str(error)))
        page.on("console", lambda message: page.wrong.append(message.text))
        page.on("request", lambda request: pages.append(request.url))
        page.goto(path.as_uri())
        pages.append(page)
        return page

    yield open_view
    shown = [page for page in pages if not isinstance(page, str)]
    assert [page.wrong for page in shown] == [[] for _ in shown]
    assert all(url.startswith("file://") for url in pages if isinstance(url, str))
    for page in shown:
        page.context.close()


def transcript_of(page):
    return page.locator("#episode").inner_text()


def chosen(page):
    return page.locator('.row[aria-selected="true"]').inner_text().split()


def test_results_and_the_first_transcript_are_there_at_once(opened, bench_folder):
    page = opened(bench_view([bench_folder]))
    table = page.locator("#summary table").inner_text()
    assert "ludic/Arithmetic-v0" in table
    assert "12/12" in table
    assert "turn 1" in transcript_of(page)
    assert page.locator("#count").inner_text() == "24 of 24"


def test_keys_walk_through_episodes(opened, bench_folder):
    page = opened(bench_view([bench_folder]))
    for key, index in (("j", "1"), ("j", "2"), ("k", "1")):
        page.keyboard.press(key)
        assert chosen(page)[0] == index
        assert f"episode {index}" in transcript_of(page)
    page.locator("#rows").focus()
    page.keyboard.press("ArrowDown")
    assert chosen(page)[0] == "2"
    page.keyboard.press("?")
    assert page.locator("#keys").is_visible()


def test_filters_and_search_narrow_the_list(opened, other_folder):
    from playwright.sync_api import expect

    page = opened(bench_view([other_folder]))
    page.get_by_label("environment").select_option("ludic/TicTacToe-v0")
    assert page.locator("#count").inner_text() == "12 of 24"
    page.get_by_label("outcome").select_option("win")
    words = page.locator(".row").all_inner_texts()
    assert words
    assert all("win" in word for word in words)
    page.get_by_label("outcome").select_option("")
    page.get_by_label("environment").select_option("")
    page.locator("#search").fill("HOW MANY")
    expect(page.locator("#count")).to_have_text("12 of 24")


def test_two_runs_are_side_by_side_and_their_differences_found(opened, bench_folder, other_folder):
    page = opened(bench_view([bench_folder, other_folder]))
    assert page.locator("#episode h2").all_inner_texts() == [
        "oracle-run: ludic/Arithmetic-v0, episode 0",
        "random-run: ludic/Arithmetic-v0, episode 0",
    ]
    page.get_by_label("only where the runs differ").check()
    differ = int(page.locator("#count").inner_text().split()[0])
    assert 12 <= differ < 24


def test_the_theme_follows_the_system_and_can_be_turned(opened, bench_folder):
    ground = "getComputedStyle(document.body).backgroundColor"
    page = opened(bench_view([bench_folder]), color_scheme="dark")
    assert page.evaluate(ground) == "rgb(20, 22, 26)"
    page.keyboard.press("t")
    assert page.evaluate(ground) == "rgb(255, 255, 255)"
    page.keyboard.press("t")
    assert page.evaluate(ground) == "rgb(20, 22, 26)"


def test_the_page_is_accessible_and_fits(opened, bench_folder, other_folder, subtests):
    from axe_playwright_python.sync_playwright import Axe

    page = opened(bench_view([bench_folder, other_folder]))
    for scheme, width in itertools.product(("light", "dark"), (390, 1280)):
        page.emulate_media(color_scheme=scheme)
        page.set_viewport_size({"width": width, "height": 840})
        with subtests.test(scheme=scheme, width=width):
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


def test_hostile_text_is_only_text(opened, tmp_path):
    page = opened(bench_view([folder_of(tmp_path, [episode(HOSTILE)])]))
    page.wait_for_timeout(200)
    assert page.title() == "run"
    shown = page.locator("#episode pre").first.inner_text()
    assert "<script>document.title='owned'</script>" in shown
    # Escape and bell are pictures of themselves.
    assert "\u241b[31mred\u2407 <b>bold</b>" in shown
    assert page.locator("#episode img, #episode b, #rows b").count() == 0


def test_a_line_of_a_megabyte_is_cut_until_it_is_asked_for(opened, tmp_path):
    page = opened(bench_view([folder_of(tmp_path, [episode("x" * 1_000_000)])]))
    assert len(page.locator("#episode pre").first.inner_text()) == 20_000
    page.get_by_role("button", name="show all 1,000,000 characters").first.click()
    assert len(page.locator("#episode pre").first.inner_text()) == 1_000_000
    assert page.evaluate("document.documentElement.scrollWidth") <= 1280


def test_ten_thousand_episodes_put_few_elements_into_the_page(opened, tmp_path):
    from playwright.sync_api import expect

    many = [episode(f"question {i} " + "word " * 20, i) for i in range(10_000)]
    page = opened(bench_view([folder_of(tmp_path, many)]))
    assert page.locator("#count").inner_text() == "10000 of 10000"
    assert page.locator(".row").count() < 100
    page.locator("#rows").evaluate("(box) => { box.scrollTop = box.scrollHeight; }")
    page.locator("#row-9999").click()
    assert "question 9999" in transcript_of(page)
    page.locator("#search").fill("question 4321 ")
    expect(page.locator("#count")).to_have_text("1 of 10000", timeout=60_000)


def test_a_training_run_shows_a_chart_per_metric_and_its_rollouts(opened, tmp_path):
    lines = [{"update": i, "loss": 1 / i, "eval/won": i / 20} for i in range(1, 21)]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    kept = [{**episode_to_json(episode(f"board {i}", i)), "update": 10 * i} for i in (0, 1)]
    (tmp_path / "rollouts.jsonl").write_text("".join(json.dumps(line) + "\n" for line in kept))
    page = opened(training_view(tmp_path))
    assert page.locator("#curves h2").all_inner_texts() == ["eval", "training"]
    assert page.locator("figure").all_inner_texts()[0].split()[:2] == ["eval/won", "1"]
    assert page.locator(".row").all_inner_texts()[1].split()[:2] == ["update", "10"]
    assert "board 0" in transcript_of(page)


def test_a_score_without_its_transcript_says_how_to_keep_it(opened, tmp_path):
    page = opened(bench_view([folder_of(tmp_path, [episode("a"), episode("b", 1)])], most=1))
    page.keyboard.press("j")
    assert "see ludic view --most" in transcript_of(page)


def test_scores_here_are_those_of_the_benchmark():
    assert score(episode("a")) == Score(
        index=0, task=0, success=True, reward=0.5, outcome="a", turns=1
    )
