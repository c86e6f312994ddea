"""Steps of `accept_gpu.py`: commands as users type them, and assertions about what they leave."""

from __future__ import annotations

import asyncio
import json
import math
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import torch
from shapes import SHAPES, random_model
from tokenizers import Tokenizer
from transformers import (
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
    Qwen3MoeConfig,
    Qwen3MoeForCausalLM,
)

from ludic_gym.clients.vllm import VLLMTokenClient
from ludic_gym.types import Sampling
from ludic_train.checkpoints.layout import complete_updates
from ludic_train.cluster.servers.process import last_lines
from ludic_train.distributed.device import DTYPES
from ludic_train.loggers.loggers import read_metrics
from ludic_train.models.load import save_model
from ludic_train.models.tiny import make_tiny_model
from ludic_train.models.tokenizer import PAD, TURN_END, make_tokenizer
from ludic_train.processes import free_port
from ludic_train.runs.evaluation import time_split

# The programs that steps start, as arguments of this Python.
PROGRAMS = {"ludic": ("-m", "ludic_gym"), "torchrun": ("-m", "torch.distributed.run"), "python": ()}
ROOT = Path(__file__).resolve().parents[1]
LIMIT_S, STOP_S, POLL_S = 600.0, 60.0, 0.05


class StepFailed(Exception):
    """A step cannot go on; the text says why."""


def python(arguments: Sequence[str], **options: Any) -> subprocess.Popen[bytes]:  # noqa: ANN401
    """This Python with arguments, as a process."""
    return subprocess.Popen([sys.executable, *arguments], **options)


@dataclass(slots=True, kw_only=True)
class Bench:
    """Settings of all steps, and the commands of the present one.

    folder: of models, runs and logs; commands run in it. device: "cuda" or "cpu". cards: how many
    there are. size: of the random model, a key of `shapes.SHAPES`. engine: "vllm" or "local".
    model: that steps train. is_random: its params are, and replies earn a reward by lot.
    start: starts Python programs.
    """

    folder: Path
    device: str
    cards: int
    size: str
    engine: str
    model: str
    is_random: bool
    vllm_python: str | None = None
    start: Callable[..., Any] = python
    commands: list[str] = field(default_factory=list)
    step: str = ""

    @property
    def on_card(self) -> bool:
        """True if the steps compute on a CUDA card."""
        return self.device == "cuda"

    @property
    def vllm(self) -> list[str]:
        """Options of a command that starts vLLM."""
        return [] if self.vllm_python is None else ["--vllm-python", self.vllm_python]


@contextmanager
def started(
    bench: Bench, words: Sequence[object], env: Mapping[str, str] | None = None
) -> Iterator[tuple[Any, Path]]:
    """A command that runs, and the file of its output; it is stopped at the end of the block.

    words: a key of PROGRAMS and its arguments; a program of Python is named from the repository's
    root. env: variables beside those of this process.
    """
    program, *arguments = map(str, words)
    shown = shlex.join([program, *arguments])
    bench.commands.append(" ".join([*(f"{n}={v}" for n, v in (env or {}).items()), shown]))
    print(f"$ {bench.commands[-1]}", flush=True)
    if program == "python":
        arguments[0] = str(ROOT / arguments[0])
    log = bench.folder / "logs" / f"{bench.step}-{len(bench.commands)}.log"
    log.parent.mkdir(exist_ok=True)
    with log.open("wb") as output:
        process = bench.start(
            [*PROGRAMS[program], *arguments],
            cwd=bench.folder,
            env={**os.environ, **(env or {})},
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        yield process, log
    finally:
        if process.poll() is None:
            # In order, so that servers of the command are stopped too.
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def ran(bench: Bench, *words: object, limit_s: float = LIMIT_S) -> str:
    """Output of a command that ended well. Raises StepFailed for any other end."""
    with started(bench, words) as (process, log):
        try:
            code = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            raise StepFailed(f"{words[0]} {words[1]} did not end within {limit_s:g} s") from None
    if code:
        raise StepFailed(f"{words[0]} {words[1]} ended with code {code}:\n{last_lines(log)}")
    return log.read_text(encoding="utf-8", errors="replace")


def killed(bench: Bench, *words: object, when: Callable[[], bool]) -> None:
    """Send SIGKILL to a command as soon as `when()`; return once all that it started has ended.

    Raises StepFailed if it ends by itself, or a process of it outlives it by STOP_S.
    """
    with started(bench, words) as (process, log):
        until = time.monotonic() + LIMIT_S
        while not when():
            if process.poll() is not None:
                raise StepFailed(f"it ended before it could be killed:\n{last_lines(log)}")
            if time.monotonic() > until:
                raise StepFailed(f"after {LIMIT_S:g} s there was nothing to be resumed")
            time.sleep(POLL_S)
        process.kill()
        process.wait()
    until = time.monotonic() + STOP_S
    while left := processes_in(bench.folder):
        if time.monotonic() > until:
            raise StepFailed(f"{STOP_S:g} s after SIGKILL there are still: {'; '.join(left)}")
        time.sleep(POLL_S)


def processes_in(folder: Path) -> list[str]:
    """Command lines of the processes whose current folder is this one."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        # Processes end meanwhile, and those of other users are not to be read.
        with suppress(OSError):
            if (process / "cwd").readlink() == folder:
                found.append((process / "cmdline").read_text().replace("\0", " ").strip())
    return found


def responds(url: str) -> bool:
    """True if GET /health returns 200 within five seconds."""
    try:
        with urlopen(f"{url}/health", timeout=5) as response:
            return bool(response.status == 200)
    except OSError:
        return False


@contextmanager
def served(bench: Bench, *words: object, env: Mapping[str, str] | None = None) -> Iterator[str]:
    """Address of a server that responds; stopped at the end of the block.

    words: of `ludic serve`, without the port. Raises StepFailed where it ends, or is silent.
    """
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    with started(bench, ["ludic", "serve", *words, "--port", port], env) as (process, log):
        until = time.monotonic() + LIMIT_S
        while not responds(url):
            if process.poll() is not None or time.monotonic() > until:
                raise StepFailed(f"the server does not respond:\n{last_lines(log)}")
            time.sleep(POLL_S)
        yield url


# Nats per token between trainer and sampler; bfloat16 on both sides makes some 1e-3.
KL = 0.01
# Seconds of a push. 0.5B params are 2 GB: less than a second of memory, the rest is overhead.
PUSH_S = 30.0
# Kernels that never hold all scores.
FUSED = {"flash", "efficient", "cudnn", "flash_attention_2", "flash_attention_3", "flex_attention"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """An assertion. name: its subject. found, wanted: as text."""

    name: str
    found: str
    wanted: str
    good: bool


@dataclass(slots=True)
class Found:
    """Result of a step: its checks, and figures by name for the report."""

    checks: list[Check] = field(default_factory=list)
    figures: dict[str, Any] = field(default_factory=dict)

    def check(self, name: str, good: bool, found: object, wanted: object) -> None:
        """Add an assertion."""
        self.checks.append(Check(name=name, found=str(found), wanted=str(wanted), good=good))

    def equal(self, name: str, found: object, wanted: object) -> None:
        """Add the assertion that two values are equal."""
        self.check(name, found == wanted, found, wanted)

    def below(self, name: str, found: float, limit: float) -> None:
        """Add the assertion that a finite number is below its limit."""
        self.check(name, found < limit, f"{found:.3g}", f"below {limit:g}")


def checked_run(bench: Bench, found: Found, name: str, *, updates: int, lora: bool = False) -> None:
    """Add the assertions about a run that has ended, and its figures.

    name: of its folder in that of the bench. updates: that it was to make. lora: it has adapters.
    Raises StepFailed for a folder without the files of a run.
    """
    out = bench.folder / name
    try:
        records = [r for r in read_metrics(out / "metrics.jsonl") if "loss" in r]
        compute = json.loads((out / "compute.json").read_text())
        results = json.loads((out / "results.json").read_text())
    except FileNotFoundError as error:
        raise StepFailed(f"the run left no {error.filename}") from error
    found.equal(f"{name}: updates", [int(r["update"]) for r in records], [*range(1, updates + 1)])
    for metric in ("reward", "loss", "grad_norm"):
        values = [record[metric] for record in records]
        shown = " ".join(f"{value:.3g}" for value in values)
        found.check(f"{name}: {metric}", all(map(math.isfinite, values)), shown, "finite numbers")
    success = results.get("test/success", math.nan)
    found.check(f"{name}: evaluation", 0 <= success <= 1, success, "a success rate")
    _check_compute(bench, found, name, compute, lora=lora)
    found.below(f"{name}: trainer-to-sampler KL", _largest(records, "mismatch/kl_at_lag_0"), KL)
    found.below(f"{name}: seconds of a push", _largest(records, "seconds/publish"), PUSH_S)
    found.figures[name] = _figures(out, records, compute)


def _check_compute(
    bench: Bench, found: Found, name: str, compute: Mapping[str, Any], *, lora: bool
) -> None:
    """Add the assertions about devices, types and kernels."""
    device, dtype = ("cuda:0", "bfloat16") if bench.on_card else ("cpu", "float32")
    masters, computed = [f"float32 on {device}"], f"{dtype} on {device}"
    found.equal(f"{name}: device", compute["device"], device)
    found.equal(f"{name}: trained params", [*compute["trained"]], masters)
    found.equal(f"{name}: frozen params", [*compute["frozen"]], [computed] if lora else [])
    found.equal(f"{name}: moments", [*compute["moments"]], masters)
    if compute["cache"] is not None:
        found.equal(f"{name}: cache of the sampler", compute["cache"], computed)
    used = {each["kernel"] for each in compute["attention"]}
    wanted = f"of {', '.join(sorted(FUSED))}"
    found.check(f"{name}: attention kernels", bool(used) and used <= FUSED, sorted(used), wanted)
    computed_in = sorted({each["dtype"] for each in compute["attention"]})
    found.equal(f"{name}: forward pass", computed_in, [dtype])


def _figures(
    out: Path, records: list[dict[str, float]], compute: Mapping[str, Any]
) -> dict[str, Any]:
    """Numbers of a run that a reader wants to compare, and where it computed."""
    # The first update allocates and tunes.
    later = records[1:] or records
    pushed = sum(file.stat().st_size for file in (out / "model").glob("*.safetensors"))
    push_s = _mean(r["seconds/publish"] for r in later)
    return {
        "trained tokens/s": _mean(r["tokens/trained_per_second"] for r in later),
        "peak GiB": max(r["memory/peak_gib"] for r in records),
        "KL": _largest(records, "mismatch/kl_at_lag_0"),
        "push s": push_s,
        # The local engine may share the params, and nothing is pushed.
        "push GB/s": pushed / push_s / 1e9 if compute["cache"] is None else math.nan,
        "seconds": time_split(read_metrics(out / "metrics.jsonl")),
        "compute": compute,
    }


def _largest(records: Iterable[Mapping[str, float]], name: str) -> float:
    """The largest size of a metric; nan, which is below nothing, if any update lacks it."""
    sizes = [abs(record.get(name, math.nan)) for record in records]
    return math.nan if not sizes or any(map(math.isnan, sizes)) else max(sizes)


def _mean(values: Iterable[float]) -> float:
    known = list(values)
    return sum(known) / len(known)


TEXTS = ["What is 12 + 30? Solve the problem. The answer is <answer>42</answer>."]
# Random params make nearly equal logits, which hide errors that sharp ones show. With this factor
# log-probs of the 0.5B model reach -24, and bfloat16 moves them by about 0.03.
SHARPNESS = 3.0
REWARD = '''"""Rewards by lot, the same for the same reply: a random model solves no task."""

import zlib


def reward(rollout):
    ids = [c.completion_ids for step in rollout.steps for c in step.decision.completions]
    return zlib.crc32(repr(ids).encode()) / 2**32
'''


def write_random_model(folder: Path, size: str, dtype: torch.dtype) -> None:
    """Write a model of `SHAPES[size]`, and a tokenizer that has a text for each of its ids."""
    tokenizer = tokenizer_of(SHAPES[size].vocab_size)
    model = random_model(size).to(dtype)
    with torch.no_grad():
        model.model.norm.weight.mul_(SHARPNESS)
    model.config.update({"eos_token_id": tokenizer.eos_token_id, "bos_token_id": None})
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    save_model(model, tokenizer, folder)


def write_mixture(folder: Path, dtype: torch.dtype) -> None:
    """Write a small mixture of 8 experts, 2 of which read a token."""
    tokenizer = make_tokenizer(TEXTS)
    torch.manual_seed(0)
    config = Qwen3MoeConfig(
        vocab_size=len(tokenizer),
        hidden_size=128,
        intermediate_size=128,
        moe_intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=64,
        num_experts=8,
        num_experts_per_tok=2,
        norm_topk_prob=True,
        max_position_embeddings=4096,
        initializer_range=0.1,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
        dtype=dtype,
    )
    save_model(Qwen3MoeForCausalLM(config).to(dtype), tokenizer, folder)


def write_exact_model(folder: Path) -> None:
    """Write a tiny model of an architecture that `--exact` knows."""
    tokenizer = make_tokenizer(TEXTS)
    save_model(make_tiny_model(tokenizer, num_heads=2, num_kv_heads=1), tokenizer, folder)


def tokenizer_of(vocabulary: int) -> PreTrainedTokenizerBase:
    """A tokenizer with so many ids, of which those that no text is made of are words too."""
    # Tokenizers of Qwen2 models add this one, which would have no row in the embeddings.
    small = make_tokenizer(TEXTS, special_tokens=["<|endoftext|>"])
    described = json.loads(small.backend_tokenizer.to_str())
    known = described["model"]["vocab"]
    known |= {f"unused{number}": number for number in range(len(small), vocabulary)}
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer.from_str(json.dumps(described)),
        pad_token=PAD,
        eos_token=TURN_END,
        clean_up_tokenization_spaces=False,
    )
    tokenizer.chat_template = small.chat_template
    return tokenizer


# Share of the estimate of `ludic train --plan` that an update on a card may take.
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
    text = ran(bench, "ludic", "train", "--plan", "./shape", *sizes, *options)
    # Warnings of other libraries may stand around it.
    planned = json.JSONDecoder().raw_decode(text, text.index("{"))[0]["total_bytes"]
    share = measured["peak_bytes"] / planned
    found.figures["updates"] = measured | {"planned_bytes": planned, "of the plan": share}
    found.check("tokens/s", measured["tokens/s"] > 0, f"{measured['tokens/s']:,.0f}", "above 0")
    if bench.on_card:
        low, high = PLAN
        found.check(
            "memory of `ludic train --plan`", low < share < high, f"{share:.2f}", f"{low} to {high}"
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
