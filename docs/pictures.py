"""Pictures of README and documentation, made from real runs: `make pictures`.

    python docs/pictures.py [--runs runs/pictures] [--out docs/img]

Runs that the folder lacks are made first: two trainings of Tic-Tac-Toe, two CPU-minutes each, and
benchmarks of three policies. Needs Chromium, and Playwright to control it.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from collections.abc import Iterator
from html import escape
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

import gymnasium as gym
from playwright.sync_api import Browser, Page, sync_playwright

import ludic_gym as lg
from ludic_gym.view.transcript import token_texts_from

SEEDS = (0, 1)
GAME = "ludic/TicTacToe-v0"
BENCHED = ("ludic/ConnectFour-v0", "ludic/Sokoban-v0", "ludic/Wordle-v0", "ludic/Game2048-v0")
# The id, the seed, and the number of the oracle's moves before each picture.
RENDERED = {
    "ludic/ConnectFour-v0": (3, (2, 6)),
    "ludic/Maze-v0": (3, (0, 20)),
    "ludic/Minesweeper-v0": (3, (0, 6)),
}
STYLE = """
body { margin: 0; padding: 16px; background: #fff; color: #1a1d23;
  font: 15px system-ui, sans-serif; }
main { display: flex; gap: 28px; width: max-content; }
section { display: grid; grid-template-columns: auto auto; gap: 10px; align-content: start; }
h2 { grid-column: 1 / -1; margin: 0; font-size: 15px; }
pre { margin: 0; padding: 10px 16px; font: 15px/1.35 ui-monospace, monospace; background: #f4f5f7;
  border-radius: 8px; }
"""


def main() -> None:
    """Make the runs that are missing, then the pictures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=Path, default=Path("runs/pictures"))
    parser.add_argument("--out", type=Path, default=Path("docs/img"))
    args = parser.parse_args()
    trained, benched = make_runs(args.runs)
    args.out.mkdir(parents=True, exist_ok=True)
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    with TemporaryDirectory() as name, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        curves, results = Path(name, "curves.html"), Path(name, "results.html")
        lg.write_page(curves, lg.view_of(trained))
        texts = token_texts_from(trained[0] / "model")
        lg.write_page(results, lg.view_of(benched, token_texts=texts))
        picture_of_curve(browser, curves, args.out / "learning-curve.png")
        picture_of_results(browser, results, args.out / "viewer-results.png")
        picture_of_episode(browser, results, args.out / "viewer-episode.png")
        picture_of_games(browser, Path(name, "games.html"), args.out / "games.png")
        browser.close()


def make_runs(folder: Path) -> tuple[list[Path], list[Path]]:
    """The folders of the trainings and of the benchmarks; those that are missing are made."""
    trained = [folder / f"seed-{seed}" for seed in SEEDS]
    for seed, run in zip(SEEDS, trained, strict=True):
        ludic(run, "train", "tic-tac-toe", "--seed", str(seed))
    policies = {"random": "random", "trained": str(trained[0]), "oracle": "oracle"}
    benched = [folder / f"bench/{name}" for name in policies]
    for run, (name, policy) in zip(benched, policies.items(), strict=True):
        # The trained model has seen no other game.
        ids = [GAME] if name == "trained" else [GAME, *BENCHED]
        ludic(run, "bench", *ids, "--policy", policy, "--episodes", "200", "--max-tokens", "8")
    return trained, benched


def ludic(out: Path, *words: str) -> None:
    """Run a command of `ludic` into a folder, unless a finished run is there."""
    # Trainings and benchmarks write it last.
    if not (out / "results.json").exists():
        shutil.rmtree(out, ignore_errors=True)
        command = [sys.executable, "-m", "ludic_gym", *words, "--out", str(out)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def opened(browser: Browser, path: Path, at: str = "", *, theme: str = "light") -> Page:
    """A page of 1280 x 800 pixels."""
    context = browser.new_context(
        color_scheme="dark" if theme == "dark" else "light",
        viewport={"width": 1280, "height": 800},
    )
    page = context.new_page()
    page.goto(path.resolve().as_uri() + at)
    return page


def picture_of_curve(browser: Browser, path: Path, out: Path) -> None:
    """The success of both seeds over the updates, with intervals."""
    page = opened(browser, path, "#/curves?metric=random_second/success")
    page.set_viewport_size({"width": 900, "height": 800})
    page.get_by_role("button", name="larger").first.click()
    page.locator("canvas").first.wait_for()
    page.locator("figure").first.screenshot(path=out)


def picture_of_results(browser: Browser, path: Path, out: Path) -> None:
    """The table of runs by environment."""
    page = opened(browser, path)
    page.set_viewport_size({"width": 1000, "height": 1200})
    page.locator("table").first.wait_for()
    heading = page.get_by_role("heading", name="All numbers").bounding_box()
    assert heading is not None
    page.screenshot(path=out, clip={"x": 0, "y": 0, "width": 1000, "height": heading["y"]})


def picture_of_episode(browser: Browser, path: Path, out: Path) -> None:
    """An episode of the trained model beside the same one of random play."""
    at = f"#/episodes?env={GAME}&left=trained&right=random&differ=1"
    page = opened(browser, path, at, theme="dark")
    page.locator("#episode .turn").first.wait_for()
    page.screenshot(path=out)


def picture_of_games(browser: Browser, path: Path, out: Path) -> None:
    """Three games of the oracle, each at two moments."""
    parts = [
        f"<section><h2>{escape(env_id)}</h2>{''.join(frames(env_id, seed, moves))}</section>"
        for env_id, (seed, moves) in RENDERED.items()
    ]
    path.write_text(
        f"<!doctype html><meta charset=utf-8><style>{STYLE}</style><main>{''.join(parts)}</main>",
        encoding="utf-8",
    )
    page = opened(browser, path)
    box = page.locator("main").bounding_box()
    assert box is not None
    margin = 16
    clip = {
        "x": 0,
        "y": 0,
        "width": box["width"] + 2 * margin,
        "height": box["height"] + 2 * margin,
    }
    page.screenshot(path=out, clip=clip, full_page=True)  # type: ignore[arg-type]


def frames(env_id: str, seed: int, moves: tuple[int, ...]) -> list[str]:
    """`env.render()` as HTML after these numbers of moves."""
    pictures = list(islice(_played(env_id, seed), max(moves) + 1))
    return [pictures[min(count, len(pictures) - 1)] for count in moves]


def _played(env_id: str, seed: int) -> Iterator[str]:
    env = gym.make(env_id, render_mode="html")
    env.reset(seed=seed)
    ended = False
    yield str(env.render())
    while not ended:
        _, _, terminated, truncated, _ = env.step(env.unwrapped.oracle_action())  # type: ignore[attr-defined]
        ended = terminated or truncated
        yield str(env.render())
    env.close()


if __name__ == "__main__":
    main()
