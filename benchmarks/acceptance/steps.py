"""Steps of the acceptance: commands as users type them, and assertions about what they leave."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from harness.shapes import SHAPES

from acceptance.bench import Bench, killed, ran, served
from acceptance.checks import Found, checked_run
from acceptance.models import write_exact_model, write_mixture
from ludic_gym.clients.vllm_tokens import VLLMTokenClient
from ludic_gym.types import Sampling
from ludic_train.checkpoints.layout import complete_updates
from ludic_train.distributed.device import DTYPES

# Share of the estimate of `ludic plan` that an update on a card may take.
PLAN = (0.9, 1.1)
# Updates of a run, and of one that is killed after its first checkpoint, which is of update 2.
UPDATES, LONG = 4, 12
PROMPTS = [[5 + i, 9, 3 + i] * (1 + i % 7) for i in range(32)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A part of the acceptance.

    shows: what it is to show. seconds: estimated, on one H100. lacking: the reason for which a
    bench cannot run it, or "".
    """

    name: str
    shows: str
    seconds: int
    run: Callable[[Bench], Found]
    lacking: Callable[[Bench], str] = lambda bench: ""


def updates(bench: Bench) -> Found:
    """Updates without sampling: tokens/s, MFU, and memory against the estimate."""
    found = Found()
    tokens, micro, longest = (32_768, 16_384, 2048) if bench.on_card else (256, 128, 64)
    SHAPES[bench.size].save_pretrained(bench.folder / "shape")
    sizes = ["--tokens", tokens, "--micro-tokens", micro]
    # The estimate is of rows of one length.
    chosen = ["--device", bench.device, "--sizes", bench.size, "--longest", longest, "--equal"]
    ran(bench, "python", "benchmarks/gpu.py", *chosen, *sizes, "--json", "updates.json")
    measured = json.loads((bench.folder / "updates.json").read_text())[bench.size]
    options = ["--dtype", "bfloat16", "--row-tokens", longest, "--tflops", 400, "--json"]
    text = ran(bench, "ludic", "plan", "./shape", *sizes, *options)
    # Warnings of other libraries may stand around it.
    planned = json.JSONDecoder().raw_decode(text, text.index("{"))[0]["total_bytes"]
    share = measured["peak_bytes"] / planned
    found.figures["updates"] = measured | {"planned_bytes": planned, "of the plan": share}
    found.check("tokens/s", measured["tokens/s"] > 0, f"{measured['tokens/s']:,.0f}", "above 0")
    if bench.on_card:
        low, high = PLAN
        found.check(
            "memory of `ludic plan`", low < share < high, f"{share:.2f}", f"{low} to {high}"
        )
    return found


def full(bench: Bench) -> Found:
    """All params are trained, and pushed to the sampler after each update."""
    return _trained(bench, "full", bench.model, "--lora-rank", 0)


def local(bench: Bench) -> Found:
    """The local engine samples from a copy in the type of the forward pass."""
    return _trained(bench, "local", bench.model, "--lora-rank", 0, engine="local")


def lora(bench: Bench) -> Found:
    """Adapters are trained and pushed; the run is killed and resumed."""
    found, out = Found(), bench.folder / "lora"
    words = [*train(bench, "lora", bench.model), "--lora-rank", 16, "--updates", LONG]
    killed(bench, *words, when=lambda: bool(complete_updates(out / "checkpoints")))
    found.check("updates before SIGKILL", _made(out) < LONG, _made(out), f"fewer than {LONG}")
    resumed(bench, out)
    checked_run(bench, found, "lora", updates=LONG, lora=True)
    return found


def truncated(bench: Bench) -> Found:
    """Tokens of a nucleus are trained on with the masks that the sampler returns."""
    cut = ["--top-p", 0.9, "--top-k", 50]
    return _trained(bench, "top-p", bench.model, "--lora-rank", 0, *cut)


def mixture(bench: Bench) -> Found:
    """A mixture of experts learns through the experts that its tokens were sampled by."""
    write_mixture(bench.folder / "mixture-model", dtype_of(bench))
    return _trained(bench, "mixture", "mixture-model", "--lora-rank", 0, "--router-replay")


def exact(bench: Bench) -> Found:
    """The local engine has the trainer's log-probs to the bit, on a CPU."""
    found = Found()
    write_exact_model(bench.folder / "exact-model")
    words = ["exact-model", "--engine", "local", "--exact", "--device", "cpu"]
    with served(bench, *words) as url:
        ran(bench, "ludic", "doctor", "--url", url, "--model", "exact-model", "--bitwise")
        found.equal("log-probs that differ alone and in a batch", different_bits(url), 0)
    return found


def server(bench: Bench) -> Found:
    """A server has the flags and log-probs of the trainer; a vLLM is batch-invariant."""
    found = Found()
    # On a CPU vLLM has no batch-invariant mode.
    invariant = bench.on_card and bench.engine == "vllm"
    env = {"VLLM_BATCH_INVARIANT": "1"} if invariant else {}
    with served(bench, bench.model, *own_server(bench), env=env) as url:
        ran(bench, "ludic", "doctor", "--url", url, "--model", bench.model)
        different = different_bits(url)
    found.figures["server"] = {"log-probs that differ alone and in a batch": different}
    if invariant:
        found.equal("log-probs that differ alone and in a batch", different, 0)
    return found


def ranks(bench: Bench) -> Found:
    """Two ranks shard the model; the run is killed, and resumed by torchrun."""
    found, out = Found(), bench.folder / "ranks"
    words = [*train(bench, "ranks", bench.model, engine="local"), "--lora-rank", 0]
    words += ["--updates", LONG, "--gpus", 2]
    killed(bench, *words, when=lambda: bool(complete_updates(out / "checkpoints")))
    found.check("updates before SIGKILL", _made(out) < LONG, _made(out), f"fewer than {LONG}")
    torchrun = ["torchrun", "--nproc-per-node", 2, "-m", "ludic_train.commands.train"]
    ran(bench, *torchrun, "--out", "ranks", "--resume", *device(bench))
    checked_run(bench, found, "ranks", updates=LONG)
    found.equal("ranks", found.figures["ranks"]["compute"]["ranks"], 2)
    return found


def tensor_parallel(bench: Bench) -> Found:
    """A server, a vLLM over two cards if on cards, samples for a trainer by its address."""
    split = ["--tensor-parallel-size", 2] if bench.on_card and bench.engine == "vllm" else []
    with served(bench, bench.model, *own_server(bench), *split) as url:
        return _trained(bench, "parallel", bench.model, "--lora-rank", 0, engine=url)


def train(bench: Bench, out: str, model: str, *, engine: str | None = None) -> list[object]:
    """The `ludic train` of a step, without the options that the step is about.

    engine: that of the bench if left out.
    """
    engine = engine or bench.engine
    groups, limit = (16, 256) if bench.on_card else (2, 8)
    words = ["ludic", "train", "ludic/GSM8K-v0", "--model", model, "--out", out]
    words += ["--engine", engine, *(bench.vllm if engine == "vllm" else []), *device(bench)]
    words += ["--groups", groups, "--group-size", 8 if bench.on_card else 4]
    words += ["--max-tokens", limit, "--eval-every", 2, "--eval-episodes", 4]
    words += ["--final-episodes", 8]
    return words + (["--reward", "by_lot:reward", "--no-preflight"] if bench.is_random else [])


def resumed(bench: Bench, out: Path) -> None:
    """Resume a run to its end."""
    engine = ["--engine", bench.engine, *(bench.vllm if bench.engine == "vllm" else [])]
    ran(bench, "ludic", "train", "--out", out.name, "--resume", *engine, *device(bench))


def device(bench: Bench) -> list[str]:
    """The option that keeps a command off the card; on a card, no option is needed."""
    return [] if bench.on_card else ["--device", "cpu"]


def own_server(bench: Bench) -> list[object]:
    """Options of a server of the bench's engine; a vLLM leaves the trainer half of its card."""
    if bench.engine == "local":
        return ["--engine", "local"]
    return [*bench.vllm, *(["--gpu-memory-utilization", 0.4] if bench.on_card else [])]


def dtype_of(bench: Bench) -> torch.dtype:
    """Type of the forward pass, and of the models that are written."""
    return DTYPES["bf16" if bench.on_card else "float32"]


def different_bits(url: str) -> int:
    """Number of completions whose log-probs alone are others than beside 31 more."""
    return asyncio.run(_different_bits(url))


async def _different_bits(url: str) -> int:
    greedy = Sampling(max_tokens=32, temperature=0)
    # Token ids go in, so that nothing is rendered. A seed would stop a vLLM on a CPU.
    async with VLLMTokenClient(url, lambda messages, reply_comes: [], seeds=False) as client:
        alone = [await client.continued(prompt, greedy) for prompt in PROMPTS]
        beside = await asyncio.gather(*(client.continued(p, greedy) for p in PROMPTS))
    return sum(a.logprobs != b.logprobs for a, b in zip(alone, beside, strict=True))


def _trained(
    bench: Bench, name: str, model: str, *options: object, engine: str | None = None
) -> Found:
    """The assertions about a run in the folder `name`, which is carried out first."""
    found = Found()
    ran(bench, *train(bench, name, model, engine=engine), "--updates", UPDATES, *options)
    checked_run(bench, found, name, updates=UPDATES)
    return found


def _made(out: Path) -> int:
    """Number of updates that a run has logged."""
    lines = (out / "metrics.jsonl").read_text().split("\n")[:-1]
    return sum("loss" in json.loads(line) for line in lines)


def _no_masks(bench: Bench) -> str:
    on_cpu = bench.engine == "vllm" and not bench.on_card
    return "vLLM on a CPU returns neither sampling masks nor experts" if on_cpu else ""


def _one_card(bench: Bench) -> str:
    few = bench.on_card and bench.cards < 2
    return f"needs two cards, and there is {bench.cards}" if few else ""


def _one_card_for_vllm(bench: Bench) -> str:
    return _one_card(bench) if bench.engine == "vllm" else ""


STEPS: Mapping[str, Step] = {
    step.name: step
    for step in (
        Step(name="updates", shows="speed and memory of updates", seconds=60, run=updates),
        Step(name="full", shows="training of all params", seconds=150, run=full),
        Step(name="lora", shows="LoRA, SIGKILL, resumption", seconds=300, run=lora),
        Step(
            name="local",
            shows="the local engine on the device",
            seconds=120,
            run=local,
            lacking=lambda bench: "" if bench.engine == "vllm" else "the step full has it",
        ),
        Step(name="top-p", shows="sampling masks", seconds=150, run=truncated, lacking=_no_masks),
        Step(name="mixture", shows="router replay", seconds=120, run=mixture, lacking=_no_masks),
        Step(name="exact", shows="log-probs equal to the bit", seconds=40, run=exact),
        Step(
            name="server",
            shows="ludic doctor; on GPUs batch invariance",
            seconds=150,
            run=server,
        ),
        Step(name="ranks", shows="two ranks, torchrun", seconds=150, run=ranks, lacking=_one_card),
        Step(
            name="parallel",
            shows="a server by address; a vLLM on GPUs over two cards",
            seconds=180,
            run=tensor_parallel,
            lacking=_one_card_for_vllm,
        ),
    )
}
