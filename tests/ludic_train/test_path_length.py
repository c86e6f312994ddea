"""Short paths: files of an update, and containers of a log-prob, counted by the benchmark."""

import asyncio
import importlib.util
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parents[2] / "benchmarks" / "path_length.py"


@pytest.fixture(scope="module")
def counting():
    spec = importlib.util.spec_from_file_location("path_length", PROGRAM)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.long
def test_an_update_passes_at_most_20_files_of_the_trainer(counting):
    learner = counting.trainer()
    asyncio.run(learner.train(1))
    files = {file for file, _ in counting.passed(learner) if file.startswith("ludic_train")}
    assert "ludic_train/trainer/trainer.py" in files
    assert len(files) <= 20, sorted(files)


@pytest.mark.long
def test_a_logprob_passes_at_most_12_containers(counting):
    containers = counting.containers_of_a_logprob()
    assert {"Completion", "SAWItem", "LossBatch"} <= set(containers)
    assert len(containers) <= 12, containers
