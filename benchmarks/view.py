"""CPU seconds in which a browser opens the page of a benchmark with 50,000 episodes.

    python benchmarks/view.py [--episodes 50000]

Each episode has a request of two messages, a reply of about 600 characters, usage and reward. The
seconds are those of all processes of Chromium, from its start until the table or the first
transcript is drawn; those of an empty page are printed beside them.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from playwright.sync_api import sync_playwright

import ludic_gym as lg
from ludic_gym.bench.folder import open_transcripts
from ludic_gym.view.page import view_of, write_page

ENV = "ludic/GSM8K-v0"
WORDS = (
    "so",
    "the",
    "rest",
    "of",
    "apples",
    "trays",
    "each",
    "day",
    "half",
    "price",
    "minus",
    "left",
)
TICKS = os.sysconf("SC_CLK_TCK")


def episode(index: int, rng: random.Random) -> lg.Episode:
    """An episode of one turn by a served model."""
    question = f"{index}: " + " ".join(rng.choices(WORDS, k=40)) + "?"
    reply = " ".join(f"{word} {rng.randrange(99)}" for word in rng.choices(WORDS, k=80))
    system = lg.Message(role="system", content="Think, then reply with <answer>N</answer>.")
    call = lg.ModelCall(
        model="model-1",
        messages=(system, lg.Message(role="user", content=question)),
        parameters={"temperature": 0.7, "max_tokens": 512},
        usage={"prompt_tokens": 70, "completion_tokens": 160},
        seconds=rng.random(),
    )
    task = lg.Task(env_id=ENV, seed=index)
    success = rng.random() < 0.6
    step = lg.Step(
        observation=question,
        decision=lg.Decision(
            action=reply, completions=(lg.Completion(text=reply, finish_reason="stop", call=call),)
        ),
        reward=float(success),
        terminated=True,
        info={"success": success, "reward/correct": float(success), "answer": "12"},
    )
    return lg.Episode(index=index, task=task, rollouts=(lg.Rollout(task=task, steps=(step,)),))


def write_run(folder: Path, episodes: int) -> None:
    """A benchmark's folder with made-up episodes."""
    rng = random.Random(0)
    with open_transcripts(folder / f"{ENV.replace('/', '-')}.jsonl", policy="model-1") as record:
        for index in range(episodes):
            record(episode(index, rng))
    request = {"schema": "ludic.bench", "version": 1, "policy": "model-1"}
    request["envs"] = {ENV: {"kwargs": {}}}
    (folder / "bench.json").write_text(json.dumps(request))


def browser_seconds(chromium: str, url: str, drawn: str) -> float:
    """CPU seconds of all processes of a browser until an element is drawn."""
    with sync_playwright() as playwright:
        before = set(_children(os.getpid()))
        browser = playwright.chromium.launch(
            executable_path=chromium, args=["--no-sandbox", "--disable-gpu"]
        )
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.goto(url)
        page.locator(drawn).first.wait_for()
        # Work that is still queued counts too.
        page.wait_for_timeout(1500)
        started = [pid for pid in _children(os.getpid()) if pid not in before]
        # Playwright's driver is a program of node, and no part of the browser.
        seconds = sum(_cpu_seconds(pid) for pid in started if "chrom" in _name(pid))
        browser.close()
    return seconds


def _children(pid: int) -> list[int]:
    """All descendants of a process."""
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            found += [int(child), *_children(int(child))]
    return found


def _name(pid: int) -> str:
    return Path(f"/proc/{pid}/comm").read_text()


def _cpu_seconds(pid: int) -> float:
    """CPU seconds of a process and of the children that it has waited for."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / TICKS


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--episodes", type=int, default=50_000)
    episodes = parser.parse_args().episodes
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        print("no Chromium is installed: nothing is measured")
        return
    with TemporaryDirectory() as name:
        folder = Path(name)
        write_run(folder, episodes)
        start = time.process_time()
        write_page(folder / "view.html", view_of([folder]))
        made = time.process_time() - start
        url = (folder / "view.html").as_uri()
        size = (folder / "view.html").stat().st_size / 1e6
        print(f"{episodes:,} episodes: {size:.1f} MB, made in {made:.1f} CPU-s")
        # The first start of all reads the browser from the disk.
        browser_seconds(chromium, "about:blank", "html")
        empty = browser_seconds(chromium, "about:blank", "html")
        for what, at, drawn in (
            ("results", "", "table"),
            ("episodes", "#/episodes", "#episode .turn"),
        ):
            seconds = browser_seconds(chromium, url + at, drawn)
            print(f"open the {what}: {seconds:.2f} CPU-s; an empty page: {empty:.2f} CPU-s")


if __name__ == "__main__":
    main()
