import json
import shutil
import subprocess
import sys

import pytest
from made_once import made_once

from ludic_gym.view.page import write_page

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
QUIET = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-sync"]

# A turn that is not drawn yet (content-visibility: auto) has no text that a test could read.
DRAWN = """
    const sheet = new CSSStyleSheet();
    sheet.replaceSync(".turn { content-visibility: visible !important }");
    document.adoptedStyleSheets = [sheet];
"""


def played(tmp_path_factory, policy):
    """The folder of a benchmark, alone in its own."""

    def make(folder):
        # In a process of its own: asyncio.run refuses the thread of a browser's test.
        words = f"bench ludic/Arithmetic-v0 ludic/TicTacToe-v0 --policy {policy} --episodes 12"
        out = ["--out", str(folder / f"{policy}-run")]
        command = [sys.executable, "-m", "ludic_gym", *words.split(), *out]
        subprocess.run(command, check=True, capture_output=True)

    return made_once(tmp_path_factory, f"runs-{policy}", make) / f"{policy}-run"


@pytest.fixture(scope="session")
def bench_folder(tmp_path_factory):
    """A benchmark of two envs, in which everything succeeds."""
    return played(tmp_path_factory, "oracle")


@pytest.fixture(scope="session")
def other_folder(tmp_path_factory):
    """The same tasks, played at random."""
    return played(tmp_path_factory, "random")


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

    def open_view(view, at="", **context):
        path = tmp_path / f"view-{len(pages)}.html"
        write_page(path, view)
        page = browser.new_context(offline=True, **context).new_page()
        page.add_init_script(DRAWN)
        page.wrong = []
        page.on("pageerror", lambda error: page.wrong.append(str(error)))
        page.on("console", lambda message: page.wrong.append(message.text))
        page.on("request", lambda request: pages.append(request.url))
        page.goto(path.as_uri() + at)
        pages.append(page)
        return page

    yield open_view
    shown = [page for page in pages if not isinstance(page, str)]
    assert [page.wrong for page in shown] == [[] for _ in shown]
    assert all(url.startswith("file://") for url in pages if isinstance(url, str))
    for page in shown:
        page.context.close()


@pytest.fixture
def write_metrics():
    """Writes a training run: a loss, an evaluation with its interval, and a constant."""

    def write(folder, scale=1.0):
        folder.mkdir(exist_ok=True)
        lines = [
            {
                "update": i, "loss": scale / i, "lr": 0.1, "eval/won": i / 20,
                "eval/won_low": i / 30, "eval/won_high": i / 10,
            }
            for i in range(1, 21)
        ]  # fmt: skip
        (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))

    return write
