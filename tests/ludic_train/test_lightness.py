"""Commands that show help, and actors of servers, wait for no torch."""

import subprocess
import sys

import pytest

from ludic_train.models.load import save_model
from ludic_train.models.tiny import make_tiny_model
from ludic_train.models.tokenizer import make_tokenizer

HEAVY = ("torch", "transformers", "peft", "safetensors", "matplotlib", "datasets")
COMMANDS = (
    "train",
    "actor",
    "launch",
    "plan",
    "serve",
    "status",
    "top",
    "doctor",
    "model",
    "gateway",
)
HELP = f"""
import sys
from ludic_gym.commands.main import main
for command in {COMMANDS}:
    try:
        main([command, "--help"])
    except SystemExit:
        pass
    loaded = [name for name in {HEAVY} if name in sys.modules]
    assert not loaded, (command, loaded)
"""
TOP = f"""
import sys
from ludic_gym.commands.main import main
assert main(["top", sys.argv[1], "--key", "games", "--once"]) == 0
assert not [name for name in {HEAVY} if name in sys.modules]
"""
BUSY = f"""
import socket, sys
from ludic_gym.commands.main import main
with socket.create_server(("127.0.0.1", 0)) as taken:
    words = ["serve", "model", "--engine", "local", "--port", str(taken.getsockname()[1])]
    assert main(words) == 1
assert not [name for name in {HEAVY} if name in sys.modules]
"""
# All that `ludic actor` loads where servers sample, up to the tokenizer of the run.
ACTOR = """
import re, sys
from pathlib import Path
import ludic_train.commands.actor, ludic_train.runs.actor_loop
from ludic_train.models.chat_template import chat_renderer
from ludic_train.models.tokenizer import load_tokenizer, torch_hidden
from ludic_train.pipeline.queues.open_queue import open_queue
with torch_hidden():
    tokenizer = load_tokenizer(sys.argv[1])
ids = chat_renderer(tokenizer)([{"role": "user", "content": "hello"}], True)
open_queue("redis://localhost:1/0", "key")
assert ids and "torch" not in sys.modules
print(int(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1]) / 1024)
import torch
assert torch.ones(1).sum() == 1
"""


def run(program, *arguments):
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.long
def test_help_of_no_command_loads_torch():
    run(HELP)


@pytest.mark.long
def test_a_look_at_a_queue_loads_no_torch(tmp_path):
    assert "games" in run(TOP, f"file://{tmp_path / 'queue.db'}")


def test_a_port_in_use_is_refused_before_torch_is_loaded():
    run(BUSY)


def test_public_names_are_looked_up_when_they_are_used():
    run("import sys, ludic_train as lt; lt.RunConfig; assert 'torch' not in sys.modules")


@pytest.mark.long
def test_an_actor_of_servers_holds_no_torch(tmp_path):
    tokenizer = make_tokenizer(["hello"])
    save_model(make_tiny_model(tokenizer), tokenizer, tmp_path)
    assert float(run(ACTOR, str(tmp_path))) < 150


@pytest.mark.slow
@pytest.mark.parametrize("program", ["import torch", "import transformers"])
def test_torch_is_hidden_from_no_program_that_has_it(program, tmp_path):
    tokenizer = make_tokenizer(["hello"])
    tokenizer.save_pretrained(tmp_path)
    run(
        f"{program}\nimport sys\n"
        "from ludic_train.models.tokenizer import load_tokenizer, torch_hidden\n"
        "with torch_hidden():\n    load_tokenizer(sys.argv[1])\n"
        "from ludic_train.models.tiny import make_tiny_model\n"
        "make_tiny_model(load_tokenizer(sys.argv[1]))",
        str(tmp_path),
    )
