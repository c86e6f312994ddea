"""Programs, commands and links of the README and of the documentation."""

import io
import json
import re
import shlex
import subprocess
import sys
import threading
from contextlib import redirect_stdout, suppress
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import forked
import pytest

from ludic_gym.commands.main import main

ROOT = Path(__file__).parents[1]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]
# Programs that need a server or the model of a hub, or train for a minute: run with others in their
# place, or with less to do.
LIVE = {"evaluate.py", "train.py", "train_digits.py", "train_blackjack.py"}
FENCE = re.compile(r"^```(\w+)(?: title=\"(.+?)\")?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
IMPORT = r"^(import|from) (ludic_gym|ludic_train)"
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
def help_of(*command: str) -> str:
    """The text of `ludic --help`, or of a command with all its options."""
    with redirect_stdout(io.StringIO()) as text, suppress(SystemExit):
        main([*command, "--help-all" if command == ("bench",) else "--help"])
    return text.getvalue()


@pytest.mark.long
@by_page
def test_every_python_block_runs_and_prints_what_follows_it(page, tmp_path):
    found = blocks(page)
    for block, after in pairwise([*found, Block("", "", "")]):
        if block.language != "python" or block.file in LIVE:
            continue
        path = tmp_path / (block.file or "block.py")
        path.write_text(block.text)
        # A fork has the environments already, a reader's program has not.
        assert '"ludic/' not in block.text or re.search(IMPORT, block.text, re.MULTILINE)
        done = forked.run(["-W", "error", path], cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert done.stdout == (after.text if after.language == "text" else "")


@pytest.mark.slow
def test_the_environment_with_types_passes_a_strict_check(tmp_path):
    (found,) = [
        block
        for block in blocks(ROOT / "docs" / "tutorials" / "custom-environments.md")
        if block.file == "my_envs.py"
    ]
    (tmp_path / found.file).write_text(found.text)
    command = [sys.executable, "-m", "mypy", "--strict", found.file]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


@by_page
def test_every_make_target_that_is_named_exists(page):
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {words[1] for words in shell_lines(page) if words[0] == "make"}
    assert named <= targets


@by_page
def test_every_ludic_command_and_option_that_is_named_exists(page):
    overview = help_of()
    for words in shell_lines(page):
        if words[0] != "ludic":
            continue
        assert f"\n  {words[1]} " in overview
        if words[1] != "train":
            help_text = help_of(words[1])
            # What follows "--" is for another program.
            own = words[: words.index("--")] if "--" in words else words
            assert all(word in help_text for word in own if word.startswith("--"))


@by_page
def test_shell_blocks_name_no_other_program(page):
    # A cluster is started by its own program.
    assert {words[0] for words in shell_lines(page)} <= {"make", "ludic", "ray"}


@by_page
def test_links_within_the_project_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text()):
        # The generated part of the reference is held by mkdocs --strict.
        if "://" not in target and "reference/" not in target:
            assert (page.parent / target).exists(), target


class AlwaysTwentyTwo(BaseHTTPRequestHandler):
    """An OpenAI-style server whose model gives one answer."""

    def do_GET(self):
        self._send({"data": [{"id": "model"}]})

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        message = {"role": "assistant", "content": "<answer>22</answer>"}
        self._send({"choices": [{"message": message, "finish_reason": "stop"}]})

    def _send(self, reply):
        body = json.dumps(reply).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format, *args):
        pass


@pytest.fixture
def server():
    with ThreadingHTTPServer(("127.0.0.1", 0), AlwaysTwentyTwo) as http:
        threading.Thread(target=http.serve_forever, args=(0.02,), daemon=True).start()
        yield f"http://127.0.0.1:{http.server_port}/v1"
        http.shutdown()


def live_program(file, **replaced):
    """The program of the quick start, with the texts in place of others; each must occur."""
    page = ROOT / "docs" / "tutorials" / "quick-start.md"
    (text,) = [block.text for block in blocks(page) if block.file == file]
    for old, new in replaced["texts"].items():
        assert old in text
        text = text.replace(old, new)
    return text


def test_the_quick_start_evaluates_a_model_behind_a_server(server, tmp_path):
    texts = {"http://localhost:8000/v1": server, 'split="test"': 'env_kwargs={"data": "sample"}'}
    program = live_program("evaluate.py", texts=texts)
    done = forked.run(["-W", "error", "-c", program], cwd=tmp_path)
    # Two of the 53 bundled questions have that answer.
    assert done.stdout.startswith("3.8% Interval(low="), done.stderr


def test_the_quick_start_trains_a_model(tmp_path):
    if find_spec("torch") is None:
        pytest.skip("lt.train needs torch: pip install 'ludic-gym[train]'")
    import ludic_train as lt

    tokenizer = lt.make_tokenizer(["How many pens?"])
    lt.save_model(lt.make_tiny_model(tokenizer), tokenizer, tmp_path / "model")
    small = "updates=1,\n    groups=2,\n    max_tokens=4,\n    eval_episodes=2,"
    # The first look would refuse such a model.
    small += "\n    preflight=False,"
    texts = {
        "Qwen/Qwen2.5-0.5B-Instruct": str(tmp_path / "model"),
        '{"split": "train"}': "{}",
        '{"split": "test"}': "{}",
        # An untrained model earns the same everywhere, and such groups would all be dropped.
        "lt.grpo()": "lt.grpo(filter=None)",
        "updates=200,": small,
        "runs/gsm8k": str(tmp_path / "run"),
    }
    program = live_program("train.py", texts=texts)
    done = forked.run(["-c", program], cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    # An evaluation comes before the first update.
    (_, first, *_) = lt.read_metrics(tmp_path / "run" / "metrics.jsonl")
    assert "reward" in first


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
    docs = ROOT / "docs"
    found = set(re.findall(r"\]\(([^)#]+)\)", (docs / "index.md").read_text()))
    others = {str(path.relative_to(docs)) for path in docs.rglob("*.md")} - {"index.md"}
    assert others <= found
