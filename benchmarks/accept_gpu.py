"""Acceptance on a GPU: real commands, and assertions about what they leave.

    python benchmarks/accept_gpu.py [--model NAME] [--vllm-python PATH] [--steps STEP ...]

Trains with vLLM on the card: all params, LoRA (killed and resumed), sampling masks, router replay;
compares log-probs, measures updates, and with two cards shards a model and serves one over both.
Devices, types, attention kernels, the distance of trainer and sampler, and the time of pushes are
asserted. Each step prints its commands as a user types them; one that fails does not end the
others. The folder --out gets report.json, report.md, the logs and the runs. The exit code is 1 if
any step failed. Without --model, a model of --size with random params is made, whose replies earn
rewards by lot. `--device cpu --size tiny --engine local` goes the same way without a GPU.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from acceptance import (
    REWARD,
    STEPS,
    Bench,
    Found,
    Step,
    StepFailed,
    dtype_of,
    python,
    write_random_model,
)
from shapes import SHAPES

from ludic_gym.errors import ConfigError
from ludic_train.cluster.servers.vllm_command import Installed, find_vllm

Verdict = Literal["passed", "failed", "not run"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """End of a step.

    reason: for which it was not run, or could not go on; "" without one. seconds: that it took.
    commands: as a user types them.
    """

    step: str
    shows: str
    reason: str
    seconds: float
    commands: Sequence[str]
    found: Found
    was_run: bool

    @property
    def verdict(self) -> Verdict:
        """A step passes if it went to its end and all its assertions hold."""
        if not self.was_run:
            return "not run"
        return "failed" if self.reason or not all(c.good for c in self.found.checks) else "passed"


def main(argv: Sequence[str] | None = None, *, start: Callable[..., Any] = python) -> int:
    """Carry the steps out; the exit code. start: starts Python programs."""
    args = arguments(argv)
    if args.device == "cuda" and not torch.cuda.is_available():
        raise SystemExit(
            f"torch {torch.__version__} finds no CUDA device here; `--device cpu --size tiny "
            "--engine local` runs the steps without one"
        )
    try:
        vllm = None if args.engine == "local" else find_vllm(args.vllm_python)
    except ConfigError as error:
        raise SystemExit(str(error)) from error
    if vllm is not None and vllm.on_cpu != (args.device == "cpu"):
        build = "CPUs" if vllm.on_cpu else "GPUs"
        raise SystemExit(f"--device {args.device}, but the vLLM of {vllm.python} is for {build}")
    bench = made_bench(args, vllm, start)
    steps = [STEPS[name] for name in args.steps]
    print_plan(bench, steps)
    outcomes = [carried_out(bench, step) for step in steps]
    for path in write_report(bench, outcomes, vllm and vllm.version):
        print(f"report   {path}")
    failed = [each.step for each in outcomes if each.verdict == "failed"]
    print(f"failed: {', '.join(failed)}" if failed else "no step failed", flush=True)
    return int(bool(failed))


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--size", choices=sorted(SHAPES), default="0.5B")
    parser.add_argument("--engine", choices=["vllm", "local"], default="vllm")
    parser.add_argument("--model", help="folder or hub id, in place of random params")
    parser.add_argument(
        "--vllm-python", default=os.environ.get("LUDIC_VLLM_PYTHON"), help="Python that has vLLM"
    )
    parser.add_argument("--steps", nargs="+", choices=list(STEPS), default=list(STEPS))
    parser.add_argument("--out", type=Path, default=Path("runs") / "accept-gpu")
    return parser.parse_args(argv)


def made_bench(
    args: argparse.Namespace, vllm: Installed | None, start: Callable[..., Any]
) -> Bench:
    """The settings of all steps, in a folder with the model that they train."""
    folder = args.out.resolve()
    if folder.exists():
        raise SystemExit(f"{folder} exists already: name another folder with --out")
    folder.mkdir(parents=True)
    model = args.model or "model"
    if args.model is not None and Path(model).exists():
        # Commands run in the folder.
        model = str(Path(model).resolve())
    bench = Bench(
        folder=folder,
        device=args.device,
        cards=torch.cuda.device_count() if args.device == "cuda" else 0,
        size=args.size,
        engine=args.engine,
        model=model,
        is_random=args.model is None,
        vllm_python=None if vllm is None else os.path.abspath(vllm.python),
        start=start,
    )
    if bench.is_random:
        (folder / "by_lot.py").write_text(REWARD, encoding="utf-8")
        write_random_model(folder / bench.model, bench.size, dtype_of(bench))
    return bench


def print_plan(bench: Bench, steps: Sequence[Step]) -> None:
    """Print the steps with their estimated time on one H100."""
    total = 0
    for step in steps:
        lacking = step.lacking(bench)
        total += 0 if lacking else step.seconds
        note = f"not run: {lacking}" if lacking else f"about {step.seconds} s on an H100"
        print(f"{step.name:10s}{step.shows:45s}{note}")
    print(f"estimated on an H100: {total / 60:.0f} minutes", flush=True)


def carried_out(bench: Bench, step: Step) -> Outcome:
    """The step to its end, printed."""
    bench.step, bench.commands, found, reason = step.name, [], Found(), step.lacking(bench)
    was_run, started = not reason, time.perf_counter()
    print(f"\n== {step.name}: {step.shows}", flush=True)
    if was_run:
        try:
            found = step.run(bench)
        # An error of one step must not end the others.
        except Exception as error:
            reason = str(error) if isinstance(error, StepFailed) else repr(error)
    outcome = Outcome(
        step=step.name,
        shows=step.shows,
        reason=reason,
        seconds=time.perf_counter() - started,
        commands=tuple(bench.commands),
        found=found,
        was_run=was_run,
    )
    for check in found.checks:
        good = "ok    " if check.good else "FAILED"
        print(f"  {good} {check.name}: {check.found} (wanted: {check.wanted})")
    print(f"{outcome.verdict} in {outcome.seconds:.0f} s {reason}".rstrip(), flush=True)
    return outcome


def write_report(bench: Bench, outcomes: Sequence[Outcome], vllm: str | None) -> list[Path]:
    """Write report.json, and report.md with a line per step and per run; their paths.

    vllm: its version, if one was used.
    """
    machine = {
        "device": torch.cuda.get_device_name() if bench.on_card else "CPU",
        "cards": bench.cards,
        "size": bench.size,
        "engine": bench.engine,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "CUDA": torch.version.cuda,
        "vLLM": vllm,
    }
    steps = [{"verdict": each.verdict, **asdict(each)} for each in outcomes]
    lines = [", ".join(f"{name} {value}" for name, value in machine.items() if value is not None)]
    lines += ["", "| step | shows | verdict | seconds |", "|---|---|---|---|"]
    for each in outcomes:
        verdict = f"{each.verdict}: {each.reason}" if each.verdict == "not run" else each.verdict
        lines.append(f"| {each.step} | {each.shows} | {verdict} | {each.seconds:.0f} |")
    columns = ("trained tokens/s", "peak GiB", "KL", "push s", "push GB/s")
    lines += ["", f"| run | {' | '.join(columns)} |", "|---" * 6 + "|"]
    for each in outcomes:
        for name, figures in each.found.figures.items():
            if "compute" in figures:
                cells = " | ".join(f"{figures[column]:.3g}" for column in columns)
                lines.append(f"| {name} | {cells} |")
    as_json, as_markdown = bench.folder / "report.json", bench.folder / "report.md"
    as_json.write_text(json.dumps({"machine": machine, "steps": steps}, indent=2, default=str))
    as_markdown.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return [as_json, as_markdown]


if __name__ == "__main__":
    raise SystemExit(main())
