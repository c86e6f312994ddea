"""What the README and the pages say is run, and gives what they say it gives."""

import re
import shlex
import subprocess
import sys
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").glob("*.md")),
]
FENCE = re.compile(r"^```(\w+)(?: title=\"(.+?)\")?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
by_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


class Block(NamedTuple):
    """A fenced block: its language, the file it is meant for ("" for none), its text."""

    language: str
    file: str
    text: str


def blocks(page: Path) -> list[Block]:
    return [Block(*match) for match in FENCE.findall(page.read_text())]


def shell_lines(page: Path) -> list[list[str]]:
    scripts = [block.text for block in blocks(page) if block.language == "sh"]
    return [shlex.split(line) for script in scripts for line in script.splitlines()]


@cache
def ludic(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ludic_gym", *words]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)


@by_page
def test_every_python_block_runs_and_prints_what_follows_it(page, tmp_path):
    found = blocks(page)
    for block, after in pairwise([*found, Block("", "", "")]):
        if block.language != "python":
            continue
        path = tmp_path / (block.file or "block.py")
        path.write_text(block.text)
        done = subprocess.run(
            [sys.executable, "-W", "error", path],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout == (after.text if after.language == "text" else "")


@by_page
def test_every_make_target_that_is_named_exists(page):
    targets = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {words[1] for words in shell_lines(page) if words[0] == "make"}
    assert named <= targets


@by_page
def test_every_ludic_command_and_option_that_is_named_exists(page):
    overview = ludic("--help").stdout
    for words in shell_lines(page):
        if words[0] != "ludic":
            continue
        assert f"\n  {words[1]} " in overview
        if words[1] != "train":
            help_text = ludic(words[1], "--help").stdout
            assert all(word in help_text for word in words if word.startswith("--"))


@by_page
def test_shell_blocks_name_no_other_program(page):
    assert {words[0] for words in shell_lines(page)} <= {"make", "ludic"}


@by_page
def test_links_within_the_project_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
        assert "://" in target or (page.parent / target).exists(), target


def test_the_program_on_the_first_screen_has_twelve_lines():
    program = next(block for block in blocks(ROOT / "README.md") if block.language == "python")
    assert len(program.text.splitlines()) <= 12


@pytest.mark.parametrize(
    ("arguments", "folder"),
    [("", "runs/tic-tac-toe-$(date +%Y%m%d-%H%M%S)"), ("--seed 1 --out mine", "mine")],
)
def test_make_train_starts_a_new_run_every_time_unless_a_folder_is_named(arguments, folder):
    command = ["make", "--dry-run", "train", f"ARGS={arguments}"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=True)
    (line,) = [line for line in done.stdout.splitlines() if "ludic train tic-tac-toe" in line]
    assert line.count("--out") == 1
    assert f"--out {folder}" in line


def test_the_start_page_leads_to_every_page():
    text = (ROOT / "docs" / "index.md").read_text()
    others = {path.name for path in (ROOT / "docs").glob("*.md")} - {"index.md"}
    assert others <= set(re.findall(r"\]\(([^)#]+)\)", text))
