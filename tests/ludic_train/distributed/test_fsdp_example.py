"""The example for several GPUs, on two ranks of a CPU: saved, resumed, and equal to one run."""

import shutil

import forked
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


def test_a_resumed_run_of_two_ranks_ends_with_the_params_of_a_whole_one(tmp_path):
    run(tmp_path / "whole", 2)
    # As a run that was killed before the last of its updates: two imitate, and two learn.
    shutil.copytree(tmp_path / "whole", tmp_path / "killed")
    shutil.rmtree(tmp_path / "killed" / "checkpoints" / "step_00000004")
    run(tmp_path / "killed", 2, "--resume")
    assert files(tmp_path / "killed", 4) == files(tmp_path / "whole", 4)
    rewards = [
        [record.get("reward") for record in lt.read_metrics(tmp_path / name / "metrics.jsonl")]
        for name in ("whole", "killed")
    ]
    assert rewards[0] == rewards[1]


def test_evaluations_leave_rollouts_and_a_second_run_needs_another_folder(tmp_path):
    def once():
        options = [*SMALL, "--updates", "1", "--out", str(tmp_path / "run")]
        return forked.run(["-m", EXAMPLE, *options], timeout=300)

    assert once().returncode == 0
    kept = list(lg.read_recorded(tmp_path / "run" / "rollouts"))
    measured = [one.update for one in kept if one.use == "evaluate"]
    assert measured == sorted(measured)
    assert {one.use for one in kept} == {"evaluate", "train"}
    assert "holds a run already: add --resume" in once().stderr
