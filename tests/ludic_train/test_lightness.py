"""A run loads what it needs and no more: modules in a fresh process."""

import subprocess
import sys

import pytest

PROGRAM = """
import sys
import ludic_train.runs.train
assert "ludic_train.runs.learner" in sys.modules
from torch import nn
from ludic_train.models.modules import (
    is_adapted, is_adapted_layer, is_expert_adapter, is_lora_layer
)
kinds = is_adapted, is_adapted_layer, is_lora_layer, is_expert_adapter
assert not any(kind(nn.Linear(1, 1)) for kind in kinds)
# A folder is no module of its own.
print(*(name for name, module in list(sys.modules.items()) if "__path__" not in vars(module)))
"""


@pytest.mark.long
def test_a_run_on_one_machine_loads_no_wing_and_at_most_130_modules():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    loaded = done.stdout.split()
    packages = {name.partition(".")[0] for name in loaded}
    # Not even after questions about adapters.
    assert not {"matplotlib", "peft", "aiohttp"} & packages
    own = [name for name in loaded if name.startswith(("ludic_", "envs_registry"))]
    wings = ("ludic_train.cluster", "ludic_train.agents", "ludic_vllm")
    assert [name for name in own if name.startswith(wings)] == []
    assert len(own) <= 130, sorted(own)
