"""A run loads what it needs and no more: modules in a fresh process."""

import subprocess
import sys

import pytest


@pytest.mark.long
def test_a_run_starts_without_plots_adapters_and_the_gateway_of_agents():
    program = "import sys, ludic_train.runs.train; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    loaded = set(done.stdout.split())
    assert "ludic_train.runs.learner" in loaded
    assert loaded & {"matplotlib", "peft", "aiohttp", "ludic_train.gateway"} == set()
