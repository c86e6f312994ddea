"""A run loads what it needs and no more: modules in a fresh process."""

import subprocess
import sys

import pytest

PROGRAM = """
import sys
import ludic_train.runs.train
assert "ludic_train.runs.learner" in sys.modules
from torch import nn
from ludic_train.models import modules
from ludic_train.models.modules import is_adapted
kinds = is_adapted, modules.is_adapted_layer, modules.is_lora_layer, modules.is_expert_adapter
assert not any(kind(nn.Linear(1, 1)) for kind in kinds)
print(*sys.modules)
"""


@pytest.mark.long
def test_a_run_starts_without_plots_adapters_and_the_gateway_of_agents():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    # Not even after questions about adapters.
    heavy = {"matplotlib", "peft", "aiohttp", "ludic_train.agents"}
    assert not heavy & set(done.stdout.split())
