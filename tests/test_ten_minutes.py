"""The tutorial "Your environment to a trained policy in ten minutes", with less to do."""

import shlex
import subprocess
import sys

import forked
import pytest
from test_docs import ROOT, blocks, shell_lines

PAGE = ROOT / "docs" / "tutorials" / "ten-minutes.md"
LESS = "--updates 2 --demonstrations 200 --sft-updates 5 --eval-episodes 10 --final-episodes 10"
IN_PYTHON = 'out="runs/in-python", updates=1, demonstrations=200, sft_updates=5, eval_episodes=9'


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("tutorial")
    for block in blocks(PAGE):
        if block.language == "python":
            (path / block.file).write_text(block.text)
    return path


def ran(words, folder):
    done = forked.run(words, cwd=folder)
    assert done.returncode == 0, f"{words}\n{done.stdout}\n{done.stderr}"


@pytest.mark.long
def test_the_commands_of_the_page_work_one_after_the_other(folder):
    for words in shell_lines(PAGE):
        # The chat model takes a quarter of an hour to make, and is tested by itself.
        if words[:2] == ["ludic", "model"] or "ludic-small" in words:
            continue
        program = ["-m", "ludic_gym", *words[1:]]
        if words[1] == "play":
            subprocess.run(
                [sys.executable, *program], input="5\n", text=True, cwd=folder, check=True
            )
        elif words[1] == "train" and "--config" not in words:
            ran([*program, *shlex.split(LESS)], folder)
        else:
            ran(program, folder)
    params = [
        folder / "runs" / name / "model" / "model.safetensors" for name in ("digits", "again")
    ]
    assert params[0].read_bytes() == params[1].read_bytes()


def test_the_program_of_the_page_trains(folder):
    program = folder / "train_digits.py"
    text = program.read_text()
    assert 'out="runs/in-python"' in text
    program.write_text(text.replace('out="runs/in-python"', IN_PYTHON))
    ran([str(program)], folder)
    assert (folder / "runs" / "in-python" / "results.json").is_file()
