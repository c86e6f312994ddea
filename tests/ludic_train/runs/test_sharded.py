"""Runs over two ranks, and in bf16: they learn, save, resume and evaluate as one process does."""

import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import forked
import pytest
import torch
from made_once import made_once
from safetensors.torch import load_file
from two_ranks.launch import run_on_ranks, torchrun
from two_ranks.learning import relative_error

# REINFORCE learns from equal rewards too, and so from those of a model that has imitated little.
SMALL = ["--demonstrations", "300", "--sft-updates", "6", "--updates", "2", "--lr", "1e-3"]
SMALL += ["--groups", "4", "--group-size", "4", "--device", "cpu", "--algo", "reinforce"]
SMALL += ["--eval-every", "8", "--eval-episodes", "8", "--final-episodes", "8"]


def train(out, *options, ranks=1):
    arguments = ["train", "tic-tac-toe", "--out", str(out), *SMALL, *options]
    if ranks > 1:
        run_on_ranks("ludic_gym", *arguments, ranks=ranks)
    else:
        done = forked.run(["-m", "ludic_gym", *arguments], timeout=400)
        assert done.returncode == 0, done.stderr[-3000:]
    return out


def params_of(out):
    (file,) = (out / "model").glob("*.safetensors")
    params = load_file(file)
    return torch.cat([params[name].flatten().float() for name in sorted(params)])


def metrics_of(out):
    return [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]


def learned(out):
    return params_of(out).tolist(), json.loads((out / "results.json").read_text())


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    return made_once(tmp_path_factory, "two", lambda out: train(out, ranks=2))


@pytest.mark.long
def test_two_ranks_learn_what_one_process_learns(two, tmp_path):
    one = train(tmp_path / "one")
    assert relative_error(params_of(two), params_of(one)) < 1e-3
    # Rank 0 plays the same episodes, and is the only one that writes.
    for name in ("results.json", "games.txt"):
        assert (two / name).read_text() == (one / name).read_text()
    updates = [[line["update"] for line in metrics_of(run)] for run in (two, one)]
    assert updates[0] == updates[1]


def without_the_last_checkpoint(run, out):
    shutil.copytree(run, out)
    last = max((out / "checkpoints").iterdir())
    shutil.rmtree(last)
    shutil.rmtree(out / "model")
    return out


@pytest.mark.slow
def test_two_ranks_continue_bit_for_bit(two, tmp_path):
    out = without_the_last_checkpoint(two, tmp_path / "resumed")
    done = torchrun(
        "ludic_train.commands.train", "--out", out, "--resume", "--device", "cpu", ranks=2
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert learned(out) == learned(two)
    # What one rank prints is printed once.
    assert done.stdout.count("try it") == 1


@pytest.mark.slow
def test_one_process_continues_what_two_ranks_began(two, tmp_path):
    out = train(without_the_last_checkpoint(two, tmp_path / "resumed"), "--resume")
    assert relative_error(params_of(out), params_of(two)) < 1e-3


@pytest.mark.slow
def test_ranks_that_share_rows_learn_what_one_process_learns(two, tmp_path):
    context = train(tmp_path / "context", "--context-parallel", "2", ranks=2)
    one = train(tmp_path / "one")
    assert relative_error(params_of(context), params_of(one)) < 1e-3
    # The first loss is of equal params: no optimizer has enlarged the rounding yet.
    first = [
        next(line["loss"] for line in metrics_of(run) if "loss" in line) for run in (context, one)
    ]
    assert first[0] == pytest.approx(first[1], rel=1e-6)


def lora(model, out, *options):
    words = ["train", "tic-tac-toe", "--model", str(model), "--out", str(out), *SMALL[4:]]
    return ["-m", "ludic_gym", *words, "--dtype", "bf16", "--gpus", "2", "--updates", "6", *options]


@pytest.mark.slow
def test_ranks_that_are_stopped_save_adapters_in_bf16_and_continue(two, tmp_path):
    straight, out = tmp_path / "straight", tmp_path / "stopped"
    forked.run(lora(two, straight), timeout=400)
    process = subprocess.Popen(
        [sys.executable, *lora(two, out)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=Path(__file__).parents[3],
    )
    metrics = out / "metrics.jsonl"
    while not (metrics.exists() and '"update": 2,' in metrics.read_text()):
        assert process.poll() is None, process.communicate()[0][-3000:]
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 130, output[-3000:]
    assert output.count("--resume --gpus 2") == 1
    forked.run(lora(two, out, "--resume"), timeout=400)
    assert learned(out) == learned(straight)
    assert (
        load_file(out / "model" / "adapter_model.safetensors").popitem()[1].dtype == torch.float32
    )


@pytest.mark.slow
def test_one_process_learns_in_bf16_nearly_what_it_learns_in_float32(two, tmp_path):
    out = train(tmp_path / "bf16", "--dtype", "bf16", "--updates", "1")
    assert 'dtype = "bf16"' in (out / "config.toml").read_text()
    losses = {
        run: [line["loss"] for line in metrics_of(run) if "loss" in line][:6] for run in (out, two)
    }
    assert losses[out] == pytest.approx(losses[two], rel=0.1, abs=0.02)
    assert losses[out] != losses[two]
