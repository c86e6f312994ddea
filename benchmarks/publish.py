"""Speed of publishing: seconds and MB/s per publisher, beside copies in memory.

    python benchmarks/publish.py [--python PATH] [--models 10M 100M] [--repeats 5]

Without --python, the wires alone: params are packed, sent, received and unpacked by another thread.
With it, the vLLM of that Python is started on the CPU, and every publisher pushes to it, the
swap included. Every number is the best of `repeats`; the last column says how many times as long as
one copy of the bytes in memory it took. Compare ratios, not absolutes.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import socket
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console
from rich.table import Table
from torch import nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ludic_train.doctor.pushes import copy_seconds
from ludic_train.models.load import load_model, save_model
from ludic_train.models.tiny import make_tiny_model
from ludic_train.models.tokenizer import make_tokenizer
from ludic_train.publishers.base import PolicyPublisher
from ludic_train.publishers.lora import LoRAPublisher
from ludic_train.publishers.reload import ReloadPublisher
from ludic_train.publishers.tcp import TcpWire
from ludic_train.publishers.transports import FileWire
from ludic_train.publishers.vllm import VLLMPublisher
from ludic_train.serving.flags import ServeOptions
from ludic_train.serving.installed import find_vllm
from ludic_train.serving.process import started_server
from ludic_vllm.receiver import Receiver, Trainer
from ludic_vllm.relay import Arriving, Key
from ludic_vllm.wire import checksum, mapped, packed

MODELS = {
    "10M": {"hidden_size": 384, "num_layers": 6, "num_heads": 6, "num_kv_heads": 2},
    "100M": {"hidden_size": 1024, "num_layers": 9, "num_heads": 16, "num_kv_heads": 8},
}
CHUNK_BYTES, LORA_RANK = 64 * 2**20, 16


def timed(work: Callable[[], object], repeats: int) -> float:
    """The shortest of several times, in seconds."""
    times = []
    for _ in range(repeats):
        started = time.perf_counter()
        work()
        times.append(time.perf_counter() - started)
    return min(times)


def loopback_seconds(size: int, repeats: int) -> float:
    """Seconds that a plain TCP connection takes for that many bytes on this machine."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        sender = socket.create_connection(listener.getsockname())
        receiver, _ = listener.accept()
        data, target = bytearray(size), bytearray(size)

        def receive() -> None:
            view, got = memoryview(target), 0
            while got < size:
                got += receiver.recv_into(view[got:])

        def transfer() -> None:
            thread = threading.Thread(target=receive)
            thread.start()
            sender.sendall(data)
            thread.join()

        with sender, receiver:
            return timed(transfer, repeats)


def tcp_seconds(model: nn.Module, repeats: int) -> float:
    """Packing, sending, receiving and checking, by two threads."""
    secret, host = b"of the benchmark", "127.0.0.1"
    trainer = Trainer(secret)
    address = (host, trainer.listen(host))
    receiver = Receiver(address, secret, 0, timeout_s=60)
    trainer.members([0], 60)
    named = [(name, param.detach()) for name, param in model.named_parameters()]
    keys = (("benchmark", i) for i in itertools.count())

    def receive(key: Key, size: int) -> None:
        checksum(receiver.fetch(key, size, [address]))
        receiver.report(key)

    def send() -> None:
        for key, chunk in zip(keys, packed(named, chunk_bytes=CHUNK_BYTES), strict=False):
            size = len(chunk.buffer)
            trainer.offer(key, Arriving(chunk.buffer, size))
            checksum(chunk.buffer)
            threading.Thread(target=receive, args=(key, size)).start()
            trainer.wait(key, [0], 60)
            trainer.drop()
            receiver.drop()

    seconds = timed(send, repeats)
    receiver.close()
    trainer.close()
    return seconds


def file_seconds(model: nn.Module, repeats: int) -> float:
    """Packing into a file in shared memory, and reading it."""
    wire = FileWire()

    def transfer() -> None:
        params = model.named_parameters()
        for chunk in packed(params, chunk_bytes=CHUNK_BYTES, allocate=wire.allocated):
            announced = wire.announced(chunk, ["here"])["here"]
            checksum(mapped(announced["path"], len(chunk.buffer)))
            wire.release(swapped=False)

    return timed(transfer, repeats)


async def published_seconds(publisher: PolicyPublisher, model: nn.Module, repeats: int) -> float:
    """The shortest of several publications, the first of which, with its meeting, is left out."""
    times = []
    for version in range(repeats + 1):
        started = time.perf_counter()
        await publisher.publish(model.named_parameters(), version)
        times.append(time.perf_counter() - started)
    return min(times[1:])


def served(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, python: str, repeats: int
) -> dict[str, tuple[float, int]]:
    """Seconds and bytes of a publication to a vLLM server, by publisher."""
    whole = sum(p.nbytes for p in model.parameters())
    with TemporaryDirectory() as name:
        folder = Path(name)
        save_model(model, tokenizer, folder / "model")
        options = ServeOptions(port=0, lora=LORA_RANK)
        limits = ["--max-model-len", "512"]
        vllm = find_vllm(python)
        with started_server(str(folder / "model"), options, vllm, limits) as server:
            full: dict[str, PolicyPublisher] = {
                "vLLM, TCP": VLLMPublisher(server.url, TcpWire()),
                "vLLM, shared memory": VLLMPublisher(server.url, FileWire()),
                "vLLM, checkpoint folder": ReloadPublisher(server.url, folder / "versions"),
            }
            found = {
                n: (asyncio.run(published_seconds(p, model, repeats)), whole)
                for n, p in full.items()
            }
            adapted, _ = load_model(folder / "model", lora_rank=LORA_RANK)
            lora = LoRAPublisher(server.url, folder / "lora", adapted.peft_config["default"])
            seconds = asyncio.run(published_seconds(lora, adapted, repeats))
            trained = [p for p in adapted.parameters() if p.requires_grad]
            found["vLLM, LoRA adapter"] = (seconds, sum(p.nbytes for p in trained))
    return found


def measured(name: str, python: str | None, repeats: int) -> Table:
    """The table of one model."""
    tokenizer = make_tokenizer(["a b c"], vocab_size=4096)
    model = make_tiny_model(tokenizer, **MODELS[name])
    size = sum(p.nbytes for p in model.parameters())
    copying = copy_seconds(size)
    rows = {"a copy in memory": (copying, size)}
    rows["a TCP connection on this machine"] = (loopback_seconds(size, repeats), size)
    rows["wire alone: TCP"] = (tcp_seconds(model, repeats), size)
    rows["wire alone: shared memory"] = (file_seconds(model, repeats), size)
    if python is not None:
        rows |= served(model, tokenizer, python, repeats)
    params = sum(p.numel() for p in model.parameters())
    table = Table("what", "ms", "MB", "MB/s", "copies", title=f"{name}: {params / 1e6:.1f}M params")
    for what, (seconds, num_bytes) in rows.items():
        per_copy = seconds / (copying * num_bytes / size)
        speed = num_bytes / 1e6 / seconds
        table.add_row(
            what,
            f"{seconds * 1e3:.0f}",
            f"{num_bytes / 1e6:.1f}",
            f"{speed:.0f}",
            f"{per_copy:.1f}",
        )
    return table


def main(argv: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--python", help="a Python with vLLM for CPUs")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--repeats", type=int, default=5)
    args = parser.parse_args(argv)
    for name in args.models:
        Console(width=100).print(measured(name, args.python, args.repeats))


if __name__ == "__main__":
    main()
