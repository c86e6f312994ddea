"""The extra `vllm`: vLLM and Ludic in one environment."""

import os
import re
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.vllm
ROOT = Path(__file__).parents[2]
# Of constraints.txt, vLLM 0.32 cannot have this one.
NOT_HELD = "numpy"


def test_the_extra_resolves_with_our_versions_of_torch_and_transformers(tmp_path):
    # It resolves from metadata alone, where pip downloads gigabytes.
    uv = Path(os.environ.get("LUDIC_VLLM_PYTHON", "")).with_name("uv")
    if not uv.is_file():
        pytest.skip("LUDIC_VLLM_PYTHON names no Python with uv; `make test-vllm` does")
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    held = tmp_path / "constraints.txt"
    held.write_text("\n".join(line for line in lines if not line.startswith(NOT_HELD)))
    command = [uv, "pip", "compile", ROOT / "pyproject.toml", "-c", held]
    command += ["--python-version", "3.11", "--no-annotate", "--no-header"]
    for extra in ("train", "math", "tools", "mcp", "vllm"):
        command += ["--extra", extra]
    found = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0, found.stderr
    versions = dict(re.findall(r"^([\w.-]+)==(\S+)$", found.stdout, re.M))
    ours = dict(re.findall(r"^([\w.-]+)==(\S+)$", "\n".join(lines), re.M))
    assert versions["vllm"].startswith("0.32.")
    # A build such as "2.13.0+cpu" is of the same version.
    for name in ("torch", "transformers", "peft", "mcp"):
        assert versions[name].partition("+")[0] == ours[name]
    assert versions["numpy"].startswith("2.3.")
