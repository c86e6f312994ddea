"""The example for several GPUs, on two ranks of a CPU: saved, resumed, and equal to one run."""

import forked
import pytest
from two_ranks.launch import run_on_ranks

import ludic_gym as lg
import ludic_train as lt

EXAMPLE = "examples.fsdp2_training.train_math_fsdp2"
SMALL = ["--offline", "--max-tokens", "8", "--groups", "2", "--group-size", "2"]
SMALL += ["--eval-episodes", "2", "--eval-every", "1"]


def run(out, updates, *options):
    run_on_ranks(EXAMPLE, *SMALL, "--out", out, "--updates", updates, *options)


def files(out, step):
    """Bytes of the tensors of a checkpoint, by path."""
    folder = out / "checkpoints" / f"step_{step:08d}"
    found = {p.relative_to(folder): p.read_bytes() for p in folder.rglob("*.safetensors")}
    assert found
    return found


@pytest.mark.parametrize("options", [pytest.param([], marks=pytest.mark.slow), ["--shards"]])
def test_a_resumed_run_of_two_ranks_ends_with_the_params_of_a_whole_one(options, tmp_path):
    run(tmp_path / "whole", 2, *options)
    run(tmp_path / "parts", 1, *options)
    run(tmp_path / "parts", 2, *options, "--resume")
    assert files(tmp_path / "parts", 2) == files(tmp_path / "whole", 2)
    assert files(tmp_path / "whole", 1) != files(tmp_path / "whole", 2)
    rewards = [
        [record["reward"] for record in lt.read_metrics(tmp_path / name / "metrics.jsonl")[1:]]
        for name in ("whole", "parts")
    ]
    assert len(rewards[0]) == 2
    assert rewards[0] == rewards[1]


def test_evaluations_leave_rollouts_and_a_second_run_needs_another_folder(tmp_path):
    def once():
        options = [*SMALL, "--updates", "1", "--out", str(tmp_path / "run")]
        return forked.run(["-m", EXAMPLE, *options], timeout=300)

    assert once().returncode == 0
    kept = lg.read_recorded(tmp_path / "run" / "rollouts")
    assert [(one.update, one.use) for one in kept] == [(0, "evaluate")] * 2 + [(1, "evaluate")] * 2
    assert "has checkpoints: add --resume, or name another --out" in once().stderr
