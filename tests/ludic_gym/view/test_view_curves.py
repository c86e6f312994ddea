import json
import shutil
import threading
from importlib.util import find_spec

import pytest

from ludic_gym.view.page import make_server, view_of

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
# Playwright is imported by tests alone: every worker of a run collects this file.
pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed"),
    pytest.mark.skipif(find_spec("playwright") is None, reason="playwright is not installed"),
]


@pytest.mark.long
def test_training_runs_share_a_chart_per_metric_and_constants_are_folded(
    opened, tmp_path, write_metrics
):
    write_metrics(tmp_path / "one")
    write_metrics(tmp_path / "two", scale=2.0)
    page = opened(view_of([tmp_path]))
    page.locator("figure canvas").nth(1).wait_for()
    heads = page.locator("summary").all_inner_texts()
    assert heads == ["eval (1)", "training (1)", "constant (1)"]
    assert page.locator("figcaption > span").all_inner_texts() == ["eval/won", "loss"]
    labels = page.locator("canvas").evaluate_all("(all) => all.map((c) => c.ariaLabel)")
    assert labels[1] == "loss over updates: one ends at 0.05, two ends at 0.1"
    assert not page.get_by_role("region", name="constant metrics").is_visible()


@pytest.mark.long
def test_updates_that_imitated_are_shaded_and_named(opened, tmp_path):
    lines = [{"update": n, "nll": 1 / n, "imitation": float(n < 8)} for n in range(1, 21)]
    (tmp_path / "metrics.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    page = opened(view_of([tmp_path]))
    page.locator("figure canvas").first.wait_for()
    assert page.locator("figcaption > span").all_inner_texts() == ["nll"]
    (label,) = page.locator("canvas").evaluate_all("(all) => all.map((c) => c.ariaLabel)")
    assert label.endswith("ends at 0.05; imitation until update 7")
    # Below the curve's start, a third of the width is shaded and the rest is not.
    row = "(c) => [...c.getContext('2d').getImageData(0, 0.7 * c.height, c.width, 1).data]"
    alpha = page.locator("figure canvas").first.evaluate(row)[3::4]
    assert alpha[len(alpha) // 4] > 0
    assert alpha[3 * len(alpha) // 4] == 0


@pytest.mark.long
def test_a_served_page_draws_what_is_new(browser, tmp_path, write_metrics):
    write_metrics(tmp_path)
    with make_server(lambda: view_of([tmp_path]), [tmp_path]) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            page = browser.new_page()
            page.goto(f"http://127.0.0.1:{server.server_address[1]}/")
            page.locator("canvas").first.wait_for()
            with (tmp_path / "metrics.jsonl").open("a") as file:
                file.write('{"update": 21, "new": 1}\n{"update": 22, "new": 2}\n')
            page.get_by_text("new", exact=True).wait_for(timeout=10_000)
            page.close()
        finally:
            server.shutdown()
            thread.join()
