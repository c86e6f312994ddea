"""`benchmarks/accept_gpu.py` on a CPU: the commands, the assertions and the report of a card's."""

import json
import os

import accept_gpu
import forked
import pytest
import torch
from acceptance import STEPS, Bench, Found, StepFailed, checked_run, write_random_model

from ludic_train.models.tokenizer import load_tokenizer

TINY = ["--device", "cpu", "--size", "tiny"]


def accepted(out, *options, start=forked.Python):
    """Exit code, and the report by step."""
    code = accept_gpu.main([*TINY, "--out", str(out), *options], start=start)
    report = json.loads((out / "report.json").read_text())
    return code, {step["step"]: step for step in report["steps"]}


@pytest.mark.long
def test_a_run_is_trained_killed_resumed_and_checked_with_the_local_engine(tmp_path, capsys):
    out = tmp_path / "accepted"
    code, steps = accepted(out, "--engine", "local", "--steps", "updates", "full", "lora", "local")
    assert code == 0, capsys.readouterr().out
    assert {name: step["verdict"] for name, step in steps.items()} == {
        "updates": "passed",
        "full": "passed",
        "lora": "passed",
        "local": "not run",
    }
    assert steps["local"]["reason"] == "the step full has it"
    checks = {check["name"]: check["found"] for check in steps["lora"]["found"]["checks"]}
    assert checks["lora: updates"] == str([*range(1, 13)])
    assert checks["lora: attention kernels"] == "['flash']"
    assert steps["lora"]["commands"][1].startswith("ludic train --out lora --resume")
    figures = steps["full"]["found"]["figures"]["full"]
    assert figures["trained tokens/s"] > 0
    assert figures["compute"]["moments"].keys() == {"float32 on cpu"}
    assert "| local | the local engine on the device | not run: the step full has it" in (
        out / "report.md"
    ).read_text(encoding="utf-8")


def test_a_step_that_fails_is_reported_and_the_next_one_is_run(tmp_path, capsys):
    no_model = ["--model", str(tmp_path / "nothing"), "--engine", "local"]
    code, steps = accepted(tmp_path / "accepted", *no_model, "--steps", "full", "top-p")
    assert code == 1
    assert [step["verdict"] for step in steps.values()] == ["failed", "failed"]
    assert "ludic train ended with code" in steps["full"]["reason"]
    assert "failed: full, top-p" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_every_step_of_the_local_engine_passes_in_processes_of_its_own(tmp_path):
    code, steps = accepted(tmp_path / "accepted", "--engine", "local", start=accept_gpu.python)
    assert code == 0
    not_run = {name for name, step in steps.items() if step["verdict"] == "not run"}
    assert not_run == {"local"}


@pytest.mark.vllm
@pytest.mark.timeout(1500)
def test_the_steps_of_vllm_pass_on_a_cpu(tmp_path):
    if os.environ.get("LUDIC_VLLM_PYTHON") is None:
        pytest.skip("LUDIC_VLLM_PYTHON names no Python with vLLM; `make test-vllm` does")
    names = ["full", "lora", "top-p", "server", "parallel"]
    code, steps = accepted(tmp_path / "accepted", "--steps", *names, start=accept_gpu.python)
    assert code == 0
    assert {name for name, step in steps.items() if step["verdict"] == "passed"} == {
        "full",
        "lora",
        "server",
        "parallel",
    }


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_random_model_is_of_its_type_and_has_a_text_for_each_id(tmp_path, dtype):
    write_random_model(tmp_path, "tiny", dtype)
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["dtype"] == str(dtype).removeprefix("torch.")
    tokenizer = load_tokenizer(tmp_path)
    assert len(tokenizer) == config["vocab_size"] == 512
    assert config["eos_token_id"] == tokenizer.eos_token_id
    assert all(tokenizer.decode([number]) for number in range(512))
    assert tokenizer.decode(tokenizer.encode("What is 12?")) == "What is 12?"


def bench(tmp_path, **changes):
    settings = {"device": "cuda", "cards": 1, "engine": "vllm", **changes}
    return Bench(folder=tmp_path, size="tiny", model="model", is_random=True, **settings)


def test_one_card_runs_all_steps_but_those_of_two(tmp_path):
    lacking = {name: step.lacking(bench(tmp_path)) for name, step in STEPS.items()}
    assert {name for name, reason in lacking.items() if reason} == {"ranks", "parallel"}
    assert lacking["ranks"] == "needs two cards, and there is 1"
    assert not any(step.lacking(bench(tmp_path, cards=2)) for step in STEPS.values())
    # Twenty minutes.
    assert sum(step.seconds for name, step in STEPS.items() if not lacking[name]) <= 1200


def test_what_a_card_must_not_show_fails_its_assertion(tmp_path):
    out = tmp_path / "run"
    (out / "model").mkdir(parents=True)
    line = {"update": 1, "reward": float("nan"), "loss": 0.0, "grad_norm": 1.0}
    line |= {"mismatch/kl_at_lag_0": 0.02, "seconds/publish": 31.0, "seconds/update": 1.0}
    line |= {"tokens/trained_per_second": 5.0, "memory/peak_gib": 1.0}
    text = json.dumps(line).replace("NaN", '"nan"')
    (out / "metrics.jsonl").write_text(text + "\n")
    (out / "results.json").write_text('{"test/success": 0.5}')
    compute = {
        "device": "cpu",
        "trained": {"bfloat16 on cuda:0": 5},
        "frozen": {"float32 on cuda:0": 5},
        "moments": {"float32 on cpu": 10},
        "attention": [{"kernel": "math", "dtype": "float32"}],
        "cache": "float32 on cuda:0",
    }
    (out / "compute.json").write_text(json.dumps(compute))
    found = Found()
    checked_run(bench(tmp_path), found, "run", updates=2)
    # The loss, the norm and the evaluation alone are as they should be.
    good = {check.name for check in found.checks if check.good}
    assert good == {"run: loss", "run: grad_norm", "run: evaluation"}


def test_a_run_without_an_evaluation_cannot_be_checked(tmp_path):
    with pytest.raises(StepFailed, match=r"metrics\.jsonl"):
        checked_run(bench(tmp_path), Found(), "run", updates=2)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_without_a_card_the_program_says_what_to_type(tmp_path):
    with pytest.raises(SystemExit, match="--device cpu"):
        accept_gpu.main(["--out", str(tmp_path / "out")])
