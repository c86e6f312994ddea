"""Tests that need a CUDA device (`pytest -m gpu`), and a check that its programs start."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import forked
import pytest
import torch
from two_ranks.launch import fresh, run_on_ranks
from two_ranks.learning import gradient_of, random_rows, settings
from two_ranks.on_gpu import params_after_5_updates

ROOT = Path(__file__).parents[2]
PROGRAM = ROOT / "benchmarks" / "gpu.py"
TINY = ["--sizes", "tiny", "--updates", "1", "--tokens", "300", "--micro-tokens", "256"]
needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")


def run(*command):
    # Not forked, as of programs that have no CUDA device: CUDA does not survive it.
    arguments = [sys.executable, *map(str, command)]
    return subprocess.run(arguments, capture_output=True, text=True, timeout=600, check=False)


@pytest.mark.slow
def test_the_benchmark_goes_on_a_cpu_with_a_tiny_model():
    done = run(PROGRAM, "--device", "cpu", *TINY, "--longest", "64")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("tiny") == 1


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_without_a_cuda_device_the_benchmark_says_what_it_lacks():
    done = forked.run([PROGRAM])
    assert done.returncode == 1
    assert "torch finds none here" in done.stderr


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """Relative errors of shards on all CUDA devices, against one process on the CPU."""
    folder = tmp_path_factory.mktemp("gpu")
    gradient, _ = gradient_of(random_rows(24, seed=5), settings(100))
    params = params_after_5_updates(lambda model: model, settings(100))
    expected = {"gradient": gradient, "params": params}
    torch.save(expected, folder / "expected.pt")
    arguments = [folder / "found.json", folder / "expected.pt"]
    run_on_ranks("two_ranks.on_gpu", *arguments, ranks=torch.cuda.device_count(), start=fresh)
    return json.loads((folder / "found.json").read_text())


@needs_cuda
@pytest.mark.gpu
def test_shards_on_cuda_devices_learn_what_one_process_on_the_cpu_learns(found):
    assert found["float32"]["gradient"] < 1e-4
    assert found["float32"]["params"] < 1e-3


@needs_cuda
@pytest.mark.gpu
def test_in_bfloat16_they_learn_nearly_the_same(found):
    assert found["bfloat16"]["gradient"] < 0.05
    assert found["bfloat16"]["params"] < 0.02


@needs_cuda
@pytest.mark.gpu
@pytest.mark.parametrize("ranks", sorted({1, torch.cuda.device_count() or 1}))
def test_a_run_learns_in_bf16_on_cards_and_resumes(tmp_path, ranks):
    options = ["--demonstrations", "300", "--sft-updates", "60", "--updates", "2", "--lr", "1e-3"]
    options += ["--eval-episodes", "8", "--final-episodes", "8", "--gpus", str(ranks)]
    out = tmp_path / "run"
    done = run("-m", "ludic_gym", "train", "tic-tac-toe", "--out", out, *options)
    assert done.returncode == 0, done.stderr
    assert 'dtype = "bf16"' in (out / "config.toml").read_text()
    learned = (out / "model" / "model.safetensors").read_bytes()
    shutil.rmtree(max((out / "checkpoints").iterdir()))
    again = ["train", "--out", out, "--resume", "--gpus", str(ranks)]
    assert run("-m", "ludic_gym", *again).returncode == 0
    # Kernels of a card may add up in another order from run to run.
    assert len((out / "model" / "model.safetensors").read_bytes()) == len(learned)
    losses = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    at_lag_0 = [line["mismatch/kl_at_lag_0"] for line in losses if "mismatch/kl_at_lag_0" in line]
    assert at_lag_0
    assert max(at_lag_0) < 0.02
