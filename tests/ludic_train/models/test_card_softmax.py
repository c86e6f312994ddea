"""Kernels of the output head in Triton's interpreter, where Triton is installed.

On a card they are tested by tests/ludic_train/test_on_a_card.py.
"""

import json
import os
import subprocess
import sys
from importlib.util import find_spec

import pytest

pytestmark = pytest.mark.skipif(find_spec("triton") is None, reason="there is no Triton")
# In a process of its own: the interpreter is chosen when Triton is imported. Rows: usual ones, some
# that masks leave little of, and one of a single token.
PROGRAM = """
import json, sys, torch
from ludic_train.models.card_softmax import logit_gradient, read_logits
torch.manual_seed(0)
size, found = int(sys.argv[1]), {}
z = torch.randn(7, size) * 8
z[1, size // 2:] = -torch.inf
z[2], z[2, 3] = 0, 60.0
z[3, :], z[3, 4] = -torch.inf, 1.5
y = torch.randint(size // 2, (7,))
y[3] = 4
logprobs, entropies, logarithms = read_logits(z, y)
log_p = z.double().log_softmax(-1)
p = log_p.exp()
of_y, entropy = log_p.gather(1, y[:, None])[:, 0], -torch.where(p > 0, p * log_p, 0).sum(-1)
found["logprobs"] = float((logprobs - of_y).abs().max())
found["entropies"] = float((entropies - entropy).abs().max())
g, h = torch.randn(2, 7)
one = torch.nn.functional.one_hot(y, size)
for name, (a, b) in {"both": (g, h), "logprob": (g, None), "entropy": (None, h)}.items():
    slope = 0.0 if a is None else a[:, None] * (one - p)
    if b is not None:
        slope = slope - b[:, None] * torch.where(p > 0, p * (log_p + entropy[:, None]), 0)
    made, _ = logit_gradient(z, y, (logprobs, entropies, logarithms), a, b, torch.float32)
    found[name] = float((made - slope).abs().max())
print(json.dumps(found))
"""


@pytest.mark.parametrize("size", [10, 5000, 9001])
def test_the_kernels_are_exact(size):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(size)],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert all(error < 1e-5 for error in json.loads(done.stdout).values()), done.stdout
